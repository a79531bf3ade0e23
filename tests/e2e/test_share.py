#!/usr/bin/env python3
"""Versions of which only the head differs hold the rest once in host memory: the kernel says so, not only a metric.
Their answers are those of an executor that shares nothing, bit for bit, whoever goes and whoever stays.

Without it: memory could be counted as shared and be held twice, a version could answer with another one's weights, or
a tenant could have something in common with another one.

Usage: test_share.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import array
import glob
import os
import random
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from exec_driver import WAIT_S  # noqa: E402
from test_executor import MIB, Case  # noqa: E402

OFF, ON = "--share-images=false", "--share-images=true"
SAVED = 'shunt_shared_image_bytes{executor="e0"}'
IMAGES = 'shunt_model_host_bytes{executor="e0",kind="images"}'
WIDE, DEEP, CLASSES = 512, 8, 16
LINK = 'shunt_copied_bytes_total{executor="e0",direction="h2d",purpose="weights"}'
MOVED = 'shunt_copied_bytes_total{executor="e0",direction="d2d",purpose="weights"}'
CHUNK, BODY, HEAD = 2 * MIB, 4 * WIDE * WIDE * DEEP, 4 * WIDE * CLASSES
ROWS, TABLE = 4096, 4 * 4096 * WIDE


def numbers(seed, n):
    rnd = random.Random(seed)
    return array.array("f", (rnd.uniform(-0.1, 0.1) for _ in range(n)))


class Share(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.body = [numbers(i, WIDE * WIDE).tobytes() for i in range(DEEP)]
        cls.x = numbers(77, WIDE).tobytes()

    def driver(self, *options, **kw):
        return super().driver(*(options if OFF in options else (ON, *options)), **kw)

    def file(self, head, words=False):
        path = os.path.join(self.onnx, "head-%d-%d.onnx" % (head, words))
        if os.path.exists(path):
            return path
        nodes, weights, last = [], [], "x"
        for i, raw in enumerate(self.body):
            nodes += [onnx.node("MatMul", [last, "w%d" % i], ["h%d" % i]), onnx.node("Tanh", ["h%d" % i], ["t%d" % i])]
            weights.append(onnx.tensor("w%d" % i, [WIDE, WIDE], [], raw=raw))
            last = "t%d" % i
        nodes.append(onnx.node("MatMul", [last, "head"], ["y"]))
        weights.append(onnx.tensor("head", [WIDE, CLASSES], [], raw=numbers(1000 + head, WIDE * CLASSES).tobytes()))
        inputs = [onnx.value("x", ["N", WIDE])]
        if words:
            nodes.insert(0, onnx.node("Gather", ["table", "ids"], ["x"]))
            weights.append(onnx.tensor("table", [ROWS, WIDE], [], raw=numbers(5, ROWS * WIDE).tobytes()))
            inputs = [onnx.value("ids", ["N"], onnx.INT64)]
        with open(path, "wb") as f:
            f.write(onnx.model(nodes, inputs, [onnx.value("y", ["N", CLASSES])], weights))
        return path

    def package(self, d, head, words=False):
        """Under a name by which what is made of it can be kept."""
        path = os.path.join(d.dir, "blobs", "packages", "%064x" % (1 + head + 100 * words))
        if not os.path.exists(path):
            os.rename(d.package(self.file(head, words))[0], path)
        return path

    def version(self, d, version, head, tenant="t", words=False):
        d.load(version, self.package(d, head, words), max_batch=1, tenant=tenant, model="m%d" % version)

    def answer(self, d, version, tenant="t", x=None):
        run = d.run(version, [x or self.x], [4 * CLASSES], 1, tenant=tenant)
        r, out = d.result(run)
        self.done = d.done[run[0]]
        self.assertEqual((r.rc, r.msg), (0, ""))
        return out[0][0]

    def want(self, heads):
        d = self.driver(OFF, "--kept-bytes=0")
        for head in heads:
            self.version(d, 1 + head, head)
        out = {head: self.answer(d, 1 + head) for head in heads}
        d.rest(2)
        self.assertEqual(d.metrics()[SAVED], 0)
        self.assertEqual(len(set(out.values())), len(heads))
        d.stop()
        return out

    def memory(self, d):
        """What the executor's images have of the kernel's memory."""
        files = {}
        for path in glob.glob("/proc/%d/fd/*" % d.proc.pid):
            try:
                if os.readlink(path).startswith(("/memfd:shunt-image", "/memfd:shunt-trunk")):
                    st = os.stat(path)
                    files[st.st_ino] = st.st_blocks * 512
            except OSError:
                pass
        return sum(files.values())

    def shares(self, d, n):
        d.wait(lambda: d.metrics().get(SAVED, 0) == n * CHUNK, WAIT_S, "%d chunks saved" % n)

    def test_the_rest_is_held_once_and_answers_are_the_same(self):
        heads, whole = range(4), BODY // CHUNK
        want = self.want(heads)
        d = self.driver("--kept-bytes=0")
        for head in heads:
            self.version(d, 1 + head, head)
            self.assertEqual(self.answer(d, 1 + head), want[head])
        image = d.states[1].image_bytes
        self.assertGreater(image, BODY + HEAD)
        self.shares(d, whole * (len(heads) - 1))
        once = image + (len(heads) - 1) * (image - whole * CHUNK)
        self.assertLess(abs(self.memory(d) - once), 65536)
        self.assertLess(abs(d.metrics()[IMAGES] - once), 65536)
        d.wait(lambda: all(0 < d.places[1 + h].host_bytes < image / 2 for h in heads), WAIT_S, "equal parts")
        for head in heads:
            self.assertEqual(self.answer(d, 1 + head), want[head])
        for gone in (1, 3, 2):  # and whoever goes takes nothing of it along
            d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=gone)
            d.wait(lambda v=gone: d.states[v].phase == "GONE", WAIT_S, "GONE")
        d.wait(lambda: abs(self.memory(d) - image) < 65536, WAIT_S, "theirs is free")
        self.assertEqual(self.answer(d, 4), want[3])
        self.version(d, 2, 1)
        self.shares(d, whole)
        self.assertEqual(self.answer(d, 2), want[1])
        d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=2)
        d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=4)
        d.wait(lambda: self.memory(d) == 0, WAIT_S, "all of it is free")

    def test_copies_come_from_where_it_is_held_now(self):
        """A device with room for one image: each run copies all of it."""
        want = self.want(range(3))
        d = self.driver("--kept-bytes=0", "--pool-bytes=16M")
        for head in want:
            self.version(d, 1 + head, head)
        for _ in range(60):  # before, while and after they are copied to one place
            for head in want:
                self.assertEqual(self.answer(d, 1 + head), want[head])
            if d.metrics().get(SAVED, 0) == 2 * (BODY // CHUNK) * CHUNK:
                break
            d.rest(0.2)
        self.shares(d, 2 * (BODY // CHUNK))
        for head in (0, 1, 2, 1, 0):
            self.assertEqual(self.answer(d, 1 + head), want[head])

    def test_a_cold_run_takes_from_a_sibling_what_it_has_on_the_device(self):
        """Only the head goes over the link, and nothing comes from another tenant's image."""
        want = self.want(range(3))
        for more in ((), ("--pack-images=on",)):
            d = self.driver("--kept-bytes=0", *more)
            for head in want:
                self.version(d, 1 + head, head)
            self.version(d, 9, 0, tenant="u")
            d.wait(lambda: d.metrics().get(SAVED, 0) > 0, WAIT_S, "what is shared")
            d.rest(3)
            self.assertEqual(self.answer(d, 1), want[0])
            before, moved = d.metrics()[LINK], d.metrics().get(MOVED, 0)
            self.assertEqual(self.answer(d, 2), want[1])
            self.assertEqual(self.answer(d, 3), want[2])
            if not more:
                # Of a few bytes in the time of a copy on the device nobody learns the rate of the link.
                self.assertEqual((self.done.cold, self.done.copied_bytes), (1, 0))
                self.assertLess(d.metrics()[LINK] - before, BODY // 4)
                self.assertGreater(d.metrics()[MOVED] - moved, 3 * BODY // 2)
            before, moved = d.metrics()[LINK], d.metrics().get(MOVED, 0)
            self.assertEqual(self.answer(d, 9, tenant="u"), want[0])
            self.assertGreater(d.metrics()[LINK] - before, BODY // 2)
            self.assertGreater(self.done.copied_bytes, BODY // 2)
            self.assertEqual(d.metrics().get(MOVED, 0), moved)
            d.stop()

    def test_another_tenant_with_the_same_file_shares_nothing(self):
        want = self.want(range(2))
        d = self.driver("--kept-bytes=0")
        self.version(d, 1, 0)
        self.version(d, 2, 1)
        self.shares(d, BODY // CHUNK)
        before, image = self.memory(d), d.states[1].image_bytes
        self.version(d, 3, 0, tenant="u")
        self.version(d, 4, 1, tenant="v")
        d.rest(3)
        self.assertEqual(d.metrics()[SAVED], BODY // CHUNK * CHUNK)
        self.assertLess(abs(self.memory(d) - before - 2 * image), 65536)
        for version in (3, 4):
            self.assertGreaterEqual(d.places[version].host_bytes, image)
        self.assertEqual(self.answer(d, 3, tenant="u"), want[0])
        self.assertEqual(self.answer(d, 4, tenant="v"), want[1])

    def test_more_versions_fit_and_those_that_leave_come_back(self):
        """A tenant may take half of 96 MB: four such images, with their programs, or many that share."""
        want = self.want(range(6))
        for option, leaves in ((OFF, True), (ON, False)):
            d = self.driver(option, "--model-host-bytes=96M", "--workers=2")
            for head in want:
                self.version(d, 1 + head, head)
                if not leaves:
                    self.shares(d, head * (BODY // CHUNK))
            for head in (*want, *want):
                self.assertEqual(self.answer(d, 1 + head), want[head])
            with open(os.path.join(d.dir, "executor.log")) as f:
                self.assertEqual("ev=image.disk" in f.read(), leaves)
            if not leaves:
                # With less room all that share have to leave for one that is whole.
                d.scheduler.send("TENANT_MEMORY", epoch=d.epoch, tenant="t", min_bytes=0, max_bytes=0,
                                 share=1.0, host_max_bytes=14 * MIB)
                self.version(d, 51, 7)
                for head in (*want, *want):
                    self.assertEqual(self.answer(d, 1 + head), want[head])
                with open(os.path.join(d.dir, "executor.log")) as f:
                    self.assertTrue("ev=image.disk" in f.read())
            d.stop()

    def test_versions_that_share_get_their_workers_back(self):
        """Where others have filled what sharing freed, a new worker takes them as they count, not as a whole."""
        heads = range(4)
        want = self.want(heads)
        d = self.driver("--kept-bytes=0", "--model-host-bytes=20M", "--workers=2")
        for tenant in "tu":
            d.scheduler.send("TENANT_MEMORY", epoch=d.epoch, tenant=tenant, min_bytes=0, max_bytes=0, share=1.0,
                             host_max_bytes=96 * MIB)
        for head in heads:
            self.version(d, 1 + head, head)
            self.shares(d, head * (BODY // CHUNK))
        self.version(d, 9, 0, tenant="u")
        d.rest(1)
        killed = set(d.worker_pids())
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        d.wait(lambda: not killed & set(d.worker_pids()), WAIT_S, "the death of workers")
        for head in heads:
            self.assertEqual(self.answer(d, 1 + head), want[head])
        self.assertEqual(self.answer(d, 9, tenant="u"), want[0])
        d.rest(1)
        with open(os.path.join(d.dir, "executor.log")) as f:
            self.assertNotIn("ev=model.retry", f.read())
        self.shares(d, (len(heads) - 1) * (BODY // CHUNK))

    def test_tables_that_are_read_in_place_stay_each_version_s_own(self):
        x = b"".join(n.to_bytes(8, "little") for n in (7,))
        out = []
        for option in (OFF, ON):
            d = self.driver(option, "--tables-in-place=on", "--kept-bytes=0", "--copy-gb-per-s=1")
            for head in (0, 1):
                self.version(d, 1 + head, head, words=True)
            if option != OFF:
                self.shares(d, BODY // CHUNK)
            d.rest(1)
            out.append([self.answer(d, v, x=x) for v in (1, 2, 1, 2)])
            d.stop()
        self.assertEqual(out[0], out[1])

    def test_packed_images_share_too(self):
        want = self.want(range(3))
        d = self.driver("--kept-bytes=0", "--pack-images=on")
        for head in want:
            self.version(d, 1 + head, head)
        d.wait(lambda: d.metrics().get(SAVED, 0) > 0, WAIT_S, "what is shared")
        d.rest(2)
        for head in want:
            self.assertEqual(self.answer(d, 1 + head), want[head])


if __name__ == "__main__":
    unittest.main()
