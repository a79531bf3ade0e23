#!/usr/bin/env python3
"""A model whose body is frozen: what no step writes is copied to the device alone, never from it, and is in no
checkpoint; and a job that is preempted and killed ends as one that nobody disturbs.

Without it: a checkpoint of the last layer would cost the copy and the write of all layers; or a job could go on
with a body that is not there, or with a head of one step and statistics of another.

Usage: test_frozen.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_executor as executor  # noqa: E402
from exec_driver import FINAL, WAIT_S, read_st  # noqa: E402
from test_executor import TEST, TRAIN, spec  # noqa: E402

BODY = ["conv*", "bn*", "fc1*"]
# fc2 and its momentum, and the statistics of the norms, each at a multiple of 256 bytes; then up to a page
STATS = ["bn%d.running_%s" % (i, s) for i in (1, 2) for s in ("mean", "var")]
HEAD = ["fc2.weight", "fc2.bias", "fc2.weight#momentum", "fc2.bias#momentum"]
HEAD_BYTES, ALL_BYTES = 12288, 1200000
COPIED = 'shunt_copied_bytes_total{executor="e0",direction="%s",purpose="%s"}'
COPIES = 'shunt_checkpoints_total{executor="e0",kind="host",outcome="ok"}'


def tensors(path):
    return {name: bytes(t[2]) for name, t in read_st(path).items()}


class Frozen(executor.Trains):
    def train(self, *options, **kw):
        return super().train(*options, frozen=BODY, **kw)

    def from_device(self, metrics):
        """Bytes of each copy of the state to host memory; all have the same."""
        n = sum(metrics.get(COPIED % ("d2h", why), 0) for why in ("state", "checkpoint"))
        self.assertGreater(metrics[COPIES], 2)
        return n / metrics[COPIES]

    def calm(self):
        if not hasattr(Frozen, "undisturbed"):
            Frozen.undisturbed = self.train()
            Frozen.undisturbed.driver.stop()
        return Frozen.undisturbed

    def test_a_checkpoint_costs_what_steps_write(self):
        whole = super().train()
        self.assertGreater(self.from_device(whole.metrics), ALL_BYTES)
        j = self.train()
        self.assertEqual(self.from_device(j.metrics), HEAD_BYTES)
        self.assertGreater(j.metrics[COPIED % ("h2d", "state")], 0.4 * ALL_BYTES)  # the body came once
        with open(os.path.join(j.folder, "log.txt"), encoding="utf-8") as f:
            self.assertIn("of the state steps write 0.0117 MiB", f.read())

    def test_what_is_frozen_is_served_as_it_was(self):
        j = self.train()
        final = tensors(os.path.join(j.folder, "final.safetensors"))
        with open(self.net_train, "rb") as f:
            pushed = f.read()
        self.assertEqual(len(final), 14)
        for name, data in final.items():
            is_frozen = name not in STATS + HEAD
            self.assertEqual(data in pushed, is_frozen, name)
        j.driver.load(3, json.loads(j.result)["package"])
        answer = self.infer(j.driver, 3, 0, 8)[0]
        self.assertGreater(max(answer) - min(answer), 1)

    def test_a_killed_executor_goes_on_from_a_checkpoint_of_the_head(self):
        calm = self.calm()
        d = self.driver("--checkpoint-interval-ms=50")
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(frozen=BODY), TEST)
        d.wait(lambda: len(d.checkpoints) >= 3, WAIT_S, "checkpoints")
        c = d.checkpoints[-1]
        d.proc.kill()
        d.proc.wait()
        path = os.path.join(d.dir, "jobs", c.path)
        self.assertEqual(sorted(tensors(path)), sorted(HEAD + STATS))
        self.assertLess(os.path.getsize(path), 2 * HEAD_BYTES)
        d.scheduler = d.data = None
        d.start()
        folder = d.start_job(5, pk, TRAIN, spec(frozen=BODY), TEST, attempt=2, resume=c.path, resume_step=c.step)
        self.assertEqual(d.wait_job(5, FINAL).phase, "DONE")
        with open(os.path.join(folder, "final.safetensors"), "rb") as f:
            self.assertEqual(f.read(), calm.final)

    def test_a_disturbed_job_ends_bit_identical_and_leaves_with_its_head_alone(self):
        calm = self.calm()
        for options, kills, way in ((("--debug-stop-way=swap",), 0, 2), (("--debug-stop-way=swap",), 2, 2), ((), 2, 0)):
            for j in self.disturbed(20, way, *options, kills=kills):
                self.assertEqual(j.final, calm.final, options)
                self.assertEqual(j.losses, calm.losses, options)
                self.assertEqual(self.from_device(j.metrics), HEAD_BYTES)

    def test_the_best_head_is_kept_beside_the_newest(self):
        """The best of the frozen weights are those there are: they are in no checkpoint twice."""
        every = {"every": 20, "best": "loss", "patience": 8}
        want = self.train(evaluation=every, checkpoint_interval_ms=50)
        self.assertEqual(self.from_device(want.metrics), HEAD_BYTES)
        d = self.driver("--checkpoint-interval-ms=50")
        pk, _ = d.package(self.net_train, "--training")
        over = {"frozen": BODY, "evaluation": every, "checkpoint_interval_ms": 50}
        d.start_job(5, pk, TRAIN, spec(**over), TEST)

        def best():
            """A checkpoint with a best state that is not its own."""
            return next((c for c in d.checkpoints[-1:] if "fc2.bias#best" in
                         tensors(os.path.join(d.dir, "jobs", c.path))), None)
        d.wait(best, WAIT_S, "a checkpoint with the best weights")
        c = best()
        d.proc.kill()
        d.proc.wait()
        kept = sorted(tensors(os.path.join(d.dir, "jobs", c.path)))
        self.assertEqual(kept, sorted(HEAD + STATS + [n + "#best" for n in HEAD[:2] + STATS]))
        d.scheduler = d.data = None
        d.start()
        folder = d.start_job(5, pk, TRAIN, spec(**over), TEST, attempt=2, resume=c.path, resume_step=c.step)
        self.assertEqual(d.wait_job(5, FINAL).phase, "DONE")
        with open(os.path.join(folder, "final.safetensors"), "rb") as f:
            self.assertEqual(f.read(), want.final)


if __name__ == "__main__":
    unittest.main()
