#!/usr/bin/env python3
"""Training steps with nothing else running: forward, loss, backward, update (shunt-run bench).

SGD with momentum for the image models, AdamW for BERT. The value is the rate of steps that follow
each other without a wait; the samples are single steps, awaited.
"""
import json
import sys

import lab
import part
from rows import row


def measure(case, runs):
    name, batch = case["model"], case["batch"]
    got = json.loads(part.program(
        "shunt-run", "bench", "--device", lab.DEVICE, "--model", lab.onnx(name, "training"),
        "--inputs", lab.dataset(name), "--labels", "label", "--batch", batch,
        "--precision", case["precision"], "--optimizer", lab.OPTIMIZER.get(name, lab.SGD)["name"],
        "--runs", runs, "--no-deterministic", "--tune", lab.TUNE))
    more = {k: got[k] for k in ("operations", "state_bytes", "workspace_bytes", "prepare", "loss")}
    return [row("train", "shunt", case, [batch * 1e3 / ms for ms in got["ms"]], "samples/s",
                got["samples_per_s"], step_ms=got["median_ms"], **more)]


def main():
    args = part.options(__doc__, "tf32,bf16", batch=32, runs=50).parse_args()
    return part.collect(args, "train", "shunt", lambda case: measure(case, args.runs))


if __name__ == "__main__":
    sys.exit(main())
