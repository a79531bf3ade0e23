#!/usr/bin/env python3
"""The unmodified tritonclient (HTTP) against a whole system: what clients of other servers rely on.

Without it: a field of the protocol that our own clients do not use could be wrong, binary tensors could
be cut at the wrong place, and errors could reach people as "unknown error".

Usage: test_triton.py [-v] [name ...]
"""
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402
import tritonclient.http as triton  # noqa: E402
import tritonclient.utils.shared_memory as shm  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

import onnx_bytes  # noqa: E402
from system import BIN, DIGITS, Story, System, read_st, st_bytes, until, zoo  # noqa: E402

NUMPY = {"F32": np.float32, "I64": np.int64}
NAME = {np.dtype(np.float32): ("F32", "FP32"), np.dtype(np.int64): ("I64", "INT64")}
TOLERANCE = 1e-5  # of the range


def alone(onnx, inputs):
    """The same samples through shunt-run: no server, no batching with others."""
    with tempfile.TemporaryDirectory(prefix="shunt-run-") as d:
        paths = [os.path.join(d, n) for n in ("model.onnx", "in", "out")]
        with open(paths[0], "wb") as f:
            f.write(onnx)
        with open(paths[1], "wb") as f:
            f.write(st_bytes({k: (NAME[a.dtype][0], list(a.shape), a.tobytes())
                              for k, a in inputs.items()}))
        subprocess.run([os.path.join(BIN, "shunt-run"), "infer", "--threads=1", "--model", paths[0],
                        "--inputs", paths[1], "--outputs", paths[2]], check=True,
                       stdout=subprocess.DEVNULL)
        return {k: np.frombuffer(data, NUMPY[t]).reshape(shape)
                for k, (t, shape, data) in read_st(paths[2]).items()}


class Triton(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System()
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        cls.other = s.tenant("other")
        cls.digits, cls.two = zoo("digits-cnn"), onnx_bytes.two_outputs()
        s.push(cls.key, "digits", cls.digits, max_batch=8)
        s.push(cls.key, "two", cls.two, max_batch=8)
        cls.auth = {"Authorization": "Bearer " + cls.key}
        test = read_st(os.path.join(DIGITS, "test.safetensors"))["x"]
        cls.x = np.frombuffer(test[2], np.float32).reshape(test[1])

    def setUp(self):
        self.c = triton.InferenceServerClient("127.0.0.1:%d" % self.s.port, concurrency=4)
        self.addCleanup(self.c.close)

    @staticmethod
    def inputs(binary=True, **arrays):
        out = []
        for name, a in arrays.items():
            out.append(triton.InferInput(name, list(a.shape), NAME[a.dtype][1]))
            out[-1].set_data_from_numpy(a, binary_data=binary)
        return out

    def two_inputs(self, n, seed=0):
        rng = np.random.default_rng(seed)
        return {"x": rng.standard_normal((n, 4)).astype(np.float32),
                "k": rng.integers(-2**62, 2**62, (n, 2))}

    def same(self, got, want, what=""):
        self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype), what)
        if got.dtype == np.int64:
            np.testing.assert_array_equal(got, want, what)
        else:
            self.assertLessEqual(np.abs(got - want).max(), TOLERANCE * np.ptp(want), what)

    def infer(self, model, inputs, **more):
        return self.c.infer(model, inputs, headers=dict(self.auth), **more)  # it adds to them

    # ------------------------------------------------------------ health and metadata
    def test_health(self):
        self.assertTrue(self.c.is_server_live())
        self.assertTrue(self.c.is_server_ready())
        self.assertTrue(self.c.is_model_ready("digits", headers=self.auth))
        self.assertTrue(self.c.is_model_ready("digits", "1", headers=self.auth))
        self.assertFalse(self.c.is_model_ready("digits", "7", headers=self.auth))
        self.assertFalse(self.c.is_model_ready("nothing", headers=self.auth))

    def test_server_metadata(self):
        m = self.c.get_server_metadata()
        self.assertEqual(m["name"], "shunt")
        self.assertIn("binary_tensor_data", m["extensions"])

    def test_model_metadata(self):
        m = self.c.get_model_metadata("two", headers=self.auth)
        self.assertEqual((m["name"], m["versions"]), ("two", ["1"]))
        self.assertEqual(m["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 4]},
                                       {"name": "k", "datatype": "INT64", "shape": [-1, 2]}])
        self.assertEqual([o["name"] for o in m["outputs"]], ["y", "r", "s"])

    def test_model_config(self):
        m = self.c.get_model_config("two", headers=self.auth)
        self.assertEqual(m["max_batch_size"], 8)
        self.assertEqual(m["input"], [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]},
                                      {"name": "k", "data_type": "TYPE_INT64", "dims": [2]}])

    def test_repository_index(self):
        i = self.c.get_model_repository_index(headers=self.auth)
        self.assertEqual({(m["name"], m["version"], m["state"]) for m in i},
                         {("digits", "1", "READY"), ("two", "1", "READY")})
        other = {"Authorization": "Bearer " + self.other}
        self.assertEqual(self.c.get_model_repository_index(headers=other), [])

    def own(self, model):
        """A model for one test."""
        self.s.push(self.key, model, self.digits)
        self.addCleanup(self.s.call, "DELETE", "/api/v1/models/" + model, key=self.key)

    def states(self, model):
        i = self.c.get_model_repository_index(headers=self.auth)
        return [(m["state"], m["reason"]) for m in i if m["name"] == model]

    def test_load_and_unload(self):
        self.own("going")
        self.c.unload_model("going", headers=self.auth)
        until("it is unloaded", lambda: self.states("going")[0][0] == "UNAVAILABLE")
        self.assertIn("unloaded", self.states("going")[0][1])
        self.assertFalse(self.c.is_model_ready("going", headers=self.auth))
        self.refused("unloaded", 409, self.infer, "going", self.inputs(x=self.x[:1]))
        self.c.unload_model("going", headers=self.auth, unload_dependents=True)  # twice is no error
        self.c.load_model("going", headers=self.auth)
        # The answer came when it was loaded: no waiting here.
        self.assertEqual(self.infer("going", self.inputs(x=self.x[:1])).as_numpy("logits").shape,
                         (1, 10))
        self.assertEqual(self.states("going"), [("READY", "")])
        self.c.load_model("going", headers=self.auth)
        self.refused('no model "nothing"', 404, self.c.load_model, "nothing", headers=self.auth)
        self.refused('no model "nothing"', 404, self.c.unload_model, "nothing", headers=self.auth)
        self.refused('"config" is not supported', 400, self.c.load_model, "going",
                     headers=self.auth, config="{}")
        other = {"Authorization": "Bearer " + self.other}
        self.refused('no model "going"', 404, self.c.unload_model, "going", headers=other)
        self.assertEqual(self.states("going"), [("READY", "")])

    def test_many_loads_wait_side_by_side(self):
        """More than there are threads for the control plane: none of them may hold one."""
        self.own("many")
        for _ in range(3):
            self.c.unload_model("many", headers=self.auth)
            until("it is unloaded", lambda: self.states("many")[0][0] == "UNAVAILABLE")
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                got = list(pool.map(lambda _: self.s.call(
                    "POST", "/v2/repository/models/many/load", key=self.key), range(24)))
            self.assertEqual({(r.status, r.raw) for r in got}, {(200, b"")})
            self.assertTrue(self.c.is_model_ready("many", headers=self.auth))

    def test_shared_memory_is_off(self):
        self.assertEqual(self.c.get_system_shared_memory_status(headers=self.auth), [])
        self.assertEqual(self.c.get_cuda_shared_memory_status(headers=self.auth), [])
        self.c.unregister_system_shared_memory(headers=self.auth)
        self.c.unregister_cuda_shared_memory(headers=self.auth)
        self.c.unregister_system_shared_memory("r", headers=self.auth)
        self.refused("is off", 501, self.c.register_system_shared_memory, "r", "/k", 64,
                     headers=self.auth)
        self.refused("is off", 501, self.c.register_cuda_shared_memory, "r", b"aGFuZGxl", 0, 64,
                     headers=self.auth)
        self.refused('no shared memory region "r"', 404, self.c.get_system_shared_memory_status, "r",
                     headers=self.auth)
        extensions = self.c.get_server_metadata()["extensions"]
        self.assertIn("model_repository", extensions)
        self.assertNotIn("system_shared_memory", extensions)

    def test_statistics(self):
        def count():
            m = self.c.get_inference_statistics("digits", headers=self.auth)["model_stats"][0]
            self.assertEqual((m["name"], m["version"]), ("digits", "1"))
            return m["inference_count"], m["inference_stats"]["success"]["count"]
        samples, requests = count()
        self.infer("digits", self.inputs(x=self.x[:5]))
        self.assertEqual(count(), (samples + 5, requests + 1))

    # ------------------------------------------------------------ inference
    def test_every_batch_in_binary(self):
        want = alone(self.digits, {"x": self.x[:36]})["logits"]
        at = 0
        for n in range(1, 9):
            r = self.infer("digits", self.inputs(x=self.x[at:at + n]))
            self.same(r.as_numpy("logits"), want[at:at + n], "batch %d" % n)
            at += n
        self.assertEqual(r.get_response()["model_name"], "digits")
        self.assertEqual(r.get_response()["model_version"], "1")

    def test_every_batch_in_json(self):
        want = alone(self.digits, {"x": self.x[:8]})["logits"]
        for n in range(1, 9):
            out = [triton.InferRequestedOutput("logits", binary_data=False)]
            r = self.infer("digits", self.inputs(binary=False, x=self.x[:n]), outputs=out)
            self.assertEqual(len(r.get_output("logits")["data"]), n * 10)
            self.same(r.as_numpy("logits"), want[:n], "batch %d" % n)

    def test_both_encodings_in_one_request(self):
        a = self.two_inputs(3)
        want = alone(self.two, a)
        both = self.inputs(x=a["x"]) + self.inputs(binary=False, k=a["k"])
        out = [triton.InferRequestedOutput("s", binary_data=False),
               triton.InferRequestedOutput("y", binary_data=True)]
        r = self.infer("two", both, outputs=out)
        self.assertEqual([o["name"] for o in r.get_response()["outputs"]], ["s", "y"])
        self.assertIn("data", r.get_output("s"))
        self.assertNotIn("data", r.get_output("y"))
        self.assertIsNone(r.as_numpy("r"))
        for name in ("s", "y"):
            self.same(r.as_numpy(name), want[name], name)

    def test_unnamed_outputs_are_all(self):
        a = self.two_inputs(8, seed=1)
        want = alone(self.two, a)
        for binary in (True, False):
            r = self.infer("two", self.inputs(binary, **a))
            self.assertEqual([o["name"] for o in r.get_response()["outputs"]], ["y", "r", "s"])
            for name in want:
                self.same(r.as_numpy(name), want[name], name)

    def test_the_order_of_inputs_is_free(self):
        a = self.two_inputs(2, seed=2)
        r = self.infer("two", self.inputs(k=a["k"], x=a["x"]))
        self.same(r.as_numpy("y"), alone(self.two, a)["y"])

    def test_the_request_id_comes_back(self):
        r = self.infer("digits", self.inputs(x=self.x[:1]), request_id="my-7")
        self.assertEqual(r.get_response()["id"], "my-7")
        self.assertNotIn("id", self.infer("digits", self.inputs(x=self.x[:1])).get_response())

    def test_parameters(self):
        r = self.infer("digits", self.inputs(x=self.x[:1]), model_version="1", priority=1,
                       timeout=60000000)
        self.assertEqual(r.as_numpy("logits").shape, (1, 10))

    def test_parallel_requests_get_their_own_results(self):
        want = alone(self.digits, {"x": self.x[:200]})["logits"]
        sent = []
        for i in range(64):
            n = i % 8 + 1
            at = i * 3 % 190
            inputs = self.inputs(i % 3 != 0, x=self.x[at:at + n])
            sent.append((at, n, str(i), self.c.async_infer("digits", inputs, headers=dict(self.auth),
                                                           request_id=str(i))))
        for at, n, name, waiting in sent:
            r = waiting.get_result()
            self.assertEqual(r.get_response()["id"], name)
            self.same(r.as_numpy("logits"), want[at:at + n], "request " + name)

    # ------------------------------------------------------------ errors
    def refused(self, pattern, status, call, *args, **more):
        with self.assertRaisesRegex(InferenceServerException, pattern) as e:
            call(*args, **more)
        self.assertEqual(e.exception.status(), str(status))

    def test_wrong_shape(self):
        self.refused(r'"x" has shape \[1,3\], the model wants \[-1,4\]', 400, self.infer, "two",
                     self.inputs(x=np.zeros((1, 3), np.float32), k=np.zeros((1, 2), np.int64)))
        self.refused(r"batch of 9, the model takes 1 to 8", 400, self.infer, "digits",
                     self.inputs(x=self.x[:9]))

    def test_wrong_datatype(self):
        a = self.two_inputs(1)
        self.refused(r'"x" has datatype INT64, the model wants FP32', 400, self.infer, "two",
                     self.inputs(x=np.zeros((1, 4), np.int64), k=a["k"]))

    def test_wrong_names(self):
        self.refused('no input "z"', 400, self.infer, "digits", self.inputs(z=self.x[:1]))
        self.refused('"k" is missing', 400, self.infer, "two", self.inputs(x=np.zeros((1, 4), "f4")))
        self.refused('no output "q"', 400, self.infer, "digits", self.inputs(x=self.x[:1]),
                     outputs=[triton.InferRequestedOutput("q")])

    def test_unknown_model(self):
        self.refused('no model "nothing"', 404, self.infer, "nothing", self.inputs(x=self.x[:1]))
        self.refused('no model "digits" with version 7', 404, self.infer, "digits",
                     self.inputs(x=self.x[:1]), model_version="7")
        self.refused('no model "nothing"', 404, self.c.get_model_metadata, "nothing",
                     headers=self.auth)

    def test_another_tenants_model(self):
        self.refused('no model "digits"', 404, self.c.infer, "digits", self.inputs(x=self.x[:1]),
                     headers={"Authorization": "Bearer " + self.other})

    def test_no_key(self):
        self.refused("API key", 401, self.c.infer, "digits", self.inputs(x=self.x[:1]))
        self.refused("API key", 401, self.c.get_model_config, "digits",
                     headers={"Authorization": "Bearer shunt_aaaaaaaaaaaa_wrong"})

    def test_compressed_bodies(self):
        """As binary data and as JSON; the JSON's length in the header is of what it unpacks to."""
        for algorithm in ("gzip", "deflate"):
            for binary in (True, False):
                for n in (1, 5):
                    with self.subTest(algorithm=algorithm, binary=binary, n=n):
                        r = self.infer("digits", self.inputs(binary, x=self.x[:n]),
                                       request_compression_algorithm=algorithm,
                                       response_compression_algorithm="gzip")
                        want = self.infer("digits", self.inputs(x=self.x[:n]))
                        self.same(r.as_numpy("logits"), want.as_numpy("logits"))
        self.refused("no model", 404, self.infer, "nothing", self.inputs(x=self.x[:1]),
                     request_compression_algorithm="gzip")

    def test_shared_memory_is_off(self):
        self.assertNotIn("system_shared_memory", self.c.get_server_metadata()["extensions"])
        self.refused("client-shm", 501, self.c.register_system_shared_memory, "in", "/any", 4,
                     headers=self.auth)
        x = triton.InferInput("x", [1, 1, 8, 8], "FP32")
        x.set_shared_memory("in", 256)
        self.refused("client-shm", 422, self.infer, "digits", [x])


class SharedMemory(Story):
    """Inputs and outputs in memory of the client, as its own helpers make and register it."""
    @classmethod
    def setUpClass(cls):
        cls.s = s = System(CLIENT_SHM="any")
        cls.addClassCleanup(s.stop)
        cls.key, cls.other = s.tenant("vision"), s.tenant("other")
        cls.digits = zoo("digits-cnn")
        s.push(cls.key, "digits", cls.digits, max_batch=8)
        cls.auth = {"Authorization": "Bearer " + cls.key}

    def setUp(self):
        self.c = triton.InferenceServerClient("127.0.0.1:%d" % self.s.port)
        self.addCleanup(self.c.close)
        self.addCleanup(self.c.unregister_system_shared_memory, headers=self.auth)
        self.name = "shunt-test-%d-%s" % (os.getpid(), self._testMethodName)

    def region(self, what, size):
        """Memory of this process, registered."""
        h = shm.create_shared_memory_region(what, "/" + self.name + what, size)
        self.addCleanup(shm.destroy_shared_memory_region, h)
        self.c.register_system_shared_memory(what, "/" + self.name + what, size, headers=self.auth)
        return h

    def infer(self, n, region="in", size=None, out=None):
        x = triton.InferInput("x", [n, 1, 8, 8], "FP32")
        x.set_shared_memory(region, size or n * 256)
        o = triton.InferRequestedOutput("logits")
        if out:
            o.set_shared_memory(*out)
        return self.c.infer("digits", [x], outputs=[o], headers=dict(self.auth))

    def test_tensors_do_not_travel(self):
        n = 4
        x = np.random.default_rng(1).standard_normal((n, 1, 8, 8)).astype(np.float32)
        want = alone(self.digits, {"x": x})["logits"]
        self.assertIn("system_shared_memory", self.c.get_server_metadata()["extensions"])
        h, out = self.region("in", n * 256), self.region("out", 4096)
        shm.set_shared_memory_region(h, [x])
        r = self.infer(n, out=("out", n * 40, 1024))
        self.assertEqual(r.get_output("logits"), {
            "name": "logits", "datatype": "FP32", "shape": [n, 10],
            "parameters": {"shared_memory_region": "out", "shared_memory_offset": 1024,
                           "shared_memory_byte_size": n * 40}})
        got = shm.get_contents_as_numpy(out, np.float32, [n, 10], offset=1024)
        self.assertLessEqual(np.abs(got - want).max(), TOLERANCE * np.ptp(want))
        got = self.infer(n).as_numpy("logits")  # in the body, as usual
        self.assertLessEqual(np.abs(got - want).max(), TOLERANCE * np.ptp(want))
        self.assertEqual([(m["name"], m["byte_size"]) for m in
                          self.c.get_system_shared_memory_status(headers=self.auth)],
                         [("in", n * 256), ("out", 4096)])

    def refused(self, text, status, call, *args, **more):
        with self.assertRaises(InferenceServerException) as e:
            call(*args, **more)
        self.assertIn(text, e.exception.message())
        self.assertEqual(e.exception.status(), str(status))

    def test_mistakes_are_told(self):
        h, name = self.region("in", 256), "/" + self.name + "in"
        self.refused("registered with other values", 409, self.c.register_system_shared_memory, "in", name, 8,
                     headers=self.auth)
        self.refused("has 256 bytes", 400, self.c.register_system_shared_memory, "b", name, 257,
                     headers=self.auth)
        self.refused("no shared memory", 404, self.c.register_system_shared_memory, "b", "/none", 8,
                     headers=self.auth)
        self.refused("system shared memory", 501, self.c.register_cuda_shared_memory, "c", b"aGFuZGxl",
                     0, 64, headers=self.auth)
        self.refused("need 256", 400, self.infer, 1, size=128)
        self.refused("do not fit", 400, self.infer, 2)
        self.refused("need 40", 400, self.infer, 1, out=("in", 8, 0))
        self.refused("do not fit", 400, self.infer, 1, out=("in", 40, 250))
        os.truncate("/dev/shm" + name, 16)
        self.refused("shorter", 400, self.infer, 1)
        os.truncate("/dev/shm" + name, 256)
        shm.set_shared_memory_region(h, [np.zeros((1, 1, 8, 8), np.float32)])
        self.assertEqual(self.infer(1).as_numpy("logits").shape, (1, 10))

    def test_another_tenant_sees_none(self):
        self.region("in", 256)
        other = {"Authorization": "Bearer " + self.other}
        self.assertEqual(self.c.get_system_shared_memory_status(headers=other), [])
        self.refused("no shared memory region", 404, self.c.get_system_shared_memory_status, "in",
                     headers=other)
        self.c.unregister_system_shared_memory(headers=other)
        self.c.unregister_system_shared_memory("in", headers=other)
        self.assertEqual(len(self.c.get_system_shared_memory_status(headers=self.auth)), 1)
        self.c.unregister_system_shared_memory("in", headers=self.auth)
        self.refused("no shared memory region", 404, self.infer, 1)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
