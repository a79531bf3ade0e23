#!/usr/bin/env python3
"""Quantised models as onnxruntime's static quantiser and exporters write them, beside onnxruntime.

Without it: a model could load, be fast, and lose accuracy by a rounding too many or a zero point too few,
which no test of one operator shows.

Needs torch, torchvision, onnx and onnxruntime, in this interpreter or in that of SHUNT_TORCH_PYTHON; without
them it says "skip". Nothing is downloaded: weights are random. DEVICE names another device than cpu.

Usage: test_quantised.py [-v]
"""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime", "safetensors")
if not all(importlib.util.find_spec(p) for p in PACKAGES):
    other = os.environ.pop("SHUNT_TORCH_PYTHON", None)  # asked once
    if other:
        os.execv(other, [other, os.path.abspath(__file__), *sys.argv[1:]])
    print("skip: no %s here; SHUNT_TORCH_PYTHON names a python that has them" % ", ".join(PACKAGES))
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench", "lib"))
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType,  # noqa: E402
                                      quantize_static)
from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

import quantised  # noqa: E402

BIN = os.environ.get("SHUNT_BIN") or os.path.join(HERE, "..", "..", "build", "bin")
DEVICE = os.environ.get("DEVICE") or "cpu"
SHAPE = (2, 3, 40, 40)


class Pictures(CalibrationDataReader):
    def __init__(self):
        random = np.random.default_rng(0)
        self.left = [random.standard_normal(SHAPE, np.float32) for _ in range(2)]

    def get_next(self):
        return {"x": self.left.pop()} if self.left else None


def last_step(path):
    """The scale in which a file's results count; 0: they are floats."""
    g = onnx.load(path).graph
    last = [n for n in g.node if g.output[0].name in n.output][0]
    known = {t.name: t for t in g.initializer}
    return float(numpy_helper.to_array(known[last.input[1]])) if last.op_type == "DequantizeLinear" else 0.0


class Quantised(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        cls.folder = cls.keep.name
        torch.manual_seed(0)
        net = torchvision.models.resnet18(num_classes=10).eval()
        for m in net.modules():
            if isinstance(m, torch.nn.BatchNorm2d):
                m.running_mean.normal_(0, 0.1)
                m.running_var.uniform_(0.5, 1.5)
        plain = f"{cls.folder}/plain.onnx"
        torch.onnx.export(net, torch.zeros(SHAPE), plain, dynamo=False, opset_version=17,
                          input_names=["x"], output_names=["y"],
                          dynamic_axes={"x": {0: "n"}, "y": {0: "n"}})
        quant_pre_process(plain, f"{cls.folder}/folded.onnx")

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    def agrees(self, path, inputs):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        want = onnxruntime.InferenceSession(path, options).run(None, inputs)[0]
        save_file(inputs, f"{self.folder}/in")
        ran = subprocess.run([os.path.join(BIN, "shunt-run"), "infer", "--device", DEVICE, "--model", path,
                              "--inputs", f"{self.folder}/in", "--outputs", f"{self.folder}/out"],
                             capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        got = list(load_file(f"{self.folder}/out").values())[0]
        self.assertGreater(np.ptp(want), 0)
        # A number between two integers may become the other one, anywhere on the way: onnxruntime differs
        # from itself by three steps at another level of optimization.
        step = last_step(path) or 0.01 * np.abs(want).max()
        self.assertLessEqual(np.abs(got - want).max(), 6 * step)
        self.assertLessEqual(np.abs(got - want).mean(), 2 * step)

    def picture_net(self, **options):
        path = f"{self.folder}/net.onnx"
        quantize_static(f"{self.folder}/folded.onnx", path, Pictures(), quant_format=QuantFormat.QDQ, **options)
        self.agrees(path, {"x": np.random.default_rng(9).standard_normal((3, *SHAPE[1:]), np.float32)})

    def test_unsigned_activations_with_zero_points(self):
        self.picture_net(activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True)

    def test_signed_activations_with_zero_points(self):
        self.picture_net()

    def test_signed_activations_without_zero_points(self):
        self.picture_net(per_channel=True, extra_options={"ActivationSymmetric": True})

    def test_unsigned_weights(self):
        self.picture_net(activation_type=QuantType.QUInt8, weight_type=QuantType.QUInt8)

    def test_a_text_model(self):
        path = quantised.bert(self.folder, "bert", layers=2, width=64, heads=4, inner=256, length=24,
                                 vocabulary=100)
        random = np.random.default_rng(3)
        mask = np.ones((3, 24), np.int64)
        mask[1, 15:] = 0
        self.agrees(path, {"input_ids": random.integers(0, 100, (3, 24)), "attention_mask": mask})


if __name__ == "__main__":
    unittest.main()
