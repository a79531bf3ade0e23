#!/usr/bin/env python3
"""Latency targets with on_miss reject on a device whose pool is too small for all models and whose link
is slow: a refusal is never for ever, and what one stall of the host did is not held against a model.

Without it: a model whose image was evicted could be refused until somebody restarts it, and a single slow
run could take a model out of service for as long as runs are remembered.

Usage: test_targets.py [-v] [name ...]
"""
import os
import signal
import struct
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import Story, System, until  # noqa: E402

FEATURES = 2048
X = [{"name": "x", "shape": [1, FEATURES], "datatype": "FP32", "data": [0.5] * FEATURES}]


def layers(n):
    """n layers of 16 MiB each; a run computes for some ms."""
    raw = struct.pack("<8f", *(0.01 * i for i in range(8))) * (FEATURES * FEATURES // 8)
    names = ["x"] + ["y%d" % i for i in range(n)]
    return onnx.model([onnx.node("MatMul", [names[i], "w%d" % i], [names[i + 1]]) for i in range(n)],
                      [onnx.value("x", ["N", FEATURES])], [onnx.value(names[-1], ["N", FEATURES])],
                      [onnx.tensor("w%d" % i, [FEATURES, FEATURES], [], raw=raw) for i in range(n)])


class Targets(Story):
    @classmethod
    def setUpClass(cls):
        # Two of the three images fit; one takes about 0.7 s to copy, many times what it computes.
        cls.s = s = System("--workers=2", "--pool-bytes=140M", "--copy-gb-per-s=0.1")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        net = layers(4)
        for n in "abc":
            s.push(cls.key, n, net, max_batch=1)

    def target(self, model, ms, on_miss="reject"):
        r = self.s.call("PUT", "/api/v1/models/%s/slo" % model, {"latency_ms": ms, "on_miss": on_miss}, self.key)
        self.assertEqual(r.status, 200, r)

    def infer(self, model):
        return self.s.infer(self.key, model, X)

    def test_a_refused_request_brings_the_image(self):
        for n in "abc" * 8:
            self.assertEqual(self.infer(n).status, 200)
        for n in "abc":
            self.target(n, 400)
        # The scheduler knows the targets: one that nobody can meet refuses.
        self.target("a", 0.001)
        until("they count", lambda: "0.001 ms" in self.infer("a").error)
        self.target("a", 400)
        until("the new target counts", lambda: "0.001 ms" not in self.infer("a").error)
        refused = served = 0
        for n in "abcabc":
            end = time.monotonic() + 60
            while (r := self.infer(n)).status != 200:
                if r.status != 504:  # let in, and late: the machine did something else
                    self.assertEqual(r.status, 503, r)
                    self.assertIn("retry-after", r.headers, r)  # it is true: the image is on its way
                    if r.code != "SLO":  # or it is shut for a while: the three push each other out
                        self.assertIn("do not fit into device memory together", r.error, r)
                    refused += r.code == "SLO"
                self.assertLess(time.monotonic(), end, r)
                time.sleep(0.02)
            served += 1
        self.assertEqual(served, 6)
        self.assertGreater(refused, 0)  # else the pool was large enough for all

    def after_a_stall(self, pids):
        """The answer to a request whose run stands still for longer than the target, then refusals until one is served."""
        for _ in range(20):
            self.assertEqual(self.infer("a").status, 200)
        got = []
        asks = threading.Thread(target=lambda: got.append(self.infer("a")))
        try:
            for p in pids:
                os.kill(p, signal.SIGSTOP)
            asks.start()
            time.sleep(1.2)  # what is measured, not a wait
        finally:
            for p in pids:
                os.kill(p, signal.SIGCONT)
        asks.join()
        refused = 0
        while (r := self.infer("a")).status != 200:
            self.assertEqual((r.status, r.code), (503, "SLO"), r)
            self.assertIn("retry-after", r.headers, r)
            refused += 1
            time.sleep(0.02)
        return refused

    def ask_until(self, stop, model, say):
        while not stop.is_set():
            say(model, self.s.infer(self.key, model, X, parameters={"timeout": 1000000}))

    def test_who_has_no_deadline_waits_for_a_model_that_is_shut(self):
        for n in "def":
            self.s.push(self.key, n, layers(4), max_batch=1)
        counted = 'shunt_decisions_total{decision="wait",rule="Thrashing"}'
        stop, shut, answers = threading.Event(), [], []

        def say(model, r):
            if "do not fit into device memory together" in r.error:
                self.assertEqual((r.status, r.code), (503, "UNAVAILABLE"), r)
                shut.append(model)
                time.sleep(0.05)

        others = [threading.Thread(target=self.ask_until, args=(stop, n, say)) for n in "defdef"]
        for t in others:
            t.start()
        try:
            until("one is shut", lambda: shut, 120)
            until("people are told", lambda: any(
                "this one is shut for now (rule Thrashing)" in self.s.cli("-n", "vision", "explain", n).decode()
                for n in "def"), 120)

            def asks():
                answers.append(self.s.infer(self.key, shut[-1], X))

            # It may be opened, or be there by chance, before somebody asks.
            until("one waits", lambda: asks() or self.s.metrics("scheduler").get(counted, 0), 120)
        finally:
            stop.set()
            for t in others:
                t.join()
        self.assertEqual([r.status for r in answers], [200] * len(answers), answers)

    def test_one_slow_run_is_not_held_against_the_model(self):
        self.target("a", 1000)
        until("it is there", lambda: self.infer("a").status == 200)
        for pids in (self.s.workers(), [self.s.pid("executor-cpu0")]):
            self.assertLess(self.after_a_stall(pids), 10)  # it would be hundreds, for 10 s


if __name__ == "__main__":
    unittest.main()
