#!/usr/bin/env python3
"""Packed images: the answers are those of unpacked ones, bit for bit, whatever happens to the image or to who
unpacks it, and fewer bytes are kept and copied.

Without it: a run could compute with weights that nobody has unpacked, or half of them, or damaged ones.

Usage: test_packed.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
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
from test_executor import CANCELLED, MIB, OPTIONS, UNAVAILABLE, Case, cpu_time  # noqa: E402

ON = "--pack-images=on"
COPIED = 'shunt_copied_bytes_total{executor="e0",direction="h2d",purpose="weights"}'


def picture(seed=3):
    rnd = random.Random(seed)
    return struct.pack("<150528f", *(rnd.uniform(-1, 1) for _ in range(150528)))


class Packed(Case):
    def load18(self, d, version=1, seed=1, **kw):
        d.load(version, d.package(self.zoo("resnet18", "inference", seed))[0], max_batch=1, **kw)

    def answer(self, d, version=1, x=None, **kw):
        r, out = d.result(d.run(version, [x or picture()], [4000], 1, **kw))
        self.assertEqual((r.rc, r.msg), (0, ""))
        return r, out[0][0]

    def until_sent(self, d, run):
        """A worker has it, or has had it: that it is at work may be over before somebody looks."""
        d.wait(lambda: "ev=switch.send run=%d " % run[0] in open(os.path.join(d.dir, "executor.log")).read(), WAIT_S,
               "a worker with the run")

    def want(self, seed=1):
        d = self.driver("--pack-images=off")
        self.load18(d, seed=seed)
        r, out = self.answer(d)
        copied = d.metrics()[COPIED]
        d.stop()
        return out, copied

    def test_answers_are_the_same_and_fewer_bytes_travel(self):
        want, copied = self.want()
        d = self.driver(ON)
        self.load18(d)
        for _ in range(2):
            self.assertEqual(self.answer(d)[1], want)
        d.rest(1.5)  # metrics are told once a second
        m = d.metrics()
        self.assertLess(m[COPIED], 0.9 * copied)  # fp32: 27.4 of 32 bits
        self.assertGreater(m[COPIED], 0.8 * copied)
        self.assertLess(m['shunt_image_bytes{executor="e0",tier="host"}'], 0.9 * d.states[1].image_bytes)
        d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=1)
        d.wait(lambda: d.states[1].phase == "GONE", WAIT_S, "GONE")

    def test_no_more_host_memory_is_taken_than_the_packed_layers_need(self):
        """By the kernel's count: the image was larger, in the same memory, before it was packed."""
        d = self.driver(ON)
        self.load18(d)
        path = "/proc/%d/fd" % d.proc.pid
        held = [os.stat(os.path.join(path, fd)) for fd in os.listdir(path)
                if "shunt-image" in os.readlink(os.path.join(path, fd))]
        page, link = os.sysconf("SC_PAGESIZE"), d.states[1].link_bytes
        self.assertLess(link, 0.9 * d.states[1].image_bytes)
        self.assertEqual([st.st_blocks * 512 for st in held], [(link + page - 1) // page * page])

    def times(self, factors, option):
        """The image and what was copied of it, in bytes, and two answers of a model that multiplies by them."""
        width = len(factors)
        path = os.path.join(self.onnx, "factors-%d.onnx" % width)
        with open(path, "wb") as f:
            f.write(onnx.model([onnx.node("Mul", ["x", "w"], ["y"])], [onnx.value("x", ["N", width])],
                               [onnx.value("y", ["N", width])], [onnx.tensor("w", [width], factors)]))
        d, x, out = self.driver(option), struct.pack("<%df" % width, *range(width)), []
        d.load(1, d.package(path)[0], max_batch=1)
        for _ in range(2):  # from packed layers, and from what became of them
            r, answer = d.result(d.run(1, [x], [4 * width], 1))
            self.assertEqual((r.rc, r.msg), (0, ""))
            out.append(answer)
        d.rest(1.5)  # metrics are told once a second
        copied = d.metrics()[COPIED]
        d.stop()
        self.assertTrue(out[0] == out[1])
        return d.states[1].image_bytes, copied, out[0]

    def test_an_image_of_one_layer_is_unpacked_from_right_behind_it(self):
        """However long it is: some pages, and a length that no page of memory ends with."""
        for width, image in ((4096, 16384), (10000, 40192)):
            factors = [1 + i / width for i in range(width)]
            _, _, want = self.times(factors, "--pack-images=off")
            of, copied, out = self.times(factors, ON)
            self.assertEqual(of, image)
            self.assertTrue(out == want)  # assertEqual() takes minutes to tell how they differ
            self.assertLess(copied, image)

    def test_what_does_not_get_smaller_is_written_again(self):
        """It was packed over itself before anybody knew."""
        rnd = random.Random(7)
        factors = [struct.unpack("<f", struct.pack("<I", rnd.randrange(200 << 23)))[0] for _ in range(50000)]
        image, all_of_it, want = self.times(factors, "--pack-images=off")
        of, copied, out = self.times(factors, ON)
        self.assertTrue(out == want)
        self.assertEqual((of, copied), (image, all_of_it))
        self.assertGreaterEqual(copied, image)

    def test_images_that_lose_blocks_come_back(self):
        want = {seed: self.want(seed)[0] for seed in (1, 2, 3)}
        d = self.driver(ON, "--pool-bytes=125M")
        for v in want:
            self.load18(d, v, v, tenant="t%d" % v, model="m%d" % v)
        for v in (1, 2, 3, 1, 3, 2, 2, 1, 3, 3):
            self.assertEqual(self.answer(d, v, tenant="t%d" % v)[1], want[v])
        self.assertGreater(sum(d.metrics().get('shunt_residency_total{executor="e0",tenant="t%d",result="partial"}' % v,
                                               0) for v in want), 0)

    def test_what_was_prepared_is_unpacked_by_the_run(self):
        want, _ = self.want()
        d = self.driver(ON, "--copy-gb-per-s=1")
        self.load18(d)
        d.scheduler.send("PREPARE", epoch=1, rid=5, version_id=1, evict=0)
        d.wait(lambda: d.metrics().get(COPIED, 0) >= 0.8 * d.states[1].image_bytes, WAIT_S, "the copy")
        d.rest(0.5)
        copied = d.metrics()[COPIED]
        self.assertGreater(d.places[1].unpack_ns, 1e6)  # a run is told to be no warm one
        for first in (1, 0):
            run = d.run(1, [picture()], [4000], 1)
            r, out = d.result(run)
            self.assertEqual((r.copy_ns, out[0][0]), (0, want))
            d.wait(lambda: run[0] in d.done, WAIT_S, "RUN_DONE")
            self.assertEqual(d.done[run[0]].cold, first)
        self.assertEqual(d.metrics()[COPIED], copied)
        d.wait(lambda: d.places[1].unpack_ns == 0, WAIT_S, "word that it is unpacked")

    def test_what_stays_packed_on_the_device_comes_back_without_the_link(self):
        want = {seed: self.want(seed)[0] for seed in (1, 2)}
        # Room for both packed and one of them unpacked.
        d = self.driver(ON, "--pool-bytes=220M", "--keep-packed-percent=0", "--copy-gb-per-s=0.1")
        for v in want:
            self.load18(d, v, v, tenant="t%d" % v, model="m%d" % v)
        for v in want:
            self.assertEqual(self.answer(d, v, tenant="t%d" % v)[1], want[v])
        d.rest(1.5)  # metrics are told once a second
        copied = d.metrics()[COPIED]
        for v in (1, 2, 1, 2):
            d.wait(lambda v=v: d.places[v].unpack_ns > 1e6, WAIT_S, "word that it is packed")
            self.assertEqual(d.places[v].device_bytes, d.states[v].image_bytes)
            r, out = self.answer(d, v, tenant="t%d" % v)
            self.assertEqual((r.copy_ns, out), (0, want[v]))
        with self.held(d.worker_pids()) as workers:
            run = d.run(1, [picture()], [4000], 1, tenant="t1")
            d.wait(lambda: d.metrics()['shunt_workers{executor="e0",state="active"}'] == 1, WAIT_S, "an active worker")
            os.kill(workers[0], signal.SIGKILL)  # the first in the pool is chosen first
        r, out = d.result(run)
        self.assertEqual((r.rc, out[0][0]), (0, want[1]))
        d.rest(1.5)
        m = d.metrics()
        self.assertEqual(m[COPIED], copied)
        for v in want:
            self.assertGreaterEqual(m['shunt_residency_total{executor="e0",tenant="t%d",result="packed"}' % v], 2)
        self.assertGreater(m['shunt_image_bytes{executor="e0",tier="packed"}'], 0.8 * 2 * 64 * MIB)

    def test_a_worker_that_dies_while_it_unpacks_leaves_nothing_of_it(self):
        want, _ = self.want()
        d = self.driver(ON, "--copy-gb-per-s=0.1", "--log-level=debug")
        self.load18(d)
        for wait in (0, 0.2):  # when it has the run; when it is at it
            if wait:
                run = d.run(1, [picture()], [4000], 1)
                self.until_sent(d, run)
                d.rest(wait)
                os.kill(max(d.worker_pids(), key=cpu_time), signal.SIGKILL)
            else:
                with self.held(d.worker_pids()) as workers:
                    run = d.run(1, [picture()], [4000], 1)
                    self.until_sent(d, run)
                    os.kill(workers[0], signal.SIGKILL)  # the first in the pool is chosen first
            r, out = d.result(run)
            self.assertEqual((r.rc, out[0][0]), (0, want))
            d.wait(lambda: d.metrics()['shunt_workers{executor="e0",state="standby"}'] == 3, WAIT_S, "all workers")
            self.assertEqual(self.answer(d)[1], want)

    def test_a_run_that_is_given_up_leaves_what_it_had_not_unpacked(self):
        want, _ = self.want()
        d = self.driver(ON, "--copy-gb-per-s=0.1", "--log-level=debug")
        self.load18(d)
        run = d.run(1, [picture()], [4000], 1)
        self.until_sent(d, run)
        d.rest(0.15)
        d.scheduler.send("RUN_CANCEL", run_id=run[0], rid=0, api_id=0)
        r, _ = d.result(run)
        self.assertIn(r.rc, (0, CANCELLED))
        for _ in range(2):
            self.assertEqual(self.answer(d)[1], want)

    def test_it_is_kept_packed_and_comes_back_from_disk(self):
        want, _ = self.want()
        d = self.driver(ON)
        keep, package = d.dir, os.path.join(d.dir, "blobs", "packages", "%064x" % 1)
        os.rename(d.package(self.zoo("resnet18", "inference"))[0], package)
        for again in range(3):
            if again:
                d = Driver(*OPTIONS, ON, keep=keep).start()
            d.load(1, package, max_batch=1)
            self.assertEqual(self.answer(d)[1], want)
            with open(os.path.join(keep, "executor.log")) as log:
                self.assertEqual(log.read().count("kept=1 mapped=1"), again)
            d.wait(lambda: glob.glob(os.path.join(keep, "kept", "*.kept")), WAIT_S, "a file of it")
            d.stop()
        size = os.path.getsize(glob.glob(os.path.join(keep, "kept", "*.kept"))[0])
        self.assertLess(size, 0.9 * d.states[1].image_bytes)

    def test_damaged_weights_answer_nobody(self):
        d = self.driver(ON, "--pool-bytes=125M", "--kept-bytes=0")
        for v in (1, 2, 3):
            self.load18(d, v, v)
        self.answer(d, 1)
        for v in (2, 3, 2, 3):  # the device has no room for the others
            self.answer(d, v)
        n = 0
        for fd in os.listdir("/proc/%d/fd" % d.proc.pid):
            path = "/proc/%d/fd/%s" % (d.proc.pid, fd)
            if "shunt-image" not in os.readlink(path):
                continue
            with open(path, "r+b") as image:  # one bit in each MiB, of numbers and of tables
                size = os.fstat(image.fileno()).st_size
                for at in range(MIB // 3, size, MIB):
                    image.seek(at)
                    was = image.read(1)
                    image.seek(at)
                    image.write(bytes([was[0] ^ 4]))
            n += 1
        self.assertEqual(n, 3)
        r, _ = d.result(d.run(1, [picture()], [4000], 1))
        self.assertEqual(r.rc, UNAVAILABLE)
        d.wait(lambda: d.states[1].phase == "GONE", WAIT_S, "it is given up")
        with open(os.path.join(d.dir, "executor.log")) as log:
            self.assertIn("ev=image.lost", log.read())


if __name__ == "__main__":
    unittest.main()
