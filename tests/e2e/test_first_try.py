#!/usr/bin/env python3
"""A user's first try: a model as torch.onnx.export writes it without an option, pushed, asked, trained.

Without it: the formats and operators of the newest exporter would be refused at the first command that a
new user types, while the models that this project exports itself go on to work.

Needs torch, torchvision and transformers, in this interpreter or in that of SHUNT_TORCH_PYTHON; without
them it says "skip". Nothing is downloaded: weights are random.

Usage: test_first_try.py [-v] [name ...]
"""
import importlib.util
import os
import subprocess
import sys
import unittest

PACKAGES = ("torch", "torchvision", "transformers", "onnxscript")
if not all(importlib.util.find_spec(p) for p in PACKAGES):
    other = os.environ.pop("SHUNT_TORCH_PYTHON", None)  # asked once
    if other:
        os.execv(other, [other, os.path.abspath(__file__), *sys.argv[1:]])
    print("skip: no %s here; SHUNT_TORCH_PYTHON names a python that has them" % ", ".join(PACKAGES))
    sys.exit(0)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch  # noqa: E402
from torch import nn  # noqa: E402
from system import BIN, Story, System, st_bytes, until  # noqa: E402

WORDS, LONGEST = 100, 512
ROWS = 32  # of a dataset: a batch, where the file leaves that open
DATATYPES = {torch.float32: ("FP32", "F32"), torch.int64: ("INT64", "I64")}
BOUND = 1e-4  # of the range of what PyTorch says in fp64


class UNet(nn.Module):
    @staticmethod
    def twice(n_in, n_out):
        return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(),
                             nn.Conv2d(n_out, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU())

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = self.twice(3, 8), self.twice(8, 16), self.twice(24, 8)
        self.pool, self.up, self.head = nn.MaxPool2d(2), nn.ConvTranspose2d(16, 16, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        return self.head(self.c(torch.cat([a, self.up(self.b(self.pool(a)))], 1)))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cells = nn.Embedding(WORDS, 16), nn.LSTM(16, 24, 2, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, ids):
        return self.head(self.cells(self.words(ids))[0][:, -1])


class Bert(nn.Module):
    """Two layers of BERT, with the attention that is the default; a mask says which tokens count."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification
        self.model = BertForSequenceClassification(BertConfig(
            vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=LONGEST))

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).logits


def tokens(rows, length):
    return torch.randint(0, WORDS, (rows, length))


def texts(rows, length):
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[0, (length + 1) // 2:] = 0
    return tokens(rows, length), mask


class FirstTry(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2")
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("newcomer")
        cls.dir = os.path.join(cls.s.dir, "files")
        os.mkdir(cls.dir)
        torch.manual_seed(0)

    def shunt(self, *args):
        r = subprocess.run([os.path.join(BIN, "shunt"), *args, "--server", "http://127.0.0.1:%d" % self.s.port],
                           text=True, timeout=300, env={**self.s.env, "SHUNT_KEY": self.key},
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(r.returncode, 0, " ".join(args) + "\n" + r.stdout)
        return r.stdout

    def push(self, name, model, inputs, **more):
        """What the user types."""
        path = os.path.join(self.dir, name + ".onnx")
        torch.onnx.export(model.eval(), inputs, path, **more)
        self.shunt("push", "model", name, path, "--wait")
        r = self.s.call("GET", "/v2/models/" + name, key=self.key)
        self.assertEqual(r.status, 200, r)
        return [i["name"] for i in r.json["inputs"]]

    def ask(self, name, names, model, inputs):
        body = [{"name": n, "datatype": DATATYPES[x.dtype][0], "shape": list(x.shape),
                 "data": x.flatten().tolist()} for n, x in zip(names, inputs)]
        r = until("%s answers" % name, lambda: (r := self.s.infer(self.key, name, body)).status != 503 and r)
        self.assertEqual(r.status, 200, r)
        with torch.no_grad():
            want = model.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
        model.float()
        out = r.json["outputs"][0]
        self.assertEqual(out["shape"], list(want.shape))
        off = (torch.tensor(out["data"], dtype=torch.float64) - want.flatten()).abs().max()
        self.assertLess(off.item(), BOUND * (want.max() - want.min()).item())

    def train(self, name, names, inputs, label):
        path = os.path.join(self.dir, name + ".safetensors")
        tensors = {**dict(zip(names, inputs)), "label": label}
        with open(path, "wb") as f:
            f.write(st_bytes({n: (DATATYPES[x.dtype][1], list(x.shape), x.contiguous().numpy().tobytes())
                              for n, x in tensors.items()}))
        self.shunt("push", "dataset", name, path)
        self.shunt("submit", "--model", name, "--dataset", name, "--epochs", "2", "--wait")
        versions = self.s.call("GET", "/api/v1/models/%s/versions" % name, key=self.key)
        self.assertEqual(len(versions.json["items"]), 2, versions)

    def test_a_cnn(self):
        from torchvision.models import resnet18
        model, x = resnet18(weights=None, num_classes=10), torch.randn(1, 3, 64, 64)
        names = self.push("cnn", model, (x,))
        self.ask("cnn", names, model, [x])
        self.ask("cnn", names, model, [torch.randn_like(x)])
        self.train("cnn", names, [torch.randn(ROWS, 3, 64, 64)], torch.arange(ROWS) % 10)

    def test_a_masked_bert_of_any_length(self):
        model, axes = Bert(), {0: "batch", 1: "length"}
        names = self.push("bert", model, texts(2, 16), dynamic_shapes=(axes, axes))
        for rows, length in ((2, 16), (1, 1), (3, 7), (1, 128), (2, LONGEST)):
            self.ask("bert", names, model, texts(rows, length))
        self.train("bert", names, texts(ROWS, 24), torch.arange(ROWS) % 2)

    def test_a_masked_bert_without_an_option(self):
        model, x = Bert(), texts(2, 16)
        names = self.push("bert-fixed", model, x)
        self.ask("bert-fixed", names, model, x)
        self.train("bert-fixed", names, texts(ROWS, 16), torch.arange(ROWS) % 2)

    def test_a_masked_bert_and_a_causal_gpt_2_in_buckets(self):
        """Filled up they answer what they answer at the size itself, and unlike lengths are one shape."""
        from transformers import GPT2Config, GPT2LMHeadModel

        class Gpt(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = GPT2LMHeadModel(GPT2Config(
                    vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=LONGEST))

            def forward(self, ids):
                return self.model(input_ids=ids, use_cache=False).logits

        axes = {0: "batch", 1: "length"}
        for name, model, make in (("bert", Bert(), texts), ("gpt", Gpt(), lambda *a: (tokens(*a),))):
            path = os.path.join(self.dir, name + "-buckets.onnx")
            torch.onnx.export(model.eval(), make(2, 16), path, dynamic_shapes=(axes,) * len(make(2, 16)))
            said = self.shunt("push", "model", name + "-buckets", path, "--wait", "--buckets", "length=32,128,512")
            self.assertIn("filled up along length to 32, 128, 512", said)
            r = self.s.call("GET", "/v2/models/%s-buckets" % name, key=self.key)
            names = [i["name"] for i in r.json["inputs"]]
            for rows, length in ((2, 2), (3, 7), (1, 32), (2, 33), (1, 127), (2, 129), (1, LONGEST)):
                self.ask(name + "-buckets", names, model, make(rows, length))
        path = os.path.join(self.dir, "no-mask.onnx")
        torch.onnx.export(Bert().model.eval(), (tokens(2, 16),), path, dynamic_shapes={"input_ids": axes})
        r = subprocess.run([os.path.join(BIN, "shunt"), "push", "model", "no-mask", path, "--buckets", "length=32",
                            "--server", "http://127.0.0.1:%d" % self.s.port], text=True, timeout=300, check=False,
                           env={**self.s.env, "SHUNT_KEY": self.key}, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
        self.assertEqual(r.returncode, 1, r)
        self.assertIn("gives weight to places that nothing masks", r.stdout)

    def test_a_u_net(self):
        model, x = UNet(), torch.randn(1, 3, 32, 32)
        names = self.push("u-net", model, (x,))
        self.ask("u-net", names, model, [x])
        self.train("u-net", names, [torch.randn(ROWS, 3, 32, 32)], torch.randint(0, 2, (ROWS, 32, 32)))

    def test_an_lstm(self):
        model, x = Lstm(), tokens(2, 12)
        names = self.push("lstm", model, (x,))
        self.ask("lstm", names, model, [x])
        self.train("lstm", names, [tokens(ROWS, 12)], torch.arange(ROWS) % 5)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
