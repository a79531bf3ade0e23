#!/usr/bin/env python3
"""The whole system (`shunt up`) while it trains: requests over HTTP with binary tensors, by a
client on the same host that keeps its connection; warm, and with nothing of the model on the device.

Held against what the executor takes when it is asked directly (the parts cold and warm); also shown
is the client's latency less what the executor says that it took (Server-Timing), which with nothing
on the device counts the copy that began before the request had come as HTTP's. The client is a
socket; now and then it is Python's http.client, which itself takes a quarter of a millisecond more.
Then a request whose body comes slowly: when the copy of the weights starts, and when the body ends.
--models: the first one also trains. With --uint8 models of pictures are also asked with bytes, which
the device normalises (docs/models.md), and the answers held against those to the client's floats.
"""
import http.client
import json
import os
import re
import socket
import sys
import threading
import time

import numpy as np

from lab import (CLASSES, DEVICE, IMAGE, OPTIMIZER, POOL, SGD, TRAIN_BATCH, dataset, keep_tune,
                 lend_tune, of_bytes, onnx, pictures, tensors, train_precision)
from system import BIN, LAB, System
import part
from rows import p99, row

DATATYPE = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}
PIECES, PIECE_S = 10, 0.02
AT_ONCE = 8 << 10  # bytes: before a body so small has come, the scheduler is told nothing
LIBRARY_EVERY = 4
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
    """The bytes of a request, and two connections."""

    def __init__(self, port, key, model, batch, name=None, arrays=None):
        self.headers, self.body = binary(key, model, batch, arrays)
        self.path, self.port = "/v2/models/%s/infer" % (name or model), port
        self.out_bytes = CLASSES[model] * 4 * batch
        self.head = "\r\n".join(["POST %s HTTP/1.1" % self.path, "Host: 127.0.0.1:%d" % port,
                                 *("%s: %s" % kv for kv in self.headers.items()), "", ""]).encode()
        self.conn = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self.sock = self.connect()

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def close(self):
        self.conn.close()
        self.sock.close()

    def stages(self, head, raw):
        """{stage: ms} of the executor."""
        assert re.match(r"HTTP/1.1 200 ", head), raw[:300]
        values = np.frombuffer(raw[-self.out_bytes:], np.float32)
        assert np.isfinite(values).all(), "the result is not finite"
        timing = re.search(r"Server-Timing: (.*)", head, re.I).group(1)
        return {k: float(v) for k, v in re.findall(r"(\w+);dur=([0-9.]+)", timing)}

    def receive(self, sock):
        """Head and body of a reply."""
        got, at = b"", -1
        while at < 0 or len(got) < at + 4 + length:
            piece = sock.recv(1 << 20)
            assert piece, "the server closed the connection"
            got += piece
            if at < 0:
                at = got.find(b"\r\n\r\n")
                if at >= 0:
                    length = int(re.search(rb"\nContent-Length: (\d+)", got[:at]).group(1))
        return got[:at].decode(), got[at + 4:]

    def send(self):
        """Latency in ms, and what the executor says."""
        begin = time.perf_counter()
        self.sock.sendall(self.head)
        self.sock.sendall(self.body)
        reply = self.receive(self.sock)
        ms = 1e3 * (time.perf_counter() - begin)
        return ms, self.stages(*reply)

    def send_by_library(self):
        begin = time.perf_counter()
        self.conn.request("POST", self.path, self.body, self.headers)
        r = self.conn.getresponse()
        raw = r.read()
        ms = 1e3 * (time.perf_counter() - begin)
        return ms, self.stages("HTTP/1.1 %d \n%s" % (r.status, r.headers), raw)

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
        with self.connect() as c:
            watcher = threading.Thread(target=watch)
            watcher.start()
            begin = time.monotonic()
            c.sendall(self.head)
            step = len(self.body) // PIECES + 1
            for at in range(0, len(self.body), step):
                time.sleep(PIECE_S)
                c.sendall(self.body[at:at + step])
            end = time.monotonic()
            stages = self.stages(*self.receive(c))
            ended.set()
            watcher.join()
        assert seen, "no weights were copied"
        return seen[0] - begin, end - begin, stages


# ---------------------------------------------------------------- measuring

def compare(case, request, args):
    clients = {"socket": request.send, "http.client": request.send_by_library}
    got = {name: [] for name in clients}
    for i in range(-WARM, args.runs):
        for name, send in clients.items():
            if name != "socket" and i % LIBRARY_EVERY:
                continue
            time.sleep(args.rest_ms / 1e3)
            one = send()
            if i >= 0:
                got[name].append(one)
    for name, runs_of in got.items():
        yield row("http", "shunt", {**case, "client": name}, [ms for ms, _ in runs_of],
                  executor_ms=[stages["total"] for _, stages in runs_of],
                  copy_ms=[stages["copy"] for _, stages in runs_of],
                  body_bytes=len(request.body))
        yield row("http-over-executor", "shunt", {**case, "client": name},
                  [ms - stages["total"] for ms, stages in runs_of])


def answers(request):
    """What the socket gets for it."""
    request.sock.sendall(request.head + request.body)
    return np.frombuffer(request.receive(request.sock)[1][-request.out_bytes:], np.float32)


def as_bytes(of, model, s, key, args):
    """The same model asked with bytes and, for what is right, with the floats that they stand for."""
    with open(of_bytes(model), "rb") as f:
        s.push(key, model + "-bytes", f.read(), max_batch=of["batch"], precision=of["precision"])
    x, floats = pictures(model, args.batch)
    request = Request(s.port, key, model, args.batch, model + "-bytes", x)
    other = Request(s.port, key, model, args.batch, arrays=floats)
    yield from compare({**of, "input": "uint8"}, request, args)
    got, want = answers(request), answers(other)
    yield {"check": "%s %s answers bytes as it answers floats" % (model, of["precision"]),
           "ok": bool(np.allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())),
           "same_bits": bool((got == want).all()), "apart": float(np.abs(got - want).max())}
    request.close()
    other.close()


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
    with Served(programs=LAB, DEBUG_COLD="true" if case["cold"] else "false") as s:
        key = s.tenant("bench")
        s.push_all(key, {m: onnx(m) for m in args.models}, case)
        train(s, key, args.models[0], case)
        for m in args.models:
            request = Request(s.port, key, m, args.batch)
            of = {"model": m, **case}
            yield from compare(of, request, args)
            if case["cold"] and len(request.body) > AT_ONCE:
                yield from slowly(of, request, s, args)
            request.close()
            if args.uint8 and m in IMAGE:
                yield from as_bytes(of, m, s, key, args)


def main():
    p = part.options(__doc__, "tf32", runs=50)
    p.set_defaults(models=["resnet152", "bert-base"])
    p.add_argument("--rest-ms", type=float, default=30,
                   help="between two requests: training goes on, and the client's core sleeps")
    p.add_argument("--uint8", action="store_true", help="also send pictures as bytes")
    p.add_argument("--slow-runs", type=int, default=5, help="with a body that comes slowly")
    args = p.parse_args()
    return part.collect(args, "http", "shunt", lambda case: measure(case, args),
                        [{"precision": p, "batch": args.batch, "cold": cold}
                         for p in args.precisions for cold in (False, True)])


if __name__ == "__main__":
    sys.exit(main())
