#!/usr/bin/env python3
"""Plants faults into the code, one at a time, and says which seed of a simulation finds each.

    tests/sim/mutate.py [--seeds 1000] [--only WORD] [--short] [LIST...]
    tests/sim/mutate.py --check                   # each fault can still be planted: at once

LIST: tests/sim/mutations_*.txt, all of them if none is named. A fault is a line `name NAME` and three
lines (file, old, new), more of them where two places do the same: `new` takes the place of `old`, a
whole line that the file has once. Lines that may stand before them: `scenario NAME` (what it is
looked for in; holds for those that follow), `short` (this one is of the few that --short plants).

Works in a copy of the tree and its objects, below build/: what was built is not built again, a
fault costs one object and a link. Prints a row of a table for each fault. Exits with 1 when one is
not found, or cannot be planted."""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
COPY = os.environ.get("MUTANTS", os.path.join(ROOT, "build", "mutants"))
EDIT = ("file", "old", "new")


def read(path):
    faults, scenario, short, want = [], None, False, EDIT
    with open(path, encoding="utf-8") as f:
        for at, line in enumerate(f, 1):
            word, _, rest = line.rstrip("\n").partition(" ")
            if not word or word.startswith("#"):
                continue
            if word == "scenario":
                scenario = rest
            elif word == "short":
                short = True
            elif word == "name" and want == EDIT:
                faults.append({"name": rest, "scenario": scenario, "short": short, "edits": []})
                short = False
            elif faults and word == want[0]:
                if word == "file":
                    faults[-1]["edits"].append({})
                faults[-1]["edits"][-1][word] = rest
                want = want[1:] or EDIT
            else:
                sys.exit(f"{path}:{at}: {word} is not what follows here")
    return faults


def cannot_be_planted(root, fault):
    """Why; None: it can."""
    for e in fault["edits"]:
        path = os.path.join(root, e["file"])
        if not os.path.exists(path):
            return f"there is no {e['file']}"
        with open(path, encoding="utf-8") as f:
            n = f.read().split("\n").count(e["old"])
        if n != 1:
            return f"{e['file']} has its line {n} times"
    return None if fault["edits"] else "it changes nothing"


def copy_tree():
    shutil.rmtree(COPY, ignore_errors=True)
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\n")
    files = [f for f in files if f.endswith((".c", ".h", ".def", "rooms.txt")) or
             f.startswith(("tests/sim/", "Makefile"))]
    for folder in ("common", "scheduler", "api", "executor", "runtime", "sim", "tests/sim", "gen"):
        for at, _, names in os.walk(os.path.join(ROOT, "build", folder)):
            files += [os.path.relpath(os.path.join(at, n), ROOT) for n in names]
    for name in files + ["build/libcommon.a"]:
        if os.path.isfile(os.path.join(ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(COPY, name)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(COPY, name))


def build(where):
    r = subprocess.run(["make", "-j2", "NVCC=", "build/sim/sim"], cwd=where, capture_output=True,
                       text=True)
    return None if r.returncode == 0 else (r.stdout + r.stderr)[-800:]


def find(scenario, n_seeds):
    """The first of so many seeds that breaks, and what it says; None: none does."""
    first, step = 1, 2
    while first <= n_seeds:
        last = min(first + step - 1, n_seeds)
        r = subprocess.run(["build/sim/sim", "--scenario", scenario, "--seeds", f"{first}-{last}"],
                           cwd=COPY, capture_output=True, text=True, errors="replace")
        found = {}
        for m in re.finditer(r"^seed (\d+): (?:BROKEN )?(.*)", r.stdout, re.M):
            found.setdefault(int(m[1]), []).append(m[2])
        if found:
            said = " ".join(found[min(found)])
            return min(found), said
        first, step = last + 1, min(step * 2, 32)
    return None


def plant(fault):
    """The texts that were there, by path."""
    was = {}
    for e in fault["edits"]:
        path = os.path.join(COPY, e["file"])
        with open(path, encoding="utf-8") as f:
            text = f.read()
        was.setdefault(path, text)
        with open(path, "w", encoding="utf-8") as f:
            f.write(("\n" + text).replace(f"\n{e['old']}\n", f"\n{e['new']}\n", 1)[1:])
    return was


def try_one(fault, n_seeds):
    """The end of its row, and whether it was found."""
    was = plant(fault)
    said = build(COPY)
    found = None if said else find(fault["scenario"], n_seeds)
    for path, text in was.items():
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    if said:
        return f"does not compile: {said}", False
    if not found:
        return f"{fault['scenario']} | none of {n_seeds} | ", False
    return f"{fault['scenario']} | {found[0]} | {found[1][:100]}", True


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--seeds", type=int, default=1000)
    a.add_argument("--only", default="")
    a.add_argument("--short", action="store_true")
    a.add_argument("--check", action="store_true")
    a.add_argument("lists", nargs="*", default=sorted(glob.glob(HERE + "/mutations_*.txt")))
    a = a.parse_args()
    faults = [f for path in a.lists for f in read(path)
              if a.only in f["name"] and (f["short"] or not a.short)]
    bad = [(f["name"], why) for f in faults for why in [cannot_be_planted(ROOT, f)] if why]
    for name, why in bad:
        print(f"{name}: {why}", flush=True)
    if a.check or bad:
        sys.exit(len(bad) > 0)
    said = build(ROOT)
    if said:
        sys.exit(said)
    copy_tree()
    n_found = 0
    print("| planted | looked for in | first seed | what it says |\n| --- | --- | --- | --- |")
    for fault in faults:
        row, found = try_one(fault, a.seeds)
        n_found += found
        print(f"| {fault['name']} | {row} |", flush=True)
    print(f"{n_found} of {len(faults)} found")
    sys.exit(n_found < len(faults))


if __name__ == "__main__":
    main()
