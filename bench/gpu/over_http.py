#!/usr/bin/env python3
"""The whole system (`shunt up`) while it trains: requests over HTTP with binary tensors, by a
client on the same host that keeps its connection; warm, and with nothing of the model on the device.

Held against what the executor takes when it is asked directly (the parts cold and warm); also shown
is the client's latency less what the executor says that it took (Server-Timing), which with nothing
on the device counts the copy that began before the request had come as HTTP's. The client is a
socket; now and then it is Python's http.client, which itself takes a quarter of a millisecond more.
In turns with it the same bytes go to a bare server that only reads them and to libmicrohttpd that only
reads them (../http.c): what of it no server could save on this host. With --shm also warm with the
inputs in the client's shared memory, into which it writes them each time (write_ms, which is not part of
its latency).
Then a request whose body comes slowly: when the copy of the weights starts, and when the body ends.
--models: the first one also trains. With --uint8 models of pictures are also asked with bytes, which
the device normalises (docs/models.md), and the answers held against those to the client's floats.
"""
import contextlib
import http.client
import json
import os
import re
import sys
import threading
import time

import numpy as np

from lab import (CLASSES, DEVICE, IMAGE, OPTIMIZER, POOL, SGD, TRAIN_BATCH, dataset, keep_tune,
                 lend_tune, of_bytes, onnx, pictures, tensors, train_precision)
from system import BIN, LAB, System
import part
from http_client import Connection, Peer, SharedMemory, shm_request
from rows import p99, row

DATATYPE = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}
PIECES, PIECE_S = 10, 0.02
AT_ONCE = 8 << 10  # bytes: before a body so small has come, the scheduler is told nothing
LIBRARY_EVERY = 4
FLOORS = (("socket",), ("library", 2))  # threads of libmicrohttpd: as many as the API has
WARM = 5
TIMEOUT_S = 60


class Served(System):
    """A system with what earlier executors measured of their kernels. With options of its daemons."""

    UP = ("--device=" + DEVICE, "--pool-bytes=" + POOL, "--threads=0")

    def __init__(self, programs=BIN, **env):
        self.daemons = {"DETERMINISTIC": "false", "BUSY_POLL_US": part.BUSY_POLL_US, **env}
        super().__init__(*self.UP, programs=programs, **self.daemons)

    def up_again(self):
        self.cli("up", "--port=%d" % self.port, *self.UP,
                 env={"SHUNT_" + k: v for k, v in self.daemons.items()})

    def cli(self, *args, env=None):
        if args[0] == "up" and not os.path.exists(self.state):
            os.makedirs(self.state)
            open(os.path.join(self.state, "created-by-shunt"), "w").close()
            self.tune = lend_tune(self.state, "%s0" % DEVICE)
        return super().cli(*args, env=env)

    def stop(self):
        if not self.stopped:
            keep_tune(self.tune)
        super().stop()

    def executor(self, name):
        """The sum of a metric over its labels."""
        return sum(v for k, v in self.metrics("executor-%s0" % DEVICE).items()
                   if k.startswith(name))


    def push_all(self, key, files, case):
        """files: {name: path}"""
        for name, path in files.items():
            with open(path, "rb") as f:
                self.push(key, name, f.read(), max_batch=case["batch"], precision=case["precision"])


def train(s, key, model, case):
    with open(onnx(model, "training"), "rb") as f:
        s.push(key, model + "-training", f.read(), max_batch=1)
    with open(dataset(model), "rb") as f:
        s.push_data(key, model, f.read())
    r = s.submit(key, model=model + "-training", dataset=model, spec={
        "optimizer": OPTIMIZER.get(model, SGD), "batch": TRAIN_BATCH, "epochs": None,
        "steps": 10**9, "checkpoint_interval_ms": 3600000,
        "precision": train_precision(case["precision"])})
    assert r.status in (200, 201), r
    s.wait_step(key, r.json["id"], 3)


# ---------------------------------------------------------------- the client

def binary(key, model, batch, arrays=None):
    """Headers and body of a request with binary tensors."""
    arrays = arrays or tensors(model, batch)
    head = {"inputs": [{"name": k, "datatype": DATATYPE[a.dtype.name], "shape": list(a.shape),
                        "parameters": {"binary_data_size": a.nbytes}}
                       for k, a in arrays.items()],
            "parameters": {"binary_data_output": True}}
    text = json.dumps(head).encode()
    body = text + b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
    return {"Authorization": "Bearer " + key, "Content-Type": "application/octet-stream",
            "Content-Length": str(len(body)),
            "Inference-Header-Content-Length": str(len(text))}, body


class Request:
    """A request, a connection for it, and one by http.client."""

    def __init__(self, port, key, model, batch, name=None, arrays=None):
        self.name, self.arrays = name or model, arrays or tensors(model, batch)
        self.headers, self.body = binary(key, model, batch, self.arrays)
        self.path, self.port = "/v2/models/%s/infer" % self.name, port
        self.out_bytes = CLASSES[model] * 4 * batch
        self.head = "\r\n".join(["POST %s HTTP/1.1" % self.path, "Host: 127.0.0.1:%d" % port,
                                 *("%s: %s" % kv for kv in self.headers.items()), "", ""]).encode()
        self.conn = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self.own = self.connect(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.conn.close()
        self.own.close()

    def connect(self, port):
        """To anybody who takes the same bytes."""
        return Connection(port, (self.head, self.body))

    def values(self, raw):
        """The result, which ends a reply's body."""
        return np.frombuffer(raw[-self.out_bytes:], np.float32)

    def took(self, ms, head, raw):
        """One run: its latency, and what the executor says."""
        assert np.isfinite(self.values(raw)).all(), "the result is not finite"
        timing = re.search(r"Server-Timing: (.*)", head, re.I).group(1)
        return {"ms": ms, **{k: float(v) for k, v in re.findall(r"(\w+);dur=([0-9.]+)", timing)}}

    def send(self):
        _, ms, reply = self.own.exchange()
        return self.took(ms, *reply)

    def send_by_library(self):
        begin = time.perf_counter()
        self.conn.request("POST", self.path, self.body, self.headers)
        r = self.conn.getresponse()
        raw = r.read()
        ms = 1e3 * (time.perf_counter() - begin)
        assert r.status == 200, raw[:300]
        return self.took(ms, str(r.headers), raw)

    def answer(self):
        """What the socket gets for it."""
        return self.values(self.own.exchange()[2].body)

    def send_slowly(self, s):
        """Seconds after the headers at which the copy had begun and the body ended."""
        seen, ended = [], threading.Event()
        before = s.executor("shunt_copied_bytes_total")

        def watch():
            is_last = False
            while not seen and not is_last:
                is_last = ended.is_set()
                if s.executor("shunt_copied_bytes_total") > before:
                    seen.append(time.monotonic())
        with contextlib.closing(self.connect(self.port)) as c:
            watcher = threading.Thread(target=watch)
            watcher.start()
            begin = time.monotonic()
            c.sock.sendall(self.head)
            step = len(self.body) // PIECES + 1
            for at in range(0, len(self.body), step):
                time.sleep(PIECE_S)
                c.sock.sendall(self.body[at:at + step])
            end = time.monotonic()
            stages = self.took(1e3 * (time.monotonic() - begin), *c.receive())
            ended.set()
            watcher.join()
        assert seen, "no weights were copied"
        return seen[0] - begin, end - begin, stages


class FromMemory:
    """The same request with its inputs in shared memory of ours."""

    def __init__(self, s, key, request):
        self.request = request
        self.raw = b"".join(np.ascontiguousarray(a).tobytes() for a in request.arrays.values())
        self.shm = SharedMemory("shunt-bench-%d-%s" % (os.getpid(), request.name), len(self.raw))
        try:
            self.shm.register(s, key, request.name)
            self.own = Connection(s.port, shm_request(key, request.name, [
                (k, DATATYPE[a.dtype.name], a.shape, a.nbytes) for k, a in request.arrays.items()],
                request.name))
        except BaseException:
            self.shm.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.own.close()
        self.shm.close()

    def send(self):
        write_ms = self.shm.write(self.raw)
        _, ms, reply = self.own.exchange()
        return {**self.request.took(ms, *reply), "write": write_ms}

    def answer(self):
        """After the memory held something else."""
        self.shm.write(bytes(len(self.raw)))
        self.shm.write(self.raw)
        return self.request.values(self.own.exchange()[2].body)


# ---------------------------------------------------------------- measuring

def in_turns(ways, args):
    """{way: what its runs returned}. ways: {way: (send, in which of the turns)}"""
    got = {way: [] for way in ways}
    for i in range(-WARM, args.runs):
        for way, (send, every) in ways.items():
            if i % every:
                continue
            time.sleep(args.rest_ms / 1e3)
            one = send()
            if i >= 0:
                got[way].append(one)
    return got


def rows_of(case, runs_of, **more):
    """Of one way to send a request."""
    yield row("http", "shunt", case, [r["ms"] for r in runs_of],
              executor_ms=[r["total"] for r in runs_of], copy_ms=[r["copy"] for r in runs_of], **more)
    yield row("http-over-executor", "shunt", case, [r["ms"] - r["total"] for r in runs_of])


def same_answer(name, got, want):
    return {"check": name,
            "ok": bool(np.allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())),
            "same_bits": bool((got == want).all()), "apart": float(np.abs(got - want).max())}


def compare(case, request, s, key, args):
    """In turns: by both clients, from shared memory, and to who only reads it."""
    with contextlib.ExitStack() as stack:
        ways = {"socket": (request.send, 1), "http.client": (request.send_by_library, LIBRARY_EVERY)}
        memory = None
        if args.shm and not case["cold"]:
            memory = stack.enter_context(FromMemory(s, key, request))
            ways["shm"] = memory.send, 1
        for kind in FLOORS:
            floor = request.connect(stack.enter_context(Peer(*kind)).port)
            stack.enter_context(contextlib.closing(floor))
            ways[kind] = (lambda floor=floor: floor.exchange()[1]), 1
        got = in_turns(ways, args)
        size = len(request.body)
        for client in ("socket", "http.client"):
            yield from rows_of({**case, "client": client}, got[client], body_bytes=size)
        for kind in FLOORS:
            yield row("http-floor", kind[0], case, got[kind], body_bytes=size)
        if memory:
            of = {**case, "client": "socket", "input": " ".join(("shm", case.get("input", ""))).strip()}
            yield from rows_of(of, got["shm"], body_bytes=len(memory.own.body),
                               write_ms=[r["write"] for r in got["shm"]])
            yield same_answer("%s %s answers %s as it answers a body" % (
                case["model"], case["precision"], of["input"]), memory.answer(), request.answer())


def as_bytes(of, model, s, key, args):
    """The same model asked with bytes and, for what is right, with the floats that they stand for."""
    with open(of_bytes(model), "rb") as f:
        s.push(key, model + "-bytes", f.read(), max_batch=of["batch"], precision=of["precision"])
    x, floats = pictures(model, args.batch)
    with Request(s.port, key, model, args.batch, model + "-bytes", x) as request, \
            Request(s.port, key, model, args.batch, arrays=floats) as other:
        yield from compare({**of, "input": "uint8"}, request, s, key, args)
        yield same_answer("%s %s answers bytes as it answers floats" % (model, of["precision"]),
                          request.answer(), other.answer())


def slowly(case, request, s, args):
    got = []
    for _ in range(args.slow_runs):
        time.sleep(4 * args.rest_ms / 1e3)
        got.append(request.send_slowly(s))
    copied, ended = [1e3 * c for c, _, _ in got], [1e3 * e for _, e, _ in got]
    return [row("http-copy-begins", "shunt", case, copied,
                body_ends_ms=[round(e, 4) for e in ended], stages_ms=[g for _, _, g in got]),
            {"check": "the copy of %s %s begins before the body has arrived" % (
                case["model"], case["precision"]),
             "ok": all(c < e for c, e in zip(copied, ended)),
             "after_headers_ms": {"copy_begins_at_most": round(p99(copied), 3),
                                  "body_ends_at_least": round(min(ended), 3)}}]


def measure(case, args):
    options = {"CLIENT_SHM": "any", "COPY_THREADS": str(args.copy_threads)} if args.shm else {}
    with Served(programs=LAB, DEBUG_COLD="true" if case["cold"] else "false", **options) as s:
        key = s.tenant("bench")
        s.push_all(key, {m: onnx(m) for m in args.models}, case)
        train(s, key, args.models[0], case)
        for m in args.models:
            of = {"model": m, **case}
            with Request(s.port, key, m, args.batch) as request:
                yield from compare(of, request, s, key, args)
                if case["cold"] and len(request.body) > AT_ONCE:
                    yield from slowly(of, request, s, args)
            if args.uint8 and m in IMAGE:
                yield from as_bytes(of, m, s, key, args)


def main():
    p = part.options(__doc__, "tf32", runs=50)
    p.set_defaults(models=["resnet152", "bert-base"])
    p.add_argument("--rest-ms", type=float, default=30,
                   help="between two requests: training goes on, and the client's core sleeps")
    p.add_argument("--uint8", action="store_true", help="also send pictures as bytes")
    p.add_argument("--shm", action="store_true", help="also warm with inputs in shared memory")
    p.add_argument("--copy-threads", type=int, default=-1,
                   help="with --shm: that option of shunt-api; 0: nobody helps it to copy")
    p.add_argument("--warm-only", action="store_true", help="nothing with an empty device")
    p.add_argument("--slow-runs", type=int, default=5, help="with a body that comes slowly")
    args = p.parse_args()
    return part.collect(args, "http", "shunt", lambda case: measure(case, args),
                        [{"precision": p, "batch": args.batch, "cold": cold}
                         for p in args.precisions for cold in ((False,) if args.warm_only else (False, True))])


if __name__ == "__main__":
    sys.exit(main())
