#!/usr/bin/env python3
"""shunt-worker alone, on the cpu device; this file plays the executor, and holds its tickets.

Without it: a request could wait for as long as the copy of a checkpoint takes, because training
does not see that it shall stop; or an update could change the state that is being copied; or what
one processor made of a model could be taken for what another one would; or a request for a small
model would wait until a large one is loaded.

Usage: test_worker.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import contextlib
import fcntl
import glob
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exec_driver import BIN  # noqa: E402
from system import zoo  # noqa: E402
import onnx_bytes  # noqa: E402
import wire  # noqa: E402

TRAIN = os.path.join(wire.ROOT, "examples", "digits", "train.safetensors")
SPEC = {"loss": "cross-entropy", "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        "batch": 32, "epochs": 100, "seed": 1, "labels": "label"}
ARENA, CTL, TICKETS = 256 << 20, 4096, 4 * 33024
SLOT = 5
STATE_AT, WORK_AT, IMAGE_AT = 0, 16 << 20, 64 << 20
AT_STEP = 1  # enum msg_train_at
# struct worker_ctl
STOP, CKPT_WANTED, PROGRESS, STEP = (0, "<I"), (4, "<I"), (72, "<Q"), (80, "<q")
LOAD_DONE = (112, "<I")
TIMED_ONE = 11  # parts of a load of four batch sizes that are done when the first is timed, of 14
NO_TICKET = 0xffffffff
API, SLAB = 77, 4096


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
        self.turns = []
        self.link.send("WK_INIT", fds=fds, worker=0, device="cpu", ordinal=0, arena_bytes=ARENA,
                       threads=1, executor="e0", deterministic=1, verify_launches=0,
                       ticket_slot=SLOT, ticket_value=0, log_level=1, kernels_dir="", uid=65520,
                       fences=15, stop_bound_us=60, busy_poll_us=0, hold=0, for_one=0)
        for fd in fds:
            os.close(fd)
        self.ready = self.expect("WK_READY")

    def next_turn(self):
        """What it is told to do has a number, and its answer has the same."""
        self.turns.append(len(self.turns) + 100)
        return self.turns[-1]

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

    def package(self, onnx, *options):
        """Its files."""
        out = tempfile.mkdtemp(dir=self.dir)
        path = os.path.join(out, "model.onnx")
        with open(path, "wb") as f:
            f.write(onnx)
        subprocess.run([os.path.join(BIN, "shunt-import"), "package", "--onnx", path, "--dir", out,
                        *options], check=True, stdout=subprocess.DEVNULL)
        return [os.path.join(out, name) for name in ("graph.json", "weights.safetensors")]

    def send_files(self, what, paths, **fields):
        fds = [os.open(path, os.O_RDONLY) for path in paths]
        self.link.send(what, fds=fds, **fields)
        for fd in fds:
            os.close(fd)

    def load(self, handle, package, max_batch):
        self.send_files("WK_MODEL", package, handle=handle, precision="fp32", max_batch=max_batch,
                        build=1, host_left=0, host_copies=1, key="", maps=0, of=0, sizes=b"", pack=0,
                        copy_ns=0, link_ns=0, unpack_ns=0, tables=0, turn=self.next_turn())

    def loaded(self, handle, at):
        """Puts the image there."""
        m = self.expect("WK_MODEL_DONE")
        assert (m.handle, m.rc, m.msg) == (handle, 0, ""), m
        assert m.turn in self.turns, m
        with mmap.mmap(m.fds[0], m.image_bytes, prot=mmap.PROT_READ) as image:
            self.arena[at:at + m.image_bytes] = image[:]
        os.close(m.fds[0])
        return m

    def share_slab(self):
        fd, slab = shared(SLAB)
        self.link.send("WK_SLAB", fds=[fd], api_id=API, bytes=SLAB)
        os.close(fd)
        return slab

    def run(self, run):
        """Of model 1, from the start of the slab to its middle."""
        self.link.send("WK_PART", run_id=run, api_id=API, batch=1,
                       in_spans=struct.pack("<QQ", 0, 4 * 4),
                       out_spans=struct.pack("<QQ", SLAB // 2, 3 * 4))
        self.link.send("WK_RUN", run_id=run, handle=1, batch=1, n_parts=1, image_off=STATE_AT,
                       ws_off=WORK_AT, groups=struct.pack("<4I", 0xffffffff, NO_TICKET, 0, 0),
                       memory=0, inputs=0, ticket_slot=0, ticket_value=0, packed_from=0, packed_at=0,
                       link_ends=b"", tables=0, tables_off=0, turn=self.next_turn())

    def train(self):
        self.send_files("WK_TRAIN", [*self.package(zoo("digits-cnn", "training"), "--training"), TRAIN],
                        job=1, spec=json.dumps(SPEC), build=1, turn=self.next_turn())
        m = self.expect("WK_TRAIN_READY")
        assert (m.rc, m.msg, m.turn) == (0, "", self.turns[-1]), m
        assert m.state_bytes <= WORK_AT and WORK_AT + m.ws_bytes <= ARENA, m
        with mmap.mmap(m.fds[0], m.state_bytes, prot=mmap.PROT_READ) as state:
            self.arena[STATE_AT:STATE_AT + m.state_bytes] = state[:]
        os.close(m.fds[0])
        self.state_bytes = m.state_bytes

    def go(self, step, resume):
        struct.pack_into(STEP[1], self.ctl, STEP[0], step)
        self.link.send("WK_TRAIN_GO", job=1, state_off=STATE_AT, ws_off=WORK_AT, step=step,
                       resume=resume, ticket_slot=0, ticket_value=0, until=0, evaluate=0,
                       turn=self.next_turn())

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


class Case(unittest.TestCase):
    def finish(self, w):
        rc, log = w.close()
        self.assertEqual(rc, 0, log)


class Training(Case):
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
            self.assertEqual((m.rc, m.msg, m.step, m.at, m.turn), (0, "", ckpt.step, AT_STEP, w.turns[-1]))
            self.assertEqual(w.state(), copied)
            w.go(ckpt.step, 1)
        w.wait_still()
        self.assertEqual((w.get(STEP), w.state()), (ckpt.step, copied))
        struct.pack_into("<I", w.tickets, 4 * SLOT, 1)  # it has left the device
        w.wait_step(ckpt.step + 3)
        self.assertNotEqual(w.state(), copied)
        w.raise_word(STOP)
        self.assertEqual(w.expect("WK_TRAIN_STOPPED").rc, 0)


class Loading(Case):
    """A small model is there, a large one is loaded."""

    def setUp(self):
        self.w = Worker()
        self.addCleanup(self.finish, self.w)
        self.large = self.w.package(zoo("resnet18"))
        self.w.load(1, self.w.package(onnx_bytes.linear()), 1)
        self.w.loaded(1, STATE_AT)
        self.slab = self.w.share_slab()
        self.slab[:16] = struct.pack("<4f", 1, 2, 3, 4)

    def expect_answer(self):
        """It comes before anything else."""
        done = self.w.expect("WK_RUN_DONE")
        self.assertEqual((done.rc, done.msg, done.turn), (0, "", self.w.turns[-1]))
        got = struct.unpack_from("<3f", self.slab, SLAB // 2)
        want = [sum((i + 1) * 0.1 * (((3 * i + k) * 7 % 11) - 5) for i in range(4)) for k in range(3)]
        for g, v in zip(got, want):
            self.assertAlmostEqual(g, v, places=5)
        self.slab[SLAB // 2:] = bytes(SLAB // 2)

    def test_a_request_does_not_wait_for_the_end_of_a_load(self):
        self.w.load(2, self.large, 1)
        self.w.run(1)  # it is there when the load begins
        self.expect_answer()
        self.w.loaded(2, IMAGE_AT)
        self.w.run(2)
        self.expect_answer()

    def test_nor_while_layers_are_timed_in_memory_that_is_not_the_arena(self):
        self.w.load(2, self.large, 8)
        while self.w.get(LOAD_DONE) < TIMED_ONE:
            time.sleep(0.001)
        os.kill(self.w.proc.pid, signal.SIGSTOP)
        self.w.run(1)
        self.assertLess(self.w.get(LOAD_DONE), TIMED_ONE + 3)
        os.kill(self.w.proc.pid, signal.SIGCONT)
        self.expect_answer()
        m = self.w.loaded(2, IMAGE_AT)
        times = struct.unpack("<%dd" % (len(m.layer_ns) // 8), m.layer_ns)
        # A weight of 9 MB takes two layers; the operation waits for the second, which has its time.
        self.assertGreater(times[-1], 0)
        self.assertGreater(min(a + b for a, b in zip(times, times[1:])), 0)
        self.assertLess(3 * times.count(0), len(times))


class Identity(Case):
    def test_what_is_kept_hangs_on_the_processor(self):
        w = Worker()
        self.addCleanup(self.finish, w)
        with open("/proc/cpuinfo") as f:
            names = [line.partition(":")[2].strip() for line in f if line.startswith("model name")]
        if not names:
            self.skipTest("the kernel does not name the processor")
        self.assertIn(names[0], w.ready.identity)
        self.assertIn("onednn=", w.ready.identity)


if __name__ == "__main__":
    unittest.main()
