#!/usr/bin/env python3
"""report.py DIR --out FILE - tables of what the parts printed (DIR/PART.json), merged into FILE.

A table has ours and the peers' rows of this run, and a ratio where both are there. What one of our
parts has to be by another (limits.py) may be of different runs: the builds are named. FILE keeps,
for each part, its newest run with all samples, and with what machine, programs and settings it was
taken.
"""
import argparse
import glob
import json
import os
import platform
import re
import subprocess
import sys
import time

from limits import check
from part import BIN, DEVICE, ROOT
from rows import case_text

OURS = "shunt"
TRY = "" if DEVICE == "cuda" else "  [a try on the %s device: no figure of a GPU]" % DEVICE


def output(*command):
    try:
        r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           timeout=20, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return r.stdout.strip() if r.returncode == 0 else ""


def machine():
    cpu = re.search(r"^model name\s*: (.*)$", open("/proc/cpuinfo").read(), re.M)
    fields = ("name", "driver_version", "memory.total", "clocks.max.sm", "pcie.link.gen.max",
              "pcie.link.width.max")
    gpu = output("nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader")
    values = gpu.splitlines()[0].split(", ") if gpu else ["none"]
    return {"device": DEVICE, "gpu": dict(zip(fields, values)), "cpu": cpu.group(1) if cpu else platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "commit": BIN.startswith(ROOT) and output("git", "describe", "--always", "--dirty") or
            output(os.path.join(BIN, "shunt"), "--version"),
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def file_name(where):
    if TRY:
        return "try-%s.json" % DEVICE
    name = where["gpu"]["name"].lower().replace("nvidia ", "")
    return (re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "none") + ".json"


# ---------------------------------------------------------------- tables

def key(row):
    return row["what"], json.dumps(row["case"])


def ratio(row, ours):
    """Ours over theirs."""
    if ours is None or row["by"] == OURS or ours.get("unit") != row.get("unit") or not row.get("value"):
        return ""
    return "%.2f" % (ours["value"] / row["value"])


def line(row, ours, case):
    if "value" not in row:
        why = row.get("error") or "skipped: " + row["skipped"]
        return "  %-44s %-32s %s" % (case, row["by"], why.replace("\n", " ")[:300])
    extra = " ".join("%s %s" % (k, row[k]) for k in ("training_samples_per_s",) if k in row)
    return "  %-44s %-32s %10.3f %10.3f %10.3f %5d %8s  %s" % (
        case, row["by"], row["value"], row["median"], row["p99"], len(row["samples"]),
        ratio(row, ours), extra)


def print_rows(rows):
    for what in dict.fromkeys(r["what"] for r in rows):
        of = [r for r in rows if r["what"] == what]
        unit = next((r["unit"] for r in of if "unit" in r), "")
        unit = {"": "", "ms": ", ms"}.get(unit, ", %s (more is better)" % unit)
        print("\n%s%s%s" % (what, unit, TRY))
        print("  %-44s %-32s %10s %10s %10s %5s %8s" % ("", "", "value", "median", "p99", "runs",
                                                        OURS + "/it"))
        for k in dict.fromkeys(key(r) for r in of):
            same = sorted((r for r in of if key(r) == k), key=lambda r: r["by"] != OURS)
            ours = next((r for r in same if r["by"] == OURS and "value" in r), None)
            case = case_text(same[0]["case"])
            for r in same:
                print(line(r, ours, case))
                case = ""


def print_checks(part, checks, all_of_them=False):
    held = sum(c["ok"] for c in checks)
    print("\n%s: %d of %d checks hold%s" % (part, held, len(checks), TRY))
    for c in checks:
        if all_of_them or not c["ok"]:
            more = {k: v for k, v in c.items() if k not in ("check", "ok")}
            print("  %s %s %s" % ("ok  " if c["ok"] else "FAIL", c["check"], more))


# ---------------------------------------------------------------- the file

def write(path, doc):
    text = json.dumps(doc, indent=1)
    text = re.sub(r"\[\s+([-+0-9.eE, \n]+?)\s+\]",
                  lambda m: "[" + " ".join(m.group(1).split()) + "]", text)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".new", "w") as f:
        f.write(text + "\n")
    os.rename(path + ".new", path)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("dir")
    p.add_argument("--out", help="default: bench/results/<gpu>.json")
    args = p.parse_args()
    where = machine()
    out = args.out or os.path.join(ROOT, "bench", "results", file_name(where))
    try:
        doc = json.load(open(out))
    except (OSError, ValueError):
        doc = {}
    if any(of["machine"].get("device", "cuda") != DEVICE for of in doc.values()):
        print("report: %s has figures of another device; it stays as it is" % out)
        out, doc = "%s.%s" % (out, DEVICE), {}
    rows, bad = [], 0  # bad: parts that printed nothing, and limits that do not hold
    paths = glob.glob(os.path.join(args.dir, "*.json"))
    for path in sorted(paths, key=os.path.getmtime):  # in the order in which they ran
        part = os.path.basename(path)[:-len(".json")]
        try:
            got = json.load(open(path))
        except ValueError as e:
            print("%s printed no JSON: %s" % (part, e))
            bad += 1
            continue
        doc[part] = {"machine": where, **got}
        rows += got.get("rows", [])
        if got.get("checks"):
            print_checks(part, got["checks"])
    print_rows(rows)
    limits = check(doc)
    if limits:
        print_checks("limits across parts, of all figures in the file", limits, True)
    bad += sum(not c["ok"] for c in limits)
    write(out, doc)
    print("\n%s, driver %s, %s: %s%s" % (where["gpu"]["name"],
                                         where["gpu"].get("driver_version", "none"),
                                         where["commit"], out, TRY))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
