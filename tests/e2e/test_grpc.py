#!/usr/bin/env python3
"""The inference protocol over gRPC: the unmodified tritonclient, and bytes that no client would send.

Without it: a call could get another answer than the same request over HTTP, a client that leaves could
keep what its request holds, and a few broken frames could end the server or hang it.

Usage: test_grpc.py [-v] [name ...]
"""
import concurrent.futures
import contextlib
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

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__)
import grpc  # noqa: E402
import hpack  # noqa: E402
import numpy as np  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
import tritonclient.http as over_http  # noqa: E402
import tritonclient.utils.shared_memory as shm  # noqa: E402
from google.protobuf import descriptor_pb2  # noqa: E402
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

import onnx_bytes  # noqa: E402
from system import BIN, DIGITS, ROOT, Story, System, free_port, read_st, until, zoo  # noqa: E402

CODE = grpc.StatusCode
MOST = 1 << 20  # bytes of a request
WIDE = 60000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags=0, stream=0, data=b""):
    return struct.pack(">I", len(data))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + data


def literal(name, value):
    """A header without compression."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def head(method=b"ServerLive", **more):
    h = {b":method": b"POST", b":scheme": b"http", b":authority": b"here",
         b":path": b"/inference.GRPCInferenceService/" + method, b"content-type": b"application/grpc",
         b"te": b"trailers", **{k.replace("_", "-").encode(): v for k, v in more.items()}}
    return b"".join(literal(k, v) for k, v in h.items())


@contextlib.contextmanager
def frozen(s):
    """The executor answers nothing meanwhile, and nothing is in flight before."""
    until("nothing is held", lambda: s.payload() == 0)
    pid = s.pid("executor-cpu0")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def told(got):
    """All headers and trailers that a server's bytes have."""
    decoder, out = hpack.Decoder(), {}
    while len(got) >= 9:
        n = int.from_bytes(got[:3], "big")
        if got[3] == 1:
            out.update(decoder.decode(got[9:9 + n]))
        got = got[9 + n:]
    return out


def wide():
    """A sum of many numbers: megabytes both ways."""
    n = onnx_bytes
    return n.model([n.node("Add", ["x", "b"], ["y"])], [n.value("x", ["N", WIDE])],
                   [n.value("y", ["N", WIDE])], [n.tensor("b", [1], [1.0])])


def widening():
    """A number in, as many out as wide() has."""
    n = onnx_bytes
    return n.model([n.node("Add", ["x", "b"], ["y"])], [n.value("x", ["N", 1])],
                   [n.value("y", ["N", WIDE])], [n.tensor("b", [WIDE], [1.0] * WIDE)])


@contextlib.contextmanager
def another(s, *options):
    """Another shunt-api of the same system, with options of its own: its port of gRPC."""
    def of_the_first(file):
        with open("/proc/%d/%s" % (s.pid("api"), file)) as f:
            return f.read().rstrip("\0").split("\0")
    port = free_port()

    def of_log(log):
        return os.pread(log.fileno(), 1 << 20, 0)
    own = ["--listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:%d" % port, "--metrics-addr=", "--name=another"]
    env = dict(pair.split("=", 1) for pair in of_the_first("environ"))
    with tempfile.TemporaryFile() as log:
        p = subprocess.Popen([os.path.join(BIN, "shunt-api"), *of_the_first("cmdline")[1:], *own, *options],
                             env=env, stderr=log)
        try:
            until("it is up", lambda: b"ev=scheduler.up" in of_log(log) and b"ev=api.ready" in of_log(log))
            yield port
        finally:
            p.terminate()
            rc = p.wait(60)
        said = of_log(log)
    assert rc == 0, (rc, said[-2000:])


class Grpc(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System(MAX_INFER_BYTES=str(MOST), GRPC_STREAMS="32", IDLE_TIMEOUT_S="4",
                           UPLOAD_GRACE_S="2")
        cls.port = s.port + 1
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        cls.other = s.tenant("other")
        s.push(cls.key, "digits", zoo("digits-cnn"), max_batch=8)
        s.push(cls.key, "two", onnx_bytes.two_outputs(), max_batch=8)
        cls.auth = {"authorization": "Bearer " + cls.key}
        test = read_st(os.path.join(DIGITS, "test.safetensors"))["x"]
        cls.x = np.frombuffer(test[2], np.float32).reshape(test[1])

    def setUp(self):
        self.c = triton.InferenceServerClient("127.0.0.1:%d" % self.port)
        self.addCleanup(self.c.close)

    def raw_stub(self):
        channel = grpc.insecure_channel("127.0.0.1:%d" % self.port)
        self.addCleanup(channel.close)
        return service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def meta(self, key=None, **more):
        return [("authorization", "Bearer " + (key or self.key)), *more.items()]

    @staticmethod
    def inputs(**arrays):
        out = []
        for name, a in arrays.items():
            out.append(triton.InferInput(name, list(a.shape), {"f": "FP32", "i": "INT64"}[a.dtype.kind]))
            out[-1].set_data_from_numpy(a)
        return out

    def infer(self, model="digits", key=None, inputs=None, **more):
        return self.c.infer(model, inputs or self.inputs(x=self.x[:1]),
                            headers={"authorization": "Bearer " + (key or self.key)}, **more)

    def http_logits(self, x):
        c = over_http.InferenceServerClient("127.0.0.1:%d" % self.s.port)
        i = over_http.InferInput("x", list(x.shape), "FP32")
        i.set_data_from_numpy(x)
        try:
            return c.infer("digits", [i], headers=dict(self.auth)).as_numpy("logits")
        finally:
            c.close()

    def refused(self, code, text, fn, *args, **more):
        with self.assertRaises((InferenceServerException, grpc.RpcError)) as e:
            fn(*args, **more)
        e = e.exception
        got = e.status() if isinstance(e, InferenceServerException) else str(e.code())
        said = e.message() if isinstance(e, InferenceServerException) else e.details()
        self.assertEqual(got, "StatusCode." + code, said)
        self.assertIn(text, said)
        return e

    # ------------------------------------------------------------ the same as over HTTP
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

    def request(self, model="digits", n=1, typed=True, **parameters):
        q = service_pb2.ModelInferRequest(model_name=model)
        for name, value in parameters.items():
            q.parameters[name].int64_param = value
        i = q.inputs.add(name="x", datatype="FP32", shape=[n, 1, 8, 8])
        if typed:
            i.contents.fp32_contents.extend(self.x[:n].ravel())
        else:
            q.raw_input_contents.append(self.x[:n].tobytes())
        return q

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

    # ------------------------------------------------------------ large, shared, encrypted
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

    def test_connections_without_a_key_make_room(self):
        with another(self.s, "--grpc-max-connections=4", "--threads=1") as port:
            strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
            for x in strangers:
                self.addCleanup(x.close)
                x.settimeout(20)
            for x in strangers[:2]:  # the oldest
                while x.recv(4096):
                    pass
            strangers[2].settimeout(0.2)
            with self.assertRaises(TimeoutError):
                while strangers[2].recv(4096):
                    pass
            c = triton.InferenceServerClient("127.0.0.1:%d" % port)
            self.addCleanup(c.close)
            r = c.infer("digits", self.inputs(x=self.x[:1]), headers=dict(self.auth))
            self.assertEqual(r.as_numpy("logits").shape, (1, 10))
            for _ in range(6):
                more = socket.create_connection(("127.0.0.1", port))
                self.addCleanup(more.close)
            c.infer("digits", self.inputs(x=self.x[:1]), headers=dict(self.auth))

    def test_calls_beyond_those_of_a_connection_wait(self):
        with frozen(self.s):
            stub = self.raw_stub()
            calls = [stub.ModelInfer.future(self.request(), metadata=self.meta()) for _ in range(60)]
            until("some are in flight", self.in_flight)
        for c in calls:
            self.assertEqual(len(c.result(timeout=60).raw_output_contents[0]), 40)

    # ------------------------------------------------------------ refusals
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

    # ------------------------------------------------------------ clients that do not wait
    def in_flight(self):
        return self.s.payload() > 0

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

    def test_a_call_that_is_left_while_a_pool_thread_reads_it(self):
        q = self.request()
        q.parameters["p"].string_param = "y" * 70000
        body = struct.pack(">xI", q.ByteSize()) + q.SerializeToString()
        parts = [frame(0, 0, 1, body[at:at + 16000]) for at in range(0, len(body), 16000)]
        for _ in range(20):
            with self.open_call(b"ModelInfer", parts[0]) as c:
                time.sleep(0.03)  # its window opens
                c.sendall(b"".join(parts[1:]) + frame(3, 0, 1, b"\0\0\0\x08"))
        until("nothing is held", lambda: not self.in_flight(), 10)

    # ------------------------------------------------------------ streams
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

    # ------------------------------------------------------------ many at once
    def test_many_connections_leave_nothing(self):
        pid = self.s.pid("api")

        def rss_kb():
            with open("/proc/%d/status" % pid) as f:
                return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

        def descriptors():
            return len(os.listdir("/proc/%d/fd" % pid))

        def work(seed):
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel("127.0.0.1:%d" % self.port, options) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                for i in range(40):
                    r = stub.ModelInfer(self.request(n=1 + (seed + i) % 8, typed=i % 2 == 0),
                                        metadata=self.meta())
                    self.assertEqual(len(r.raw_output_contents[0]), 40 * (1 + (seed + i) % 8))
            return 40

        def round_of_them():
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                self.assertEqual(sum(pool.map(work, range(16))), 640)
        round_of_them()
        until("all are closed", lambda: self.s.metrics("api")["shunt_grpc_connections"] <= 1)
        fds, rss = descriptors(), rss_kb()
        for _ in range(3):
            round_of_them()
        until("all are closed", lambda: self.s.metrics("api")["shunt_grpc_connections"] <= 1)
        until("no descriptor is left", lambda: descriptors() <= fds + 1)
        self.assertLess(rss_kb() - rss, 8 << 10)
        until("nothing is held", lambda: not self.in_flight(), 10)

    # ------------------------------------------------------------ bytes that no client would send
    def talk(self, data, timeout=20, shut=False):
        """All that the server says until it closes, or until it says nothing for a while."""
        got = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as c:
            try:
                c.sendall(data)
                if shut:
                    c.shutdown(socket.SHUT_WR)
                c.settimeout(0.5)
                while piece := c.recv(65536):
                    got += piece
            except OSError:  # nothing more comes, or it was closed
                pass
        return got

    def test_malformed_messages(self):
        authorized = head(b"ModelInfer", authorization=b"Bearer " + self.key.encode())
        whole = self.request().SerializeToString()
        rng = random.Random(7)
        bodies = [b"", b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x0f", b"\x2a\x00" * 40000, whole[:-3]]
        for _ in range(200):
            b = bytearray(whole)
            for _ in range(rng.randrange(1, 8)):
                b[rng.randrange(len(b))] = rng.randrange(256)
            bodies.append(bytes(b[:rng.randrange(len(b) + 1)]) if rng.random() < .3 else bytes(b))
        channel = grpc.insecure_channel("127.0.0.1:%d" % self.port)
        self.addCleanup(channel.close)
        raw = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for b in bodies:
            try:
                raw(b, metadata=self.meta(), timeout=20)
            except grpc.RpcError as e:
                self.assertIn(e.code(), (CODE.INVALID_ARGUMENT, CODE.NOT_FOUND, CODE.UNIMPLEMENTED,
                                         CODE.RESOURCE_EXHAUSTED, CODE.DEADLINE_EXCEEDED), (b, e))
        for prefix in (b"\1\0\0\0\0", b"\7\0\0\0\0", b"\0\xff\xff\xff\xff", b"\0\0"):
            got = self.talk(PREFACE + frame(4) + frame(1, 4, 1, authorized) + frame(0, 1, 1, prefix))
            self.assertIn(told(got).get("grpc-status"), ("3", "8", "12"))
        self.infer()

    def test_malformed_frames(self):
        authorized = head(b"ModelInfer", authorization=b"Bearer " + self.key.encode())
        ok = PREFACE + frame(4)
        rng = random.Random(11)
        cases = [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, PREFACE[:10], PREFACE, ok + b"\xff" * 100,
                 ok + frame(1, 4, 2, authorized), ok + frame(0, 0, 1, b"x"), ok + frame(9, 4, 1, b"x"),
                 ok + frame(1, 4, 1, b"\xff\xff\xff"), ok + frame(1, 0, 1, authorized) * 2,
                 ok + frame(8, 0, 0, b"\0\0\0\0"), ok + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 3,
                 ok + frame(4, 0, 0, b"\0\4\xff\xff\xff\xff"), ok + frame(4, 0, 1, b""),
                 ok + frame(6, 0, 0, b"short"), ok + frame(3, 0, 0, b"\0\0\0\0"),
                 ok + frame(0xfa, 0xff, 0x7fffffff, b"?" * 1000), ok + frame(6, 0, 0, bytes(8)) * 20000,
                 ok + frame(4) * 20000, ok + frame(1, 4, 1, authorized) + frame(3, 0, 1, b"\0\0\0\x08"),
                 ok + b"".join(frame(1, 4, 1 + 2 * i, authorized) + frame(3, 0, 1 + 2 * i, b"\0\0\0\x08")
                               for i in range(2000)),
                 ok + frame(1, 4, 1, literal(b":path", b"/x") * 3), ok + frame(1, 5, 1, b"")]
        for _ in range(150):
            b = bytearray(ok + frame(1, 4, 1, authorized) + frame(0, 1, 1, b"\0\0\0\0\4abcd"))
            for _ in range(rng.randrange(1, 6)):
                b[rng.randrange(len(PREFACE), len(b))] = rng.randrange(256)
            cases.append(bytes(b))
        pid = self.s.pid("api")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(self.talk, cases))
            list(pool.map(lambda c: self.talk(c, shut=True), cases))
        self.assertEqual(self.s.pid("api"), pid)
        self.infer()
        until("nothing is held", lambda: not self.in_flight(), 10)

    def cpu_s(self):
        with open("/proc/%d/stat" % self.s.pid("api")) as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def test_headers_that_grow_when_they_are_unpacked(self):
        """A byte stands for a header of 4 KB: 100 KB are 400 MB."""
        value = b"a" * 3900
        once = b"\x40\x05x-abc\x7f" + bytes(((3900 - 127) & 127 | 128, (3900 - 127) >> 7)) + value
        got, begin = b"", self.cpu_s()
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as c:
            c.sendall(PREFACE + frame(4))
            for i in range(20):
                block = head(b"ServerLive") + (once if i == 0 else b"") + b"\xbe" * 100000
                parts = [block[at:at + 16000] for at in range(0, len(block), 16000)]
                c.sendall(b"".join(frame(9 if k else 1, 4 if k == len(parts) - 1 else 0, 1 + 2 * i, part)
                                   for k, part in enumerate(parts)))
            c.sendall(frame(6, 0, 0, b"the end!"))
            while b"the end!" not in got and (piece := c.recv(65536)):
                got += piece
        self.assertLess(self.cpu_s() - begin, 0.7)

    def test_who_has_no_key_may_have_few_calls(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as c:
            c.sendall(PREFACE + frame(4) + b"".join(frame(1, 4, 1 + 2 * i, head(b"ServerLive")) for i in range(20)))
            want = [frame(3, 0, 1 + 2 * i, b"\0\0\0\7") for i in range(16, 20)]  # REFUSED_STREAM
            got = b""
            while not all(w in got for w in want):
                got += c.recv(65536)
            self.assertNotIn(frame(3, 0, 31, b"\0\0\0\7"), got)

    def test_other_requests(self):
        get = frame(1, 5, 1, head().replace(literal(b":method", b"POST"), literal(b":method", b"GET")))
        self.assertEqual(told(self.talk(PREFACE + frame(4) + get))[":status"], "405")
        text = head().replace(literal(b"content-type", b"application/grpc"),
                              literal(b"content-type", b"text/plain"))
        self.assertEqual(told(self.talk(PREFACE + frame(4) + frame(1, 5, 1, text)))[":status"], "415")
        got = told(self.talk(PREFACE + frame(4) + frame(1, 5, 1, head(b"Nothing"))))
        self.assertEqual((got[":status"], got["grpc-status"], got["shunt-code"]), ("200", "12", "METHOD"))
        blank = head(b"ModelInfer", authorization=b" Bearer " + self.key.encode() + b" ")
        body = self.request().SerializeToString()
        got = told(self.talk(PREFACE + frame(4) + frame(1, 4, 1, blank) +
                             frame(0, 1, 1, b"\0" + struct.pack(">I", len(body)) + body)))
        self.assertEqual(got["grpc-status"], "0")  # perf_analyzer sends blanks so
        got = told(self.talk(PREFACE + frame(4) + frame(1, 5, 1, head(b"ServerLive"))))
        self.assertEqual((got["grpc-status"], "without a message" in got["grpc-message"]), ("3", True))

    # ------------------------------------------------------------ limits of time
    def test_slow_and_idle_clients_are_ended(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as c:
            c.sendall(PREFACE + frame(4) + frame(1, 4, 1, head(
                b"ModelInfer", authorization=b"Bearer " + self.key.encode())) +
                frame(0, 0, 1, b"\0" + struct.pack(">I", 50000) + b"x"))
            until("it has room", self.in_flight)
            got = b""
            while piece := c.recv(65536):  # its call fails, then its connection is idle
                got += piece
            self.assertIn("too slowly", told(got)["grpc-message"])
        until("nothing is held", lambda: not self.in_flight(), 10)
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as c:
            while c.recv(65536):
                pass

    def open_call(self, method, *more, key=None, port=None, **headers):
        """A connection whose call has begun; more: frames behind it."""
        c = socket.create_connection(("127.0.0.1", port or self.port), timeout=20)
        self.addCleanup(c.close)
        c.sendall(PREFACE + frame(4) + frame(1, 4, 1, head(
            method, authorization=b"Bearer " + (key or self.key).encode(), **headers)) + b"".join(more))
        return c

    @staticmethod
    def all_of(c):
        got = b""
        while piece := c.recv(65536):
            got += piece
        return got

    def test_a_call_without_a_message_is_ended(self):
        calls = {"without": self.open_call(b"ModelInfer"), "public": self.open_call(b"ServerLive"),
                 "deadline": self.open_call(b"ModelStreamInfer", grpc_timeout=b"1S")}
        for name, c in calls.items():  # then its connection is idle
            got = told(self.all_of(c))
            self.assertEqual(got["grpc-status"], "4", name)
            self.assertIn("deadline" if name == "deadline" else "no message", got["grpc-message"])

    def test_a_slow_reader_gets_a_large_answer_whole(self):
        """More than is kept for a connection, and for longer than it may stand still."""
        self.s.push(self.key, "widening", widening(), max_batch=4)
        q = service_pb2.ModelInferRequest(model_name="widening")
        q.inputs.add(name="x", datatype="FP32", shape=[4, 1])
        q.raw_input_contents.append(bytes(16))
        body = q.SerializeToString()
        n, got, begin = 12, 0, time.monotonic()
        c = socket.socket()
        self.addCleanup(c.close)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # as on a network: little is sent ahead
        for option, value in ((socket.TCP_MAXSEG, 1400), (socket.TCP_WINDOW_CLAMP, 2048)):
            c.setsockopt(socket.IPPROTO_TCP, option, value)
        c.connect(("127.0.0.1", self.port))
        c.settimeout(20)
        c.sendall(PREFACE + frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(8, 0, 0, b"\x7f\0\0\0") +
                  frame(1, 4, 1, head(b"ModelStreamInfer", authorization=b"Bearer " + self.key.encode())) +
                  frame(0, 1, 1, (b"\0" + struct.pack(">I", len(body)) + body) * n))
        while got < n * 4 * 4 * WIDE:
            piece = c.recv(4096)
            self.assertTrue(piece, "it was closed after %d bytes, %.1f s" % (got, time.monotonic() - begin))
            got += len(piece)
            time.sleep(max(0, got / (1.5 * (1 << 20)) - (time.monotonic() - begin)))
        self.assertGreater(time.monotonic() - begin, 5)

    def test_idle_streams_make_room(self):
        with another(self.s, "--grpc-max-connections=4", "--threads=1") as port:
            for _ in range(4):
                self.open_call(b"ModelStreamInfer", port=port)
            time.sleep(0.5)
            c = triton.InferenceServerClient("127.0.0.1:%d" % port)
            self.addCleanup(c.close)
            self.assertFalse(c.is_model_ready("digits", headers={"authorization": "Bearer " + self.other}))

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

    def test_a_client_that_waits_is_told_to_go_on_elsewhere(self):
        """A channel outlives the idle connections that it had."""
        stub = self.raw_stub()
        stub.ModelInfer(self.request(), metadata=self.meta())
        until("it is closed", lambda: self.s.metrics("api")["shunt_grpc_connections"] == 0, 30)
        stub.ModelInfer(self.request(), metadata=self.meta())

    # ------------------------------------------------------------ facts
    def test_fields_are_those_of_the_protocol(self):
        with tempfile.TemporaryDirectory(prefix="shunt-proto-") as d:
            out = os.path.join(d, "set")
            subprocess.run(["protoc", "--proto_path", os.path.join(ROOT, "api", "grpc"), "--include_imports",
                            "--descriptor_set_out", out, "inference.proto"], check=True)
            with open(out, "rb") as f:
                ours = descriptor_pb2.FileDescriptorSet.FromString(f.read()).file[0]
        n = 0

        def same(message, theirs):
            nonlocal n
            for f in message.field:
                other = theirs.fields_by_name[f.name]
                self.assertEqual((f.number, f.type, f.label == 3), (other.number, other.type, other.is_repeated),
                                 "%s.%s" % (message.name, f.name))
                n += 1
            for inner in message.nested_type:
                same(inner, theirs.nested_types_by_name[inner.name])
        for message in ours.message_type:
            theirs = service_pb2.DESCRIPTOR.message_types_by_name.get(message.name) or \
                model_config_pb2.DESCRIPTOR.message_types_by_name[message.name]
            same(message, theirs)
        for v in ours.enum_type[0].value:
            self.assertEqual(v.number, model_config_pb2.DataType.Value(v.name))
        service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        for m in ours.service[0].method:
            other = service.methods_by_name[m.name]
            self.assertEqual((m.input_type, m.output_type),
                             ("." + other.input_type.full_name, "." + other.output_type.full_name))
        self.assertGreater(n, 100)


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
