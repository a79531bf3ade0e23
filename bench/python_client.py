#!/usr/bin/env python3
"""The Python client beside tritonclient, in turns against the same system: time of a request with one sample of
256 bytes and with eight of 0.6 MB each, one after the other, and of the former from 16 threads.

Prints the ratio of each turn's times, ours over theirs, and their median. At most --limit is promised.
"""
import argparse
import os
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "python"), os.path.join(ROOT, "python", "src")]
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402
import tritonclient.http as triton  # noqa: E402
import sync  # noqa: E402
from onnx_bytes import linear  # noqa: E402
from system import System, zoo  # noqa: E402

sync.main()
import shunt  # noqa: E402


class Ours:
    def __init__(self, url, key, threads):
        self.client = shunt.Client("http://" + url, key, max_connections=threads)

    def infer(self, model, x):
        return next(iter(self.client.infer(model, {"x": x}).values()))


class Theirs:
    def __init__(self, url, key, threads):
        self.client = triton.InferenceServerClient(url, concurrency=threads)
        self.headers = {"authorization": "Bearer " + key}

    def infer(self, model, x):
        value = triton.InferInput("x", list(x.shape), "FP32")
        value.set_data_from_numpy(x)
        reply = self.client.infer(model, [value], headers=self.headers)
        return reply.as_numpy(reply.get_response()["outputs"][0]["name"])


def in_turn(client, model, x, requests):
    begin = time.perf_counter()
    for _ in range(requests):
        client.infer(model, x)
    return time.perf_counter() - begin


def at_once(client_of, model, x, requests, threads):
    """client_of: a client for the thread that calls it; tritonclient's is bound to its thread."""
    started = threading.Barrier(threads + 1)

    def work():
        client = client_of()
        client.infer(model, x)
        started.wait()
        in_turn(client, model, x, requests // threads)

    each = [threading.Thread(target=work) for _ in range(threads)]
    for t in each:
        t.start()
    started.wait()
    begin = time.perf_counter()
    for t in each:
        t.join()
    return time.perf_counter() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--turns", type=int, default=15)
    p.add_argument("--requests", type=int, default=300, help="in a turn")
    p.add_argument("--limit", type=float, default=1.1)
    args = p.parse_args()
    worst = 0.0
    with System() as s:
        key, url = s.tenant("bench"), "127.0.0.1:%d" % s.port
        s.push(key, "small", zoo("digits-cnn"), max_batch=8)
        s.push(key, "large", linear(3 * 224 * 224, 4), max_batch=8)
        rng = np.random.default_rng(1)
        small, large = rng.random((1, 1, 8, 8), np.float32), rng.random((8, 3 * 224 * 224), np.float32)
        ours, theirs = Ours(url, key, 1), Theirs(url, key, 1)
        shared = Ours(url, key, 16)
        cases = [("256 bytes", lambda: in_turn(ours, "small", small, args.requests),
                  lambda: in_turn(theirs, "small", small, args.requests)),
                 ("4.8 MB", lambda: in_turn(ours, "large", large, args.requests // 10),
                  lambda: in_turn(theirs, "large", large, args.requests // 10)),
                 ("256 bytes, 16 threads", lambda: at_once(lambda: shared, "small", small, args.requests, 16),
                  lambda: at_once(lambda: Theirs(url, key, 1), "small", small, args.requests, 16))]
        for what, mine, other in cases:
            mine(), other()
            ratios = [mine() / other() if turn % 2 else 1 / (other() / mine()) for turn in range(args.turns)]
            median = statistics.median(ratios)
            worst = max(worst, median)
            print("%-24s ours over tritonclient, median of %d turns: %.3f (%.3f to %.3f)" % (
                what, len(ratios), median, min(ratios), max(ratios)), flush=True)
    print("at most %.2f: %s" % (args.limit, "holds" if worst <= args.limit else "DOES NOT HOLD"))
    return worst > args.limit


if __name__ == "__main__":
    sys.exit(main())
