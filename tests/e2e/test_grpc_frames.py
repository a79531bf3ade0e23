#!/usr/bin/env python3
"""gRPC from bytes that no client would send: broken messages and frames, floods of them.

Without it: a few broken frames could end the server or hang it, and a few bytes could cost much time.

Usage: test_grpc_frames.py [-v] [name ...]
"""
import concurrent.futures
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import packages  # noqa: E402
packages.enter(__file__)
import grpc  # noqa: E402
from google.protobuf import descriptor_pb2  # noqa: E402
from tritonclient.grpc import model_config_pb2, service_pb2  # noqa: E402

from grpc_story import PREFACE, GrpcStory, frame, frozen, head, literal, told  # noqa: E402
from system import ROOT, until  # noqa: E402

CODE = grpc.StatusCode


class Frames(GrpcStory):
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

    def test_a_stream_out_of_step_ends(self):
        """Where the next message begins, nobody knows any more."""
        body = self.request().SerializeToString()
        whole = b"\0" + struct.pack(">I", len(body)) + body
        for flags, ahead in ((0, b""), (1, b""), (0, whole), (1, whole)):
            c = self.open_call(b"ModelStreamInfer", frame(0, flags, 1, ahead + b"\7\0\0\0\0" + b"\xff" * 5000))
            got = b""
            while "grpc-status" not in told(got):
                got += c.recv(65536)
            self.assertEqual(told(got)["grpc-status"], "3", told(got))
            self.assertIn("first byte", told(got)["grpc-message"])
            self.assertLess(len(got), 2000)
            c.close()
        until("nothing is held", lambda: not self.in_flight(), 10)

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

    def flood(self, begin, part, most, answers=True):
        """Sends part again and again until it is ended. How many times, and seconds of CPU."""
        before, n = self.cpu_s(), 0
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as c:
            try:
                c.sendall(PREFACE + frame(4) + begin)
                c.settimeout(2)
                while n < most:
                    c.sendall(part(n))
                    n += 1
                    while answers and select.select([c], [], [], 0)[0]:
                        if not c.recv(1 << 20):
                            return n, self.cpu_s() - before
            except OSError:
                pass
        return n, self.cpu_s() - before

    def test_floods_are_ended_or_wait(self):
        """Each would be millions of frames for megabytes."""
        block = head(b"ModelInfer", authorization=b"Bearer " + self.key.encode())
        call = frame(1, 4, 1, block)
        body = self.request().SerializeToString()
        message = b"\0" + struct.pack(">I", len(body)) + body

        def reset(n, data=b""):
            return b"".join(frame(1, 4, k, block) + (frame(0, 1, k, data) if data else b"") +
                            frame(3, 0, k, b"\0\0\0\x08") for k in range(1 + 200 * n, 201 + 200 * n, 2))
        floods = {
            "continuations": (frame(1, 0, 1, block), lambda n: frame(9, 0, 1) * 1000, 1000, True),
            "continuations of a byte": (frame(1, 0, 1, block), lambda n: frame(9, 0, 1, b"\x82") * 1000, 1000, True),
            "pings": (b"", lambda n: frame(6, 0, 0, bytes(8)) * 1000, 2000, False),
            "settings": (b"", lambda n: frame(4, 0, 0, b"\0\4\0\1\0\0") * 1000, 2000, False),
            "resets": (b"", reset, 300, True), "resets of whole calls": (b"", lambda n: reset(n, message), 100, True),
            "empty data": (call, lambda n: frame(0, 0, 1) * 1000, 1000, True),
            "priorities": (b"", lambda n: frame(2, 0, 1 + 2 * n, b"\0\0\0\0\x10") * 1000, 1000, True),
            "windows": (call, lambda n: frame(8, 0, 1, b"\0\0\0\1") * 1000, 1000, True),
            "unknown": (b"", lambda n: frame(0xbe, 0, 0, b"") * 1000, 1000, True),
        }
        pid = self.s.pid("api")
        for name, (begin, part, most, answers) in floods.items():
            n, cpu = self.flood(begin, part, most, answers)
            print("%-24s %5d of %5d  %.2f s of CPU" % (name, n, most, cpu), file=sys.stderr)
            self.assertTrue(n < most or cpu < 4, (name, n, cpu))
            self.infer()
        self.assertEqual(self.s.pid("api"), pid)
        until("nothing is held", lambda: not self.in_flight(), 10)

    def test_a_client_that_says_goodbye_gets_its_answer(self):
        body = self.request().SerializeToString()
        goaway = frame(7, 0, 0, b"\0\0\0\0\0\0\0\0")
        with frozen(self.s):
            c = self.open_call(b"ModelInfer", frame(0, 1, 1, b"\0" + struct.pack(">I", len(body)) + body), goaway)
            until("it is in flight", self.in_flight)
            c.sendall(frame(1, 5, 3, head(b"ServerLive")))  # after its goodbye: whatever comes of it
        got = self.all_of(c)
        self.assertEqual(told(got)["grpc-status"], "0")

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


if __name__ == "__main__":
    unittest.main()
