#!/usr/bin/env python3
"""What each part of a switch is worth: a cold switch beside training, without one of them at a time.

tests/lab/lab.h says what is left out, and what the times include. One executor for each case,
which goes on to the next ablation at SIGHUP; another one for weights that are not packed. Then the
same, where it makes a difference, of a model whose packed copy is on the device (ablation-packed): a
switch unpacks it and copies nothing. --svg DIR writes a chart for each model and a table of all to
DIR (docs/figures).
"""
import os
import signal
import statistics
import sys
import time

from cold import OPTIONS
from lab import BATCH, DEVICE, Lab, train_precision
import part
import svg
from rows import failed, row

LABEL = {"none": "Shunt", "unpacked": "weights not packed", "fixed-2mb": "groups of 2 MB",
         "per-layer": "a group per layer",
         "one-group": "no pipelining", "ipc": "mapping at each switch",
         "no-daemon": "no memory daemon", "pageable": "not page-locked",
         "one-process": "one process", "two-processes": "two processes",
         "new-process": "new process"}
COLUMN = {"ablation": "", "ablation-packed": ", packed on the device"}
# Which leave the way of a model alone whose packed copy is on the device.
FROM_PACKED = ("none", "fixed-2mb", "per-layer", "one-group", "ipc")
SLOW = ("one-process", "two-processes", "new-process")
# The second of two processes has to have loaded the libraries before the request comes.
SETTLE_S = {"one-process": 0.8, "two-processes": 3, "new-process": 0.8}
WORKERS = 2
TRY = "" if DEVICE == "cuda" else " (a try on the %s device)" % DEVICE
STEP_S = 10


def by(name):
    return "shunt" if name == "none" else name


def go_on(lab, name):
    """To the next ablation, which is `name`."""
    def steps():
        return [f for event, f in lab.events() if event == "ablation.step"]
    n = len(steps())
    lab.d.rest(0.1)
    lab.d.proc.send_signal(signal.SIGHUP)
    lab.d.rest(0.05)
    lab.d.wait(lambda: len(steps()) > n, STEP_S, "step to " + name)
    assert name in (steps()[-1]["now"], steps()[-1]["mode"]), steps()[-1]


def settle(lab, name):
    """Training runs again, and what the next switch finds is there."""
    lab.d.rest(SETTLE_S.get(name, 0.06))
    if name == "one-process":
        lab.steps(1, 2)


def sample(lab, name, runs):
    warm_up = WORKERS - 1 if name in SLOW else 3
    got = []
    for _ in range(warm_up + runs):
        settle(lab, name)
        got.append(lab.run(1)["total_ms"])
    lab.steps(1, 1)
    return got[warm_up:]


def measure(case, names, args):
    """The rows of a case. names: what is left out, "none" for nothing."""
    steps = [n for n in names if n != "unpacked"]
    yield from measure_steps("ablation", case, steps, args, OPTIONS["cold"])
    if "unpacked" in names:
        yield from measure_steps("ablation", case, ["none"], args, OPTIONS["cold-unpacked"], "unpacked")
    steps = [n for n in steps if n in FROM_PACKED]
    if steps:
        yield from measure_steps("ablation-packed", case, steps, args, OPTIONS["from-packed"])


def measure_steps(what, case, names, args, options, told=None):
    """One executor, and what it goes through. told: what the only step of it is called."""
    began, precision = time.monotonic(), case["precision"]
    with Lab("--debug-cold", "--workers=%d" % WORKERS, "--debug-ablation=" + ",".join(names),
             *options) as lab:
        lab.load(1, case["model"], precision)
        lab.train(1, case["model"], train_precision(precision))
        latency, rate = lab.link()
        copied = 0 if what == "ablation-packed" else lab.d.states[1].link_bytes
        copy_ms = round(1e3 * (latency + copied / rate), 4) if copied else 0
        print("      ready to measure after %.1f s" % (time.monotonic() - began), file=sys.stderr)
        for name in names:
            try:
                if name != names[0]:
                    go_on(lab, name)
                called = told or name
                yield row(what, by(called), case,
                          sample(lab, name, args.slow_runs if name in SLOW else args.runs),
                          label=LABEL[called], copy_ms=copy_ms)
            except (AssertionError, OSError, EOFError) as e:
                yield failed(what, by(told or name), case, e)
        lab.cancel(1)
    print("      %.1f s" % (time.monotonic() - began), file=sys.stderr)


def name_of(case, args):
    return case["model"] + ("-" + case["precision"] if len(args.precisions) > 1 else "")


def chart(folder, case, rows, args):
    svg.bars(os.path.join(folder, "ablations-%s.svg" % name_of(case, args)),
             "A request takes the device from training: %s, %s, batch %d%s" % (
                 case["model"], case["precision"], case["batch"], TRY),
             "From RUN at the executor to the result; nothing of the model is on the device. Copy "
             "of the weights alone: %s ms." % svg.number(rows[0]["copy_ms"]),
             "ms", [(r["label"], statistics.median(r["samples"])) for r in rows])


def table(folder, names, columns):
    """columns: {name of the case: {by: row}}"""
    lines = ["| median ms (p99)" + TRY + " | " + " | ".join(columns) + " |",
             "| --- |" + " --- |" * len(columns)]
    for name in names:
        cells = [c.get(by(name)) for c in columns.values()]
        lines.append("| %s | %s |" % (LABEL[name], " | ".join(
            "%s (%s)" % (svg.number(r["median"]), svg.number(r["p99"])) if r else "" for r in cells)))
    with open(os.path.join(folder, "ablations.md"), "w") as f:
        f.write("\n".join(lines) + "\n")


def main():
    p = part.options(__doc__, precisions="tf32", runs=20)
    p.add_argument("--slow-runs", type=int, default=3, help="of those that take long")
    p.add_argument("--svg", metavar="DIR", help="folder for charts and the table")
    args = p.parse_args()
    names = [n for n in LABEL if n == "none" or not args.only or n in args.only]
    if args.batch != BATCH or set(args.only or ()) - set(LABEL):
        p.error("--only takes %s; the batch is %d" % (", ".join(LABEL), BATCH))
    columns = {}

    def one(case):
        rows = []
        try:
            for r in measure(case, names, args):
                rows += [r] if "value" in r else []
                yield r
        finally:
            cold = [r for r in rows if r["what"] == "ablation"]
            if args.svg and cold and cold[0]["by"] == by("none"):
                os.makedirs(args.svg, exist_ok=True)
                chart(args.svg, case, cold, args)
                for what, beside in COLUMN.items():
                    columns[name_of(case, args) + beside] = {
                        r["by"]: r for r in rows if r["what"] == what}
                table(args.svg, names, columns)
    return part.collect(args, "ablation", "shunt", one)


if __name__ == "__main__":
    sys.exit(main())
