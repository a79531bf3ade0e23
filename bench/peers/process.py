#!/usr/bin/env python3
"""PyTorch in a new process: from its start to the first result, the model in a file that is cached.

Stages of each run, in ms since the start: torch imported, context made, model on the device, result
in host memory. Prints one JSON object (see ../lib/rows.py).
"""
import json
import os
import subprocess
import sys
import tempfile
import time

BY = "pytorch new process"


def child(path, device, start):
    """Imports only what a server would."""
    stages = {}

    def stage(name):
        stages[name] = (time.monotonic() - start) * 1e3
    import torch
    stage("imported")
    torch.zeros(1, device=device)
    if device == "cuda":
        torch.cuda.synchronize()
    stage("context")
    with torch.inference_mode():
        model, x, tf32 = torch.load(path, weights_only=False, map_location="cpu", mmap=True)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        model, x = model.to(device), x.to(device)
        if device == "cuda":
            torch.cuda.synchronize()
        stage("on device")
        out = model(x)
        getattr(out, "logits", out).cpu()
    stage("result")
    print(json.dumps(stages))


def start(path, device):
    r = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", path,
                        device, repr(time.monotonic())], capture_output=True, text=True, timeout=120)
    if r.returncode:
        raise RuntimeError(r.stderr)
    return json.loads(r.stdout.splitlines()[-1])


def measure(case, args):
    import common as c
    import torch
    from rows import row
    with tempfile.NamedTemporaryFile(suffix=".pt") as f:
        model, x = c.cast(c.build(case["model"]).eval(), c.inputs(case["model"], args.batch),
                          case["precision"])
        torch.save((model, x, case["precision"] != "fp32"), f.name)
        del model
        runs = [start(f.name, c.DEVICE) for _ in range(args.runs + 1)][1:]  # the first fills the file cache
    return [row("cold", BY, case, [r["result"] for r in runs], stages_ms=runs)]


def work(args):
    import common as c
    for case in c.cases(args):
        yield "cold", BY, case, lambda case=case: measure(case, args)


def main():
    import common as c
    args = c.parse(c.options(__doc__, "tf32", 8, 3))
    c.collect(args, work(args))


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main()
