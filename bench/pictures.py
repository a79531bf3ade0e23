#!/usr/bin/env python3
"""What training from a pushed folder of JPEG costs over numbers that are in memory.

A system of its own. The same model is trained, in turns, on a folder of pictures (bytes, in windows, the file
dropped from memory before each run) and on a set of two batches of FP32 that stays in memory. Two models: one
that computes nearly nothing, so that its rate is what reading gives at most; and ResNet-18. What counts is
the time that the job had the device (busy_ns).

Standard library only: bench/pictures.py [--pictures 2000] [--runs 3] [--model resnet18] [--out FILE]
"""
import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import onnx_bytes as onnx  # noqa: E402
from pictures import jpeg  # noqa: E402
from system import BIN, System, st_bytes, zoo  # noqa: E402

SIDE, CLASSES, BATCH = 224, 10, 16


def mean():
    """x [N,3,224,224] -> scores [N,10], by the mean of each colour"""
    return onnx.model(
        [onnx.node("GlobalAveragePool", ["x"], ["a"]), onnx.node("Flatten", ["a"], ["b"]),
         onnx.node("Gemm", ["b", "w", "bias"], ["y"])],
        [onnx.value("x", ["N", 3, SIDE, SIDE])], [onnx.value("y", ["N", CLASSES])],
        [onnx.tensor("w", [3, CLASSES], [0.01] * (3 * CLASSES)), onnx.tensor("bias", [CLASSES], [0.0] * CLASSES)])


def make_folder(path, n):
    rng = random.Random(1)
    some = [[rng.randrange(256) for _ in range((SIDE // 8) ** 2)] for _ in range(8)]
    for i in range(n):
        folder = os.path.join(path, "class%d" % (i % CLASSES))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "%07d.jpg" % i), "wb") as f:
            f.write(jpeg(SIDE, SIDE, some[i % len(some)]))


def drop_from_memory(folder):
    os.sync()
    for at, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".safetensors"):
                fd = os.open(os.path.join(at, name), os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)


def rate(s, key, model, dataset, steps):
    """Samples a second of one job."""
    drop_from_memory(s.state)
    r = s.submit(key, model=model, version=1, dataset=dataset, spec={
        "optimizer": {"name": "sgd", "lr": 1e-6}, "loss": None, "batch": BATCH, "steps": steps, "epochs": None,
        "shuffle_window": 512, "publish": False})
    assert r.status == 201, r
    j = s.wait_job(key, r.json["id"], limit_s=900)
    assert j["state"] == "SUCCEEDED", j
    return steps * BATCH / (j["busy_ns"] / 1e9)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pictures", type=int, default=2000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--model", default="resnet18", help="of the zoo, beside the one that computes nearly nothing")
    p.add_argument("--steps", type=int, default=8, help="of that one; the other one takes every picture once")
    p.add_argument("--out")
    o = p.parse_args()
    out = []
    with System("--pool-bytes=3G") as s:
        key = s.tenant("bench")
        folder = os.path.join(s.dir, "folder")
        make_folder(folder, o.pictures)
        subprocess.run([os.path.join(BIN, "shunt"), "push", "dataset", "folder", folder, "--tensor", "x",
                        "--tmp-dir", s.dir, "--server", "http://127.0.0.1:%d" % s.port, "--quiet"], check=True,
                       env={**s.env, "SHUNT_KEY": key})
        n = 2 * BATCH
        s.push_data(key, "memory", st_bytes({
            "x": ("F32", [n, 3, SIDE, SIDE], struct.pack("<f", 0.5) * (n * 3 * SIDE * SIDE)),
            "label": ("I64", [n], struct.pack("<%dq" % n, *(i % CLASSES for i in range(n))))}))
        s.push(key, "mean", mean())
        s.push(key, o.model, zoo(o.model, "training"))
        for model, steps in (("mean", o.pictures // BATCH), (o.model, o.steps)):
            got = {"folder": [], "memory": []}
            for _ in range(o.runs):
                for dataset, rates in got.items():
                    rates.append(rate(s, key, model, dataset, steps))
            a, b = statistics.median(got["folder"]), statistics.median(got["memory"])
            out.append({"model": model, "samples_per_s": got, "share": a / b})
            print("%-10s %8.1f samples/s from the folder, %8.1f from memory: %.2f" % (model, a, b, a / b))
    if o.out:
        with open(o.out, "w") as f:
            json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
