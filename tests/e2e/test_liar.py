#!/usr/bin/env python3
"""shunt-executor with workers, and beside executors, that somebody has taken over: what they say is not true.

Without it: one such worker could write any time of the device on a tenant's bill, or keep what a
tenant used off it, the scheduler would go by times that nobody measured, and a model could be out of
service for as long as its executor runs. One such executor could write into the memory of others, fill
it, or keep a model from being loaded.

Usage: test_liar.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exec_driver import BIN, WAIT_S  # noqa: E402
import liar  # noqa: E402
from test_executor import MIB, Case  # noqa: E402
import wire  # noqa: E402

FAR = 1 << 61
SOON_S = 30  # a model is loaded, after a peer was given up


class Liars(Case):
    def liars(self, lies, *options):
        folder = tempfile.TemporaryDirectory(prefix="shunt-liar-")
        self.addCleanup(folder.cleanup)
        return self.driver("--workers=2", *options, programs=liar.programs(folder.name, BIN, lies))

    def test_no_run_takes_longer_than_it_was_on_the_device(self):
        n = 3
        for times in ({"start_ns": -FAR, "first_ns": -FAR, "end_ns": FAR, "wait_ns": 0},
                      {"start_ns": FAR, "first_ns": FAR, "end_ns": -FAR, "wait_ns": -FAR},
                      {"first_ns": 0, "wait_ns": FAR}):
            with self.subTest(times):
                d = self.liars({"WK_RUN_DONE": times})
                d.load(1, d.package(self.net)[0])
                began = time.monotonic()
                for _ in range(n):
                    self.infer(d, 1)
                took = (time.monotonic() - began) * 1e9
                d.wait(lambda: d.usage("t", 0, 1)[1] == n, WAIT_S, "usage")
                self.assertTrue(0 <= d.usage("t", 0, 1)[0] <= took, (d.usage("t", 0, 1), took))
                for m in d.done.values():
                    for what in (m.compute_ns, m.busy_ns, m.copy_ns):
                        self.assertTrue(0 <= what <= took, m)

    def test_no_program_is_too_large_to_be_counted(self):
        """Of as many workers as there are: a sum that overflows would be room for everything."""
        for told in (1 << 63, (1 << 64) - 1, FAR):
            with self.subTest(told):
                d = self.liars({"WK_MODEL_DONE": {"host_bytes": told}})
                d.load(1, d.package(self.net)[0], wait=False)
                d.wait(lambda: 1 in d.states and d.states[1].phase in ("READY", "FAILED"), WAIT_S, "end")
                self.assertEqual(d.states[1].phase, "FAILED", d.states[1])
                self.assertIn("of host memory", d.states[1].msg)

    def test_no_batch_gets_more_memory_than_there_is(self):
        """Nor a piece that is smaller than was asked for: so many blocks that their number overflows."""
        for bytes_of_one in ((1 << 53) + (1 << 21), FAR, 1 << 30):
            with self.subTest(bytes_of_one):
                batches = [n for b in (1, 2, 4, 8) for n in (b, bytes_of_one if b == 1 else 4 << 20)]
                d = self.liars({"WK_MODEL_DONE": {"batches": batches}})
                d.load(1, d.package(self.net)[0], wait=False)
                d.wait(lambda: 1 in d.states and d.states[1].phase in ("READY", "FAILED"), WAIT_S, "end")
                self.assertEqual(d.states[1].phase, "FAILED", d.states[1])
                self.assertIn("pool", d.states[1].msg)

    # ------------------------------------------------------------ an executor that is asked for an image
    @contextlib.contextmanager
    def peer(self, answer):
        """answer(n, message): the fields of the n-th IMAGE_PIECE, or what is to be sent instead of one."""
        def talk(conn):
            n = 0
            with contextlib.suppress(OSError, EOFError), conn.sock:
                while True:
                    m = conn.recv(1)
                    if m and m.type == "IMAGE_GET":
                        conn.send("IMAGE_PIECE", **{"rc": 0, "off": m.off, **answer(n, m)})
                        n += 1

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=(wire.Conn(listener.accept()[0]),), daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=accept, daemon=True).start()
            yield "tcp:127.0.0.1:%d" % listener.getsockname()[1]
            listener.shutdown(socket.SHUT_RDWR)

    def test_an_executor_that_lies_about_an_image_only_takes_time(self):
        """The model is made here, and answers as it would have without it."""
        size = 16 * MIB

        def slow(_, m):
            time.sleep(1)
            return {"total": size, "bytes": bytes(m.bytes)}
        lies = {
            "grows": lambda n, m: {"total": 64 * MIB if n else size, "bytes": bytes(MIB), "off": m.off},
            "grows_far": lambda n, m: {"total": FAR if n else 2 * MIB, "bytes": bytes(7 * MIB if n else MIB)},
            "shrinks": lambda n, m: {"total": 1 if n else size, "bytes": bytes(MIB)},
            "trickles": lambda n, m: {"total": size, "bytes": b"x"},
            "slow": slow,
            "endless": lambda n, m: {"total": 1 << 39, "bytes": bytes(MIB)},
            "wrong": lambda n, m: {"total": size, "bytes": b"x" * m.bytes},
            "empty": lambda n, m: {"total": size, "bytes": b""},
        }
        d = self.driver("--workers=2", "--model-host-bytes=%d" % (512 * MIB))
        package = d.package(self.net)[0]
        for version, (name, answer) in enumerate(lies.items(), 1):
            with self.subTest(name), self.peer(answer) as address:
                to = os.path.join(d.dir, "blobs", "packages", "%064x" % version)
                shutil.copytree(package, to)
                began = time.monotonic()
                d.load(version, to, source=address)
                self.assertLess(time.monotonic() - began, SOON_S)
                self.infer(d, version)
        with open(os.path.join(d.dir, "executor.log")) as f:
            log = f.read()
        self.assertEqual(len(re.findall("ev=image.fetch .* msg=", log)), len(lies) - 1)  # what is wrong is seen later
        self.assertEqual(len(re.findall("ev=model.ready .* kept=0", log)), len(lies))


if __name__ == "__main__":
    unittest.main()
