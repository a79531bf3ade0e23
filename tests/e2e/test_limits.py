#!/usr/bin/env python3
"""Tables of an executor and of an API end where their options say, with a reason that names the option.

Without it: somebody who has more than the default would learn of a limit from a number in an error, and not how to
raise it, or an option would be there and change nothing.

Usage: test_limits.py [-v] [name ...]
"""
import contextlib
import fcntl
import os
import socket
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
import wire  # noqa: E402
from exec_driver import WAIT_S, Driver  # noqa: E402
from system import Story, System, st_bytes, until  # noqa: E402

SLAB = 1 << 20
TOOBIG = -6  # common/err.h


def slab():
    fd = os.memfd_create("slab", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SLAB)
    fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    return fd


class OfAnExecutor(unittest.TestCase):
    def setUp(self):
        self.d = Driver("--workers=2", "--threads=1", "--pool-bytes=64M", "--max-loaded-versions=1", "--max-apis=2")
        self.addCleanup(self.d.close)
        self.d.start()
        path = os.path.join(self.d.dir, "m.onnx")
        with open(path, "wb") as f:
            f.write(onnx.model([onnx.node("Softmax", ["x"], ["y"])], [onnx.value("x", ["N", 4])],
                               [onnx.value("y", ["N", 4])]))
        self.package = self.d.package(path)[0]

    def test_versions(self):
        self.d.load(1, self.package, max_batch=1)
        self.d.load(2, self.package, max_batch=1, wait=False)
        self.d.wait(lambda: 2 in self.d.states, WAIT_S, "answer")
        m = self.d.states[2]
        self.assertEqual((m.phase, m.rc), ("FAILED", TOOBIG), m)
        self.assertIn("max-loaded-versions", m.msg)
        self.d.scheduler.send("MODEL_UNLOAD", epoch=1, version_id=1)
        self.d.wait(lambda: self.d.states[1].phase == "GONE", WAIT_S, "GONE")
        del self.d.states[2]
        self.d.load(2, self.package, max_batch=1)

    def log(self):
        with open(os.path.join(self.d.dir, "executor.log")) as f:
            return f.read()

    def api(self, number):
        c = wire.connect(self.d.data_addr)
        c.send("DATA_HELLO", fds=(slab(),), api_id=number, name="a%d" % number, slab_bytes=SLAB)
        return c

    def test_apis(self):
        second = self.api(78)  # beside that of the driver
        self.assertEqual(second.recv(WAIT_S).type, "DATA_READY")
        with contextlib.suppress(OSError, EOFError):  # it closes the connection
            self.assertIsNone(self.api(79).recv(WAIT_S))
        until("it says why", lambda: "as many as max-apis allows" in self.log())


class OfAnApi(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2", MAX_UPLOADS="2", MAX_TENANT_UPLOADS="1")
        cls.addClassCleanup(cls.s.stop)
        cls.keys = [cls.s.tenant(name) for name in ("anna", "berta", "carla")]

    def begin(self, key, data):
        s = socket.create_connection(("127.0.0.1", self.s.port), timeout=WAIT_S)
        s.sendall(("PUT /api/v1/datasets/d/artifact HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                   "Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % (key, len(data))).encode())
        self.assertEqual(s.recv(65536), b"HTTP/1.1 100 Continue\r\n\r\n")
        return s

    def test_uploads(self):
        data = st_bytes({"x": ("F32", [4, 4], bytes(64))})
        for key in self.keys:
            self.assertEqual(self.s.call("POST", "/api/v1/datasets", {"name": "d"}, key).status, 201)
        self.assertEqual(self.s.call("POST", "/api/v1/datasets", {"name": "e"}, self.keys[0]).status, 201)
        open_ = [self.begin(key, data) for key in self.keys[:2]]
        r = self.s.call("PUT", "/api/v1/datasets/e/artifact", data, self.keys[0])
        self.assertEqual((r.status, r.code), (429, "QUOTA"), r)
        self.assertIn("max-tenant-uploads", r.error)
        r = self.s.call("PUT", "/api/v1/datasets/d/artifact", data, self.keys[2])
        self.assertEqual((r.status, r.code), (503, "QUEUEFULL"), r)
        self.assertIn("max-uploads", r.error)
        for s in open_:
            s.close()
        until("they are over",
              lambda: self.s.call("PUT", "/api/v1/datasets/d/artifact", data, self.keys[2]).status == 200)


if __name__ == "__main__":
    unittest.main()
