#!/usr/bin/env python3
"""A warm switch: training runs, a request comes for a model that is resident.

Also what bounded launching costs the training: its throughput alone, beside that of the same steps
launched without a bound (shunt-run bench).
"""
import argparse
import json
import sys

from lab import MODELS, TRAIN_PRECISION, Lab, drains
from rows import row


def measure(model, precision, runs, seconds):
    case = {"model": model, "precision": precision, "batch": 8}
    with Lab(log="debug") as lab:
        lab.load(1, model, precision)
        for _ in range(10):
            lab.run(1)
        alone = [lab.run(1) for _ in range(runs)]
        lab.train(1, model, TRAIN_PRECISION[precision])
        rate = lab.throughput(1, seconds)
        for _ in range(5):
            lab.run(1)
        before = len(lab.events())
        got = []
        for _ in range(runs):
            lab.d.rest(0.06)
            got.append(lab.run(1))
        lab.d.rest(0.2)
        stop = drains(lab.events()[before:])
    train_case = {"model": model, "precision": TRAIN_PRECISION[precision], "batch": 32}
    return [
        row("warm", "shunt", case, [g["total_ms"] for g in got],
            compute=[round(g["compute_ms"], 4) for g in got]),
        row("warm-no-training", "shunt", case, [g["total_ms"] for g in alone],
            compute=[round(g["compute_ms"], 4) for g in alone]),
        row("stop-to-drained-warm", "shunt", case, stop),
        row("train-in-executor", "shunt", train_case, [rate], unit="samples/s")]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--precisions", default="tf32,fp16")
    p.add_argument("--runs", type=int, default=100)
    p.add_argument("--seconds", type=float, default=4)
    args = p.parse_args()
    rows = []
    for model in args.models.split(","):
        for precision in args.precisions.split(","):
            got = measure(model, precision, args.runs, args.seconds)
            rows += got
            for r in got:
                print("%-22s %-13s %-5s median %8.3f p99 %8.3f %s" % (
                    r["what"], model, r["case"]["precision"], r["median"], r["p99"], r["unit"]),
                    file=sys.stderr)
    json.dump({"rows": rows}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
