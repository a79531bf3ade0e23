#!/usr/bin/env python3
"""Datasets made of folders of pictures: pushed, trained on, evaluated.

Without it: pictures could be trained on otherwise than requests send them, with another one's label, or
as the bytes that they are; and a folder with a damaged file would make a dataset with a hole.

Usage: test_pictures.py [-v] [name ...]
"""
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from pictures import jpeg, png  # noqa: E402
from system import BIN, FINAL, ROOT, Story, System, read_st, st_bytes, until  # noqa: E402

SIDE, EACH = 8, 24  # pixels; pictures of a class
MEAN, STD = [0.5, 0.25, 0.125], [0.5, 0.25, 2.0]
SPEC = {"optimizer": {"name": "sgd", "lr": 0.05}, "batch": 8, "epochs": 3, "seed": 3}
AUGMENT = [{"name": "normalise", "mean": MEAN, "std": STD}]


def classifier():
    """input [N,3,8,8] -> scores [N,2]"""
    rng, n = random.Random(1), 3 * SIDE * SIDE
    return onnx.model(
        [onnx.node("Flatten", ["input"], ["flat"]), onnx.node("Gemm", ["flat", "w", "b"], ["y"])],
        [onnx.value("input", ["N", 3, SIDE, SIDE])], [onnx.value("y", ["N", 2])],
        [onnx.tensor("w", [n, 2], [rng.uniform(-0.1, 0.1) for _ in range(2 * n)]),
         onnx.tensor("b", [2], [0.0, 0.0])])


LARGE, MIN_PREEMPTIONS = 64, 20  # pixels; of as many jobs as that takes


def network():
    """input [N,3,64,64] -> scores [N,4]"""
    rng = random.Random(2)

    def some(name, dims, n_in):
        n = 1
        for d in dims:
            n *= d
        return onnx.tensor(name, dims, [rng.gauss(0, (2 / n_in) ** 0.5) for _ in range(n)])
    return onnx.model(
        [onnx.node("Conv", ["input", "c1"], ["a"], pads=[1, 1, 1, 1]), onnx.node("Relu", ["a"], ["b"]),
         onnx.node("Conv", ["b", "c2"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), onnx.node("Relu", ["c"], ["d"]),
         onnx.node("GlobalAveragePool", ["d"], ["e"]), onnx.node("Flatten", ["e"], ["f"]),
         onnx.node("Gemm", ["f", "w", "bias"], ["y"])],
        [onnx.value("input", ["N", 3, LARGE, LARGE])], [onnx.value("y", ["N", 4])],
        [some("c1", [16, 3, 3, 3], 27), some("c2", [32, 16, 3, 3], 144), some("w", [32, 4], 32),
         onnx.tensor("bias", [4], [0.0] * 4)])


class Pictures(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System()
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("vision")
        cls.s.push(cls.key, "net", classifier())
        cls.dir = os.path.join(cls.s.dir, "pictures")
        cls.values = []  # of the samples, as floats from 0 to 1, and their labels
        cls.labels = []
        rng = random.Random(7)
        for label, name in enumerate(("day", "night")):
            os.makedirs(os.path.join(cls.dir, name))
            for i in range(EACH):
                grey = rng.randrange(140, 240) if label == 0 else rng.randrange(10, 110)
                rgb = bytes(min(255, max(0, grey + rng.randrange(-9, 9))) for _ in range(3 * SIDE * SIDE))
                if i % 2:
                    rgb = bytes([grey]) * (3 * SIDE * SIDE)
                with open(os.path.join(cls.dir, name, "%03d.%s" % (i, "jpg" if i % 2 else "png")), "wb") as f:
                    f.write(jpeg(SIDE, SIDE, [grey]) if i % 2 else png(SIDE, SIDE, rgb))
                cls.values.append([rgb[p * 3 + c] / 255 for c in range(3) for p in range(SIDE * SIDE)])
                cls.labels.append(label)

    def push(self, name, folder, *options):
        return subprocess.run([os.path.join(BIN, "shunt"), "push", "dataset", name, folder, *options, "--server",
                               "http://127.0.0.1:%d" % self.s.port], text=True, timeout=180,
                              env={**self.s.env, "SHUNT_KEY": self.key},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def floats(self, normalised):
        """The same pictures as floats, as a user would have had to write them."""
        flat = []
        for v in self.values:
            for c in range(3):
                part = v[c * SIDE * SIDE:(c + 1) * SIDE * SIDE]
                flat += [(x - MEAN[c]) / STD[c] for x in part] if normalised else part
        return st_bytes({"input": ("F32", [len(self.values), 3, SIDE, SIDE], struct.pack("<%df" % len(flat), *flat)),
                         "label": ("I64", [len(self.labels)], struct.pack("<%dq" % len(self.labels), *self.labels))})

    def train(self, dataset, **spec):
        r = self.s.submit(self.key, model="net", version=1, dataset=dataset, eval_dataset=dataset,
                          spec={"evaluation": {"every": 7}, **SPEC, **spec})
        self.assertEqual(r.status, 201, r)
        job = r.json["id"]
        ended = self.s.wait_job(self.key, job)
        self.assertEqual(ended["state"], "SUCCEEDED", ended)
        losses = self.s.job(self.key, job, "/losses").json["losses"]
        self.assertEqual(len(losses), 18)
        # The last evaluation between steps is of pictures too.
        self.assertEqual((ended["evaluation"]["step"], ended["evaluation"]["samples"]), (18, len(self.labels)))
        self.assertAlmostEqual(ended["evaluation"]["loss"], ended["result"]["eval_loss"], places=5)
        return losses, ended["result"]

    def assert_same(self, got, want):
        for a, b in zip(got[0], want[0]):
            self.assertAlmostEqual(a, b, places=5)
        self.assertAlmostEqual(got[1]["eval_loss"], want[1]["eval_loss"], places=5)
        self.assertEqual(got[1]["accuracy"], want[1]["accuracy"])

    def test_bytes_train_as_the_floats_that_they_stand_for(self):
        r = self.push("bytes", self.dir)
        self.assertEqual(r.returncode, 0, r.stdout)
        self.assertIn("48 pictures of 2 classes", r.stdout)
        self.s.push_data(self.key, "floats", self.floats(False))
        self.s.push_data(self.key, "normalised", self.floats(True))
        plain = self.train("bytes")
        self.assert_same(plain, self.train("floats"))
        want = self.train("normalised")
        self.assertNotAlmostEqual(want[0][0], plain[0][0], places=3)
        self.assert_same(self.train("bytes", augment=AUGMENT), want)
        self.assert_same(self.train("floats", augment=AUGMENT), want)

    def test_a_damaged_picture_is_named_and_nothing_is_left(self):
        bad = os.path.join(self.dir, "day", "999.jpg")
        with open(bad, "wb") as f:
            f.write(jpeg(SIDE, SIDE, [90])[:-9])
        try:
            r = self.push("damaged", self.dir)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn("day/999.jpg", r.stdout)
            self.assertEqual(self.s.call("GET", "/api/v1/datasets/damaged", key=self.key).status, 404)
            r = self.push("damaged", self.dir, "--skip-broken")
            self.assertEqual(r.returncode, 0, r.stdout)
            self.assertIn("1 pictures are left out", r.stdout)
            self.assertEqual(self.s.call("GET", "/api/v1/datasets/damaged", key=self.key).json["n_samples"], 48)
        finally:
            os.unlink(bad)

    def test_options_of_other_files_are_refused(self):
        """They would be without effect."""
        file = os.path.join(ROOT, "examples", "digits", "test.safetensors")
        for path, option in ((self.dir, "--label=y"), (file, "--size=8"), (file, "--label=y"), (file, "--tensor=x"),
                             (self.dir, "--tensor=")):
            r = self.push("odd", path, option)
            self.assertEqual(r.returncode, 2, r.stdout)
            self.assertIn(option.split("=")[0], r.stdout)

    def test_a_spec_that_does_not_fit_is_refused_at_once(self):
        self.push("bytes2", self.dir)
        for augment, text in (([{"name": "blur"}], "one of: normalise"),
                              ([{"name": "normalise", "mean": 0.5, "std": 0}], "std"),
                              ([{"name": "normalise", "mean": [1, 2], "std": 1}], "mean"),
                              ([{"name": "crop", "padding": SIDE}], "pixels a side"),
                              (AUGMENT + AUGMENT, "twice")):
            r = self.s.call("POST", "/api/v1/jobs", {"kind": "training", "model": "net", "dataset": "bytes2",
                                                     "spec": {**SPEC, "augment": augment}}, self.key)
            self.assertEqual(r.status, 400, r)
            self.assertIn(text, r.error)
        r = self.s.call("POST", "/api/v1/jobs", {"kind": "training", "model": "net", "dataset": "bytes2", "spec": {
            **SPEC, "batch": 1, "augment": [{"name": "mixup", "alpha": 0.2}]}}, self.key)
        self.assertEqual(r.status, 400, r)
        self.assertIn("mixes the samples of a batch", r.error)

    def outcome(self, job):
        folder = os.path.join(self.s.state, "jobs", str(job))
        with open(os.path.join(folder, "losses.json")) as f:
            return json.load(f), read_st(os.path.join(folder, "final.safetensors"))

    def kill_workers(self):
        old = self.s.workers()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        until("other workers are there", lambda: self.s.workers() and not set(old) & set(self.s.workers()))

    def disturb(self, job, steps, kills):
        """Requests that preempt it, and at two moments all workers die. What is left of kills is for another job."""
        picture = [{"name": "input", "datatype": "FP32", "shape": [1, 3, LARGE, LARGE],
                    "data": [0.5] * (3 * LARGE * LARGE)}]
        rng = random.Random(4)
        while True:
            j = self.s.job(self.key, job).json
            if j["state"] in FINAL:
                return j
            if kills and j["step"] >= kills[0] * steps:
                kills.pop(0)
                self.kill_workers()
            r = self.s.infer(self.key, "large", picture)
            self.assertIn(r.status, (200, 503), r)
            time.sleep(rng.uniform(0, 0.1))

    def test_a_run_from_a_folder_of_jpeg_is_the_same_however_it_is_disturbed(self):
        folder, rng = os.path.join(self.s.dir, "large"), random.Random(9)
        for label in range(4):
            os.makedirs(os.path.join(folder, "class%d" % label))
            for i in range(40):
                greys = [min(255, max(0, rng.randrange(20, 80) + 50 * label)) for _ in range((LARGE // 8) ** 2)]
                with open(os.path.join(folder, "class%d" % label, "%03d.jpg" % i), "wb") as f:
                    f.write(jpeg(LARGE, LARGE, greys))
        r = self.push("folder", folder)
        self.assertEqual(r.returncode, 0, r.stdout)
        self.s.push(self.key, "large", network(), max_batch=8)
        fields = dict(model="large", version=1, dataset="folder", eval_dataset="folder", spec={
            **SPEC, "batch": 16, "epochs": 40, "shuffle_window": 100, "augment": AUGMENT,
            "evaluation": {"every": 100, "best": "accuracy"}, "checkpoint_interval_ms": 200, "publish": False})
        quiet = self.s.submit(self.key, **fields)
        self.assertEqual(quiet.status, 201, quiet)
        q = self.s.wait_job(self.key, quiet.json["id"])
        self.assertEqual((q["state"], q["preemptions"]), ("SUCCEEDED", 0), q)
        losses, final = self.outcome(q["id"])
        self.assertEqual(len(losses), 400)
        self.assertLess(sum(losses[-40:]), 0.8 * sum(losses[:40]))
        kills, preemptions, jobs = [0.25, 0.6], 0, 0
        while kills or preemptions < MIN_PREEMPTIONS:  # a machine that is slow to ask disturbs one less
            job, jobs = self.s.submit(self.key, **fields).json["id"], jobs + 1
            j = self.disturb(job, 400, kills)
            self.assertEqual(j["state"], "SUCCEEDED", j)
            self.assertEqual(self.outcome(job), (losses, final))
            self.assertEqual(j["result"]["accuracy"], q["result"]["accuracy"])
            preemptions += j["preemptions"]
            self.assertLess(jobs, 10, "jobs that were hardly disturbed")


if __name__ == "__main__":
    unittest.main()
