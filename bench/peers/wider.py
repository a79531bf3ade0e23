#!/usr/bin/env python3
"""Architectures that nobody here tuned: exports one to ONNX with inputs, then times it compiled.

../gpu/wider.py starts one process for each model. It compiles all cases, says so on standard error,
waits for a line on standard input, so that only one is timed at a time, and prints one JSON object
(see ../lib/rows.py). Weights are random; images have 224 x 224 pixels, texts 128 tokens.
"""
import argparse
import json
import os
import statistics
import struct
import sys

import common as c
import torch
import torch._inductor.config as inductor
from rows import failed, row
from torch import nn

SIDE, WORDS = 224, 10000
TEXT = ("bert-large", "distilbert", "gpt2", "lstm")
MASKED = ("bert-large", "distilbert")
PLAIN_LAYOUT = ("vit_b_16", "swin_t", "mixer")  # faster so than channels-last
ST_TYPE = {torch.float32: "F32", torch.int64: "I64"}


class MixerBlock(nn.Module):
    def __init__(self, width, patches):
        super().__init__()
        self.over_patches, self.over_channels = nn.LayerNorm(width), nn.LayerNorm(width)
        self.patches = nn.Sequential(nn.Linear(patches, width // 2), nn.GELU(),
                                     nn.Linear(width // 2, patches))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                      nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.patches(self.over_patches(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.over_channels(x))


class Mixer(nn.Module):
    def __init__(self, width=512, depth=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*(MixerBlock(width, (SIDE // 16) ** 2) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.blocks(self.stem(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


def twice(n_in, n_out):
    layers = []
    for n in (n_in, n_out):
        layers += [nn.Conv2d(n, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        widths = [width * 2 ** i for i in range(4)]
        self.down = nn.ModuleList(map(twice, [3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[2::-1])
        self.join = nn.ModuleList(twice(2 * w, w) for w in widths[2::-1])
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(width, 2, 1)

    def forward(self, x):
        skipped = []
        for block in self.down[:-1]:
            skipped.append(block(x))
            x = self.pool(skipped[-1])
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), skipped.pop()], 1))
        return self.head(x)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 256)
        self.cells = nn.LSTM(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 10)

    def forward(self, ids):
        return self.head(self.cells(self.words(ids))[0][:, -1])


class FirstOutput(nn.Module):
    """Of a model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask=None):
        return self.model(input_ids=ids, attention_mask=mask)[0]


def build(name):
    own = {"mixer": Mixer, "unet": UNet, "lstm": Lstm}
    if name in own:
        return own[name]()
    if name not in TEXT:
        from torchvision.models import get_model
        return get_model(name, weights=None)
    import transformers as t
    if name == "gpt2":
        return FirstOutput(t.GPT2Model(t.GPT2Config(use_cache=False)))
    if name == "distilbert":
        return FirstOutput(t.DistilBertForSequenceClassification(t.DistilBertConfig()))
    return FirstOutput(t.BertForSequenceClassification(t.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)))


def inputs(name, batch):
    """By name, in the order of forward()."""
    if name not in TEXT:
        return {"x": torch.randn(batch, 3, SIDE, SIDE)}
    ids = {"ids": torch.randint(0, WORDS, (batch, c.TOKENS))}
    if name in MASKED:
        ids["mask"] = torch.ones(batch, c.TOKENS, dtype=torch.int64)
    return ids


def write_st(path, tensors):
    head, body, at = {}, [], 0
    for k, v in tensors.items():
        body.append(v.numpy().tobytes())
        head[k] = {"dtype": ST_TYPE[v.dtype], "shape": list(v.shape),
                   "data_offsets": [at, at + len(body[-1])]}
        at += len(body[-1])
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(body))


def export(name, folder, batch):
    """folder/<name>.onnx, .st"""
    x = inputs(name, 2)
    torch.onnx.export(build(name).eval(), tuple(x.values()), os.path.join(folder, name + ".onnx"),
                      dynamo=False, opset_version=17, input_names=list(x), output_names=["y"],
                      dynamic_axes={k: {0: "n"} for k in [*x, "y"]})
    write_st(os.path.join(folder, name + ".st"), inputs(name, batch))


def compiled(name, precision, batch):
    c.use_precision(precision)
    model, x = build(name).eval(), list(inputs(name, batch).values())
    last = name not in TEXT and name not in PLAIN_LAYOUT
    dtype = c.DTYPE.get(precision)
    if last:
        model = model.to(memory_format=torch.channels_last)
        x = [v.contiguous(memory_format=torch.channels_last) for v in x]
    if dtype:
        model, x = model.to(dtype), [v.to(dtype) if v.is_floating_point() else v for v in x]
    model, x = model.to(c.DEVICE), [v.to(c.DEVICE) for v in x]
    fast = torch.compile(model, mode="reduce-overhead")

    def run():
        with inductor.patch(freezing=True), torch.inference_mode():
            fast(*x)
    c.timed(run, 1, warm=3)
    return run


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("model")
    p.add_argument("--folder", required=True)
    p.add_argument("--precisions", type=lambda s: s.split(","), default=["tf32", "fp16"])
    p.add_argument("--batches", type=lambda s: [int(n) for n in s.split(",")], default=[8])
    p.add_argument("--runs", type=int, default=60)
    args = p.parse_args()
    export(args.model, args.folder, max(args.batches))
    print("exported", file=sys.stderr, flush=True)
    rows, ready = [], []
    for case in ({"model": args.model, "precision": q, "batch": b}
                 for q in args.precisions for b in args.batches):
        try:
            ready.append((case, compiled(args.model, case["precision"], case["batch"])))
        except Exception as e:  # one case that fails leaves the others
            rows.append(failed("ready", "pytorch compiled", case, e))
    print("compiled", file=sys.stderr, flush=True)
    sys.stdin.readline()
    for case, run in ready:
        samples = c.timed(run, args.runs)
        rows.append(row("ready", "pytorch compiled", case, samples))
        print(c.case_text(case), "%.3f" % statistics.median(samples), file=sys.stderr, flush=True)
    print(json.dumps({"rows": rows}), flush=True)


if __name__ == "__main__":
    main()
