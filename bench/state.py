#!/usr/bin/env python3
"""What the lossless code of packed images (runtime/pack) makes of training state in FP32, and what packing on the
device would have to cost so that a copy to the host is over sooner: decision 58.

Trains examples/digits in an executor, with each optimizer; where there is PyTorch, also a small transformer on the
text of docs/. Then build/bench/pack packs parameters and each kind of optimizer state by itself.

Usage: make all build/bench/pack && bench/state.py [--steps 5000] [--words 3000] [--link 55]
"""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from exec_driver import BIN, Driver, read_st, st_bytes  # noqa: E402

DIGITS = os.path.join(ROOT, "examples", "digits", "train.safetensors")
OPTIMIZERS = ({"name": "sgd", "lr": 0.02, "momentum": 0.9}, {"name": "adam", "lr": 0.001},
              {"name": "adamw", "lr": 0.001, "weight_decay": 0.01})
KINDS = {"momentum": "momentum", "m": "exp_avg", "v": "exp_avg_sq"}


def digits(tmp, optimizer, steps):
    """The state of digits-cnn after so many steps, by kind: {kind: {name: (dtype, shape, bytes)}}."""
    model = os.path.join(tmp, "digits.onnx")
    subprocess.run([os.path.join(BIN, "shunt-zoo"), "digits-cnn", "--form", "training", "--out", model], check=True)
    d = Driver("--threads=1", "--pool-bytes=256M").start()
    try:
        spec = {"optimizer": optimizer, "batch": 32, "steps": 10 * steps, "loss": "cross-entropy", "labels": "label"}
        d.start_job(1, d.package(model, "--training")[0], DIGITS, spec)
        d.wait_step(1, steps, timeout=3600)
        d.stop()  # with a checkpoint
        state = read_st(os.path.join(d.dir, "jobs", d.checkpoints[-1].path))
    finally:
        d.close()
    found = {}
    for name, t in state.items():
        found.setdefault(KINDS.get(name.partition("#")[2], "parameters"), {})[name] = t
    return found


def words(steps):
    """The same of a transformer that learns to spell docs/, by PyTorch's AdamW; None: no PyTorch."""
    try:
        import torch
        from torch import nn
    except ImportError:
        return None
    text = b"".join(open(p, "rb").read() for p in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))))
    data, length, width = torch.tensor(list(text)), 32, 128
    torch.manual_seed(1)
    torch.set_num_threads(1)

    class Speller(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.at = nn.Embedding(256, width), nn.Parameter(0.02 * torch.randn(length, width))
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
            self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 256)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            return self.head(self.body(self.table(x) + self.at, mask=mask, is_causal=True))

    net = Speller()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(steps):
        at = torch.randint(0, len(data) - length - 1, (8,))
        x = torch.stack([data[i:i + length] for i in at])
        y = torch.stack([data[i + 1:i + length + 1] for i in at])
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 500 == 499:
            print("words: step %d, loss %.3f" % (step + 1, loss.item()), file=sys.stderr)
    found = {}
    for name, p in net.named_parameters():
        for kind, t in (("parameters", p), *((k, opt.state[p][k]) for k in ("exp_avg", "exp_avg_sq"))):
            t = t.detach().contiguous()
            found.setdefault(kind, {})[name] = ("F32", list(t.shape), t.numpy().tobytes())
    return found


def pack(tmp, tensors):
    """(bytes, ratio, bits of an exponent by their entropy)."""
    path = os.path.join(tmp, "part.safetensors")
    with open(path, "wb") as f:
        f.write(st_bytes(tensors))
    said = subprocess.run([os.path.join(ROOT, "build", "bench", "pack"), path, "fp32"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    ratio, bits = re.search(r"MB, ([0-9.]+);.*exponents ([0-9.]+) by", said).groups()
    return sum(len(t[2]) for t in tensors.values()), float(ratio), float(bits)


def show(tmp, what, found, link):
    """A row for each kind, and one for all: at which rate a packer has to read for the copy to end no later."""
    total = kept = 0
    for kind, tensors in sorted(found.items(), key=lambda k: k[0] != "parameters"):
        n, ratio, bits = pack(tmp, tensors)
        total, kept = total + n, kept + n * ratio
        print("| %s | %s | %.2f | %.3f | %.2f | |" % (what, kind, n / 1e6, ratio, bits), flush=True)
    ratio = kept / total if total else 1
    if ratio < 1:
        print("| %s | all | %.2f | %.3f | | %.0f |" % (what, total / 1e6, ratio, link / (1 - ratio)), flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--steps", type=int, default=5000)
    a.add_argument("--words", type=int, default=3000, help="steps of the transformer; 0: none")
    a.add_argument("--link", type=float, default=55, help="GB/s of a copy to the host")
    a = a.parse_args()
    print("| trained | kind | MB | packed | exponent, bits | must pack at, GB/s |\n| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="shunt-state-") as tmp:
        for o in OPTIMIZERS:
            show(tmp, "digits, " + o["name"], digits(tmp, o, a.steps), a.link)
        if a.words:
            show(tmp, "words, adamw", words(a.words) or {}, a.link)


if __name__ == "__main__":
    main()
