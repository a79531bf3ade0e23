#!/usr/bin/env python3
"""What workers prepare for runs that come again, on the fake device, which prepares as its nodes say.

Without it: a model whose launches a device cannot prepare would cost its worker the attempt at each
run, and write a warning each time; nobody could see how much is prepared beside the arena; or a
model that has gone would leave it there.

Usage: test_prepared.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import os
import re
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exec_driver import WAIT_S, Driver  # noqa: E402
import onnx_bytes as onnx  # noqa: E402

WORKERS = 2  # each prepares for itself, once it has had a run
PREPARED = 'shunt_prepared_ranges{executor="e0"}'


class Prepared(unittest.TestCase):
    def setUp(self):
        self.d = Driver("--device=fake", "--pool-bytes=64M", "--workers=%d" % WORKERS)
        self.addCleanup(self.d.close)
        self.d.start()

    def load(self, version, name):
        path = os.path.join(self.d.dir, "%d.onnx" % version)
        with open(path, "wb") as f:
            f.write(onnx.model([onnx.node("Softmax", ["x"], ["y"], name)], [onnx.value("x", ["N", 4])],
                               [onnx.value("y", ["N", 4])]))
        self.package = self.d.package(path)[0]
        self.d.load(version, self.package, max_batch=2)

    def run_until(self, version, batch, test, what):
        """Something is prepared behind a run that comes again and no other one waits behind."""
        end = time.monotonic() + WAIT_S
        while not test():
            self.assertLess(time.monotonic(), end, what)
            r, _ = self.d.result(self.d.run(version, [bytes(16 * batch)], [16 * batch], batch))
            self.assertEqual((r.rc, r.msg), (0, ""))
            self.d.rest(0.01)

    def run_often(self, version, batch):
        runs = iter(range(20))
        self.run_until(version, batch, lambda: next(runs, None) is None, "")

    def warnings(self):
        """The batch of each, in their order."""
        with open(os.path.join(self.d.dir, "executor.log")) as f:
            return [int(m) for m in re.findall(r"run\.prepare .*DEVMEM.* at batch (\d+)", f.read())]

    def n_prepared(self):
        return self.d.metrics().get(PREPARED)

    def unload(self):
        self.d.scheduler.send("MODEL_UNLOAD", epoch=1, version_id=1)
        self.d.wait(lambda: self.d.states[1].phase == "GONE", WAIT_S, "GONE")

    def test_what_comes_again_is_prepared_and_goes_with_its_model(self):
        self.load(1, "probabilities")
        self.run_until(1, 1, lambda: self.n_prepared() >= 1, "a batch of 1 is prepared")
        one = self.n_prepared()
        self.run_until(1, 2, lambda: self.n_prepared() > one, "a batch of 2 is prepared")
        self.run_often(1, 1)
        self.assertLessEqual(self.n_prepared(), 2 * WORKERS)
        self.assertEqual(self.warnings(), [])
        self.unload()
        self.d.wait(lambda: self.n_prepared() == 0, WAIT_S, "end of what was prepared")

    def expect_warnings(self, batches, most_each):
        got = self.warnings()
        self.assertEqual(sorted(set(got)), batches)
        for batch in batches:
            self.assertLessEqual(got.count(batch), most_each, got)

    def test_what_cannot_be_prepared_is_tried_once_until_the_model_is_loaded_anew(self):
        self.load(1, "probabilities !prepare=DEVMEM")
        for batch, want in ((1, [1]), (2, [1, 2])):  # each batch is a program of its own
            self.run_until(1, batch, lambda b=batch: b in self.warnings(), "a warning")
            self.run_often(1, 1)
            self.expect_warnings(want, WORKERS)
        before = len(self.warnings())
        self.unload()
        self.d.load(1, self.package, max_batch=2)
        self.run_until(1, 1, lambda: len(self.warnings()) > before, "a warning")
        self.run_often(1, 1)
        self.expect_warnings([1, 2], 2 * WORKERS)
        self.assertEqual(self.n_prepared(), 0)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
