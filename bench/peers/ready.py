#!/usr/bin/env python3
"""A ready model in PyTorch: eager, as a CUDA graph, compiled and frozen. Inputs are on the device.

Of eager and graph the faster of both layouts counts. Prints one JSON object (see ../lib/rows.py).
"""
import statistics

import common as c
import torch
import torch._inductor.config as inductor
from rows import row


def by_layout(case, args):
    """{variant: {channels_last: samples}}"""
    out = {"pytorch eager": {}, "pytorch graph": {}}
    for channels_last in c.layouts(case["model"]):
        model, x = c.ready(case["model"], case["precision"], args.batch, channels_last)
        out["pytorch eager"][channels_last] = c.timed(lambda: c.infer(model, x), args.runs)
        graph, _ = c.captured(lambda: c.infer(model, x))
        out["pytorch graph"][channels_last] = c.timed(graph.replay, args.runs)
        del model, graph
        c.release()
    return out


def plain(case, args):
    rows = []
    for by, samples in by_layout(case, args).items():
        medians = {k: statistics.median(v) for k, v in samples.items()}
        best = min(medians, key=medians.get)
        rows.append(row("ready", by, case, samples[best], channels_last=best,
                        median_by_layout={"channels_last" if k else "channels_first": round(v, 4)
                                          for k, v in medians.items()}))
    return rows


def compiled(case, args):
    name = case["model"]
    with inductor.patch(freezing=True):
        model, x = c.ready(name, case["precision"], args.batch, c.is_image(name))
        fast = torch.compile(model, mode="reduce-overhead")
        return [row("ready", "pytorch compiled", case, c.timed(lambda: c.infer(fast, x), args.runs),
                    channels_last=c.is_image(name))]


def work(args):
    for case in c.cases(args):
        if args.compiled != "only":
            yield "ready", "pytorch", case, lambda case=case: plain(case, args)
        if args.compiled != "not":
            yield "ready", "pytorch compiled", case, lambda case=case: compiled(case, args)


def main():
    args = c.parse(c.options(__doc__, "tf32,fp16", 8, 100, compiles=True))
    c.collect(args, work(args))


if __name__ == "__main__":
    main()
