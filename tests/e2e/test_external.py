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
from system import BIN, ROOT, Story, System, st_bytes, until  # noqa: E402

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

    def cli_push(self, model, path, *options):
        return subprocess.run([os.path.join(BIN, "shunt"), "push", "model", model, path, "--wait", "--server",
                               "http://127.0.0.1:%d" % self.s.port, *options], text=True, timeout=180,
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

    def test_what_an_old_file_does_not_tell_is_said_and_can_be_told(self):
        """Where nothing says whether a weight is a buffer it is trained, and the push, the submission and the log
        say so; one word at the push settles it, for what is trained from it too."""
        path = self.write("old.onnx", onnx.model(
            [onnx.node("MatMul", ["x", "mix"], ["m"], name="/MatMul"), onnx.node("Add", ["m", "bias"], ["y"], name="/Add")],
            [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
            [onnx.tensor("bias", [3], B), onnx.tensor("mix", [4, 3], [w + 0.01 * i * i for i, w in enumerate(W)])],
            producer="pytorch"))
        x = floats([0.1 * (i % 7) for i in range(64)])
        self.s.push_data(self.key, "old", st_bytes({"x": ("F32", [16, 4], x), "label": ("F32", [16, 3], floats([1.0] * 48))}))

        def job(model, **spec):
            return {"kind": "training", "model": model, "dataset": "old", "spec": {
                "loss": "mse", "optimizer": {"name": "sgd", "lr": 0.05}, "batch": 16, "epochs": 3, **spec}}

        def submit(model, route="jobs", **spec):
            body = {"jobs": {}, "job-arrays": {"count": 1, "job": job(model, **spec)},
                    "job-batches": {"jobs": [job(model, **spec)]}}[route] or job(model, **spec)
            r = self.s.call("POST", "/api/v1/" + route, body, self.key)
            self.assertIn(r.status, (200, 201), r)
            return r.json

        def meta(model, version=1):
            r = self.s.call("GET", "/api/v1/models/%s/versions/%d" % (model, version), key=self.key)
            return r.json["meta"]

        def products(model, version):
            """What `mix` gives, without the bias."""
            def ask(x):
                r = until("%s answers" % model, lambda: (r := self.s.infer(
                    self.key, "%s/versions/%d" % (model, version), [{**X, "data": x}])).status == 200 and r)
                return r.json["outputs"][0]["data"]
            return [a - b for a, b in zip(ask(X["data"]), ask([0.0] * 4))]

        for model, options in (("silent", ()), ("told", ("--buffers", "none,m?x"))):
            r = self.cli_push(model, path, *options)
            self.assertEqual((r.returncode, "mix" in r.stdout, "--parameters lists: none" in r.stdout),
                             (0, not options, bool(options)), r.stdout)
            said = [] if options else ["mix"]
            self.assertEqual(meta(model)["training_assumes"], said)
            self.assertNotIn("training_assumes", submit(model, frozen="m*"))
            for route in ("job-arrays", "job-batches"):
                self.assertEqual(submit(model, route).get("training_assumes", []), said)
            j = submit(model)
            self.assertEqual(j.get("training_assumes", []), said)
            j = self.s.wait_job(self.key, j["id"])
            self.assertEqual(j["state"], "SUCCEEDED", j)
            log = self.s.job(self.key, j["id"], "/log").raw.decode()
            self.assertEqual("whether they are parameters or buffers: mix" in log, not options, log)
            self.assertEqual(meta(model, j["result_version"])["training_assumes"], said)
            before, after = products(model, 1), products(model, j["result_version"])
            self.assertEqual(max(abs(a - b) for a, b in zip(before, after)) > 1e-3, not options, (before, after))

    def test_a_push_says_which_file_is_missing(self):
        r = self.cli_push("lost", self.write("lost.onnx", linear("lost.onnx.data")))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("lost.onnx.data", r.stdout)
        self.assertEqual(self.s.call("GET", "/api/v1/models/lost", key=self.key).status, 404)

    def test_a_tar_file_by_rest(self):
        self.s.push(self.key, "packed", onnx.tar({"m.onnx": linear("w/m.bin"), "w/m.bin": floats(W + B)}))
        self.answers("packed")

    def test_weights_of_a_state_dict_by_name(self):
        """An exported graph, and fine-tuned weights that were saved beside it."""
        old = onnx.model(
            [onnx.node("Gemm", ["x", "w", "b"], ["y"])], [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
            [onnx.tensor("w", [4, 3], [0.0] * 12), onnx.tensor("b", [3], B)])
        graph = self.write("old.onnx", old)
        tuned = st_bytes({"w": ("F32", [4, 3], floats(W)), "n.num_batches_tracked": ("I64", [], bytes(8))})
        r = self.cli_push("tuned", graph, "--weights", self.write("tuned.safetensors", tuned))
        self.assertEqual(r.returncode, 0, r.stdout)
        self.answers("tuned")
        half = st_bytes({"w": ("F16", [4, 3], struct.pack("<12e", *W))})
        r = self.cli_push("half", graph, "--weights", self.write("half.safetensors", half))
        self.assertEqual(r.returncode, 0, r.stdout)
        self.answers("half")
        self.s.push(self.key, "by-rest", onnx.tar({"m.onnx": old, "initializers.safetensors": tuned}))
        self.answers("by-rest")
        self.trains("by-rest-too", old, "initializers.safetensors", tuned)
        for name, tensors, part in (
                ("shape", {"w": ("F32", [3, 4], floats(W))}, "F32 [3,4]"),
                ("type", {"w": ("I32", [4, 3], bytes(48))}, "I32 [4,3]"),
                ("nothing", {"n.num_batches_tracked": ("I64", [], bytes(8))}, "replace nothing"),
                ("names", {"w": ("F32", [4, 3], floats(W)), "fc.weight": ("F32", [1], bytes(4))}, "fc.weight")):
            path = self.write(name + ".safetensors", st_bytes(tensors))
            r = self.cli_push("unfit-" + name, graph, "--weights", path)
            self.assertEqual(r.returncode, 1, r.stdout)
            self.assertIn(part, r.stdout)
            self.refused(onnx.tar({"m.onnx": old, "initializers.safetensors": st_bytes(tensors)}), part)

    def test_weights_that_are_none(self):
        graph = self.write("none.onnx", linear("nowhere"))
        r = self.cli_push("none", graph, "--weights", graph)
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("is no safetensors file", r.stdout)
        w = self.write("some.safetensors", st_bytes({"w": ("F32", [4, 3], floats(W))}))
        packed = self.write("none.tar", onnx.tar({"m.onnx": linear("nowhere")}))
        r = self.cli_push("none", packed, "--weights", w)
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("initializers.safetensors", r.stdout)
        r = self.cli_push("none", graph, "--weights", w)  # b is nowhere
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("initializer b", r.stdout)
        self.assertEqual(self.s.call("GET", "/api/v1/models/none", key=self.key).status, 404)

    def test_as_the_documentation_says_by_curl(self):
        """docs/models.md, as it stands there."""
        with open(os.path.join(ROOT, "docs", "models.md")) as f:
            text = f.read().split("## Files")[1]
        script = text.split("```sh\n")[1].split("```")[0]
        self.assertIn("tar -cf m.tar", script)
        self.write("m.onnx.data", floats(W + B))
        self.write("m.onnx", linear("m.onnx.data"))
        r = subprocess.run(["bash", "-euc", script], cwd=self.dir, text=True, timeout=60, check=False,
                           env={**self.s.env, "SHUNT_KEY": self.key, "SERVER": "http://127.0.0.1:%d" % self.s.port},
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(r.returncode, 0, r)
        self.answers("m")

    def test_weights_in_several_files_and_folders(self):
        model = onnx.model(
            [onnx.node("Gemm", ["x", "w", "b"], ["y"])], [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
            [onnx.external("w", [4, 3], "a/b/w.bin", 8, 48), onnx.external("b", [3], "./rest", 4, 12)])
        os.makedirs(os.path.join(self.dir, "a", "b"), exist_ok=True)
        self.write("a/b/w.bin", bytes(8) + floats(W) + bytes(5))
        self.write("rest", bytes(4) + floats(B))
        r = self.cli_push("several", self.write("several.onnx", model))
        self.assertEqual(r.returncode, 0, r.stdout)
        self.answers("several")

    def refused(self, data, part, status=400):
        self.s.call("POST", "/api/v1/models", {"name": "evil"}, key=self.key)
        r = self.s.push(self.key, "evil", data, ready=False)
        self.assertEqual(r.status, status, r)
        self.assertIn(part, r.error)

    def test_a_name_that_leaves_the_folder_is_refused(self):
        secret = self.write("secret", floats(W + B))
        os.makedirs(os.path.join(self.dir, "sub"), exist_ok=True)
        for name in (secret, "../secret", "a/../../secret", "./../secret", "..", "/etc/passwd", "a//b", "/"):
            self.refused(onnx.tar({"m.onnx": linear(name), "secret": floats(W + B)}),
                         "must not leave the folder")
            r = self.cli_push("evil", self.write("sub/evil.onnx", linear(name)))
            self.assertEqual(r.returncode, 1, (name, r.stdout))
            self.assertIn("outside", r.stdout)
        for name in ("", "m.data\n", "a" * 5000):
            self.refused(onnx.tar({"m.onnx": linear(name)}), "without control characters")

    def test_a_link_is_refused(self):
        self.write("target", floats(W + B))
        os.makedirs(os.path.join(self.dir, "real"), exist_ok=True)
        self.write("real/m.data", floats(W + B))
        for link, to, name in (("link.data", "target", "link.data"), ("far.data", "/etc/passwd", "far.data"),
                               ("folder", "real", "folder/m.data")):
            path = os.path.join(self.dir, link)
            if not os.path.islink(path):
                os.symlink(to, path)
            r = self.cli_push("linked", self.write("linked.onnx", linear(name)))
            self.assertEqual(r.returncode, 1, r.stdout)
            self.assertIn("link", r.stdout)
        self.refused(onnx.tar({"m.onnx": linear("m.data"), "m.data": None}), "neither a file nor a folder")

    def test_data_that_are_not_there_are_refused(self):
        """Beyond the end of the file, with numbers that overflow, more than the file has, not as long as the shape says."""
        def one(offset, length, dims=(4, 3)):
            return onnx.tar({"m.data": floats(W + B), "m.onnx": onnx.model(
                [onnx.node("MatMul", ["x", "w"], ["y"])], [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
                [onnx.external("w", list(dims), "m.data", offset, length)])})

        for offset, length in ((16, 48), (-4, 48), (1 << 62, 48), (1 << 63, 48), (1 << 70, 48), (0, 1 << 62),
                               ((1 << 63) - 8, 48), (0, -48), (0, 47), (0, 52)):
            self.refused(one(offset, length), "w")
        self.refused(one(0, 48, (1 << 31, 1 << 31)), "w", 413)
        both = onnx.model(
            [onnx.node("Gemm", ["x", "w", "b"], ["y"])], [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
            [onnx.external("w", [4, 3], "m.data", 0, 48), onnx.external("b", [3], "m.data", 36, 12)])
        self.refused(onnx.tar({"m.onnx": both, "m.data": floats(W)}), "overlap")
        self.answers_still()

    def answers_still(self):
        self.s.push(self.key, "good", onnx.tar({"m.onnx": linear("m.data"), "m.data": floats(W + B)}))
        self.answers("good")

    def test_weights_in_half_precision(self):
        """fp16 and bf16, in a file beside the model."""
        for name, code, raw in (("fp16", 10, struct.pack("<12e", *W)),
                                ("bf16", 16, b"".join(struct.pack("<f", w)[2:] for w in W))):
            model = onnx.model(
                [onnx.node("Cast", ["w"], ["wf"], to=1), onnx.node("MatMul", ["x", "wf"], ["y"])],
                [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
                [onnx.external("w", [4, 3], "m.data", 0, 24, code)])
            self.s.push(self.key, name, onnx.tar({"m.onnx": model, "m.data": raw}))
            r = until("it answers", lambda name=name: (
                r := self.s.infer(self.key, name, [X])).status == 200 and r)
            for got, y, b in zip(r.json["outputs"][0]["data"], Y, B):  # all weights are exact in both
                self.assertAlmostEqual(got, y - b, places=5)

    def test_opsets_7_to_23(self):
        for opset in range(7, 24):
            model = onnx.model(
                [onnx.node("Gemm", ["x", "w", "b"], ["y"])], [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 3])],
                [onnx.external("w", [4, 3], "m.data", 0, 48), onnx.external("b", [3], "m.data", 48, 12)], opset=opset)
            self.s.push(self.key, "opset", onnx.tar({"m.onnx": model, "m.data": floats(W + B)}))
            v = self.s.call("GET", "/api/v1/models/opset/versions/%d" % (opset - 6), key=self.key).json
            self.assertEqual(v["state"], "READY", v)
        self.answers("opset")

    def test_the_limit_is_on_all_of_it(self):
        """And nothing of it is left."""
        self.s.call("POST", "/api/v1/models", {"name": "large"}, key=self.key)
        self.s.call("POST", "/api/v1/models/large/versions", {}, key=self.key)
        data = onnx.tar({"m.onnx": linear("m.data"), "m.data": floats(W + B), "more": bytes(1 << 20)})
        r = self.s.call("PUT", "/api/v1/models/large/versions/1/artifact", data, key=self.key)
        self.assertEqual(r.status, 413, r)

    def test_training_writes_a_model_of_one_file(self):
        self.trains("student", linear("m.data"))

    def test_what_branches_have_in_other_files_is_in_it_too(self):
        """A bias that one branch of If has, and the other has not."""
        def branch(node, tensors=()):
            return onnx.message((1, node), (2, "branch"), *((5, t) for t in tensors), (12, onnx.value("z", ["N", 3])))
        attributes = [onnx.message((1, name), (6, graph), (20, 5)) for name, graph in (
            ("then_branch", branch(onnx.node("Add", ["y0", "b"], ["z"]), [onnx.external("b", [3], "m.data", 48, 12)])),
            ("else_branch", branch(onnx.node("Identity", ["y0"], ["z"]))))]
        choice = onnx.message((1, "yes"), (2, "y"), (3, "choice"), (4, "If"), *((5, a) for a in attributes))
        self.trains("chooser", onnx.model(
            [onnx.node("MatMul", ["x", "w"], ["y0"]), choice], [onnx.value("x", ["N", 4])],
            [onnx.value("y", ["N", 3])],
            [onnx.external("w", [4, 3], "m.data", 0, 48), onnx.tensor("yes", [], [], 9, b"\1")]))

    def trains(self, name, model, file="m.data", data=floats(W + B)):
        self.s.push(self.key, name, onnx.tar({"m.onnx": model, file: data}))
        self.answers(name)
        rows = 64
        self.s.push_data(self.key, name + "-examples", st_bytes({
            "x": ("F32", [rows, 4], floats([(i * 7 % 13 - 6) / 6 for i in range(rows * 4)])),
            "label": ("I64", [rows], struct.pack("<%dq" % rows, *(i % 3 for i in range(rows))))}))
        r = self.s.submit(self.key, model=name, dataset=name + "-examples", spec={"batch": 16})
        self.assertEqual(r.status, 201, r)
        done = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual(done["state"], "SUCCEEDED", done)
        version = done["result"]["version"]
        r = until("the trained one answers", lambda: (r := self.s.call(
            "POST", "/v2/models/%s/versions/%d/infer" % (name, version), {"inputs": [X]}, key=self.key)).status == 200
            and r)
        self.assertEqual(len(r.json["outputs"][0]["data"]), 3)


@unittest.skipUnless(os.environ.get("SHUNT_TEST_LARGE"), "SHUNT_TEST_LARGE=1: 2.5 GB are written twice")
class Large(Story):
    """More than 2 GB of weights: what one protobuf cannot hold."""
    BYTES = 2500 << 20

    def test_a_file_above_2_gb(self):
        s = System("--pool-bytes=6G", MAX_MODEL_BYTES="3G", MODEL_HOST_BYTES="8G")
        self.addCleanup(s.stop)
        key, rows = s.tenant("vision"), self.BYTES // 4096
        path, data = os.path.join(s.dir, "large.onnx"), os.path.join(s.dir, "large.data")
        with open(path, "wb") as f:
            f.write(onnx.model(
                [onnx.node("Gather", ["w", "i"], ["y"])], [onnx.value("i", ["N"], onnx.INT64)],
                [onnx.value("y", ["N", 1024])], [onnx.external("w", [rows, 1024], "large.data", 0, self.BYTES)]))
        with open(data, "wb") as f:  # sparse, but for the last row
            f.truncate(self.BYTES - 4096)
            f.seek(self.BYTES - 4096)
            f.write(floats([0.5 * i for i in range(1024)]))
        before = s.metrics("api")["shunt_process_resident_bytes"]
        r = subprocess.run([os.path.join(BIN, "shunt"), "push", "model", "large", path, "--max-batch", "1", "--server",
                            "http://127.0.0.1:%d" % s.port], text=True, timeout=600, check=False,
                           env={**s.env, "SHUNT_KEY": key}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(r.returncode, 0, r.stdout)
        self.assertLess(s.metrics("api")["shunt_process_resident_bytes"] - before, 256 << 20)
        x = {"name": "i", "datatype": "INT64", "shape": [1], "data": [rows - 1]}
        r = until("it answers", lambda: (r := s.infer(key, "large", [x])).status == 200 and r, 600)
        self.assertEqual(r.json["outputs"][0]["data"], [0.5 * i for i in range(1024)])


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
