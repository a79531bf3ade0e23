#!/usr/bin/env python3
"""A warm switch: training runs, a request comes for a model that is resident.

Also what bounded launching costs the training: its throughput alone, beside that of the same steps
launched without a bound (shunt-run bench). How long a stop takes is read from a log at debug level,
which costs a request some microseconds a line: in an executor of its own.
"""
import sys

from lab import Lab, drains, print_timeline, timelines, took_ms, train_precision, trainee
import part
from rows import row


def stops(case, runs, shows):
    """ms from each stop to the drained device; with shows, prints the median and the slowest run."""
    with Lab(log="debug") as lab:
        lab.load(1, case["model"], case["precision"])
        lab.train(1, trainee(case["model"]), train_precision(case["precision"]))
        before = len(lab.events())
        lab.runs(1, runs)
        lab.d.rest(0.2)
        events = lab.events()[before:]
    by_time = sorted(timelines(events), key=took_ms)
    for i in (len(by_time) // 2, -1) if shows and by_time else ():
        print_timeline(by_time[i])
    return drains(events)


def measure(case, runs, seconds, shows):
    model, precision = case["model"], case["precision"]
    with Lab() as lab:
        lab.load(1, model, precision)
        for _ in range(10):
            lab.run(1)
        alone = [lab.run(1) for _ in range(runs)]
        lab.train(1, trainee(model), train_precision(precision))
        rate = lab.throughput(1, seconds)
        got = lab.runs(1, runs)
    train_case = {"model": trainee(model), "precision": train_precision(precision), "batch": 32}
    return [
        row("warm", "shunt", case, [g["total_ms"] for g in got],
            compute_ms=[round(g["compute_ms"], 4) for g in got]),
        row("warm-no-training", "shunt", case, [g["total_ms"] for g in alone],
            compute_ms=[round(g["compute_ms"], 4) for g in alone]),
        row("stop-to-drained-warm", "shunt", case, stops(case, runs, shows)),
        row("train-in-executor", "shunt", train_case, [rate], unit="samples/s")]


def main():
    p = part.options(__doc__, seconds=4)
    p.add_argument("--timeline", action="store_true",
                   help="print the events of the median and of the slowest run")
    args = p.parse_args()
    return part.collect(args, "warm", "shunt",
                        lambda c: measure(c, args.runs, args.seconds, args.timeline))


if __name__ == "__main__":
    sys.exit(main())
