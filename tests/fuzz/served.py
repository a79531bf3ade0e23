#!/usr/bin/env python3
"""Mutated requests, training specs, datasets and packed models to a whole system that was built with sanitizers:
each is taken or refused with a reason, in bounded time, and no process ends of it.

Without it: a size in a request, a number in a spec, a place in a data file or a scale of a quantised model could
end what others use too, or keep it busy for ever.

Usage: served.py [--count N] [--first I] [--seed S] [--keep DIR]        SHUNT_BIN: where the programs are
"""
import contextlib
import copy
import glob
import http.client
import json
import math
import os
import random
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import cases  # noqa: E402
import packages  # noqa: E402
packages.enter(__file__)
os.environ["SHUNT_BIN"] = cases.BIN  # before system.py looks
os.environ.update(cases.ENV, ASAN_OPTIONS=cases.ASAN + ":detect_leaks=0")  # daemons are killed, or hide what that takes
import datafiles  # noqa: E402
import mutate  # noqa: E402
import onnx_bytes as onnx  # noqa: E402
import test_shapes  # noqa: E402
from cases import Finding  # noqa: E402
from system import FINAL, System, st_bytes, until  # noqa: E402

SIZES = (0, -1, 1, 2, 3, 5, 64, 89, 90, 91, 1000, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 62, 2 ** 63 - 1, 2 ** 63, 2 ** 64,
         -2 ** 63, 1.5, "2", None, True, [2], 1e300)
ODD = (0, -1, 1, 2, 0.5, -0.5, 1e-320, 1e9, 1e300, 2 ** 31, 2 ** 53, 2 ** 63 - 1, 2 ** 63, -2 ** 63, "", "x", "sgd", "a" * 70000,
       "\u00e9", None, True, False, [], {}, [[]], {"name": "x"}, [1, 2], [0.0] * 5000, "*", "[", "label", "\0")
NUMBERS = (0, 1, 2, 3, 15, 16, 17, 100, 0.5, 1e-30, 1e-8, 0.999999, 10, 1e3, 1e6, 1e9, 65536, -1, 1e300)
TYPES = ("FP32", "INT64", "INT32", "FP64", "BOOL", "BYTES", "UINT8", "FP16", "", "fp32", 7, None)
RUN_S = 60     # in which a job that was taken ends, or is cancelled
SLOW_S = 2     # after which it is
MAX_NUMBERS = 20000  # of a request
SPEC = {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        "loss": {"name": "cross-entropy", "ignore_index": -1, "label_smoothing": 0.1, "class_weights": [1, 2, 0.5]},
        "schedule": {"name": "step", "every": 2, "gamma": 0.5, "warmup_steps": 1, "warmup_start": 0.1},
        "clip_norm": 1, "no_decay": True, "frozen": ["b"], "accumulate": 2, "ema": 0.9, "batch": 4, "steps": 6, "seed": 3,
        "labels": "label", "precision": "fp32", "shuffle": True, "shuffle_window": 4, "publish": False,
        "checkpoint_interval_ms": 1000, "evaluation": {"every": 2, "best": "accuracy", "patience": 2, "min_delta": 0.1}}
HEADS = [{"name": "cross-entropy", "output": "logits", "labels": "label"},
         {"name": "huber", "output": "box", "labels": "box", "weight": 0.3, "delta": 1},
         {"name": "mse", "output": "box", "labels": "box"}]
OTHERS = {"optimizer": ({"name": "adam", "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}, {"name": "adamw"}),
          "loss": ("cross-entropy", "mse", {"name": "huber", "delta": 1}, {"name": "binary-cross-entropy", "pos_weight": 2}),
          "schedule": ("constant", {"name": "one-cycle", "peak_at": 0.3}, {"name": "cosine", "end": 0.1}, "linear"),
          "augment": ([{"name": "normalise", "mean": 0.5, "std": 0.1}],), "precision": ("tf32", "bf16", "fp16"),
          "loss_scale": (0, 1024, {"init": 65536, "growth": 2, "backoff": 0.5, "interval": 2})}


def heads():
    """x [N,4] -> logits [N,3], box [N,2]."""
    return onnx.model(
        [onnx.node("Gemm", ["x", "w", "b"], ["logits"]), onnx.node("Gemm", ["x", "wb", "bb"], ["box"])],
        [onnx.value("x", ["N", 4])], [onnx.value("logits", ["N", 3]), onnx.value("box", ["N", 2])],
        [onnx.tensor("w", [4, 3], [0.1 * (i % 5 - 2) for i in range(12)]), onnx.tensor("b", [3], [0.0] * 3),
         onnx.tensor("wb", [4, 2], [0.1 * (i % 3 - 1) for i in range(8)]), onnx.tensor("bb", [2], [0.0] * 2)])


def odd(r):
    return copy.deepcopy(r.choice(ODD))


def quantised():
    """x [N,4] -> y [N,3], by uint8."""
    u8 = 2
    return onnx.model(
        [onnx.node("QuantizeLinear", ["x", "s", "z"], ["q"]), onnx.node("DequantizeLinear", ["q", "s", "z"], ["d"]),
         onnx.node("DequantizeLinear", ["w", "ws", "wz"], ["dw"]), onnx.node("MatMul", ["d", "dw"], ["y"])],
        [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
        [onnx.tensor("s", [], [0.05]), onnx.tensor("z", [], [], u8, b"\x80"), onnx.tensor("ws", [], [0.01]),
         onnx.tensor("wz", [], [], u8, b"\x07"), onnx.tensor("w", [4, 3], [], u8, bytes(range(100, 112)))])


def floats(r, n):
    return [r.choice(mutate.SPECIALS) if r.random() < 0.02 else r.uniform(-3, 3) for _ in range(n)]


# ------------------------------------------------------------------ requests

def right(model, r):
    """(name, datatype, shape, values) of the input of one request."""
    rows = r.choice((1, 1, 2, 3))
    if model in ("words", "masked"):
        length = r.randint(1, 12)
        return "ids", "INT64", [rows, length], [r.randrange(test_shapes.VOCAB) for _ in range(rows * length)]
    if model == "picture":
        h, w = r.randint(1, 12), r.randint(1, 12)
        return "x", "FP32", [rows, 1, h, w], floats(r, rows * h * w)
    return "x", "FP32", [rows, 4], floats(r, rows * 4)


def finite(values):
    """JSON has no other numbers."""
    return [v if not isinstance(v, float) or math.isfinite(v) else 0.0 for v in values]


def change(x, r):
    """Changes an input of a request."""
    way = r.randrange(10)
    if way < 4 and isinstance(x.get("shape"), list) and x["shape"]:
        for _ in range(r.choice((1, 1, 2))):
            x["shape"][r.randrange(len(x["shape"]))] = r.choice(SIZES)
    elif way == 4:
        x["shape"] = r.choice(([], [1], [1] * 9, [1] * 300, [2 ** 32, 2 ** 32], [-1, -1], None, 4, {}, [0, 0], [[1, 4]]))
    elif way == 5:
        x["datatype"] = r.choice(TYPES)
    elif way == 6:
        x["name"] = r.choice(("", "y", "x", "ids", "a" * 70000, None, 3, "\0"))
    elif way == 7 and isinstance(x.get("data"), list):  # an earlier change may have made something else of it
        x["data"] = r.choice(([], x["data"][:-1], x["data"] * 2, [x["data"]], "abc", None, {}, [None], [1e400], ["1"],
                              [[[[[[]]]]]], [2 ** 63], [1] * 100000))
    elif way == 8:
        x["parameters"] = r.choice(({"binary_data_size": r.choice(SIZES)}, {}, None, [], {"shared_memory_region": "r"},
                                    {"binary_data_size": 16, "shared_memory_offset": 2 ** 63}))
    else:
        x[r.choice(("shape", "data", "name", "datatype", "extra"))] = odd(r)


def fit(x, r):
    """Another shape, with as many numbers as it wants."""
    shape = [r.choice((0, 1, 2, 3, 4, 7, 63, 89, 90, 91, 500)) if r.random() < 0.5 else d for d in x["shape"]]
    if r.random() < 0.8:
        shape[0] = r.choice((1, 2, 3, 8))
    if math.prod(shape) > MAX_NUMBERS:
        return
    x["shape"], of_words = shape, x["datatype"] == "INT64"
    values = [r.choice((0, 1, 49, 50, -1, 2 ** 31, -2 ** 63)) if r.random() < 0.02 else r.randrange(50)
              for _ in range(math.prod(shape))] if of_words else floats(r, math.prod(shape))
    if "data" in x:
        x["data"] = finite(values)
    else:
        x["tail"] = struct.pack("<%d%s" % (len(values), "q" if of_words else "f"), *values)
        x["parameters"] = {"binary_data_size": len(x["tail"])}


def request(case, s):
    r = case.r
    model = r.choice(("linear", "words", "picture", "words", "picture", "quantised", "masked", "masked"))
    name, datatype, shape, values = right(model, r)
    x, tail, headers = {"name": name, "datatype": datatype, "shape": shape}, b"", {}
    binary = r.random() < 0.5
    if binary:
        tail = struct.pack("<%d%s" % (len(values), "q" if datatype == "INT64" else "f"), *values)
        x["parameters"] = {"binary_data_size": len(tail)}
    else:
        x["data"] = finite(values)
    body = {"inputs": [x]}
    if r.random() < 0.5:
        fit(x, r)
    else:
        for _ in range(r.choice((0, 1, 1, 1, 2, 3))):
            change(x, r)
    tail = x.pop("tail", tail)
    if model == "masked":  # as long as what stands before it, as a rule
        body["inputs"].append(copy.deepcopy({**x, "name": "mask"}))
        if r.random() < 0.1:
            change(body["inputs"][1], r)
        tail += tail
    if r.random() < 0.1:
        body["inputs"] = r.choice(([x, x], [x] * 100, [], None, x, [None]))
    if r.random() < 0.15:
        body[r.choice(("outputs", "parameters", "id", "inputs_"))] = copy.deepcopy(r.choice(
            (*ODD, [{"name": "y"}], [{"name": "y"}, {"name": "y"}], {"binary_data_output": True}, {"timeout": 1})))
    head = json.dumps(body).encode()
    if r.random() < 0.1:
        head = mutate.of_bytes(head, r)
    if r.random() < 0.15:
        tail = r.choice((b"", tail[:-1], tail + b"x", bytes(100000)))
    if binary or r.random() < 0.1:
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(
            r.choice((len(head),) * 12 + (0, 1, -1, len(head) + 1, 2 ** 31, 2 ** 63, 2 ** 64, "x", "")))}
    case.note("request to %s" % model, head + tail)
    got = case.call("POST", "/v2/models/%s/infer" % model, head + tail, headers)
    if got.status == 200 and got.json and "outputs" in got.json:
        for o in got.json["outputs"]:
            if len(o.get("data", [])) != math.prod(o["shape"]):
                raise Finding("output %s has %d numbers of %s" % (o["name"], len(o["data"]), o["shape"]))
    return "taken" if got.status == 200 else "refused"


# ------------------------------------------------------------------ specs and datasets

def places(x):
    """(container, key) of everything in a value."""
    for k in list(x) if isinstance(x, dict) else range(len(x)):
        yield x, k
        if isinstance(x[k], (dict, list)):
            yield from places(x[k])


def ends(case, r, job):
    """A job that was taken ends, or does so when it is told to. The state."""
    until_s, cancelled = time.monotonic() + RUN_S, False
    began = time.monotonic()
    while True:
        j = case.call("GET", "/api/v1/jobs/%d" % job).json
        if j["state"] in FINAL:
            if j["state"] == "FAILED" and len(j.get("error") or "") < 10:
                raise Finding("it does not say why it failed: %s" % j)
            return j
        if time.monotonic() > until_s:
            raise Finding("job %d is %s after %d s, cancelled: %s" % (job, j["state"], RUN_S, cancelled))
        if not cancelled and time.monotonic() > began + SLOW_S:
            cancelled = case.call("POST", "/api/v1/jobs/%d/cancel" % job, b"{}").status < 300
        time.sleep(0.02)


def submit(case, body):
    got = case.call("POST", "/api/v1/jobs", body if isinstance(body, bytes) else json.dumps(body).encode(),
                    {"Content-Type": "application/json"})
    if got.status not in (200, 201):
        return "refused"
    j = ends(case, case.r, got.json["id"])
    case.what.append(j["state"])
    return "taken"


def spec(case, s):
    r, one = case.r, copy.deepcopy(SPEC)
    for k, others in OTHERS.items():
        if r.random() < 0.2:
            one[k] = copy.deepcopy(r.choice(others))
    heads = r.random() < 0.3
    if heads:
        one["loss"] = copy.deepcopy(HEADS[:r.choice((1, 2, 3))])
        one["evaluation"] = {"every": 2, "best": "loss", "output": r.choice(("logits", "box"))}
    for k in [k for k in one if k not in ("optimizer", "steps", "batch", "publish") and r.random() < 0.4]:
        del one[k]
    for _ in range(r.choice((0, 1, 1, 2, 3))):
        where, key = r.choice(list(places(one)))
        if isinstance(where[key], (int, float)) and r.random() < 0.7:
            where[key] = r.choice(NUMBERS)
            continue
        way = r.randrange(8)
        if way == 0 and isinstance(where, dict):
            del where[key]
        elif way == 1 and isinstance(where, dict):
            where[r.choice(("lr", "name", "every", "x", "", "warmup_steps", "class_axis"))] = odd(r)
        else:
            where[key] = odd(r)
    body = {"kind": "training", "model": "heads" if heads else "linear", "version": 1, "dataset": "good", "eval_dataset": "good", "spec": one}
    if r.random() < 0.05:
        body[r.choice(("spec", "version", "kind", "dataset", "eval_dataset", "labels", "priority", "min_runtime_ms"))] = \
            odd(r)
    data = json.dumps(body).encode()
    if r.random() < 0.05:
        data = mutate.of_bytes(data, r)
    case.note("spec", data)
    return submit(case, data)


def dataset(case, s):
    data, what = datafiles.safetensors(case.r, changed=0.7)
    case.note("dataset" + what, data)
    name = "d%d" % case.number
    case.call("POST", "/api/v1/datasets", json.dumps({"name": name}).encode(), {"Content-Type": "application/json"})
    got = case.call("PUT", "/api/v1/datasets/%s/artifact" % name, data)
    try:
        if got.status != 200:
            return "refused"
        return submit(case, {"kind": "training", "model": "small", "version": 1, "dataset": name, "eval_dataset": name,
                             "spec": {"optimizer": {"name": "sgd", "lr": 0.01}, "batch": 4, "steps": 4, "publish": False}})
    finally:
        case.remove("/api/v1/datasets/" + name)


# ------------------------------------------------------------------ models

def packed(case, s):
    """A graph and its data, or a quantised graph with odd scales, in the forms that are taken."""
    r = case.r
    place = {"location": r.choice(("m.data",) * 6 + ("../m.data", "/etc/passwd", "", ".", "m.data/x", "m.onnx", "a" * 3000)),
             "offset": r.choice((0,) * 6 + (4, 16, 2 ** 31, 2 ** 63 - 1, 12, 47)),
             "length": r.choice((48,) * 6 + (0, 47, 49, 2 ** 31, 2 ** 63 - 1))}
    if r.random() < 0.5:
        graph = onnx.model([onnx.node("MatMul", ["x", "w"], ["y"])], [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
                           [onnx.external("w", [4, 3], place["location"], place["offset"], place["length"])])
    else:
        scale = r.choice((0.0, -0.0, float("nan"), float("inf"), float("-inf"), -1.0, 1e-45, 3e38, 0.1))
        code = r.choice((2, 3, 6, 7, 1, 0, 99))
        graph = onnx.model(
            [onnx.node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=r.choice((0, 1, -1, 5, 2 ** 40))),
             onnx.node("DequantizeLinear", ["q", "s", "z"], ["y"])],
            [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 4])],
            [onnx.tensor("s", *r.choice((([], [scale]), ([4], [scale] * 4), ([3], [scale] * 3), ([0], []), ([1, 4], [scale] * 4)))),
             onnx.tensor("z", [], [], code, r.choice((b"\x80", b"", b"\0\1", b"\xff" * 8)))])
    data = bytes(r.randrange(256) for _ in range(r.choice((48, 48, 48, 96, 0, 47))))
    files = [("m.onnx", graph), ("m.data", data)]
    if r.random() < 0.1:
        r.shuffle(files)
    body = onnx.tar(dict(files)) if r.random() < 0.8 else graph
    if r.random() < 0.3:
        body = mutate.of_bytes(body, r)
    case.note("packed", body)
    name = "m%d" % case.number
    case.call("POST", "/api/v1/models", json.dumps({"name": name}).encode(), {"Content-Type": "application/json"})
    version = {r.choice(("buckets", "max_batch", "precision", "version")): r.choice((odd(r), {"N": [2, 4]}, {"length": [8]}))} \
        if r.random() < 0.2 else {}
    version = json.dumps(version).encode()
    if case.call("POST", "/api/v1/models/%s/versions" % name, version, {"Content-Type": "application/json"}).status != 201:
        case.remove("/api/v1/models/" + name)
        return "refused"
    try:
        if case.call("PUT", "/api/v1/models/%s/versions/1/artifact" % name, body).status != 200:
            return "refused"
        end = time.monotonic() + RUN_S
        while (v := case.call("GET", "/api/v1/models/%s/versions/1" % name).json)["state"] not in ("READY", "FAILED"):
            if time.monotonic() > end:
                raise Finding("the version is %s after %d s" % (v["state"], RUN_S))
            time.sleep(0.02)
        if v["state"] == "READY":
            x = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": finite(floats(r, 8))}
            case.call("POST", "/v2/models/%s/infer" % name, json.dumps({"inputs": [x]}).encode())
        return "taken"
    finally:
        case.remove("/api/v1/models/" + name)


KINDS = (request, request, request, spec, spec, dataset, packed)


class Case(cases.Case):
    def __init__(self, number, seed, folder, s, logs):
        super().__init__(number, seed, folder)
        self.s, self.logs = s, logs

    def make(self):
        os.makedirs(self.at)
        self.note("nothing", b"")

    def note(self, what, data):
        self.what = [what]
        self.body = os.path.join(self.at, "body")
        with open(self.body, "wb") as f:
            f.write(data)

    def kept(self):
        return {"body": self.body}

    def call(self, method, path, body=None, headers=None):
        """A reply, which is never that the server is at fault."""
        try:
            r = self.s.call(method, path, body, self.s.key_of_fuzz, headers or {}, cases.LIMIT_S)
        except (OSError, http.client.HTTPException) as e:
            raise Finding("%s %s: no reply: %r" % (method, path, e)) from e
        may = {503, 504} if body and b'"timeout"' in body else {503}
        if r.status >= 500 and r.status not in may:
            raise Finding("%s %s: %r" % (method, path, r))
        if r.status >= 400 and len(r.error) < 10:
            raise Finding("%s %s: it does not say why: %r" % (method, path, r))
        return r

    def remove(self, path):
        got = self.call("GET", path)
        if got.status == 200:
            self.call("DELETE", path, headers={"If-Match": got.headers.get("etag", "*")})

    def run(self):
        try:
            verdict = self.r.choice(KINDS)(self, self.s)
        except AssertionError as e:  # a reply that the description does not have
            raise Finding(str(e)[:3000]) from e
        self.logs.look()
        return verdict


class Logs:
    """What the daemons have said since the last look."""

    def __init__(self, s):
        self.s, self.at = s, {}
        self.look()

    def look(self):
        bad = []
        for path in glob.glob(os.path.join(self.s.state, "log", "*.log")):
            with open(path, errors="replace") as f:
                f.seek(self.at.get(path, 0))
                text = f.read()
                self.at[path] = f.tell()
            bad += [line[:2000] for line in text.splitlines()
                    if any(w in line for w in (*cases.REPORTS, " ev=worker.exit ", " ev=worker.hang ", " SUMMARY: "))
                    and "cause=retired" not in line]
        if bad:
            raise Finding("the logs say:\n" + "\n".join(bad[:20]))


def start(options):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logs = Logs(options.system)
    return lambda number, seed, folder: Case(number, seed, folder, options.system, logs)


@contextlib.contextmanager
def system():
    with System("--workers=2", MODEL_SHAPES="24", MAX_AXIS_SIZE="90", MAX_DATASET_BYTES="16M", MAX_MODEL_BYTES="16M") as s:
        s.key_of_fuzz = s.tenant("fuzz")
        for name, model in (("linear", onnx.linear()), ("small", onnx.linear(3)), ("words", test_shapes.sentence()),
                            ("picture", test_shapes.picture()), ("quantised", quantised()),
                            ("heads", heads())):
            s.push(s.key_of_fuzz, name, model)
        s.push(s.key_of_fuzz, "masked", test_shapes.masked(), buckets={"length": [8, 24, 80]})
        r = random.Random(1)
        s.push_data(s.key_of_fuzz, "good", st_bytes({
            "x": ("F32", [16, 4], struct.pack("<64f", *(r.uniform(-1, 1) for _ in range(64)))),
            "label": ("I64", [16], struct.pack("<16q", *(i % 3 for i in range(16)))),
            "box": ("F32", [16, 2], struct.pack("<32f", *(r.uniform(-1, 1) for _ in range(32))))}))
        before = s.pids()
        yield s
        after = s.pids()
        s.survived = before == after
        if not s.survived:
            print("processes before and after: %s %s" % (before, after))


def main():
    options = cases.options_of(__doc__, 5000).parse_args()
    with system() as s:
        options.system = s
        rc = cases.main(options, start, ("taken", "refused"))
    return rc or not s.survived


if __name__ == "__main__":
    sys.exit(main())
