"""What the stories of gRPC share: a system, clients of it, and frames made by hand. Import it behind
packages.enter()."""
import contextlib
import os
import signal
import socket
import struct
import subprocess
import tempfile

import grpc
import hpack
import numpy as np
import tritonclient.grpc as triton
import tritonclient.http as over_http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import onnx_bytes
from process import freeze
from system import BIN, DIGITS, Story, System, free_port, read_st, until, zoo

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
    freeze(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def pieces(data, n=16000):
    """For one frame each."""
    return [data[at:at + n] for at in range(0, len(data), n)]


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
def another(s, *options, http_port=0):
    """Another shunt-api of the same system, with options of its own: its port of gRPC."""
    def of_the_first(file):
        with open("/proc/%d/%s" % (s.pid("api"), file)) as f:
            return f.read().rstrip("\0").split("\0")
    port = free_port()

    def of_log(log):
        return os.pread(log.fileno(), 1 << 20, 0)
    own = ["--listen=127.0.0.1:%d" % http_port, "--grpc-listen=127.0.0.1:%d" % port, "--metrics-addr=", "--name=another"]
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


class GrpcStory(Story):
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

    def in_flight(self):
        return self.s.payload() > 0

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

    def cpu_s(self, pid=None):
        with open("/proc/%d/stat" % (pid or self.s.pid("api"))) as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

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
