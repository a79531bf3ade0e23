#!/usr/bin/env python3
"""What a client of gRPC may take: connections, calls, memory, time.

Without it: clients that do nothing, or read or send slowly, could keep others out and hold what their
calls hold for ever.

Usage: test_grpc_limits.py [-v] [name ...]
"""
import concurrent.futures
import contextlib
import http.client
import os
import socket
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import packages  # noqa: E402
packages.enter(__file__)
import grpc  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402

from grpc_story import PREFACE, WIDE, GrpcStory, another, frame, frozen, head, pieces, told, widening  # noqa: E402
from system import free_port, until, zoo  # noqa: E402


class Limits(GrpcStory):
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

    def stranger(self, port):
        c = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.addCleanup(c.close)
        return c

    @staticmethod
    def is_closed(c):
        """Now, whatever it had said."""
        c.settimeout(0.01)
        try:
            while c.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def test_who_goes_is_found_on_every_thread(self):
        with another(self.s, "--grpc-max-connections=4", "--threads=4") as port:
            for _ in range(10):
                for _ in range(4):
                    c = self.stranger(port)
                    c.sendall(PREFACE + frame(4))
                    c.recv(65536)  # it has its place: not behind the one that is to get it
                with grpc.insecure_channel("127.0.0.1:%d" % port,
                                           [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]) as channel:
                    service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(
                        self.request(), metadata=self.meta(), timeout=20)
            known = [self.open_call(b"ModelStreamInfer", port=port) for _ in range(4)]
            until("it has let them in", lambda: all(c.recv(65536) for c in known))
            for _ in range(8):  # who has a key, and nothing to say, goes for who comes next
                c = triton.InferenceServerClient("127.0.0.1:%d" % port)
                self.addCleanup(c.close)
                self.assertTrue(c.is_model_ready("digits", headers=dict(self.auth)))

    def test_connections_of_an_address_count_over_both_protocols(self):
        web = free_port()
        with another(self.s, "--max-connections-per-ip=4", http_port=web) as port:
            conns = []

            def n_closed():  # which one is the oldest, threads that accept at a time settle
                return sum(self.is_closed(c) for c in conns)
            for n, at in ((3, web), (2, port), (3, web), (3, port)):
                conns += [self.stranger(at) for _ in range(n)]
                until("some went", lambda: n_closed() >= len(conns) - 4)
                self.assertEqual(n_closed(), max(len(conns) - 4, 0))
            c = triton.InferenceServerClient("127.0.0.1:%d" % port)
            self.addCleanup(c.close)
            self.assertTrue(c.is_model_ready("digits", headers=dict(self.auth)))

    def test_connections_of_a_key_count_over_both_protocols(self):
        web = free_port()

        def asked(c):
            c.request("GET", "/v2/models/digits", headers=self.auth)
            r = c.getresponse()
            return r.status, r.read()
        with another(self.s, "--max-connections-per-key=2", http_port=web) as port:
            one, other = (http.client.HTTPConnection("127.0.0.1", web, timeout=20) for _ in range(2))
            self.addCleanup(one.close)
            self.assertEqual(asked(one)[0], 200)
            options = [("grpc.use_local_subchannel_pool", 1)]
            stubs = []
            for _ in range(2):
                channel = grpc.insecure_channel("127.0.0.1:%d" % port, options)
                self.addCleanup(channel.close)
                stubs.append(service_pb2_grpc.GRPCInferenceServiceStub(channel))
            for _ in range(2):
                stubs[0].ModelInfer(self.request(), metadata=self.meta())
            self.refused("RESOURCE_EXHAUSTED", "2 open connections", stubs[1].ModelInfer, self.request(),
                         metadata=self.meta())
            self.assertEqual(asked(other)[0], 429)
            # Another key has its own.
            stubs[1].ModelInfer(self.request(), metadata=self.meta(self.s.admin, **{"shunt-tenant": "vision"}))
            one.close()
            until("there is a place", lambda: self.can(stubs[1]))

    def can(self, stub, key=None):
        try:
            stub.ModelInfer(self.request(), metadata=self.meta(key))
        except grpc.RpcError as e:
            self.assertEqual(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            return False
        return True

    def test_calls_beyond_those_of_a_connection_wait(self):
        with frozen(self.s):
            stub = self.raw_stub()
            calls = [stub.ModelInfer.future(self.request(), metadata=self.meta()) for _ in range(60)]
            until("some are in flight", self.in_flight)
        for c in calls:
            self.assertEqual(len(c.result(timeout=60).raw_output_contents[0]), 40)

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

    def test_who_has_no_key_may_have_few_calls(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as c:
            c.sendall(PREFACE + frame(4) + b"".join(frame(1, 4, 1 + 2 * i, head(b"ServerLive")) for i in range(20)))
            want = [frame(3, 0, 1 + 2 * i, b"\0\0\0\7") for i in range(16, 20)]  # REFUSED_STREAM
            got = b""
            while not all(w in got for w in want):
                got += c.recv(65536)
            self.assertNotIn(frame(3, 0, 31, b"\0\0\0\7"), got)

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

    def test_headers_that_never_end(self):
        with another(self.s, "--idle-timeout-s=3600", "--header-timeout-s=2") as port:
            block = head(b"ServerLive")
            calls = {"no preface": b"", "half a preface": PREFACE[:9], "no call": PREFACE + frame(4),
                     "half a header": PREFACE + frame(4) + frame(1, 0, 1, block[:20]),
                     "headers without their end": PREFACE + frame(4) + frame(1, 0, 1, block)}
            conns = {name: self.stranger(port) for name in calls}
            for name, c in conns.items():
                c.sendall(calls[name])
            ping = frame(6, 0, 0, b"are you?")
            begin = time.monotonic()
            while len(conns) > 0 and time.monotonic() - begin < 20:
                for name, c in list(conns.items()):  # something moves all the time, where it may
                    if self.is_closed(c):
                        del conns[name]
                    elif name == "no call":
                        c.sendall(ping)
                time.sleep(0.1)
            self.assertEqual(list(conns), [])
            # A client with a key may keep its connection without a call.
            c = self.open_call(b"ModelStreamInfer", port=port)
            c.recv(65536)
            time.sleep(4)
            self.assertFalse(self.is_closed(c))

    def test_windows_that_open_by_a_byte(self):
        """An answer that is read so slowly that it would be held for hours."""
        self.s.push(self.key, "widening", widening(), max_batch=4)
        q = service_pb2.ModelInferRequest(model_name="widening")
        q.inputs.add(name="x", datatype="FP32", shape=[4, 1])
        q.raw_input_contents.append(bytes(16))
        body = q.SerializeToString()
        message = frame(0, 1, 1, b"\0" + struct.pack(">I", len(body)) + body)
        for first, stream in ((frame(4, 0, 0, b"\0\4\0\0\0\0"), 1), (frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff"), 0)):
            c = self.stranger(self.port)
            c.sendall(PREFACE + first + frame(1, 4, 1, head(
                b"ModelInfer", authorization=b"Bearer " + self.key.encode())) + message)
            until("it has its answer", self.in_flight)
            begin = time.monotonic()
            while self.in_flight():
                self.assertLess(time.monotonic() - begin, 25, "stream %d" % stream)
                with contextlib.suppress(OSError):
                    c.sendall(frame(8, 0, stream, b"\0\0\0\1"))
                time.sleep(0.2)

    def test_what_is_sent_ahead_is_in_the_share_of_its_tenant(self):
        greedy = self.s.tenant("greedy")
        self.s.push(greedy, "digits", zoo("digits-cnn"))
        with another(self.s, "--slab-bytes=4M", "--slab-tenant-percent=50", "--max-infer-bytes=1M") as port:
            body = self.request(typed=False).SerializeToString()
            ahead = (b"\0" + struct.pack(">I", len(body)) + body) * 150  # 60 KB
            said = []
            with frozen(self.s):
                for _ in range(6):  # the second or third has no room; on a loaded machine a later one
                    c = self.open_call(b"ModelStreamInfer", key=greedy, port=port)
                    c.settimeout(0.3)
                    got = b""
                    while frame(8, 0, 0, b"")[3:9] not in got:  # the window of who has a key
                        with contextlib.suppress(TimeoutError):
                            got += c.recv(65536)
                    for i in range(20):
                        if i > 0:
                            c.sendall(frame(1, 4, 1 + 2 * i, head(b"ModelStreamInfer", authorization=b"Bearer " +
                                                                  greedy.encode())))
                        c.sendall(b"".join(frame(0, 0, 1 + 2 * i, part) for part in pieces(ahead[:60000])))
                    end = time.monotonic() + 1.2
                    while "grpc-status" not in told(got) and time.monotonic() < end:
                        with contextlib.suppress(TimeoutError):
                            got += c.recv(65536)
                    said.append(told(got))
                    if "grpc-status" in said[-1]:
                        break
                self.assertNotIn("grpc-status", said[0])  # 1.2 MB of 2 MiB
                self.assertEqual(said[-1].get("grpc-status"), "8", said[-1])
                self.assertIn("payload memory", said[-1]["grpc-message"])
                call = self.another_stub(port).ModelInfer.future(self.request(), metadata=self.meta())
            self.assertEqual(len(call.result(timeout=60).raw_output_contents[0]), 40)
            until("it is given back", lambda: self.can(self.another_stub(port), greedy))

    def another_stub(self, port):
        channel = grpc.insecure_channel("127.0.0.1:%d" % port, [("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def test_no_descriptor_is_left(self):
        """Whoever waits for a place costs nothing meanwhile, over either protocol."""
        for web in (False, True):
            at = free_port()
            with another(self.s, "--threads=1", "--idle-timeout-s=3600", "--header-timeout-s=3600",
                         http_port=at) as port:
                pid = next(int(p) for p in os.listdir("/proc") if p.isdigit() and self.is_api(p, port))
                begin = len(os.listdir("/proc/%d/fd" % pid))
                subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % begin], check=True)
                waiting = [self.stranger(at if web else port) for _ in range(5)]
                time.sleep(0.5)
                before = self.cpu_s(pid)
                time.sleep(1.5)
                self.assertLess(self.cpu_s(pid) - before, 0.5, "over HTTP" if web else "over gRPC")
                subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % (begin + 100)], check=True)
                for c in waiting:
                    c.close()
                self.assertTrue(self.can(self.another_stub(port)))

    def test_descriptors_that_come_back_are_used(self):
        """A connection that stays must not be what everybody waits for."""
        at = free_port()
        with another(self.s, "--threads=1", "--idle-timeout-s=3600", "--header-timeout-s=3600", http_port=at) as port:
            pid = next(int(p) for p in os.listdir("/proc") if p.isdigit() and self.is_api(p, port))
            stays = http.client.HTTPConnection("127.0.0.1", at, timeout=20)
            self.addCleanup(stays.close)
            stays.request("GET", "/v2/models/digits", headers=self.auth)
            self.assertEqual(stays.getresponse().read()[:1], b"{")
            begin = len(os.listdir("/proc/%d/fd" % pid))
            subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % begin], check=True)
            waiting = [self.stranger(at) for _ in range(5)]
            time.sleep(1)
            subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % (begin + 100)], check=True)
            for c in waiting:
                c.close()
            c = http.client.HTTPConnection("127.0.0.1", at, timeout=20)
            self.addCleanup(c.close)
            c.request("GET", "/v2/models/digits", headers=self.auth)
            self.assertEqual(c.getresponse().status, 200)

    def test_one_goes_for_one_that_comes(self):
        """However many threads find that no descriptor is left."""
        with another(self.s, "--threads=8", "--idle-timeout-s=3600") as port:
            pid = next(int(p) for p in os.listdir("/proc") if p.isdigit() and self.is_api(p, port))
            known = [self.open_call(b"ModelStreamInfer", port=port) for _ in range(12)]
            until("it has let them in", lambda: all(c.recv(65536) for c in known))
            for _ in range(5):
                begin = len(os.listdir("/proc/%d/fd" % pid))
                subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % begin], check=True)
                c = self.stranger(port)
                c.sendall(PREFACE + frame(4))
                self.assertTrue(c.recv(65536))
                time.sleep(0.3)
                left = sum(not self.is_closed(k) for k in known)
                self.assertGreaterEqual(left, len(known) - 1)
                subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % (begin + 100)], check=True)
                c.close()
                known = [k for k in known if not self.is_closed(k)]
                time.sleep(0.3)

    def test_one_goes_for_one_that_comes_over_http(self):
        at = free_port()
        with another(self.s, "--threads=8", "--idle-timeout-s=3600", "--header-timeout-s=3600", http_port=at) as port:
            pid = next(int(p) for p in os.listdir("/proc") if p.isdigit() and self.is_api(p, port))
            known = [http.client.HTTPConnection("127.0.0.1", at, timeout=20) for _ in range(24)]
            for c in known:
                self.addCleanup(c.close)
                c.request("GET", "/v2/models/digits", headers=self.auth)
                self.assertEqual(c.getresponse().read()[:1], b"{")
            time.sleep(1.2)  # who was idle for a shorter time stays
            begin = len(os.listdir("/proc/%d/fd" % pid))
            subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % begin], check=True)
            c = http.client.HTTPConnection("127.0.0.1", at, timeout=20)
            self.addCleanup(c.close)
            c.request("GET", "/v2/models/digits", headers=self.auth)
            self.assertEqual(c.getresponse().status, 200)
            time.sleep(3)  # of several sweeps
            self.assertEqual(sum(self.is_closed(k.sock) for k in known), 1)
            subprocess.run(["prlimit", "--pid=%d" % pid, "--nofile=%d:" % (begin + 100)], check=True)

    def test_a_connection_whose_key_was_revoked_goes_first(self):
        r = self.s.call("POST", "/api/v1/tenants/vision/keys", {"name": "leaves", "role": "infer"}, self.s.admin)
        gone = r.json["key"]
        bearer = b"Bearer " + gone.encode()
        with another(self.s, "--grpc-max-connections=2", "--threads=1", "--idle-timeout-s=3600") as port:
            conns = []
            for key in (self.key, gone):
                conns.append(self.open_call(b"ModelStreamInfer", frame(0, 1, 1), key=key, port=port))
                got = b""
                while "grpc-status" not in told(got):
                    got += conns[-1].recv(65536)
            self.s.call("DELETE", "/api/v1/tenants/vision/keys/" + r.json["id"], key=self.s.admin)
            said, at = bytearray(got), iter(range(3, 1000, 2))

            def is_refused():
                n = said.count(b"are you?")
                conns[1].sendall(frame(1, 5, next(at), head(b"ModelStreamInfer", authorization=bearer)) +
                                 frame(6, 0, 0, b"are you?"))
                while said.count(b"are you?") == n:
                    said.extend(conns[1].recv(65536))
                return told(bytes(said)).get("grpc-status") == "16"
            until("the key is refused", is_refused)
            c = self.stranger(port)
            c.sendall(PREFACE + frame(4))
            self.assertTrue(c.recv(65536))
            until("one has gone", lambda: any(self.is_closed(k) for k in conns))
            self.assertEqual([self.is_closed(k) for k in conns], [False, True])

    @staticmethod
    def is_api(pid, port):
        try:
            with open("/proc/%s/cmdline" % pid) as f:
                return "--grpc-listen=127.0.0.1:%d" % port in f.read().split("\0")
        except OSError:
            return False

    def test_idle_streams_make_room(self):
        with another(self.s, "--grpc-max-connections=4", "--threads=1") as port:
            for _ in range(4):
                self.open_call(b"ModelStreamInfer", port=port)
            time.sleep(0.5)
            c = triton.InferenceServerClient("127.0.0.1:%d" % port)
            self.addCleanup(c.close)
            self.assertFalse(c.is_model_ready("digits", headers={"authorization": "Bearer " + self.other}))

    def narrow(self, port, *frames):
        """A connection of a client that reads nothing: little fits into the kernel."""
        c = socket.socket()
        self.addCleanup(c.close)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for option, value in ((socket.TCP_MAXSEG, 1400), (socket.TCP_WINDOW_CLAMP, 2048)):
            c.setsockopt(socket.IPPROTO_TCP, option, value)
        c.connect(("127.0.0.1", port))
        c.settimeout(20)
        c.sendall(PREFACE + frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(8, 0, 0, b"\x7f\0\0\0") + b"".join(frames))
        return c

    def test_whose_answer_is_on_its_way_does_not_go(self):
        """Also when our library has all of it, and only the client has not."""
        self.s.push(self.key, "widening", widening(), max_batch=4)
        bearer = b"Bearer " + self.key.encode()
        with another(self.s, "--grpc-max-connections=1", "--threads=1", "--upload-grace-s=60") as port:
            for n in (1, 2, 3, 4):
                q = service_pb2.ModelInferRequest(model_name="widening")
                q.inputs.add(name="x", datatype="FP32", shape=[n, 1])
                q.raw_input_contents.append(bytes(4 * n))
                body = q.SerializeToString()
                c = self.narrow(port, frame(1, 4, 1, head(b"ModelInfer", authorization=bearer)),
                                frame(0, 1, 1, b"\0" + struct.pack(">I", len(body)) + body))
                got = c.recv(1)  # it has begun
                time.sleep(0.5)
                self.assertEqual(self.stranger(port).recv(65536), b"")  # there is no place for it
                while "grpc-status" not in told(got):
                    piece = c.recv(65536)
                    self.assertTrue(piece, "cut after %d of %d bytes" % (len(got), n * 4 * WIDE))
                    got += piece
                self.assertGreater(len(got), n * 4 * WIDE)

    def test_who_called_last_goes_last(self):
        """However fast the answer was there."""
        with another(self.s, "--grpc-max-connections=3", "--threads=1") as port:
            conns = []
            for _ in range(3):
                conns.append(self.open_call(b"ModelStreamInfer", frame(0, 1, 1), port=port))
                got = b""
                while "grpc-status" not in told(got):
                    got += conns[-1].recv(65536)
            conns[0].sendall(frame(1, 5, 3, head(b"ServerLive", authorization=b"Bearer " + self.key.encode())) +
                             frame(6, 0, 0, b"are you?"))
            got = b""
            while b"are you?" not in got:
                got += conns[0].recv(65536)
            c = self.stranger(port)
            c.sendall(PREFACE + frame(4))
            self.assertTrue(c.recv(65536))
            until("one has gone", lambda: any(self.is_closed(k) for k in conns))
            self.assertEqual([self.is_closed(k) for k in conns], [False, True, False])

    def test_a_client_that_waits_is_told_to_go_on_elsewhere(self):
        """A channel outlives the idle connections that it had."""
        stub = self.raw_stub()
        stub.ModelInfer(self.request(), metadata=self.meta())
        until("it is closed", lambda: self.s.metrics("api")["shunt_grpc_connections"] == 0, 30)
        stub.ModelInfer(self.request(), metadata=self.meta())


if __name__ == "__main__":
    unittest.main()
