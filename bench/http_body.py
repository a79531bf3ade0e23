#!/usr/bin/env python3
"""What a body of 4.8 MB costs over HTTP on this host, and where the time goes.

One client with one connection sends the same bytes in turns to the whole system (`shunt up`, a model
that does next to nothing), to libmicrohttpd that only reads (as many threads), and to a socket whose
other end receives and copies. And to the whole system once more with the bytes in shared memory, which the
client fills each time. So what else the machine does hits them alike, and the ratios say more
than the milliseconds. A row's share is of the whole system's median.

Standard library only.
"""
import argparse
import os
import re
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in ("tests/e2e", "bench/lib"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import onnx_bytes as onnx  # noqa: E402
from http_client import (Connection, Peer, SharedMemory, shm_request,  # noqa: E402
                         v2_request)
from system import System  # noqa: E402

GOALS = "goal: the whole system less the executor adds at most 0.9 ms"
SHAPE = [8, 3, 224, 224]
IMAGE = 4 * 3 * 224 * 224


def first_values():
    """x [N,3,224,224] -> its first 4 values: a model that costs nothing beside its input."""
    def ints(name, *values):
        return onnx.tensor(name, [len(values)], values, onnx.INT64)
    return onnx.model([onnx.node("Slice", ["x", "from", "to", "axes"], ["y"])],
                      [onnx.value("x", ["N", 3, 224, 224])], [onnx.value("y", ["N", 1, 1, 4])],
                      [ints("from", 0, 0, 0), ints("to", 1, 1, 4), ints("axes", 1, 2, 3)])


class Samples:
    def __init__(self):
        self.got = {}

    def add(self, **ms):
        for name, value in ms.items():
            self.got.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self.got[name])

    def low(self, name):
        """The first decile: what it takes when nobody else wants the cores."""
        return sorted(self.got[name])[len(self.got[name]) // 10]


def once(samples, raw, shm, shunt, brief, library, plain):
    sent, whole, reply = shunt.exchange()
    t = {k: float(v) for k, v in re.findall(r"(\w+);dur=([0-9.]+)", reply.head)}
    samples.add(whole=whole, sent=sent, over=whole - t["total"], total=t["total"], body=t["body"],
                trip=t["answer"] - t["total"], rest=whole - t["body"] - t["answer"])
    filled = shm.write(raw)
    whole, reply = brief.exchange()[1:]
    total = float(re.search(r"total;dur=([0-9.]+)", reply.head).group(1))
    samples.add(filled=filled, brief=filled + whole - total)
    samples.add(library=library.exchange()[1])
    samples.add(socket=plain.exchange()[1])


def show(s):
    rows = (("whole", "first byte sent to reply, whole system"),
            ("sent", "  of it: the client's send()"),
            ("body", "  request line to the body's end"),
            ("trip", "  to scheduler and executor, and back"),
            ("total", "  the executor: from RUN to its result"),
            ("rest", "  to the request line, and the reply"),
            ("over", "whole system less the executor"),
            ("brief", "the same with shared memory, and filling it"),
            ("filled", "  of it: the client fills it"),
            ("library", "libmicrohttpd that only reads"),
            ("socket", "send, recv, memcpy"))
    print("%-42s %9s %9s %7s" % ("", "median ms", "decile ms", "share"))
    for name, text in rows:
        print("%-42s %9.3f %9.3f %6.0f%%" % (text, s.median(name), s.low(name),
                                             100 * s.median(name) / s.median("whole")))
    for name, text in (("library", "libmicrohttpd that only reads"), ("socket", "send, recv, memcpy")):
        print("less the executor, over %s: %.2f (decile %.2f)" % (
            text, s.median("over") / s.median(name), s.low("over") / s.low(name)))
    print(GOALS)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--runs", type=int, default=100)
    p.add_argument("--rest-ms", type=float, default=5, help="between two requests")
    p.add_argument("--api-threads", type=int, default=2)
    p.add_argument("--busy-poll-us", type=int, default=0, help="of all daemons")
    args = p.parse_args()
    s = System("--workers=2", THREADS=str(args.api_threads), CLIENT_SHM="any",
               BUSY_POLL_US=str(args.busy_poll_us))
    raw = os.urandom(SHAPE[0] * IMAGE)
    shm = SharedMemory("shunt-bench-%d" % os.getpid(), len(raw))
    try:
        key = s.tenant("bench")
        s.push(key, "first", first_values(), max_batch=SHAPE[0])
        request = v2_request(key, "first", "x", SHAPE, raw)
        shm.register(s, key, "x")
        brief = shm_request(key, "first", [("x", "FP32", SHAPE, len(raw))], "x")
        with Peer("library", args.api_threads) as library, Peer("socket") as plain:
            connections = [Connection(s.port, request), Connection(s.port, brief),
                           Connection(library.port, request), Connection(plain.port, request)]
            samples = Samples()
            for i in range(10 + args.runs):
                time.sleep(args.rest_ms / 1e3)
                once(samples if i >= 10 else Samples(), raw, shm, *connections)
        show(samples)
    finally:
        shm.close()
        s.stop()


if __name__ == "__main__":
    main()
