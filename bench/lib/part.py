"""What the parts of ../gpu/ share: options, programs, models, inputs, the JSON object they print.

A part measures one thing with the programs that are shipped. bench/gpu.sh starts it with these
options and merges what it prints (rows.py). It may also print "checks": [{"check", "ok", ...}].
"""
import argparse
import array
import json
import os
import random
import signal
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("SHUNT_BIN", os.path.join(ROOT, "build", "bin"))
MODELS = ("resnet152", "inception-v3", "bert-base")
SIZE = {"resnet152": 224, "inception-v3": 299, "resnet18": 224, "resnet50": 224}
CLASSES = {"bert-base": 2}
TOKENS, VOCABULARY = 128, 30000


def options(doc, precisions="tf32,fp16", batch=8, runs=100, seconds=5):
    """The options that every part takes, with this part's defaults."""
    def listed(text):
        return text.split(",")
    p = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    p.add_argument("--work", default=".", help="folder for models and inputs, shared by the parts")
    p.add_argument("--only", type=listed, help="some of what the part does, with commas")
    p.add_argument("--device", default="cuda")
    p.add_argument("--models", type=listed, default=list(MODELS), help="of shunt-zoo, with commas")
    p.add_argument("--precisions", type=listed, default=precisions and listed(precisions))
    p.add_argument("--batch", type=int, default=batch)
    p.add_argument("--runs", type=int, default=runs, help="timed runs of each case")
    p.add_argument("--seconds", type=float, default=seconds, help="of each load")
    return p


def program(name, *args, limit_s=600):
    """Its output; RuntimeError with what it says if it fails."""
    r = subprocess.run([os.path.join(BIN, name), *map(str, args)], capture_output=True, text=True,
                       timeout=limit_s)
    if r.returncode:
        raise RuntimeError("%s %s: %s" % (name, args[0], r.stderr.strip()))
    return r.stdout


def made_once(path, make):
    if not os.path.exists(path):
        make(path + ".new")
        os.rename(path + ".new", path)
    return path


def model(args, name, form="inference"):
    """The ONNX file of a standard architecture."""
    path = os.path.join(args.work, "%s-%s.onnx" % (name, form))
    return made_once(path, lambda to: program("shunt-zoo", name, "--form", form, "--out", to))


def write_tensors(path, tensors):
    """tensors: {name: (safetensors dtype, shape, bytes)}"""
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def inputs(args, name, batch):
    """A safetensors file with random inputs of a model of shunt-zoo, and labels."""
    def make(to):
        rng = random.Random(1)
        labels = array.array("q", (rng.randrange(CLASSES.get(name, 1000)) for _ in range(batch)))
        t = {"label": ("I64", [batch], labels.tobytes())}
        if name in SIZE:
            shape = [batch, 3, SIZE[name], SIZE[name]]
            few = array.array("f", (rng.gauss(0, 1) for _ in range(99991))).tobytes()
            n = 4 * batch * 3 * SIZE[name] ** 2
            t["x"] = ("F32", shape, (few * (n // len(few) + 1))[:n])
        else:
            ids = array.array("q", (rng.randrange(VOCABULARY) for _ in range(batch * TOKENS)))
            t["input_ids"] = ("I64", [batch, TOKENS], ids.tobytes())
            t["attention_mask"] = ("I64", [batch, TOKENS],
                                   array.array("q", [1] * batch * TOKENS).tobytes())
        write_tensors(to, t)
    return made_once(os.path.join(args.work, "%s-%d.safetensors" % (name, batch)), make)


def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the report
    raise SystemExit(143)


def collect(args, work):
    """Measures one thing after the other; prints what came of it, also when told to stop. work:
    (what, by, case, function that gives rows) each."""
    from rows import failed
    rows = []
    signal.signal(signal.SIGTERM, stop)
    try:
        for what, by, case, f in work:
            print("  ", what, by, *case.values(), file=sys.stderr, flush=True)
            try:
                rows += f()
            except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as e:
                rows.append(failed(what, by, case, e))
    finally:
        print(json.dumps({"settings": vars(args), "rows": rows}), flush=True)
    return 1 if any("error" in r for r in rows) else 0
