#!/usr/bin/env python3
"""Where versions live, on a system with four executors: packed while nobody asks, apart and in copies
while many do, elsewhere when an executor dies.

Without it: every version could be loaded on every executor, or a popular one keep its only copy; a
change of mix could leave placement behind for long, or for ever; and the end of an executor could
leave its versions without a home until it is back.

Usage: test_placement.py [-v] [name ...]
"""
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import Story, System, until  # noqa: E402

N_EXECUTORS, MODELS = 4, ["a", "b", "c", "d", "e", "f"]
WIDTH, DEPTH = 512, 400  # a run takes much longer than its request
X = [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.5] * WIDTH}]
FOLLOWS_S, MOVES_S = 30, 10  # on an idle machine a third and a fifth of that


class Load(threading.Thread):
    """Clients of one model, each with one request at a time, until end()."""

    def __init__(self, s, key, model, n, inputs=X):
        super().__init__(daemon=True)
        self.inputs = inputs
        self.s, self.key, self.model, self.stop, self.answered, self.refused = s, key, model, threading.Event(), 0, []
        self.clients = [threading.Thread(target=self.ask, daemon=True) for _ in range(n)]
        for c in self.clients:
            c.start()

    def ask(self):
        while not self.stop.is_set():
            r = self.s.infer(self.key, self.model, self.inputs)
            if r.status == 200:
                self.answered += 1
            else:
                self.refused.append(r)
                time.sleep(0.02)

    def end(self):
        self.stop.set()
        for c in self.clients:
            c.join()


class Placement(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--executors=%d" % N_EXECUTORS, "--workers=2", "--pool-bytes=256M")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("anna")
        net = onnx.chain(DEPTH, WIDTH)
        for m in MODELS:
            s.push(cls.key, m, net, max_batch=1)

    def homes(self, model):
        r = self.s.call("GET", "/api/v1/models/%s/versions/1/placements" % model, key=self.key)
        return {p["executor"] for p in r.json["placements"] if p["state"] == "READY"}

    def moves(self):
        return {k.split('"')[1]: v for k, v in self.s.metrics("scheduler").items()
                if k.startswith("shunt_placement_moves_total")}

    def packed(self):
        """Each has one home, and one executor holds all of them."""
        return len({tuple(self.homes(m)) for m in MODELS}) == 1 and len(self.homes(MODELS[0])) == 1

    def infer(self, model):
        return self.s.infer(self.key, model, X)

    def test_1_what_nobody_asks_for_is_packed(self):
        until("all are on one executor", self.packed)
        self.assertEqual(len(self.s.call("GET", "/api/v1/executors", key=self.key).json["items"]), N_EXECUTORS)
        time.sleep(3)
        self.assertTrue(self.packed())
        self.assertEqual(self.moves().get("homeless"), len(MODELS))

    def test_2_placement_follows_a_change_of_mix(self):
        for popular, n in (("a", 6), ("f", 6)):
            load = Load(self.s, self.key, popular, n)
            began = time.monotonic()
            try:
                until("%s has more homes" % popular, lambda: len(self.homes(popular)) > 1, FOLLOWS_S)
                took = time.monotonic() - began
            finally:
                load.end()
            print("\n%s in demand: %d homes after %.1f s, %d answered, %d refused" % (
                popular, len(self.homes(popular)), took, load.answered, len(load.refused)), file=sys.stderr)
            self.assertEqual(load.refused, [])
        self.assertGreater(self.moves().get("grow", 0), 0)
        until("copies that nobody needs go", lambda: all(len(self.homes(m)) == 1 for m in MODELS), 60)
        self.assertGreater(self.moves().get("shrunk", 0), 0)

    def test_3_the_end_of_an_executor_moves_its_work(self):
        self.assertEqual(self.infer("c").status, 200)
        home, = self.homes("c")
        with self.s.held():  # it does not come back
            died = time.monotonic()
            self.s.kill("executor-" + home)
            until("it answers elsewhere", lambda: self.infer("c").status == 200, MOVES_S)
            took = time.monotonic() - died
            for m in MODELS:  # all that lived there, with or without a wait
                until("%s answers" % m, lambda m=m: self.infer(m).status == 200, 30)
        print("\nthe home of c is dead: answered elsewhere after %.2f s" % took, file=sys.stderr)
        self.assertTrue(until("another home", lambda: self.homes("c") - {home}))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
