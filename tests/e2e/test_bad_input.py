#!/usr/bin/env python3
"""What clients send that is wrong, to a whole system: models, tensors, JSON, HTTP, keys, datasets, jobs.

Without it: one wrong upload or request could end a process that all tenants share, or be answered with
"internal error" where a person needs to know what to change. After each story the same processes must
run and a good request must be answered.

Usage: test_bad_input.py [-v] [name ...]
"""
import datetime
import gzip
import http.client
import json
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import DIGITS, Story, System, read_st, st_bytes, until, zoo  # noqa: E402

MAX_MODEL = 1 << 20


def floats(*values):
    return struct.pack("<%df" % len(values), *values)


def digits_of(name):
    with open(os.path.join(DIGITS, name + ".safetensors"), "rb") as f:
        return f.read()


SPACES = b" " * 9000  # behind a body: a smaller one is counted when all of it is there

class BadInput(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", KEEP_RENEW_S="0", MAX_MODEL_BYTES=str(MAX_MODEL),
                            HEADER_TIMEOUT_S="3")
        cls.addClassCleanup(s.stop)
        cls.key, cls.other = s.tenant("vision"), s.tenant("other")
        s.push(cls.key, "two", onnx.two_outputs(), max_batch=4)
        cls.good = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]},
                    {"name": "k", "datatype": "INT64", "shape": [1, 2], "data": [5, 6]}]
        cls.pids = s.pids()

    def tearDown(self):
        self.assertEqual(self.s.pids(), self.pids, "a process has died")
        self.serves()

    def serves(self):
        r = self.s.infer(self.key, "two", self.good)
        self.assertEqual(r.status, 200, r)
        self.assertEqual(r.json["outputs"][0]["data"], [1.0, -1.25, 2.0])

    def refused(self, r, status, code, pattern):
        self.assertEqual((r.status, r.code), (status, code), r)
        self.assertRegex(r.error, pattern)
        return r

    # ------------------------------------------------------------ JSON that is no object
    def test_bodies_that_are_no_object(self):
        """Of every operation that takes JSON, also where it would look at no field of it."""
        ids, n = {"model": "two", "version": 1, "tenant": "vision", "job": 1, "array": 1}, 0
        for method, path, op in self.s.spec().operations():
            if "application/json" not in op.get("requestBody", {}).get("content", {}) or path.endswith("/infer"):
                continue
            own = any("tenant-admin" in need["key"] for need in op["security"])
            at = re.sub(r"\{(\w+)\}", lambda m: str(ids.get(m[1], "x")), path)
            for body in (b"[]", b"[1]", b"[{}]", b" [[]] "):
                with self.subTest(method=method, path=path, body=body):
                    r = self.s.call(method, at, body, self.key if own else self.s.admin,
                                    {"Content-Type": "application/json"})
                    self.refused(r, 400, "INVALID", "must be a JSON object")
                    n += 1
        self.assertGreater(n, 100)

    # ------------------------------------------------------------ bodies that are compressed
    def packed(self, path, data, coding="gzip", **headers):
        return self.s.call("POST", path, data, self.key, {
            "Content-Encoding": coding, "Content-Type": "application/json", **headers})

    def test_compressed_bodies(self):
        infer, text = "/v2/models/two/infer", json.dumps({"inputs": self.good}).encode()
        good = gzip.compress(text)
        for coding, data in (("gzip", good), ("deflate", zlib.compress(text)), ("X-GZIP", good),
                             ("gzip", gzip.compress(text[:9]) + gzip.compress(text[9:]))):
            r = self.packed(infer, data, coding)
            self.assertEqual((r.status, r.json["outputs"][0]["data"]), (200, [1.0, -1.25, 2.0]), r)
        self.assertEqual(self.packed("/api/v1/models", gzip.compress(b'{"name": "packed"}')).status, 201)
        for data, status, code, pattern in (
                (good[:-1], 400, "INVALID", "ends before"), (good[:5], 400, "INVALID", "ends before"),
                (b"", 400, "INVALID", "ends before|empty"), (text, 400, "INVALID", "not what"),
                (good + b"x", 400, "INVALID", "follows|not what|ends before"),
                (good[:20] + b"\xff\xff" + good[22:], 400, "INVALID", "not what|ends"),
                (gzip.compress(bytes(70 << 20)), 413, "TOOBIG", "unpack"),  # 70 KB of zeros
                (gzip.compress(b" " * (18 << 20) + text), 413, "TOOBIG", "unpack|JSON part"),
                (gzip.compress(b""), 400, "INVALID", "empty"), (gzip.compress(b"[1"), 400, "INVALID", "JSON")):
            for path in (infer, "/api/v1/models"):
                with self.subTest(path=path, size=len(data), first=data[:4]):
                    self.refused(self.packed(path, data), status, code,
                                 pattern if path == infer else ".")
        for coding in ("br", "gzip, gzip", "zstd"):
            r = self.refused(self.packed(infer, good, coding), 415, "UNSUPPORTED", "gzip or deflate")
            self.assertEqual(r.headers["accept-encoding"], "gzip, deflate")
        self.s.call("POST", "/api/v1/datasets", {"name": "packed"}, self.key)
        r = self.s.call("PUT", "/api/v1/datasets/packed/artifact", good, self.key, {"Content-Encoding": "gzip"})
        self.refused(r, 415, "UNSUPPORTED", "not for files")
        r = self.s.talk(self.head(infer, "Content-Encoding: gzip", "Transfer-Encoding: chunked") + b"0\r\n\r\n")
        self.assertRegex(r, r"^HTTP/1.1 411 ")
        r = self.packed(infer, good, **{"Inference-Header-Content-Length": str(len(text) + 1)})
        self.refused(r, 400, "INVALID", "to the body's length, %d" % len(text))
        self.s.talk(self.head(infer, "Content-Encoding: gzip", "Content-Length: 900") + good, then_close=True)
        until("the payload memory is free again", lambda: self.s.payload() == 0)

    def test_replies_that_are_compressed(self):
        """Where the client takes that: the description, which has a tag, and long lists."""
        plain = self.s.call("GET", "/openapi.json")
        packed = self.s.call("GET", "/openapi.json", headers={"Accept-Encoding": "br, gzip"})
        self.assertNotIn("content-encoding", plain.headers)
        self.assertEqual((packed.headers["content-encoding"], packed.headers["vary"]), ("gzip", "Accept-Encoding"))
        self.assertEqual(gzip.decompress(packed.raw), plain.raw)
        self.assertLess(8 * len(packed.raw), len(plain.raw))
        self.assertNotEqual(plain.headers["etag"], packed.headers["etag"])
        for r, more in ((plain, {}), (packed, {"Accept-Encoding": "gzip"})):
            again = self.s.call("GET", "/openapi.json", headers={"If-None-Match": r.headers["etag"], **more})
            self.assertEqual((again.status, again.raw, again.headers["etag"]), (304, b"", r.headers["etag"]))
        r = self.s.call("GET", "/openapi.json", headers={"If-None-Match": '"x"'})
        self.assertEqual((r.status, r.raw), (200, plain.raw))
        for i in range(40):
            self.s.call("POST", "/api/v1/models", {"name": "listed-%d" % i}, self.key)
        plain = self.s.call("GET", "/api/v1/models", key=self.key)
        packed = self.s.call("GET", "/api/v1/models", key=self.key, headers={"Accept-Encoding": "gzip"})
        self.assertEqual((plain.headers.get("content-encoding"), packed.headers["content-encoding"]), (None, "gzip"))
        self.assertEqual(json.loads(gzip.decompress(packed.raw)), plain.json)
        r = self.s.call("GET", "/api/v1/models?limit=1", key=self.key, headers={"Accept-Encoding": "gzip"})
        self.assertEqual((r.status, r.headers.get("content-encoding")), (200, None))  # too short to pay

    # ------------------------------------------------------------ models
    def refused_model(self, data, status, code, pattern, **version):
        r = self.s.push(self.key, "bad", data, ready=False, **version)
        self.refused(r, status, code, pattern)
        v = self.s.call("GET", "/api/v1/models/bad", key=self.key).json["versions"][-1]
        self.assertEqual(v["state"], "FAILED", v)
        at = "/api/v1/models/bad/versions/%d" % v["version"]
        v = self.s.call("GET", at, key=self.key).json
        self.assertEqual((v["reason_code"], v["reason"]), (code, r.error))
        tmp = os.path.join(self.s.state, "blobs", "tmp")  # a thread removes it after the reply
        until("its file is gone", lambda: not os.listdir(tmp))
        return r

    def test_truncated_models(self):
        whole = zoo("digits-cnn")
        for n in (1, 7, 100, len(whole) // 2, len(whole) - 1):
            with self.subTest(bytes=n):
                self.refused_model(whole[:n], 400, "INVALID", "ONNX|truncated|inputs")
        r = self.s.push(self.key, "bad", b"", ready=False)
        self.refused(r, 400, "INVALID", "empty")

    def test_files_that_are_no_models(self):
        for name, data in (("text", b"this is not a model\n" * 50), ("zeros", bytes(5000)),
                           ("png", b"\x89PNG\r\n\x1a\n" + os.urandom(5000)),
                           ("zip", b"PK\x03\x04" + os.urandom(5000)), ("dataset", digits_of("test")),
                           ("random", os.urandom(20000)), ("empty graph", onnx.model([], [], []))):
            with self.subTest(name):
                self.refused_model(data, 400, "INVALID", "ONNX|outputs|graph")

    def test_models_larger_than_allowed(self):
        self.s.call("POST", "/api/v1/models", {"name": "large"}, self.key)
        self.s.call("POST", "/api/v1/models/large/versions", {}, self.key)
        at = "/api/v1/models/large/versions/1/artifact"
        r = self.s.call("PUT", at, bytes(MAX_MODEL + 1), self.key)
        self.refused(r, 413, "TOOBIG", "%d bytes, at most %d" % (MAX_MODEL + 1, MAX_MODEL))
        # Without a length it shows only on the way.
        chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
        head = "PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (at, self.key)
        got = self.s.talk(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17 +
                          b"0\r\n\r\n")
        self.assertRegex(got, r"^HTTP/1.1 413 (.|\n)*larger than %d bytes" % MAX_MODEL)
        # It was the file that was refused, not the version: the right one may follow.
        r = self.s.call("PUT", at, onnx.linear(), self.key)
        self.assertEqual((r.status, r.json["state"]), (200, "REGISTERED"), r)

    def test_cyclic_models(self):
        x, y = [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 4])]
        self.refused_model(onnx.model([onnx.node("Add", ["x", "b"], ["a"]),
                                       onnx.node("Relu", ["a"], ["b"]),
                                       onnx.node("Relu", ["b"], ["y"])], x, y),
                           400, "INVALID", "node .*(a|b).*(cycl|before|defines)")
        self.refused_model(onnx.model([onnx.node("Add", ["x", "y"], ["y"], name="self")], x, y),
                           400, "INVALID", "self")

    def test_models_that_contradict_themselves(self):
        x, y = [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 4])]
        relu = onnx.node("Relu", ["x"], ["y"], name="r1")
        for name, data, pattern in (
                ("undefined", onnx.model([onnx.node("Relu", ["q"], ["y"], name="r1")], x, y), "r1.*q"),
                ("twice", onnx.model([relu, onnx.node("Abs", ["x"], ["y"], name="r2")], x, y), "r2.*y"),
                ("no output", onnx.model([relu], x, [onnx.value("z", ["N", 4])]), "z"),
                ("shapes", onnx.model([onnx.node("Add", ["x", "w"], ["y"], name="sum")], x, y,
                                      [onnx.tensor("w", [3], [1.0] * 3)]), "sum"),
                ("nameless", onnx.model([onnx.node("Relu", [""], ["y"], name="r1")], x, y), "r1"),
                ("inputs", onnx.model([onnx.node("Gemm", ["x"], ["y"], name="g")], x, y), "g"),
        ):
            with self.subTest(name):
                self.refused_model(data, 400, "INVALID", pattern)

    def test_models_of_hostile_size(self):
        x, y = [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 4])]

        def with_weight(dims, raw=b"", values=(), dtype=onnx.FLOAT):
            return onnx.model([onnx.node("Add", ["x", "w"], ["y"])], x, y,
                              [onnx.tensor("w", dims, values, dtype, raw)])
        cases = {
            "a weight of 2^80": (with_weight([1 << 40, 1 << 40]), "400 INVALID|413 TOOBIG", "w"),
            "a weight of 2^63": (with_weight([(1 << 63) - 1]), "400 INVALID|413 TOOBIG", "w"),
            "a weight that is not there": (with_weight([1 << 20, 1 << 10]), "400 INVALID", "w"),
            "a negative weight": (with_weight([-4]), "400 INVALID", "w"),
            "a weight of two sizes": (with_weight([4], floats(1, 2, 3)), "400 INVALID", "w.*12.*16"),
            "an input of 2^62": (onnx.model([onnx.node("Relu", ["x"], ["y"])],
                                            [onnx.value("x", ["N", 1 << 62])],
                                            [onnx.value("y", ["N", 1 << 62])]),
                                 "400 INVALID|413 TOOBIG|422 UNSUPPORTED", "x"),
            "an input of 2^40": (onnx.model([onnx.node("Relu", ["x"], ["y"])],
                                            [onnx.value("x", ["N", 1 << 40])],
                                            [onnx.value("y", ["N", 1 << 40])]),
                                 "400 INVALID|413 TOOBIG|422 UNSUPPORTED", "x|y"),
            "an axis of -5": (onnx.model([onnx.node("Relu", ["x"], ["y"])],
                                         [onnx.value("x", ["N", -5])], y), "400 INVALID", "x"),
            "an axis of 0": (onnx.model([onnx.node("Relu", ["x"], ["y"])],
                                        [onnx.value("x", ["N", 0])], y), "400 INVALID", "x"),
            "40 axes": (onnx.model([onnx.node("Relu", ["x"], ["y"])],
                                   [onnx.value("x", ["N"] + [2] * 40)], y), "422 UNSUPPORTED", "x"),
            "a constant of 2^40": (onnx.model(
                [onnx.node("ConstantOfShape", ["n"], ["c"], name="huge"),
                 onnx.node("ReduceSum", ["c"], ["t"]), onnx.node("Add", ["x", "t"], ["y"])], x, y,
                [onnx.tensor("n", [1], [1 << 40], onnx.INT64)]),
                "400 INVALID|413 TOOBIG|422 UNSUPPORTED", "huge"),
            "2^40 copies": (onnx.model([onnx.node("Expand", ["x", "n"], ["y"], name="huge")], x,
                                       [onnx.value("y", [1 << 20, 1 << 20, 4])],
                                       [onnx.tensor("n", [3], [1 << 20, 1 << 20, 4], onnx.INT64)]),
                            "400 INVALID|413 TOOBIG|422 UNSUPPORTED", "huge"),
            "padding of 2^31": (onnx.model(
                [onnx.node("Conv", ["x", "w"], ["y"], name="wide", pads=[1 << 31] * 4)],
                [onnx.value("x", ["N", 1, 8, 8])], [onnx.value("y", ["N", 1, 8, 8])],
                [onnx.tensor("w", [1, 1, 3, 3], [1.0] * 9)]),
                "400 INVALID|413 TOOBIG|422 UNSUPPORTED", "wide"),
            "a stride of 0": (onnx.model(
                [onnx.node("Conv", ["x", "w"], ["y"], name="still", strides=[0, 0])],
                [onnx.value("x", ["N", 1, 8, 8])], [onnx.value("y", ["N", 1, 8, 8])],
                [onnx.tensor("w", [1, 1, 3, 3], [1.0] * 9)]), "400 INVALID", "still"),
            "a length that lies": (b"\x3a" + onnx.varint(1 << 50) + b"x" * 100, "400 INVALID", "ONNX"),
            "external data": (onnx.model([onnx.node("Add", ["x", "w"], ["y"])], x, y, [
                onnx.message((1, 4), (2, 1), (8, "w"), (14, 1),
                             (13, onnx.message((1, "location"), (2, "/etc/passwd"))))]),
                "400 INVALID", "must not leave the folder"),
            "data that did not come": (onnx.model([onnx.node("Add", ["x", "w"], ["y"])], x, y, [
                onnx.external("w", [4], "m.data", 0, 16)]), "400 INVALID", "which is not there"),
            "a tar file of data alone": (onnx.tar({"m.data": bytes(16)}), "400 INVALID", "no .onnx file"),
            "a tar file with a link": (onnx.tar({"m.onnx": b"x", "m.data": None}), "400 INVALID",
                                       "neither a file nor a folder"),
            "an offset behind the end": (onnx.tar({"m.onnx": onnx.model(
                [onnx.node("Add", ["x", "w"], ["y"])], x, y, [onnx.external("w", [4], "m.data", 1 << 60, 16)]),
                "m.data": bytes(16)}), "400 INVALID", "the file has 16"),
        }
        nested = onnx.node("Relu", ["x"], ["y"])
        for i in range(3000):
            nested = onnx.message((4, "If"), (5, onnx.message((1, "then_branch"), (20, 5), (6, onnx.message(
                (1, nested), (2, "g"))))))
        cases["3000 graphs in each other"] = (onnx.model([nested], x, y), "400 INVALID|422 UNSUPPORTED",
                                              "ONNX|control flow")
        for name, (data, want, pattern) in cases.items():
            with self.subTest(name):
                r = self.s.push(self.key, "bad", data, ready=False)
                self.assertRegex("%d %s" % (r.status, r.code), "^(%s)$" % want, r)
                self.assertRegex(r.error, pattern)

    def test_a_model_of_many_nodes_takes_no_forever(self):
        n = 12000
        nodes = [onnx.node("Relu", ["x" if i == 0 else "a%d" % i], ["y" if i == n - 1 else "a%d" % (i + 1)],
                           name="n%d" % i) for i in range(n)]
        r = self.s.push(self.key, "long", onnx.model(nodes, [onnx.value("x", ["N", 4])],
                                                     [onnx.value("y", ["N", 4])]), ready=False)
        self.assertIn(r.status, (200, 400, 413, 422), r)

    def test_a_model_that_fits_no_device_says_so(self):
        data = onnx.model([onnx.node("MatMul", ["x", "w"], ["wide"], name="outer"),
                           onnx.node("ReduceSum", ["wide", "axes"], ["y"], keepdims=0)],
                          [onnx.value("x", ["N", 20000, 1])], [onnx.value("y", ["N"])],
                          [onnx.tensor("w", [1, 20000], [1.0] * 20000),
                           onnx.tensor("axes", [2], [1, 2], onnx.INT64)])
        r = self.s.push(self.key, "wide", data, ready=False)
        self.assertEqual(r.status, 200, r)

        def failed():
            v = self.s.call("GET", "/api/v1/models/wide/versions/1", key=self.key).json
            self.assertNotEqual(v["state"], "READY", v)
            return v["state"] == "FAILED" and v
        v = until("the version is FAILED", failed)
        self.assertEqual(v["reason_code"], "TOOBIG", v)
        self.assertRegex(v["reason"], r"\d+ MiB for a batch of 8, the pool has 256 MiB; lower max_batch")
        r = self.s.infer(self.key, "wide", [])
        self.refused(r, 409, "CONFLICT", "has failed: .+")

    def test_every_unsupported_node_is_listed(self):
        nodes = [onnx.node("TfIdfVectorizer", ["x"], ["a"], name="first"),
                 onnx.node("Relu", ["a"], ["b"], name="fine"),
                 onnx.node("RandomNormalLike", ["b"], ["c"], name="second"),
                 onnx.node("Blur", ["c"], ["d"], name="third", domain="com.acme"),
                 onnx.node("TfIdfVectorizer", ["d"], ["y"], name="fourth")]
        r = self.refused_model(onnx.model(nodes, [onnx.value("x", ["N", 4])],
                                          [onnx.value("y", ["N", 4])]), 422, "UNSUPPORTED", "TfIdfVectorizer|first")
        self.assertEqual([(n["op"], n["node"]) for n in r.json["nodes"]],
                         [("TfIdfVectorizer", "first"), ("RandomNormalLike", "second"),
                          ("com.acme::Blur", "third"), ("TfIdfVectorizer", "fourth")], r)
        self.assertTrue(all(n["reason"] for n in r.json["nodes"]), r)
        self.assertIn("model.eval()", r.json["nodes"][1]["reason"])  # the most common one: dropout

    def test_opsets(self):
        relu, x, y = onnx.node("Relu", ["x"], ["y"]), onnx.value("x", ["N", 4]), onnx.value("y", ["N", 4])
        for opset in (0, 99):
            self.refused_model(onnx.model([relu], [x], [y], opset=opset), 422, "UNSUPPORTED",
                               "opset %d" % opset)

    def test_bad_fields_of_versions(self):
        for body, pattern in (({"max_batch": 0}, "max_batch"), ({"max_batch": "4"}, "max_batch"),
                              ({"precision": "fp8"}, "precision"), ({"colour": 1}, "colour"),
                              ({"version": 2 ** 31 - 1}, "version")):
            r = self.s.call("POST", "/api/v1/models/two/versions", body, self.key)
            self.refused(r, 400, "INVALID", pattern)

    def test_there_is_a_version_behind_the_highest_that_can_be_chosen(self):
        """Else nothing could be uploaded any more, and what a job has trained would have no number."""
        self.s.call("POST", "/api/v1/models", {"name": "far"}, self.key)
        for body, number in (({"version": 2 * 10 ** 9}, 2 * 10 ** 9), ({}, 2 * 10 ** 9 + 1)):
            r = self.s.call("POST", "/api/v1/models/far/versions", body, self.key)
            self.assertEqual((r.status, r.json["version"]), (201, number), r)

    def test_an_upload_that_is_cut(self):
        self.s.call("POST", "/api/v1/models", {"name": "cut"}, self.key)
        self.s.call("POST", "/api/v1/models/cut/versions", {}, self.key)
        at = "/api/v1/models/cut/versions/1"
        head = "PUT %s/artifact HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (at, self.key)
        with socket.create_connection(("127.0.0.1", self.s.port)) as c:
            c.sendall(head.encode() + b"Content-Length: 500000\r\n\r\n" + bytes(200000))
            tmp = os.path.join(self.s.state, "blobs", "tmp")
            until("the upload has begun", lambda: os.listdir(tmp))
        until("its file is gone", lambda: not os.listdir(tmp))
        v = self.s.call("GET", at, key=self.key).json
        self.assertEqual(v["state"], "UPLOADING")
        r = self.s.call("PUT", at + "/artifact", onnx.linear(), self.key)
        self.assertEqual(r.status, 200, r)

    # ------------------------------------------------------------ tensors
    # ------------------------------------------------------------ one of many
    def clients(self, model, rows):
        """All at once, while the workers stand still: they come to the device together."""
        got = [None] * len(rows)

        def client(i):
            kind = "INT64" if model == "words" else "FP32"
            got[i] = self.s.infer(self.key, model, [
                {"name": "ids", "datatype": kind, "shape": [1, 4], "data": rows[i]}])
        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(rows))]
        for pid in self.s.workers():
            os.kill(pid, signal.SIGSTOP)
        try:
            for t in threads:
                t.start()
            until("all are there", lambda: self.s.metrics("api")["shunt_http_connections"] >= len(rows))
            time.sleep(0.2)  # a few more of them come into one batch; the answers are the same without
        finally:
            for pid in self.s.workers():
                os.kill(pid, signal.SIGCONT)
        for t in threads:
            t.join()
        return got

    def test_wrong_data_of_one_client_are_nothing_to_the_others(self):
        for model, data in (("words", onnx.words()), ("cast", onnx.words(to=onnx.INT64))):
            self.s.push(self.key, model, data, max_batch=16)
            rows = [[(7 * i + k) % 50 for k in range(4)] for i in range(24)]
            rows[3][2], rows[11][0], rows[20][3] = 99, -51, 60
            got = self.clients(model, rows)
            for i, r in enumerate(got):
                if i in (3, 11, 20):
                    at = {3: 2, 11: 0, 20: 3}[i]
                    self.refused(r, 400, "INVALID", "index %d at position %d is outside the table of 50" % (
                        rows[i][at], at))
                else:
                    self.assertEqual(r.status, 200, r)
                    self.assertEqual(r.json["outputs"][0]["data"][::2], [float(v) for v in rows[i]])

    def bad_infer(self, status, code, pattern, inputs, **more):
        return self.refused(self.s.infer(self.key, "two", inputs, **more), status, code, pattern)

    def changed(self, i, **fields):
        out = [dict(t) for t in self.good]
        out[i].update(fields)
        return [{k: v for k, v in t.items() if v is not None} for t in out]

    def test_wrong_tensors(self):
        for pattern, inputs in (
                (r'no input "z"; it has: "x", "k"', self.changed(0, name="z")),
                (r'"x" has datatype FP16, the model wants FP32', self.changed(0, datatype="FP16")),
                (r'"x" has datatype BYTES', self.changed(0, datatype="BYTES")),
                (r'datatype', self.changed(0, datatype="FLOAT")),
                (r'"x" has shape \[1,5\], the model wants \[-1,4\]', self.changed(0, shape=[1, 5])),
                (r'"x" has shape \[4\]', self.changed(0, shape=[4])),
                (r'"x" has shape \[1,4,1\]', self.changed(0, shape=[1, 4, 1])),
                (r'shape', self.changed(0, shape=[-1, 4])),
                (r'batch of 4611686018427387904', self.changed(0, shape=[1 << 62, 4])),
                (r'shape', self.changed(0, shape="[1,4]")),
                (r'shape', self.changed(0, shape=[1] * 100)),
                (r'"data" has 3 elements, its shape needs 4', self.changed(0, data=[1, 2, 3])),
                (r'more than the 4 elements', self.changed(0, data=[1] * 5)),
                (r'element 2 of "data" must be a number', self.changed(0, data=[1, 2, "3", 4])),
                (r'must be', self.changed(0, data=[1, 2, None, 4])),
                (r'fits', self.changed(0, data=[1, 2, 1e300, 4])),
                (r'whole number', self.changed(1, data=[1.5, 2])),
                (r'"x" is given twice', self.good + self.good[:1]),
                (r'"k" is missing', self.good[:1]),
                (r'"inputs"', []),
                (r'batch of 0', self.changed(0, shape=[0, 4], data=[])),
                (r'another input has 1', self.changed(1, shape=[2, 2], data=[1, 2, 3, 4])),
                (r'data', self.changed(0, data=None)),
                (r'name', self.changed(0, name=None)),
                (r'name', self.changed(0, name=7)),
                (r'colour', self.changed(0, colour=1)),
        ):
            with self.subTest(pattern, inputs=inputs):
                self.bad_infer(400, "INVALID", pattern, inputs)
        r = self.bad_infer(400, "INVALID", r"batch of 5, the model takes 1 to 4", [
            {"name": "x", "datatype": "FP32", "shape": [5, 4], "data": [0] * 20},
            {"name": "k", "datatype": "INT64", "shape": [5, 2], "data": [0] * 10}])
        self.assertTrue(r.json["request_id"])

    def test_wrong_outputs_and_fields(self):
        self.bad_infer(400, "INVALID", 'no output "q"', self.good, outputs=[{"name": "q"}])
        self.bad_infer(400, "INVALID", '"y" is asked for twice', self.good, outputs=[{"name": "y"}] * 2)
        self.bad_infer(400, "INVALID", '"colour" is not a known field', self.good, colour=1)
        self.bad_infer(400, "INVALID", "id", self.good, id=7)
        self.bad_infer(400, "INVALID", "timeout", self.good, parameters={"timeout": "soon"})
        self.bad_infer(400, "INVALID", "shared_memory_byte_size", self.changed(
            0, parameters={"shared_memory_region": "r"}))

    def binary(self, sizes=(16, 16), raw=None, length=None, **fields):
        """A request in binary; `length` is what its header claims about the JSON (False: no header)."""
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 4],
                   "parameters": {"binary_data_size": sizes[0]}},
                  {"name": "k", "datatype": "INT64", "shape": [1, 2],
                   "parameters": {"binary_data_size": sizes[1]}}]
        head = json.dumps({"inputs": inputs, **fields}).encode()
        raw = floats(1, 0, 0, 0) + struct.pack("<2q", 5, 6) if raw is None else raw
        length = str(len(head)) if length is None else length
        return self.s.call("POST", "/v2/models/two/infer", head + raw, self.key, {} if length is False
                           else {"Inference-Header-Content-Length": length})

    def test_wrong_binary_lengths(self):
        r = self.binary()
        self.assertEqual((r.status, r.json["outputs"][0]["data"]), (200, [1.0, -1.25, 2.0]), r)
        for kw, pattern in (
                ({"raw": bytes(24)}, r'body ends within input "k": 8 of its 16'),
                ({"raw": bytes(40)}, r"8 bytes more"),
                ({"raw": b""}, r'body ends within input "x"'),
                ({"sizes": (12, 16), "raw": bytes(28)}, r'"x" has 12 bytes of data, .* need 16'),
                ({"sizes": (-1, 16)}, r"binary_data_size"), ({"sizes": ("16", 16)}, r"binary_data_size"),
                ({"sizes": (1 << 62, 16)}, r'"x"'),
                ({"sizes": (0, 16), "raw": bytes(16)}, r'"x"')):
            with self.subTest(pattern):
                self.refused(self.binary(**kw), 400, "INVALID", pattern)

    def test_a_binary_request_without_the_length_of_its_json(self):
        n = len(json.dumps({"inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}},
            {"name": "k", "datatype": "INT64", "shape": [1, 2], "parameters": {"binary_data_size": 16}}]}))
        says = "JSON ends after %d bytes, and 32 more .* Inference-Header-Content-Length: %d," % (n, n)
        self.refused(self.binary(length=""), 400, "INVALID", "Inference-Header-Content-Length")
        self.refused(self.binary(length=str(n + 32)), 400, "INVALID", says)
        self.refused(self.binary(length=False), 400, "INVALID", says)
        deep = self.binary(length=False, raw=b"[" * 32)  # what follows is no JSON to judge
        self.refused(deep, 400, "INVALID", says)

    def test_header_lengths_that_lie(self):
        for length in ("99999", "-1", "1e3", "abc", "0x10", " ", "99999999999999999999999", "1 2", "+5"):
            with self.subTest(length):
                self.refused(self.binary(length=length), 400, "INVALID",
                             "Inference-Header-Content-Length")
        self.refused(self.binary(length="0"), 422, "UNSUPPORTED", "Inference-Header-Content-Length: 0")
        for length in ("1", "20"):  # the JSON ends in the middle
            self.refused(self.binary(length=length), 400, "INVALID", "JSON|line 1")

    # ------------------------------------------------------------ JSON and HTTP
    def test_broken_json(self):
        bodies = {b"{": "line 1", b"{\"inputs\":[}": "line 1", b"[]": "object", b"7": "line 1",
                  b"\xff\xfe{}": "line 1|UTF", b"{\"inputs\":[],\"inputs\":[]}": "duplicate|inputs",
                  b"{} trailing": "line 1|end", b"null": "line 1", b"\n\n {\"a\": tru}": "line 3",
                  b"{\"id\":\"\\u0000\"}": "u0000|NUL|null|id", b"{\"inputs\": 1e999}": "line 1|inputs"}
        for body, pattern in bodies.items():
            with self.subTest(body):
                r = self.s.call("POST", "/v2/models/two/infer", body, self.key)
                self.refused(r, 400, "INVALID", pattern)
                r = self.s.call("POST", "/api/v1/models", body, self.key,
                                {"Content-Type": "application/json"})
                self.assertEqual((r.status, r.code), (400, "INVALID"), r)

    def test_deep_json(self):
        for deep in (b"[" * 100000, b"[" * 5000 + b"]" * 5000, b'{"a":' * 5000 + b"1" + b"}" * 5000,
                     b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":' + b"[" * 4000 +
                     b"1,2,3,4" + b"]" * 4000 + b"}]}"):
            with self.subTest(deep[:20]):
                r = self.s.call("POST", "/v2/models/two/infer", deep, self.key)
                self.refused(r, 400, "INVALID", "deep|depth|nest")
        r = self.s.call("POST", "/api/v1/jobs", b"[" * 30000, self.key,
                        {"Content-Type": "application/json"})
        self.refused(r, 400, "INVALID", "deep|depth|nest")

    def head(self, path, *lines, method="POST"):
        return ("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n" % (
            method, path, self.key, "".join(x + "\r\n" for x in lines))).encode()

    def test_a_body_shorter_than_its_length(self):
        text = json.dumps({"inputs": self.good}).encode()
        for n in (0, 1, len(text) - 1):
            # The client stops sending: no answer is owed, nothing may be kept waiting.
            self.s.talk(self.head("/v2/models/two/infer", "Content-Length: %d" % len(text)) + text[:n],
                        then_close=True)
        until("the payload memory is free again", lambda: self.s.payload() == 0)
        r = self.s.talk(self.head("/v2/models/two/infer", "Content-Length: 0"))
        self.assertRegex(r, r"^HTTP/1.1 400 (.|\n)*empty")
        r = self.s.talk(self.head("/v2/models/two/infer", "Transfer-Encoding: chunked") + b"0\r\n\r\n")
        self.assertRegex(r, r"^HTTP/1.1 411 (.|\n)*Content-Length")

    def test_a_refusal_reaches_a_client_that_is_still_sending(self):
        """Not a broken pipe; and the connection of who has a key goes on. One that is too long is cut off."""
        c = http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=60)
        self.addCleanup(c.close)
        for key, model, status in ((self.key, "nothing", 404), ("shunt_x", "two", 401),
                                   (self.key, "two", 200)):
            text = json.dumps({"inputs": self.good}).encode() if status == 200 else bytes(20 << 20)
            c.request("POST", "/v2/models/%s/infer" % model, text, {"Authorization": "Bearer " + key})
            sock, r = c.sock, c.getresponse()
            self.assertEqual((r.status, bool(r.read())), (status, True))
            self.assertIs(c.sock, None if status == 401 else sock)
        got = self.s.talk(self.head("/v2/models/two/infer", "Content-Length: 900000000"))
        self.assertRegex(got, r"^HTTP/1.1 413 (.|\n)*900000000 bytes")
        got = self.s.talk(self.head("/v2/models/nothing/infer", "Content-Length: 5000000",
                                    "Expect: 100-continue"))
        self.assertRegex(got, r"^HTTP/1.1 404 ")

    def test_http_that_is_none(self):
        for data in (b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" * 20,
                     self.head("/v2/models/two/infer", "Content-Length: -1"),
                     self.head("/v2/models/two/infer", "Content-Length: 5", "Content-Length: 6") + b"12345",
                     b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n"):
            with self.subTest(data[:30]):
                got = self.s.talk(data, then_close=True)
                self.assertRegex(got, r"^(HTTP/1\.[01] (4\d\d|5\d\d) |$)")

    def test_unknown_fields_and_parameters(self):
        for method, path, body in (
                ("POST", "/api/v1/models", {"name": "m", "colour": 1}),
                ("POST", "/api/v1/datasets", {"name": "d", "colour": 1}),
                ("PUT", "/api/v1/models/two/slo", {"latency_ms": 50, "colour": 1}),
                ("POST", "/api/v1/jobs", {"kind": "training", "colour": 1}),
                ("GET", "/api/v1/models?colour=1", None)):
            with self.subTest(path):
                self.refused(self.s.call(method, path, body, self.key), 400, "INVALID", "colour")

    # ------------------------------------------------------------ keys and tenants
    def test_all_that_is_wrong_in_a_body_is_named(self):
        def wrong(path, body):
            r = self.s.call("POST", path, body, self.key)
            self.assertEqual((r.status, r.code), (400, "INVALID"), r)
            self.assertEqual(r.json["errors"][0]["detail"], r.json["detail"])
            return [e["pointer"] for e in r.json["errors"]]
        self.assertEqual(wrong("/api/v1/jobs", {"extra": 1, "priority": 5000, "queue": "No Queue"}),
                         ["/extra", "/kind", "/model", "/dataset", "/priority", "/spec", "/queue"])
        job = {"kind": "training", "model": ".", "dataset": "d",
               "spec": {"batch": 0, "loss": "x", "optimizer": {"name": "sdg", "lr": -1, "speed": 2}}}
        below = ["/model", "/spec/batch", "/spec/loss", "/spec/optimizer/speed", "/spec/optimizer/lr",
                 "/spec/optimizer/name", "/spec"]
        self.assertEqual(wrong("/api/v1/jobs", job), below)
        self.assertEqual(wrong("/api/v1/job-arrays", {"count": 2, "job": job}), ["/job" + p for p in below])
        infer = {"kind": "batch_inference", "model": "m", "dataset": "d", "eval_dataset": "e",
                 "spec": {"batch": 0, "inputs": {"x": 1}, "outputs": ["y", "y"]}}
        self.assertEqual(wrong("/api/v1/jobs", infer),
                         ["/spec/batch", "/spec/inputs", "/spec/outputs", "/eval_dataset"])
        many = {"f%d" % i: 1 for i in range(40)}
        self.assertEqual(len(wrong("/api/v1/models", many)), 16)

    def test_keys(self):
        r = self.s.infer(None, "two", self.good)
        self.refused(r, 401, "UNAUTHENTICATED", "API key|Authorization")
        self.assertIn("Bearer", r.headers["www-authenticate"])
        for key in ("x", "shunt_", "shunt_aaaaaaaaaaaa_bbbb", self.key[:-1] + "?", self.key + "x",
                    "shunt_" + "a" * 5000):
            with self.subTest(key[:30]):
                r = self.s.infer(key, "two", self.good)
                self.refused(r, 401, "UNAUTHENTICATED", "API key")
        r = self.s.infer(None, "two", self.good, headers={"Authorization": "Basic eDp5"})
        self.refused(r, 401, "UNAUTHENTICATED", "Bearer")

    def test_an_expired_key(self):
        at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=5)
        key = self.s.key("vision", "infer", expires_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        r = until("the key has expired", lambda: (lambda r: r.status == 401 and r)(
            self.s.infer(key, "two", self.good)))
        self.refused(r, 401, "UNAUTHENTICATED", "expired")
        r = self.s.call("POST", "/api/v1/tenants/vision/keys", {
            "name": "old", "role": "infer", "expires_at": "2020-01-01T00:00:00Z"}, key=self.s.admin)
        self.refused(r, 400, "INVALID", "passed already")

    def test_a_revoked_key(self):
        key = self.s.key("vision", "infer")
        self.assertEqual(self.s.infer(key, "two", self.good).status, 200)
        r = self.s.call("DELETE", "/api/v1/tenants/vision/keys/" + key.split("_")[1], key=self.s.admin)
        self.assertEqual(r.status, 204, r)
        r = until("the key is refused", lambda: (lambda r: r.status == 401 and r)(
            self.s.infer(key, "two", self.good)))
        self.refused(r, 401, "UNAUTHENTICATED", "revoked")

    def test_what_a_role_may_not(self):
        infer, read = self.s.key("vision", "infer"), self.s.key("vision", "read")
        self.refused(self.s.call("POST", "/api/v1/models", {"name": "m"}, infer), 403, "FORBIDDEN", "needs")
        self.refused(self.s.infer(read, "two", self.good), 403, "FORBIDDEN", "needs")
        self.refused(self.s.call("POST", "/api/v1/tenants", {"name": "mine"}, self.key), 403,
                     "FORBIDDEN", "needs")
        self.refused(self.s.infer(self.s.admin, "two", self.good), 400, "INVALID", "tenant=")

    def test_another_tenants_things_do_not_exist(self):
        """The answers are the same as for what does not exist at all, but for the name."""
        def ask(name, job):
            out = []
            for method, path, body in (
                    ("GET", "/v2/models/%s", None), ("GET", "/v2/models/%s/ready", None),
                    ("GET", "/v2/models/%s/config", None), ("GET", "/v2/models/%s/stats", None),
                    ("POST", "/v2/models/%s/infer", {"inputs": self.good}),
                    ("GET", "/api/v1/models/%s", None), ("GET", "/api/v1/models/%s/versions/1", None),
                    ("DELETE", "/api/v1/models/%s", None), ("GET", "/api/v1/models/%s/slo", None),
                    ("PUT", "/api/v1/models/%s/slo", {"latency_ms": 50}),
                    ("POST", "/api/v1/models/%s/versions", {}),
                    ("PUT", "/api/v1/models/%s/versions/1/artifact", b"123"),
                    ("GET", "/api/v1/datasets/%s", None), ("DELETE", "/api/v1/datasets/%s", None)):
                out.append((path, self.s.call(method, path % name, body, self.other), name))
            for method, path in (("GET", ""), ("GET", "/events"), ("GET", "/checkpoints"),
                                 ("GET", "/losses"), ("POST", "/cancel")):
                path = "/api/v1/jobs/%d" + path
                out.append((path, self.s.call(method, path % job, None, self.other), str(job)))
            out.append(("submit", self.s.submit(self.other, model=name, dataset=name), name))
            return out
        self.s.push_data(self.key, "two", digits_of("test"))
        self.s.push(self.key, "lin", onnx.linear(64, 10), max_batch=4)
        job = self.submit_flat(epochs=1).json["id"]
        for (path, theirs, name), (_, none, missing) in zip(ask("two", job), ask("nothing", job + 7000)):
            with self.subTest(path):
                self.assertEqual((theirs.status, theirs.code), (404, "NOTFOUND"), theirs)
                self.assertEqual(theirs.error.replace(name, "?"), none.error.replace(missing, "?"))
        self.assertEqual(self.s.wait_job(self.key, job)["state"], "SUCCEEDED")
        for path in ("/api/v1/models", "/api/v1/jobs", "/api/v1/datasets"):
            self.assertEqual(self.s.call("GET", path, key=self.other).json["items"], [])
            self.refused(self.s.call("GET", path + "?tenant=vision", key=self.other), 403, "FORBIDDEN",
                         "vision")

    # ------------------------------------------------------------ datasets and jobs
    def flat(self, labels=None, n=64, features=64, spread=1.0):
        x = [spread * ((i * 37 % 101) / 50 - 1) for i in range(n * features)]
        labels = [i % 10 for i in range(n)] if labels is None else labels
        return st_bytes({"x": ("F32", [n, features], floats(*x)),
                         "label": ("I64", [n], struct.pack("<%dq" % n, *labels))})

    def submit_flat(self, data=None, dataset="flat", model="lin", **spec):
        if self.s.call("GET", "/api/v1/models/lin", key=self.key).status != 200:
            self.s.push(self.key, "lin", onnx.linear(64, 10), max_batch=4)
        if data or self.s.call("GET", "/api/v1/datasets/" + dataset, key=self.key).status != 200:
            self.s.push_data(self.key, dataset, data or self.flat())
        spec = {"batch": 16, "optimizer": {"name": "sgd", "lr": 0.01}, **spec}
        return self.s.submit(self.key, model=model, dataset=dataset, spec=spec)

    def test_a_dataset_whose_file_is_gone(self):
        r = self.submit_flat(self.flat(n=80), dataset="gone", epochs=1)
        self.assertEqual(self.s.wait_job(self.key, r.json["id"])["state"], "SUCCEEDED")
        d = self.s.call("GET", "/api/v1/datasets/gone", key=self.key).json
        os.unlink(os.path.join(self.s.state, "blobs", "datasets", d["digest"] + ".safetensors"))
        j = self.s.wait_job(self.key, self.submit_flat(dataset="gone", epochs=1).json["id"])
        self.assertEqual((j["state"], j["attempt"]), ("FAILED", 1), j)
        self.assertIn("the file of the dataset", j["error"])

    def test_datasets_that_are_none(self):
        self.s.call("POST", "/api/v1/datasets", {"name": "bad"}, self.key)
        good = self.flat()
        cases = {
            "text": (b"not a dataset at all", ""), "truncated": (good[:-1], ""), "short": (b"\0" * 7, ""),
            "more": (good + b"\0", ""), "length": (struct.pack("<Q", 1 << 60) + b"{}", ""),
            "json": (struct.pack("<Q", 4) + b"{\"a\"", ""),
            "samples": (st_bytes({"x": ("F32", [2, 4], bytes(32)), "y": ("F32", [3], bytes(12))}), "samples"),
            "none": (st_bytes({"x": ("F32", [0, 4], b"")}), "samples|empty"),
            "scalar": (st_bytes({"x": ("F32", [], bytes(4))}), "axis"),
            "no tensors": (st_bytes({}), "no tensors"),
            "size": (st_bytes({"x": ("F32", [1 << 40, 1 << 40], bytes(8))}), "x"),
            "overlap": (good.replace(b'"data_offsets": [16384', b'"data_offsets": [16380'), ""),
        }
        for name, (data, pattern) in cases.items():
            with self.subTest(name):
                r = self.s.call("PUT", "/api/v1/datasets/bad/artifact", data, self.key)
                self.refused(r, 400, "INVALID", pattern or ".{10}")
        self.refused(self.submit_flat(dataset="flat", labels="nothing"), 400, "INVALID", "nothing")
        self.s.push(self.key, "lin2", onnx.linear(64, 10), max_batch=4)
        r = self.s.submit(self.key, model="lin", dataset="bad")
        self.refused(r, 409, "CONFLICT", 'dataset "bad" is UPLOADING')

    def test_jobs_that_cannot_be(self):
        self.submit_flat(epochs=1)
        self.s.push_data(self.key, "digits", digits_of("train"))
        ok = {"name": "sgd", "lr": 0.1}
        for status, code, pattern, r in (
                (404, "NOTFOUND", "missing", self.s.submit(self.key, model="lin", dataset="missing")),
                (404, "NOTFOUND", "missing", self.s.submit(self.key, model="missing", dataset="flat")),
                (404, "NOTFOUND", "version 9", self.s.submit(self.key, model="lin", version=9,
                                                             dataset="flat")),
                (400, "INVALID", r'"x" of dataset "digits" has shape \[\*, 1, 8, 8\], the job wants '
                 r'\[\*, 64\]', self.s.submit(self.key, model="lin", dataset="digits")),
                (400, "INVALID", r'3 outputs \(y, r, s\): name the one to train',
                 self.s.submit(self.key, model="two", dataset="flat")),
                (400, "INVALID", "eval-less|missing", self.s.submit(
                    self.key, model="lin", dataset="flat", eval_dataset="missing")),
                (400, "INVALID", "batch", self.submit_flat(batch=65)),
                (400, "INVALID", "batch", self.submit_flat(batch=0)),
                (400, "INVALID", "epochs", self.submit_flat(epochs=0)),
                (400, "INVALID", "spec.steps", self.submit_flat(epochs=1, steps=4)),
                (400, "INVALID", "spec.colour", self.submit_flat(colour=1)),
                (400, "INVALID", "loss", self.submit_flat(loss="hinge")),
                (400, "INVALID", "lr", self.submit_flat(optimizer={"name": "sgd", "lr": -1})),
                (400, "INVALID", "lr", self.submit_flat(optimizer={"name": "sgd", "lr": "0.1"})),
                (400, "INVALID", "adamw", self.submit_flat(optimizer={**ok, "name": "lbfgs"})),
                (400, "INVALID", "beta1", self.submit_flat(optimizer={**ok, "beta1": 0.9})),
                (400, "INVALID", "has datatype FP32, the job wants INT64", self.submit_flat(labels="x")),
                (400, "INVALID", "kind", self.s.call("POST", "/api/v1/jobs", {
                    "kind": "nonsense", "model": "lin", "dataset": "flat",
                    "spec": {"optimizer": ok}}, self.key))):
            with self.subTest(pattern):
                if pattern.startswith("eval-less"):
                    self.refused(r, 404, "NOTFOUND", "missing")
                else:
                    self.refused(r, status, code, pattern)

    def test_labels_out_of_range_fail_the_job_and_nothing_else(self):
        for i, bad in enumerate((10, -1, 1 << 40, -(1 << 63))):
            with self.subTest(bad):
                labels = [i % 10 for i in range(64)]
                labels[37] = bad
                r = self.submit_flat(self.flat(labels), dataset="wrong%d" % i, epochs=2)
                self.assertEqual(r.status, 201, r)
                j = self.s.wait_job(self.key, r.json["id"])
                self.assertEqual((j["state"], j["error_code"]), ("FAILED", "INVALID"), j)
                self.assertIn("label %d of sample 37 " % bad, j["error"])
                self.assertIn("from 0 to 9", j["error"])
                self.assertEqual((j["attempt"], j["step"]), (1, 0), "tried again in vain")

    def test_a_job_that_fits_no_device_says_so(self):
        self.s.push(self.key, "fat", onnx.linear(64, 4000), max_batch=1)
        n = 20000
        self.s.push_data(self.key, "many", st_bytes({
            "x": ("F32", [n, 64], bytes(n * 256)), "label": ("I64", [n], bytes(n * 8))}))
        r = self.s.submit(self.key, model="fat", dataset="many", spec={"batch": n, "epochs": 1})
        self.assertEqual(r.status, 201, r)
        j = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual((j["state"], j["error_code"], j["attempt"]), ("FAILED", "TOOBIG", 1), j)
        self.assertRegex(j["error"], r"pool has 256 MiB")

    def diverging(self, name, lr, **spec):
        """y = w + b with w = -0.5, b = 0 and the target 0: each step multiplies y by 1 - 4 lr."""
        if self.s.call("GET", "/api/v1/models/point", key=self.key).status != 200:
            self.s.push(self.key, "point", onnx.linear(1, 1), max_batch=1)
            self.s.push_data(self.key, "ones", st_bytes({"x": ("F32", [16, 1], floats(*[1] * 16)),
                                                         "y": ("F32", [16, 1], bytes(64))}))
        r = self.s.submit(self.key, name=name, model="point", dataset="ones", spec={
            "loss": "mse", "optimizer": {"name": "sgd", "lr": lr}, "batch": 16, "labels": "y",
            "epochs": None, "steps": 1000000, **spec})
        self.assertEqual(r.status, 201, r)
        j = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual((j["state"], j["error_code"], j["reason"]), ("FAILED", "NAN", "NAN"), j)
        self.assertIn("loss of step %d is not a finite number" % (j["step"] + 1), j["error"])
        self.assertIn("learning rate", j["error"])
        return j

    def test_a_loss_that_is_not_a_number(self):
        """By a hundredth a step: it takes about 4460 steps until the square leaves FP32."""
        j = self.diverging("slow", 0.5025, checkpoint_interval_ms=50)
        self.assertTrue(4000 < j["step"] < 5000, j)
        self.assertEqual(j["attempt"], 1)
        self.kept(j)
        losses = self.s.job(self.key, j["id"], "/losses").json["losses"]
        self.assertEqual(losses.count(None), 0)
        self.assertLessEqual(j["step"] - len(losses), 1)

    def test_a_loss_that_is_not_a_number_soon(self):
        j = self.diverging("fast", 1e6)
        self.assertLess(j["step"], 10)
        self.kept(j)

    def test_data_that_are_not_numbers(self):
        x = [0.5] * 64 * 64
        x[99] = float("nan")
        r = self.submit_flat(st_bytes({"x": ("F32", [64, 64], floats(*x)),
                                       "label": ("I64", [64], bytes(512))}), dataset="nan", batch=64)
        j = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual((j["state"], j["error_code"], j["step"]), ("FAILED", "NAN", 0), j)
        self.assertRegex(j["error"], "loss of step 1 is not a finite number.*check the data.*ignore_index")

    def kept(self, j):
        """What the message says about the last good checkpoint is true."""
        listed = self.s.job(self.key, j["id"], "/checkpoints").json["items"]
        steps = [int(x) for x in re.findall(r"checkpoint of step (\d+) is kept", j["error"])]
        folder = os.path.join(self.s.state, "jobs", str(j["id"]))
        files = sorted(f for f in os.listdir(folder) if f.startswith("ckpt-"))
        self.assertTrue(listed and steps and files, (j, listed, files))
        self.assertEqual(max(c["step"] for c in listed), steps[0])
        t = read_st(os.path.join(folder, files[-1]))
        for name, (_, _, raw) in t.items():
            if not name.startswith("#"):
                v = struct.unpack("<%df" % (len(raw) // 4), raw)
                self.assertTrue(all(abs(x) < float("inf") for x in v), name)

    # ------------------------------------------------------------ limits
    def test_the_queue_of_jobs_is_full(self):
        crowd = self.s.tenant("crowd")
        r = self.s.call("PUT", "/api/v1/tenants/crowd/quota", {"max_queued_jobs": 2, "max_running_jobs": 0},
                        self.s.admin)
        self.assertEqual(r.status, 200, r)
        self.s.push(crowd, "lin", onnx.linear(64, 10), max_batch=4)
        self.s.push_data(crowd, "flat", self.flat())
        jobs = [self.s.submit(crowd, model="lin", dataset="flat", spec={"batch": 16}) for _ in range(3)]
        self.assertEqual([r.status for r in jobs], [201, 201, 429], jobs)
        self.refused(jobs[2], 429, "QUOTA", "max_queued_jobs")
        self.assertGreaterEqual(int(jobs[2].headers["retry-after"]), 1)
        r = self.s.call("POST", "/api/v1/jobs/%d/cancel" % jobs[0].json["id"], None, crowd)
        self.assertEqual(r.json["state"], "CANCELLED", r)
        r = self.s.submit(crowd, model="lin", dataset="flat", spec={"batch": 16})
        self.assertEqual(r.status, 201, r)

    def test_too_many_requests_of_a_tenant(self):
        crowd = self.s.tenant("rush")
        r = self.s.call("PUT", "/api/v1/tenants/rush/quota", {"max_concurrent_requests": 1}, self.s.admin)
        self.assertEqual(r.status, 200, r)
        self.s.push(crowd, "two", onnx.two_outputs(), max_batch=4)
        text = json.dumps({"inputs": self.good}).encode() + SPACES
        head = self.head("/v2/models/two/infer", "Content-Length: %d" % len(text)).replace(
            self.key.encode(), crowd.encode())
        with socket.create_connection(("127.0.0.1", self.s.port)) as c:
            until("nothing is in flight", lambda: self.s.payload() == 0)
            c.sendall(head)  # it is counted from its headers on
            until("it is open", lambda: self.s.payload() > 0)
            r = until("the second is refused", lambda: (lambda r: r.status != 200 and r)(
                self.s.infer(crowd, "two", self.good)))
            self.refused(r, 429, "QUOTA", "max_concurrent_requests")
            self.assertGreaterEqual(int(r.headers["retry-after"]), 1)
            c.sendall(text)
            self.assertIn(b"200 OK", c.recv(65536))
        until("it no longer counts", lambda: self.s.infer(crowd, "two", self.good).status == 200)

    def test_a_quota_of_storage(self):
        small = self.s.tenant("small")
        self.s.call("PUT", "/api/v1/tenants/small/quota", {"max_storage_bytes": 1000}, self.s.admin)
        r = self.s.push(small, "lin", onnx.linear(64, 10), ready=False)
        self.refused(r, 429, "QUOTA", "bytes of storage")

    def test_what_is_deleted_counts_until_its_file_is_gone(self):
        """Else the disk, which is everybody's, could be filled by uploads that are deleted at once."""
        key, n = self.s.tenant("filler"), 10000
        self.s.call("PUT", "/api/v1/tenants/filler/quota", {"max_storage_bytes": 2 * n}, self.s.admin)
        got = []
        for i in range(4):
            self.s.call("POST", "/api/v1/datasets", {"name": "d"}, key)
            r = self.s.call("PUT", "/api/v1/datasets/d/artifact", st_bytes({"x": ("U8", [n, 1], bytes([i]) * n)}), key)
            got.append(r.status)
            if r.status == 200:
                self.assertEqual(self.s.call("DELETE", "/api/v1/datasets/d", key=key).status, 204)
        self.assertEqual(got, [200, 200, 200, 429])
        self.refused(r, 429, "QUOTA", "still on the server's disk")


class FullQueue(Story):
    """A scheduler that takes two requests, so that a queue can be full."""
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", KEEP_RENEW_S="0", MAX_REQUESTS="3", MAX_MODEL_REQUESTS="2")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        s.push(cls.key, "lin", onnx.linear(), max_batch=4)

    def test_the_queue_of_requests_is_full(self):
        pids = self.s.pids()
        good = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]}]
        text = json.dumps({"inputs": good}).encode() + SPACES
        head = ("POST /v2/models/lin/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                "Content-Length: %d\r\n\r\n" % (self.key, len(text))).encode()
        used = 0
        waiting = [socket.create_connection(("127.0.0.1", self.s.port)) for _ in range(2)]
        for c in waiting:
            until("those before it are open", lambda: self.s.payload() == used)
            c.sendall(head)
            used = until("it is open", lambda: self.s.payload() > used and self.s.payload())
        r = until("the queue is full", lambda: (lambda r: r.status != 200 and r)(
            self.s.infer(self.key, "lin", good)))
        self.assertEqual((r.status, r.code), (503, "QUEUEFULL"), r)
        self.assertRegex(r.error, "2 requests")
        self.assertGreaterEqual(int(r.headers["retry-after"]), 1)
        for c in waiting:
            c.sendall(text)
            self.assertIn(b"200 OK", c.recv(65536))
            c.close()
        self.assertEqual(self.s.infer(self.key, "lin", good).status, 200)

        # Many at once: each is answered, with 200 or with the reason.
        got, lock = [], threading.Lock()

        def client():
            for _ in range(30):
                r = self.s.infer(self.key, "lin", good)
                with lock:
                    got.append((r.status, r.code))
                if r.status != 200:
                    time.sleep(0.002)
        threads = [threading.Thread(target=client) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(got), 360)
        self.assertLessEqual(set(got), {(200, None), (503, "QUEUEFULL")})
        self.assertIn((200, None), got)
        self.assertEqual(self.s.pids(), pids)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
