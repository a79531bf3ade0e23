"""A request of the inference protocol as bytes, a connection that sends it, and what it is compared with.

Standard library only.
"""
import collections
import json
import os
import re
import socket
import subprocess
import time

from programs import bench_program

PROGRAM = bench_program("http")
POOL = 128 << 10  # memory that libmicrohttpd gets for a connection: as in api/http/http.c
TIMEOUT_S = 60

Reply = collections.namedtuple("Reply", "head body")


def v2_request(key, model, name, shape, raw):
    """Head and body of a request with one FP32 tensor as binary data; so is the reply's."""
    text = json.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": shape,
                                   "parameters": {"binary_data_size": len(raw)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    head = ("POST /v2/models/%s/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
            "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
            "Content-Length: %d\r\n\r\n" % (model, key, len(text), len(text) + len(raw)))
    return head.encode(), text + raw


def grpc_request(key, model, name, shape, raw):
    """The frames of the same call over gRPC."""
    def field(number, data):
        assert len(data) < 128 or number == 7 and len(data) < 16384
        size = bytes((len(data),)) if len(data) < 128 else bytes((len(data) & 127 | 128, len(data) >> 7))
        return bytes((number << 3 | 2,)) + size + data

    def frame(kind, flags, data):
        return len(data).to_bytes(3, "big") + bytes((kind, flags, 0, 0, 0, 1)) + data

    def header(key, value):
        return b"\x00" + bytes((len(key),)) + key + bytes((len(value),)) + value
    assert max(shape) < 128
    tensor = field(1, name.encode()) + field(2, b"FP32") + field(3, bytes(shape))
    text = field(1, model.encode()) + field(5, tensor) + field(7, raw)
    head = b"".join(header(*h) for h in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"127.0.0.1"),
        (b":path", b"/inference.GRPCInferenceService/ModelInfer"), (b"te", b"trailers"),
        (b"content-type", b"application/grpc"), (b"authorization", b"Bearer " + key.encode())))
    return frame(1, 4, head), frame(0, 1, b"\0" + len(text).to_bytes(4, "big") + text)


def shm_request(key, model, inputs, region):
    """The same with its inputs, (name, datatype, shape, bytes) each, one after the other in a registered
    region."""
    described, at = [], 0
    for name, datatype, shape, size in inputs:
        described.append({"name": name, "datatype": datatype, "shape": shape,
                          "parameters": {"shared_memory_region": region, "shared_memory_offset": at,
                                         "shared_memory_byte_size": size}})
        at += size
    text = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    head = ("POST /v2/models/%s/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
            "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (model, key, len(text)))
    return head.encode(), text


class SharedMemory:
    """POSIX shared memory of this process."""

    def __init__(self, name, size):
        self.key, self.path, self.size = "/" + name, "/dev/shm/" + name, size
        with open(self.path, "xb") as f:
            f.truncate(size)

    def register(self, system, key, region):
        """At a system that has client-shm, under this name."""
        r = system.call("POST", "/v2/systemsharedmemory/region/%s/register" % region,
                        {"key": self.key, "byte_size": self.size}, key)
        assert r.status == 200, r

    def write(self, raw):
        """The ms that it took."""
        begin = time.perf_counter()
        with open(self.path, "r+b", buffering=0) as f:
            n = f.write(raw)
        ms = 1e3 * (time.perf_counter() - begin)
        assert n == len(raw), "%d bytes of %d are written" % (n, len(raw))
        return ms

    def close(self):
        os.unlink(self.path)


class Connection:
    def __init__(self, port, request):
        self.head, self.body = request
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self):
        got, at, length = b"", -1, 0
        while at < 0 or len(got) < at + 4 + length:
            piece = self.sock.recv(1 << 20)
            assert piece, "the server closed the connection"
            got += piece
            if at < 0 <= (at := got.find(b"\r\n\r\n")):
                length = int(re.search(rb"\nContent-Length: (\d+)", got[:at]).group(1))
        reply = Reply(got[:at].decode(), got[at + 4:])
        assert reply.head.startswith("HTTP/1.1 200 "), got[:500]
        return reply

    def close(self):
        self.sock.close()

    def exchange(self):
        """ms to the end of send(), ms to the reply's last byte, the reply."""
        begin = time.perf_counter()
        self.sock.sendall(self.head)
        self.sock.sendall(self.body)
        sent = time.perf_counter()
        reply = self.receive()
        return 1e3 * (sent - begin), 1e3 * (time.perf_counter() - begin), reply


class Peer:
    """A server of ../http.c: Peer("library", threads), Peer("socket")."""

    def __init__(self, kind, threads=None):
        more = [str(threads), str(POOL)] if threads else []
        self.proc = subprocess.Popen([PROGRAM, kind, *more], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)
        self.port = int(self.proc.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.stdin.close()
        self.proc.stdout.close()
        self.proc.wait(10)
