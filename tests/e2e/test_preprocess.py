#!/usr/bin/env python3
"""Models that take pictures as bytes: the device normalises them and turns them into the model's layout.

Without it: an answer to bytes could differ from that to the floats which the client would have made of
them, by one way of sending them and not by another; a trained version could take other inputs than the
one that it comes from; and a declaration that does not fit could be found by the first request.

Usage: test_preprocess.py [-v] [name ...]
"""
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402
import tritonclient.grpc as over_grpc  # noqa: E402
import tritonclient.http as over_http  # noqa: E402
import tritonclient.utils.shared_memory as shm  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402
import grpc  # noqa: E402

import onnx_bytes as onnx  # noqa: E402
from grpc_story import another  # noqa: E402
from pictures import png  # noqa: E402
from system import BIN, Story, System, read_st, st_bytes  # noqa: E402

SIDE, CLASSES, ROWS = 20, 5, 6
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
METADATA = 14  # field of ModelProto
SPEC = {"optimizer": {"name": "sgd", "lr": 0.05}, "batch": 3, "epochs": 2, "seed": 3}


def network(side=SIDE, declared=None):
    """image FP32 [N,3,H,W] -> scores [N,5]; side: or a name for each of both axes."""
    rng = np.random.default_rng(3)

    def some(name, *dims):
        return onnx.tensor(name, list(dims), list(rng.normal(0, 0.3, int(np.prod(dims)))))
    height, width = side if isinstance(side, tuple) else (side, side)
    made = onnx.model(
        [onnx.node("Conv", ["image", "c1"], ["a"], pads=[1, 1, 1, 1]), onnx.node("Relu", ["a"], ["b"]),
         onnx.node("Conv", ["b", "c2"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), onnx.node("Relu", ["c"], ["d"]),
         onnx.node("GlobalAveragePool", ["d"], ["e"]), onnx.node("Flatten", ["e"], ["f"]),
         onnx.node("Gemm", ["f", "w", "bias"], ["scores"])],
        [onnx.value("image", ["N", 3, height, width])], [onnx.value("scores", ["N", CLASSES])],
        [some("c1", 8, 3, 3, 3), some("c2", 16, 8, 3, 3), some("w", 16, CLASSES), some("bias", CLASSES)])
    if declared is not None:
        made += onnx.message((METADATA, onnx.message((1, "shunt.preprocess"), (2, json.dumps(declared)))))
    return made


def normalised(pictures):
    """As torchvision does it: ToTensor, Normalize. [N,H,W,3] of bytes -> [N,3,H,W]."""
    x = pictures.astype(np.float32) / np.float32(255)
    return np.ascontiguousarray(((x - MEAN) / STD).transpose(0, 3, 1, 2))


class Preprocess(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System()
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        cls.auth = {"authorization": "Bearer " + cls.key}
        s.push(cls.key, "plain", network())
        cls.file = os.path.join(s.dir, "net.onnx")
        with open(cls.file, "wb") as f:
            f.write(network())
        for name, what in (("bytes", "image=imagenet"), ("planes", "image=imagenet,NCHW")):
            r = cls.cli("push", "model", name, cls.file, "--preprocess", what, "--wait")
            assert not r.returncode, r.stdout
            assert "Requests bring image as UINT8" in r.stdout, r.stdout
        rng = np.random.default_rng(5)
        cls.x = rng.integers(0, 256, (ROWS, SIDE, SIDE, 3), np.uint8)
        cls.http = over_http.InferenceServerClient("127.0.0.1:%d" % s.port)
        cls.addClassCleanup(cls.http.close)
        cls.grpc = over_grpc.InferenceServerClient("127.0.0.1:%d" % (s.port + 1))
        cls.addClassCleanup(cls.grpc.close)
        cls.want = cls.ask("plain", normalised(cls.x))

    @classmethod
    def cli(cls, *args):
        return subprocess.run([os.path.join(BIN, "shunt"), *args, "--server", "http://127.0.0.1:%d" % cls.s.port],
                              text=True, timeout=180, env={**cls.s.env, "SHUNT_KEY": cls.key},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    @classmethod
    def ask(cls, model, x, binary=True, via=over_http, client=None):
        i = via.InferInput("image", list(x.shape), "UINT8" if x.dtype == np.uint8 else "FP32")
        if via is over_http:
            i.set_data_from_numpy(x, binary_data=binary)
        else:
            i.set_data_from_numpy(x)
        client = client or (cls.http if via is over_http else cls.grpc)
        return client.infer(model, [i], headers=dict(cls.auth)).as_numpy("scores")

    def assert_same(self, got, want=None):
        """Bit by bit: the floats that reach the model are those of the client."""
        np.testing.assert_array_equal(got, self.want if want is None else want)

    def push(self, name, body):
        """The upload's answer, and the version."""
        self.s.call("POST", "/api/v1/models", {"name": name}, self.key)
        v = self.s.call("POST", "/api/v1/models/%s/versions" % name, {}, self.key).json["version"]
        at = "/api/v1/models/%s/versions/%d" % (name, v)
        return self.s.call("PUT", at + "/artifact", body, self.key), self.s.call("GET", at, key=self.key).json

    def test_metadata_says_what_to_send(self):
        for name, shape in (("bytes", [-1, SIDE, SIDE, 3]), ("planes", [-1, 3, SIDE, SIDE])):
            said = self.s.call("GET", "/v2/models/" + name, key=self.key).json["inputs"][0]
            self.assertEqual((said["name"], said["datatype"], said["shape"]), ("image", "UINT8", shape))
            said = self.grpc.get_model_metadata(name, headers=dict(self.auth)).inputs[0]
            self.assertEqual((said.name, said.datatype, list(said.shape)), ("image", "UINT8", shape))
        meta = self.s.call("GET", "/api/v1/models/bytes/versions/1", key=self.key).json["meta"]["preprocess"]["image"]
        self.assertEqual((meta["layout"], meta["scale"]), ("NHWC", 1 / 255))
        np.testing.assert_array_equal(np.float32(meta["mean"]), MEAN)
        np.testing.assert_array_equal(np.float32(meta["std"]), STD)

    def test_answers_are_those_to_the_floats(self):
        self.assertGreater(np.ptp(self.want), 0.1)  # or they prove nothing
        self.assert_same(self.ask("bytes", self.x))
        self.assert_same(self.ask("bytes", self.x, binary=False))
        self.assert_same(self.ask("bytes", self.x, via=over_grpc))
        planes = np.ascontiguousarray(self.x.transpose(0, 3, 1, 2))
        self.assert_same(self.ask("planes", planes))
        self.assert_same(self.ask("planes", planes, binary=False))
        self.assert_same(self.ask("planes", planes, via=over_grpc))
        for i in range(ROWS):
            self.assert_same(self.ask("bytes", self.x[i:i + 1]), self.ask("plain", normalised(self.x[i:i + 1])))

    def test_typed_contents_of_grpc(self):
        q = service_pb2.ModelInferRequest(model_name="bytes")
        i = q.inputs.add(name="image", datatype="UINT8", shape=list(self.x.shape))
        i.contents.uint_contents.extend(int(v) for v in self.x.ravel())
        with grpc.insecure_channel("127.0.0.1:%d" % (self.s.port + 1)) as channel:
            r = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(q, metadata=list(self.auth.items()))
        self.assert_same(np.frombuffer(r.raw_output_contents[0], np.float32).reshape(ROWS, CLASSES)
                         if r.raw_output_contents else
                         np.float32(r.outputs[0].contents.fp32_contents).reshape(ROWS, CLASSES))

    def test_shared_memory(self):
        with another(self.s, "--client-shm=any") as port:
            c = over_grpc.InferenceServerClient("127.0.0.1:%d" % port)
            self.addCleanup(c.close)
            key = "/shunt-bytes-%d" % os.getpid()
            region = shm.create_shared_memory_region("in", key, self.x.nbytes)
            self.addCleanup(shm.destroy_shared_memory_region, region)
            shm.set_shared_memory_region(region, [self.x])
            c.register_system_shared_memory("in", key, self.x.nbytes, headers=dict(self.auth))
            i = over_grpc.InferInput("image", list(self.x.shape), "UINT8")
            i.set_shared_memory("in", self.x.nbytes)
            self.assert_same(c.infer("bytes", [i], headers=dict(self.auth)).as_numpy("scores"))
            c.unregister_system_shared_memory("in", headers=dict(self.auth))

    def test_the_command_sends_a_picture_as_it_is(self):
        path = os.path.join(self.s.dir, "one.png")
        with open(path, "wb") as f:
            f.write(png(SIDE, SIDE, self.x[0].tobytes()))
        out = os.path.join(self.s.dir, "one.safetensors")
        for model in ("bytes", "planes"):
            r = self.cli("infer", model, "--image", path, "--outputs", out)
            self.assertEqual(r.returncode, 0, r.stdout)
            _, shape, raw = read_st(out)["scores"]
            self.assert_same(np.frombuffer(raw, np.float32).reshape(shape), self.ask("plain", normalised(self.x[:1])))
        r = self.cli("infer", "bytes", "--image", path, "--mean", "0.5")
        self.assertIn("leave out --mean", r.stdout)

    def test_sizes_that_the_file_leaves_open(self):
        for name, declared in (("open", None), ("open-bytes", {"image": "imagenet"})):
            self.s.push(self.key, name, network(("h", "w"), declared))
        for h, w in ((17, 23), (32, 9)):
            x = np.random.default_rng(h).integers(0, 256, (2, h, w, 3), np.uint8)
            self.assert_same(self.ask("open-bytes", x), self.ask("open", normalised(x)))

    def test_what_does_not_fit_is_refused(self):
        planes = np.ascontiguousarray(self.x.transpose(0, 3, 1, 2))
        for x, says in ((normalised(self.x), "has datatype FP32, the model wants UINT8"),
                        (planes, "shape"), (self.x[:, :, :, :2].copy(), "shape"), (self.x[0], "shape")):
            for via in (over_http, over_grpc):
                with self.assertRaises(InferenceServerException) as e:
                    self.ask("bytes", x, via=via)
                self.assertIn(says, e.exception.message())
        for value in (256, -1, 0.5):
            r = self.s.infer(self.key, "bytes", [{"name": "image", "datatype": "UINT8", "shape": [1, SIDE, SIDE, 3],
                                                  "data": [value] * (SIDE * SIDE * 3)}])
            self.assertEqual(r.status, 400, r)

    def test_a_declaration_that_does_not_fit_the_model_is_refused(self):
        for declared, says in (({"picture": "imagenet"}, 'has no input "picture"; it has image'),
                               ({"image": "imagnet"}, "names no preset"),
                               ({"image": {"mean": [0.5, 0.5]}}, "has 2 numbers, and its pictures have 3"),
                               ({"image": {"std": [1, 0, 1]}}, '"std" of "image" must be numbers from'),
                               ({"image": {"layout": "CHWN"}}, "must be NHWC or NCHW"),
                               ({"image": {"gamma": 2}}, "gamma")):
            r, v = self.push("refused", network(declared=declared))
            self.assertEqual((r.status, r.code), (400, "INVALID"), r)
            self.assertIn(says, r.error)
            self.assertEqual((v["state"], v["reason_code"]), ("FAILED", "INVALID"))
        words = onnx.message((METADATA, onnx.message((1, "shunt.preprocess"), (2, '{"x": "unit"}'))))
        r, v = self.push("refused", onnx.linear() + words)
        self.assertIn('"x" has 2 axes', r.error)
        r = self.cli("push", "model", "refused", self.file, "--preprocess", "image=imagnet")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("names no preset", r.stdout)

    def test_a_file_beside_the_model_declares_it(self):
        declared = json.dumps({"image": {"preset": "imagenet"}}).encode()
        self.s.push(self.key, "beside", onnx.tar({"m.onnx": network(), "preprocess.json": declared}))
        self.assert_same(self.ask("beside", self.x))

    def test_batch_inference(self):
        self.s.push_data(self.key, "set", st_bytes({"image": ("U8", list(self.x.shape), self.x.tobytes())}))
        r = self.s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "bytes", "dataset": "set", "spec": {}}, self.key)
        self.assertEqual(r.status, 201, r)
        self.assertEqual(self.s.wait_job(self.key, r.json["id"])["state"], "SUCCEEDED")
        path = os.path.join(self.s.dir, "result")
        with open(path, "wb") as f:
            f.write(self.s.call("GET", "/api/v1/jobs/%d/result/artifact" % r.json["id"], key=self.key).raw)
        _, shape, raw = read_st(path)["scores"]
        self.assert_same(np.frombuffer(raw, np.float32).reshape(shape))

    def train(self, model, x, **spec):
        labels = np.arange(ROWS, dtype=np.int64) % CLASSES
        name = "%s-%d" % (model, len(spec))
        self.s.push_data(self.key, name, st_bytes({
            "image": ("U8" if x.dtype == np.uint8 else "F32", list(x.shape), x.tobytes()),
            "label": ("I64", [ROWS], labels.tobytes())}))
        r = self.s.submit(self.key, model=model, version=1, dataset=name, eval_dataset=name,
                          spec={**SPEC, **spec})
        if r.status != 201:
            return r, None
        ended = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual(ended["state"], "SUCCEEDED", ended)
        return ended, self.s.job(self.key, r.json["id"], "/losses").json["losses"]

    def test_training_sees_what_requests_send(self):
        for name, declared in (("school", None), ("school-bytes", {"image": "imagenet"})):
            self.s.push(self.key, name, network(declared=declared))
        (a, want), (b, got) = self.train("school", normalised(self.x)), self.train("school-bytes", self.x)
        np.testing.assert_allclose(got, want, rtol=1e-6)
        self.assertAlmostEqual(a["result"]["eval_loss"], b["result"]["eval_loss"], places=6)
        versions = {}
        for model, job in (("school", a), ("school-bytes", b)):
            r = self.cli("wait", "model", "%s:%d" % (model, job["result_version"]))
            self.assertEqual(r.returncode, 0, r.stdout)
            versions[model] = "%s/versions/%d" % (model, job["result_version"])
        said = self.s.call("GET", "/v2/models/" + versions["school-bytes"], key=self.key).json["inputs"][0]
        self.assertEqual((said["datatype"], said["shape"]), ("UINT8", [-1, SIDE, SIDE, 3]))
        x = [{"name": "image", "datatype": "UINT8", "shape": list(self.x.shape), "data": self.x.ravel().tolist()}]
        scores = self.s.infer(self.key, versions["school-bytes"], x).json["outputs"][0]["data"]
        x = normalised(self.x)
        x = [{"name": "image", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}]
        want = self.s.infer(self.key, versions["school"], x).json["outputs"][0]["data"]
        np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-5)

    def test_augmentation_moves_the_bytes(self):
        """As it moves those of a dataset for a model of floats, in its layout: the same draws."""
        some = [{"name": "crop", "padding": 3}, {"name": "flip", "probability": 0.5}]
        for name, declared in (("moved", None), ("moved-bytes", {"image": "imagenet"})):
            self.s.push(self.key, name, network(declared=declared))
        planes = np.ascontiguousarray(self.x.transpose(0, 3, 1, 2))
        normalise = {"name": "normalise", "mean": MEAN.tolist(), "std": STD.tolist()}
        _, want = self.train("moved", planes, augment=[*some, normalise])
        _, got = self.train("moved-bytes", self.x, augment=some)
        np.testing.assert_allclose(got, want, rtol=1e-5)
        _, still = self.train("moved-bytes", self.x)
        self.assertGreater(np.max(np.abs(np.subtract(got, still))), 1e-3)

    def test_training_on_what_it_cannot_take_is_refused(self):
        r, _ = self.train("planes", self.x)
        self.assertEqual(r.status, 400, r)
        self.assertIn("shape", r.error)
        r, _ = self.train("bytes", normalised(self.x))
        self.assertEqual(r.status, 400, r)
        self.assertIn("has datatype FP32, the job wants UINT8", r.error)
        r, _ = self.train("bytes", self.x, augment=[{"name": "normalise", "mean": 0.5, "std": 0.5}])
        self.assertEqual(r.status, 400, r)
        self.assertIn("the model normalises itself", r.error)


if __name__ == "__main__":
    unittest.main()
