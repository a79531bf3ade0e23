#!/usr/bin/env python3
"""Architectures of other people, exported by PyTorch as people export them, beside PyTorch in fp64.

Without it: what was tried is what works. The goldens are six models by one exporter; the node tests are
operators alone.

Each architecture of architectures.py (random weights) is exported by both exporters of PyTorch: "new"
(dynamo=True, what torch.onnx.export does without an option) and "old" (dynamo=False), each twice: with no
option at all, and with the batch (and the length of texts and sounds) left open. A line for each exporter:

  loads    both files are read; else the reason
  error    largest difference of an output to fp64, over its range; at most BOUND
  batch    the same with three samples instead of the two that were exported
  length   the same with a length that was not exported
           (where ONNX Runtime fails at the same file, or differs as much, the file is at fault: that is
           said, and counts for no one; so are models whose outputs in fp64 are no numbers)
  trains   largest relative difference of the losses before and after three steps of SGD to fp64, and
           the bound, which is what PyTorch's own fp32 allows (see Spread); "told": it is beyond that, and
           who pushes the file is told which constants are trained or held by their use alone; "folded":
           the exporter put norms into weights, so the file has others. Behind WRONG and told come
           parameters whose numbers the file has not, since the exporter wrote what it computed of them

Files, inputs and what has to come out stay in FOLDER/<name>, so that a second run needs no PyTorch for
them.

Usage: sweep.py [--folder FOLDER] [--again] [--short | --default | --kept] [--on DEVICE:PRECISION[,...]]
                [--jobs N] [--limit SECONDS] [--within SECONDS] [--freeze PATTERN,...]
                [--draw N [--seed N] | NAME ...]
  --again   export anew what is in FOLDER
  --short   of each exporter only the file with open sizes, where it can write one
  --default of each only the file without an option, of one sample, in FOLDER/default: "error" is of one
            sample, "batch" of three and eight; it trains with the one sample that it is fixed to
  --kept    as --default, but the newer exporter's with optimize=False, which we tell those to write whose
            parameters it has computed with; in FOLDER/kept
  --on      where it is checked; cpu:fp32 without it
  --freeze  these parameters learn neither in PyTorch nor here (with --again): whose gradient is less exact?
  --draw    so many models of the three packages that nobody chose: see arch_any.py
A name is of an architecture, or with "-fp16" or "-bf16" behind it of one in half precision, or with
"-fresh" of one with the weights that PyTorch gives it, where others look trained; or timm.NAME,
torchvision.NAME, transformers.CLASS; "eca_*" is all that begin so. Needs torch,
torchvision, timm, transformers, onnx and onnxscript to export; numpy and onnx to check.
"""
import argparse
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from spread import Spread  # noqa: E402
BIN = os.environ.get("SHUNT_BIN") or os.path.join(HERE, "..", "..", "build", "bin")
BOUNDS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 3e-2, "bf16": 1e-1}
HALF_BOUNDS = {"fp16": 1e-2, "bf16": 1e-1}  # of such models: their outputs are rounded
DEFAULT_FEEDS = {"one": 1, "three": 3, "eight": 8}  # batches for files that were written with one sample
LR, STEPS, SPREAD_RUNS = 0.01, 4, 8
RARE_RUNS = 96  # of PyTorch, before it is said that something trains as it never does
TOLD = ("gradients flow", "were put into weights", "are trained apart", "that they match",
        "without the bounds")  # by a note
NUMPY = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?",
         "BF16": "<u2"}
NAMES = {np.dtype(v): k for k, v in NUMPY.items() if k != "BF16"}


def write_st(path, tensors, kinds=None):
    head, at = {}, 0
    for name, a in tensors.items():
        head[name] = {"dtype": (kinds or {}).get(name) or NAMES[a.dtype], "shape": list(a.shape),
                      "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())


def read_st(path):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    out = {}
    for name, t in head.items():
        a, b = (8 + n + x for x in t["data_offsets"])
        x = np.frombuffer(data[a:b], NUMPY[t["dtype"]]).reshape(t["shape"])
        out[name] = (x.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else x
    return out


# ---- with PyTorch

class Export:
    """One architecture: its files, inputs, wanted outputs and losses in a folder."""

    def __init__(self, name, folder, args):
        import torch
        import arch_any
        import architectures
        self.torch, self.folder, self.short = torch, folder, args.short
        self.default, self.kept = args.default or args.kept, args.kept
        base, _, half = name.partition("-")
        torch.manual_seed(0)
        self.model, self.inputs, self.lengths = (arch_any.get(base) or architectures.ALL[base])()
        self.model.eval()
        self.is_one = getattr(self.model, "one_sample", False)  # no axis of its outputs is that of samples
        if half != "fresh":
            self.as_trained()
        half = "" if half == "fresh" else half
        self.half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(half)
        if self.half:  # rounded, so that the reference has the same weights
            self.model.to(self.half).to(torch.float32)
        for n, p in self.model.named_parameters():
            p.requires_grad_(p.requires_grad and not any(fnmatch.fnmatchcase(n, k) for k in args.freeze.split(",")))
        self.case = {"name": name, "files": {}, "feeds": {}, "half": half or None}

    def as_trained(self):
        """No two alike: exporters leave out biases of zeros, and make one of equal norms and layers."""
        torch = self.torch
        with torch.no_grad():
            for p in self.model.parameters():
                if p.numel() > 1 and p.requires_grad:  # a table of the code stays what it is
                    p.add_((0.02 * p.std() or 0.02) * torch.randn_like(p))
            for m in self.model.modules():  # what stands for padding never learns
                if isinstance(m, torch.nn.Embedding) and m.padding_idx is not None:
                    m.weight[m.padding_idx] = 0
            for m in self.norms(self.model):
                if m.running_mean is not None:
                    m.running_mean.add_(0.1 * torch.randn_like(m.running_mean))
                    m.running_var.mul_(1 + 0.2 * torch.rand_like(m.running_var))

    def with_floats(self, xs, dtype):
        return [x.to(dtype) if x.is_floating_point() else x for x in xs]

    def feed(self, what, xs):
        """Inputs, and what PyTorch says of them in fp64."""
        import copy
        torch = self.torch
        if self.half:
            xs = self.with_floats(self.with_floats(xs, self.half), torch.float32)
        with torch.no_grad():
            want = self.flat(copy.deepcopy(self.model).double()(*self.with_floats(xs, torch.float64)))
            mine = self.flat(self.model(*xs))
        self.case["feeds"][what] = {"own_error": max(map(error, [m.numpy() for m in mine],
                                                         [w.numpy() for w in want]))}
        tensors = {"in%d" % i: x.contiguous().numpy() for i, x in enumerate(xs)}
        tensors.update({"out%d" % i: w.contiguous().numpy() for i, w in enumerate(want)})
        write_st(os.path.join(self.folder, what + ".st"), tensors)

    def flat(self, out):
        if self.torch.is_tensor(out):
            return [out]
        return [o for o in (out.values() if isinstance(out, dict) else out) if o is not None]

    def feeds(self):
        torch = self.torch
        if self.is_one:
            self.feed("one" if self.default else "same", self.inputs)
            return
        if self.default:
            for feed, n in DEFAULT_FEEDS.items():
                self.feed(feed, [torch.cat([x if i == 0 or x.dim() < 2 or x.max() == 1 else x.roll(i, -1)
                                            for i in range((n + 1) // 2)])[:n] for x in self.inputs])
            return
        self.feed("same", self.inputs)
        three = [torch.cat([x, x[:1].flip(-1) if x.dim() > 1 else x[:1]]) for x in self.inputs]
        self.feed("batch", three)
        if any(self.lengths):
            self.feed("length", [torch.cat([x, x.narrow(n, 2, min(7, x.shape[n] - 2))], n) if n else x
                                 for x, n in zip(three, self.lengths)])

    def export(self, tag, model, new, open_axes):
        """Returns whether the exporter could."""
        import onnx
        torch, path = self.torch, os.path.join(self.folder, tag + ".onnx")
        xs, more = [x[:1] for x in self.inputs] if self.default and not self.is_one else self.inputs, {}
        if self.half:
            xs = self.with_floats(xs, self.half)
        if new and open_axes:
            more["dynamic_shapes"] = tuple({0: "batch", **({n: "length"} if n else {})}
                                           for n in self.lengths)
        elif open_axes:
            names = ["x%d" % i for i in range(len(xs))]
            more = {"input_names": names, "dynamic_axes": {
                k: {0: "batch", **({n: "length"} if n else {})} for k, n in zip(names, self.lengths)}}
        if new and self.kept:
            more["optimize"] = False
        if tag.endswith("train"):
            more.update(training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
        try:
            torch.manual_seed(1)
            torch.onnx.export(model, tuple(xs), path, dynamo=new, **more)
        except Exception as e:  # whatever the exporter says
            e = e.__cause__ or e
            self.case["files"][tag] = {"export": "%s: %s" % (type(e).__name__, first_line(e))}
            return False
        graph = onnx.load(path, load_external_data=False).graph
        given = {t.name for t in graph.initializer}
        self.case["files"][tag] = {
            "inputs": [v.name for v in graph.input if v.name not in given],
            "outputs": [v.name for v in graph.output],
            "norms": sum(n.op_type == "BatchNormalization" for n in graph.node)}
        return True

    def files(self):
        import copy
        model = copy.deepcopy(self.model).to(self.half) if self.half else self.model
        for tag, new in (("new", True), ("old", False)):
            if self.default:
                self.export(tag + "-one", model, new, False)
                continue
            could = not self.half and not self.is_one and self.export_open(tag + "-open", model, new)
            if not could or not self.short:
                self.export(tag, model, new, False)

    def export_open(self, tag, model, new):
        if self.export(tag, model, new, True):
            return True
        if not any(self.lengths):
            return False
        why, kept = self.case["files"][tag], self.lengths
        self.lengths = [None] * len(kept)  # perhaps the batch alone
        could = self.export(tag, model, new, True)
        self.lengths = kept
        self.case["files"][tag]["length"] = why["export"]
        return could

    def norms(self, model):
        kinds = self.torch.nn.modules.batchnorm._BatchNorm
        return [m for m in model.modules() if isinstance(m, kinds)]

    def nudged(self, x):
        """Each number moved to the next one of fp32, up or down."""
        torch = self.torch
        if not x.is_floating_point() or x.numel() < 2:
            return x
        return torch.nextafter(x, torch.inf * (2.0 * torch.randint_like(x, 2) - 1))

    def spread(self, label):
        """The losses of PyTorch in fp32, several times, each rounded in another way: as it is, by its
        own kernels instead of oneDNN's, with the samples in another order, and with weights that are
        the next numbers of fp32. All of them are PyTorch's fp32; how they lie around fp64 is its error."""
        import copy
        torch = self.torch
        runs = [self.losses(torch.float32, self.model, self.batch, label)]
        with torch.backends.mkldnn.flags(enabled=False):
            runs.append(self.losses(torch.float32, self.model, self.batch, label))
        if len(label) > 1:
            runs.append(self.losses(torch.float32, self.model, [x.flip(0) for x in self.batch], label.flip(0)))
        while len(runs) < SPREAD_RUNS:
            runs.append(self.nudged_losses(label))
        return runs

    def nudged_losses(self, label):
        import copy
        torch = self.torch
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(self.nudged(p))
        return self.losses(torch.float32, model, self.batch, label)

    def one_as_far(self, step, off, until):
        """Which of more such runs is at least half as far from fp64 at that step, and how far; None: none of them."""
        torch, data = self.torch, read_st(os.path.join(self.folder, "train.st"))
        with open(os.path.join(self.folder, "case.json"), encoding="utf-8") as f:
            want = json.load(f)["train"]["fp64"]
        self.batch = [torch.from_numpy(data["in%d" % i].copy()) for i in range(len(self.inputs))]
        label = torch.from_numpy(data["label"].copy())
        torch.manual_seed(2)
        for k in range(RARE_RUNS):
            far = Spread.off(self.nudged_losses(label), want)[step]
            if 2 * far >= off:
                return k + 1, far
            if time.monotonic() > until:
                break
        return None

    def losses(self, dtype, model, batch, label):
        import copy
        torch = self.torch
        model = copy.deepcopy(model).to(dtype)
        for m in self.norms(model):
            m.train()
            m.register_forward_pre_hook(contiguous_inputs)
            m.register_forward_hook(contiguous)
        xs, out = self.with_floats(batch, dtype), []
        step = torch.optim.SGD(model.parameters(), lr=LR)
        for _ in range(STEPS):
            step.zero_grad()
            loss = torch.nn.functional.mse_loss(self.flat(model(*xs))[0], label.to(dtype))
            loss.backward()
            if dtype == torch.float64 and not out:
                self.learning = {n: sample(p) for n, p in model.named_parameters()
                                 if p.grad is not None and p.grad.abs().max() > 0}
            step.step()
            out.append(loss.item())
        return out

    def training(self):
        """A batch of four, or the one sample that a file is fixed to; losses of models whose norms learn, and of those that have none."""
        import copy
        torch = self.torch
        # A mask stays as it is: one that hides all is something else to each exporter.
        self.batch = [x[:1] if self.default else
                      torch.cat([x, x.flip(1) if x.dim() > 1 and x.max() != 1 else x])
                      for x in self.inputs]
        with torch.no_grad():
            out = self.flat(self.model(*self.batch))
        if len(out) != 1 or not out[0].is_floating_point():
            return
        label = out[0] + torch.randn_like(out[0])
        norms = bool(self.norms(self.model))
        self.case["train"] = {"norms": len(self.norms(self.model)),
                              "fp64": self.losses(torch.float64, self.model, self.batch, label),
                              "fp32": self.spread(label)}
        self.case["train"]["params"] = self.learning
        self.case["train"]["frozen"] = [n for n, p in self.model.named_parameters() if not p.requires_grad]
        tensors = {"in%d" % i: x.contiguous().numpy() for i, x in enumerate(self.batch)}
        write_st(os.path.join(self.folder, "train.st"), {**tensors, "label": label.contiguous().numpy()})
        if norms:
            model = copy.deepcopy(self.model)
            for m in self.norms(model):
                m.train()
            self.export("old-train", model, False, not self.default)

    def run(self):
        self.feeds()
        self.files()
        if not self.half and not self.is_one:
            try:
                self.training()
            except (RuntimeError, ValueError) as e:  # norms over a single number
                self.case["train_reason"] = first_line(e)
        with open(os.path.join(self.folder, "case.json"), "w", encoding="utf-8") as f:
            json.dump(self.case, f)


def sample(p):
    """Some numbers of a parameter, by which it is found in a file."""
    x = p.detach().to("cpu").float().flatten()
    x = x[x != 0]
    return x[::max(1, len(x) // 16) | 1][:16].tolist()  # an odd step: not a corner of each plane


def contiguous_inputs(_module, inputs):
    return tuple(x.contiguous() for x in inputs)


def contiguous(_module, _inputs, out):
    """PyTorch takes the gradient of a BatchNorm of one sample for that of another order of axes where what
    follows, or what is before, turns it; its differences say so."""
    if out.requires_grad:
        out.register_hook(lambda g: g.contiguous())


def first_line(e):
    lines = [line for line in str(e).split("\n") if line.strip()]
    return (lines[0] if lines else "")[:200]


# ---- without

def error(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape or not want.size:
        return float("inf") if got.shape != want.shape else 0.0
    span = float(want.max() - want.min()) or max(float(np.abs(want).max()), 1e-30)
    diff = np.abs(got - want)
    return float("inf") if np.isnan(diff).any() else float(diff.max()) / span


def are_in(some, all_sorted):
    """np.isin() would sort all of a file's numbers once for each parameter."""
    at = np.minimum(np.searchsorted(all_sorted, some), len(all_sorted) - 1)
    return len(all_sorted) > 0 and bool((all_sorted[at] == some).all())


class Check:
    """One case by the product, on one device in one precision."""

    def __init__(self, folder, limit, on, export):
        """export: makes the Export of it, where PyTorch is asked once more."""
        self.folder, self.limit, self.on, self.export = folder, limit, on, export
        self.device, _, self.precision = on.partition(":")
        self.answers = {}
        with open(os.path.join(folder, "case.json"), encoding="utf-8") as f:
            self.case = json.load(f)
        self.bound = HALF_BOUNDS[self.case["half"]] if self.case["half"] else BOUNDS["fp32"]
        self.bound = max(self.bound, BOUNDS[self.precision])

    def path(self, name):
        return os.path.join(self.folder, name)

    def shunt_run(self, *args):
        """(None or what went wrong, what it printed)"""
        command = [os.path.join(BIN, "shunt-run"), *args, "--device", self.device, "--precision", self.precision]
        try:
            r = subprocess.run(command, capture_output=True, text=True, timeout=self.limit, check=False)
        except subprocess.TimeoutExpired as e:
            return "no end after %d s" % self.limit, (e.stdout or b"").decode()
        if not r.returncode:
            return None, r.stdout
        return ("" if r.returncode > 0 else "signal %d: " % -r.returncode) + \
            r.stderr.strip()[-400:].replace("\n", " "), r.stdout

    def run_all(self):
        """All files with all that they are asked, in as few processes as survive it."""
        todo = [(tag, feed) for tag, file in self.case["files"].items() if "export" not in file
                for feed in self.case["feeds"]
                if not tag.endswith("-train") and (feed == "same" or tag[-5:] == "-open" or tag[-4:] == "-one")]
        while todo:
            with open(self.path("x.list"), "w", encoding="utf-8") as f:
                for tag, feed in todo:
                    stem = self.path("x.%s.%s." % (tag, feed))
                    write_st(stem + "in", *self.inputs(self.case["files"][tag], read_st(self.path(feed + ".st"))))
                    f.write(json.dumps({"model": self.path(tag + ".onnx"), "inputs": stem + "in",
                                        "outputs": stem + "out"}) + "\n")
            wrong, said = self.shunt_run("infer", "--list", self.path("x.list"))
            said = [json.loads(line) for line in said.split("\n") if line.endswith("}")]
            self.answers.update({k: None if a["ok"] else a["error"] for k, a in zip(todo, said)})
            todo = todo[len(said):]
            if todo:
                self.answers[todo.pop(0)] = wrong or "no answer"

    def inputs(self, file, tensors):
        """Renamed as the file has them; the new exporter drops those that nothing reads."""
        kind = {"fp16": "F16", "bf16": "BF16"}.get(self.case["half"])
        mine = {n: tensors["in%d" % i] for i, n in enumerate(file["inputs"])}
        kinds = {}
        for n, a in mine.items():
            if kind and a.dtype == np.float32:
                kinds[n] = kind
                mine[n] = a.astype(np.float16) if kind == "F16" else (a.view(np.uint32) >> 16).astype("<u2")
        return mine, kinds

    def infer(self, tag, feed):
        """(error or None, reason or None)"""
        file = self.case["files"][tag]
        if "export" in file:
            return None, "export: " + file["export"]
        if not self.answers:
            self.run_all()
        if self.answers[tag, feed]:
            return None, self.answers[tag, feed]
        tensors = read_st(self.path(feed + ".st"))
        got = read_st(self.path("x.%s.%s.out" % (tag, feed)))
        return max(error(got[n], tensors["out%d" % i]) for i, n in enumerate(file["outputs"])), None

    def blamed(self, tag, feed, error_, why):
        """(error, reason), where the file itself may be what is wrong."""
        if not np.isfinite(self.case["feeds"][feed]["own_error"]):
            return None, "export: PyTorch gives no numbers in fp64"
        bound = max(self.bound, 3 * self.case["feeds"][feed]["own_error"])
        if (why or "").startswith("export") or (error_ is not None and error_ <= bound):
            return error_, why
        other, fails = self.of_runtime(tag, feed)
        if fails:
            return None, "export: ONNX Runtime fails too: " + fails
        if other is None or other <= bound:
            return error_, why
        return None, "export: ONNX Runtime has %.1e, this %s" % (other, why or "%.1e" % error_)

    def of_runtime(self, tag, feed):
        """(its error, None), or (None, why it fails), or (None, None) where it is not installed. A file with
        one sample is asked for one after the other."""
        try:
            import onnxruntime
        except ImportError:
            return None, None
        file, tensors = self.case["files"][tag], read_st(self.path(feed + ".st"))
        onnxruntime.set_default_logger_severity(4)
        xs, worst = {n: tensors["in%d" % i] for i, n in enumerate(file["inputs"])}, 0.0
        each = DEFAULT_FEEDS.get(feed, 1) if tag.endswith("-one") else 1
        try:
            session = onnxruntime.InferenceSession(self.path(tag + ".onnx"),
                                                   providers=["CPUExecutionProvider"])
            got = [session.run(None, {n: x[k:k + 1] for n, x in xs.items()}) for k in range(each)] \
                if each > 1 else [session.run(None, xs)]
            got = [np.concatenate(g) if each > 1 else g[0] for g in zip(*got)]
        except Exception as e:  # as it may
            return None, first_line(e)
        for i, g in enumerate(got):
            worst = max(worst, error(g, tensors["out%d" % i]))
        return worst, None

    def lost(self, tag):
        """Parameters that learn and whose numbers are not in the file: something was computed of them."""
        import onnx
        from onnx import numpy_helper
        graph = onnx.load(self.path(tag + ".onnx")).graph
        arrays = [numpy_helper.to_array(t) for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
        arrays += [numpy_helper.to_array(a.t) for n in graph.node for a in n.attribute
                   if n.op_type == "Constant" and a.type == onnx.AttributeProto.TENSOR]
        there = np.unique(np.concatenate([np.ravel(a).astype(np.float32) for a in arrays] or [np.zeros(0)]))
        return [n for n, x in self.case["train"].get("params", {}).items()
                if x and not are_in(np.array(x, np.float32), there)]

    def frozen(self):
        """Parameters that the module has frozen, which no file says: a part of it as a whole, where nothing learns."""
        learn = {n.partition(".")[0] for n in self.case["train"].get("params", {})}
        tops = [(n.partition(".")[0], n) for n in self.case["train"].get("frozen", [])]
        return sorted({n if top in learn or "." not in n else top + ".*" for top, n in tops})

    def trains(self, tag):
        if self.precision != "fp32":
            return "-", "judged in fp32 only"
        want = self.case.get("train")
        if not want or not np.isfinite(want["fp64"]).all():
            return "-", self.case.get("train_reason")
        norms = want["norms"]
        if norms and tag == "old":
            tag = "old-train"
        else:
            tag += "-one" if tag + "-one" in self.case["files"] else "-open"
        file = self.case["files"].get(tag) or {"export": "none"}
        if "export" in file:
            return "-", "export: " + file["export"]
        if norms and file["norms"] != norms and not self.case["name"].endswith("-fresh"):
            return "-", "folded"
        mine, _ = self.inputs(file, read_st(self.path("train.st")))
        mine["label"] = read_st(self.path("train.st"))["label"]
        write_st(self.path("x.in"), mine)
        frozen, wrong = self.frozen(), 'parameter is called "'
        while wrong and 'parameter is called "' in wrong:  # one that does not learn anyway
            frozen = [n for n in frozen if '"%s"' % n not in wrong]
            with open(self.path("x.spec"), "w", encoding="utf-8") as f:
                json.dump({"frozen": frozen} if frozen else {}, f)
            wrong, _ = self.shunt_run("train", "--model", self.path(tag + ".onnx"), "--inputs", self.path("x.in"),
                                      "--spec", self.path("x.spec"), "--labels", "label", "--loss", "mse",
                                      "--optimizer", "sgd", "--lr", str(LR), "--steps", str(STEPS),
                                      "--losses", self.path("x.json"))
        if wrong:
            return "no", wrong
        with open(self.path("x.json"), encoding="utf-8") as f:
            got = json.load(f)
        off, bound, step = Spread(want["fp64"], want["fp32"]).worst(Spread.off(got, want["fp64"]))
        good = len(got) == STEPS and off <= bound
        note = "%.1e/%.1e at %d" % (off, bound, step)
        if good:
            return "ok", note
        lost, told = self.lost(tag), self.told(tag)
        rare = None if lost or told or len(got) != STEPS else self.rare(step, off)
        if rare:
            return "ok", "%s, and PyTorch's run %d is off by %.1e" % (note, *rare)
        if lost:
            note += "; not in the file: %s%s" % (lost[0], " and %d more" % (len(lost) - 1) if lost[1:] else "")
        return ("told", "%s: %s" % (note, told)) if told else ("WRONG", note)

    def rare(self, step, off):
        """(run, how far), if PyTorch is as far in one of many runs: see Spread."""
        try:
            return self.export().one_as_far(step, off, time.monotonic() + self.limit)
        except ImportError:  # none is installed here
            return None

    def told(self, tag):
        """What is trained or held by its use alone, as pushing the file says."""
        with tempfile.TemporaryDirectory() as folder:
            r = subprocess.run([os.path.join(BIN, "shunt-import"), "package", "--beside", "--onnx",
                                self.path(tag + ".onnx"), "--dir", folder],
                               capture_output=True, text=True, timeout=self.limit, check=True)
        said, mine = json.loads(r.stdout), self.case["train"]["params"]  # of these it is right
        held = said.get("training_note", "").partition("held fixed are ")[2].partition(" because")[0].split(", ")
        more = [p for p in said.get("training_note", "").split("; ")
                if p.startswith("places ") or any(what in p for what in TOLD)]
        held = [n for n in held if n in mine or n.startswith(("onnx::", "slice"))]
        return " ".join([n for n in said.get("training_assumes") or [] if n not in mine] + held + more)

    def line(self, tag):
        """One exporter: a row of results."""
        if tag + "-one" in self.case["files"]:
            return self.default_line(tag)
        row = {"name": self.case["name"], "exporter": tag, "on": self.on}
        first = tag if tag in self.case["files"] else tag + "-open"
        error_, why = self.blamed(first, "same", *self.infer(first, "same"))
        row.update(loads=why is None, error=error_, reason=why, own=self.case["feeds"]["same"]["own_error"])
        bound = max(self.bound, 3 * row["own"])
        row["right"] = error_ is not None and error_ <= bound
        open_file = self.case["files"].get(tag + "-open")
        for feed in ("batch", "length"):
            if open_file and feed in self.case["feeds"]:
                if feed == "length" and "length" in open_file:
                    e, why = None, "export: " + open_file["length"]
                else:
                    e, why = self.blamed(tag + "-open", feed, *self.infer(tag + "-open", feed))
                row[feed], row[feed + "_reason"] = e, why
                row[feed + "_right"] = e is not None and e <= bound
        return self.with_training(row)

    def with_training(self, row):
        fault = not row["loads"] and row["reason"].startswith("export")
        row["trains"], row["train_note"] = ("-", None) if fault else self.trains(row["exporter"])
        return row

    def default_line(self, tag):
        """Of a file with fixed sizes ONNX Runtime is asked sample by sample."""
        feeds = list(self.case["feeds"])
        error_, why = self.blamed(tag + "-one", feeds[0], *self.infer(tag + "-one", feeds[0]))
        own = max(f["own_error"] for f in self.case["feeds"].values())
        bound = max(self.bound, 3 * own)
        row = {"name": self.case["name"], "exporter": tag, "on": self.on, "loads": why is None,
               "error": error_, "reason": why, "own": own, "right": error_ is not None and error_ <= bound}
        tried = []
        if not (why or "").startswith("export"):
            tried = [self.blamed(tag + "-one", feed, *self.infer(tag + "-one", feed)) for feed in feeds[1:]]
        if tried:
            row["batch_reason"] = next((w for _, w in tried if w), None)
            row["batch"] = None if row["batch_reason"] else max(e for e, _ in tried)
            row["batch_right"] = row["batch"] is not None and row["batch"] <= bound
        return self.with_training(row)


def number(row, key):
    if key not in row:
        return "-"
    if row[key] is None:
        return "export" if (row.get(key + "_reason") or "").startswith("export") else "no"
    good = row["right"] if key == "error" else row[key + "_right"]
    return "%.1e" % row[key] + ("" if good else " WRONG")


def text(row):
    out = "%-26s %s %-9s %-5s error %-8s batch %-8s length %-8s trains %s" % (
        row["name"], row["exporter"], row["on"], "loads" if row["loads"] else "no", number(row, "error") if row["loads"] else "-",
        number(row, "batch"), number(row, "length"), row["trains"])
    out += " " + row["train_note"] if row["train_note"] else ""
    for key in ("reason", "batch_reason", "length_reason"):
        if row.get(key) and row.get(key) != row.get("reason" if key != "reason" else ""):
            out += "\n      %s: %s" % (key.replace("_reason", ""), row[key])
    return out


def results_path(args, name, on):
    return os.path.join(args.folder, name, "results-%s.json" % on.replace(":", "-"))


def one(name, args):
    """In a process of its own."""
    folder = os.path.join(args.folder, name)
    os.makedirs(folder, exist_ok=True)
    for on in args.on:
        if os.path.exists(results_path(args, name, on)):
            os.remove(results_path(args, name, on))
    if args.again or not os.path.exists(os.path.join(folder, "case.json")):
        Export(name, folder, args).run()
    rows = []
    for on in args.on:
        check = Check(folder, args.limit, on, lambda: Export(name, folder, args))
        rows += [check.line(tag) for tag in ("new", "old")]
        with open(results_path(args, name, on), "w", encoding="utf-8") as f:
            json.dump(rows[-2:], f)
    return rows


def child(name, args):
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    quiet = os.open(os.path.join(args.folder, name + ".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        said = os.fdopen(os.dup(1), "w")
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        print("\n".join(map(text, one(name, args))), file=said, flush=True)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        print("%-26s could not be made: %s" % (name, first_line(sys.exc_info()[1])), file=said, flush=True)
        os._exit(1)


def run_all(names, args):
    """At most args.jobs at a time, each under a limit."""
    todo, running, end = list(names), {}, time.monotonic() + args.within
    while todo or running:
        if todo and time.monotonic() > end:
            print("not begun within %d s: %s" % (args.within, " ".join(todo)), flush=True)
            todo = []
        while todo and len(running) < args.jobs:
            name = todo.pop(0)
            running[child(name, args)] = (name, time.monotonic())
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid:
            running.pop(pid, None)
            continue
        for p, (name, since) in running.items():
            if time.monotonic() - since > 3 * args.limit:
                print("%-26s no end after %d s" % (name, 3 * args.limit), flush=True)
                os.killpg(p, signal.SIGKILL)
                running[p] = (name, float("inf"))
        time.sleep(0.1)


def total(rows):
    mine = [r for r in rows if not (r["reason"] or "").startswith("export")]
    said = ["%d exported (%d not)" % (len(mine), len(rows) - len(mine)), "%d load" % sum(r["loads"] for r in mine),
            "%d right" % sum(r["right"] for r in mine)]
    for key in ("batch", "length"):
        some = [r for r in mine if key in r and not (r[key + "_reason"] or "").startswith("export")]
        said.append("%s %d of %d" % (key, sum(r[key + "_right"] for r in some), len(some)))
    tried = [r for r in mine if r["trains"] != "-"]
    said.append("trains %d of %d" % (sum(r["trains"] == "ok" for r in tried), len(tried)))
    for what in ("told", "WRONG"):
        said.append("%s %d" % (what, sum(r["trains"] == what for r in tried)))
    return ", ".join(said)


def totals(names, args):
    rows, lost = [], []
    for name in names:
        try:
            for on in args.on:
                with open(results_path(args, name, on), encoding="utf-8") as f:
                    rows += json.load(f)
        except FileNotFoundError:
            lost.append(name)
    for tag in ("new", "old"):
        for on in args.on:
            print("%s %s: %s" % (tag, on, total([r for r in rows if r["exporter"] == tag and r["on"] == on])))
    if lost:
        print("could not be made: " + " ".join(lost))
    return all(r["right"] for r in rows if not (r["reason"] or "").startswith("export")) and (args.draw or not lost)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--folder", default=os.path.join(HERE, "..", "..", "build", "sweep"))
    p.add_argument("--again", action="store_true")
    p.add_argument("--short", action="store_true")
    p.add_argument("--default", action="store_true")
    p.add_argument("--kept", action="store_true")
    p.add_argument("--on", default="cpu:fp32", help="DEVICE:PRECISION, several with commas between")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--limit", type=int, default=200, help="seconds for a run; three times that for a case")
    p.add_argument("--within", type=int, default=10**6, help="seconds after which none is begun")
    p.add_argument("--freeze", default="", metavar="PATTERN,...")
    p.add_argument("--draw", type=int, metavar="N")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--totals", action="store_true", help="only of what is in FOLDER")
    args = p.parse_args()
    args.on = args.on.split(",")
    if any(on.partition(":")[2] not in BOUNDS for on in args.on):
        p.error("--on is DEVICE:PRECISION, of " + " ".join(BOUNDS))
    args.folder = os.path.abspath(os.path.join(args.folder, "kept" if args.kept else "default" if args.default else ""))
    os.makedirs(args.folder, exist_ok=True)
    names = args.names
    if args.draw:
        import arch_any
        names = arch_any.draw(args.draw, args.seed)
        print("drawn: " + " ".join(names), flush=True)
    if any("*" in n for n in names):
        import architectures
        names = [n for p in names for n in (fnmatch.filter(architectures.ALL, p) if "*" in p else [p])]
    if not names:
        import architectures
        names = list(architectures.ALL) + ["%s-%s" % (k, h) for k, v in architectures.HALF.items() for h in v]
    warnings.filterwarnings("ignore")
    if not args.totals:
        if args.again or any(not os.path.exists(os.path.join(args.folder, n, "case.json")) for n in names):
            import architectures  # noqa: F401  once for all children
            import onnxscript  # noqa: F401
            import timm  # noqa: F401
            import torch
            import torchvision  # noqa: F401
            import transformers  # noqa: F401
            torch.set_num_threads(1)
        run_all(names, args)
    sys.exit(0 if totals(names, args) else 1)


if __name__ == "__main__":
    main()
