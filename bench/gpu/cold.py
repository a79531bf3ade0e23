#!/usr/bin/env python3
"""A cold switch: training runs, a request comes for a model with nothing on the device.

From the executor's dispatch to the result in host memory, beside what the copy of the weights alone
takes (bytes over the link's measured rate) and what the model takes when it is resident and nothing
else runs. The same with weights that are not packed, and of a model with large tables with tables that
are copied and not read in place (cold-tables-copied), which must give the same bits, and with a packed
copy of them on the device (from-packed), which needs no link: beside a ready run of the same model.
--uint8: also of a model of pictures that takes bytes (cold-uint8), a quarter of the inputs.
--timeline prints the events of one switch.
"""
import sys

from lab import IMAGE, Lab, print_timeline, timelines, train_precision, trainee
import part
from part import DEVICE
from rows import row


IN_PLACE = "--tables-in-place=" + ("auto" if DEVICE == "cuda" else "on")  # by itself where there is a link
OPTIONS = {"cold": ["--pack-images=auto", IN_PLACE],
           "cold-unpacked": ["--pack-images=off", IN_PLACE],
           "cold-tables-copied": ["--pack-images=auto", "--tables-in-place=off"],
           # What a run leaves is its packed copy alone.
           "from-packed": ["--pack-images=on", "--keep-packed-percent=0", "--tables-in-place=off"]}
TABLES = ("bert-base", "bert-large", "distilbert")  # have large ones


def measure(case, runs, log, what="cold", form="inference"):
    model, precision = case["model"], case["precision"]
    with Lab("--debug-cold", *OPTIONS[what], log=log) as lab:
        lab.load(1, model, precision, form=form)
        for _ in range(5):
            lab.run(1)
        alone = [lab.run(1)["total_ms"] for _ in range(runs)]
        lab.train(1, trainee(model), train_precision(precision))
        got = lab.runs(1, runs)
        latency, rate = lab.link()
        link_bytes = lab.d.states[1].link_bytes  # without tables that are read in place
        in_place = lab.d.metrics().get('shunt_table_runs_total{executor="e0",place="host"}', 0)
        copy_ms = 1e3 * (latency + link_bytes / rate)
        out = lab.answer(1)
        lab.d.rest(0.2)
        if form == "bytes":
            what += "-uint8"
        return out, [
            row(what, "shunt", case, [g["total_ms"] for g in got], copy_ms=round(copy_ms, 4),
                copy_measured_ms=[round(g["copy_ms"], 4) for g in got],
                compute_ms=[round(g["compute_ms"], 4) for g in got],
                image_bytes=lab.image_bytes(1), link_bytes=link_bytes, link_gb_per_s=round(rate / 1e9, 2),
                in_place=in_place,
                timeline_ms=(timelines(lab.events()) or [[]])[-1]),
            row(what + "-no-training", "shunt", case, alone, copy_ms=round(copy_ms, 4))]


def main():
    p = part.options(__doc__, runs=60)
    p.add_argument("--timeline", action="store_true",
                   help="print the events of the last switch; logging them costs a little")
    p.add_argument("--uint8", action="store_true", help="also with pictures that come as bytes")
    args = p.parse_args()

    def one(case):
        log = "debug" if args.timeline else "info"
        out, rows = measure(case, args.runs, log)
        if args.timeline:
            print_timeline(rows[0]["timeline_ms"])
        tables = ("cold-tables-copied",) if case["model"] in TABLES else ()
        for what in ("cold-unpacked", *tables, "from-packed"):
            same, more = measure(case, args.runs, log, what)
            rows[0]["same_bits"] = rows[0].get("same_bits", True) and out == same
            rows += more
        if args.uint8 and case["model"] in IMAGE:
            rows += measure(case, args.runs, log, form="bytes")[1]
        return rows
    return part.collect(args, "cold", "shunt", one)


if __name__ == "__main__":
    sys.exit(main())
