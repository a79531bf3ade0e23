#!/usr/bin/env python3
"""Faults in one worker: SIGKILL, an illegal access, an endless kernel, in a run and in training.

The executor, the other workers and what lies in the arena must live on, the request that was hit
and the next one be answered as before, the job go on, and the cause be told. Faults of the device
are asked for by a file (runtime/device/cuda/cuda_fault.c); on the cpu device, which has no
kernels, signals stand for them. --only kill,illegal,endless
"""
import os
import re
import signal
import sys
import time

import numpy as np

from lab import DEVICE, Lab, train_precision
import part
from rows import row

FAULTS = ("kill", "illegal", "endless")
SIGNAL = {"kill": signal.SIGKILL, "illegal": signal.SIGSEGV, "endless": signal.SIGSTOP}
CAUSE = {"kill": "killed", "illegal": "device" if DEVICE == "cuda" else "crash", "endless": "hang"}
JOB, VERSION = 1, 1
HANG_MS = 2000
NEAR = 1e-2  # of the range: atomics may add in another order
BACK_S = 120  # until a worker that ended is there again, with all that it must compile
EXIT_S = 30


class Patient:
    """An executor that trains and serves, and whose workers get the faults."""

    def __init__(self, case):
        self.lab = Lab("--hang-ms=%d" % HANG_MS, log="debug", fault=True)
        try:
            self.lab.load(VERSION, case["model"], case["precision"], case["batch"])
            self.want = self.answer().out
            self.lab.train(JOB, case["model"], train_precision(case["precision"]),
                           checkpoint_interval_ms=500)
        except BaseException:
            self.lab.close()
            raise

    def answer(self, run=None):
        """The result of a request, with its numbers as `out`."""
        r, out = self.lab.d.result(run or self.lab.send(VERSION))
        assert r.rc == 0, "the request failed: %s" % r.msg
        r.out = np.frombuffer(out[0][0], np.float32)
        self.run_s = (r.total_ns - r.queue_ns) / 1e9
        return r

    def is_right(self, out):
        return bool(np.abs(out - self.want).max() <= NEAR * np.ptp(self.want))

    def workers(self):
        """{index: pid} of the processes that were started last."""
        return {f["worker"]: int(f["pid"]) for name, f in self.lab.events()
                if name == "worker.ready"}

    def last(self, event):
        return [f for name, f in self.lab.events() if name == event][-1]

    def exits(self):
        m = self.lab.d.metrics()
        return {re.search('cause="(.*?)"', k).group(1): int(v) for k, v in m.items()
                if k.startswith("shunt_worker_exits_total")}

    def value(self, name):
        return sum(v for k, v in self.lab.d.metrics().items() if k.startswith(name + "{"))

    def all_there(self):
        m = self.lab.d.metrics()
        return sum(m.get('shunt_workers{executor="e0",state="%s"}' % s, 0)
                   for s in ("standby", "active", "parked")) == 3

    def strike(self, fault, where):
        """The request that is hit, if one is; else training is. A signal comes in mid-run, but for
        one that must be there before."""
        run = None
        if fault == "kill" or DEVICE != "cuda":
            at = self.last("switch.send" if where == "run" else "train.go")["worker"]
            pid = self.workers()[at]
            if where == "run" and fault == "kill":
                run = self.lab.send(VERSION)
                time.sleep(self.run_s / 2)
            os.kill(pid, SIGNAL[fault])
        else:
            with open(self.lab.fault + ".new", "w") as f:
                f.write("%s %s\n" % (fault, where))
            os.rename(self.lab.fault + ".new", self.lab.fault)
        return run or self.lab.send(VERSION) if where == "run" else None

    def said(self, since):
        """What the log says of the end of a worker."""
        lines = []
        with open(self.lab.log, errors="replace") as f:
            f.seek(since)
            for line in f:
                if re.search(r"\bev=(worker\.(exit|hang)|run\.failover|job\.rewind)\b", line):
                    lines.append(re.sub(r"^.*?\b(ev=.*)$", r"\1", line.strip())[:240])
        return lines


def hit(p, fault, where):
    d = p.lab.d
    d.wait(p.all_there, BACK_S, "worker in the place of one that ended")
    p.lab.steps(JOB, 2)
    p.answer()
    before = {"exits": p.exits(), "pids": set(d.worker_pids()), "step": d.jobs[JOB].step,
              "log": os.path.getsize(p.lab.log)}
    start, run, ms = time.monotonic(), p.strike(fault, where), {}

    def passed(what):
        ms[what] = round(1e3 * (time.monotonic() - start), 3)
    first = p.answer(run).out if run else p.want
    passed("answered")
    d.wait(lambda: p.exits() != before["exits"], EXIT_S, "end of a worker")
    passed("ended")
    following = p.answer()
    passed("next_answered")
    d.wait_step(JOB, before["step"] + 1)
    passed("training_resumed")
    d.wait(p.all_there, BACK_S, "worker in the place of one that ended")
    after, pids = p.exits(), set(d.worker_pids())
    grown = {c: n - before["exits"].get(c, 0) for c, n in after.items()
             if n != before["exits"].get(c, 0)}
    return {"ms": ms, "causes": grown, "log": p.said(before["log"]),
            "holds": {"the request that was hit is answered": p.is_right(first),
                      "the next request is answered": p.is_right(following.out),
                      "the job goes on": d.jobs[JOB].phase in ("RUNNING", "PREEMPTED"),
                      "two workers live on": len(before["pids"] & pids) == 2 and len(pids) == 3,
                      "the executor lives on": d.proc.poll() is None,
                      "the arena lives on": following.copy_ns == 0,
                      "the cause is told": grown == {CAUSE[fault]: 1}}}


def scrubbed(p):
    """Bytes zeroed while nobody asks, after a run of another tenant than the job's."""
    before = p.value("shunt_scrubbed_bytes_total")
    p.answer()
    p.lab.d.rest(1.0)
    return p.value("shunt_scrubbed_bytes_total") - before


def measure(case, args):
    p = Patient(case)
    with p.lab:
        for fault in args.only:
            for where in ("run", "train"):
                got = hit(p, fault, where)
                holds, ms = got.pop("holds"), got.pop("ms")
                yield row("isolation", "shunt", {**case, "fault": fault, "in": where},
                          [ms["answered" if where == "run" else "training_resumed"]], ms=ms,
                          **got)
                yield {"check": "%s in a worker %s" % (
                    fault, "with a run" if where == "run" else "that trains"),
                    "ok": all(holds.values()), "causes": got["causes"],
                    "broken": [k for k, ok in holds.items() if not ok]}
        n = scrubbed(p)
        yield {"check": "memory of a run is zeroed before another tenant has it "
                        "(tests/device/test_scrub.c reads it back)",
               "ok": n > 0, "scrubbed_bytes": n}


def main():
    p = part.options(__doc__, "tf32")
    p.set_defaults(models=["resnet152"], only=list(FAULTS))
    args = p.parse_args()
    part.check_known(p, args.only, FAULTS, "fault")
    return part.collect(args, "isolation", "shunt", lambda case: measure(case, args))


if __name__ == "__main__":
    sys.exit(main())
