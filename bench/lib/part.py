"""What the parts of ../gpu/ share: options, programs, the one JSON object that they print.

bench/gpu.sh starts a part, with those of the options that it was given itself, and merges what it
prints: {"settings", "rows"} (rows.py), and perhaps "checks": [{"check", "ok", ...}].
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback

from rows import case_text, failed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("SHUNT_BIN", os.path.join(ROOT, "build", "bin"))
MODELS = ("resnet152", "inception-v3", "bert-base")
DEVICE = os.environ.get("SHUNT_BENCH_DEVICE", "cuda")  # cpu: to try a part out
# As `shunt up` chooses it, for the executors that a part starts.
POLL_US, POLL_CORES = 200000, 16  # tests/lint/same.sh compares them with cli/local/plan.c
BUSY_POLL_US = os.environ.setdefault(
    "SHUNT_BUSY_POLL_US",
    str(POLL_US if DEVICE == "cuda" and len(os.sched_getaffinity(0)) >= POLL_CORES else 0))


def here(precisions):
    """The cpu device has one that its figures can be of."""
    return precisions if DEVICE == "cuda" else "fp32"


def options(doc, precisions="tf32,fp16", batch=8, runs=100, seconds=5):
    """The options that every part takes, with this part's defaults."""
    def listed(text):
        return text.split(",")
    p = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    p.add_argument("--only", type=listed, help="some of what the part does, with commas")
    p.add_argument("--models", type=listed, default=list(MODELS), help="of shunt-zoo, with commas")
    p.add_argument("--precisions", type=listed, default=precisions and listed(here(precisions)))
    p.add_argument("--batch", type=int, default=batch)
    p.add_argument("--runs", type=int, default=runs, help="timed runs of each case")
    p.add_argument("--seconds", type=float, default=seconds, help="of each load")
    return p


def check_known(p, given, known, what):
    """Ends with an error if one of `given` is none of `known`."""
    unknown = [n for n in given if n not in known]
    if unknown:
        p.error("there is no %s %s; there are %s" % (what, unknown[0], " ".join(known)))


def cases(args):
    return [{"model": m, "precision": p, "batch": args.batch}
            for m in args.models for p in args.precisions]


def program(name, *args, limit_s=600, env=None):
    """Its output; RuntimeError with what it says if it fails."""
    r = subprocess.run([os.path.join(BIN, name), *map(str, args)], capture_output=True, text=True,
                       timeout=limit_s, env=env)
    if r.returncode:
        raise RuntimeError("%s %s: %s" % (name, args[0], r.stderr.strip()))
    return r.stdout


def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the report
    raise SystemExit(143)


def show(row):
    """One line of a row or a check, while the others are still to come."""
    if "error" in row:
        text = "%-20s %s" % (row["by"], row["error"])
    elif "check" in row:
        text = "%s  %s" % ("ok  " if row["ok"] else "FAIL", row["check"])
    else:
        name = row["what"] if row["by"] == "shunt" else row["by"]
        text = "%-20s %-46s " % (name, case_text(row["case"]))
        text += "median %9.3f  p99 %9.3f %s" % (row["median"], row["p99"], row["unit"])
    print("    ", text, file=sys.stderr, flush=True)


def collect(args, what, by, measure, of=None):
    """The rows of measure(case) for each case, and checks, which have "check" and "ok"; prints what
    came of it, also when told to stop. of: other cases than models x precisions."""
    rows, checks = [], []
    signal.signal(signal.SIGTERM, stop)
    try:
        for case in of or cases(args):
            print("  ", what, by, case_text(case), file=sys.stderr, flush=True)
            began = time.monotonic()
            try:
                for r in measure(case):
                    (checks if "check" in r else rows).append(r)
                    show(r)
            except Exception as e:  # one case that fails leaves the others
                traceback.print_exc()
                rows.append(failed(what, by, case, e))
            print("      took %.1f s" % (time.monotonic() - began), file=sys.stderr, flush=True)
    finally:
        settings = {**vars(args), "device": DEVICE,
                    "busy_poll_us": int(BUSY_POLL_US)}
        got = {"settings": settings, "rows": rows, **({"checks": checks} if checks else {})}
        print(json.dumps(got), flush=True)
    return 1 if any("error" in r for r in rows) or not all(c["ok"] for c in checks) else 0
