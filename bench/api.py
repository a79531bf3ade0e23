#!/usr/bin/env python3
"""What one request of the inference protocol costs, and how many go through in a second.

A model of one small addition, requests and replies of a few hundred bytes, N connections that send
one after the other: to the whole system (`shunt up`) and, in turns, to libmicrohttpd that sends back
what it reads, with as many threads. Both have the same client on the same cores. Server-Timing of a
request at a time says which part takes what. With --beside FOLDER the peer is the system of the
programs in FOLDER/build/bin, with what each takes of the processors (lib/beside.py). With --grpc the
same requests go over gRPC and over HTTP, in turns, to one system.

Standard library only.
"""
import argparse
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in ("tests/e2e", "bench/lib"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import onnx_bytes as onnx  # noqa: E402
import beside  # noqa: E402
from http_client import PROGRAM, Connection, Peer, grpc_request, v2_request  # noqa: E402
from system import System  # noqa: E402

GOALS = "goals: 0.35 of the echo's throughput at 16 connections; 0.5 ms at one (median)"


def small():
    return onnx.model([onnx.node("Add", ["x", "b"], ["y"])], [onnx.value("x", ["N", 4])],
                      [onnx.value("y", ["N", 4])], [onnx.tensor("b", [4], [1.0] * 4)])


def load(port, request, connections, seconds, kind="load"):
    out = subprocess.run([PROGRAM, kind, str(port), str(connections), str(seconds)], check=True,
                         input=b"".join(request), stdout=subprocess.PIPE).stdout
    r = json.loads(out)
    assert r["failed"] == 0, r
    return {**r, "rate": r["requests"] / r["seconds"]}


def compare(ports, request, connections, args):
    """Rounds in turns; the median round of each."""
    got = {name: [] for name in ports}
    for _ in range(args.rounds):
        for name, port in ports.items():
            got[name].append(load(port, request, connections, args.seconds))
    of = {name: {k: statistics.median(r[k] for r in rounds) for k in ("rate", "p50_ms", "p99_ms")}
          for name, rounds in got.items()}
    for name, r in of.items():
        print("%-6s %3d connections: %8.0f requests/s  p50 %7.3f ms  p99 %7.3f ms" % (
            name, connections, r["rate"], r["p50_ms"], r["p99_ms"]))
    print("       %3d connections: %.3f of the echo's throughput, p50 %.1f times the echo's" % (
        connections, of["shunt"]["rate"] / of["echo"]["rate"],
        of["shunt"]["p50_ms"] / of["echo"]["p50_ms"]))


def hops(port, request, runs):
    c, got = Connection(port, request), {}
    for i in range(runs + 20):
        _, whole, reply = c.exchange()
        t = {k: float(v) for k, v in re.findall(r"(\w+);dur=([0-9.]+)", reply.head)}
        for k, v in (("request line to the body's end", t["body"]),
                     ("to scheduler and executor, and back", t["answer"] - t["total"]),
                     ("the executor: from RUN to its result", t["total"]),
                     ("  of it: in the worker", t["compute"]),
                     ("network, client, reply", whole - t["body"] - t["answer"]), ("whole", whole)):
            if i >= 20:
                got.setdefault(k, []).append(v)
    whole = statistics.median(got["whole"])
    for k, v in got.items():
        print("  %-38s %7.3f ms %5.0f%%" % (k, statistics.median(v), 100 * statistics.median(v) / whole))


class Side:
    def __init__(self, args, **programs):
        self.s = System("--workers=2", THREADS=str(args.api_threads), **programs)
        key = self.s.tenant("bench")
        self.s.push(key, "small", small(), max_batch=8)
        what = (key, "small", "x", [1, 4], struct.pack("<4f", 1, 2, 3, 4))
        self.request, self.call = v2_request(*what), grpc_request(*what)

    def requests(self, connections, seconds):
        got = load(self.s.port, self.request, connections, seconds)
        return got["requests"], got["seconds"], beside.cpu_s(self.s)

    def rounds(self, connections, args):
        """Of both front ends, in turns: requests a second, median latency."""
        sides = {"http": (self.s.port, self.request, "load"), "grpc": (self.s.port + 1, self.call, "grpc")}
        got = {name: [] for name in sides}
        for i in range(args.rounds):
            for name in sorted(sides, reverse=i % 2 == 1):
                port, request, kind = sides[name]
                got[name].append(load(port, request, connections, args.seconds, kind))
        return got


def grpc_beside_http(args):
    side = Side(args)
    try:
        for n in args.connections:
            side.rounds(n, argparse.Namespace(rounds=1, seconds=.3))  # to warm up
            got = side.rounds(n, args)
            for name, rounds in sorted(got.items()):
                print("%-6s %3d connections: %8.0f requests/s  p50 %7.3f ms  p99 %7.3f ms" % (
                    name, n, *(statistics.median(r[k] for r in rounds) for k in ("rate", "p50_ms", "p99_ms"))))
            pairs = list(zip(got["grpc"], got["http"]))
            print("       %3d connections: gRPC has %.3f of HTTP's throughput, its p50 is %.3f of HTTP's "
                  "(medians of %d rounds)" % (
                      n, statistics.median(g["rate"] / h["rate"] for g, h in pairs),
                      statistics.median(g["p50_ms"] / h["p50_ms"] for g, h in pairs), len(pairs)))
    finally:
        side.s.stop()


def beside_another(args):
    """Both begin anew in each round: where its memory lies gives a system some per cent for all its life."""
    beside.in_memory()
    turns = beside.Beside()
    for i in range(args.rounds):
        sides = []
        try:
            for programs in ({}, {"programs": os.path.join(args.beside, "build", "bin")}):
                sides.append(Side(args, **programs))
            for n in args.connections:
                def requests(side, n=n):
                    return side.requests(n, args.seconds)
                for side in sides:  # to warm up
                    requests(side)
                for k in range(4):
                    turns.pair("%3d connections" % n, *sides, requests, i + k)
        finally:
            for side in sides:
                side.s.stop()
    print("over %s, medians of pairs and their quartiles:" % args.beside)
    turns.report("request")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--seconds", type=float, help="of each round: 1; with --beside 0.5")
    p.add_argument("--rounds", type=int, help="5; with --beside 12")
    p.add_argument("--beside", metavar="FOLDER", help="another build, to compare with")
    p.add_argument("--grpc", action="store_true", help="over gRPC beside HTTP, instead of an echo")
    p.add_argument("--connections", type=lambda s: [int(n) for n in s.split(",")], default=[1, 16])
    p.add_argument("--api-threads", type=int, default=2)
    args = p.parse_args()
    args.rounds = args.rounds or (12 if args.beside else 5)
    args.seconds = args.seconds or (.5 if args.beside else 1)
    if args.beside or args.grpc:
        (beside_another if args.beside else grpc_beside_http)(args)
        return
    ours = Side(args)
    try:
        time.sleep(1)
        hops(ours.s.port, ours.request, 500)
        with Peer("library", args.api_threads) as echo:
            for n in args.connections:
                compare({"shunt": ours.s.port, "echo": echo.port}, ours.request, n, args)
        print(GOALS)
    finally:
        ours.s.stop()


if __name__ == "__main__":
    main()
