#!/usr/bin/env python3
"""Batch inference on a real shunt-executor with real workers; this file plays scheduler and API.

Without it: a job that was preempted, killed or started again could write other numbers than requests
get, or leave samples out; a half-written or damaged file could count as a result; a full disk or a
bad dataset could take the executor along; and a request could wait for a whole dataset.

Usage: test_batch.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import hashlib
import json
import os
import random
import resource
import re
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exec_driver import FINAL, WAIT_S, read_st, write_st  # noqa: E402
import test_executor  # noqa: E402
from system import until  # noqa: E402
from test_executor import TEST, TRAIN, spec  # noqa: E402

INVALID, NOTFOUND, CONFLICT, UNAVAILABLE, DISKFULL = -1, -4, -5, -17, -21
RESULT = "result.safetensors"
N = 24003  # the last batch is not full


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def left(folder):
    """What a job leaves beside its log."""
    return [f for f in os.listdir(folder) if f != "log.txt" and not f.startswith("claim-")]


def parts(folder):
    return [f for f in os.listdir(folder) if f.endswith(".part")]


class Batch(test_executor.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dtype, shape, x = read_st(TRAIN)["x"]
        n = shape[0]
        cls.big = os.path.join(cls.onnx, "big.safetensors")
        rows = (x * (N // n + 1))[:N * cls.sample_bytes]
        write_st(cls.big, {"x": (dtype, [N] + shape[1:], rows)})
        cls.rows = rows
        cls.long = os.path.join(cls.onnx, "long.safetensors")  # for jobs that must not end by themselves
        write_st(cls.long, {"x": (dtype, [10 * N] + shape[1:], 10 * rows)})

    def ready(self, *options, **kw):
        d = self.driver(*options, **kw)
        pk, d.meta = d.package(self.net)
        d.load(1, pk)
        return d

    def done(self, d, job, folder):
        """The job's end is good, and what it says of its file is true."""
        m = d.wait_job(job, ("DONE",))
        r = json.loads(m.result)
        path = os.path.join(folder, RESULT)
        self.assertEqual((r["digest"], r["bytes"]), (digest(path), os.path.getsize(path)))
        self.assertEqual((m.step, m.steps, r["samples"]), (m.steps,) * 3)
        self.assertEqual(parts(folder), [])
        return m, read_st(path)

    calm = {}  # by batch

    def reference(self, batch):
        """Digest of the file that job 5 writes when nobody disturbs it."""
        if batch not in self.calm:
            d = self.ready()
            folder = d.start_batch(5, 1, d.meta, self.big, {"batch": batch})
            _, out = self.done(d, 5, folder)
            self.assertEqual(d.stop(), 0)
            self.calm[batch] = digest(os.path.join(folder, RESULT)), out
        return self.calm[batch][0]

    def disturb(self, d, job, kills=0):
        """Requests as fast as they are answered, and workers killed between, until the end."""
        rnd, n, killed = random.Random(1), 0, 0
        want = self.infer(d, 1, 0, 8)
        while job not in d.jobs or d.jobs[job].phase not in FINAL:
            self.assertEqual(self.infer(d, 1, 0, 8), want)
            n += 1
            d.rest(rnd.random() * 0.005)
            if killed < kills and n > 15 * (killed + 1):
                os.kill(max(d.worker_pids(), key=test_executor.cpu_time), signal.SIGKILL)
                killed += 1
        return n

    def test_its_numbers_are_those_of_requests_in_the_same_batches(self):
        self.reference(8)
        d = self.ready()
        (name, (dtype, shape, got)), = self.calm[8][1].items()
        self.assertEqual((dtype, shape), ("F32", [N, 10]))
        for at in [0, 8, 4000, N // 8 * 8]:
            n = min(8, N - at)
            r, out = d.result(d.run(1, [self.rows[at * self.sample_bytes:(at + n) *
                                                  self.sample_bytes]], [40 * n], n))
            self.assertEqual(r.rc, 0)
            self.assertEqual(out[0][0], got[40 * at:40 * (at + n)], at)
        # Other names, another batch, and what a small dataset needs: one slot only.
        t = read_st(TEST)["x"]
        small = os.path.join(self.onnx, "small.safetensors")
        write_st(small, {"pixels": (t[0], [3] + t[1][1:], t[2][:3 * self.sample_bytes])})
        s = {"batch": 4, "inputs": {d.meta["inputs"][0]["name"]: "pixels"}, "outputs": [name]}
        folder = d.start_batch(6, 1, d.meta, small, s)
        _, out = self.done(d, 6, folder)
        r, want = d.result(d.run(1, [t[2][:3 * self.sample_bytes]], [120], 3))
        self.assertEqual(out[name][2], want[0][0])
        self.assertEqual(d.metrics()['shunt_batch_samples_total{tenant="r",model="net"}'], 3)

    def test_requests_and_dying_workers_change_nothing(self):
        calm = self.reference(1)
        for kills in (0, 2):
            d = self.ready("--checkpoint-interval-ms=50")
            folder = d.start_batch(5, 1, d.meta, self.big, {"batch": 1})
            n = self.disturb(d, 5, kills)
            m, _ = self.done(d, 5, folder)
            self.assertEqual(digest(os.path.join(folder, RESULT)), calm)
            self.assertGreater(n, 0)
            self.assertGreater(m.preemptions, 0)
            self.assertGreater(m.busy_ns, 0)
            steps = [c.step for c in d.checkpoints]
            self.assertEqual(steps, sorted(set(steps)))
            self.assertEqual(steps[-1], N)
            self.assertEqual(d.stop(), 0)

    def test_a_killed_executor_leaves_what_another_goes_on_with(self):
        calm = self.reference(1)
        d = self.ready()
        slow = {"batch": 1, "checkpoint_interval_ms": 20}
        folder = d.start_batch(5, 1, d.meta, self.big, slow)
        d.wait(lambda: len(d.checkpoints) >= 3, WAIT_S, "checkpoints")
        d.proc.kill()
        d.proc.wait()
        c = d.checkpoints[-1]
        self.assertLess(c.step, N)
        self.assertFalse(os.path.exists(os.path.join(folder, RESULT)))
        self.assertEqual([os.path.basename(c.path)], parts(folder))
        # What is behind that is not to be trusted.
        part = os.path.join(folder, parts(folder)[0])
        with open(part, "r+b") as f:
            f.seek(-40, os.SEEK_END)
            f.write(b"\xff" * 40)
        d.scheduler = d.data = None
        d.checkpoints, d.states = [], {}
        d.start()
        d.load(1, d.package(self.net)[0])
        d.start_batch(5, 1, d.meta, self.big, slow, attempt=2, done=c)
        m, _ = self.done(d, 5, folder)
        self.assertEqual(digest(os.path.join(folder, RESULT)), calm)
        self.assertTrue(all(x.step > c.step for x in d.checkpoints))
        self.assertEqual(m.attempt, 2)

    def test_damage_to_what_was_done_means_from_the_beginning(self):
        calm = self.reference(1)
        d = self.ready()
        one = {"batch": 1}
        folder = d.start_batch(5, 1, d.meta, self.big, {"checkpoint_interval_ms": 20, **one})
        d.wait(lambda: len(d.checkpoints) >= 3, WAIT_S, "checkpoints")
        d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=1, why="FairShare")
        d.wait_job(5, ("SUSPENDED",))
        c = d.checkpoints[-1]
        self.assertEqual(c.step, d.jobs[5].step)
        part = os.path.join(folder, parts(folder)[0])
        with open(part, "r+b") as f:
            f.seek(os.path.getsize(part) - 40 * N)
            f.write(b"\0\0\0\1")
        d.start_batch(5, 1, d.meta, self.big, one, attempt=2, done=c)
        self.done(d, 5, folder)
        self.assertEqual(digest(os.path.join(folder, RESULT)), calm)
        self.assertIn("damaged", open(d.dir + "/executor.log").read())
        # Told to go on from the end: the file that nobody heard of is checked and published again.
        c = d.checkpoints[-1]
        self.assertEqual(c.step, N)
        d.start_batch(5, 1, d.meta, self.big, one, attempt=3, done=c)
        self.done(d, 5, folder)
        self.assertEqual(digest(os.path.join(folder, RESULT)), calm)
        # Its file is gone altogether.
        os.unlink(os.path.join(folder, RESULT))
        d.start_batch(5, 1, d.meta, self.big, one, attempt=4, done=c)
        self.done(d, 5, folder)
        self.assertEqual(digest(os.path.join(folder, RESULT)), calm)

    def test_suspend_cancel_conflict_sigterm(self):
        d = self.ready()
        train, _ = d.package(self.net_train, "--training")
        slow = {"batch": 1}
        folder = d.start_batch(5, 1, d.meta, self.long, slow)
        d.wait_step(5, 20)
        d.start_job(6, train, TRAIN, spec())
        self.assertEqual(d.wait_job(6, FINAL).rc, CONFLICT)
        d.start_batch(7, 1, d.meta, self.big)
        self.assertEqual(d.wait_job(7, FINAL).rc, CONFLICT)
        d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=1, why="FairShare")
        m = d.wait_job(5, ("SUSPENDED",))
        c = d.checkpoints[-1]
        self.assertEqual((c.step, c.bytes), (m.step, 40 * m.step))
        d.start_batch(5, 1, d.meta, self.long, slow, done=c)
        d.wait_step(5, c.step + 20)
        self.assertEqual(len(parts(folder)), 1)
        d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=0, why="Cancelled")
        d.wait_job(5, ("CANCELLED",))
        self.assertEqual(left(folder), [])
        d.start_job(6, train, TRAIN, spec(epochs=1000))
        d.wait_step(6, 5)
        d.start_batch(7, 1, d.meta, self.big)
        self.assertEqual(d.wait_job(7, FINAL).rc, CONFLICT)
        d.scheduler.send("JOB_STOP", epoch=1, job=6, attempt=1, how=0, why="Cancelled")
        d.wait_job(6, ("CANCELLED",))
        d.start_batch(7, 1, d.meta, self.long, slow)
        d.wait_step(7, 20)
        d.scheduler.sock.close()  # a new scheduler hears of it and of those that ended
        d.scheduler, d.jobs, d.epoch = None, {}, 2
        d.accept()
        self.assertIn(7, d.jobs)
        self.assertEqual(d.jobs[6].phase, "CANCELLED")
        n = len(d.checkpoints)
        self.assertEqual(d.stop(), 0)
        try:
            while True:
                d.on_msg(d.scheduler.recv(1))
        except EOFError:
            pass
        self.assertEqual(d.jobs[7].phase, "SUSPENDED")
        self.assertEqual(len(d.checkpoints), n + 1)

    def test_a_checkpoint_that_a_client_asks_for(self):
        """It is of what was not yet on its way to the disk, and answered once and after it is there."""
        d = self.ready()
        rare = {"batch": 1, "checkpoint_interval_ms": 86400000}
        folder = d.start_batch(5, 1, d.meta, self.big, rare)
        for asked in (1, 2):
            d.wait_step(5, 20 * asked)
            step = d.jobs[5].step
            d.scheduler.send("JOB_SAVE", epoch=1, job=5, attempt=7, asked=9)  # another start's
            d.scheduler.send("JOB_SAVE", epoch=1, job=5, attempt=1, asked=asked)
            d.wait(lambda: len(d.saved) == asked, WAIT_S, "JOB_SAVED")
            m, c = d.saved[-1], d.checkpoints[-1]
            self.assertEqual((m.job, m.attempt, m.asked, m.rc, m.step), (5, 1, asked, 0, c.step))
            self.assertEqual(len(d.checkpoints), asked)
            self.assertTrue(step < m.step < N, m)
        d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=1, why="FairShare")
        d.wait_job(5, ("SUSPENDED",))
        d.start_batch(5, 1, d.meta, self.big, rare, done=d.checkpoints[-1])
        self.done(d, 5, folder)
        self.assertEqual(digest(os.path.join(folder, RESULT)), self.reference(1))
        self.assertEqual(len(d.saved), 2)

    def test_requests_pass_every_batch_that_waits(self):
        d = self.ready("--log-level=debug")
        folder = d.start_batch(5, 1, d.meta, self.big, {"batch": 1})
        d.wait_step(5, 8)
        drains = 'shunt_switch_duration_seconds_count{executor="e0",stage="drain"}'

        def has_waited():
            """A request that found a batch on the device: the time to that one's end is counted."""
            self.assertEqual(d.result(d.run(1, [self.digits(0, 1)], [40], 1))[0].rc, 0)
            return d.metrics().get(drains)
        until("a request waits for a batch", has_waited, every_s=0)
        bursts = []

        def burst():
            """No batch may wait at that moment: its rows may be on their way from the disk."""
            d.proc.send_signal(signal.SIGSTOP)  # so that it reads all of them at once
            bursts.append([d.run(1, [self.digits(i, 1)], [40], 1) for i in range(20)])
            d.proc.send_signal(signal.SIGCONT)
            for run in bursts[-1]:
                self.assertEqual(d.result(run)[0].rc, 0)
            d.wait_step(5, d.jobs[5].step + 1)
            return d.jobs[5].preemptions
        until("a batch waits for requests", burst, every_s=0)
        self.assertGreater(self.done(d, 5, folder)[0].preemptions, 0)
        log = open(d.dir + "/executor.log").read()
        order = [int(x) for x in re.findall(r"switch\.start.* run=(\d+)", log)]
        for runs in bursts:
            first = order.index(runs[0][0])
            self.assertEqual(order[first:first + 20], [run[0] for run in runs])
        self.assertIn(0, order[:first])
        self.assertIn(0, order[first + 20:])  # batches went on behind them

    def test_the_model_may_come_late_and_go(self):
        d = self.driver()
        pk, meta = d.package(self.net)
        folder = d.start_batch(5, 1, meta, self.big, {"batch": 1})
        d.wait_job(5, ("STARTING",))
        d.load(1, pk)
        d.wait_step(5, 1)
        d.scheduler.send("MODEL_UNLOAD", epoch=1, version_id=1)
        d.wait(lambda: d.states[1].phase == "GONE", WAIT_S, "GONE")
        del d.states[1]
        d.load(1, pk)
        self.done(d, 5, folder)
        self.assertEqual(digest(os.path.join(folder, RESULT)), self.reference(1))

    def test_a_want_of_descriptors_is_waited_out(self):
        d = self.ready()
        used, limit = "/proc/%d/fd" % d.proc.pid, resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE)
        path, waited = os.path.join(d.dir, "executor.log"), 0
        for job in range(1, 10):  # each finds one more, and so wants another one
            taken = set(map(int, os.listdir(used)))
            most = [n for n in range(len(taken) + job) if n not in taken][job - 1]
            resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, (most, limit[1]))
            before = sum(b"ev=job.open" in x for x in open(path, "rb"))
            folder = d.start_batch(job, 1, d.meta, TEST)
            d.rest(0.5)
            now = sum(b"ev=job.open" in x for x in open(path, "rb"))
            resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, limit)
            self.done(d, job, folder)
            waited += now > before
        self.assertGreater(waited, 2)

    def test_bad_jobs_fail_with_a_reason(self):
        d = self.ready()
        t = read_st(TEST)
        x, n = t["x"], t["x"][1][0]
        files = {"types": {"x": ("I32",) + tuple(x[1:])},
                 "empty": {"x": (x[0], [0] + x[1][1:], b"")},
                 "shape": {"x": (x[0], [n * 2] + x[1][1:-1] + [x[1][-1] // 2], x[2])},
                 "names": {"y": x}}
        for name, tensors in files.items():
            write_st(os.path.join(d.dir, name), tensors)
        with open(os.path.join(d.dir, "cut"), "wb") as f:
            f.write(open(self.big, "rb").read()[:-1])
        bad = [("/none", {}, "open"), ("types", {}, "INT32"), ("empty", {}, "no samples"),
               ("shape", {}, "bytes"), ("names", {}, '"x"'), ("cut", {}, "offsets"),
               (self.big, {"inputs": {"x": "z"}}, '"z"'), (self.big, {"outputs": ["q"]}, "output"),
               (self.big, {"batch": 9}, "batch"), (self.big, {"colour": "red"}, "colour")]
        for job, (data, s, text) in enumerate(bad, 1):
            folder = d.start_batch(job, 1, d.meta, os.path.join(d.dir, data), s)
            m = d.wait_job(job, FINAL)
            self.assertEqual(m.phase, "FAILED", (data, s, m))
            self.assertIn(text, m.msg)
            self.assertEqual(left(folder) if os.path.exists(folder) else [], [])
        self.infer(d, 1)

    @unittest.skipUnless(os.geteuid() == 0, "needs a small file system of its own")
    def test_a_full_disk_is_told_before_the_device_has_worked(self):
        d = self.ready()
        folder = d.dir + "/jobs/5"
        os.makedirs(folder)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder],
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("mounting is not allowed here")
        self.addCleanup(subprocess.run, ["umount", "-l", folder])
        d.start_batch(5, 1, d.meta, self.big)
        m = d.wait_job(5, FINAL)
        self.assertEqual((m.phase, m.rc, m.step), ("FAILED", DISKFULL, 0))
        self.assertIn("MiB of disk", m.msg)
        self.assertEqual(left(folder), [])
        subprocess.run(["mount", "-o", "remount,size=8M", folder], check=True)
        d.start_batch(5, 1, d.meta, self.big, attempt=2)
        self.done(d, 5, folder)
        self.assertEqual(digest(os.path.join(folder, RESULT)), self.reference(8))


if __name__ == "__main__":
    unittest.main(warnings="ignore", defaultTest=[a for a in sys.argv[1:] if a[0] != "-"] or "Batch")
