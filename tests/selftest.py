#!/usr/bin/env python3
"""shunt-selftest - does this host compute what it should? Device tests and golden models, in every
precision of its device; a line for each precision at the end, and 1 if something failed.

    GOLDENS=FOLDER shunt-selftest [--device cuda|cpu] [--precisions P,...] [--sanitizer]

From a bundle over which its tests were unpacked, or from a checkout (tests/selftest.py, after
`make device-tests`). Needs python3; the goldens need numpy, and GOLDENS, which names their folder.

--sanitizer runs the goldens and the device tests of our own kernels under compute-sanitizer's
memcheck, and those device tests under its racecheck instead. A check counts as passed only where the tool says that it found
nothing: where it cannot look into a program, it lets the program end as if all were well. Memory
that one model has from the arena is one allocation to memcheck.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILT = ROOT if os.path.exists(os.path.join(ROOT, "bin", "shunt-run")) else \
    os.path.join(ROOT, "build")
BIN, TESTS = os.path.join(BUILT, "bin"), os.path.join(BUILT, "device-tests")
CHECK = os.path.join(ROOT, "tests", "golden", "check.py")
PRECISIONS = {"cuda": ["fp32", "tf32", "fp16", "bf16"], "cpu": ["fp32", "fp64"]}
MODELS = ["mlp", "lenet_digits", "resnet_tiny", "inception_tiny", "bert_tiny", "mobilenet_v3_small"]
KERNELS = ["test_ops", "test_index", "test_shape", "test_attn", "test_train", "test_optim", "test_conv",
           "test_quant", "test_loss", "test_augment", "test_resample", "test_rnn"]
PLAIN = "test_mem"  # knows no precision, and times copies: by itself
CLEAN = {"memcheck": "ERROR SUMMARY: 0 errors", "racecheck": "RACECHECK SUMMARY: 0 hazards"}
PORTS, PER_PORT = 15000, 16  # below those of outgoing connections
FOUND = 9  # exit status of the tool, or of our wrapper
SHOWN = 12  # lines of a check that failed
GOOD = re.compile(r"\s*(\[=|\[ +(RUN|OK|PASSED) |ok |-- )")  # lines that do not say why

told = threading.Event()  # to stop
running = set()


class Job:
    """A program, and what is counted of it: itself, or the checks in the JSON file that it wrote."""

    def __init__(self, kind, precision, name, command, counts=None, **env):
        self.kind, self.precision, self.name = kind, precision, name
        self.command, self.counts, self.env = command, counts, env
        self.passed = self.failed = self.skipped = 0
        self.why = ""

    def run(self, limit_s, deadline):
        """Prints a line when it has ended."""
        began = time.monotonic()
        if told.is_set() or began > deadline:
            self.skipped = 1
            return
        try:
            text, rc = ended(self.command, {**os.environ, **self.env},
                             min(limit_s, max(1, deadline - began)))
        except OSError as e:
            text, rc = str(e), 1
        self.count(rc)
        if self.failed:
            self.why = "no end in time" if rc is None else "exit status %d" % rc
        print("%-5s %-12s %-5s %-20s %6.1f s  %s" % (
            "FAIL" if self.failed else "ok", self.kind, self.precision, self.name,
            time.monotonic() - began, self.why), flush=True)
        if self.failed:
            bad = [x for x in text.splitlines() if not GOOD.match(x)]
            for line in bad[:SHOWN]:
                print("      | " + line[:200], flush=True)

    def count(self, rc):
        if self.counts and rc is not None:
            try:
                with open(self.counts, encoding="utf-8") as f:
                    got = json.load(f)
                self.passed, self.failed = got["passed"], got["failed"] or int(rc != 0)
                return
            except (OSError, ValueError):
                pass
        self.passed, self.failed = (1, 0) if rc == 0 else (0, 1)


def ended(command, env, limit_s):
    """What it printed, and its exit status: None if it had to be killed."""
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        p = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                             start_new_session=True)
        running.add(p)
        try:
            rc = p.wait(limit_s)
        except subprocess.TimeoutExpired:
            rc = None
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
        running.discard(p)
        out.seek(0)
        return out.read(), rc


def stop(*_):
    told.set()
    for p in list(running):
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)


# ---------------------------------------------------------------- what there is to run

def device_tests(args, names):
    """test_mem in the first precision alone. In fp64 the cpu device is the oracle's."""
    return [Job("device-test", p, name, [os.path.join(TESTS, name)],
                BACKEND="oracle" if p == "fp64" else args.device,
                PRECISION=p)
            for p in args.precisions for name in names
            if name != PLAIN or p == args.precisions[0]]


def goldens(args, kind, shunt_run, folder):
    """One job for each model: none of them fills a GPU."""
    jobs = []
    for p in args.precisions:
        for model in args.models:
            out = os.path.join(folder, "%s-%s-%s.json" % (kind, p, model))
            jobs.append(Job(kind, p, model, [sys.executable, CHECK, "--device", args.device,
                                             "--precision", p, "--json", out, model],
                            out, SHUNT_RUN=shunt_run))
    return jobs


def wrapped(tool, what, program, folder):
    """A program that runs another one under the tool, and fails unless the tool says all is well.
    Errors of API calls are no faults: libraries ask what a device can do, and we look at them. Nor
    are races of cuDNN's kernels ours, which the tool cannot leave out: their program then fails."""
    path = os.path.join(folder, what + "-" + os.path.basename(program))
    with open(path, "w", encoding="utf-8") as f:
        f.write("""#!/bin/sh
log=$(mktemp "%(folder)s/log.XXXXXX")
"%(tool)s" --tool %(what)s %(more)s --error-exitcode %(found)d --target-processes application-only \\
    --launch-timeout 120 --port $((%(ports)d + $$ %% 1000 * %(per)d)) --max-connections %(per)d \\
    --log-file "$log" "%(program)s" "$@"
rc=$?
if [ $rc -eq 0 ] && grep -q '%(clean)s' "$log"; then exit 0; fi
if [ $rc -eq %(found)d ] && grep -q 'RACECHECK SUMMARY' "$log" &&
    ! grep 'Race reported' "$log" | grep -v '_cudnn+' >&2; then exit 0; fi
echo "%(what)s of %(program)s: exit status $rc" >&2
grep -v '^========= COMPUTE-SANITIZER' "$log" | head -n %(shown)d >&2
[ $rc -ne 0 ] || rc=%(found)d
exit $rc
""" % {"folder": folder, "tool": tool, "what": what, "found": FOUND, "ports": PORTS,
       "per": PER_PORT, "program": program, "clean": CLEAN[what], "shown": SHOWN,
       "more": "--report-api-errors no" if what == "memcheck" else "--print-limit 0"})
    os.chmod(path, 0o755)
    return path


def sanitizer():
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("compute-sanitizer") or \
        shutil.which("compute-sanitizer", path=os.path.join(cuda, "bin"))


def sanitized(args, has_goldens, folder):
    tool = sanitizer()
    if not tool:
        print("skip: compute-sanitizer is neither in PATH nor in CUDA's bin/ (CUDA_HOME)")
        return []
    jobs = []
    if has_goldens:
        shunt_run = wrapped(tool, "memcheck", os.path.join(BIN, "shunt-run"), folder)
        jobs += goldens(args, "memcheck", shunt_run, folder)
    for what in CLEAN:
        for name in (n for n in KERNELS if n in args.tests):
            path = wrapped(tool, what, os.path.join(TESTS, name), folder)
            jobs += [Job(what, p, name, [path], BACKEND=args.device, PRECISION=p, SANITIZED="1")
                     for p in args.precisions]
    return sorted(jobs, key=lambda j: args.precisions.index(j.precision))


# ---------------------------------------------------------------- the whole

def options():
    def listed(text):
        return text.split(",")
    p = argparse.ArgumentParser(description=__doc__, add_help=True,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default=os.environ.get("BACKEND") or "cuda", choices=PRECISIONS)
    p.add_argument("--precisions", type=listed, help="default: all that the device has")
    p.add_argument("--models", type=listed, default=MODELS, help="golden models")
    p.add_argument("--tests", type=listed, help="device tests")
    p.add_argument("--sanitizer", action="store_true")
    p.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4),
                   help="programs at a time")
    p.add_argument("--limit", type=float, default=300, help="seconds for each program")
    p.add_argument("--total", type=float, default=float("inf"),
                   help="seconds after which what has not run is skipped, and counts as failed")
    args = p.parse_args()
    there = sorted(f for f in os.listdir(TESTS) if f.startswith("test_") and "." not in f) \
        if os.path.isdir(TESTS) else []
    if not there:
        p.error("there are no device tests in %s: unpack the tests of the bundle over it, or run "
                "make device-tests" % TESTS)
    args.precisions = args.precisions or PRECISIONS[args.device]
    args.tests = args.tests or there
    for given, known in ((args.precisions, PRECISIONS[args.device]), (args.models, MODELS),
                         (args.tests, there)):
        for x in given:
            if x not in known:
                p.error("there is no %s; there are %s" % (x, " ".join(known)))
    return args


def find_libraries(args):
    """As the bundle's README says to do once."""
    tool = os.path.join(BIN, "shunt-cuda-libs")
    if args.device == "cuda" and os.path.exists(tool) and \
            not os.path.exists(os.path.join(BUILT, "lib", "cuda")):
        subprocess.run([tool], check=False)


def summary(args, jobs):
    """1 if something failed or was left out."""
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for p in args.precisions:
        parts, bad = [], False
        for kind in dict.fromkeys(j.kind for j in jobs):
            of = [j for j in jobs if (j.kind, j.precision) == (kind, p)]
            n = {k: sum(getattr(j, k) for j in of) for k in total}
            for k, v in n.items():
                total[k] += v
            bad |= bool(n["failed"] or n["skipped"])
            if of:
                parts.append("%s %d of %d" % (kind, n["passed"], n["passed"] + n["failed"]) +
                             (" (%d not run)" % n["skipped"] if n["skipped"] else ""))
        print("%-6s %-6s %s" % (p, "FAILED" if bad else "ok", ", ".join(parts) or "nothing ran"))
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % total)
    return 1 if total["failed"] or total["skipped"] else 0


def main():
    args = options()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    deadline = time.monotonic() + args.total
    has_goldens = os.path.isdir(os.environ.get("GOLDENS", ""))
    if not has_goldens:
        print("skip: the golden models: GOLDENS names no folder")
    find_libraries(args)
    with tempfile.TemporaryDirectory(prefix="shunt-selftest-") as folder:
        if args.sanitizer:
            jobs = sanitized(args, has_goldens, folder)
        else:
            jobs = device_tests(args, args.tests)
            if has_goldens:
                jobs += goldens(args, "golden", os.path.join(BIN, "shunt-run"), folder)
        for j in jobs:
            if j.name == PLAIN:
                j.run(args.limit, deadline)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(lambda j: j.run(args.limit, deadline),
                          [j for j in jobs if j.name != PLAIN]))
    return summary(args, jobs)


if __name__ == "__main__":
    sys.exit(main())
