#!/usr/bin/env python3
"""A warm switch: training runs, a request comes for a model that is resident.

Also what bounded launching costs the training: its throughput alone, beside that of the same steps
launched without a bound (shunt-run bench). How long a stop takes is read from a log at debug level,
which costs a request some microseconds a line: in an executor of its own, or in the same with --once.
"""
import sys

from lab import Lab, drained_ms, drains, print_timeline, timelines, took_ms, train_precision, trainee
import part
from rows import row


def stops(lab, before, shows):
    """ms from each stop to the drained device, of the events from the one numbered before on; with shows,
    prints the median run, the slowest one, and the one for which training took longest to drain."""
    lab.d.rest(0.2)
    events = lab.events()[before:]
    by_time = sorted(timelines(events), key=took_ms)
    if shows and by_time:
        for timeline in (by_time[len(by_time) // 2], by_time[-1], max(by_time, key=drained_ms)):
            print_timeline(timeline)
            print(file=sys.stderr)
    return drains(events)


def own_stops(case, args):
    with Lab(log="debug") as lab:
        lab.load(1, case["model"], case["precision"])
        lab.train(1, trainee(case["model"]), train_precision(case["precision"]))
        before = len(lab.events())
        lab.runs(1, args.runs)
        return stops(lab, before, args.timeline)


def measure(case, args):
    model, precision = case["model"], case["precision"]
    with Lab(log="debug" if args.once else "info") as lab:
        lab.load(1, model, precision)
        for _ in range(10):
            lab.run(1)
        alone = [lab.run(1) for _ in range(args.runs)]
        lab.train(1, trainee(model), train_precision(precision))
        rate = lab.throughput(1, args.seconds)
        before = len(lab.events())
        got = lab.runs(1, args.runs)
        drained = stops(lab, before, args.timeline) if args.once else None
    if not args.once:
        drained = own_stops(case, args)
    train_case = {"model": trainee(model), "precision": train_precision(precision), "batch": 32}
    return [
        row("warm", "shunt", case, [g["total_ms"] for g in got],
            compute_ms=[round(g["compute_ms"], 4) for g in got]),
        row("warm-no-training", "shunt", case, [g["total_ms"] for g in alone],
            compute_ms=[round(g["compute_ms"], 4) for g in alone]),
        row("stop-to-drained-warm", "shunt", case, drained),
        row("train-in-executor", "shunt", train_case, [rate], unit="samples/s")]


def main():
    p = part.options(__doc__, seconds=4)
    p.add_argument("--timeline", action="store_true",
                   help="print the events of the median, of the slowest run, and of the slowest stop")
    p.add_argument("--once", action="store_true", help="one executor for all of a case, its log at debug level")
    args = p.parse_args()
    return part.collect(args, "warm", "shunt", lambda c: measure(c, args))


if __name__ == "__main__":
    sys.exit(main())
