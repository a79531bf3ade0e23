#!/usr/bin/env python3
"""An executor that was restarted brings weights to its device before somebody asks for them.

Without it: after each restart, and at each new home of a version, the first request for each version would wait
for all of its weights, beside a link with nothing to do.

Copies are slowed down: the weights of a model, in 16 layers, take 168 ms.
"""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import Story, System, until  # noqa: E402

WIDTH, LAYERS = 512, 16
IMAGE = WIDTH * WIDTH * 4 * LAYERS
MODELS = {"little": 1, "much": 4}  # so many requests
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.5] * WIDTH}]}).encode()


def deep(seed):
    names = ["x"] + ["h%d" % i for i in range(1, LAYERS)] + ["y"]
    weights = [onnx.tensor("w%d" % i, [WIDTH, WIDTH], [((k * 7 + i + seed) % 11 - 5) / (4 * WIDTH)
                                                       for k in range(WIDTH * WIDTH)]) for i in range(LAYERS)]
    nodes = [onnx.node("MatMul", [a, "w%d" % i], [b]) for i, (a, b) in enumerate(zip(names, names[1:]))]
    return onnx.model(nodes, [onnx.value("x", ["N", WIDTH])], [onnx.value("y", ["N", WIDTH])], weights)


class BringAhead(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2", "--copy-gb-per-s=0.1", "--pool-bytes=96M", "--port=0", "--threads=1")
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("anna")
        for i, name in enumerate(MODELS):
            cls.s.push(cls.key, name, deep(i), max_batch=1)

    def ask(self, name):
        r = self.s.call("POST", "/v2/models/%s/infer" % name, BODY, self.key, {"Content-Type": "application/json"})
        self.assertEqual(r.status, 200, r)
        return dict(part.strip().split(";dur=") for part in r.headers["server-timing"].split(","))

    def brought(self):
        try:
            series = self.s.metrics("executor-cpu0")
        except OSError:  # it starts
            return 0
        return sum(v for k, v in series.items() if k.startswith("shunt_ahead_bytes_total") and 'outcome="brought"' in k)

    def test_1_what_was_asked_for_is_there_again_before_anybody_asks(self):
        for name, n in MODELS.items():
            for _ in range(n):
                self.ask(name)
        self.s.wait_new("executor-cpu0", self.s.kill("executor-cpu0"))
        until("the weights are there", lambda: self.brought() >= IMAGE * len(MODELS))
        for name in MODELS:
            self.assertEqual(float(self.ask(name)["copy"]), 0, name)


if __name__ == "__main__":
    unittest.main()
