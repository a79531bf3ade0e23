#!/usr/bin/python3
"""convert.py - scikit-learn's digits.csv.gz to the two safetensors files beside this script.

Usage: convert.py /usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz

Pixels 0..16 become x F32 [n,1,8,8] in 0..1; labels become label I64 [n]. Every fifth sample of an
order drawn once (linear congruential generator, seed 1) is held out: 1,437 to train, 360 to test.
"""
import csv
import gzip
import json
import struct
import sys
from pathlib import Path


def shuffled(n):
    order, x = list(range(n)), 1
    for i in range(n - 1, 0, -1):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        j = (x >> 33) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def write(path, rows):
    n = len(rows)
    x = struct.pack(f"<{n * 64}f", *(v / 16 for r in rows for v in r[:64]))
    label = struct.pack(f"<{n}q", *(int(r[64]) for r in rows))
    header = {
        "__metadata__": {
            "source": "Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak), UCI, "
                      "doi:10.24432/C50P49",
            "licence": "CC BY 4.0",
        },
        "x": {"dtype": "F32", "shape": [n, 1, 8, 8], "data_offsets": [0, len(x)]},
        "label": {"dtype": "I64", "shape": [n], "data_offsets": [len(x), len(x) + len(label)]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + x + label)


def main():
    with gzip.open(sys.argv[1], "rt") as f:
        rows = [[float(v) for v in r] for r in csv.reader(f)]
    order = shuffled(len(rows))
    here = Path(__file__).parent
    write(here / "train.safetensors", [rows[i] for k, i in enumerate(order) if k % 5])
    write(here / "test.safetensors", [rows[i] for k, i in enumerate(order) if k % 5 == 0])


main()
