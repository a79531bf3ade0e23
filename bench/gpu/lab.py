"""One real executor on a GPU, played by tests/e2e/exec_driver.py: what the parts of bench/gpu share.

Models come from shunt-zoo with random weights, data are random. Files are made once per folder
(SHUNT_BENCH_DIR, default /tmp/shunt-bench) and shared by all parts; so is the file in which the
executor keeps which kernels measured fastest. A model that shunt-zoo has not is one that wider.py
has left in that folder.
"""
import functools
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.insert(0, os.path.join(ROOT, "bench", "lib"))
from exec_driver import BIN, Driver, read_st, st_bytes  # noqa: E402
from onnx_bytes import message  # noqa: E402
from part import DEVICE  # noqa: E402

FOLDER = os.environ.get("SHUNT_BENCH_DIR", "/tmp/shunt-bench")
BATCH, TRAIN_BATCH = 8, 32
SAMPLES = 256  # of a training set
CLASSES = {"resnet152": 1000, "inception-v3": 1000, "bert-base": 2,
           "resnet18": 1000, "resnet50": 1000, "digits-cnn": 10}
IMAGE = {"resnet152": (3, 224, 224), "inception-v3": (3, 299, 299), "resnet18": (3, 224, 224),
         "resnet50": (3, 224, 224), "digits-cnn": (1, 8, 8)}
METADATA = 14  # field of ModelProto
MEAN, STD = 0.45, 0.225  # of pictures, all channels
TOKENS, VOCABULARY = 128, 30000
ADAMW = {"name": "adamw", "lr": 1e-5}
OPTIMIZER = {"bert-base": ADAMW, "bert-large": ADAMW, "distilbert": ADAMW, "lstm": ADAMW}
SGD = {"name": "sgd", "lr": 1e-4, "momentum": 0.9}
NUMPY = {"F32": np.float32, "I64": np.int64}
BYTES = {"FP32": 4, "INT64": 8}
TUNE = os.path.join(FOLDER, "tune")
POOL = "48G" if DEVICE == "cuda" else "2G"
CANCEL = 0  # JOB_STOP's how
CONFLICT = -5  # an answer's rc
RETRIES = 100


def train_precision(precision):
    """In which a job trains beside runs of this precision: fp16 would need loss scaling."""
    return "bf16" if precision == "fp16" else precision


def tensors(model, n, seed=0):
    """n samples of each input, in the model's order."""
    if model not in CLASSES:
        return {k: np.frombuffer(data, NUMPY[t]).reshape(shape)[:n]
                for k, (t, shape, data) in read_st(exported(model, "inference", ".st")).items()}
    rng = np.random.default_rng(seed)
    if model in IMAGE:
        return {"x": rng.standard_normal((n, *IMAGE[model]), dtype=np.float32)}
    return {"input_ids": rng.integers(0, VOCABULARY, (n, TOKENS)),
            "attention_mask": np.ones((n, TOKENS), np.int64)}


@functools.lru_cache(8)
def inputs(model, n):
    """Bytes of each input."""
    return [np.ascontiguousarray(a).tobytes() for a in tensors(model, n).values()]


def pictures(model, n):
    """n of bytes, height and width first, and what a client makes of them."""
    channels, height, width = IMAGE[model]
    x = np.random.default_rng(2).integers(0, 256, (n, height, width, channels), np.uint8)
    floats = (x.astype(np.float32) / np.float32(255) - np.float32(MEAN)) / np.float32(STD)
    return {"x": x}, {"x": np.ascontiguousarray(floats.transpose(0, 3, 1, 2))}


def write_st(path, arrays):
    dtype = {"float32": "F32", "int64": "I64"}
    with open(path, "wb") as f:
        f.write(st_bytes({k: (dtype[a.dtype.name], list(a.shape), a.tobytes())
                          for k, a in arrays.items()}))


def made(name, make):
    """Path of a file of FOLDER; make(path) writes it if it is not there."""
    path = os.path.join(FOLDER, name)
    if not os.path.exists(path):
        os.makedirs(FOLDER, exist_ok=True)
        make(path + ".tmp")
        os.rename(path + ".tmp", path)
    return path


def exported(model, form, ending):
    """Path of a file of wider.py."""
    return os.path.join(FOLDER, model + ("-training" if form == "training" else "") + ending)


def trainee(model):
    """What trains beside it: the same, but of what has no classes."""
    has = model in CLASSES or os.path.exists(exported(model, "training", ".onnx"))
    return model if has else "resnet50"


def onnx(model, form="inference", seed=1):
    """Another seed, other weights."""
    if model not in CLASSES:
        return exported(model, form, ".onnx")
    name = "%s-%s%s.onnx" % (model, form, "" if seed == 1 else "-%d" % seed)
    return made(name, lambda path: subprocess.run(
        [os.path.join(BIN, "shunt-zoo"), model, "--form", form, "--seed", str(seed), "--out", path],
        check=True, stdout=subprocess.DEVNULL))


def of_bytes(model):
    """Path of the model's file that declares that its input is bytes."""
    def write(path):
        shutil.copyfile(onnx(model), path)
        with open(path, "ab") as f:
            f.write(message((METADATA, message(
                (1, "shunt.preprocess"), (2, json.dumps({"x": {"mean": MEAN, "std": STD}}))))))
    return made(model + "-bytes.onnx", write)


def dataset(model):
    if model not in CLASSES:
        return exported(model, "training", ".st")

    def write(path):
        arrays = tensors(model, SAMPLES)
        arrays["label"] = np.random.default_rng(1).integers(0, CLASSES[model], SAMPLES)
        write_st(path, arrays)
    return made("%s-train.st" % model, write)


def lend_tune(state, name):
    """What earlier executors measured of their kernels, where the workers of the next one look for it, who
    have a user of their own."""
    path = os.path.join(state, "kernels-" + name, "tune")
    os.makedirs(os.path.dirname(path))
    if os.path.exists(TUNE):
        shutil.copyfile(TUNE, path)
        os.chmod(path, 0o666)
    return path


def keep_tune(path):
    if os.path.exists(path):
        shutil.copyfile(path, TUNE + ".tmp")
        os.rename(TUNE + ".tmp", TUNE)


class Lab:
    """An executor on a GPU. Options are those of shunt-executor."""

    def __init__(self, *options, pool=POOL, deterministic=False, log="info", fault=False):
        """log: "debug" for events(); it makes the copies of groups a little slower. fault: workers look for
        the file self.fault (runtime/device/cuda/cuda_fault.c)."""
        os.makedirs(FOLDER, exist_ok=True)
        self.d = Driver("--device=" + DEVICE, "--pool-bytes=" + pool, "--log-level=" + log,
                        "--share-images=false",  # versions stand for models that have nothing in common
                        "--deterministic" if deterministic else "--no-deterministic", *options)
        self.tune = lend_tune(self.d.dir, "e0")
        if fault:
            os.chmod(self.d.dir, 0o711)
            self.fault = os.environ["SHUNT_CUDA_DEBUG_FAULT"] = os.path.join(
                os.path.dirname(self.tune), "fault")
        self.log = os.path.join(self.d.dir, "executor.log")
        self.models, self.packages = {}, {}
        try:
            self.d.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            if self.d.scheduler:
                self.d.stop(60)
        finally:
            keep_tune(self.tune)
            if os.environ.get("SHUNT_BENCH_KEEP"):
                os.makedirs(os.environ["SHUNT_BENCH_KEEP"], exist_ok=True)
                to = os.path.join(os.environ["SHUNT_BENCH_KEEP"], "executor-%d.log" % os.getpid())
                with open(to, "ab") as out, open(self.log, "rb") as log:
                    out.write(log.read())
            self.d.close()

    def package(self, model, form="inference"):
        """Its folder, and what shunt-import says of it. form: "bytes": its input is."""
        if (model, form) not in self.packages:
            self.packages[model, form] = self.d.package(
                of_bytes(model) if form == "bytes" else onnx(model, form))
        return self.packages[model, form]

    def load(self, version, model, precision, batch=BATCH, wait=True, form="inference"):
        package, meta = self.package(model, form)
        sizes = [BYTES[o["datatype"]] * batch * math.prod(o["shape"][1:]) for o in meta["outputs"]]
        sent = [pictures(model, batch)[0]["x"].tobytes()] if form == "bytes" else inputs(model, batch)
        self.models[version] = (sent, sizes, batch)
        self.d.load(version, package, max_batch=batch, tenant="bench", model="m%d" % version,
                    precision=precision, wait=wait)

    def send(self, version):
        inputs, sizes, batch = self.models[version]
        return self.d.run(version, inputs, sizes, batch, tenant="bench")

    def run(self, version):
        """A run, waited for: times in ms."""
        r, out = self.d.result(self.send(version))
        assert r.rc == 0, r
        assert np.isfinite(np.frombuffer(out[0][0], np.float32)).all(), "the result is not finite"
        return {"total_ms": r.total_ns / 1e6, "copy_ms": r.copy_ns / 1e6,
                "compute_ms": r.compute_ns / 1e6, "queue_ms": r.queue_ns / 1e6}

    def answer(self, version):
        """Bytes of the first output."""
        r, out = self.d.result(self.send(version))
        assert r.rc == 0, r
        return out[0][0]

    def runs(self, version, n):
        """Of n requests, each long after the one before, so that training runs again; some before
        them do not count."""
        for _ in range(5):
            self.run(version)
        got = []
        for _ in range(n):
            self.d.rest(0.06)
            got.append(self.run(version))
        return got

    def train(self, job, model, precision, **spec):
        spec = {"loss": "cross-entropy", "optimizer": OPTIMIZER.get(model, SGD),
                "batch": TRAIN_BATCH, "steps": 10000000, "seed": 1, "labels": "label",
                "precision": precision, "checkpoint_interval_ms": 3600000, **spec}
        # Of a job that has just ended, checkpoints may still be on their way to the disk.
        for _ in range(RETRIES):
            self.d.start_job(job, self.package(model, "training")[0], dataset(model), spec)
            self.d.wait_job(job, ("RUNNING", "FAILED"), 300)
            if self.d.jobs[job].rc != CONFLICT:
                break
            del self.d.jobs[job]
            self.d.rest(0.1)
        self.d.wait_job(job, ("RUNNING",), 1)
        self.steps(job, 3)

    def cancel(self, job, timeout=60):
        self.d.scheduler.send("JOB_STOP", epoch=self.d.epoch, job=job, attempt=1, how=CANCEL, why="Cancelled")
        self.d.wait_job(job, ("CANCELLED",), timeout)

    def steps(self, job, n, timeout=120):
        """Waits for n more steps."""
        self.d.wait_step(job, self.d.jobs[job].step + n, timeout)
        assert self.d.jobs[job].phase in ("RUNNING", "PREEMPTED"), self.d.jobs[job]

    def throughput(self, job, seconds):
        """Samples per second of a job that trains undisturbed."""
        self.steps(job, 1)
        s0, t0 = self.d.jobs[job].step, time.monotonic()
        self.d.rest(seconds)
        self.steps(job, 1)
        return (self.d.jobs[job].step - s0) * TRAIN_BATCH / (time.monotonic() - t0)

    def link(self):
        """(seconds per copy, bytes per second) as the executor measured them."""
        m = self.d.metrics()
        return (m['shunt_link_latency_seconds{executor="e0"}'],
                m['shunt_link_bytes_per_second{executor="e0"}'])

    def image_bytes(self, version):
        return self.d.states[version].image_bytes

    def events(self):
        """(name, fields) of the executor's and workers' debug log so far."""
        out = []
        with open(self.log, errors="replace") as f:
            for line in f:
                fields = dict(re.findall(r"(\S+?)=(\S+)", line))
                if "ev" in fields:
                    out.append((fields["ev"], fields))
        return out


class Sender:
    """Runs of one model whose inputs lie in the slab already: only messages are sent. Nothing else
    may use the slab meanwhile."""

    N_OUT = 64

    def __init__(self, lab, version):
        self.d, self.version = lab.d, version
        inputs, sizes, self.batch = lab.models[version]
        self.ins = b""
        for data in inputs:
            at = self.d.alloc(len(data))
            self.d.slab[at:at + len(data)] = data
            self.ins += struct.pack("<QQ", at, len(data))
        self.outs = [b"".join(struct.pack("<QQ", self.d.alloc(n), n) for n in sizes)
                     for _ in range(self.N_OUT)]

    def send(self):
        """The number by which the result will come."""
        run, rid = self.d.next_id, self.d.next_id + 1
        self.d.next_id += 2
        self.d.scheduler.send("RUN_PART", run_id=run, rid=rid, api_id=77, tenant="bench",
                              batch=self.batch, in_spans=self.ins, out_spans=self.outs[rid // 2 % self.N_OUT])
        self.d.scheduler.send("RUN", epoch=self.d.epoch, run_id=run, version_id=self.version,
                              tenant="bench", batch=self.batch, n_parts=1,
                              budget_ns=60 * 10**9, sizes=b"")
        return rid


EVENTS = {"switch.start": "run is current", "train.stop": "training told to stop",
          "train.drained": "training drained ({way})",
          "switch.send": "{groups} groups, worker {worker} told; inputs {inputs}",
          "group.arrived": "  group {group} arrived", "group.compute": "  group {group} enqueued",
          "switch.done": "result"}
IN_WORKER = {"start_ns": "worker has the run", "inputs_ns": "worker: inputs enqueued",
             "launched_ns": "worker: all enqueued", "end_ns": "worker: device is done"}


def timelines(events):
    """For each run of a log at debug level: [(ms from its start, what happened)]."""
    happened, out = [], []
    for name, f in events:
        if name in EVENTS and "ns" in f:
            happened.append((int(f["ns"]), name != "switch.start", EVENTS[name].format(**f)))
            if "memory_ns" in f:
                happened.append((int(f["memory_ns"]), True, "memory taken, first group sent"))
        elif name == "run.worker":
            happened += [(int(f[k]), True, text) for k, text in IN_WORKER.items()]
    for ns, goes_on, text in sorted(happened):
        if not goes_on:
            begin = ns
            out.append([])
        if out:
            out[-1].append((round((ns - begin) / 1e6, 3), text))
    return out


def took_ms(timeline):
    """Until the result; 0 if there was none."""
    return max((ms for ms, text in timeline if text == EVENTS["switch.done"]), default=0)


def drained_ms(timeline):
    """From the stop of training to the drained device; 0 if none trained."""
    at = {text.split(" (")[0]: ms for ms, text in timeline}
    return at.get("training drained", 0) - at.get("training told to stop", 0)


def print_timeline(timeline):
    for ms, text in timeline:
        print("  %9.3f ms  %s" % (ms, text), file=sys.stderr)


def drains(events):
    """ms from each stop of training to the drained device."""
    out, at = [], None
    for name, f in events:
        if name == "train.stop":
            at = int(f["ns"])
        elif name == "train.drained" and at:
            out.append((int(f["ns"]) - at) / 1e6)
            at = None
    return out
