#!/usr/bin/env python3
"""Evaluations between the steps of a job, the best one that is published, and a job that ends early.

Without it: the best could be a step that nobody evaluated, its weights those of another step, the numbers
those of a model with dropout or of a batch's own statistics, a job that is killed could forget what was
best or count an evaluation twice, and a job that gets no better could go on.

Usage: test_evaluation.py [-v] [name ...]
"""
import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import DIGITS, FINAL, Story, System, read_st, until, zoo  # noqa: E402
from test_preempt_identity import dropout_mlp  # noqa: E402

SLOW = {"optimizer": {"name": "sgd", "lr": 0.003, "momentum": 0.9}}


class Evaluation(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2")
        cls.key = cls.s.tenant("lab")
        cls.s.push(cls.key, "digits", zoo("digits-cnn", "training"), max_batch=8)
        cls.s.push(cls.key, "mlp", dropout_mlp(64), max_batch=8)
        for d in ("train", "test"):
            with open(os.path.join(DIGITS, d + ".safetensors"), "rb") as f:
                cls.s.push_data(cls.key, d, f.read())

    @classmethod
    def tearDownClass(cls):
        cls.s.stop()

    def submit(self, evaluation, model="digits", want=201, eval_dataset="test", **spec):
        more = {"eval_dataset": eval_dataset} if eval_dataset else {}
        r = self.s.submit(self.key, model=model, version=1, dataset="train",
                          spec={"epochs": None, "evaluation": evaluation, **spec}, **more)
        self.assertEqual(r.status, want, r)
        return r.json["id"] if want == 201 else r

    def finish(self, job):
        done = self.s.wait_job(self.key, job)
        self.assertEqual(done["state"], "SUCCEEDED", done)
        return done

    def file(self, job, name):
        return os.path.join(self.s.state, "jobs", str(job), name)

    def weights(self, job):
        return {k: bytes(v[2]) for k, v in read_st(self.file(job, "final.safetensors")).items()}

    def losses(self, job):
        with open(self.file(job, "losses.json"), encoding="utf-8") as f:
            return json.load(f)

    def log(self, job):
        r = self.s.job(self.key, job, "/log")
        self.assertEqual(r.status, 200, r)
        return r.raw.decode()

    # ------------------------------------------------------------ stories
    def test_the_last_one_says_what_the_published_model_says(self):
        """Batch norms, dropout, means of weights and a last batch that is not full: the same model."""
        for model, more in (("digits", {}), ("mlp", {"ema": 0.9}), ("digits", {"batch": 50})):
            with self.subTest(model=model, **more):
                job = self.finish(self.submit({"every": 25}, model, steps=60, **more))
                last, result = job["evaluation"], job["result"]
                self.assertEqual((last["step"], last["samples"], result["steps"]), (60, 360, 60))
                for name in ("accuracy", "top5", "f1"):
                    self.assertAlmostEqual(last[name], result[name], delta=0.003, msg=name)
                self.assertAlmostEqual(last["loss"], result["eval_loss"], delta=1e-4)
                self.assertAlmostEqual(last["perplexity"], result["perplexity"], delta=1e-3)
                self.assertNotIn("best", last)
                self.assertNotIn("best_step", result)

    def test_evaluations_change_nothing(self):
        """Losses and weights are those of a job without, to the bit."""
        jobs = [self.submit(e, "mlp", steps=90, seed=5, ema=0.9,
                            optimizer={"name": "adamw", "lr": 0.002}) for e in (None, {"every": 7})]
        for j in jobs:
            self.finish(j)
        self.assertEqual(*(self.weights(j) for j in jobs))
        self.assertEqual(*(self.losses(j) for j in jobs))

    def test_the_best_is_published(self):
        """A rate that spoils the model from step 120 on: the best is one before."""
        spoilt = {"optimizer": {"name": "sgd", "lr": 2.0},
                  "schedule": {"name": "constant", "warmup_steps": 300, "warmup_start": 0}}
        for metric in ("accuracy", "loss"):
            job = self.finish(self.submit({"every": 20, "best": metric}, "mlp", steps=300, seed=3, **spoilt))
            seen, result = job["evaluation"], job["result"]
            self.assertEqual(seen["best_by"], metric)
            self.assertEqual(seen["step"], 300)
            self.assertEqual(seen["best_step"], result["best_step"])
            self.assertLess(seen["best_step"], 300, seen)
            self.assertEqual(seen["best_step"] % 20, 0)
            published = result["accuracy" if metric == "accuracy" else "eval_loss"]
            self.assertAlmostEqual(seen["best"], published, delta=1e-4)
            (self.assertLess if metric == "accuracy" else self.assertGreater)(seen[metric], seen["best"])

    def test_a_job_that_gets_no_better_ends(self):
        spec = {"optimizer": {"name": "sgd", "lr": 0.0}, "steps": 500}
        job = self.submit({"every": 10, "best": "loss", "patience": 3}, "mlp", **spec)
        done = self.finish(job)
        self.assertEqual((done["step"], done["steps"], done["result"]["steps"]), (40, 500, 40))
        self.assertEqual((done["evaluation"]["best_step"], done["evaluation"]["without_gain"]), (10, 3))
        self.assertIn("training stops: 3 evaluations in a row brought no better loss", self.log(job))
        # What is better by no more than min_delta does not count.
        done = self.finish(self.submit({"every": 10, "best": "loss", "patience": 2, "min_delta": 100},
                                       "mlp", steps=500))
        self.assertEqual((done["step"], done["evaluation"]["best_step"]), (30, 30))

    def disturb(self, job):
        """Whether it is suspended at last; else it had ended before: a machine may be slow to ask."""
        def reaches(step):
            return until("step %d or the end" % step, lambda: (lambda j: (
                j["state"] in FINAL or j["step"] >= step) and j)(self.s.job(self.key, job).json))["state"] not in FINAL
        if not reaches(60):
            return False
        for pid in self.s.workers():
            os.kill(pid, signal.SIGKILL)
        if not reaches(140):
            return False
        old = self.s.kill("executor-cpu0")
        self.s.wait_new("executor-cpu0", old)
        if not reaches(230):
            return False
        r = self.s.call("POST", "/api/v1/jobs/%d/suspend" % job, key=self.key)
        return r.status == 200 and self.s.wait_job(self.key, job, FINAL + ("SUSPENDED",))["state"] == "SUSPENDED"

    def test_a_job_that_is_killed_ends_the_same(self):
        """Executor and workers die, it is suspended and goes on: best, step and weights stay."""
        spec = dict(steps=700, seed=9, batch=64, checkpoint_interval_ms=100,
                    evaluation={"every": 25, "best": "loss", "patience": 6}, **SLOW)
        calm = self.submit(**spec)
        want = self.finish(calm)
        for _ in range(10):
            wild = self.submit(**spec)
            if self.disturb(wild):
                break
        else:
            self.fail("no job was caught amid its steps")
        r = self.s.call("POST", "/api/v1/jobs/%d/resume" % wild, key=self.key)
        self.assertEqual(r.status, 200, r)
        got = self.finish(wild)
        self.assertEqual(got["evaluation"], want["evaluation"])
        for field in ("best_step", "steps", "accuracy", "eval_loss"):
            self.assertEqual(got["result"][field], want["result"][field], field)
        self.assertEqual(self.weights(wild), self.weights(calm))

    def test_what_cannot_be_is_refused(self):
        def faults(want, evaluation, **more):
            r = self.submit(evaluation, want=400, steps=10, **more)
            self.assertIn(want, r.error, r)
        faults('"spec.evaluation" needs an "eval_dataset"', {"every": 5}, eval_dataset=None)
        faults("every", {"best": "loss"})
        faults("must be one of: loss, perplexity, accuracy, top5, f1", {"every": 5, "best": "luck"})
        faults('need "best"', {"every": 5, "patience": 2})
        faults('with the loss "cross-entropy" alone', {"every": 5, "best": "f1"}, loss="mse")

    def test_by_command_line(self):
        text = self.s.cli("submit", "--model", "mlp:1", "--dataset", "train", "--eval-dataset", "test",
                          "--steps", "200", "--lr", "0.05", "--eval-every", "20", "--best", "accuracy",
                          "--patience", "50", "--min-delta", "0.001", "-o", "json",
                          env={"SHUNT_KEY": self.key})
        job = self.finish(json.loads(text)["id"])
        self.assertEqual(job["spec"]["evaluation"],
                         {"every": 20, "best": "accuracy", "patience": 50, "min_delta": 0.001})
        self.assertGreater(job["evaluation"]["best"], 0.5)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
