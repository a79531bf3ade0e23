"""What the programs of this folder share: cases by number, programs with sanitizers, what was found.

Case number i of a seed of random numbers is always the same one.
"""
import argparse
import collections
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BIN = os.environ.get("SHUNT_BIN") or os.path.join(ROOT, "build-address-undefined", "bin")
LIMIT_S = 120            # of a processor; ten times that until it is said that it waits for ever
MEMORY = 4 << 30         # with what sanitizers add
PART = 200               # cases of one process
ASAN = "allocator_may_return_null=1:max_allocation_size_mb=2048:hard_rss_limit_mb=%d" % (MEMORY >> 20)
ENV = {"UBSAN_OPTIONS": "print_stacktrace=1", "OMP_NUM_THREADS": "1"}
REPORTS = ("ERROR: AddressSanitizer", "runtime error:", "ERROR: LeakSanitizer")


class Finding(Exception):
    pass


class Case:
    """make() its files in .at; run() says what became of them, or raises Finding."""

    def __init__(self, number, seed, folder):
        self.r = random.Random("%d/%d" % (seed, number))
        self.number = number
        self.at = os.path.join(folder, "c%d" % number)
        self.what = []

    def kept(self):
        """Files that are worth keeping: {ending: path}"""
        return {}

    def program(self, *args, leaks=True, env=None):
        """(exit status, standard output); raises Finding. leaks: those at its end count."""
        out, err = (tempfile.TemporaryFile(dir=self.at) for _ in range(2))
        p = subprocess.Popen([os.path.join(BIN, args[0]), *args[1:]], stdout=out, stderr=err,
                             stdin=subprocess.DEVNULL, env={**os.environ, **ENV, **(env or {}), "ASAN_OPTIONS":
                                                            ASAN + ":detect_leaks=%d" % leaks})
        resource.prlimit(p.pid, resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 5))
        late = threading.Event()
        timer = threading.Timer(10 * LIMIT_S, lambda: (late.set(), p.kill()))
        timer.start()
        p.wait()
        timer.cancel()
        text = []
        for f in (out, err):
            f.seek(0)
            text.append(f.read().decode(errors="replace"))
            f.close()
        if leaks and "LeakSanitizer has encountered a fatal error" in text[1]:
            return self.program(*args, leaks=False, env=env)  # of its own: looking is what failed
        said = "%s: exit status %d\n%s" % (" ".join(args), p.returncode, text[1][-20000:])
        if late.is_set() or p.returncode == -signal.SIGXCPU:
            raise Finding("no end within %d s: " % LIMIT_S + said)
        if p.returncode not in self.endings or any(w in text[1] for w in REPORTS):
            raise Finding(said)
        if p.returncode and len(text[1].strip()) < 20:
            raise Finding("it does not say why: " + said)
        return p.returncode, text[0]

    endings = (0, 1)

    def go(self, keep):
        """(verdict, None or what was found)"""
        try:
            self.make()
            return self.run(), None
        except (Finding, ValueError) as e:
            if keep:
                os.makedirs(keep, exist_ok=True)
                for ending, path in self.kept().items():
                    copy = shutil.copytree if os.path.isdir(path) else shutil.copy
                    copy(path, os.path.join(keep, "%d.%s" % (self.number, ending)))
                with open(os.path.join(keep, "%d.txt" % self.number), "w", encoding="utf-8") as f:
                    f.write("%s\n%s\n" % (" ".join(self.what), e))
            return "found", "case %d (%s): %s" % (self.number, " ".join(self.what), e)
        finally:
            shutil.rmtree(self.at, ignore_errors=True)


def begin(start, options, folder):
    """In each process. It ends after PART cases: what they have allocated stays until then."""
    sys.setrecursionlimit(10000)
    make = start(options)
    begin.go = lambda i: make(i, options.seed, folder).go(options.keep)


def go(i):
    return begin.go(i)


def options_of(doc, count):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=count)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--keep", metavar="DIR", help="what is found, with a text beside it")
    return p


def main(options, start, verdicts):
    """start(options), once in each process: makes a case of (number, seed, folder). verdicts: what a
    case may come to, in the order in which the last line counts them. Returns the exit status."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = tempfile.mkdtemp(prefix="shunt-mutations.")
    by = collections.Counter()
    try:
        with multiprocessing.Pool(os.cpu_count(), begin, (start, options, folder), PART) as pool:
            for verdict, found in pool.imap(go, range(options.first, options.first + options.count)):
                by[verdict] += 1
                if found:
                    print(found, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("%d mutations: %s; %d findings" % (
        options.count, ", ".join("%d %s" % (by[v], v) for v in verdicts), by["found"]))
    if options.count >= PART and not all(by[v] for v in verdicts):
        print("a verdict that never came: the cases are not what they should be")
        return 1
    return 1 if by["found"] else 0
