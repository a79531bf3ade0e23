#!/usr/bin/env python3
"""A cold switch to one of many registered models, beside the same with three, on three workers.

Both in one executor, one after the other; training runs. Each model has an image of its own in
host memory.
"""
import random
import sys
import time

from lab import Lab, train_precision
import part
from rows import row

FEW = 3
AT_ONCE = 10
LOAD_S = 300  # of so many
LIMIT = 1.05  # of the median with few
SLACK_MS = 0.05


def load(lab, case, n, limit_s):
    """Registers models until there are n, or the time is over; seconds that each took."""
    def states(versions):
        return [lab.d.states[v].phase if v in lab.d.states else "LOADING" for v in versions]
    start, first = time.monotonic(), len(lab.models)
    while len(lab.models) < n and time.monotonic() - start < limit_s:
        versions = range(len(lab.models) + 1, min(len(lab.models) + AT_ONCE, n) + 1)
        for v in versions:
            lab.load(v, case["model"], case["precision"], case["batch"], wait=False)
        lab.d.wait(lambda vs=versions: not {"LOADING"} & set(states(vs)), LOAD_S, "READY")
        assert set(states(versions)) == {"READY"}, [lab.d.states[v].msg for v in versions]
    return (time.monotonic() - start) / (len(lab.models) - first)


def switches(lab, case, among, runs, **more):
    """Each to a model that is not on the device."""
    rng, got = random.Random(1), []
    for v in range(1, FEW + 1):
        lab.run(v)
    for _ in range(runs):
        lab.d.rest(0.04)
        got.append(lab.run(rng.randint(1, among)))
    # 0 also if the end of a tiny copy was noted behind the end of its run
    assert sum(g["copy_ms"] > 0 for g in got) > 0.9 * runs, "models stay on the device"
    return row("scale", "shunt", {**case, "models": len(lab.models), "used": among},
               [g["total_ms"] for g in got], copy_ms=[round(g["copy_ms"], 4) for g in got],
               image_bytes=lab.image_bytes(1), host_bytes=len(lab.models) * lab.image_bytes(1),
               **more)


def measure(case, args):
    with Lab("--debug-cold") as lab:
        rows = []
        for job, n in enumerate((FEW, args.count), 1):
            each = load(lab, case, n, args.load_limit)
            lab.train(job, case["model"], train_precision(case["precision"]))
            # With many: those few again, and then all of them.
            for among in sorted({FEW, len(lab.models)}):
                rows.append(switches(lab, case, among, args.runs, load_s_each=round(each, 4)))
                yield rows[-1]
            lab.cancel(job)
    few, many = rows[0], rows[-1]
    yield {"check": "%s %s: a switch to one of %d models is as fast as to one of %d" % (
        case["model"], case["precision"], many["case"]["models"], FEW),
        "ok": many["median"] <= LIMIT * few["median"] + SLACK_MS,
        "medians_ms": [r["median"] for r in rows], "p99_ms": [r["p99"] for r in rows]}


def main():
    # One batch size: there is one program to compile for each model and worker.
    p = part.options(__doc__, "fp16", batch=1, runs=100)
    p.set_defaults(models=["resnet18"])
    p.add_argument("--count", type=int, default=100, help="models")
    p.add_argument("--load-limit", type=float, default=90,
                   help="seconds after which no more are registered")
    args = p.parse_args()
    return part.collect(args, "scale", "shunt", lambda case: measure(case, args))


if __name__ == "__main__":
    sys.exit(main())
