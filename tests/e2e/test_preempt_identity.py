#!/usr/bin/env python3
"""A training job that is stopped in every way, and killed, ends as if nobody had touched it.

Each job runs twice on systems of their own: undisturbed, and while requests of three sizes preempt it
(the smallest fits beside it, the middle one takes its workspace, the largest its state too), two of its
workers and the executor are killed. Losses, evaluations between steps and the parameters that were best
must be the same to the bit.

Without it: a step could be lost or done twice, a batch drawn twice, dropout drawn anew after a resume,
a checkpoint taken from the middle of an update - and training would still look as if it worked.

Usage: test_preempt_identity.py [-v] [name ...]      SHUNT_TEST_SEED: other moments of disturbance
"""
import json
import os
import random
import re
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as ob  # noqa: E402
from clients import Client, Refused, unpack  # noqa: E402
from system import DIGITS, FINAL, System, read_st, until, zoo  # noqa: E402

BLOCK = 2 << 20
with open("/proc/cpuinfo", encoding="utf-8") as f:
    IMAGE = 36 if " avx512f" in f.read() else 23  # blocks; with AVX-512 some kernels are stored transformed
# The pool just holds ResNet-18 with the workspace of batch 8: its image + 16 blocks. Batch 4 takes 8, which
# leaves 8: less than either job's workspace and state by more than what kernels differ in by processor.
POOL = (IMAGE + 16) * BLOCK
LIMIT_S = 400
WAYS = ("pause", "drop", "swap")
# What each job has to go through. The state of adamw, with means and sums, leaves no room for batch 4 beside
# it: it is dropped by chance alone, and swapped.
STOPS = {"sgd": WAYS, "adamw": ("pause", "swap")}
MIN_PREEMPTIONS = 20
MAX_JOBS = 6  # of each kind, until all were stopped so often together
ENOUGH = 100  # requests, 20 of each size; the rest of the job is for machines that are slow to ask
BURST = (("digits", 1), ("digits", 8), ("resnet18", 1), ("resnet18", 4), ("resnet18", 8))


def dropout_mlp(width=1024, ratio=0.3):
    """x [N,1,8,8] -> logits [N,10]; 13 MB of state with adamw, so that swapping is a copy worth the name."""
    rng = random.Random(5)

    def dense(name, n_in, n_out):
        scale = (2 / n_in) ** 0.5
        return [ob.tensor(name + ".weight", [n_in, n_out],
                          [rng.uniform(-scale, scale) for _ in range(n_in * n_out)]),
                ob.tensor(name + ".bias", [n_out], [0.0] * n_out)]

    def gemm(name, x):
        return ob.node("Gemm", [x, name + ".weight", name + ".bias"], [name])

    def drop(x, y):
        return ob.node("Dropout", [x, "ratio", "training"], [y])
    return ob.model([ob.node("Flatten", ["x"], ["flat"], axis=1),
                     gemm("fc1", "flat"), ob.node("Relu", ["fc1"], ["r1"]), drop("r1", "d1"),
                     gemm("fc2", "d1"), ob.node("Relu", ["fc2"], ["r2"]), drop("r2", "d2"),
                     gemm("fc3", "d2"), ob.node("Identity", ["fc3"], ["logits"])],
                    [ob.value("x", ["N", 1, 8, 8])], [ob.value("logits", ["N", 10])],
                    [*dense("fc1", 64, width), *dense("fc2", width, width), *dense("fc3", width, 10),
                     ob.tensor("ratio", [], [ratio]), ob.tensor("training", [], [], 9, b"\1")])


JOBS = {
    "sgd": dict(model="digits", dataset="train", eval_dataset="test", spec=dict(
        optimizer={"name": "sgd", "lr": 0.02, "momentum": 0.9}, batch=200, steps=400, epochs=None,
        augment=[{"name": "crop", "padding": 1}, {"name": "flip", "probability": 0.1}, {"name": "mixup", "alpha": 0.1}],
        evaluation={"every": 40, "best": "accuracy"}, seed=7, checkpoint_interval_ms=300)),
    "adamw": dict(model="mlp", dataset="train", eval_dataset="test", spec=dict(
        optimizer={"name": "adamw", "lr": 0.0005, "weight_decay": 0.01}, batch=32, steps=600,
        schedule={"name": "one-cycle"}, clip_norm=1, accumulate=3, ema=0.99, no_decay=True,
        loss_scale={"init": 2.0 ** 68, "growth": 4, "backoff": 0.25, "interval": 11},
        frozen="fc3.bias", evaluation={"every": 75, "best": "loss", "patience": 9}, epochs=None, seed=11, checkpoint_interval_ms=300)),
}


class Lab:
    """A system with the models and data of this story."""

    def __init__(self, models):
        self.s = System("--pool-bytes=%d" % POOL, "--workers=3", "--copy-gb-per-s=4")
        try:
            self.key = self.s.tenant("lab")
            for name, onnx in models.items():
                self.s.push(self.key, name, onnx, max_batch=8)
            for name in ("train", "test"):
                with open(os.path.join(DIGITS, name + ".safetensors"), "rb") as f:
                    self.s.push_data(self.key, name, f.read())
            self.client = Client(self.s.port, self.key)
            self.inputs = self.make_inputs()
        except BaseException:
            self.s.failed = True
            self.s.stop()
            raise

    def stop(self):
        self.client.close()
        self.s.stop()

    @staticmethod
    def models():
        return {"digits": zoo("digits-cnn", "training"), "mlp": dropout_mlp(), "resnet18": zoo("resnet18")}

    @staticmethod
    def make_inputs():
        digits = read_st(os.path.join(DIGITS, "test.safetensors"))["x"][2]
        pixels = random.Random(3).randbytes(3 * 224 * 224 * 8)
        image = b"".join(b"\0\0" + pixels[i:i + 1] + b"\x3f" for i in range(len(pixels)))  # 0.5 to 1
        return {"digits": ([1, 8, 8], digits), "resnet18": ([3, 224, 224], image)}

    def infer(self, model, batch):
        shape, raw = self.inputs[model]
        n = 4 * batch
        for d in shape:
            n *= d
        # Version 1: a job's end makes a new version of the model.
        return self.client.infer(model + "/versions/1",
                                 {"x": ("FP32", [batch, *shape], raw[:n])})["logits"][2]

    def submit(self, name):
        r = self.s.submit(self.key, **JOBS[name])
        assert r.status in (200, 201), r
        return r.json["id"]

    def outcome(self, job):
        folder = os.path.join(self.s.state, "jobs", str(job))
        with open(os.path.join(folder, "losses.json")) as f:
            return json.load(f), read_st(os.path.join(folder, "final.safetensors"))

    def executor_log(self, event):
        with open(os.path.join(self.s.state, "log", "executor-cpu0.log"), errors="replace") as f:
            return [x for x in f if re.search(r"\bev=" + event + r"\b", x)]


def cpu_ns(pid):
    """Time on a processor, all threads."""
    total = 0
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task)) as f:
                total += int(f.read().split()[0])
    except (OSError, ValueError):
        pass
    return total


class Storm:
    """Disturbs one job: until it has ended, or was killed in all ways and disturbed often enough."""

    def __init__(self, lab, job, name, reference):
        self.lab, self.job, self.reference = lab, job, reference
        self.steps = JOBS[name]["spec"]["steps"]
        self.rng = random.Random("%s %s" % (name, os.environ.get("SHUNT_TEST_SEED", "1")))
        self.ways = dict.fromkeys(WAYS, 0)
        self.redone = self.kills = self.pauses_killed = self.requests = 0
        self.wrong = []
        self.base = self.counters()
        self.rewinds = len(lab.executor_log("job.rewind"))

    def counters(self):
        m = self.lab.s.metrics("executor-cpu0")
        got = {w: sum(v for k, v in m.items()
                      if k.startswith("shunt_preemptions_total{") and 'way="%s"' % w in k) for w in WAYS}
        got["redone"] = sum(v for k, v in m.items() if k.startswith("shunt_train_steps_redone_total"))
        return got

    def collect(self):
        now = self.counters()
        for w in WAYS:
            self.ways[w] += now[w] - self.base[w]
        self.redone += now["redone"] - self.base["redone"]
        self.base = now

    def state(self):
        r = self.lab.s.job(self.lab.key, self.job)
        assert r.status == 200, r
        return r.json

    def request(self, model, batch):
        got = until("%s answers" % model, lambda: self.answer(model, batch))
        self.requests += 1
        want = self.reference[model, batch]
        if got != want:
            a, b = unpack("FP32", got), unpack("FP32", want)
            self.wrong.append("request %d, %s, batch %d: %d of %d values, at most %g; at step %d"
                              % (self.requests, model, batch, sum(x != y for x, y in zip(a, b)), len(b),
                                 max(abs(x - y) for x, y in zip(a, b)), self.state()["step"]))

    def training_worker(self):
        """While no request is under way, the one that computes; 0 if that is not clear."""
        before = {p: cpu_ns(p) for p in self.lab.s.workers()}
        time.sleep(0.06)
        used = sorted((cpu_ns(p) - n, p) for p, n in before.items())
        clear = len(used) > 1 and used[-1][0] > 4e6 and used[-1][0] > 8 * used[-2][0]
        return used[-1][1] if clear else 0

    def find_training_worker(self):
        def found():
            assert self.state()["state"] not in FINAL, "it ended before it was disturbed"
            return self.training_worker()
        return until("one worker computes", found, every_s=0.01)

    def kill_worker(self):
        pid = self.find_training_worker()
        time.sleep(self.rng.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        self.kills += 1
        until("the job goes back to a checkpoint", lambda: len(self.lab.executor_log("job.rewind"))
              >= self.rewinds + self.kills)

    def kill_paused_worker(self):
        """It dies while a request has the device: what it held may be in the middle of an update."""
        pid = self.find_training_worker()
        before = len(self.lab.executor_log("job.rewind"))
        killer = threading.Timer(self.rng.uniform(0.01, 0.03), os.kill, (pid, signal.SIGKILL))
        killer.start()
        self.request("resnet18", 1)
        killer.join()
        self.pauses_killed += 1
        time.sleep(0.3)
        self.rewinds += len(self.lab.executor_log("job.rewind")) - before

    def kill_executor(self):
        self.collect()
        s = self.lab.s
        workers = s.workers()
        old = s.kill("executor-cpu0")
        s.wait_new("executor-cpu0", old)
        until("the workers of a dead executor end", lambda: not any(map(cpu_ns, workers)))
        until("the job runs again", lambda: self.state()["state"] in FINAL + ("RUNNING",))
        for model in self.lab.inputs:
            until(model + " is loaded again", lambda m=model: self.is_served(m))
        self.base = dict.fromkeys(self.base, 0)

    def answer(self, model, batch):
        """None: asked to try again; a leader may lose its lease on a machine that stands still."""
        try:
            return self.lab.infer(model, batch)
        except Refused as e:
            assert e.status == 503, e
            return None

    def is_served(self, model):
        return self.answer(model, 1) is not None

    def run(self):
        plan = [(0.1, self.kill_worker), (0.22, self.kill_executor), (0.34, self.kill_paused_worker),
                (0.46, self.kill_worker)]
        todo = list(BURST)
        end = time.monotonic() + LIMIT_S
        while True:
            j = self.state()
            if j["state"] in FINAL:
                self.collect()
                return j
            assert time.monotonic() < end, j
            if plan and j["step"] >= plan[0][0] * self.steps:
                plan.pop(0)[1]()
            if not todo:
                todo = self.rng.sample(BURST, len(BURST))
            if plan or self.requests < ENOUGH:
                self.request(*todo.pop())
            time.sleep(self.rng.uniform(0, 0.12))


class PreemptIdentity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        models = Lab.models()
        cls.quiet, cls.lab = cls.start(models), cls.start(models)
        cls.reference = {(m, b): cls.quiet.infer(m, b) for m, b in BURST}
        # It trains while the storms go on; the order is that of the tests.
        cls.undisturbed = {name: cls.quiet.submit(name) for name in sorted(JOBS)}

    @classmethod
    def start(cls, models):
        lab = Lab(models)
        cls.addClassCleanup(lab.stop)
        return lab

    def storm(self, name):
        """Where a machine is slow to ask, a job ends before it was stopped often enough: then there is another."""
        ways, n = dict.fromkeys(WAYS, 0), 0
        while n < MAX_JOBS and (sum(ways.values()) < MIN_PREEMPTIONS or not all(ways[w] for w in STOPS[name])):
            n += 1
            for way, times in self.disturb(name).items():
                ways[way] += times
        self.assertGreaterEqual(sum(ways.values()), MIN_PREEMPTIONS, "of %d jobs" % n)
        for way in STOPS[name]:
            self.assertGreaterEqual(ways[way], 1, ways)

    def disturb(self, name):
        lab = self.lab
        job = lab.submit(name)
        until("the job runs", lambda: lab.s.job(lab.key, job).json["state"] == "RUNNING")
        storm = Storm(lab, job, name, self.reference)
        try:
            j = storm.run()
            self.compare(name, job, j, storm)
        except BaseException:
            lab.s.failed = True
            raise
        finally:
            print("%s: %d requests, stopped %s, %d steps redone, %d workers killed, %d of them paused"
                  % (name, storm.requests, {w: int(n) for w, n in storm.ways.items()}, storm.redone,
                     storm.kills + storm.pauses_killed, storm.pauses_killed))
        return storm.ways

    def compare(self, name, job, j, storm):
        steps = JOBS[name]["spec"]["steps"]
        q = self.quiet.s.wait_job(self.quiet.key, self.undisturbed[name], limit_s=LIMIT_S)
        self.assertEqual((q["state"], q["preemptions"]), ("SUCCEEDED", 0), q)
        losses, final = self.quiet.outcome(q["id"])
        self.assertEqual(j["state"], "SUCCEEDED", j)
        self.assertEqual(storm.wrong, [], "replies that differ from those of the quiet system")
        self.assertEqual(storm.kills, 2)
        got_losses, got_final = self.lab.outcome(job)
        self.assertEqual(len(losses), steps)
        self.assertEqual(len(got_losses), steps)
        at = [i for i in range(steps) if got_losses[i] != losses[i]]
        self.assertEqual(at[:5], [], "first steps whose loss differs; %d in all" % len(at))
        self.assertEqual(sorted(got_final), sorted(final))
        self.assertEqual([k for k in final if got_final[k] != final[k]], [], "tensors that differ")
        self.assertEqual(j["result"]["accuracy"], q["result"]["accuracy"])
        self.assertEqual(j["evaluation"], q["evaluation"])

    def test_sgd_with_momentum_and_running_statistics(self):
        self.storm("sgd")

    def test_adamw_with_dropout(self):
        self.storm("adamw")


if __name__ == "__main__":
    unittest.main()
