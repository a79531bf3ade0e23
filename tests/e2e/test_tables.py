#!/usr/bin/env python3
"""Tables in place: rows of an embedding table are read in host memory when the device does not have the table. The
answers are those of a table that was copied, bit for bit, wherever the table is; a cold run copies nothing of it, and
idle time brings it.

Without it: a run could read rows of another model, of an image that has left, or of nothing at all.

Usage: test_tables.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import array
import glob
import os
import random
import signal
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from exec_driver import WAIT_S, Driver  # noqa: E402
from test_executor import HELD, MIB, OPTIONS, Case  # noqa: E402

ON, OFF = "--tables-in-place=on", "--tables-in-place=off"
COPIED = 'shunt_copied_bytes_total{executor="e0",direction="h2d",purpose="weights"}'
RUNS = 'shunt_table_runs_total{executor="e0",place="%s"}'
ROWS, WIDE, SEQ, HIDDEN = 40000, 128, 6, 2048
TABLE, OTHERS = 4 * ROWS * WIDE, 4 * (WIDE * HIDDEN + HIDDEN * 8)
INVALID = -1


def numbers(rnd, n):
    return array.array("f", (rnd.uniform(-1, 1) for _ in range(n))).tobytes()


def ids(*values):
    return struct.pack("<%dq" % len(values), *values)


SOME = ids(0, ROWS - 1, 17, -1, 17, 12345)


class Tables(Case):
    def file(self, seed):
        path = os.path.join(self.onnx, "words-%d.onnx" % seed)
        if not os.path.exists(path):
            rnd = random.Random(seed)
            row = numbers(rnd, 997 * WIDE)  # random enough, and made in no time
            table = (row * (ROWS // 997 + 1))[:TABLE]
            with open(path, "wb") as f:
                f.write(onnx.model(
                    [onnx.node("Gather", ["table", "ids"], ["rows"]), onnx.node("MatMul", ["rows", "w"], ["hidden"]),
                     onnx.node("Tanh", ["hidden"], ["bent"]), onnx.node("MatMul", ["bent", "v"], ["y"])],
                    [onnx.value("ids", ["N", SEQ], onnx.INT64)], [onnx.value("y", ["N", SEQ, 8])],
                    [onnx.tensor("table", [ROWS, WIDE], [], raw=table),
                     onnx.tensor("w", [WIDE, HIDDEN], [], raw=numbers(rnd, WIDE * HIDDEN)),
                     onnx.tensor("v", [HIDDEN, 8], [], raw=numbers(rnd, HIDDEN * 8))]))
        return path

    def package(self, d, seed):
        """Under a name by which what is made of it can be kept."""
        path = os.path.join(d.dir, "blobs", "packages", "%064x" % seed)
        if not os.path.exists(path):
            os.rename(d.package(self.file(seed))[0], path)
        return path

    def words(self, d, version=1, seed=1, **kw):
        kw.setdefault("tenant", "t%d" % version)
        kw.setdefault("model", "m%d" % version)
        d.load(version, self.package(d, seed), max_batch=2, **kw)

    def answer(self, d, version=1, x=SOME, n=1, tenant=None):
        r, out = d.result(d.run(version, [x], [4 * SEQ * 8 * n], n, tenant=tenant or "t%d" % version))
        self.assertEqual((r.rc, r.msg), (0, ""))
        return out[0][0]

    def want(self, seed=1, x=SOME, n=1):
        d = self.driver(OFF)
        self.words(d, seed=seed)
        out = self.answer(d, x=x, n=n)
        d.stop()
        return out

    def wait_log(self, d, event, n):
        def count():
            with open(os.path.join(d.dir, "executor.log")) as log:
                return log.read().count("ev=%s " % event)
        d.wait(lambda: count() >= n, WAIT_S, event)

    def in_place(self, d, workers=3):
        """Until all workers can: a run before that has the table copied."""
        self.wait_log(d, "tables.mapped", workers)

    def runs(self, d):
        d.rest(1.2)  # metrics are told once a second
        m = d.metrics()
        return m.get(RUNS % "host", 0), m.get(RUNS % "device", 0)

    def unload(self, d, version):
        d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=version)
        d.wait(lambda: d.states[version].phase == "GONE", WAIT_S, "GONE")

    def test_a_cold_run_copies_none_of_it_and_idle_time_brings_it(self):
        want = self.want()
        d = self.driver(ON, "--copy-gb-per-s=1")
        self.words(d)
        self.assertGreater(d.states[1].image_bytes, TABLE + OTHERS)
        self.assertLess(d.states[1].link_bytes, 2 * OTHERS)  # by which the scheduler foresees a cold run
        self.in_place(d)
        self.assertEqual(self.answer(d), want)
        copied = d.metrics()[COPIED]
        self.assertLess(copied, OTHERS + TABLE // 2)  # idle time may have begun to bring it
        d.wait(lambda: d.metrics()[COPIED] >= OTHERS + TABLE, WAIT_S, "the table")
        d.rest(0.5)  # what is enqueued counts as copied
        for _ in range(2):
            self.assertEqual(self.answer(d), want)
        host, device = self.runs(d)
        self.assertEqual((host, device), (1, 2))
        self.assertEqual(d.metrics()[COPIED], d.states[1].image_bytes)  # each byte once
        self.unload(d, 1)

    def test_what_is_measured_of_a_switch_reads_in_place_too(self):
        want = self.want()
        steps = ("none", "fixed-2mb", "per-layer", "one-group", "ipc")
        d = self.driver(ON, "--pack-images=on", "--debug-cold", "--debug-ablation=" + ",".join(steps))
        self.words(d)
        self.in_place(d)
        for i in range(len(steps)):
            copied = d.metrics().get(COPIED, 0)
            self.assertEqual(self.answer(d), want)
            self.assertEqual(d.metrics()[COPIED] - copied, d.states[1].link_bytes)
            d.proc.send_signal(signal.SIGHUP)
            self.wait_log(d, "ablation.step", i + 1)
        self.assertLess(d.states[1].link_bytes, d.states[1].image_bytes - TABLE)  # packed, too
        self.assertEqual(self.runs(d), (len(steps), 0))

    def test_batches_and_bad_indices_in_place(self):
        two = ids(*range(5, 5 + 2 * SEQ))
        want = self.want(x=two, n=2)
        d = self.driver(ON, "--copy-gb-per-s=0.05")
        self.words(d)
        self.in_place(d)
        self.assertEqual(self.answer(d, x=two, n=2), want)
        for bad in (ROWS, -ROWS - 1, 1 << 40, -1 << 63):
            r, _ = d.result(d.run(1, [ids(1, 2, bad, 3, 4, 5)], [4 * SEQ * 8], 1, tenant="t1"))
            self.assertEqual(r.rc, INVALID)
            self.assertIn("%d" % bad, r.msg)
        self.assertEqual(self.answer(d, x=two, n=2), want)

    def test_tails_are_evicted_and_rows_come_from_host_memory_again(self):
        want = {seed: self.want(seed) for seed in (1, 2, 3)}
        d = self.driver(ON, "--pool-bytes=44M")  # two images with their tables do not fit
        for v in want:
            self.words(d, v, v)
        self.in_place(d, 9)
        for v in (1, 2, 3, 1, 3, 2):
            self.assertEqual(self.answer(d, v), want[v])
        d.rest(3)  # the table of one or two of them comes
        for v in (1, 2, 3, 1, 3, 2, 2, 1, 3, 3):
            self.assertEqual(self.answer(d, v), want[v])
        host, device = self.runs(d)
        self.assertEqual(host + device, 16)
        self.assertGreater(host, 6)

    def test_what_was_prepared_waits_for_no_table(self):
        want = self.want()
        d = self.driver(ON, "--copy-gb-per-s=1")
        self.words(d)
        self.in_place(d)
        d.scheduler.send("PREPARE", epoch=1, rid=5, version_id=1, evict=0)
        d.wait(lambda: d.metrics().get(COPIED, 0) >= OTHERS, WAIT_S, "the copy")
        r, out = d.result(d.run(1, [SOME], [4 * SEQ * 8], 1, tenant="t1"))
        self.assertEqual((r.rc, r.copy_ns, out[0][0]), (0, 0, want))

    def test_a_run_while_it_comes(self):
        want = self.want()
        d = self.driver(ON, "--copy-gb-per-s=0.02")  # a second for the table
        self.words(d)
        self.in_place(d)
        for _ in range(3):
            self.assertEqual(self.answer(d), want)
        d.wait(lambda: d.metrics()[COPIED] > OTHERS + MIB, WAIT_S, "some of the table")
        for _ in range(3):
            self.assertEqual(self.answer(d), want)

    def test_pinned_it_is_all_on_the_device(self):
        want = self.want()
        d = self.driver(ON)
        self.words(d)
        d.scheduler.send("MODEL_PIN", epoch=1, version_id=1, pinned=1)
        d.wait(lambda: d.places.get(1) and d.places[1].pin == HELD, WAIT_S, "the image")
        self.assertGreaterEqual(d.metrics()[COPIED], OTHERS + TABLE)
        self.assertEqual(self.answer(d), want)
        self.assertEqual(self.runs(d), (0, 1))

    def test_a_worker_that_dies_takes_no_table_along(self):
        want = self.want()
        d = self.driver(ON, "--copy-gb-per-s=0.05")
        self.words(d)
        self.in_place(d)
        for n in (4, 5, 6):
            os.kill(d.worker_pids()[0], signal.SIGKILL)
            self.assertEqual(self.answer(d), want)
            self.in_place(d, n)
            self.assertEqual(self.answer(d), want)

    def test_an_image_that_leaves_host_memory_takes_its_mappings_along(self):
        want = {seed: self.want(seed) for seed in (1, 2, 3)}
        d = self.driver(ON, "--pool-bytes=44M", "--model-host-bytes=%d" % (100 * MIB), "--workers=2")
        for v in want:  # a tenant may take half of it: there is room for two, and no more
            self.words(d, v, v, tenant="t")
        for v in (1, 2, 3, 1, 2, 3, 3, 1):
            self.assertEqual(self.answer(d, v, tenant="t"), want[v])
            d.rest(0.3)
        with open(os.path.join(d.dir, "executor.log")) as f:
            log = f.read()
        self.assertIn("ev=image.disk", log)
        self.assertIn("ev=image.host", log)
        for pid in d.worker_pids():  # of the one that has left nothing is mapped any more
            with open("/proc/%d/maps" % pid) as f:
                maps = f.read()
            self.assertLessEqual(maps.count("shunt-image") + maps.count(".kept"), 2)

    def test_it_is_kept_and_packed_images_have_it_too(self):
        want = self.want()
        for more in ((), ("--pack-images=on",)):
            d = self.driver(ON, *more)
            keep = d.dir
            for again in range(3):
                if again:
                    d = Driver(*OPTIONS, ON, *more, keep=keep).start()
                self.words(d)
                self.in_place(d, 3 * again + 3)
                self.assertEqual(self.answer(d), want)
                with open(os.path.join(keep, "executor.log")) as log:
                    self.assertEqual(log.read().count("kept=1 mapped=1"), again)
                d.rest(1.5)  # its table comes
                self.assertEqual(self.answer(d), want)
                d.wait(lambda: glob.glob(os.path.join(keep, "kept", "*.kept")), WAIT_S, "a file of it")
                d.stop()

    def test_who_maps_it_cannot_write_to_it(self):
        d = self.driver(ON, "--kept-bytes=0")
        self.words(d)
        self.in_place(d)
        n = 0
        for pid in d.worker_pids():
            with open("/proc/%d/maps" % pid) as f:
                for line in f:
                    if "shunt-image" in line:
                        self.assertEqual(line.split()[1], "r--s")
                        n += 1
        self.assertEqual(n, 3)

    def test_off_and_auto_copy_it_here(self):
        for how in (OFF, "--tables-in-place=auto"):  # the cpu device has no link
            d = self.driver(how)
            self.words(d)
            self.answer(d)
            self.assertGreaterEqual(d.metrics()[COPIED], OTHERS + TABLE)
            self.assertEqual(self.runs(d), (0, 0))
            d.stop()


if __name__ == "__main__":
    unittest.main()
