#!/usr/bin/env python3
"""ONNX's own node tests through shunt-run: each a model of one operator (or of the operators that define
it), inputs, and what has to come out.

Without it: an operator could be read otherwise than the standard means it. The golden models use few
operators, each in the way of one exporter.

Each test is one of four:
  right            the outputs have the types and shapes of the test, and its numbers within 1e-3, or
                   1e-6 of the largest: what sums cancel to is not 0 in FP32
  wrong            they have not; or the process died
  refused          the product says why, and docs/operators.md has a row with the operator and this
                   reason; it is wrong where there is none
  not applicable   the test is about something that the product has not by decision: operators that
                   operator sets above OPSET have brought or changed, or of other domains (training,
                   machine learning), inputs and outputs that are no tensors
                   (sequences, optionals, maps), elements that are no numbers of the inference protocol
                   (strings, complex, floats of 8 bits and less, integers of 4 bits and less), FP64
                   outside of the range of FP32, in which it is computed, and operators whose result is
                   random

It fails when one is wrong, or when fewer than SHARE of those that apply are right. The models are those
of the package "onnx" of tests/requirements.txt. A model of a newer operator set whose operators take no more
than other types of elements since then is tried as one of OPSET.

Usage: test_node_tests.py [-v] [PATTERN ...]   PATTERN: part of a test's name, or of a reason; shows each
DEVICE names another device than cpu.
"""
import collections
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402

PAGE = os.path.join(HERE, "..", "..", "docs", "operators.md")
BIN = os.environ.get("SHUNT_BIN") or os.path.join(HERE, "..", "..", "build", "bin")
DEVICE = os.environ.get("DEVICE") or "cpu"
OPSET = 23
SHARE = 0.965
RTOL, ATOL = 1e-3, 1e-7  # of ONNX's own runner
ATOL_RANGE = 1e-6  # of the largest number
RTOL_BF16 = 2 ** -7  # one step: the package rounds the numbers of some tests and cuts those of others
PART = 100  # tests in one process
LIMIT_S = 300  # for them, against hanging
FOLDERS = ("node", "simple", "pytorch-operator", "pytorch-converted")
STANDARD = ("", "ai.onnx")
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
          "Bernoulli")
TYPES = {TensorProto.FLOAT: "F32", TensorProto.DOUBLE: "F64", TensorProto.FLOAT16: "F16",
         TensorProto.BFLOAT16: "BF16", TensorProto.INT8: "I8", TensorProto.INT16: "I16",
         TensorProto.INT32: "I32", TensorProto.INT64: "I64", TensorProto.UINT8: "U8",
         TensorProto.UINT16: "U16", TensorProto.UINT32: "U32", TensorProto.UINT64: "U64",
         TensorProto.BOOL: "BOOL"}
NUMPY = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I8": "i1", "I16": "<i2",
         "I32": "<i4", "I64": "<i8", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8",
         "BOOL": "?"}


class NotApplicable(Exception):
    pass


def bf16_to_f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Tensor:
    """kind: safetensors' name of the type; array: as stored (BF16: its bits)."""

    def __init__(self, kind, array):
        self.kind, self.array = kind, array

    def numbers(self):
        return bf16_to_f32(self.array) if self.kind == "BF16" else self.array


def read_tensor(path, declared):
    """declared: the type that the model gives it; the package has some BF16 as bare U16."""
    with open(path, "rb") as f:
        proto = onnx.TensorProto.FromString(f.read())
    if (proto.data_type, declared) == (TensorProto.UINT16, TensorProto.BFLOAT16):
        return Tensor("BF16", numpy_helper.to_array(proto))
    if proto.data_type not in TYPES:
        raise NotApplicable("elements of type " + TensorProto.DataType.Name(proto.data_type).lower())
    kind = TYPES[proto.data_type]
    array = numpy_helper.to_array(proto)
    if kind == "BF16":
        array = (array if array.dtype == np.float32 else
                 array.view(np.uint16)).reshape(array.shape)
        if array.dtype == np.float32:
            array = (array.view(np.uint32) >> 16).astype(np.uint16)
    return Tensor(kind, np.asarray(array, dtype=NUMPY[kind], order="C"))


def check_range(t):
    """Some tests were made of memory that nobody had filled."""
    if t.kind == "F64":
        a = np.abs(t.array[np.isfinite(t.array)])
        if np.any(a > np.finfo(np.float32).max) or np.any((a > 0) & (a < np.finfo(np.float32).tiny)):
            raise NotApplicable("numbers that FP32 has not")


def write_st(path, tensors):
    head, at = {}, 0
    for name, t in tensors.items():
        head[name] = {"dtype": t.kind, "shape": list(t.array.shape),
                      "data_offsets": [at, at + t.array.nbytes]}
        at += t.array.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(t.array.tobytes())


def read_st(path):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    out = {}
    for name, t in head.items():
        a, b = (8 + n + x for x in t["data_offsets"])
        out[name] = Tensor(t["dtype"], np.frombuffer(data[a:b], NUMPY[t["dtype"]])
                           .reshape(t["shape"]))
    return out


def nodes_of(graph):
    for n in graph.node:
        yield n
        for a in n.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from nodes_of(g)


def is_older(node, version):
    """The operator of OPSET is that of `version`, but for types."""
    try:
        a, b = (onnx.defs.get_schema(node.op_type, v) for v in (OPSET, version))
    except onnx.defs.SchemaError:
        return False
    return node.op_type != "Attention" and set(a.attributes) == set(b.attributes) and \
        (len(a.inputs), len(a.outputs)) == (len(b.inputs), len(b.outputs))


def check_applies(model):
    """True: it had to be changed."""
    changed = False
    for o in model.opset_import:
        if o.domain not in STANDARD:
            raise NotApplicable("operators of the domain " + o.domain)
        if o.version > OPSET:
            if not all(is_older(n, o.version) for n in nodes_of(model.graph)) or model.functions:
                raise NotApplicable("an opset above %d" % OPSET)
            o.version, changed = OPSET, True
    for v in list(model.graph.input) + list(model.graph.output):
        if v.type.WhichOneof("value") != "tensor_type":
            raise NotApplicable("a value that is no tensor")
        if v.type.tensor_type.elem_type not in TYPES:
            raise NotApplicable("elements of type " +
                                TensorProto.DataType.Name(v.type.tensor_type.elem_type).lower())
    nodes = list(nodes_of(model.graph)) + [n for f in model.functions for n in f.node]
    for n in nodes:
        if n.op_type in RANDOM:
            raise NotApplicable("random results")
        if n.op_type == "Dropout" and len(n.input) > 2 and n.input[2]:
            raise NotApplicable("random results")
    return changed


class Page:
    """docs/operators.md: what runs, and why not."""
    SOME_NODES = re.compile(r"\d+ of \d+ nodes are not supported, the first is (\S+) \S+: (.*)")
    ONE_NODE = re.compile(r"(\w+) node .*?: (.*)")

    def __init__(self):
        self.never, self.forms = {}, []
        with open(PAGE, encoding="utf-8") as f:
            for line in f:
                row = [c.strip() for c in line.strip().strip("|").split("|")]
                if len(row) == 5 and row[2] == "no":
                    self.never[row[0]] = row[4]
                elif len(row) == 2:
                    parts = [re.escape(p) for p in row[1].split("…")]
                    self.forms.append((row[0], re.compile(".*".join(parts))))

    def has(self, error):
        m = self.SOME_NODES.fullmatch(error) or self.ONE_NODE.fullmatch(error)
        op, why = m.groups() if m else ("the model", error)
        if why in ("the operator is not supported", self.never.get(op)):
            return bool(self.never.get(op))
        return any(row in (op, "any") and form.fullmatch(why) for row, form in self.forms)


class Test:
    """One data set of one model."""

    def __init__(self, folder, data, at):
        self.name = os.path.basename(folder) + ("" if data.endswith("_0") else data[-2:])
        self.model = os.path.join(folder, "model.onnx")
        self.data, self.at = data, at
        self.verdict = self.why = None

    def files(self, what):
        n = len(glob.glob(os.path.join(self.data, what + "_*.pb")))
        return [os.path.join(self.data, "%s_%d.pb" % (what, i)) for i in range(n)]

    def prepare(self):
        """Writes the inputs; False: the test does not apply."""
        try:
            model = onnx.load(self.model, load_external_data=False)
            if check_applies(model):
                self.model = self.at + ".onnx"
                onnx.save(model, self.model)
            given = {t.name for t in model.graph.initializer}
            names = [v.name for v in model.graph.input if v.name not in given]
            paths = self.files("input")
            if len(paths) != len(names):  # weights listed as inputs have values of their own
                names = [v.name for v in model.graph.input][:len(paths)]
            types = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
            given = {n: read_tensor(p, types[n]) for n, p in zip(names, paths)}
            for t in given.values():
                check_range(t)
            write_st(self.at + ".in", given)
            self.want = {v.name: read_tensor(p, v.type.tensor_type.elem_type)
                         for v, p in zip(model.graph.output, self.files("output"))}
            return True
        except NotApplicable as e:
            self.verdict, self.why = "not applicable", str(e)
            return False

    def line(self):
        return json.dumps({"model": self.model, "inputs": self.at + ".in",
                           "outputs": self.at + ".out"}) + "\n"

    def judge(self, answer, page):
        if answer is None:
            self.verdict, self.why = "wrong", "the process died"
        elif answer["ok"]:
            self.why = self.difference(read_st(self.at + ".out"))
            self.verdict = "wrong" if self.why else "right"
        else:
            self.verdict, self.why = "refused", answer["code"] + ": " + answer["error"]
            if not page.has(answer["error"]):
                self.verdict, self.why = "wrong", "not in docs/operators.md: " + self.why

    def difference(self, got):
        for name, want in self.want.items():
            if name not in got:
                return "there is no output %s" % name
            g = got[name]
            if g.kind != want.kind or g.array.shape != want.array.shape:
                return "%s is %s%s, should be %s%s" % (name, g.kind, list(g.array.shape),
                                                       want.kind, list(want.array.shape))
            a, b = g.numbers(), want.numbers()
            if a.size and not np.allclose(a.astype(np.float64) if a.dtype.kind == "f" else a,
                                          b.astype(np.float64) if b.dtype.kind == "f" else b,
                                          rtol=RTOL_BF16 if want.kind == "BF16" else RTOL, atol=tolerance(b),
                                          equal_nan=a.dtype.kind == "f"):
                return "%s is %s, should be %s" % (name, short(a), short(b))
        return None


def tolerance(want):
    if want.dtype.kind != "f":
        return ATOL
    finite = want[np.isfinite(want)].astype(np.float64)
    return max(ATOL, ATOL_RANGE * np.abs(finite).max(initial=0.0))


def short(a):
    return np.array2string(a.reshape(-1)[:6], separator=",", max_line_width=400) + \
        ("..." if a.size > 6 else "")


def run_part(tests, folder, page):
    """All of them, although one may end the process: the next one goes on behind it."""
    while tests:
        path = os.path.join(folder, os.path.basename(tests[0].at) + ".list")
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(t.line() for t in tests)
        run = subprocess.run([os.path.join(BIN, "shunt-run"), "infer", "--list", path, "--threads",
                              "1", "--device", DEVICE], stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
        answers = [json.loads(a) for a in run.stdout.splitlines() if a.endswith("}")]
        for t, a in zip(tests, answers):
            t.judge(a, page)
        tests = tests[len(answers):]
        if tests:
            tests[0].judge(None, page)
            tests = tests[1:]


def find_tests(folder):
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    n = 0
    for kind in FOLDERS:
        for d in sorted(glob.glob(os.path.join(data, kind, "*", ""))):
            for s in sorted(glob.glob(os.path.join(d, "test_data_set_*"))):
                n += 1
                yield Test(d.rstrip("/"), s, os.path.join(folder, "t%d" % n))


def report(tests, verbose):
    by = collections.Counter(t.verdict for t in tests)
    for t in tests:
        if verbose or t.verdict == "wrong":
            print("%-14s %s%s" % (t.verdict, t.name, ": " + t.why if t.why else ""))
    apply = len(tests) - by["not applicable"]
    share = by["right"] / apply if apply else 1.0
    print("onnx %s, %s: %d right, %d wrong, %d refused; %d not applicable; %.1f %% of %d right" %
          (onnx.__version__, DEVICE, by["right"], by["wrong"], by["refused"], by["not applicable"],
           100 * share, apply))
    return by["wrong"], share


def main():
    patterns = [a for a in sys.argv[1:] if a != "-v"]
    page = Page()
    folder = tempfile.mkdtemp(prefix="shunt-nodes.")
    try:
        tests = list(find_tests(folder))
        # Whole tests by name; reasons are known only afterwards.
        named = [t for t in tests if any(p in t.name for p in patterns)]
        tests = named or tests
        todo = [t for t in tests if t.prepare()]
        parts = [todo[i:i + PART] for i in range(0, len(todo), PART)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda p: run_part(p, folder, page), parts))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if patterns and not named:
        tests = [t for t in tests if any(p in (t.why or "") for p in patterns)]
    wrong, share = report(tests, "-v" in sys.argv or bool(patterns))
    if wrong:
        sys.exit("%d node tests are wrong" % wrong)
    if not patterns and share < SHARE:
        sys.exit("the share that is right fell below %.1f %%" % (100 * SHARE))


if __name__ == "__main__":
    main()
