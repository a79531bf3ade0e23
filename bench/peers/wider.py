#!/usr/bin/env python3
"""Architectures that nobody here tuned: exports one to ONNX with inputs, or times it compiled.

../gpu/wider.py starts a process for each model, which exports, and one for each case. That one compiles,
says so on standard error, waits for a line on standard input, so that only one is timed at a time, and
prints a row (../lib/rows.py). Weights are random; images have 224 x 224 pixels, texts 128 tokens.

--training: steps as ./train.py takes them, cross-entropy over the classes. Stochastic depth is off:
it draws for each sample whether a block counts, which no exporter writes.
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
import train
from rows import row
from torch import nn

SIDE, WORDS = 224, 10000
TEXT = ("bert-large", "distilbert", "gpt2", "lstm")
MASKED = ("bert-large", "distilbert", "gpt2")  # GPT-2 without a mask is not exported
CLASSES = {"bert-large": 2, "distilbert": 2, "lstm": 10, "dlrm": 2}  # of others 1000
NUMBERS, TABLES, ROWS = 13, 26, 20000  # of DLRM
TRAIN_SAMPLES = 128
PLAIN_LAYOUT = ("vit_b_16", "swin_t", "mixer", "dlrm")  # faster so than channels-last
MODES = {"reduce-overhead": "pytorch compiled", "max-autotune": "pytorch autotuned"}
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


class Dlrm(nn.Module):
    """Rows of tables and what a perceptron makes of numbers, each multiplied with each other."""

    def __init__(self, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, width) for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 512), nn.ReLU(), nn.Linear(512, 256),
                                    nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        n = TABLES + 1
        self.register_buffer("pairs", (torch.tril_indices(n, n, -1) * torch.tensor([[n], [1]])).sum(0))
        self.top = nn.Sequential(nn.Linear(width + n * (n - 1) // 2, 1024), nn.ReLU(),
                                 nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(),
                                 nn.Linear(512, 2))

    def forward(self, numbers, ids):
        x = self.bottom(numbers)
        rows = torch.stack([x, *(t(ids[:, i]) for i, t in enumerate(self.tables))], 1)
        products = (rows @ rows.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([x, products], 1))


class FirstOutput(nn.Module):
    """Of a model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask=None):
        return self.model(input_ids=ids, attention_mask=mask)[0]


def build(name):
    own = {"mixer": Mixer, "unet": UNet, "lstm": Lstm, "dlrm": Dlrm}
    if name in own:
        return own[name]()
    if name not in TEXT:
        from torchvision.models import get_model
        from torchvision.ops import StochasticDepth
        model = get_model(name, weights=None)
        for part in model.modules():
            if isinstance(part, StochasticDepth):
                part.p = 0.0
        return model
    import transformers as t
    if name == "gpt2":
        return FirstOutput(t.GPT2Model(t.GPT2Config(use_cache=False)))
    if name == "distilbert":
        return FirstOutput(t.DistilBertForSequenceClassification(t.DistilBertConfig()))
    return FirstOutput(t.BertForSequenceClassification(t.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)))


def inputs(name, batch):
    """By name, in the order of forward()."""
    if name == "dlrm":
        return {"numbers": torch.randn(batch, NUMBERS),
                "ids": torch.randint(0, ROWS, (batch, TABLES))}
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


def labels(name, n):
    return torch.randint(0, CLASSES.get(name, 1000), (n,))


def export(name, folder, batch, training):
    """folder/<name>[-training].onnx, .st"""
    x, at = inputs(name, 2), os.path.join(folder, name + ("-training" if training else ""))
    mode = {"training": torch.onnx.TrainingMode.TRAINING,
            "do_constant_folding": False} if training else {}
    torch.onnx.export(build(name).train(training), tuple(x.values()), at + ".onnx", dynamo=False,
                      opset_version=17, input_names=list(x), output_names=["y"],
                      dynamic_axes={k: {0: "n"} for k in [*x, "y"]}, **mode)
    data = inputs(name, TRAIN_SAMPLES if training else batch)
    if training:
        data["label"] = labels(name, TRAIN_SAMPLES)
    write_st(at + ".st", data)


def placed(name, precision, batch, model, dtype):
    """Model and inputs on the device, in the layout that is faster."""
    c.use_precision(precision)
    x = list(inputs(name, batch).values())
    if name not in TEXT and name not in PLAIN_LAYOUT:
        model = model.to(memory_format=torch.channels_last)
        x = [v.contiguous(memory_format=torch.channels_last) for v in x]
    if dtype:
        model, x = model.to(dtype), [v.to(dtype) if v.is_floating_point() else v for v in x]
    return model.to(c.DEVICE), [v.to(c.DEVICE) for v in x]


def compiled(name, precision, batch, mode):
    """A function that runs it once."""
    model, x = placed(name, precision, batch, build(name).eval(), c.DTYPE.get(precision))
    fast = torch.compile(model, mode=mode)

    def run():
        with inductor.patch(freezing=True), torch.inference_mode():
            fast(*x)
    c.timed(run, 1, warm=3)
    return run


def compiled_step(name, precision, batch, mode):
    """A function that does one training step."""
    model, x = placed(name, "tf32", batch, build(name).train(), None)
    step = train.step_of(torch.compile(model, mode=mode), model.parameters(), x,
                         labels(name, batch).to(c.DEVICE), precision, name not in TEXT)
    c.timed(step, 1, warm=3)
    return step


def timed(case, run, args):
    by = MODES[args.mode]
    if not args.training:
        return row("ready", by, case, c.timed(run, args.runs))
    ms = c.timed(run, args.runs)
    return row("train", by, case, [case["batch"] * 1e3 / t for t in ms], "samples/s",
               train.rate(run, case["batch"], args.runs), step_ms=round(statistics.median(ms), 4))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("model")
    p.add_argument("--folder", required=True)
    p.add_argument("--precision", default="tf32")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--runs", type=int, default=60)
    p.add_argument("--training", action="store_true")
    p.add_argument("--mode", choices=MODES, default="reduce-overhead", help="of torch.compile")
    p.add_argument("--export", type=int, metavar="SAMPLES", help="only that; so many inputs")
    args = p.parse_args()
    if args.export:
        export(args.model, args.folder, args.export, args.training)
        return
    case = {"model": args.model, "precision": args.precision, "batch": args.batch}
    run = (compiled_step if args.training else compiled)(*case.values(), args.mode)
    print("compiled", file=sys.stderr, flush=True)
    sys.stdin.readline()
    print(json.dumps(timed(case, run, args)), flush=True)


if __name__ == "__main__":
    main()
