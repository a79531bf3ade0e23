#!/usr/bin/env python3
"""Quantised ResNet-50 (224x224) and BERT-large at large batches, in samples per second, beside the same
models in fp16 and beside what MLPerf's offline scenario has.

  resnet50    224 x 224
  bert-large  384 tokens, none of them padding
  squad       BERT-large on texts as long as SQuAD's: the model takes any length, and a batch has texts of
              one bucket of 32 lengths, padded to its end, as many as make 24,576 tokens. Each bucket is
              measured; the rate is that of all texts, one batch after the other

How many texts of SQuAD 1.1 a bucket has is of the histogram that Krell et al. publish with "Efficient
Sequence Packing without Cross-contamination" (arXiv 2107.02027): 88,641 texts of up to 384 tokens, 172 on
average. Models have random weights (../lib/quantised.py), so figures say nothing of accuracy. Needs torch,
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

LENGTH, TOKENS, BUCKET = 384, 24576, 32
SQUAD = (0, 1781, 4750, 14636, 24011, 17303, 10422, 6260, 4041, 2467, 1313, 1657)
# Samples per second of one H200 with TensorRT, offline; the goal is half. Its BERT gets texts of SQuAD,
# most of them shorter than 384 tokens, and does not pad them.
MLPERF = {"resnet50": 94620, "bert-large": 9164, "squad": 9164}


def operations(model, length=LENGTH):
    """10^9 of a sample, a product and its sum being two."""
    if model == "resnet50":
        return 8.2
    return 24 * 2 * length * (12 * 1024 ** 2 + 2 * length * 1024) / 1e9


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


def texts(batch, length, shortest):
    random = np.random.default_rng(batch)
    lengths = random.integers(shortest, length + 1, (batch, 1))
    return {"input_ids": random.integers(0, 30522, (batch, length)),
            "attention_mask": (np.arange(length) < lengths).astype(np.int64)}


def pictures(batch):
    return {"x": np.random.default_rng(batch).standard_normal((batch, 3, 224, 224), np.float32)}


def make(model, folder, is_float):
    """Path of the quantised model, or of the same in floats."""
    if model == "resnet50":
        return quantised.resnet50(folder)[0 if is_float else 1]
    return quantised.bert(folder, model, quantised=not is_float, layers=24, width=1024, heads=16, inner=4096,
                          length=LENGTH, is_dynamic=model == "squad")


def measure(path, batch, inputs, folder, args):
    """Seconds of a run, and bytes of the image."""
    save(f"{folder}/inputs", inputs)
    got = json.loads(part.program(
        "shunt-run", "bench", "--device", part.DEVICE, "--model", path, "--inputs", f"{folder}/inputs",
        "--batch", batch, "--precision", args.precision, "--runs", args.runs, "--warm-runs", 3,
        "--no-deterministic", "--tune", f"{folder}/tune"))
    return got["median_ms"] / 1e3, got["image_bytes"]


def row(name, batch, rate, ops, image):
    print(f"| {name} | {batch} | {rate:,.0f} | {rate / MLPERF[name.split()[0]]:.2f} | "
          f"{rate * ops / 1e3:.0f} | {image / 1e6:.0f} |", flush=True)


def squad(name, path, folder, args):
    total = ops = image = 0
    for i, count in enumerate(SQUAD):
        length = (i + 1) * BUCKET
        batch = TOKENS // length
        if not count:
            continue
        seconds, image = measure(path, batch, texts(batch, length, length - BUCKET + 1), folder, args)
        row(f"{name}, {length} tokens", batch, batch / seconds, operations("squad", length), image)
        total += count * seconds / batch
        ops += count * operations("squad", length)
    row(name, "buckets", sum(SQUAD) / total, ops / sum(SQUAD), image)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--models", default="resnet50,bert-large,squad")
    p.add_argument("--batches", default="32,128,512,1024", help="not of squad")
    p.add_argument("--precision", default="fp16", help="of what is no product of integers")
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--float", action="store_true", help="the same models in this precision too")
    args = p.parse_args()
    print("| model | batch | samples/s | of MLPerf's | 10^12 operations/s | image MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for model in args.models.split(","):
            for is_float in (False, True)[:1 + args.float]:
                path = make(model, folder, is_float)
                name = f"{model} {args.precision if is_float else 'int8'}"
                if model == "squad":
                    squad(name, path, folder, args)
                    continue
                for batch in map(int, args.batches.split(",")):
                    inputs = pictures(batch) if model == "resnet50" else texts(batch, LENGTH, LENGTH)
                    seconds, image = measure(path, batch, inputs, folder, args)
                    row(name, batch, batch / seconds, operations(model), image)
    return 0


if __name__ == "__main__":
    sys.exit(main())
