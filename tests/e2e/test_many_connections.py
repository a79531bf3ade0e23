#!/usr/bin/env python3
"""Ten thousand idle connections, clients that are slow, cut, or never read; and beside them others.

Without it: whoever opens connections and does nothing with them could keep others out, or let the
API's memory and descriptors grow until it dies.

MANY_CONNECTIONS: how many stay idle (10000, or what the limit of open files allows). Prints the
others' latency beside all this over that without; how fast the machine is decides nothing.

Usage: test_many_connections.py [-v]
"""
import contextlib
import json
import os
import re
import resource
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from clients import Client, pack  # noqa: E402
from system import WAIT_S, Story, System, until  # noqa: E402

SLOW, CUT, DEAF, OTHERS = 100, 40, 8, 4
WIDE = 1 << 18  # values of a reply, a sample
BATCH = 8
LOAD_S = 4
# What one connection may cost, with nothing in flight, and with a request (api/README.md).
IDLE_BYTES, BUSY_BYTES = 8 << 10, 256 << 10
SLACK_BYTES = 32 << 20  # allocators, counters, the sweep's table


def open_files():
    """As many as the hard limit allows; the API does the same."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def p99(samples):
    return sorted(samples)[len(samples) * 99 // 100]


class Many(Story):
    @classmethod
    def setUpClass(cls):
        room = open_files() - 2000
        cls.n = min(int(os.environ.get("MANY_CONNECTIONS", 10000)), room)
        cls.s = s = System("--workers=2", KEEP_RENEW_S="0", MAX_CONNECTIONS=str(cls.n + 1000),
                           MAX_CONNECTIONS_PER_IP="0", UPLOAD_GRACE_S="2",
                           UPLOAD_MIN_RATE="8M", HEADER_TIMEOUT_S="300", IDLE_TIMEOUT_S="300")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        cls.bad = s.tenant("crowd")
        weights = onnx.tensor("w", [4, WIDE], [], raw=bytes(16 * WIDE))
        s.push(cls.key, "lin", onnx.linear(), max_batch=4)
        s.push(cls.bad, "lin", onnx.linear(), max_batch=4)
        s.push(cls.bad, "wide", onnx.model([onnx.node("MatMul", ["x", "w"], ["y"])],
                                           [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", WIDE])],
                                           [weights]), max_batch=BATCH)

    # ------------------------------------------------------------ what the API holds
    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.s.pid("api")))

    def memory(self):
        """Bytes that are its own: without the payload slab, which is shared."""
        with open("/proc/%d/status" % self.s.pid("api")) as f:
            return int(re.search(r"RssAnon:\s+(\d+)", f.read()).group(1)) << 10

    def connections(self):
        return self.s.metrics("api")["shunt_http_connections"]

    # ------------------------------------------------------------ clients
    def connect(self, data=b"", deaf=False):
        c = socket.socket()
        if deaf:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.settimeout(WAIT_S)
        c.connect(("127.0.0.1", self.s.port))
        if data:
            c.sendall(data)
        return c

    def head(self, model, length):
        return ("POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                "Content-Length: %d\r\n\r\n" % (model, self.bad, length)).encode()

    def trickle(self, stop):
        """SLOW connections, half in their headers, half in a body; who is cut off comes again."""
        starts = [b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: ", self.head("lin", 100000)]
        slow = []
        while not stop.is_set():
            while len(slow) < SLOW:
                slow.append(self.connect(starts[len(slow) % 2]))
            for i, c in reversed(list(enumerate(slow))):
                try:
                    c.sendall(b"a")
                except OSError:
                    slow.pop(i).close()
            stop.wait(1)
        for c in slow:
            c.close()

    def cut(self):
        """Uploads that end in the middle: with an end, and with a reset."""
        for i in range(CUT):
            c = self.connect(self.head("lin", 1 << 20) + bytes(300000))
            if i % 2:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            c.close()

    def deaf(self):
        text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [BATCH, 4],
                                       "data": [1] * 4 * BATCH}],
                           "parameters": {"binary_data_output": True}}).encode()
        return [self.connect(self.head("wide", len(text)) + text, deaf=True) for _ in range(DEAF)]

    def load(self):
        """Latencies of OTHERS clients that keep their connections; an error of any fails the story."""
        times, errors = [], []
        x = {"x": ("FP32", [1, 4], pack("FP32", [1, 2, 3, 4]))}
        end = time.monotonic() + LOAD_S

        def client():
            c = Client(self.s.port, self.key)
            try:
                while time.monotonic() < end:
                    begin = time.monotonic()
                    c.infer("lin", x)
                    times.append(time.monotonic() - begin)
            except Exception as e:  # noqa: BLE001 - whatever it is, it is told
                errors.append(repr(e))
            finally:
                c.close()
        threads = [threading.Thread(target=client) for _ in range(OTHERS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])
        self.assertGreater(len(times), OTHERS)
        return times

    # ------------------------------------------------------------ the story
    def test_others_are_served_meanwhile(self):
        pids = self.s.pids()
        self.load()  # every thread has been there once
        alone = self.load()
        until("the clients are gone", lambda: self.connections() == 0)
        descriptors, memory = self.descriptors(), self.memory()

        stop, peak = threading.Event(), [memory]
        with contextlib.ExitStack() as stack:
            for _ in range(self.n):
                stack.enter_context(self.connect())
            until("all are open", lambda: self.connections() >= self.n)
            idle = self.memory() - memory
            self.assertLess(idle, self.n * IDLE_BYTES + SLACK_BYTES)

            slow = threading.Thread(target=self.trickle, args=(stop,))
            slow.start()
            for c in self.deaf():
                stack.enter_context(c)
            self.cut()
            watch = threading.Thread(target=lambda: [peak.append(self.memory())
                                                     for _ in iter(lambda: stop.wait(0.2), True)])
            watch.start()
            try:
                beside = self.load()
            finally:
                stop.set()
                watch.join()
                slow.join()
            self.assertGreaterEqual(self.connections(), self.n)  # being idle is no offence
            with self.connect() as late:  # and there is still room
                late.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertRegex(late.recv(4096), b"^HTTP/1.1 200 ")
        bound = self.n * IDLE_BYTES + (SLOW + CUT + DEAF + OTHERS) * BUSY_BYTES + SLACK_BYTES
        self.assertLess(max(peak) - memory, bound)

        until("all connections are closed", lambda: self.connections() == 0)
        until("the payload memory is free", lambda: self.s.payload() == 0)
        until("all descriptors are free", lambda: self.descriptors() <= descriptors)
        self.assertEqual(self.s.pids(), pids, "a process has died")
        self.assertTrue(self.load())
        print("%d idle, %d slow, %d cut, %d that never read: others' p99 %.1f times that without, median "
              "%.1f times; an idle connection takes %.1f KiB; %.1f MiB in all, at most %.1f are allowed" % (
                  self.n, SLOW, CUT, DEAF, p99(beside) / p99(alone),
                  sorted(beside)[len(beside) // 2] / sorted(alone)[len(alone) // 2], idle / self.n / 1024,
                  (max(peak) - memory) / 2**20, bound / 2**20))


class Crowd(Story):
    """With the options that everybody has, more connections than there are places, all from one address,
    which is the others' address too. None has a key; as many are opened again as are closed."""
    N, REQUESTS = 4200, 300

    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", KEEP_RENEW_S="0")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        s.push(cls.key, "lin", onnx.linear(), max_batch=4)

    def request(self, x):
        """On a connection of its own; seconds."""
        begin = time.monotonic()
        with contextlib.closing(Client(self.s.port, self.key)) as c:
            c.infer("lin", x)
        return time.monotonic() - begin

    def press(self, stop):
        """Keeps N connections, each idle in another way; those that were closed come again."""
        starts = [b"", b"GET /v2 HTTP/1.1\r\nX: ", b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
                  b"POST /v2/models/lin/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"]
        opened = []
        try:
            while not stop.is_set():
                c = socket.socket()
                c.settimeout(1)
                with contextlib.suppress(OSError):
                    c.connect(("127.0.0.1", self.s.port))
                    c.sendall(starts[len(opened) % len(starts)])
                opened.append(c)
                if len(opened) > self.N:
                    opened.pop(0).close()
                self.n_opened += 1
        finally:
            for c in opened:
                c.close()

    def test_one_address_without_a_key(self):
        x = {"x": ("FP32", [1, 4], pack("FP32", [1, 2, 3, 4]))}
        with contextlib.closing(Client(self.s.port, self.key)) as kept:
            kept.infer("lin", x)
            alone = [self.request(x) for _ in range(self.REQUESTS)]
            self.n_opened, stop, begin = 0, threading.Event(), time.monotonic()
            crowd = threading.Thread(target=self.press, args=(stop,))
            crowd.start()
            try:
                until("the crowd is there", lambda: self.n_opened >= self.N)
                beside = []
                for _ in range(self.REQUESTS):
                    beside.append(self.request(x))
                    kept.infer("lin", x)  # who was there is not sent away
                    self.assertLess(time.monotonic() - begin, WAIT_S, "%d requests" % len(beside))
            finally:
                stop.set()
                crowd.join()
        m = self.s.metrics("api")
        self.assertGreater(m['shunt_http_evicted_connections_total{reason="address"}'], 0)
        until("all connections are closed", lambda: self.s.metrics("api")["shunt_http_connections"] == 0)
        print("%d connections without a key, %d opened: others' p99 %.1f ms, without them %.1f ms" % (
            self.N, self.n_opened, 1e3 * p99(beside), 1e3 * p99(alone)))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
