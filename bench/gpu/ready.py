#!/usr/bin/env python3
"""A ready model: resident, its inputs on the device, nothing else running (shunt-run bench)."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import part  # noqa: E402
from rows import row  # noqa: E402


def measure(args, case):
    name = case["model"]
    got = json.loads(part.program(
        "shunt-run", "bench", "--device", args.device, "--model", part.model(args, name),
        "--inputs", part.inputs(args, name, args.batch), "--batch", args.batch,
        "--precision", case["precision"], "--runs", args.runs, "--no-deterministic",
        "--tune", os.path.join(args.work, "tune-" + args.device)))
    more = {k: got[k] for k in ("operations", "image_bytes", "workspace_bytes", "prepare")}
    return [row("ready", "shunt", case, got["ms"], **more)]


def main():
    args = part.options(__doc__).parse_args()
    cases = [{"model": m, "precision": p, "batch": args.batch}
             for m in args.models for p in args.precisions]
    return part.collect(args, (("ready", "shunt", c, lambda c=c: measure(args, c)) for c in cases))


if __name__ == "__main__":
    sys.exit(main())
