#!/usr/bin/env python3
"""Mutated models into programs that were built with sanitizers: each is taken or refused, in bounded
time and memory, and none gets at a file that it may not name.

Without it: a file that somebody uploads could end a process that others use, or read what is theirs.

The seeds are ONNX's node tests (nearly every operator), the models of tests/, and those that are
named.

Usage: make fuzz [COUNT=5000] [SEED=1]
       mutations.py [--count N] [--first I] [--seed S] [--keep DIR] [FILE.onnx ...]
SHUNT_BIN: where the programs are. --keep: what was found, one file each and a text beside it.
"""
import glob
import io
import json
import math
import os
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from google.protobuf.message import DecodeError  # noqa: E402
import cases  # noqa: E402
import mutate  # noqa: E402
from cases import ROOT, Finding  # noqa: E402
from safetensors_bytes import read_st  # noqa: E402

OPSET = 23               # the last that is read
MAX_INPUT = 65536        # elements
MAX_SEED = 300000        # bytes
# Whose files can ask for the most, or whose numbers can be the oddest.
HARD = {"Loop", "Scan", "If", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv",
        "QLinearMatMul", "MatMulInteger", "ConvInteger", "Resize", "Pad", "Range", "Tile", "Expand", "ConstantOfShape",
        "NonMaxSuppression", "SequenceAt", "OneHot", "TopK"}
HARD_SHARE = 0.3
LEARNING_SHARE = 0.5     # of those that are made to learn
TRAINED = 0.6            # of those that run
BUCKETS = ([4, 8], [2], [64, 128, 512], [1048576], [8, 4], [], [0], [-1], [2 ** 40], list(range(2, 18)), list(range(2, 40)))
SECRET = b"what nobody has named."
DTYPES = {1: ("F32", "<f4"), 2: ("U8", "u1"), 3: ("I8", "i1"), 4: ("U16", "<u2"), 5: ("I16", "<i2"),
          6: ("I32", "<i4"), 7: ("I64", "<i8"), 9: ("BOOL", "?"), 10: ("F16", "<f2"),
          11: ("F64", "<f8"), 12: ("U32", "<u4"), 13: ("U64", "<u8"), 16: ("BF16", "<u2")}


def seeds(paths):
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    found = sorted(glob.glob(os.path.join(data, "node", "*", "model.onnx")) +
                   glob.glob(os.path.join(data, "simple", "*", "model.onnx")) +
                   glob.glob(os.path.join(ROOT, "tests", "golden", "**", "*.onnx"), recursive=True))
    models = []
    for p in [*found, *paths]:
        with open(p, "rb") as f:
            text = f.read(MAX_SEED + 1)
        if len(text) <= MAX_SEED or p in paths:
            model = onnx.ModelProto.FromString(text)
            for o in model.opset_import:
                o.version = min(o.version, OPSET)  # else nothing but this would be looked at
            models.append(model)
    return models


# ------------------------------------------------------------------ one case

def array(v, r):
    """Numbers for an input; None: too many, or of a type that is none."""
    t = v.type.tensor_type
    dims = [d.dim_value if d.WhichOneof("value") == "dim_value" else 2 for d in t.shape.dim]
    if t.elem_type not in DTYPES or any(d < 0 for d in dims) or math.prod(dims) > MAX_INPUT:
        return None
    kind, code = DTYPES[t.elem_type]
    rng = np.random.default_rng(r.randrange(2 ** 32))
    n = math.prod(dims)
    if kind in ("F32", "F16", "F64"):
        a = rng.standard_normal(n)
        if n and r.random() < 0.2:
            a[r.randrange(n)] = r.choice(mutate.SPECIALS)
        a = np.clip(a, -6e4, 6e4) if kind == "F16" else a
    else:
        a = rng.integers(0, 4, n)
        if n and r.random() < 0.3 and kind in ("I32", "I64"):
            a[r.randrange(n)] = r.choice((-1, -5, 2 ** 31 - 1, -2 ** 31))
    with np.errstate(all="ignore"):
        return kind, dims, a.astype(code).tobytes()


def write_inputs(path, model, r):
    given, head, body, at = {t.name for t in model.graph.initializer}, {}, [], 0
    for v in model.graph.input:
        a = array(v, r) if v.name not in given else None
        if a and v.name not in head:
            head[v.name] = {"dtype": a[0], "shape": a[1], "data_offsets": [at, at + len(a[2])]}
            body.append(a[2])
            at += len(a[2])
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(body))


def as_tar(data, r):
    """The packed form, with members that do not belong into it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=r.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT,
                                                              tarfile.USTAR_FORMAT))) as t:
        for name, body in (("m.onnx", data), ("data.bin", bytes(64))):
            if r.random() < 0.9:
                m = tarfile.TarInfo(r.choice((name, name, name, "../" + name, "/" + name, "./" + name)))
                m.size = len(body)
                t.addfile(m, io.BytesIO(body))
        if r.random() < 0.4:
            m = tarfile.TarInfo(r.choice(("data.bin", "link.bin", "m.onnx")))
            m.type = r.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE,
                               tarfile.CHRTYPE))
            m.linkname = "../secret.bin"
            t.addfile(m)
    text = out.getvalue()
    return mutate.of_bytes(text, r) if r.random() < 0.5 else text


class Case(cases.Case):
    def __init__(self, number, seed, folder, models, hard):
        super().__init__(number, seed, folder)
        self.models, self.hard = models, hard

    def make(self):
        """The files of its folder."""
        r, model = self.r, onnx.ModelProto()
        model.CopyFrom(r.choice(self.hard if r.random() < HARD_SHARE else self.models))
        changes = [r.choice(mutate.ALL) for _ in range(r.choice((1, 1, 1, 2, 2, 3, 5)))]
        if r.random() < LEARNING_SHARE:
            changes = [mutate.learns, *changes[r.choice((1, 1, 2)):]]
        for f in changes:
            try:
                f(model, r, self.models)
                self.what.append(f.__name__)
            except (mutate.Nothing, ValueError, TypeError, RecursionError, DecodeError):
                pass  # the next one
        os.makedirs(os.path.join(self.at, "in", "sub"))
        os.mkdir(os.path.join(self.at, "package"))
        self.secret = os.path.join(self.at, "secret.bin")
        with open(self.secret, "wb") as f:
            f.write(SECRET * 10)
        with open(self.file("data.bin"), "wb") as f:
            f.write(bytes(64))
        os.symlink("../secret.bin", self.file("link.bin"))
        os.mkfifo(self.file("pipe"))
        for t in mutate.tensors(model):
            for e in t.external_data:
                e.value = e.value.replace("SECRET", self.secret)
        write_inputs(self.file("x.st"), model, r)
        data = model.SerializeToString()
        if r.random() < 0.15:
            data, self.what = mutate.of_bytes(data, r), [*self.what, "bytes"]
        if r.random() < 0.1:
            data, self.what = as_tar(data, r), [*self.what, "tar"]
        self.model = self.file("m.onnx")
        with open(self.model, "wb") as f:
            f.write(data)

    def file(self, name):
        return os.path.join(self.at, "in", name)

    def kept(self):
        return {"onnx": self.model, "st": self.file("x.st")}

    def package(self):
        """What shunt-import says of it."""
        beside = ["--beside"] if self.r.random() < 0.5 else []
        training = ["--training"] if self.r.random() < 0.3 else []
        buckets = ["--buckets", json.dumps({self.r.choice(("length", "batch", "width")): self.r.choice(BUCKETS)})] \
            if "open_sizes" in self.what and self.r.random() < 0.7 else []
        rc, said = self.program("shunt-import", "package", *buckets, "--onnx", self.model, "--dir",
                                os.path.join(self.at, "package"), *beside, *training,
                                leaks=False)  # its sandbox hides what looking for them takes
        reply = json.loads(said)  # ValueError: a finding of its own
        for path in glob.glob(os.path.join(self.at, "package", "*")):
            with open(path, "rb") as f:
                if SECRET in f.read() and not path.endswith("model.onnx"):
                    raise Finding("%s has what is in a file that it may not name" % path)
        return reply

    def train(self):
        """Steps that bring an output nearer to what it is already, and the file with what was learned. False: it cannot."""
        names = [k for k, v in read_st(self.file("y.st")).items() if v[0] == "F32"]
        if not names:
            return False
        name = self.r.choice(names)
        with open(self.file("spec.json"), "w", encoding="utf-8") as f:
            json.dump({"loss": {"name": self.r.choice(("mse", "mse", "l1", "huber", "binary-cross-entropy")), "output": name},
                       "labels": name, "accumulate": self.r.choice((1, 2)), "clip_norm": self.r.choice((0, 1))}, f)
        rc, _ = self.program("shunt-run", "train", "--model", self.model, "--inputs", self.file("x.st"), "--labels",
                             self.file("y.st") + ":" + name, "--spec", self.file("spec.json"), "--steps", "2", "--lr", "1e-3",
                             "--optimizer", self.r.choice(("sgd", "adam")), "--state", self.file("state.st"), "--threads", "1")
        if rc == 0:
            self.program("shunt-import", "export", "--onnx", self.model, "--state", self.file("state.st"), "--out",
                         self.file("trained.onnx"), leaks=False)
        return rc == 0

    def run(self):
        reply = self.package()
        rc, _ = self.program("shunt-run", "infer", "--model", self.model, "--inputs", self.file("x.st"),
                             "--outputs", self.file("y.st"), "--threads", "1")
        if rc == 0 and self.r.random() < TRAINED and self.train():
            return "trained"
        return "run" if rc == 0 else "taken and not run on these inputs" if not reply.get("code") else "refused"


def start(options):
    models = seeds(options.files)
    hard = [m for m in models if HARD & {n.op_type for n in m.graph.node}]
    return lambda number, seed, folder: Case(number, seed, folder, models, hard)


def main():
    p = cases.options_of(__doc__, 5000)
    p.add_argument("files", nargs="*")
    return cases.main(p.parse_args(), start, ("trained", "run", "taken and not run on these inputs", "refused"))


if __name__ == "__main__":
    sys.exit(main())
