#!/usr/bin/env python3
"""shunt-run alone: what takes more memory than there is, is refused before any of it is taken, and so are
inputs that have not as many rows as are asked for.

Without it: a small file that asks for gigabytes stops the machine of whoever tries it; numbers that lie behind
an input would be taken for rows of it.

Usage: test_run.py [-v] [name ...]
"""
import os
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, st_bytes  # noqa: E402

MANY = 2 * 10 ** 9


def wide(op, shape, *more):
    """x FP32 [N,1] -> y [N,1], the sum of `shape` numbers of x."""
    return onnx.model([onnx.node(op, ["x", "shape"], ["wide"]), onnx.node("ReduceSum", ["wide", "axis"], ["y"])],
                      [onnx.value("x", ["N", 1])], [onnx.value("y", ["N", 1])],
                      [onnx.tensor("shape", [2], shape, onnx.INT64), onnx.tensor("axis", [1], [1], onnx.INT64), *more])


def counted(limit):
    """x FP32 [N,1] -> y [N,1]: x and 0 + 1 + ... up to a limit, which the input k [1] says where it is None."""
    i64 = onnx.INT64
    return onnx.model([onnx.node("Squeeze", ["k"], ["limit"]), onnx.node("Range", ["zero", "limit", "one"], ["all"]),
                       onnx.node("ReduceSum", ["all"], ["sum"], keepdims=0),
                       onnx.node("Cast", ["sum"], ["f"], to=1), onnx.node("Add", ["x", "f"], ["y"])],
                      [onnx.value("x", ["N", 1])] + ([] if limit else [onnx.value("k", [1], i64)]),
                      [onnx.value("y", ["N", 1])],
                      [onnx.tensor("zero", [], [0], i64), onnx.tensor("one", [], [1], i64)] +
                      ([onnx.tensor("k", [1], [limit], i64)] if limit else []))


class Memory(unittest.TestCase):
    def run_model(self, model, *options, k=5):
        """(status, what it says, y)"""
        with tempfile.TemporaryDirectory(prefix="shunt-run-") as d:
            paths = [os.path.join(d, name) for name in ("m.onnx", "in", "out")]
            x = struct.pack("<2f", 1, 2)
            for path, data in zip(paths, (model, st_bytes({"x": ("F32", [2, 1], x),
                                                           "k": ("I64", [1], struct.pack("<q", k))}))):
                with open(path, "wb") as f:
                    f.write(data)
            r = subprocess.run([os.path.join(BIN, "shunt-run"), "infer", "--device=cpu", "--threads=1", "--model",
                                paths[0], "--inputs", paths[1], "--outputs", paths[2], *options],
                               capture_output=True, text=True, timeout=60, check=False)
            if r.returncode:
                return r.returncode, r.stderr, None
            with open(paths[2], "rb") as f:
                return 0, r.stderr, struct.unpack("<2f", f.read()[-8:])

    def test_more_than_is_allowed_or_there(self):
        for op in ("Expand", "Tile"):
            self.assertEqual(self.run_model(wide(op, [1, 1000]))[::2], (0, (1000, 2000)))
            status, said, _ = self.run_model(wide(op, [1, 1000]), "--memory-bytes=8M")
            self.assertEqual(status, 0, said)
            status, said, _ = self.run_model(wide(op, [1, 10 ** 7]), "--memory-bytes=8M")
            self.assertEqual(status, 1, said)
            self.assertRegex(said, r"takes 8\d MB of memory, and --memory-bytes allows 8 MB; fewer samples")
            status, said, _ = self.run_model(wide(op, [1, 4 * 10 ** 11]))
            self.assertEqual(status, 1, said)
            self.assertRegex(said, r"the model takes 3200\d{3} MB of memory, and free are \d+ MB; fewer samples")

    def test_counting_too_far(self):
        self.assertEqual(self.run_model(counted(4))[::2], (0, (7, 8)))
        self.assertEqual(self.run_model(counted(None), k=4)[::2], (0, (7, 8)))
        for n, what in ((MANY, "Range node all: counts %d numbers, from 0 to " % MANY),
                        (10 ** 8, "Range node all: its result would be a constant of more than 64 MiB")):
            for model in (counted(n), counted(None)):
                status, said, _ = self.run_model(model, k=n)
                self.assertEqual(status, 1, said)
                self.assertIn(what, said)


def floats(shape, n=1):
    return "F32", shape, struct.pack("<%df" % n, *range(1, n + 1))


class Rows(unittest.TestCase):
    """Inputs that have no row for each sample."""

    def run_model(self, command, model, tensors, *options):
        with tempfile.TemporaryDirectory(prefix="shunt-run-") as d:
            paths = [os.path.join(d, name) for name in ("m.onnx", "in", "out")]
            for path, data in zip(paths, (model, st_bytes(tensors))):
                with open(path, "wb") as f:
                    f.write(data)
            options = [o.replace("OUT", paths[2]) for o in options]
            r = subprocess.run([os.path.join(BIN, "shunt-run"), command, "--device=cpu", "--threads=1", "--model",
                                paths[0], "--inputs", paths[1], *options],
                               capture_output=True, text=True, timeout=60, check=False)
            return r.returncode, r.stdout + r.stderr

    def test_labels_of_several_rows_for_each_sample(self):
        model = onnx.model([onnx.node("Gemm", ["x", "w"], ["z"]), onnx.node("Reshape", ["z", "flat"], ["y"])],
                           [onnx.value("x", [2, 3])], [onnx.value("y", [6, 1])],
                           [onnx.tensor("w", [3, 3], [1, 0, 0, 0, 1, 0, 0, 0, 1]),
                            onnx.tensor("flat", [2], [6, 1], onnx.INT64)])
        train = ("--labels=l", "--loss=mse", "--optimizer=sgd", "--lr=0.1", "--steps=2", "--shuffle")
        status, said = self.run_model("train", model, {"x": floats([4, 3], 12), "l": floats([12, 1], 12)}, *train)
        self.assertEqual(status, 0, said)
        self.assertIn("2 steps, last loss 0\n", said)
        status, said = self.run_model("train", model, {"x": floats([4, 3], 12), "l": floats([4, 1], 4)}, *train)
        self.assertEqual(status, 1, said)
        self.assertIn("there are 4 labels, and 4 samples want 12", said)

    def test_fewer_than_the_model_has(self):
        model = onnx.model([onnx.node("ReduceSum", ["e"], ["s"]), onnx.node("Add", ["x", "s"], ["y"])],
                           [onnx.value("x", [3, 1]), onnx.value("e", [5, 1])], [onnx.value("y", [3, 1])])
        status, said = self.run_model("infer", model, {"x": floats([3, 1], 3), "e": floats([5, 1], 5)},
                                      "--outputs=OUT")
        self.assertEqual(status, 0, said)
        status, said = self.run_model("infer", model, {"x": floats([4, 1], 4), "e": floats([4, 1], 4)},
                                      "--outputs=OUT")
        self.assertEqual(status, 1, said)
        self.assertIn('the input "e" has 4 rows in', said)
        self.assertIn("and the model wants 5", said)

    def test_none_for_the_samples_that_are_trained_on(self):
        for batch, samples in ((3, 3), (3, 6), (1, 6), (1, 1)):
            model = onnx.model([onnx.node("Gemm", ["x", "w"], ["z"]), onnx.node("Mul", ["z", "t"], ["y"])],
                               [onnx.value("x", [batch, 1]), onnx.value("t", [])], [onnx.value("y", [batch, 1])],
                               [onnx.tensor("w", [1, 1], [1])])
            status, said = self.run_model("train", model, {"x": floats([samples, 1], samples), "t": floats([]),
                                                           "l": floats([samples, 1], samples)},
                                          "--labels=l", "--loss=mse", "--optimizer=sgd", "--lr=0.1", "--steps=3")
            self.assertEqual(status, 1, said)
            self.assertIn('the input "t" has no row for each sample of a batch (%d)' % batch, said)


if __name__ == "__main__":
    unittest.main()
