#!/usr/bin/env python3
"""autocast.py - how far PyTorch itself is from a golden's losses, by precision: what bounds can ask.

    [GOLDENS=FOLDER] autocast.py [MODEL [OPTIMIZER]]     (resnet_tiny sgd)

Trains train_opset17.onnx, node by node, in float64 (which shows that this program reads it right),
float32, and with bfloat16 autocast; prints the relative error of each loss. For the models made of
convolutions. Needs torch, onnx and safetensors (PyPI).
"""
import json
import os
import sys

import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from safetensors.torch import load_file

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
GOLDENS = os.environ.get("GOLDENS") or os.path.join(ROOT, "..", "shared", "goldens")

NODES = {
    "Conv": lambda a, x, w, b=None: F.conv2d(x, w, b, a.get("strides", 1), a["pads"][:2],
                                             a.get("dilations", 1), a.get("group", 1)),
    "BatchNormalization": lambda a, x, scale, bias, mean, var: F.batch_norm(
        x, None, None, scale, bias, True, 0.1, a["epsilon"]),
    "Relu": lambda a, x: F.relu(x),
    "Add": lambda a, x, y: x + y,
    "MaxPool": lambda a, x: F.max_pool2d(x, a["kernel_shape"], a["strides"], a["pads"][:2]),
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Gemm": lambda a, x, w, b: F.linear(x, w if a.get("transB") else w.t(), b),
}


def forward(graph, values):
    values = dict(values)
    for n in graph.node:
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}
        values[n.output[0]] = NODES[n.op_type](attrs, *(values[i] for i in n.input))
    return values[graph.output[0].name]


def optimizer_of(name, conf, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, conf["lr"], conf["momentum"],
                               weight_decay=conf["weight_decay"])
    return torch.optim.AdamW(parameters, conf["lr"], conf["betas"], conf["eps"],
                             conf["weight_decay"])


def losses(graph, name, conf, x, label, dtype, autocast):
    values = {t.name: torch.tensor(numpy_helper.to_array(t)).to(dtype) for t in graph.initializer}
    trained = [v.requires_grad_() for k, v in values.items() if "running_" not in k]
    optimizer, out = optimizer_of(name, conf, trained), []
    values[graph.input[0].name] = x.to(dtype)
    for _ in range(conf["steps"]):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = forward(graph, values)
        loss = F.cross_entropy(logits.float() if autocast else logits, label)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def main():
    model, name = (sys.argv[1:] + ["resnet_tiny", "sgd"][len(sys.argv) - 1:])[:2]
    folder = os.path.join(GOLDENS, model)
    with open(os.path.join(folder, "train_%s.json" % name), encoding="utf-8") as f:
        conf = json.load(f)
    graph = onnx.load(os.path.join(folder, "train_opset17.onnx")).graph
    x = load_file(os.path.join(folder, "eval.safetensors"))["x"]
    label = load_file(os.path.join(folder, "train_%s.safetensors" % name))["label"]
    for what, dtype, autocast in (("float64", torch.float64, False),
                                  ("float32", torch.float32, False),
                                  ("bfloat16 autocast", torch.float32, True)):
        got = losses(graph, name, conf, x, label, dtype, autocast)
        print("%-18s" % what, *("%.1e" % (abs(a - b) / abs(b))
                                for a, b in zip(got, conf["losses_float64"])))


if __name__ == "__main__":
    main()
