#!/usr/bin/env python3
"""What each part of a switch is worth: a cold switch beside training, without one of them at a time.

tests/lab/lab.h says what is left out, and what the times include. An executor goes on to the next
ablation at SIGHUP; there are three for each case:

- Shunt as it is, and what may be left out of it with weights that travel packed.
- Weights that are not packed, nor are tables read in place ("weights not packed"), and what needs
  them so: what such a row has left out is the difference to that one, not to Shunt.
- A model whose packed copy is on the device (ablation-packed), where it makes a difference: a switch
  unpacks it and copies nothing.

--svg DIR writes a chart for each model and a table of all to DIR (docs/figures).
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

PACKED = {"none": "Shunt", "fixed-2mb": "groups of 2 MB", "per-layer": "a group per layer",
          "one-group": "no pipelining", "ipc": "mapping at each switch"}
UNPACKED = "weights not packed"
PLAIN = {"no-daemon": "no memory daemon", "pageable": "not page-locked", "one-process": "one process",
         "two-processes": "two processes", "new-process": "new process"}
LABEL = {**PACKED, "unpacked": UNPACKED, **{n: "%s, %s" % (text, UNPACKED) for n, text in PLAIN.items()}}
COLUMN = {"ablation": "", "ablation-packed": ", packed on the device"}
# How copies are grouped is nothing to a model whose packed copy is on the device.
FROM_PACKED = ("none", "ipc")
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
    """The rows of a case. names: what is left out, of LABEL."""
    packed, plain = [n for n in names if n in PACKED], [n for n in names if n not in PACKED]
    yield from measure_steps("ablation", case, packed, args, OPTIONS["cold"])
    if plain:
        yield from measure_steps("ablation", case, plain, args, OPTIONS["cold-unpacked"])
    packed = [n for n in packed if n in FROM_PACKED]
    yield from measure_steps("ablation-packed", case, packed, args, OPTIONS["from-packed"])


def measure_steps(what, case, names, args, options):
    """One executor, and what it goes through."""
    began, precision = time.monotonic(), case["precision"]
    steps = ["none" if n == "unpacked" else n for n in names]
    with Lab("--debug-cold", "--workers=%d" % WORKERS, "--debug-ablation=" + ",".join(steps),
             *options) as lab:
        lab.load(1, case["model"], precision)
        lab.train(1, case["model"], train_precision(precision))
        latency, rate = lab.link()
        copied = 0 if what == "ablation-packed" else lab.d.states[1].link_bytes
        copy_ms = round(1e3 * (latency + copied / rate), 4) if copied else 0
        print("      ready to measure after %.1f s" % (time.monotonic() - began), file=sys.stderr)
        for name, step in zip(names, steps):
            try:
                if name != names[0]:
                    go_on(lab, step)
                yield row(what, by(name), case,
                          sample(lab, name, args.slow_runs if name in SLOW else args.runs),
                          label=LABEL[name], copy_ms=copy_ms, link_bytes=copied,
                          image_bytes=lab.image_bytes(1))
            except (AssertionError, OSError, EOFError) as e:
                yield failed(what, by(name), case, e)
        lab.cancel(1)
    print("      %.1f s" % (time.monotonic() - began), file=sys.stderr)


def name_of(case, args):
    return case["model"] + ("-" + case["precision"] if len(args.precisions) > 1 else "")


def chart(folder, case, rows, args):
    copy_ms = [svg.number(ms) for ms in dict.fromkeys(r["copy_ms"] for r in rows)]
    svg.bars(os.path.join(folder, "ablations-%s.svg" % name_of(case, args)),
             "A request takes the device from training: %s, %s, batch %d%s" % (
                 case["model"], case["precision"], case["batch"], TRY),
             "From RUN at the executor to the result; nothing of the model is on the device. Copy "
             "of the weights alone: %s ms." % ", not packed ".join(copy_ms),
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
    only = set(args.only or LABEL) | {"none"}  # each beside what it is compared with
    names = [n for n in LABEL if n in only or n == "unpacked" and only & PLAIN.keys()]
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
