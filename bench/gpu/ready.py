#!/usr/bin/env python3
"""A ready model: resident, its inputs on the device, nothing else running (shunt-run bench)."""
import json
import sys

import lab
import part
from rows import row


def measure(case, runs):
    got = json.loads(part.program(
        "shunt-run", "bench", "--device", lab.DEVICE, "--model", lab.onnx(case["model"]),
        "--inputs", lab.dataset(case["model"]), "--batch", case["batch"],
        "--precision", case["precision"], "--runs", runs, "--no-deterministic",
        "--tune", lab.TUNE))
    more = {k: got[k] for k in ("operations", "image_bytes", "workspace_bytes", "prepare")}
    return [row("ready", "shunt", case, got["ms"], **more)]


def main():
    args = part.options(__doc__).parse_args()
    return part.collect(args, "ready", "shunt", lambda case: measure(case, args.runs))


if __name__ == "__main__":
    sys.exit(main())
