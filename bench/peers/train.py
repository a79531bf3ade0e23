#!/usr/bin/env python3
"""Training steps in PyTorch, eager and compiled: forward, loss, backward, update.

SGD with momentum for the image models, AdamW for BERT, both fused. tf32; bf16 is autocast, the
weights staying fp32. Of eager the faster layout counts, compiled takes channels last. The value is
the rate of steps that follow each other without a wait; the samples are single steps, awaited.
Prints one JSON object (see ../lib/rows.py).
"""
import statistics
import time

import common as c
import torch
from rows import row

TRIAL = 5  # steps to find the faster layout
TRAIN_WARM = 6


def step_of(f, parameters, xs, y, precision, is_image):
    """A function that does one training step of f(*xs) on data that is on the device."""
    if is_image:
        optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    loss_of = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(c.DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            out = f(*xs)
            loss = loss_of(getattr(out, "logits", out), y)
        loss.backward()
        optimizer.step()
    return step


def stepper(name, precision, batch, channels_last, compile_it=False):
    c.use_precision("tf32" if precision == "bf16" else precision)
    model, x = c.place(c.build(name).train(), c.inputs(name, batch), "tf32", channels_last)
    y = torch.randint(0, c.CLASSES[name], (batch,), device=c.DEVICE)
    f = torch.compile(model, mode="reduce-overhead") if compile_it else model
    return step_of(f, model.parameters(), [x], y, precision, c.is_image(name))


def rate(step, batch, steps):
    """Samples a second of steps in a row."""
    c.synchronize()
    t = time.perf_counter()
    for _ in range(steps):
        step()
    c.synchronize()
    return batch * steps / (time.perf_counter() - t)


def faster_layout(name, precision, batch):
    times = {}
    for channels_last in c.layouts(name):
        step = stepper(name, precision, batch, channels_last)
        times[channels_last] = statistics.median(c.timed(step, TRIAL, TRAIN_WARM))
        del step
        c.release()
    return min(times, key=times.get)


def measure(case, args, by):
    name, precision = case["model"], case["precision"]
    is_compiled = by == "pytorch compiled"
    layouts = c.layouts(name)
    if is_compiled or len(layouts) == 1:
        channels_last = layouts[-1]
    else:
        channels_last = faster_layout(name, precision, args.batch)
    step = stepper(name, precision, args.batch, channels_last, is_compiled)
    ms = c.timed(step, args.runs, TRAIN_WARM)
    return [row("train", by, case, [args.batch * 1e3 / t for t in ms], "samples/s",
                rate(step, args.batch, args.runs), channels_last=channels_last,
                step_ms=round(statistics.median(ms), 4))]


def work(args):
    ways = {"only": ("pytorch compiled",), "not": ("pytorch eager",),
            "also": ("pytorch eager", "pytorch compiled")}[args.compiled]
    for case in c.cases(args):
        for by in ways:
            yield "train", by, case, lambda case=case, by=by: measure(case, args, by)


def main():
    args = c.parse(c.options(__doc__, "tf32,bf16", 32, 50, compiles=True))
    c.collect(args, work(args))


if __name__ == "__main__":
    main()
