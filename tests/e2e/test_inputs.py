#!/usr/bin/env python3
"""Large inputs, which the executor's copy lane brings to the device and not the worker.

Without it: a run could begin before its inputs are there or with those of another run, samples of
several requests could come to each other's places, memory could be given away or taken from an API
while the lane still writes or reads it, and a run that a second worker does could compute on what the
first one left; and a client on the same host would be woken a dozen times while it sends.
"""
import array
import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from clients import Client  # noqa: E402
from exec_driver import WAIT_S, Driver, write_st  # noqa: E402
from process import freeze  # noqa: E402
from system import Story, System  # noqa: E402

BRING, COME, BRING_AFTER = "0", "1", "2"  # enum msg_run_inputs
UNAVAILABLE = -17
A, B = 40001, 30003  # values of a sample: neither ends where the next input may begin
SLOW = "--copy-gb-per-s=0.02"  # 14 ms a sample


def net(wide=False):
    """a [N,A], b [N,B] -> a + 1, 2 b: each value of the inputs shows. The wide one takes a detour, and
    its workspace looks different."""
    nodes = [onnx.node("Add", ["a", "one"], ["y"]), onnx.node("Mul", ["b", "two"], ["z"])]
    inits = [onnx.tensor("one", [1], [1.0]), onnx.tensor("two", [1], [2.0])]
    if wide:
        nodes[0] = onnx.node("Slice", ["r", "from", "to", "axis"], ["y"])
        nodes = [onnx.node("Add", ["a", "one"], ["p"]),
                 onnx.node("Concat", ["p"] * 6, ["q"], axis=1), onnx.node("Relu", ["q"], ["r"]), *nodes]
        inits += [onnx.tensor(name, [1], [v], onnx.INT64)
                  for name, v in (("from", 0), ("to", A), ("axis", 1))]
    return onnx.model(nodes, [onnx.value("a", ["N", A]), onnx.value("b", ["N", B])],
                      [onnx.value("y", ["N", A]), onnx.value("z", ["N", B])], inits)


def samples(seed, n):
    """Whole numbers, which no arithmetic rounds."""
    return [array.array("f", ((seed * 7919 + i * 31 + k) % 65521 for k in range(n * size)))
            for i, size in enumerate((A, B))]


class Case(unittest.TestCase):
    def driver(self, *options, **kw):
        d = Driver("--threads=1", "--pool-bytes=256M", "--log-level=debug", *options, **kw)
        self.addCleanup(self.finish, d)
        d.start()
        d.net = self.package(d, "net", net())
        d.load(1, d.net)
        return d

    def package(self, d, name, data, *options):
        path = os.path.join(d.dir, name + ".onnx")
        with open(path, "wb") as f:
            f.write(data)
        return d.package(path, *options)[0]

    def finish(self, d):
        if d.proc.poll() is None:
            self.assertEqual(d.stop(), 0)
        log = self.log(d)
        d.close()
        self.assertEqual([x for x in log.splitlines() if ".bug" in x or "Sanitizer" in x], [])

    def log(self, d):
        with open(os.path.join(d.dir, "executor.log"), errors="replace") as f:
            return f.read()

    def ways(self, d):
        """How the inputs of each run came, in order."""
        return re.findall(r"ev=switch.send .*?inputs=(\d)", self.log(d))

    def start(self, d, seed, n, **kw):
        ins = samples(seed, n)
        return d.run(1, [a.tobytes() for a in ins], [4 * len(a) for a in ins], n, **kw)

    def check(self, d, run, seed, n):
        r, parts = d.result(run)
        self.assertEqual((r.rc, r.msg), (0, ""))
        for outputs in parts:
            self.check_part(outputs, *samples(seed, n))

    def check_part(self, outputs, a, b):
        y, z = outputs
        self.assertEqual(array.array("f", y), array.array("f", (v + 1 for v in a)))
        self.assertEqual(array.array("f", z), array.array("f", (2 * v for v in b)))


class Inputs(Case):
    def test_indices_are_not_what_a_smaller_batch_left(self):
        """While the layers of each batch size are timed, indices lie where others have floats."""
        d = self.driver()
        words = onnx.model(
            [onnx.node("Gather", ["table", "ids"], ["e"]), onnx.node("Neg", ["e"], ["y"])],
            [onnx.value("ids", ["N", 64], onnx.INT64)], [onnx.value("y", ["N", 64, 32])],
            [onnx.tensor("table", [4, 32], [1.0] * 128)])
        d.load(2, self.package(d, "words", words), model="words")

    def test_every_sample_comes_to_its_place(self):
        d = self.driver()
        for seed, n in ((1, 1), (2, 2), (3, 3), (4, 8), (5, 1)):
            self.check(d, self.start(d, seed, n), seed, n)
        self.assertEqual(self.ways(d), [COME] * 5)
        self.check(d, self.start(d, 6, 2, parts=3), 6, 2)  # six in a program for eight
        self.assertEqual(self.ways(d)[5:], [COME])

    def test_the_same_over_tcp(self):
        d = self.driver(tcp=True)
        self.check(d, self.start(d, 1, 3), 1, 3)
        self.assertEqual(self.ways(d), [COME])

    def test_a_run_waits_for_them(self):
        d = self.driver(SLOW)
        for seed in (1, 2, 3):
            self.check(d, self.start(d, seed, 2), seed, 2)
        self.assertEqual(self.ways(d), [COME] * 3)

    def test_many_small_parts_are_brought_by_the_worker(self):
        d = self.driver()
        d.load(2, self.package(d, "small", onnx.linear(4, 2, weight=1.0)))
        r, out = d.result(d.run(2, [struct.pack("<4f", 1, 2, 3, 4)], [8], 1, parts=8))
        self.assertEqual(r.rc, 0)
        self.assertEqual(self.ways(d), [BRING])
        self.assertEqual(len({o[0] for o in out}), 1)

    def test_behind_other_copies_the_worker_brings_them(self):
        d = self.driver(SLOW)
        first = self.start(d, 1, 8)
        self.check(d, first, 1, 8)
        # The image of another model is on its way for 0.8 s: a run of the first, which is there, does
        # not wait behind it.
        d.load(2, self.package(d, "large", onnx.linear(1 << 16, 64, weight=0.5)), max_batch=1)
        d.scheduler.send("PREPARE", epoch=d.epoch, rid=1, version_id=2, evict=0)
        self.check(d, self.start(d, 2, 1), 2, 1)
        self.assertEqual(self.ways(d), [COME, BRING])

    def test_workers_that_disagree_where_inputs_lie_bring_them(self):
        d = self.driver("--workers=2")
        self.check(d, self.start(d, 1, 8), 1, 8)
        other = self.package(d, "wide", net(wide=True))
        for name in os.listdir(other):  # a worker that starts from now on compiles this
            if name != "model.onnx":
                shutil.copy(os.path.join(other, name), os.path.join(d.net, name + ".new"))
                os.rename(os.path.join(d.net, name + ".new"), os.path.join(d.net, name))
        os.kill(d.worker_pids()[0], signal.SIGKILL)
        d.wait(lambda: self.log(d).count("ev=worker.ready") == 3, WAIT_S, "a new worker")
        for seed in range(2, 9):
            self.check(d, self.start(d, seed, 8), seed, 8)
            d.rest(0.2)
        self.assertEqual((self.ways(d)[0], self.ways(d)[-1]), (COME, BRING))

    def test_a_second_worker_does_not_meet_the_copy_for_the_first(self):
        d = self.driver(SLOW, "--workers=2")
        pids = d.worker_pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        run = self.start(d, 5, 8)  # 110 ms of copies
        d.wait(lambda: self.ways(d), WAIT_S, "the run is sent")
        worker = int(re.findall(r"ev=switch.send .*?worker=(\d+)", self.log(d))[0])
        os.kill(pids[worker], signal.SIGKILL)
        for pid in pids:
            if pid != pids[worker]:
                os.kill(pid, signal.SIGCONT)
        self.check(d, run, 5, 8)
        ways, sent = self.ways(d), re.findall(r"ev=switch.send .* ns=(\d+)", self.log(d))
        self.assertEqual((ways[0], len(ways)), (COME, 2))
        was_under_way = int(sent[1]) - int(sent[0]) < 100e6
        self.assertIn(ways[1], (BRING_AFTER,) if was_under_way else (BRING, BRING_AFTER))
        self.check(d, self.start(d, 6, 8), 6, 8)

    def test_a_run_that_ended_early_leaves_nothing_to_the_next(self):
        d = self.driver("--copy-gb-per-s=0.005", "--workers=3")
        pids = d.worker_pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        run = self.start(d, 5, 8)  # 450 ms of copies
        for n in (1, 2):
            d.wait(lambda: len(self.ways(d)) == n, WAIT_S, "the run is sent")
            worker = int(re.findall(r"ev=switch.send .*?worker=(\d+)", self.log(d))[-1])
            os.kill(pids[worker], signal.SIGKILL)
            pids[worker] = 0
        r, _ = d.result(run)
        self.assertLess(r.rc, 0)
        os.kill(next(pid for pid in pids if pid), signal.SIGCONT)
        self.check(d, self.start(d, 6, 1), 6, 1)

    def test_a_request_that_kills_its_worker_fails_alone(self):
        """Of four in a run the third: whoever runs it is killed, while its inputs are on their way."""
        d = self.driver("--copy-gb-per-s=0.001", "--workers=3")
        ins = [samples(seed, 2) for seed in range(4)]
        run_id, outs = d.run(1, None, [4 * len(a) for a in ins[0]], 2,
                             parts=[[a.tobytes() for a in part] for part in ins])
        sent = lambda: re.findall(r"ev=switch.send .*?worker=(\d+)", self.log(d))  # noqa: E731
        for n in range(1, 8):  # all of them twice; the first, the second; the third twice; the fourth
            d.wait(lambda: len(sent()) >= n, WAIT_S, "it is sent")
            if n in (1, 2, 5, 6):
                pids = dict(re.findall(r"ev=worker.ready worker=(\d+) pid=(\d+)", self.log(d)))
                os.kill(int(pids[sent()[n - 1]]), signal.SIGKILL)
        d.wait(lambda: run_id in d.done, WAIT_S, "RUN_DONE")
        d.wait(lambda: all(rid in d.results for rid, _ in outs), WAIT_S, "results")
        self.assertEqual(len(sent()), 7)
        for i, (rid, spans) in enumerate(outs):
            r = d.results[rid]
            if i == 2:
                self.assertEqual((r.rc, r.msg), (UNAVAILABLE, "its worker died 2 times during this run"))
            else:
                self.assertEqual(r.rc, 0, r)
                self.check_part([bytes(d.slab[at:at + n]) for at, n in spans], *ins[i])
        self.assertLess(d.done[run_id].rc, 0)  # nobody learns from such a run

    def test_an_api_that_leaves_takes_no_memory_from_under_a_copy(self):
        d = self.driver("--copy-gb-per-s=0.005", "--workers=2")
        pids = d.worker_pids()
        for _ in range(3):
            self.start(d, 7, 8)  # 450 ms of copies
            d.wait(lambda: len(self.ways(d)) % 2 == 1, WAIT_S, "the run is sent")
            d.data.sock.close()
            time.sleep(0.1)  # else the next slab lies at the same place
            d.connect_data()
            self.check(d, self.start(d, 8, 1), 8, 1)
        self.assertEqual(d.worker_pids(), pids)

    def weighed(self, *options):
        """A model with weights, cold in each run."""
        d = self.driver("--debug-cold", "--debug-switch-mode=per-layer", *options)
        inits = [onnx.tensor("few", [16], [3.0] * 16), onnx.tensor("one", [A], [1.0] * A)]
        d.load(2, self.package(d, "weighed", onnx.model(
            [onnx.node("Add", ["c", "few"], ["x"]), onnx.node("Add", ["a", "one"], ["y"])],
            [onnx.value("c", ["N", 16]), onnx.value("a", ["N", A])],
            [onnx.value("x", ["N", 16]), onnx.value("y", ["N", A])], inits)))
        return d

    def test_they_come_before_the_weights(self):
        d = self.weighed(SLOW)
        for seed, n in ((1, 8), (2, 3), (3, 8)):
            c, a = array.array("f", range(16 * n)), samples(seed, n)[0]
            sizes = [4 * len(c), 4 * len(a)]
            r, (got,) = d.result(d.run(2, [c.tobytes(), a.tobytes()], sizes, n))
            self.assertEqual((r.rc, r.msg), (0, ""))
            self.assertEqual([array.array("f", g) for g in got],
                             [array.array("f", (v + 3 for v in c)), array.array("f", (v + 1 for v in a))])
        self.assertEqual(re.findall(r"ev=switch.send .*?groups=(\d+) .*?inputs=(\d)", self.log(d)),
                         [("2", COME)] * 3)
        begun = re.findall(r"ev=switch.start .* ns=(\d+)", self.log(d))
        arrived = re.findall(r"ev=group.arrived .* group=0 ns=(\d+)", self.log(d))
        self.assertEqual((len(begun), len(arrived)), (3, 3))
        for at, first, n in zip(begun, arrived, (8, 3, 8)):
            self.assertGreater(int(first) - int(at), 0.9 * n * A * 4 / 0.02)  # ns at 0.02 GB/s

    def test_beside_weights_the_worker_brings_those_that_are_copied_in_no_time(self):
        d = self.weighed()
        sizes = [4 * 16, 4 * A]  # 160 KB: within 30 us at 6 GB/s
        self.assertEqual(d.result(d.run(2, [bytes(n) for n in sizes], sizes, 1))[0].rc, 0)
        self.check(d, self.start(d, 1, 1), 1, 1)  # the other model has no weights to speak of
        self.assertEqual(self.ways(d)[0], BRING)

    def test_the_watchdog_takes_no_memory_from_under_a_copy(self):
        d = self.driver("--copy-gb-per-s=0.002")
        weights = onnx.tensor("w", [16], [float(i) for i in range(16)])
        d.load(2, self.package(d, "weighed", onnx.model(
            [onnx.node("Add", ["a", "w"], ["y"]), onnx.node("Relu", ["b"], ["z"])],
            [onnx.value("a", ["N", 16]), onnx.value("b", ["N", A])],
            [onnx.value("y", ["N", 16]), onnx.value("z", ["N", A])], [weights])), max_batch=80)
        pids = d.worker_pids()
        sizes = [8 * 4 * 16, 8 * 4 * A]
        run = d.run(2, [bytes(n) for n in sizes], sizes, 8, parts=10)  # 6.4 s of copies
        r, _ = d.result(run)
        self.assertEqual(self.ways(d), [COME])
        self.assertIn("the copy of the model's weights did not end", r.msg)
        d.data.sock.close()
        time.sleep(0.3)  # else the next slab lies at the same place
        d.connect_data()
        self.check(d, self.start(d, 8, 1), 8, 1)
        d.rest(2)  # the lane has read on
        self.check(d, self.start(d, 9, 8), 9, 8)
        self.assertEqual(d.worker_pids(), pids)

    def test_spans_that_do_not_fit_are_refused_and_hurt_nobody(self):
        d = self.driver()
        ins = samples(1, 2)
        outs = [4 * len(a) for a in ins]
        for bad in ([ins[1], ins[0]], [ins[0], ins[0]], [ins[0]], [ins[0], ins[1], ins[1]],
                    [ins[0][:-1], ins[1]]):
            r, _ = d.result(d.run(1, [a.tobytes() for a in bad], outs, 2))
            self.assertLess(r.rc, 0)
            self.assertRegex(r.msg, "bytes, not|tensors came")
        self.check(d, self.start(d, 2, 2), 2, 2)


class BadData(Case):
    """What is wrong with one request of a run is nothing to the others."""

    def setUp(self):
        self.d = self.driver("--workers=2")
        self.d.load(2, self.package(self.d, "words", onnx.words()), model="words", max_batch=16)
        self.d.load(3, self.package(self.d, "cast", onnx.words(to=onnx.INT64)), model="cast", max_batch=16)

    def go(self, version, rows, batch=1, **kw):
        """rows: the indices of each part. What each got: its outputs' first numbers, or its message."""
        kind = "f" if version == 3 else "q"
        run = self.d.run(version, None, [batch * 4 * 2 * 4], batch,
                         parts=[[struct.pack("<%d%s" % (len(r), kind), *r)] for r in rows], **kw)
        gone = [i for i, api in kw.get("api_ids", {}).items() if api != 77]
        self.d.wait(lambda: run[0] in self.d.done, WAIT_S, "RUN_DONE")
        got = []
        for i, (rid, spans) in enumerate(run[1]):
            if i in gone:
                got.append(None)
                continue
            self.d.wait(lambda: rid in self.d.results, WAIT_S, "result")
            r = self.d.results[rid]
            (at, n), = spans
            self.assertIn(r.rc, (0, -1), r)
            got.append(r.msg if r.rc else list(struct.unpack("<%df" % (n // 4), self.d.slab[at:at + n])[::2]))
        return got

    def signal(self, sig):
        for pid in self.d.worker_pids():
            os.kill(pid, sig)

    def good(self, i, batch=1):
        return [(i * 7 + k) % 50 for k in range(4 * batch)]

    def check_each(self, version, bad, n=16, batch=1):
        """bad: {part: (position, value)}"""
        rows = [self.good(i, batch) for i in range(n)]
        for i, (at, v) in bad.items():
            rows[i][at] = v
        before = len(self.ways(self.d))
        for i, got in enumerate(self.go(version, rows, batch)):
            if i in bad:
                at, v = bad[i]
                sample = "sample %d: " % (at // 4) if version == 2 and batch > 1 else ""
                at = at % 4 if sample else at
                self.assertRegex(got, r'^%s.*emb.*' % sample)
                self.assertRegex(got, r"index %d at position %d is outside" % (v, at))
                self.assertEqual(len(re.findall("outside", got)), 1)
            else:
                self.assertEqual(got, [float(v) for v in rows[i]], (i, got))
        return len(self.ways(self.d)) - before

    def test_an_index_that_is_wrong_fails_its_own_request_alone(self):
        self.assertEqual(self.check_each(2, {5: (2, 99)}), 1, "found before anything runs")
        self.assertEqual(self.check_each(2, {0: (0, -51), 3: (3, 1 << 40), 15: (1, 50)}), 1)
        self.assertEqual(self.check_each(2, {i: (1, 100 + i) for i in range(16)}), 1)
        self.assertEqual(self.check_each(2, {1: (6, 77), 2: (0, -99)}, n=4, batch=3), 1)
        self.assertEqual(self.check_each(2, {0: (3, 50)}, n=1), 1)
        self.assertEqual(self.check_each(2, {}), 1)

    def test_one_that_only_the_device_meets_costs_each_of_its_run_one_more(self):
        self.assertEqual(self.check_each(3, {5: (2, 99)}), 1 + 16)
        self.assertEqual(self.check_each(3, {0: (0, -51), 1: (3, 60), 15: (1, 50)}), 1 + 16)
        self.assertEqual(self.check_each(3, {i: (1, 100 + i) for i in range(4)}, n=4), 1 + 4)
        self.assertEqual(self.check_each(3, {1: (6, 77)}, n=4, batch=3), 1 + 4)
        self.assertEqual(self.check_each(3, {0: (3, 50)}, n=1), 1)
        self.assertEqual(self.check_each(3, {}), 1)

    def test_runs_that_wait_go_before_what_is_run_again(self):
        self.signal(signal.SIGSTOP)
        bad = self.d.run(3, None, [32], 1, parts=[[struct.pack("<4f", 99, 0, 0, i)] for i in range(3)])
        other = self.d.run(2, None, [32], 1, parts=[[struct.pack("<4q", *self.good(1))]])
        self.signal(signal.SIGCONT)
        for run in (bad, other):
            self.d.result(run)
        order = re.findall(r"ev=switch.start run=(\d+)", self.log(self.d))
        self.assertEqual(order, [str(x) for x in (bad[0], other[0], bad[0], bad[0], bad[0])])

    def test_a_request_of_an_api_that_is_gone_fails_nobody_else(self):
        rows = [self.good(i) for i in range(4)]
        got = self.go(2, rows, api_ids={0: 123, 2: 124})
        self.assertEqual(got, [None, *[[float(v) for v in rows[i]] if i != 2 else None for i in (1, 2, 3)]])

    def test_a_request_of_the_wrong_size_fails_nobody_else(self):
        rows = [self.good(i) for i in range(4)]
        rows[1] = rows[1][:3]
        got = self.go(2, rows)
        self.assertRegex(got[1], r'tensor "ids" has 24 bytes, not 32')
        self.assertEqual([got[i] for i in (0, 2, 3)], [[float(v) for v in rows[i]] for i in (0, 2, 3)])

    def ids_of(self, n, bad, kind="q"):
        """A dataset of n samples, one of which is wrong at position 2."""
        ids = [i % 50 for i in range(4 * n)]
        ids[4 * bad + 2] = 99
        path = os.path.join(self.d.dir, "ids-%s-%d.safetensors" % (kind, bad))
        write_st(path, {"ids": ("I64" if kind == "q" else "F32", [n, 4],
                                struct.pack("<%d%s" % (4 * n, kind), *ids)),
                        "label": ("I64", [n], bytes(8 * n))})
        return path

    def test_a_job_says_which_sample_is_wrong(self):
        for job, (version, data, bad, kind) in enumerate((
                (2, onnx.words(), 537, "q"), (3, onnx.words(to=onnx.INT64), 3, "f"),
                (3, onnx.words(to=onnx.INT64), 1002, "f")), 10):
            with self.subTest(job):
                path = os.path.join(self.d.dir, "again.onnx")
                with open(path, "wb") as f:
                    f.write(data)
                _, meta = self.d.package(path)
                self.d.start_batch(job, version, meta, self.ids_of(1003, bad, kind))
                j = self.d.wait_job(job, ("FAILED",))
                self.assertEqual(j.rc, -1, j)
                self.assertRegex(j.msg, r"^sample %d: .*emb.*|^sample %d: input" % (bad, bad))
                self.assertIn("index 99 at position 2 is outside the table of 50", j.msg)

    def test_an_evaluation_says_which_sample_is_wrong(self):
        net = onnx.model(
            [onnx.node("Gather", ["table", "ids"], ["e"], name="emb"),
             onnx.node("Flatten", ["e"], ["f"]), onnx.node("Gemm", ["f", "w", "b"], ["logits"])],
            [onnx.value("ids", ["N", 4], onnx.INT64)], [onnx.value("logits", ["N", 3])],
            [onnx.tensor("table", [50, 2], [0.01 * i for i in range(100)]),
             onnx.tensor("w", [8, 3], [0.1] * 24), onnx.tensor("b", [3], [0.0] * 3)])
        package = self.package(self.d, "embed", net)
        good = os.path.join(self.d.dir, "good.safetensors")
        write_st(good, {"ids": ("I64", [64, 4], bytes(64 * 32)), "label": ("I64", [64], bytes(512))})
        self.d.start_job(20, package, good, {
            "loss": "cross-entropy", "optimizer": {"name": "sgd", "lr": 0.1}, "batch": 16, "epochs": 1,
            "labels": "label"}, eval_dataset=self.ids_of(203, 130))
        j = self.d.wait_job(20, ("FAILED", "DONE"))
        self.assertIn("sample 130 of the evaluation dataset", j.msg)
        self.assertIn("index 99 at position 2 is outside the table of 50", j.msg)


class Whole(Story):
    """A whole system whose processes ask for what comes next before they sleep."""

    def test_large_bodies_of_many_clients_and_one_that_drips(self):
        s = System("--workers=2", BUSY_POLL_US="300")
        self.addCleanup(s.stop)
        key = s.tenant("vision")
        s.push(key, "net", net(), max_batch=8)
        over, wrong = threading.Event(), []

        def drip():
            head = ("POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                    "Inference-Header-Content-Length: 9\r\nContent-Length: 500000\r\n\r\n" % key)
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                c.sendall(head.encode())
                while not over.wait(0.005):
                    c.sendall(b" " * 100)

        def ask(who):
            client = Client(s.port, key)
            for i in range(6):
                n = 1 + (who + i) % 4
                a, b = samples(100 * who + i, n)
                got = client.infer("net", {"a": ("FP32", (n, A), a.tobytes()),
                                           "b": ("FP32", (n, B), b.tobytes())})
                if (array.array("f", got["y"][2]) != array.array("f", (v + 1 for v in a)) or
                        array.array("f", got["z"][2]) != array.array("f", (2 * v for v in b))):
                    wrong.append((who, i))
            client.close()

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            dripping = pool.submit(drip)
            try:
                for f in [pool.submit(ask, who) for who in range(3)]:
                    f.result(WAIT_S)
            finally:
                over.set()
            dripping.result(WAIT_S)
        self.assertEqual(wrong, [])

    def test_a_client_may_send_megabytes_ahead(self):
        ahead = 4 << 20
        with open("/proc/sys/net/core/rmem_max") as f:
            if int(f.read()) < ahead:
                self.skipTest("net.core.rmem_max allows less")
        s = System("--workers=2")
        self.addCleanup(s.stop)
        sent, api = 0, s.pid("api")
        with socket.socket() as c:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
            c.connect(("127.0.0.1", s.port))
            freeze(api)
            self.addCleanup(os.kill, api, signal.SIGCONT)
            c.settimeout(5)
            with contextlib.suppress(socket.timeout):
                while sent < ahead:
                    sent += c.send(bytes(64 << 10))
        self.assertGreaterEqual(sent, ahead)


if __name__ == "__main__":
    unittest.main()
