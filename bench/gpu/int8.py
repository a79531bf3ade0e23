#!/usr/bin/env python3
"""Quantised ResNet-50 (224x224) and BERT-large (384 tokens, none of them padding) at large batches, in
samples per second, beside the same models in fp16 and beside what MLPerf's offline scenario has.

Models have random weights (../lib/quantised.py), so figures say nothing of accuracy. Needs torch,
torchvision, onnx and onnxruntime. A ready model, its inputs on the device.
"""
import argparse
import json
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import part  # noqa: E402
import quantised  # noqa: E402

LENGTH = 384
# Samples per second of one H200 with TensorRT, offline; the goal is half. Its BERT gets texts of SQuAD,
# most of them shorter, and does not pad them.
MLPERF = {"resnet50": 94620, "bert-large": 9164}
GOPS = {"resnet50": 8.2, "bert-large": 246.4}  # of a sample, a product and its sum being two


def save(path, tensors):
    head, at = {}, 0
    for name, t in tensors.items():
        kind = {"float32": "F32", "int64": "I64"}[str(t.dtype)]
        head[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t).tobytes())


def inputs(model, batch):
    random = np.random.default_rng(batch)
    if model == "resnet50":
        return {"x": random.standard_normal((batch, 3, 224, 224), np.float32)}
    return {"input_ids": random.integers(0, 30522, (batch, LENGTH)),
            "attention_mask": np.ones((batch, LENGTH), np.int64)}


def make(model, folder):
    """Paths of the FP32 model and of the quantised one."""
    if model == "resnet50":
        return quantised.resnet50(folder)
    return quantised.bert(folder, model, layers=24, width=1024, heads=16, inner=4096, length=LENGTH)


def measure(model, path, batch, folder, args):
    save(f"{folder}/inputs", inputs(model, batch))
    got = json.loads(part.program(
        "shunt-run", "bench", "--device", part.DEVICE, "--model", path, "--inputs", f"{folder}/inputs",
        "--batch", batch, "--precision", args.precision, "--runs", args.runs, "--warm-runs", 3,
        "--no-deterministic", "--tune", f"{folder}/tune"))
    return batch / got["median_ms"] * 1e3, got["image_bytes"] / 1e6


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--models", default="resnet50,bert-large")
    p.add_argument("--batches", default="32,128,512,1024")
    p.add_argument("--precision", default="fp16", help="of what is no product of integers")
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--float", action="store_true", help="the same models in this precision too")
    args = p.parse_args()
    print("| model | batch | samples/s | of MLPerf's | 10^12 operations/s | image MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for model in args.models.split(","):
            plain, small = make(model, folder)
            for batch in map(int, args.batches.split(",")):
                for path in (small, plain) if args.float else (small,):
                    rate, image = measure(model, path, batch, folder, args)
                    print(f"| {model} {'int8' if path == small else args.precision} | {batch} | "
                          f"{rate:,.0f} | {rate / MLPERF[model]:.2f} | "
                          f"{rate * GOPS[model] / 1e3:.0f} | {image:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
