#!/usr/bin/env python3
"""More models than fit on the device, beside training: requests in the order and at the pace of a trace.

The whole system (`shunt up`) over HTTP, and in the same run all resident with LRU and queues, Triton's
way, with PyTorch (../peers/many.py): docs/replay.md has both in virtual time ("One GPU, 8 GiB, 40
models"). The models are --models in turns, by their number in --load, which is what

    build/bench/replay load --trace T --order O --models 40 --requests 8000 --rate 1000

prints; it is sped up to each of --rates. As there, a request is one sample, in time is within --slo-ms
from when it was due, and the second half of the time counts. PyTorch exports what shunt-zoo does not have
and is not there (wider.py). --alone: without PyTorch beside it. --then-host: in the end the system starts
anew with less host memory for models, so that some are on disk alone. After all loads each model has to
answer as it did before them.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np

import lab
from over_http import DATATYPE, Served, train
from system import until
import arrivals
from http_client import Connection
import part
import wider
from rows import row

# Those of bench/sim/h200.txt.
MODELS = ("mobilenet_v3_large efficientnet_b0 convnext_tiny vit_b_16 swin_t resnext50_32x4d "
          "regnet_y_1_6gf densenet121 mixer distilbert gpt2 bert-large").split()
PEER = os.path.join(part.ROOT, "bench", "peers", "many.py")
OURS, THEIRS, BESIDE = "shunt", "all resident, LRU", "all resident, LRU, and a trainer"
HOST = "64G"  # a virtual machine may say that it has less than it will
EVICTED = ("image", "training", "workspace", "idle", "ahead", "hostmemory")  # what room was for
LOADERS = 6  # models that are sent at a time
SAME = 1e-3  # of the range of a result
COPIED = 'shunt_copied_bytes_total{executor="%s0",direction="h2d",' % part.DEVICE


def read_load(path):
    """[(seconds, model)], a second being one of a request on average."""
    with open(path) as f:
        rows = [(int(at) / 1e9, int(model)) for at, model, _ in map(str.split, f)]
    span = rows[-1][0]
    return [(at / span * len(rows), model) for at, model in rows]


def name_of(model):
    return "m%d" % model


# ---------------------------------------------------------------- the system

def request(key, at, model):
    """As bytes: one sample."""
    arrays = {k: np.ascontiguousarray(a) for k, a in lab.tensors(model, 1).items()}
    text = json.dumps({
        "inputs": [{"name": k, "datatype": DATATYPE[a.dtype.name], "shape": list(a.shape),
                    "parameters": {"binary_data_size": a.nbytes}} for k, a in arrays.items()],
        "parameters": {"binary_data_output": True}}).encode()
    body = text + b"".join(a.tobytes() for a in arrays.values())
    head = ["POST /v2/models/%s/infer HTTP/1.1" % name_of(at), "Host: 127.0.0.1", "Authorization: Bearer " + key,
            "Content-Type: application/octet-stream", "Inference-Header-Content-Length: %d" % len(text),
            "Content-Length: %d" % len(body), "", ""]
    return "\r\n".join(head).encode() + body


def exporters(args):
    """By model: who writes its file."""
    os.makedirs(lab.FOLDER, exist_ok=True)
    of = argparse.Namespace(runs=1, training=False, gpus=1, batches=[str(args.batch)], models=args.models)
    return {m: wider.Exporter(m, of) for m in args.models
            if m not in lab.CLASSES and not os.path.exists(wider.file_of(m, of) + ".st")}


def wait_ready(s, key, some, models, args):
    def is_ready(at):
        r = s.call("GET", "/api/v1/models/%s/versions/1" % name_of(at), key=key)
        assert r.status != 200 or r.json["state"] != "FAILED", r.json["reason"]
        return r.status == 200 and r.json["state"] == "READY"

    for at in some:
        until("%s (%s) is READY" % (name_of(at), models[at]), lambda at=at: is_ready(at), args.load_limit)
    print("      %d models are ready" % len(some), file=sys.stderr, flush=True)


def push_all(s, key, models, args):
    """First one of each file: of the others what was made of it is kept."""
    writers = exporters(args)

    def push(at):
        if models[at] in writers:
            writers[models[at]].finish(args.load_limit)
        with open(lab.onnx(models[at]), "rb") as f:
            s.push(key, name_of(at), f.read(), ready=False, max_batch=args.batch,
                   precision=args.precisions[0])

    first = list({model: at for at, model in reversed(list(enumerate(models)))}.values())
    for some in (first, [at for at in range(len(models)) if at not in first]):
        with concurrent.futures.ThreadPoolExecutor(LOADERS) as pool:
            list(pool.map(push, some))
        wait_ready(s, key, some, models, args)


def set_slo(s, key, kinds, ms):
    for at in range(len(kinds)):
        path = "/api/v1/models/%s/slo" % name_of(at)
        until("%s has its target" % name_of(at), lambda path=path: s.call(
            "PUT", path, {"latency_ms": ms, "on_miss": "reject"}, key).status == 200, 20)


def answer(port, kind):
    """What a model gives for its request; None: it was refused."""
    conn = Connection(port, (kind, b""))
    try:
        _, _, reply = conn.exchange()
    except AssertionError as e:
        if "HTTP/1.1 503 " in str(e):
            return None
        raise
    finally:
        conn.sock.close()
    begin = int(re.search(r"Inference-Header-Content-Length: (\d+)", reply.head, re.I).group(1))
    values = np.frombuffer(reply.body[begin:], np.float32)
    assert np.isfinite(values).all(), "the result is not finite"
    return (values,)


def answers(s, kinds):
    return [until("%s answers" % name_of(at), lambda kind=kind: answer(s.port, kind), 20)[0]
            for at, kind in enumerate(kinds)]


def is_same(a, b):
    return a.shape == b.shape and abs(a - b).max() <= SAME * np.ptp(a)


def counters(s):
    """What the executor has done so far, and when that was."""
    m = s.metrics("executor-%s0" % part.DEVICE)
    found = {}
    for series, n in m.items():
        for what, begins in (("runs", "shunt_runs_total{"), ("bytes", COPIED),
                             ("trained", "shunt_train_samples_total{"),
                             ("held_off", "shunt_training_holds_total{"),
                             ("read", "shunt_image_read_bytes_total{")):
            if series.startswith(begins):
                found[what] = found.get(what, 0) + n
        if series.startswith(("shunt_residency_total{", "shunt_evicted_bytes_total{", "shunt_preemptions_total{")):
            what = series.split('"')[-2]
            found[what] = found.get(what, 0) + n
    return {"at": time.monotonic(), **found}


def gigabytes(s, metric):
    """Of each series, by its last label."""
    return {k.split('"')[-2]: round(v / 1e9, 2)
            for k, v in s.metrics("executor-%s0" % part.DEVICE).items() if k.startswith(metric + "{")}


def between(a, b):
    """A second."""
    return {k: (v - a.get(k, 0)) / (b["at"] - a["at"]) for k, v in b.items() if k != "at"}


def one_load(s, kinds, load, rate):
    """Requests, and the counters of the second half of the time."""
    due = [[] for _ in kinds]
    for at, model in load:
        due[model].append(at / rate)
    seconds, seen = load[-1][0] / rate, []
    half = threading.Timer(seconds / 2, lambda: seen.append(counters(s)))
    end = threading.Timer(seconds, lambda: seen.append(counters(s)))
    half.start()
    end.start()
    got = arrivals.send(s.port, seconds + 0.01, 1, [("listed", d, k) for d, k in zip(due, kinds)])
    half.join()
    end.join()
    return got, seconds, between(*seen)


def loaded(s, case, kinds, load, rate, args, alone):
    """The row of one load."""
    got, seconds, did = one_load(s, kinds, load, rate)
    ones = [(x.kind, x.status == 200, x.due, x.took) for x in got]
    late = sorted(x.late for x in got)
    return summary(OURS, case, rate, ones, 500 * seconds, args.slo_ms, did["bytes"], did["runs"],
                   training_samples_per_s=round(did["trained"], 1),
                   training_alone_samples_per_s=round(alone, 1),
                   stops_per_s={k: round(did.get(k, 0), 2) for k in ("pause", "drop", "swap", "held_off")},
                   disk_gb_per_s=round(did.get("read", 0) / 1e9, 3),
                   image_gb=gigabytes(s, "shunt_image_bytes"), arena_gb=gigabytes(s, "shunt_arena_bytes"),
                   evicted_gb_per_s={k: round(did.get(k, 0) / 1e9, 3) for k in EVICTED},
                   residency_per_s={k: round(did.get(k, 0), 1) for k in ("full", "partial", "none")},
                   statuses={n: sum(x.status == n for x in got) for n in {x.status for x in got}},
                   client_late_p99_ms=round(late[len(late) * 99 // 100], 3))


def same_answers(s, key, kinds, args, before, when):
    set_slo(s, key, kinds, 1000 * args.slo_ms)
    time.sleep(2)  # until the scheduler knows
    bad = [name_of(at) for at, (a, b) in enumerate(zip(before, answers(s, kinds))) if not is_same(a, b)]
    return {"check": "%d models answer %s as before the loads" % (len(kinds), when), "ok": not bad, "others": bad}


def with_less_memory(s, key, case, models, kinds, load, args, alone):
    s.daemons["MODEL_HOST_BYTES"] = args.then_host
    s.up_again()
    wait_ready(s, key, range(len(models)), models, args)
    answers(s, kinds)
    set_slo(s, key, kinds, args.slo_ms)
    time.sleep(2)
    return loaded(s, {**case, "host": args.then_host}, kinds, load, args.rates[0], args, alone)


def ours(case, models, load, args):
    """Rows and checks; None where the peer may use the device: to make ready, and to measure."""
    class Small(Served):
        UP = ("--device=" + part.DEVICE, "--pool-bytes=" + args.pool, "--threads=0")

    # Forty models are twelve in turns, and stand for forty that have nothing in common.
    with Small(MODEL_HOST_BYTES=HOST, SHARE_IMAGES="false") as s:
        began = time.monotonic()
        key = s.tenant("bench")
        push_all(s, key, models, args)
        print("      loaded in %.0f s" % (time.monotonic() - began), file=sys.stderr, flush=True)
        yield None
        kinds = [request(key, at, model) for at, model in enumerate(models)]
        before = answers(s, kinds)
        set_slo(s, key, kinds, args.slo_ms)
        train(s, key, args.trains, case)
        seen = counters(s)
        time.sleep(args.seconds)
        alone = between(seen, counters(s))["trained"]
        for rate in args.rates:
            yield loaded(s, case, kinds, load, rate, args, alone)
            time.sleep(1)
        yield same_answers(s, key, kinds, args, before, "after them")
        s.cli("down")
        yield None
        if args.then_host:
            yield with_less_memory(s, key, case, models, kinds, load, args, alone)
            yield same_answers(s, key, kinds, args, before, "with %s of host memory" % args.then_host)


# ---------------------------------------------------------------- the peer

class Peer:
    """It makes its models, then takes the device, then measures, when it is told to."""

    def __init__(self, args, load_file):
        self.p = subprocess.Popen(
            [sys.executable, PEER, "--models", ",".join(args.models), "--count", str(args.count),
             "--precision", args.precisions[0], "--batch", str(args.batch), "--pool", args.pool,
             "--slo-ms", str(args.slo_ms), "--load", load_file, "--rates", ",".join("%g" % r for r in args.rates),
             *(["--trains", args.trains, "--beside", args.beside] if args.beside else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def next(self, expects=None):
        """The next line that it prints, once told to go on."""
        self.p.stdin.write("go\n")
        self.p.stdin.flush()
        text = self.p.stdout.readline()
        if not text:
            raise RuntimeError("PyTorch's process ended with %s" % self.p.wait(60))
        got = json.loads(text)
        assert expects is None or got == expects, got
        return got

    def rows(self, case):
        while (got := self.next()) != "end":
            by = BESIDE if "training_samples_per_s" in got else THEIRS
            yield summary("pytorch " + by, case, got.pop("rate"), got.pop("ones"), got.pop("from_ms"),
                          got.pop("slo_ms"), got.pop("bytes_per_s"), got.pop("runs_per_s"), **got)

    def close(self):
        self.p.kill()
        self.p.wait()


# ---------------------------------------------------------------- figures

def summary(by, case, rate, ones, from_ms, slo_ms, bytes_per_s, runs_per_s, **more):
    """ones: (model, whether it was answered, ms when due, ms that it took). Those due from from_ms on count."""
    ones = [x for x in ones if x[2] >= from_ms]
    ms = [took for _, ok, _, took in ones if ok]
    n_in_time = sum(t <= slo_ms for t in ms)
    span_s = (ones[-1][2] - from_ms) / 1e3
    return row("many", by, {**case, "requests_per_s": rate}, ms, value=arrivals.percentile(ms, 99),
               in_time=round(n_in_time / len(ones), 5), refused=round(1 - len(ms) / len(ones), 5),
               requests=len(ones), samples_per_run=round(len(ms) / span_s / max(runs_per_s, 1e-9), 3),
               gb_per_s=round(bytes_per_s / 1e9, 3), **more)


def shown(r):
    if "check" in r:
        return r
    print("      %-40s %5g/s: in time %.2f %%, refused %.2f %%, p50 %.2f p99 %.2f ms, %.2f samples a run, "
          "%.2f GB/s, training %.0f samples/s" % (
              r["by"], r["case"]["requests_per_s"], 100 * r["in_time"], 100 * r["refused"], r["median"], r["p99"],
              r["samples_per_run"], r["gb_per_s"], r.get("training_samples_per_s", 0)), file=sys.stderr, flush=True)
    return r


def measure(case, args):
    load = read_load(args.load)
    args.count = 1 + max(model for _, model in load)
    models = [args.models[i % len(args.models)] for i in range(args.count)]
    peer = None if args.alone else Peer(args, args.load)
    try:
        own = ours(case, models, load, args)
        next(own)
        if peer:
            peer.next("made")
            peer.next("ready")
        for r in own:
            if r:
                yield shown(r)
            elif peer:
                yield from map(shown, peer.rows(case))
    finally:
        if peer:
            peer.close()


def main():
    p = part.options(__doc__, "tf32", seconds=3)
    p.set_defaults(models=MODELS)
    p.add_argument("--load", required=True, help="a file: see above")
    p.add_argument("--rates", default="600,912,1520", type=lambda s: [float(x) for x in s.split(",")],
                   help="requests a second")
    p.add_argument("--slo-ms", type=float, default=50)
    p.add_argument("--pool", default="8G", help="device memory; the peer's for weights alone")
    p.add_argument("--then-host", help="host memory for models, of which a tenant may have half")
    p.add_argument("--trains", default="resnet152", help="beside them")
    p.add_argument("--beside", help="rates: the peer once more, with a trainer in a process of its own")
    p.add_argument("--alone", action="store_true", help="without the peer")
    p.add_argument("--load-limit", type=float, default=300, help="seconds for a model to be ready")
    args = p.parse_args()
    args.precisions = args.precisions[:1]
    return part.collect(args, "many", OURS, lambda case: measure(case, args),
                        [{"precision": args.precisions[0], "pool": args.pool}])


if __name__ == "__main__":
    sys.exit(main())
