#!/usr/bin/env python3
"""shunt-worker alone, on the cpu device; this file plays the executor, and holds its tickets.

Without it: a request could wait for as long as the copy of a checkpoint takes, because training
does not see that it shall stop; or an update could change the state that is being copied; or what
one processor made of a model could be taken for what another one would.

Usage: test_worker.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import contextlib
import fcntl
import glob
import json
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exec_driver import BIN  # noqa: E402
import wire  # noqa: E402

TRAIN = os.path.join(wire.ROOT, "examples", "digits", "train.safetensors")
SPEC = {"loss": "cross-entropy", "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        "batch": 32, "epochs": 100, "seed": 1, "labels": "label"}
ARENA, CTL, TICKETS = 64 << 20, 4096, 4 * 1024
SLOT = 5
STATE_AT, WORK_AT = 0, 16 << 20
AT_STEP = 1  # enum msg_train_at
# struct worker_ctl
STOP, CKPT_WANTED, PROGRESS, STEP = (0, "<I"), (4, "<I"), (72, "<Q"), (80, "<q")


def shared(size):
    fd = os.memfd_create("shared", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    return fd, mmap.mmap(fd, size)


class Worker:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="shunt-worker-")
        fds, maps = zip(*(shared(size) for size in (CTL, ARENA, TICKETS)))
        self.ctl, self.arena, self.tickets = maps
        ours, theirs = socket.socketpair()
        self.log = open(os.path.join(self.dir, "log"), "w+b")
        self.proc = subprocess.Popen(
            ["bash", "-c", "exec \"$0\" 3<&%d" % theirs.fileno(), os.path.join(BIN, "shunt-worker")],
            pass_fds=[theirs.fileno()], stderr=self.log)
        theirs.close()
        self.link = wire.Conn(ours)
        self.link.send("WK_INIT", fds=fds, worker=0, device="cpu", ordinal=0, arena_bytes=ARENA,
                       threads=1, executor="e0", deterministic=1, ticket_slot=SLOT, ticket_value=0,
                       log_level=1, kernels_dir="", uid=65520, lenient=0, stop_bound_us=60, busy_poll_us=0, hold=0, for_one=0)
        for fd in fds:
            os.close(fd)
        self.ready = self.expect("WK_READY")

    def expect(self, what, timeout=60):
        """The next message of this type; what else comes (losses) is left out."""
        end = time.monotonic() + timeout
        while True:
            m = self.link.recv(max(0, end - time.monotonic()))
            assert m, "%s does not come" % what
            if m.type == what:
                return m
            assert m.type == "WK_TRAIN_LOSSES", m

    def get(self, word):
        return struct.unpack_from(word[1], self.ctl, word[0])[0]

    def raise_word(self, word):
        struct.pack_into(word[1], self.ctl, word[0], self.get(word) + 1)

    def train(self):
        onnx, out = os.path.join(self.dir, "model.onnx"), os.path.join(self.dir, "package")
        os.mkdir(out)
        subprocess.run([os.path.join(BIN, "shunt-zoo"), "digits-cnn", "--form", "training",
                        "--out", onnx], check=True)
        subprocess.run([os.path.join(BIN, "shunt-import"), "package", "--onnx", onnx, "--dir", out,
                        "--training"], check=True, stdout=subprocess.DEVNULL)
        fds = [os.open(path, os.O_RDONLY) for path in (os.path.join(out, "graph.json"),
                                                       os.path.join(out, "weights.safetensors"), TRAIN)]
        self.link.send("WK_TRAIN", fds=fds, job=1, spec=json.dumps(SPEC), build=1)
        for fd in fds:
            os.close(fd)
        m = self.expect("WK_TRAIN_READY")
        assert (m.rc, m.msg) == (0, ""), m
        assert m.state_bytes <= WORK_AT and WORK_AT + m.ws_bytes <= ARENA, m
        with mmap.mmap(m.fds[0], m.state_bytes, prot=mmap.PROT_READ) as state:
            self.arena[STATE_AT:STATE_AT + m.state_bytes] = state[:]
        os.close(m.fds[0])
        self.state_bytes = m.state_bytes

    def go(self, step, resume):
        struct.pack_into(STEP[1], self.ctl, STEP[0], step)
        self.link.send("WK_TRAIN_GO", job=1, state_off=STATE_AT, ws_off=WORK_AT, step=step,
                       resume=resume, ticket_slot=0, ticket_value=0)

    def state(self):
        return self.arena[STATE_AT:STATE_AT + self.state_bytes]

    def wait_step(self, step):
        end = time.monotonic() + 60
        while self.get(STEP) < step:
            assert time.monotonic() < end, "step %d does not come" % step
            time.sleep(0.005)

    def wants_to_run(self):
        """Has a thread that runs, or would on a machine that is less busy."""
        for path in glob.glob("/proc/%d/task/*/stat" % self.proc.pid):
            with contextlib.suppress(OSError), open(path) as f:
                if f.read().rpartition(")")[2].split()[0] in "RD":
                    return True
        return False

    def wait_still(self):
        """Until it has not moved for a while that it was free to: it waits for something."""
        end, seen, quiet = time.monotonic() + 120, None, 0
        while quiet < 25:
            assert time.monotonic() < end, "it goes on"
            if self.get(PROGRESS) != seen:
                seen, quiet = self.get(PROGRESS), 0
            quiet += not self.wants_to_run()
            time.sleep(0.02)

    def close(self):
        self.link.sock.close()
        rc = self.proc.wait(60)
        self.log.seek(0)
        log = self.log.read().decode()
        self.log.close()
        shutil.rmtree(self.dir)
        return rc, log


class Alone(unittest.TestCase):
    def finish(self, w):
        rc, log = w.close()
        self.assertEqual(rc, 0, log)

    def test_what_is_kept_hangs_on_the_processor(self):
        w = Worker()
        self.addCleanup(self.finish, w)
        with open("/proc/cpuinfo") as f:
            names = [line.partition(":")[2].strip() for line in f if line.startswith("model name")]
        if not names:
            self.skipTest("the kernel does not name the processor")
        self.assertIn(names[0], w.ready.identity)
        self.assertIn("onednn=", w.ready.identity)

    def test_a_stop_ends_the_wait_for_the_copy_of_a_checkpoint(self):
        w = Worker()
        self.addCleanup(self.finish, w)
        w.train()
        w.go(0, 0)
        w.wait_step(3)
        w.raise_word(CKPT_WANTED)
        ckpt = w.expect("WK_TRAIN_CKPT")
        self.assertEqual((ckpt.ticket_slot, ckpt.ticket_value), (SLOT, 1))
        copied = w.state()
        for _ in range(2):  # stopped twice at the same place, the copy being under way
            w.wait_still()
            w.raise_word(STOP)
            m = w.expect("WK_TRAIN_STOPPED", 30)
            self.assertEqual((m.rc, m.msg, m.step, m.at), (0, "", ckpt.step, AT_STEP))
            self.assertEqual(w.state(), copied)
            w.go(ckpt.step, 1)
        w.wait_still()
        self.assertEqual((w.get(STEP), w.state()), (ckpt.step, copied))
        struct.pack_into("<I", w.tickets, 4 * SLOT, 1)  # it has left the device
        w.wait_step(ckpt.step + 3)
        self.assertNotEqual(w.state(), copied)
        w.raise_word(STOP)
        self.assertEqual(w.expect("WK_TRAIN_STOPPED").rc, 0)


if __name__ == "__main__":
    unittest.main()
