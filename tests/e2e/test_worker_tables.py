#!/usr/bin/env python3
"""Workers of one pool that compile a model to different programs, as other kernels would make them.

Without it: a worker that needs more workspace than the builder of the model could write over the
memory behind its run, and one with another image could compute with the wrong weights.

The package is replaced by one with the same weights and larger intermediate results, or with others;
a worker that starts after that compiles what it finds.

Usage: test_worker_tables.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import os
import re
import shutil
import signal
import struct
import unittest

import onnx_bytes as ob
from exec_driver import WAIT_S, Driver
from test_executor import floats

FEATURES, CLASSES, WIDE = 64, 1 << 16, 1 << 20  # 16 MiB of weights; WIDE: floats a sample


def net(path, wide=False, classes=CLASSES):
    """y = x W; the wide one takes a detour over relu(x) written many times; x is not negative."""
    nodes = [ob.node("MatMul", ["x", "w"], ["y"])]
    inits = [ob.tensor("w", [FEATURES, classes], [], raw=struct.pack("<64f", *range(-32, 32)) * classes)]
    if wide:
        inits += [ob.tensor("from", [1], [WIDE - FEATURES], ob.INT64),
                  ob.tensor("to", [1], [WIDE], ob.INT64), ob.tensor("axis", [1], [1], ob.INT64)]
        nodes = [ob.node("Concat", ["x"] * 128, ["t"], axis=1),
                 ob.node("Concat", ["t"] * 128, ["u"], axis=1), ob.node("Relu", ["u"], ["r"]),
                 ob.node("Slice", ["r", "from", "to", "axis"], ["s"]),
                 ob.node("MatMul", ["s", "w"], ["y"])]
    with open(path, "wb") as f:
        f.write(ob.model(nodes, [ob.value("x", ["N", FEATURES])], [ob.value("y", ["N", classes])], inits))
    return path


class Tables(unittest.TestCase):
    def driver(self, *options):
        d = Driver("--threads=1", "--log-level=debug", *options)
        self.addCleanup(self.finish, d)
        d.start()
        self.first = d.package(net(os.path.join(d.dir, "first.onnx")))[0]
        d.load(1, self.first, max_batch=1)
        return d

    def finish(self, d):
        if d.proc.poll() is None:
            self.assertEqual(d.stop(), 0)
        d.close()

    def log(self, d):
        with open(os.path.join(d.dir, "executor.log")) as f:
            return f.read()

    def replace(self, d, **kw):
        other = d.package(net(os.path.join(d.dir, "other.onnx"), **kw))[0]
        for name in os.listdir(other):
            if name != "model.onnx":
                shutil.copy(os.path.join(other, name), os.path.join(self.first, name + ".new"))
                os.rename(os.path.join(self.first, name + ".new"), os.path.join(self.first, name))

    def kill(self, d, pid):
        os.kill(pid, signal.SIGKILL)
        d.wait(lambda: pid not in d.worker_pids(), WAIT_S, "death")

    def send(self, d):
        return d.run(1, [struct.pack("<64f", *range(64))], [4 * CLASSES], 1)

    def answer(self, d, run):
        r, out = d.result(run)
        self.assertEqual((r.rc, r.msg), (0, ""))
        return floats(out[0][0])

    def sent(self, d):
        """(worker, bytes of workspace) of each run that was sent."""
        return [(int(w), int(n)) for w, n in re.findall(r"ev=switch.send .*?worker=(\d+) .*?ws_bytes=(\d+)",
                                                        self.log(d))]

    def test_a_run_gets_the_workspace_of_the_worker_that_needs_most(self):
        d = self.driver("--pool-bytes=128M", "--workers=2")
        want = self.answer(d, self.send(d))
        self.replace(d, wide=True)
        first, second = d.worker_pids()
        self.kill(d, first)
        d.wait(lambda: len(d.worker_pids()) == 2 and self.log(d).count("ev=worker.ready") == 3, WAIT_S, "worker")
        d.rest(1)
        self.kill(d, second)
        self.assertEqual(self.answer(d, self.send(d)), want)
        (_, small), (_, large) = self.sent(d)
        self.assertGreaterEqual(large - small, 4 * WIDE)

    def test_a_run_that_has_its_memory_takes_more_when_only_such_a_worker_is_left(self):
        d = self.driver("--pool-bytes=128M", "--workers=2", "--debug-cold")
        want = self.answer(d, self.send(d))
        self.replace(d, wide=True)
        running, idle = d.worker_pids()
        for pid in (running, idle):  # it does not end before it is killed
            os.kill(pid, signal.SIGSTOP)
        run = self.send(d)
        d.wait(lambda: len(self.sent(d)) == 2, WAIT_S, "run")
        self.kill(d, idle)
        self.kill(d, running)
        self.assertEqual(self.answer(d, run), want)
        (_, small), (_, same), (_, large) = self.sent(d)
        self.assertEqual(small, same)
        self.assertGreaterEqual(large - small, 4 * WIDE)

    def refused(self, why, **kw):
        """The other worker goes on serving; the one that was refused does not run the model."""
        d = self.driver("--pool-bytes=20M", "--workers=2")
        want = self.answer(d, self.send(d))
        self.replace(d, **kw)
        self.kill(d, d.worker_pids()[0])
        d.wait(lambda: why in self.log(d), WAIT_S, "refusal")
        n = len(self.sent(d))
        for _ in range(3):
            self.assertEqual(self.answer(d, self.send(d)), want)
        self.assertEqual(len({w for w, _ in self.sent(d)[n:]}), 1)
        self.assertEqual(d.states[1].phase, "READY")

    def test_a_worker_that_needs_more_than_there_is_does_not_serve_the_model(self):
        self.refused("the model needs 16 MiB of device memory for weights and 8 MiB", wide=True)

    def test_a_worker_with_another_image_does_not_serve_the_model(self):
        self.refused("a worker compiled the model to another image", classes=CLASSES // 2)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
