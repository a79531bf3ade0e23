#!/usr/bin/env python3
"""Plants faults into the code, one at a time, and says which seed of a simulation finds each.

    tests/sim/mutate.py --scenario sched [--seeds 1000] [--only WORD] tests/sim/mutations_sched.txt

Works in a copy of the tree, below build/. Exits with 1 when a fault is not found."""
import argparse
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
COPY = os.path.join(ROOT, "build", "mutants")
STEP = 20


def read(path):
    faults, one = [], {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            m = re.match(r"(name|file|old|new) (.*)", line.rstrip("\n"))
            if m:
                one[m[1]] = m[2]
            if len(one) == 4:
                faults.append(one)
                one = {}
    return faults


def copy_tree():
    shutil.rmtree(COPY, ignore_errors=True)
    os.makedirs(COPY)
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\n")
    for name in files:
        if name.endswith((".c", ".h", ".def")) or name.startswith(("tests/sim/", "Makefile")):
            os.makedirs(os.path.dirname(os.path.join(COPY, name)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(COPY, name))


def build():
    r = subprocess.run(["make", "-j2", "build/sim/sim"], cwd=COPY, capture_output=True, text=True)
    return r.returncode == 0, r.stdout + r.stderr


def find(scenario, n_seeds):
    """The first of so many seeds that breaks, and what it says; None: none does."""
    for first in range(1, n_seeds + 1, STEP):
        r = subprocess.run(["build/sim/sim", "--scenario", scenario, "--seeds",
                            f"{first}-{first + STEP - 1}"], cwd=COPY, capture_output=True, text=True)
        m = re.search(r"seed (\d+): (BROKEN \S+|ended by signal \d+|.*)", r.stdout)
        if m:
            return m[1], m[2]
    return None


def plant(fault):
    path = os.path.join(COPY, fault["file"])
    with open(path, encoding="utf-8") as f:
        text = f.read()
    n = text.count(fault["old"] + "\n")
    if n < 1:
        return None
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(fault["old"] + "\n", fault["new"] + "\n", 1))
    return path, text


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--scenario", required=True)
    a.add_argument("--seeds", type=int, default=1000)
    a.add_argument("--only", default="")
    a.add_argument("list")
    a = a.parse_args()
    faults = [f for f in read(a.list) if a.only in f["name"]]
    copy_tree()
    ok, said = build()
    if not ok:
        sys.exit(said)
    missed = 0
    for fault in faults:
        planted = plant(fault)
        if not planted:
            print(f"GONE   {fault['name']}: {fault['file']} has no such line", flush=True)
            missed += 1
            continue
        ok, said = build()
        found = find(a.scenario, a.seeds) if ok else None
        with open(planted[0], "w", encoding="utf-8") as f:
            f.write(planted[1])
        if found:
            print(f"found  {fault['name']}: seed {found[0]}, {found[1]}", flush=True)
        else:
            missed += 1
            print(f"MISSED {fault['name']}{'' if ok else ': does not compile: ' + said[-600:]}",
                  flush=True)
    print(f"{len(faults) - missed} of {len(faults)} found")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
