#!/usr/bin/env python3
"""What a system under more load than it can carry still answers in time.

An open loop: requests of models with a latency target and on_miss reject arrive at random (Poisson, with
a seed) whether or not the ones before are answered, at multiples of the capacity that was measured just
before, without a target and with as many connections as fill the batches. Of each load it prints, by the
client's clock and as parts of that capacity, what was offered, answered in time (the goodput), late and
refused, and the goodput beside its peak; ends with 1 when from 0.9 of the peak on it was below that once
the offered load exceeded the peak, or when more than --needless of the requests were refused at half the
capacity.

The client shares the cores with the system: a model should take some ms, and a line says how late the
client itself was. Standard library only.
"""
import argparse
import json
import os
import random
import re
import selectors
import socket
import struct
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in ("tests/e2e", "bench/lib"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import onnx_bytes as onnx  # noqa: E402
from http_client import v2_request  # noqa: E402
from system import System  # noqa: E402

SIDE, MAX_CONNECTIONS, ANSWER_S = 16, 1000, 20


def conv(layers, channels):
    """x [N, 16]: an outer product with itself, then convolutions. Costs about as much a sample in any batch."""
    rnd = random.Random(1)
    nodes = [onnx.node("Reshape", ["x", "col"], ["c"]), onnx.node("Reshape", ["x", "row"], ["r"]),
             onnx.node("Mul", ["c", "r"], ["y0"])]
    init = [onnx.tensor("col", [4], [-1, 1, SIDE, 1], onnx.INT64), onnx.tensor("row", [4], [-1, 1, 1, SIDE], onnx.INT64)]
    for i in range(layers):
        n_in = channels if i else 1
        shape = [channels, n_in, 3, 3]
        raw = struct.pack("<%df" % (channels * n_in * 9), *(rnd.uniform(-.05, .05) for _ in range(channels * n_in * 9)))
        init.append(onnx.tensor("w%d" % i, shape, [], raw=raw))
        nodes += [onnx.node("Conv", ["y%d" % i, "w%d" % i], ["z%d" % i], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                  onnx.node("Relu", ["z%d" % i], ["y%d" % (i + 1)])]
    nodes += [onnx.node("GlobalAveragePool", ["y%d" % layers], ["g"]), onnx.node("Flatten", ["g"], ["out"])]
    return onnx.model(nodes, [onnx.value("x", ["N", SIDE])], [onnx.value("out", ["N", channels])], init)


def dense(layers, features):
    """x [N, 16]: reads the same weights for any batch, so a batch costs little more than one sample."""
    raw = struct.pack("<8f", *(0.001 * i for i in range(8)))
    sizes = [SIDE] + [features] * layers
    init = [onnx.tensor("w%d" % i, [a, b], [], raw=raw * (a * b // 8)) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    nodes = [onnx.node("MatMul", ["x" if i == 0 else "y%d" % i, "w%d" % i], ["y%d" % (i + 1)]) for i in range(layers)]
    return onnx.model(nodes, [onnx.value("x", ["N", SIDE])], [onnx.value("y%d" % layers, ["N", features])], init)


class Client:
    """One thread, many connections: each carries one request at a time and is used again."""

    def __init__(self, port):
        self.port, self.free, self.n = port, [], 0
        self.sel = selectors.DefaultSelector()
        self.busy = {}

    def send(self, request, done):
        """False: all connections are busy. done(status, seconds)"""
        if self.free:
            c = self.free.pop()
        elif self.n < MAX_CONNECTIONS:
            c = socket.create_connection(("127.0.0.1", self.port))
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            c.setblocking(False)
            self.sel.register(c, selectors.EVENT_READ)
            self.n += 1
        else:
            return False
        self.busy[c] = [b"", time.monotonic(), done]
        c.send(request)  # less than a socket's buffer
        return True

    def poll(self, timeout):
        for key, _ in self.sel.select(max(timeout, 0)):
            c = key.fileobj
            got = c.recv(65536)
            if c not in self.busy and not got:  # idle for longer than the server keeps it
                self.sel.unregister(c)
                self.free.remove(c)
                self.n -= 1
                c.close()
                continue
            if c not in self.busy or not got:
                raise AssertionError("a connection was closed")
            state = self.busy[c]
            state[0] += got
            at = state[0].find(b"\r\n\r\n")
            if at < 0:
                continue
            length = int(re.search(rb"\nContent-Length: (\d+)", state[0][:at]).group(1))
            if len(state[0]) < at + 4 + length:
                continue
            del self.busy[c]
            self.free.append(c)
            state[2](int(state[0][9:12]), time.monotonic() - state[1], state[0])


def closed_loop(client, requests, connections, seconds):
    """Answers a second."""
    count, end = [0], time.monotonic() + seconds

    def again(request):
        def done(status, took, raw):
            assert status == 200, raw
            count[0] += 1
            if time.monotonic() < end:
                client.send(request, done)
        return done
    for i in range(connections):
        r = requests[i % len(requests)]
        client.send(r, again(r))
    warm = time.monotonic() + seconds / 4
    while time.monotonic() < warm:
        client.poll(0.1)
    begin, before = time.monotonic(), count[0]
    while time.monotonic() < end:
        client.poll(0.1)
    rate = (count[0] - before) / (time.monotonic() - begin)
    while client.busy:
        client.poll(1)
    return rate


def open_loop(client, requests, rate, seconds, target_s, seed):
    rnd = random.Random(seed)
    got = {"offered": 0, "met": 0, "late": 0, "refused": 0, "other": 0, "unsent": 0}
    lag, words, at = [], {}, 0.0
    begin = time.monotonic()

    def done(status, took, raw):
        if status == 200:
            got["met" if took <= target_s else "late"] += 1
            return
        got["refused" if status == 503 else "other"] += 1
        text = re.sub(r"[0-9.]+", "#", json.loads(raw[raw.find(b"\r\n\r\n") + 4:]).get("error", "?"))
        words[text] = words.get(text, 0) + 1
    while True:
        at += rnd.expovariate(rate)
        if at > seconds:
            break
        while (left := begin + at - time.monotonic()) > 0:
            client.poll(left)
        lag.append(-left)
        got["offered"] += 1
        if not client.send(requests[rnd.randrange(len(requests))], done):
            got["unsent"] += 1
        client.poll(0)
    end = time.monotonic() + ANSWER_S
    while client.busy and time.monotonic() < end:
        client.poll(1)
    got["other"] += len(client.busy)
    got["lag_p99_ms"] = 1e3 * sorted(lag)[len(lag) * 99 // 100]
    got["words"] = words
    return got


def counted(s, key, names):
    """What the system says of itself: its clock goes from a request's headers to its reply."""
    total = {"met": 0, "missed": 0, "rejected": 0}
    for n in names:
        r = s.call("GET", "/api/v1/models/%s/slo/attainment?window=1h" % n, key=key).json
        total = {k: v + r[k] for k, v in total.items()}
    return total


def run(args, max_batch):
    s = System("--workers=2", "--pool-bytes=%s" % args.pool_bytes)
    try:
        key = s.tenant("bench")
        net = conv(args.layers, args.width) if args.model == "conv" else dense(args.layers, args.width)
        names = ["m%d" % i for i in range(args.models)]
        for n in names:
            s.push(key, n, net, max_batch=max_batch)
        requests = [b"".join(v2_request(key, n, "x", [1, SIDE], struct.pack("<16f", *[.5] * SIDE))) for n in names]
        client = Client(s.port)
        one = 1 / closed_loop(client, requests, 1, args.seconds / 2)
        capacity = closed_loop(client, requests, args.models * max(2 * max_batch, 4), args.seconds)
        print("max_batch %d: one request at a time takes %.1f ms, capacity %.0f requests/s (%.2f at once)" % (
            max_batch, 1e3 * one, capacity, capacity * one))
        for n in names:
            r = s.call("PUT", "/api/v1/models/%s/slo" % n, {"latency_ms": args.target_ms, "on_miss": "reject"}, key)
            assert r.status == 200, r
        time.sleep(2)
        rows = []
        for load in args.loads:
            before = counted(s, key, names)
            g = open_loop(client, requests, load * capacity, args.seconds, args.target_ms / 1e3, args.seed)
            own = {k: v - before[k] for k, v in counted(s, key, names).items()}
            per_s = capacity * args.seconds
            rows.append({"load": load, "capacity": capacity, "max_batch": max_batch, **g, "own": own,
                         "own_met_part": own["met"] / per_s,
                         **{k + "_part": g[k] / per_s for k in ("offered", "met", "late", "refused")}})
            time.sleep(1)
        peak = max(r["met_part"] for r in rows)
        for r in rows:
            r["of_peak"] = r["met_part"] / peak
            r["refused_of_offered"] = r["refused"] / max(r["offered"], 1)
            print("  offered %5.2f: in time %.3f (%.3f of the peak), late %.3f, refused %.3f (%.4f of the offered), "
                  "other %d; by its own clock %.3f in time; client %.1f ms late (p99)" % (
                      r["offered_part"], r["met_part"], r["of_peak"], r["late_part"], r["refused_part"],
                      r["refused_of_offered"], r["other"] + r["unsent"], r["own_met_part"], r["lag_p99_ms"]))
            if args.words:
                for text, n in sorted(r["words"].items(), key=lambda x: -x[1])[:4]:
                    print("      %6d %s" % (n, text))
        bad = ["%g times: %.3f of the peak" % (r["load"], r["of_peak"]) for r in rows
               if r["offered_part"] > peak and r["of_peak"] < 0.9]
        bad += ["%g times: %.4f refused" % (r["load"], r["refused_of_offered"]) for r in rows
                if r["load"] <= 0.5 and r["refused_of_offered"] > args.needless]
        return rows, bad
    except BaseException:
        s.failed = True
        raise
    finally:
        s.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--loads", type=lambda t: [float(x) for x in t.split(",")], default=[0.5, 0.75, 1, 1.5, 2, 3])
    p.add_argument("--max-batch", type=lambda t: [int(x) for x in t.split(",")], default=[1, 32])
    p.add_argument("--target-ms", type=float, default=50)
    p.add_argument("--seconds", type=float, default=10, help="of each load")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--models", type=int, default=1)
    p.add_argument("--model", choices=("conv", "dense"), default="conv")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=128, help="channels, or features")
    p.add_argument("--pool-bytes", default="1G")
    p.add_argument("--needless", type=float, default=0.005)
    p.add_argument("--words", action="store_true", help="how refusals were worded")
    p.add_argument("--out", help="all rows, as JSON")
    args = p.parse_args()
    rows, bad = [], []
    for max_batch in args.max_batch:
        r, b = run(args, max_batch)
        rows += r
        bad += ["max_batch %d, %s" % (max_batch, x) for x in b]
    if args.out:
        with open(args.out, "w") as f:
            json.dump(rows, f, indent=1)
    print("as promised" if not bad else "NOT as promised: " + "; ".join(bad))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
