#!/usr/bin/env python3
"""Training from a pushed folder of JPEG, and from a set that is larger than memory.

"ratio": the whole system; a folder of JPEG is pushed, and the same model is trained on it and on random
FP32 of two batches, in turns, each job for so many steps. A rate counts the time for which the job had the
device (busy_ns). The model "mean" computes nearly nothing, so its rate is what reading gives at most.

"identity": a set of so many GB, whose every sample is another one, comes by HTTP as it is made, so that it
lies on the disk once. Of all the processes and the page cache that they fill together a cgroup allows no
more than --memory-gb. A job runs undisturbed; the same job again is preempted by requests, and its
workers and the executor get SIGKILL. Losses and final weights must be the same to the bit.
"""
import glob
import hashlib
import http.client
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy as np

from lab import CLASSES, DEVICE, SGD, onnx
from over_http import Served
from system import BIN, FINAL, until
import onnx_bytes as ob
import part
from pictures import jpeg
from rows import row

PARTS = ("ratio", "identity")
SIDE = 224
SAMPLE = 3 * SIDE * SIDE
KEPT = 0.9
NEVER_MS = 3600000
DISTINCT = 256       # pictures; the others are copies
DRAWN = 64 << 20     # random bytes, of which each sample is a stretch, with its number in front
MIN_PREEMPTIONS = 20
KILLS = ((0.3, "workers"), (0.65, "executor"))  # when, as a part of the steps, and whose
EXECUTOR = "executor-%s0" % DEVICE


def mean():
    """x [N,3,224,224] -> scores [N,10], by the mean of each colour."""
    return ob.model(
        [ob.node("GlobalAveragePool", ["x"], ["a"]), ob.node("Flatten", ["a"], ["b"]),
         ob.node("Gemm", ["b", "w", "bias"], ["y"])],
        [ob.value("x", ["N", 3, SIDE, SIDE])], [ob.value("y", ["N", 10])],
        [ob.tensor("w", [3, 10], [0.01 * i for i in range(30)]), ob.tensor("bias", [10], [0.0] * 10)])


def training_file(model):
    if model == "mean":
        return mean()
    with open(onnx(model, "training"), "rb") as f:
        return f.read()


def classes(model):
    return CLASSES.get(model, 10)


# ---------------------------------------------------------------- a folder and numbers in memory

def make_folder(path, n):
    rng = random.Random(1)
    some = [jpeg(256, 256, [rng.randrange(256) for _ in range(32 * 32)]) for _ in range(DISTINCT)]
    for i in range(n):
        folder = os.path.join(path, "class%d" % (i * 10 // n))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "%07d.jpg" % i), "wb") as f:
            f.write(some[i % DISTINCT])


def push_folder(s, key, n):
    folder = os.path.join(s.dir, "folder")
    make_folder(folder, n)
    began = time.monotonic()
    subprocess.run([os.path.join(BIN, "shunt"), "push", "dataset", "folder", folder, "--tensor", "x", "--size",
                    str(SIDE), "--tmp-dir", s.dir, "--server", "http://127.0.0.1:%d" % s.port, "--quiet"],
                   check=True, env={**s.env, "SHUNT_KEY": key})
    print("      %d pictures pushed in %.0f s" % (n, time.monotonic() - began), file=sys.stderr, flush=True)


def push_memory(s, key, batch):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2 * batch, SAMPLE), dtype=np.float32)
    put(s, key, "memory%d" % batch, 2 * batch, "F32", 4 * SAMPLE, iter([x.tobytes()]))


def put(s, key, name, n, dtype, sample_bytes, samples):
    """Pushes a set whose samples come in pieces; labels 0 to 9 in turns."""
    labels = np.arange(n, dtype=np.int64) % 10
    head = json.dumps({
        "x": {"dtype": dtype, "shape": [n, 3, SIDE, SIDE], "data_offsets": [0, n * sample_bytes]},
        "label": {"dtype": "I64", "shape": [n], "data_offsets": [n * sample_bytes, n * sample_bytes + 8 * n]}})
    head = head.encode() + b" " * (-(8 + len(head)) % 64)
    total = 8 + len(head) + n * (sample_bytes + 8)

    def body():
        yield struct.pack("<Q", len(head)) + head
        yield from samples
        yield labels.tobytes()
    r = s.call("POST", "/api/v1/datasets", {"name": name}, key)
    assert r.status == 201, r
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=900)
    c.request("PUT", "/api/v1/datasets/%s/artifact" % name, body(), {
        "Authorization": "Bearer " + key, "Content-Type": "application/octet-stream",
        "Content-Length": str(total)})
    r = c.getresponse()
    said = r.read()
    c.close()
    assert r.status == 200, said


def spec(batch, precision, steps, **more):
    return {"optimizer": SGD, "batch": batch, "steps": steps, "epochs": None, "precision": precision,
            "publish": False, "checkpoint_interval_ms": NEVER_MS, **more}


def rate(s, key, model, dataset, case, steps):
    """Samples a second of one job."""
    r = s.submit(key, model=model, version=1, dataset=dataset,
                 spec=spec(case["batch"], case["precision"], steps))
    assert r.status == 201, r
    j = s.wait_job(key, r.json["id"], limit_s=600)
    assert j["state"] == "SUCCEEDED", j
    return steps * case["batch"] / (j["busy_ns"] / 1e9)


def ratio(args):
    cases = [{"model": m, "precision": p, "batch": b}
             for m in args.models for p in args.precisions for b in args.batches]
    with Served() as s:
        key = s.tenant("bench")
        push_folder(s, key, args.pictures)
        for b in args.batches:
            push_memory(s, key, b)
        for m in args.models:
            s.push(key, m, training_file(m), max_batch=1)
        for case in cases:
            memory = "memory%d" % case["batch"]
            steps = max(8, args.images // case["batch"])
            got = {"folder": [], memory: []}
            rate(s, key, case["model"], memory, case, 8)  # chooses kernels
            rate(s, key, case["model"], "folder", case, 8)
            for i in range(args.runs):
                for dataset in sorted(got, reverse=i % 2):
                    got[dataset].append(rate(s, key, case["model"], dataset, case, steps))
            rows = [row("pictures", "shunt", {**case, "data": d.rstrip("0123456789")}, r, "samples/s")
                    for d, r in got.items()]
            yield from rows
            share = rows[0]["value"] / rows[1]["value"]
            yield {"check": "%s %s batch %d: from the folder %.3f of the rate from memory, at least %g" % (
                case["model"], case["precision"], case["batch"], share, KEPT),
                "ok": share >= KEPT, "share": round(share, 4)}


# ---------------------------------------------------------------- larger than memory

class Limited:
    """This process, and those that it starts from here on, may have so much memory, page cache included.
    .what: by which means; None where there is none, and then .peak() is what can be said."""

    def __init__(self, gb):
        self.bytes, self.what, self.at = int(gb * 1e9), None, None
        for base, file, peak in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
                                 ("/sys/fs/cgroup", "memory.max", "memory.peak")):
            at = os.path.join(base, "shunt-bench-%d" % os.getpid())
            try:
                os.mkdir(at)
                with open(os.path.join(at, file), "w") as f:
                    f.write(str(self.bytes))
                with open(os.path.join(at, "cgroup.procs"), "w") as f:
                    f.write(str(os.getpid()))
                self.what, self.at, self.peak_file = "cgroup " + file, at, os.path.join(at, peak)
                return
            except OSError as e:
                print("      no limit by %s: %s" % (at, e), file=sys.stderr)
                if os.path.isdir(at):
                    os.rmdir(at)

    def __enter__(self):
        return self

    def peak(self):
        with open(self.peak_file) as f:
            return int(f.read())

    def __exit__(self, *_):
        if self.at:
            with open(os.path.join(os.path.dirname(self.at), "cgroup.procs"), "w") as f:
                f.write(str(os.getpid()))
            until("the cgroup is empty", self.remove, 30)

    def remove(self):
        try:
            os.rmdir(self.at)
            return True
        except OSError:
            return False


class Resident(threading.Thread):
    """The most that the processes of a system had in memory at once: of their own, and mapped files."""

    def __init__(self, s):
        super().__init__(daemon=True)
        self.state, self.own, self.mapped, self.ended = s.state, 0, 0, threading.Event()
        self.start()

    def pids(self):
        found = {}
        for path in glob.glob(os.path.join(self.state, "run", "*.pid")):
            with open(path) as f:
                found[int((f.read().split() or ["0"])[0])] = 0
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path) as f:
                    text = f.read()
                if int(text.rsplit(")", 1)[1].split()[1]) in found:
                    found[int(text.split()[0])] = 0
            except OSError:
                pass
        return found

    def run(self):
        while not self.ended.wait(1):
            own = mapped = 0
            for pid in self.pids():
                try:
                    with open("/proc/%d/status" % pid) as f:
                        kb = {x.split(":")[0]: int(x.split()[1]) for x in f if x.startswith("Rss")}
                except (OSError, ValueError):
                    continue
                own += kb.get("RssAnon", 0) << 10
                mapped += kb.get("RssFile", 0) << 10
            self.own, self.mapped = max(self.own, own), max(self.mapped, mapped)


def all_different(n):
    """n samples, in pieces."""
    drawn = np.random.default_rng(2).bytes(DRAWN)
    for i in range(n):
        at = i * 7919 * 64 % (DRAWN - SAMPLE)
        yield struct.pack("<Q", i) + drawn[at + 8:at + SAMPLE]


def in_pieces(chunks, size=8 << 20):
    held, n = [], 0
    for c in chunks:
        held.append(c)
        n += len(c)
        if n >= size:
            yield b"".join(held)
            held, n = [], 0
    yield b"".join(held)


def workers(s):
    parent, out = s.pid(EXECUTOR), []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as f:
                name, rest = f.read().partition("(")[2].rsplit(")", 1)
        except OSError:
            continue
        if name == "shunt-worker" and rest.split()[0] != "Z" and int(rest.split()[1]) == parent:
            out.append(int(path.split("/")[2]))
    return out


def kill(s, whose):
    if whose == "executor":
        s.wait_new(EXECUTOR, s.kill(EXECUTOR))
        return
    for pid in workers(s):
        os.kill(pid, signal.SIGKILL)


def disturb(s, key, model, job, steps):
    """Requests preempt it, and processes get SIGKILL. Returns the job, and who was killed."""
    kills, killed, rng = list(KILLS), [], random.Random(4)
    body = np.random.default_rng(3).standard_normal(SAMPLE, dtype=np.float32).tobytes()
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE],
                                   "parameters": {"binary_data_size": len(body)}}]}).encode()
    while True:
        j = s.job(key, job).json
        if j["state"] in FINAL:
            return j, killed
        if kills and j["step"] >= kills[0][0] * steps:
            killed.append(kills.pop(0)[1])
            kill(s, killed[-1])
        if j["state"] in ("RUNNING", "PREEMPTED"):
            s.call("POST", "/v2/models/%s/infer" % model, head + body, key, {
                "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))})
        time.sleep(rng.uniform(0, 0.2))


def outcome(s, job):
    folder = os.path.join(s.state, "jobs", str(job))
    with open(os.path.join(folder, "losses.json")) as f:
        losses = json.load(f)
    with open(os.path.join(folder, "final.safetensors"), "rb") as f:
        return losses, hashlib.sha256(f.read()).hexdigest()


def both(s, key, model, args):
    """The same job twice: (job, who was killed, losses and final weights) of each."""
    steps = args.images_large // args.batch_large
    for disturbed in (False, True):
        r = s.submit(key, model=model, version=1, dataset="large", spec=spec(
            args.batch_large, args.precisions[0], steps, checkpoint_interval_ms=2000, seed=3))
        assert r.status == 201, r
        job = r.json["id"]
        if disturbed:
            j, killed = disturb(s, key, model, job, steps)
        else:
            j, killed = s.wait_job(key, job, limit_s=1200), []
        assert j["state"] == "SUCCEEDED", j
        yield j, killed, outcome(s, job)


def identity(args):
    n = int(args.gb * 1e9) // SAMPLE
    model = args.models[0]
    with Limited(args.memory_gb) as limit, Served(DETERMINISTIC="true") as s:
        key = s.tenant("bench")
        began = time.monotonic()
        put(s, key, "large", n, "U8", SAMPLE, in_pieces(all_different(n)))
        pushed_s = time.monotonic() - began
        print("      %.1f GB pushed in %.0f s" % (n * SAMPLE / 1e9, pushed_s), file=sys.stderr, flush=True)
        s.push(key, model, training_file(model), max_batch=1)
        watch = Resident(s)
        calm, got = both(s, key, model, args)
        watch.ended.set()
        steps = len(calm[2][0])
        for name, (j, _, _) in (("undisturbed", calm), ("disturbed", got)):
            yield row("large-set", "shunt", {"model": model, "precision": args.precisions[0],
                                             "batch": args.batch_large, "job": name},
                      [steps * args.batch_large / (j["busy_ns"] / 1e9)], "samples/s")
        same = got[2] == calm[2]
        yield {"check": "%s: %d steps from %.1f GB with %g GB of memory, preempted %d times, killed: %s; "
                        "the end is bit-identical" % (model, steps, n * SAMPLE / 1e9, args.memory_gb,
                                                      got[0]["preemptions"], ", ".join(got[1])),
               "ok": same and len(got[1]) == len(KILLS) and got[0]["preemptions"] >= MIN_PREEMPTIONS and
               len(set(calm[2][0])) > steps / 2,
               "limited_by": limit.what, "memory_peak_bytes": limit.peak() if limit.what else None,
               "own_bytes": watch.own, "mapped_bytes": watch.mapped, "pushed_s": round(pushed_s, 1),
               "preemptions": got[0]["preemptions"], "killed": got[1],
               "losses_that_differ": sum(a != b for a, b in zip(got[2][0], calm[2][0]))}


def main():
    p = part.options(__doc__, "tf32,bf16", runs=3)
    p.set_defaults(models=["resnet50"], only=list(PARTS))
    p.add_argument("--batches", type=lambda t: [int(x) for x in t.split(",")], default=[32, 256])
    p.add_argument("--pictures", type=int, default=40000, help="of the folder")
    p.add_argument("--images", type=int, default=8192, help="of one job of a ratio")
    p.add_argument("--gb", type=float, default=50, help="of the large set")
    p.add_argument("--memory-gb", type=float, default=8)
    p.add_argument("--images-large", type=int, default=76800, help="of one job on it")
    p.add_argument("--batch-large", type=int, default=256)
    args = p.parse_args()
    part.check_known(p, args.only, PARTS, "part")
    return part.collect(args, "pictures", "shunt", lambda case: globals()[case["part"]](args),
                        [{"part": x} for x in args.only])


if __name__ == "__main__":
    sys.exit(main())
