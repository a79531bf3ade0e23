#!/usr/bin/env python3
"""Readiness and restarts of a whole system: what is said to be ready is served, at every moment.

Without it: load balancers would send requests to a server that refuses them, for as long as its
models are loaded again after an executor has died or the system was stopped; those requests would be
lost; a small model would wait behind a large one.

Usage: test_ready.py [-v] [name ...]
"""
import glob
import json
import os
import re
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import Story, System, until, zoo  # noqa: E402

LARGE, SMALL = "a-large", ["small-%d" % i for i in range(8)]
ZEROS = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3, 224, 224],
                                "parameters": {"binary_data_size": 4 * 3 * 224 * 224}}],
                    "parameters": {"binary_data_output": True}}).encode()


class Client(threading.Thread):
    """Goes by readiness: of a model, and of the whole server."""

    def __init__(self, s, key, models):
        super().__init__(daemon=True)
        self.s, self.key, self.models, self.stop = s, key, models, threading.Event()
        self.served, self.broken = 0, []
        self.start()

    def infer(self, model):
        if model == LARGE:
            return self.s.call("POST", "/v2/models/%s/infer" % model, ZEROS + b"\0" * (4 * 3 * 224 * 224),
                               self.key, {"Inference-Header-Content-Length": str(len(ZEROS))})
        return self.s.infer(self.key, model, [{"name": "x", "datatype": "FP32", "shape": [1, 4],
                                               "data": [1, 2, 3, 4]}])

    def run(self):
        i = 0
        while not self.stop.is_set():
            model = self.models[i % len(self.models)]
            i += 1
            try:
                at = "/v2/health/ready" if i % 3 == 0 else "/v2/models/%s/ready" % model
                if self.s.call("GET", at, key=self.key).status != 200:
                    time.sleep(0.01)
                    continue
                r = self.infer(model)
            except OSError:  # `shunt down`: nobody listens
                time.sleep(0.01)
                continue
            if r.status == 200:
                self.served += 1
            else:
                self.broken.append((model, at, r))

    def end(self):
        self.stop.set()
        self.join()


class Ready(Story):
    @classmethod
    def setUpClass(cls):
        # A request that an executor's death has hit waits for the next one. That takes long where one
        # dies five times in a row and nothing is kept: the supervisor pauses in between.
        cls.s = System("--workers=2", "--pool-bytes=512M", LOAD_WAIT_MS="60000")
        cls.key = cls.s.tenant("lab")
        cls.s.push(cls.key, LARGE, zoo("resnet18"), max_batch=2)
        for name in SMALL:
            cls.s.push(cls.key, name, onnx.linear(), max_batch=2)

    @classmethod
    def tearDownClass(cls):
        cls.s.stop()

    def setUp(self):
        until("all are ready", self.all_ready)
        self.clients = [Client(self.s, self.key, m) for m in (SMALL, [LARGE], SMALL[:1])]

    def tearDown(self):
        for c in self.clients:
            c.end()
        for c in self.clients:
            self.assertEqual(c.broken, [], "said to be ready, and not served")
            self.assertGreater(c.served, 0)

    def all_ready(self):
        return self.s.call("GET", "/v2/health/ready").status == 200

    def states(self):
        """{model: state} by each of those who tell."""
        index = self.s.call("POST", "/v2/repository/index", {}, key=self.key).json
        models = self.s.call("GET", "/api/v1/models", key=self.key).json["items"]
        return {"index": {m["name"]: m["state"] for m in index},
                "ready": {m: self.s.call("GET", "/v2/models/%s/ready" % m, key=self.key).status
                          for m in (*SMALL, LARGE)},
                "models": {m["name"]: m["versions"][0]["state"] for m in models},
                "version": {m: self.s.call("GET", "/api/v1/models/%s/versions/1" % m,
                                           key=self.key).json["state"] for m in (*SMALL, LARGE)}}

    def served_all(self):
        return all(self.clients[0].infer(m).status == 200 for m in (*SMALL, LARGE))

    def kept(self):
        return glob.glob(os.path.join(self.s.state, "kept", "*.kept"))

    def builds(self):
        """[(model, was it kept)] in the order in which they began to be loaded."""
        return [re.search(r" model=(\S+) .* kept=(\d)", line).groups()
                for line in self.s.logged("executor-cpu0", "model.build")]

    def mapped(self):
        """Is the image of the last large one what is kept of it, or a copy?"""
        return [re.search(r" mapped=(\d)", line)[1]
                for line in self.s.logged("executor-cpu0", "model.ready") if " model=%s " % LARGE in line][-1]

    def kill_and_wait(self):
        """What was loaded then."""
        n = len(self.builds())
        self.s.wait_new("executor-cpu0", self.s.kill("executor-cpu0"))
        until("all are loaded again", lambda: len(self.builds()) == n + len(SMALL) + 1)
        until("all are ready again", self.all_ready)
        self.assertTrue(self.served_all())
        return self.builds()[n:]

    def test_what_loading_has_made_is_kept(self):
        """And is made anew where it is not there, or not whole."""
        def kept_of(builds):
            return [k for m, k in builds if m == LARGE]
        for path in glob.glob(os.path.join(self.s.state, "kept", "*.part-*")):
            os.unlink(path)  # an executor was killed while it loaded
        until("both are written", lambda: len(self.kept()) == 2)  # the small ones are one file
        with open(max(self.kept(), key=os.path.getsize), "r+b"):  # so it could be cut off
            self.assertEqual(kept_of(self.kill_and_wait()), ["1"])
        self.assertEqual(self.mapped(), "0")
        self.assertEqual(kept_of(self.kill_and_wait()), ["1"])
        self.assertEqual(self.mapped(), "1")
        largest = max(self.kept(), key=os.path.getsize)
        with open(largest, "r+b") as f:
            f.seek(os.path.getsize(largest) // 2)
            byte = f.read(1)
            f.seek(-1, 1)
            f.write(bytes([byte[0] ^ 1]))
        n = len(self.s.logged("executor-cpu0", "model.kept"))
        self.assertEqual(kept_of(self.kill_and_wait()), ["1"])  # it looked good
        self.assertIn("damaged image", self.s.logged("executor-cpu0", "model.kept")[n])
        for path in self.kept():
            os.unlink(path)
        for junk in ("README", "x.part-1", "0" * 64 + "-" + "1" * 64 + ".kept"):
            with open(os.path.join(self.s.state, "kept", junk), "w") as f:
                f.write("junk")
        builds = self.kill_and_wait()
        self.assertEqual(kept_of(builds), ["0"])
        # It was pushed first. A worker that has nothing else to do may begin it before the last small one.
        self.assertGreater(builds.index((LARGE, "0")), len(SMALL) // 2,
                           "small ones waited behind the large one")
        until("both are written", lambda: len(self.kept()) == 2)
        self.assertEqual(sorted(os.listdir(os.path.join(self.s.state, "kept"))),
                         sorted(os.path.basename(p) for p in self.kept()))
        self.assertEqual(kept_of(self.kill_and_wait()), ["1"])

    def test_an_executor_is_killed(self):
        until("requests run", lambda: all(c.served > 3 for c in self.clients))
        with self.s.held():
            old = self.s.kill("executor-cpu0")
            until("it is noticed", lambda: not self.all_ready())
            said = self.states()
            for who, bad in (("index", "READY"), ("ready", 200), ("models", "READY"), ("version", "READY")):
                self.assertNotIn(bad, said[who].values(), who)
            r = self.s.call("GET", "/v2/health/ready")
            self.assertEqual((r.json["executors"], "no executor" in r.error), (0, True), r)
        self.s.wait_new("executor-cpu0", old)
        until("all are ready again", self.all_ready)
        self.assertTrue(self.served_all())

    def test_an_executor_dies_again_and_again(self):
        for _ in range(3):
            before = [c.served for c in self.clients]
            until("requests run", lambda: all(c.served > b for c, b in zip(self.clients, before)))
            self.s.wait_new("executor-cpu0", self.s.kill("executor-cpu0"))
        until("all are ready again", self.all_ready)
        self.assertTrue(self.served_all())

    def test_the_system_is_stopped_and_started(self):
        until("requests run", lambda: all(c.served for c in self.clients))
        for c in self.clients:
            c.served = 0
        self.s.cli("down")
        self.s.cli("up", "--port=%d" % self.s.port, "--workers=2", "--pool-bytes=512M", "--threads=1")
        until("all are ready again", self.all_ready)
        self.assertTrue(self.served_all())
        until("requests run", lambda: all(c.served for c in self.clients))


if __name__ == "__main__":
    unittest.main()
