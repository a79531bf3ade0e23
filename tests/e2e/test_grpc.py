#!/usr/bin/env python3
"""The inference protocol over gRPC by the unmodified tritonclient: answers, refusals, streams.

Without it: a call could get another answer than the same request over HTTP, and a client that leaves could
keep what its request holds.

Usage: test_grpc.py [-v] [name ...]
"""
import gzip
import os
import queue
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import packages  # noqa: E402
packages.enter(__file__)
import grpc  # noqa: E402
import numpy as np  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
import tritonclient.utils.shared_memory as shm  # noqa: E402
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc  # noqa: E402

import onnx_bytes  # noqa: E402
from grpc_story import MOST, PREFACE, WIDE, GrpcStory, another, frame, frozen, head, pieces, told, wide  # noqa: E402
from system import Story, System, until, zoo  # noqa: E402

CODE = grpc.StatusCode


class Grpc(GrpcStory):
    def test_infer(self):
        for n in (1, 8):
            got = self.infer(inputs=self.inputs(x=self.x[:n])).as_numpy("logits")
            np.testing.assert_array_equal(got, self.http_logits(self.x[:n]))
        r = self.infer(request_id="a-7", model_version="1")
        self.assertEqual((r.get_response().id, r.get_response().model_version), ("a-7", "1"))

    def test_an_alias_stands_where_a_version_does(self):
        for weight in (0.1, 0.2):
            self.s.push(self.key, "lin", onnx_bytes.linear(weight=weight))
        r = self.s.call("PUT", "/api/v1/models/lin/aliases/half", {"targets": [{"version": 1}, {"version": 2}]}, self.key)
        self.assertEqual(r.status, 200, r)
        x = self.inputs(x=np.ones((1, 4), np.float32))

        def served(**more):
            r = self.c.infer("lin", x, model_version="half", headers={**self.auth, **more})
            return r.get_response().model_version
        self.assertEqual({served() for _ in range(40)}, {"1", "2"})
        of_session = [{served(**{"shunt-session": "user-%d" % i}) for _ in range(3)} for i in range(20)]
        self.assertEqual({len(v) for v in of_session}, {1})
        self.assertEqual(set().union(*of_session), {"1", "2"})
        self.refused("NOT_FOUND", 'no model "lin" with an alias "none"', self.c.infer, "lin", x, model_version="none",
                     headers=self.auth)

    def test_two_outputs_by_choice(self):
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        k = np.array([[-2**62, 1], [3, 2**62]])
        r = self.infer("two", inputs=self.inputs(x=x, k=k),
                       outputs=[triton.InferRequestedOutput("s"), triton.InferRequestedOutput("y")])
        self.assertEqual([o.name for o in r.get_response().outputs], ["s", "y"])
        all_of_them = self.infer("two", inputs=self.inputs(x=x, k=k))
        np.testing.assert_array_equal(r.as_numpy("s"), all_of_them.as_numpy("s"))
        np.testing.assert_array_equal(r.as_numpy("y"), all_of_them.as_numpy("y"))

    def test_typed_contents(self):
        r = self.raw_stub().ModelInfer(self.request(n=3), metadata=self.meta())
        got = np.frombuffer(r.raw_output_contents[0], np.float32).reshape(3, 10)
        np.testing.assert_array_equal(got, self.http_logits(self.x[:3]))

    def test_server_and_models(self):
        self.assertTrue(self.c.is_server_live())
        self.assertTrue(self.c.is_server_ready())
        self.assertTrue(self.c.is_model_ready("digits", headers=self.auth))
        self.assertFalse(self.c.is_model_ready("digits", "7", headers=self.auth))
        self.assertFalse(self.c.is_model_ready("nothing", headers=self.auth))
        m = self.c.get_server_metadata()
        self.assertEqual((m.name, "binary_tensor_data" in m.extensions), ("shunt", True))
        m = self.c.get_model_metadata("two", headers=self.auth)
        self.assertEqual([(i.name, i.datatype, list(i.shape)) for i in m.inputs],
                         [("x", "FP32", [-1, 4]), ("k", "INT64", [-1, 2])])
        c = self.c.get_model_config("two", headers=self.auth).config
        self.assertEqual((c.name, c.max_batch_size, c.HasField("dynamic_batching")), ("two", 8, True))
        self.assertEqual([(i.name, i.data_type, list(i.dims)) for i in c.input],
                         [("x", model_config_pb2.TYPE_FP32, [4]),
                          ("k", model_config_pb2.TYPE_INT64, [2])])
        index = self.c.get_model_repository_index(headers=self.auth).models
        self.assertIn(("digits", "1", "READY"), [(m.name, m.version, m.state) for m in index])
        none = self.c.get_model_repository_index(headers={"authorization": "Bearer " + self.other})
        self.assertEqual(len(none.models), 0)

    def test_statistics_and_metrics_count(self):
        def count():
            return self.c.get_inference_statistics("digits", headers=self.auth).model_stats[0].inference_count

        def metric(name):
            return sum(v for k, v in self.s.metrics("api").items() if k.startswith(name))
        before, requests, calls = count(), metric("shunt_requests_total"), metric('shunt_grpc_requests_total'
                                                                                  '{method="ModelInfer"')
        self.infer(inputs=self.inputs(x=self.x[:4]))
        self.assertEqual(count(), before + 4)
        self.assertEqual(metric("shunt_requests_total"), requests + 1)
        self.assertEqual(metric('shunt_grpc_requests_total{method="ModelInfer"'), calls + 1)
        everything = self.c.get_inference_statistics(headers=self.auth).model_stats
        self.assertLessEqual({"digits", "two"}, {m.name for m in everything})

    def test_load_and_unload(self):
        self.s.push(self.key, "going", zoo("digits-cnn"))
        self.c.unload_model("going", headers=self.auth)
        until("it is unloaded", lambda: not self.c.is_model_ready("going", headers=self.auth))
        self.refused("FAILED_PRECONDITION", "unloaded", self.infer, "going")
        self.c.load_model("going", headers=self.auth)
        self.assertTrue(self.c.is_model_ready("going", headers=self.auth))
        self.infer("going")

    def test_shared_memory_is_off(self):
        self.assertEqual(len(self.c.get_system_shared_memory_status(headers=self.auth).regions), 0)
        self.refused("UNIMPLEMENTED", "client-shm", self.c.register_system_shared_memory, "r", "/r", 64,
                     headers=self.auth)
        self.refused("UNIMPLEMENTED", "", self.c.register_cuda_shared_memory, "r", b"aGFuZGxl", 0, 64,
                     headers=self.auth)
        self.c.unregister_system_shared_memory(headers=self.auth)
        self.c.unregister_cuda_shared_memory(headers=self.auth)

    def test_traces_have_the_clients_id(self):
        trace = "%032x" % random.getrandbits(128)
        call = self.raw_stub().ModelInfer.with_call(
            self.request(), metadata=self.meta(traceparent="00-%s-%016x-01" % (trace, 7)))[1]
        self.assertEqual(dict(call.initial_metadata())["x-request-id"], trace)
        self.assertIn("compute;dur=", dict(call.trailing_metadata())["server-timing"])
        self.assertIn(trace, self.s.at_metrics("api", "/trace?seconds=60")[1])

    def test_large_tensors(self):
        """More than a window, and than what is read on the thread itself."""
        self.s.push(self.key, "wide", wide(), max_batch=4)
        x = np.random.default_rng(3).standard_normal((4, WIDE)).astype(np.float32)
        for _ in range(3):
            got = self.infer("wide", inputs=self.inputs(x=x)).as_numpy("y")
            np.testing.assert_array_equal(got, x + np.float32(1))
        q = service_pb2.ModelInferRequest(model_name="wide")
        q.inputs.add(name="x", datatype="FP32", shape=[4, WIDE]).contents.fp32_contents.extend(x.ravel())
        stub = self.raw_stub()
        calls = [stub.ModelInfer.future(q, metadata=self.meta()) for _ in range(12)]
        for c in calls:
            self.assertEqual(c.result(timeout=60).raw_output_contents[0], (x + np.float32(1)).tobytes())
        for r in stub.ModelStreamInfer(iter([q] * 5), metadata=self.meta()):
            self.assertEqual(r.infer_response.raw_output_contents[0], (x + np.float32(1)).tobytes())

    def test_compressed_messages(self):
        q = self.request(n=3)
        q.parameters["p"].string_param = "y" * 300000
        want = self.http_logits(self.x[:3]).tobytes()
        for how in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            stub = self.raw_stub()
            r = stub.ModelInfer(q, metadata=self.meta(), compression=how)
            self.assertEqual(r.raw_output_contents[0], want)
            for r in stub.ModelStreamInfer(iter([q, self.request(n=3), q]), metadata=self.meta(), compression=how):
                self.assertEqual(r.infer_response.raw_output_contents[0], want, r.error_message)
            m = stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="digits"), metadata=self.meta(), compression=how)
            self.assertEqual(m.name, "digits")
        r = self.infer(inputs=self.inputs(x=np.zeros((8, 1, 8, 8), np.float32)), compression_algorithm="gzip")
        self.assertEqual(r.as_numpy("logits").shape, (8, 10))
        until("nothing is held", lambda: not self.in_flight(), 10)

    def coded(self, coding, body, flag=1, key=None):
        """What is said to a ModelInfer whose body has this coding."""
        more = {} if coding is None else {"grpc_encoding": coding}
        c = self.open_call(b"ModelInfer", *[frame(0, 0, 1, part) for part in pieces(
            bytes((flag,)) + struct.pack(">I", len(body)) + body)], key=key, **more)
        c.settimeout(20)
        got = b""
        while "grpc-status" not in told(got):
            piece = c.recv(65536)
            self.assertTrue(piece, got)
            got += piece
        c.close()
        return told(got)

    def test_compressed_messages_have_limits(self):
        bomb = gzip.compress(bytes(256 << 20), 9)
        begin = time.monotonic()
        got = self.coded(b"gzip", bomb)
        self.assertEqual(got["grpc-status"], "8", got)
        self.assertIn("when it is unpacked", got["grpc-message"])
        self.assertLess(time.monotonic() - begin, 10)
        whole = self.request().SerializeToString()
        for coding, body, flag, status in (
                (b"gzip", gzip.compress(whole), 1, "0"), (b"gzip", whole, 0, "0"), (b"identity", whole, 0, "0"),
                (b"deflate", zlib.compress(whole), 1, "0"), (b"gzip", whole, 1, "3"),
                (b"gzip", gzip.compress(whole)[:-9], 1, "3"), (b"deflate", gzip.compress(whole), 1, "3"),
                (None, gzip.compress(whole), 1, "3"), (b"identity", gzip.compress(whole), 1, "3"),
                (b"snappy", whole, 1, "12"), (b"snappy", whole, 0, "12"), (b"", whole, 1, "12")):
            got = self.coded(coding, body, flag)
            self.assertEqual(got["grpc-status"], status, (coding, flag, got))
            self.assertEqual(got["grpc-accept-encoding"], "identity,deflate,gzip", got)
        self.assertIn("snappy", self.coded(b"snappy", whole)["grpc-message"])
        until("nothing is held", lambda: not self.in_flight(), 10)

    def test_system_shared_memory(self):
        with another(self.s, "--client-shm=any") as port:
            c = triton.InferenceServerClient("127.0.0.1:%d" % port)
            self.addCleanup(c.close)
            x = self.x[:2]
            key = "/shunt-grpc-%d" % os.getpid()
            region = shm.create_shared_memory_region("io", key, x.nbytes + 80)
            self.addCleanup(shm.destroy_shared_memory_region, region)
            shm.set_shared_memory_region(region, [x])
            c.register_system_shared_memory("io", key, x.nbytes + 80, headers=dict(self.auth))
            status = c.get_system_shared_memory_status(headers=dict(self.auth)).regions
            self.assertEqual((status["io"].key, status["io"].byte_size), (key, x.nbytes + 80))
            i = triton.InferInput("x", list(x.shape), "FP32")
            i.set_shared_memory("io", x.nbytes)
            o = triton.InferRequestedOutput("logits")
            o.set_shared_memory("io", 80, offset=x.nbytes)
            r = c.infer("digits", [i], outputs=[o], headers=dict(self.auth)).get_response().outputs[0]
            self.assertEqual(r.parameters["shared_memory_region"].string_param, "io")
            got = shm.get_contents_as_numpy(region, np.float32, [2, 10], offset=x.nbytes)
            np.testing.assert_array_equal(got, self.http_logits(x))
            c.unregister_system_shared_memory("io", headers=dict(self.auth))

    def test_tls(self):
        with tempfile.TemporaryDirectory(prefix="shunt-tls-") as d:
            cert, key = d + "/tls.crt", d + "/tls.key"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=here", "-addext",
                            "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True,
                           capture_output=True)
            with another(self.s, "--tls-cert=" + cert, "--tls-key=" + key) as port:
                c = triton.InferenceServerClient("127.0.0.1:%d" % port, ssl=True, root_certificates=cert)
                self.addCleanup(c.close)
                for n in (1, 8):
                    r = c.infer("digits", self.inputs(x=self.x[:n]), headers=dict(self.auth))
                    np.testing.assert_array_equal(r.as_numpy("logits"), self.http_logits(self.x[:n]))
                self.s.push(self.key, "wide", wide(), max_batch=4)
                x = np.ones((4, WIDE), np.float32)
                for _ in range(3):
                    r = c.infer("wide", self.inputs(x=x), headers=dict(self.auth))
                    self.assertEqual(set(r.as_numpy("y").ravel()), {np.float32(2)})
                plain = triton.InferenceServerClient("127.0.0.1:%d" % port)
                self.addCleanup(plain.close)
                self.refused("UNAVAILABLE", "", plain.is_server_live)
                context = ssl.create_default_context(cafile=cert)
                context.set_alpn_protocols(["http/1.1"])  # who speaks something else is told so
                with socket.create_connection(("127.0.0.1", port)) as raw, self.assertRaises(ssl.SSLError):
                    context.wrap_socket(raw, server_hostname="127.0.0.1").close()
                self.assertTrue(c.is_server_live())

    def test_refusals_have_their_codes(self):
        stub = self.raw_stub()
        self.refused("UNAUTHENTICATED", "", self.infer, key="shunt_wrong")
        self.refused("UNAUTHENTICATED", "", stub.ModelInfer, self.request())
        self.refused("PERMISSION_DENIED", "", self.infer, key=self.s.key("vision", "read"))
        self.refused("NOT_FOUND", "nothing", self.infer, "nothing")
        self.refused("NOT_FOUND", "digits", self.infer, "digits", key=self.other)
        self.refused("INVALID_ARGUMENT", "shape", self.infer, inputs=self.inputs(x=self.x[:1, :, :4]))
        self.refused("INVALID_ARGUMENT", "model_name", stub.ModelInfer, self.request(""),
                     metadata=self.meta())
        self.refused("INVALID_ARGUMENT", "bytes", stub.ModelInfer, service_pb2.ModelInferRequest(
            model_name="digits", inputs=self.request(typed=False).inputs), metadata=self.meta())
        e = self.refused("NOT_FOUND", "no model", stub.ModelConfig,
                         service_pb2.ModelConfigRequest(name="nothing"), metadata=self.meta())
        self.assertEqual(dict(e.trailing_metadata())["shunt-code"], "NOTFOUND")
        self.refused("UNIMPLEMENTED", "TraceSetting", stub.TraceSetting, service_pb2.TraceSettingRequest(),
                     metadata=self.meta())
        self.refused("INVALID_ARGUMENT", "tenant", stub.ModelInfer, self.request(),
                     metadata=self.meta(self.s.admin))
        stub.ModelInfer(self.request(), metadata=self.meta(self.s.admin, **{"shunt-tenant": "vision"}))
        self.infer()

    def test_too_large(self):
        q = self.request(typed=False)
        q.raw_input_contents[0] = bytes(MOST)
        self.refused("RESOURCE_EXHAUSTED", "at most %d" % MOST, self.raw_stub().ModelInfer, q,
                     metadata=self.meta())
        self.refused("RESOURCE_EXHAUSTED", "headers", self.raw_stub().ServerLive,
                     service_pb2.ServerLiveRequest(), metadata=[("x-%d" % i, "y" * 1000) for i in range(20)])
        until("nothing is held", lambda: not self.in_flight(), 10)

    def test_quota(self):
        slow = self.s.tenant("slow")
        self.s.push(slow, "digits", zoo("digits-cnn"))
        now = self.s.call("GET", "/api/v1/tenants/slow/quota", key=self.s.admin)
        r = self.s.call("PUT", "/api/v1/tenants/slow/quota", {"requests_per_second": 0.5, "burst": 1},
                        self.s.admin, {"If-Match": now.headers["etag"]})
        self.assertEqual(r.status, 200, r)

        def over():
            try:
                self.raw_stub().ModelInfer(self.request(), metadata=self.meta(slow))
            except grpc.RpcError as e:
                return e
        e = until("it has sent too many", over)
        self.assertEqual(e.code(), CODE.RESOURCE_EXHAUSTED)
        got = dict(e.trailing_metadata())
        self.assertEqual((got["shunt-code"], "q=1" in got["ratelimit-policy"]), ("QUOTA", True))
        self.assertGreaterEqual(int(got["retry-after"]), 1)

    def test_deadline(self):
        with frozen(self.s):
            begin = time.monotonic()
            self.refused("DEADLINE_EXCEEDED", "", self.infer, client_timeout=0.5)
            self.assertLess(time.monotonic() - begin, 5)
        self.infer()

    def test_cancel(self):
        def cancelled():
            return self.s.metrics("api").get(
                'shunt_requests_total{tenant="vision",model="digits",outcome="CANCELLED"}', 0)
        before = cancelled()
        with frozen(self.s):
            call = self.raw_stub().ModelInfer.future(self.request(), metadata=self.meta())
            until("it is in flight", self.in_flight)
            call.cancel()
            until("the server knows", lambda: cancelled() == before + 1, 10)
        self.infer()

    def test_a_connection_that_ends(self):
        with frozen(self.s):
            with socket.create_connection(("127.0.0.1", self.port)) as c:
                body = self.request().SerializeToString()
                c.sendall(PREFACE + frame(4) + frame(1, 4, 1, head(
                    b"ModelInfer", authorization=b"Bearer " + self.key.encode())) +
                    frame(0, 1, 1, b"\0" + struct.pack(">I", len(body)) + body))
                until("it is in flight", self.in_flight)
        until("nothing is held for it", lambda: not self.in_flight())
        self.infer()

    def stream(self, requests):
        got = queue.Queue()
        self.c.start_stream(callback=lambda result, error: got.put((result, error)),
                            headers=dict(self.auth))
        for model, n, request_id in requests:
            self.c.async_stream_infer(model, self.inputs(x=self.x[:n]), request_id=request_id,
                                      enable_empty_final_response=True)
        out = [got.get(timeout=60) for _ in requests]
        self.c.stop_stream()
        return out

    def test_stream(self):
        got = self.stream([("digits", 1 + i % 4, str(i)) for i in range(50)])
        for i, (result, error) in enumerate(got):
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, str(i))
            self.assertEqual(result.as_numpy("logits").shape, (1 + i % 4, 10))

    def test_a_stream_goes_on_after_a_failure(self):
        got = self.stream([("digits", 1, "a"), ("nothing", 1, "b"), ("digits", 1, "c")])
        self.assertIsNone(got[0][1])
        self.assertIn("nothing", got[1][1].message())
        self.assertEqual(got[2][0].get_response().id, "c")

    def test_a_stream_may_be_too_large_or_without_a_key(self):
        big = self.request(typed=False)
        big.raw_input_contents[0] = bytes(MOST)
        got = list(self.raw_stub().ModelStreamInfer(iter([big, self.request()]), metadata=self.meta()))
        self.assertIn("at most", got[0].error_message)
        self.assertEqual(len(got[1].infer_response.raw_output_contents[0]), 40)
        self.refused("UNAUTHENTICATED", "", lambda: list(self.raw_stub().ModelStreamInfer(iter([big]))))
        self.assertEqual(list(self.raw_stub().ModelStreamInfer(iter([]), metadata=self.meta())), [])

    def test_a_key_is_asked_for_again_when_a_stream_has_waited(self):
        made = self.s.call("POST", "/api/v1/tenants/vision/keys", {"name": "short", "role": "submit"},
                           key=self.s.admin).json
        body = self.request().SerializeToString()
        message = frame(0, 0, 1, b"\0" + struct.pack(">I", len(body)) + body)
        c = self.open_call(b"ModelStreamInfer", message, key=made["key"])
        got = c.recv(65536)
        while b"logits" not in got:
            got += c.recv(65536)
        r = self.s.call("DELETE", "/api/v1/tenants/vision/keys/" + made["id"], key=self.s.admin)
        self.assertEqual(r.status, 204, r)
        until("it is known", lambda: self.s.call("GET", "/api/v1/models", key=made["key"]).status == 401)
        c.sendall(message)
        got = self.all_of(c)
        self.assertEqual((told(got)["grpc-status"], b"logits" in got), ("16", False))


class Drain(Story):
    def test_a_stop_lets_calls_end(self):
        with System() as self.s:
            s, port = self.s, self.s.port + 1
            key = s.tenant("vision")
            s.push(key, "digits", zoo("digits-cnn"))
            channel = grpc.insecure_channel("127.0.0.1:%d" % port)
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            q = service_pb2.ModelInferRequest(model_name="digits")
            q.inputs.add(name="x", datatype="FP32", shape=[1, 1, 8, 8]).contents.fp32_contents.extend([0] * 64)
            meta = [("authorization", "Bearer " + key)]
            stub.ModelInfer(q, metadata=meta)
            idle = stub.ModelStreamInfer(iter(lambda: time.sleep(60), None), metadata=meta)
            with s.held(), frozen(s):
                call = stub.ModelInfer.future(q, metadata=meta)
                until("it is in flight", lambda: s.payload() > 0)
                os.kill(s.pid("api"), signal.SIGTERM)
                with self.assertRaises(grpc.RpcError) as e:
                    next(idle)
                self.assertEqual(e.exception.code(), CODE.UNAVAILABLE)
            self.assertEqual(len(call.result(timeout=60).raw_output_contents[0]), 40)
            channel.close()


if __name__ == "__main__":
    unittest.main()
