#!/usr/bin/env python3
"""Training steps with nothing else running: forward, loss, backward, update (shunt-run bench).

SGD with momentum for the image models, AdamW for BERT. The value is the rate of steps that follow
each other without a wait; the samples are single steps, awaited.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import part  # noqa: E402
from rows import row  # noqa: E402


def measure(args, case):
    name = case["model"]
    got = json.loads(part.program(
        "shunt-run", "bench", "--device", args.device, "--model",
        part.model(args, name, "training"), "--inputs", part.inputs(args, name, args.batch),
        "--labels", "label", "--batch", args.batch, "--precision", case["precision"],
        "--optimizer", "sgd" if name in part.SIZE else "adamw", "--runs", args.runs,
        "--no-deterministic", "--tune", os.path.join(args.work, "tune-" + args.device)))
    more = {k: got[k] for k in ("operations", "state_bytes", "workspace_bytes", "prepare", "loss")}
    return [row("train", "shunt", case, [args.batch * 1e3 / ms for ms in got["ms"]], "samples/s",
                got["samples_per_s"], step_ms=got["median_ms"], **more)]


def main():
    args = part.options(__doc__, "tf32,bf16", batch=32, runs=50).parse_args()
    cases = [{"model": m, "precision": p, "batch": args.batch}
             for m in args.models for p in args.precisions]
    return part.collect(args, (("train", "shunt", c, lambda c=c: measure(args, c)) for c in cases))


if __name__ == "__main__":
    sys.exit(main())
