#!/usr/bin/env python3
"""PyTorch, a model whose weights lie page-locked in host memory: copy them, then infer.

Two ways: tensor by tensor and eager, as most would write it; and one copy of all weights into one
buffer, then a CUDA graph, the best that PyTorch offers without compiling. Inputs come from, and
outputs go to, page-locked memory. Prints one JSON object (see ../lib/rows.py).
"""
import statistics

import common as c
import torch
from rows import row

ALIGN = 256


def tensors(model):
    return list(model.parameters()) + list(model.buffers())


def in_one_buffer(model):
    """Moves all tensors of the model into one device buffer: (buffer, its page-locked copy)."""
    offsets, end = [], 0
    for t in tensors(model):
        offsets.append(end)
        end += (t.numel() * t.element_size() + ALIGN - 1) // ALIGN * ALIGN
    device = torch.empty(end, dtype=torch.uint8, device=c.DEVICE)
    for t, at in zip(tensors(model), offsets):
        part = device[at:at + t.numel() * t.element_size()].view(t.dtype)
        view = part.as_strided(t.size(), t.stride())
        view.copy_(t.detach())
        t.data = view
    return device, c.pinned(device)


def by_tensor(model, x, host_x, host_out):
    host = [(t, c.pinned(t.detach())) for t in tensors(model)]

    def run():
        for t, h in host:
            t.data.copy_(h, non_blocking=True)
        x.copy_(host_x, non_blocking=True)
        host_out.copy_(c.infer(model, x), non_blocking=True)
    return run


def in_one_copy(model, x, host_x, host_out):
    device, host = in_one_buffer(model)
    graph, out = c.captured(lambda: c.infer(model, x))

    def run():
        device.copy_(host, non_blocking=True)
        x.copy_(host_x, non_blocking=True)
        graph.replay()
        host_out.copy_(out, non_blocking=True)
    return run


def measure(case, args, by, way):
    best, layout = None, None
    for channels_last in c.layouts(case["model"]):
        model, x = c.ready(case["model"], case["precision"], args.batch, channels_last)
        out = c.infer(model, x)
        run = way(model, x, c.pinned(x), c.pinned(out))
        samples = c.timed(run, args.runs, warm=3)
        if best is None or statistics.median(samples) < statistics.median(best):
            best, layout = samples, channels_last
        weights = sum(t.numel() * t.element_size() for t in tensors(model))
        del model, x, out, run
        c.release()
    return [row("cold", by, case, best, channels_last=layout, weight_bytes=weights)]


def work(args):
    ways = (("pytorch load by tensor, eager", by_tensor),
            ("pytorch load at once, graph", in_one_copy))
    for case in c.cases(args):
        for by, way in ways:
            yield "cold", by, case, lambda case=case, by=by, way=way: measure(case, args, by, way)


def main():
    args = c.parse(c.options(__doc__, "tf32,fp16", 8, 50))
    c.collect(args, work(args))


if __name__ == "__main__":
    main()
