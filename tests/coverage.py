#!/usr/bin/env python3
"""Branch coverage of the cores: what unit tests and the simulation took of each `if`, `?:`, `&&`,
`||`, loop and switch, by room. `make coverage` builds for it and calls it.

    tests/coverage.py BUILD [--seeds FIRST-LAST] [--lines]   # --lines: what was not taken

Runs the unit tests that link a file of a core, and the scenarios of the simulation, in a build with
gcc's --coverage. A source that both builds have counts once: a branch is taken if either took it.

Two kinds of branches that were not taken are told apart, and are not in the percentage: those of
assertions (the condition guards abort(), SH_E_BUG or a *.bug line of the log: nothing may take
them) and those of memory (it asks an allocation, or guards SH_E_NOMEM: test_oom and the device's
refusals take some). Guarded is what stands up to the end of the statement or block below."""
import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
ROOMS = ["executor/" + r for r in ("memory", "pool", "models", "runs", "training", "batch")] + \
        ["scheduler/" + r for r in ("decide", "peers", "models", "jobs", "pass")]
SCENARIOS = ("executor", "sched", "system")
ASSERTS = re.compile(r'abort\(|SH_E_BUG|\.bug"')
MEMORY = re.compile(r"\b(?:[cm]alloc|realloc|\w*strdup|sh_grow|json_(?:pack|object|array|string)\w*)\(|"
                    r"SH_E_NOMEM|out of memory")


def run(cmd, **more):
    return subprocess.run(cmd, cwd=ROOT, **more)


def tests_of_cores():
    """Unit tests that name an object of a core."""
    for path in sorted(glob.glob(ROOT + "/tests/unit/test_*.c")):
        with open(path, encoding="utf-8") as f:
            uses = " ".join(re.findall(r"^/\* uses: (.*) \*/$", f.read(), re.M))
        if any(room + "/" in uses for room in ROOMS):
            yield os.path.basename(path)[:-2]


def run_all(build, seeds):
    """What was run, and the steps of lives that neither a scenario nor a unit test took."""
    for old in glob.glob(f"{ROOT}/{build}/**/*.gcda", recursive=True):
        os.unlink(old)
    bad, missing, said = [], None, []
    lives = os.path.join(ROOT, build, "lives.txt")
    open(lives, "w", encoding="utf-8").close()
    for name in tests_of_cores():
        # test_life walks all tables: that takes no step of anything that lives.
        env = {**os.environ, "SHUNT_LIVES": "" if name == "test_life" else lives}
        if run(["timeout", "900", f"{build}/tests/{name}"], capture_output=True,
               env=env).returncode:
            bad.append(name)
    for s in SCENARIOS:
        r = run([f"{build}/sim/sim", "--scenario", s, "--seeds", seeds, "--lives"],
                capture_output=True, text=True)
        found = set(re.findall(r"^not taken: (.*)", r.stdout, re.M))
        missing = found if missing is None else missing & found
        said.append(r.stdout.strip().split("\n")[-1])
        if r.returncode:
            bad.append(f"sim --scenario {s}")
    with open(lives, encoding="utf-8") as f:
        missing -= set(f.read().splitlines())
    return bad, missing, said


def merge(build):
    """{file: {line: [count of each branch]}}"""
    files = collections.defaultdict(lambda: collections.defaultdict(list))
    gcda = [p for room in ROOMS for at in (build, build + "/sim")
            for p in glob.glob(f"{ROOT}/{at}/{room}/*.gcda")]
    for path in gcda:
        r = run(["gcov", "--json-format", "--stdout", "--branch-probabilities", path],
                capture_output=True, text=True)
        for line in r.stdout.splitlines():
            for f in json.loads(line)["files"] if line.startswith("{") else []:
                if os.path.dirname(f["file"]) not in ROOMS or not f["file"].endswith(".c"):
                    continue
                for n in f["lines"]:
                    have = files[f["file"]][n["line_number"]]
                    for i, b in enumerate(n["branches"]):
                        if i == len(have):
                            have.append(0)
                        have[i] += b["count"]
    return files


def guarded(text, at):
    """The condition of line `at` (from 1), and what it guards."""
    out, indent, depth = [], len(text[at - 1]) - len(text[at - 1].lstrip()), 0
    for line in text[at - 1:at + 24]:
        out.append(line)
        if line.rstrip().endswith("{"):
            depth = 1
        if (not depth and line.rstrip().endswith(";")) or \
                (depth and line.startswith(" " * indent + "}")):
            break
    return "\n".join(out)


def look_at(files):
    rooms = collections.defaultdict(collections.Counter)
    not_taken = []
    for name in sorted(files):
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            text = f.read().split("\n")
        c = rooms[os.path.dirname(name)]
        for at, branches in sorted(files[name].items()):
            missed = branches.count(0)
            c["taken"] += len(branches) - missed
            if not missed:
                continue
            what = guarded(text, at)
            kind = "assert" if ASSERTS.search(what) else "memory" if MEMORY.search(what) else "open"
            c[kind] += missed
            if kind == "open":
                not_taken.append((name, at, missed, len(branches), text[at - 1].strip()))
    return rooms, not_taken


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--seeds", default="1-100")
    a.add_argument("--lines", action="store_true")
    a.add_argument("--no-run", action="store_true", help="what the last run left")
    a = a.parse_args()
    bad, missing, said = ([], set(), []) if a.no_run else run_all(a.build, a.seeds)
    rooms, not_taken = look_at(merge(a.build))
    if a.lines:
        for name, at, missed, n, text in not_taken:
            print(f"{name}:{at}: {missed} of {n}: {text}")
    print("\n".join(said))
    print(f"{'room':20} {'branches':>9} {'taken':>7} {'%':>6} {'memory':>7} {'asserts':>7}")
    total = collections.Counter()
    for room in ROOMS + ["all"]:
        c = rooms[room] if room != "all" else total
        if room != "all":
            total.update(c)
        n = c["taken"] + c["open"]
        print(f"{room:20} {n:9} {c['taken']:7} {100 * c['taken'] / max(n, 1):6.1f} "
              f"{c['memory']:7} {c['assert']:7}")
    for step in sorted(missing):
        print(f"step of a life that neither a unit test nor the simulation took: {step}")
    for name in bad:
        print(f"FAILED: {name}", file=sys.stderr)
    sys.exit(len(bad) > 0)


if __name__ == "__main__":
    main()
