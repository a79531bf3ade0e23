#!/usr/bin/env python3
"""Models whose weights lie in other files, as torch.onnx.export writes them by default.

Without it: a user's first push would be refused, or take the graph without its weights.

Usage: test_external.py [-v] [name ...]
"""
import os
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, Story, System, st_bytes, until  # noqa: E402

W = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75, -2.0, 0.125, 1.0, 3.0, -0.5, 0.0625]
B = [0.5, -0.25, 0.0]
X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, -1.0, 0.5]}
Y = [sum(x * W[i * 3 + j] for i, x in enumerate(X["data"])) + B[j] for j in range(3)]


def linear(data, at=0):
    """x [N,4] -> y [N,3]; the weights are in the file `data` from byte `at` on."""
    return onnx.model(
        [onnx.node("Gemm", ["x", "w", "b"], ["y"])], [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
        [onnx.external("w", [4, 3], data, at, 48), onnx.external("b", [3], data, at + 48, 12)])


def floats(values):
    return struct.pack("<%df" % len(values), *values)


class External(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System(MAX_MODEL_BYTES="1M")
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("vision")
        cls.dir = os.path.join(cls.s.dir, "files")
        os.mkdir(cls.dir)

    def write(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def cli_push(self, model, path):
        return subprocess.run([os.path.join(BIN, "shunt"), "push", "model", model, path, "--wait", "--server",
                               "http://127.0.0.1:%d" % self.s.port], text=True, timeout=180,
                              env={**self.s.env, "SHUNT_KEY": self.key},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def answers(self, model):
        r = until("%s answers" % model, lambda: (r := self.s.infer(self.key, model, [X])).status == 200 and r)
        for got, want in zip(r.json["outputs"][0]["data"], Y):
            self.assertAlmostEqual(got, want, places=5)

    def test_a_push_takes_the_weights_with_it(self):
        self.write("m.onnx.data", floats(W + B))
        r = self.cli_push("pushed", self.write("m.onnx", linear("m.onnx.data")))
        self.assertEqual(r.returncode, 0, r.stdout)
        self.answers("pushed")

    def test_a_push_takes_a_safetensors_file_with_it(self):
        data = st_bytes({"w": ("F32", [4, 3], floats(W)), "b": ("F32", [3], floats(B))})
        self.write("model.safetensors", data)
        r = self.cli_push("safe", self.write("s.onnx", linear("model.safetensors", data.index(floats(W)))))
        self.assertEqual(r.returncode, 0, r.stdout)
        self.answers("safe")

    def test_a_push_says_which_file_is_missing(self):
        r = self.cli_push("lost", self.write("lost.onnx", linear("lost.onnx.data")))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("lost.onnx.data", r.stdout)
        self.assertEqual(self.s.call("GET", "/api/v1/models/lost", key=self.key).status, 404)

    def test_a_tar_file_by_rest(self):
        self.s.push(self.key, "packed", onnx.tar({"m.onnx": linear("w/m.bin"), "w/m.bin": floats(W + B)}))
        self.answers("packed")

    def test_the_limit_is_on_all_of_it(self):
        """And nothing of it is left."""
        self.s.call("POST", "/api/v1/models", {"name": "large"}, key=self.key)
        self.s.call("POST", "/api/v1/models/large/versions", {}, key=self.key)
        data = onnx.tar({"m.onnx": linear("m.data"), "m.data": floats(W + B), "more": bytes(1 << 20)})
        r = self.s.call("PUT", "/api/v1/models/large/versions/1/artifact", data, key=self.key)
        self.assertEqual(r.status, 413, r)

    def test_training_writes_a_model_of_one_file(self):
        self.s.push(self.key, "student", onnx.tar({"m.onnx": linear("m.data"), "m.data": floats(W + B)}))
        rows = 64
        self.s.push_data(self.key, "examples", st_bytes({
            "x": ("F32", [rows, 4], floats([(i * 7 % 13 - 6) / 6 for i in range(rows * 4)])),
            "label": ("I64", [rows], struct.pack("<%dq" % rows, *(i % 3 for i in range(rows))))}))
        r = self.s.submit(self.key, model="student", dataset="examples", spec={"batch": 16})
        self.assertEqual(r.status, 201, r)
        done = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual(done["state"], "SUCCEEDED", done)
        version = done["result"]["version"]
        r = until("the trained one answers", lambda: (r := self.s.call(
            "POST", "/v2/models/student/versions/%d/infer" % version, {"inputs": [X]}, key=self.key)).status == 200
            and r)
        self.assertEqual(len(r.json["outputs"][0]["data"]), 3)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
