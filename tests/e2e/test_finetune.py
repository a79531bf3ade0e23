#!/usr/bin/env python3
"""A fine-tuning does what PyTorch does: 200 steps with a frozen trunk, a warm-up and a schedule, clipping,
accumulation, no decay for some parameters, and a mean of the weights; and one that ends early, at the step at
which PyTorch's does, with the weights that were best.

Without it: a schedule that is a step off, a norm of the wrong gradients, a decay of what should have none
or a trunk that moves a little would train all the same, only to other weights than those of who tried it
in PyTorch first.

The numbers are PyTorch's (tests/golden/finetune.py), in double precision and in single. What single
precision may differ by is what PyTorch's own does, four times, for our sums are in another order.

Usage: test_finetune.py [-v] [name ...]      DEVICE: cpu or cuda
"""
import array
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as ob  # noqa: E402
from system import BIN, System, read_st, st_bytes  # noqa: E402

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "finetune")
DEVICE = os.environ.get("DEVICE") or "cpu"
STEPS = 200


def golden(name):
    return os.path.join(GOLDEN, name)


def floats(st, name):
    return array.array("f", st[name][2])


class Finetune(unittest.TestCase):
    def train(self, spec, precision, model="net", data="data"):
        """Losses, and the state at the end by name; or what went wrong."""
        with tempfile.TemporaryDirectory(prefix="shunt-finetune-") as tmp:
            files = {k: os.path.join(tmp, k) for k in ("spec", "losses", "state")}
            with open(files["spec"], "w", encoding="utf-8") as f:
                json.dump(spec, f)
            r = subprocess.run(
                [os.path.join(BIN, "shunt-run"), "train", "--device",
                 "oracle" if precision == "fp64" else DEVICE, "--precision", precision,
                 "--model", golden(model + ".onnx"), "--inputs", golden(data + ".safetensors"),
                 "--labels", "label", "--batch", str(spec["batch"]), "--spec", files["spec"],
                 "--losses", files["losses"], "--state", files["state"]],
                capture_output=True, text=True, timeout=300, check=False)
            if r.returncode:
                return None, r.stderr
            self.said = r.stdout
            with open(files["losses"], encoding="utf-8") as f:
                return json.load(f), read_st(files["state"])

    def agrees(self, name, precision, files=()):
        with open(golden(name + ".json"), encoding="utf-8") as f:
            want = json.load(f)
        losses, state = self.train(want["spec"], precision, *files)
        self.assertIsNotNone(losses, state)
        self.assertEqual(len(losses), STEPS)
        rounding = max(abs(a - b) for a, b in zip(want["losses"], want["losses_fp32"]))
        self.assertLess(max(abs(a - b) for a, b in zip(losses, want["losses"])), 4 * rounding)
        self.assertLess(losses[-1], 0.7 * losses[0])  # it learns: else all this would say little
        means = read_st(golden(name + "_ema.safetensors"))
        said = self.said
        initial = self.train({**want["spec"], "steps": 1, "optimizer": {"name": "sgd", "lr": 0},
                              "no_decay": False, "schedule": "constant", "accumulate": 1}, precision,
                             *files)[1]
        for param in means:
            ours = floats(state, param + "#ema" if param + "#ema" in state else param)
            for a, b in zip(ours, floats(means, param)):
                self.assertAlmostEqual(a, b, delta=2e-5, msg=param)
        frozen = [p for p in means if p + "#ema" not in state]
        self.assertIn("trunk.0.weight", frozen)
        for param in frozen:
            self.assertEqual(state[param], initial[param], param)
        self.said = said
        return want

    def test_sgd_with_a_warm_up_a_norm_and_three_steps_for_an_update(self):
        self.agrees("sgd", "fp32")

    def test_adamw_with_one_cycle_values_that_are_cut_and_two_steps_for_an_update(self):
        self.agrees("adamw", "fp32")

    def test_a_loss_scale_that_overflows_and_grows_skips_the_updates_that_pytorch_skips(self):
        scale = self.agrees("scaled", "fp32")["scale"]
        said = re.search(r"loss scale (\S+), (\d+) updates skipped", self.said)
        self.assertEqual(float(said[1]), float("%g" % scale))
        self.assertGreater(int(said[2]), 5)

    def test_several_outputs_have_losses_labels_and_weights_of_their_own(self):
        self.agrees("heads", "fp32", ("twins", "twins"))

    def test_from_scratch_parameters_begin_as_in_pytorch(self):
        """Bounds, and the variance of a uniform distribution; the values themselves follow from the seed."""
        spec = {"optimizer": {"name": "sgd", "lr": 0}, "batch": 8, "steps": 1, "init": "random", "seed": 3}
        state = self.train(spec, "fp32")[1]
        self.assertIn("18 drawn, 0 keep their values", self.said)
        bounds = {"trunk.0": 9, "trunk.3": 54, "fc": 32, "head": 16}
        for layer, fan_in in bounds.items():
            for part in ("weight", "bias"):
                got = floats(state, layer + "." + part)
                self.assertLessEqual(max(map(abs, got)), fan_in ** -0.5, layer)
                if len(got) > 50:
                    variance = sum(v * v for v in got) / len(got)
                    self.assertAlmostEqual(variance * 3 * fan_in, 1, delta=0.35, msg=layer)
                    self.assertLess(abs(sum(got) / len(got)), 0.5 * fan_in ** -0.5)
                self.assertGreater(len(set(got)), len(got) - 2)
        for norm in ("trunk.1", "trunk.4", "norm"):
            self.assertEqual(set(floats(state, norm + ".weight")), {1.0})
            self.assertEqual(set(floats(state, norm + ".bias")), {0.0})
        again = self.train({**spec, "batch": 16}, "fp32")[1]
        other = self.train({**spec, "seed": 4}, "fp32")[1]
        kept = self.train({**spec, "init": "version"}, "fp32")[1]
        part = self.train({**spec, "init": {"random": "head.*"}, "frozen": "trunk.*"}, "fp32")[1]
        for name in bounds:
            name += ".weight"
            self.assertEqual(again[name], state[name])
            self.assertNotEqual(other[name], state[name])
            self.assertNotEqual(kept[name], state[name])
            self.assertEqual(part[name], state[name] if name.startswith("head") else kept[name])
        # One step with momentum 0.1 from a mean of 0 and a variance of 1.
        self.assertTrue(all(0.9 <= v < 2 for v in floats(state, "trunk.1.running_var")))
        text = self.train({**spec, "init": {"random": "tail.*"}}, "fp32")[1]
        self.assertIn('"spec.init.random": no parameter is called "tail.*"', text)

    def losses_of(self, spec, **more):
        return self.train({"optimizer": {"name": "sgd", "lr": 0.01}, "batch": 8, "steps": 12, **spec}, "fp32",
                          **more)[0]

    def test_pictures_are_augmented_by_seed_and_step(self):
        every = [{"name": "crop", "padding": 2}, {"name": "flip"}, {"name": "mixup", "alpha": 0.5},
                 {"name": "normalise", "mean": 0.5, "std": 2}]
        plain, all_of_it = self.losses_of({}), self.losses_of({"augment": every})
        self.assertEqual(self.losses_of({"augment": every[::-1]}), all_of_it)
        self.assertNotEqual(self.losses_of({"augment": every, "seed": 1}), all_of_it)
        for one in every:
            self.assertNotEqual(self.losses_of({"augment": [one]}), plain, one)
        still = [{"name": "flip", "probability": 0}, {"name": "mixup", "alpha": 1000}]
        self.assertEqual(self.losses_of({"augment": still[:1]}), plain)
        # Nearly half of each: the loss of the first step is that of mean pictures with both labels.
        mixed = self.losses_of({"augment": still[1:], "shuffle": False, "steps": 1})[0]
        self.assertAlmostEqual(mixed, self.mixed_loss(), delta=0.03)

    def mixed_loss(self):
        """By pictures that are mixed already, once with each of the labels."""
        st = read_st(golden("data.safetensors"))
        x, label = floats(st, "x")[:8 * 64], array.array("q", st["label"][2])[:8]
        rows = [x[i * 64:(i + 1) * 64] for i in range(8)]
        mixed = array.array("f", [(a + b) / 2 for i in range(8) for a, b in zip(rows[i], rows[7 - i])])
        sums = 0
        for labels in (label, label[::-1]):
            with tempfile.TemporaryDirectory(prefix="shunt-finetune-") as tmp:
                path = os.path.join(tmp, "mixed")
                with open(path + ".safetensors", "wb") as f:
                    f.write(st_bytes({"x": ("F32", [8, 1, 8, 8], mixed.tobytes()),
                                      "label": ("I64", [8], array.array("q", labels).tobytes())}))
                sums += self.losses_of({"shuffle": False, "steps": 1}, data=path)[0] / 2
        return sums

    def test_hidden_words_are_learnt_without_labels(self):
        """Sequences that count up: what is hidden follows from its neighbours."""
        words, length, width = 12, 6, 16
        graph = ob.model(
            [ob.node("Gather", ["table", "ids"], ["rows"]), ob.node("Flatten", ["rows"], ["flat"], axis=1),
             ob.node("Gemm", ["flat", "w1", "b1"], ["h"]), ob.node("Relu", ["h"], ["r"]),
             ob.node("Gemm", ["r", "w2", "b2"], ["s"]), ob.node("Reshape", ["s", "shape"], ["logits"])],
            [ob.value("ids", ["N", length], ob.INT64)], [ob.value("logits", ["N", length, words])],
            [ob.tensor("table", [words, width], [0.0] * (words * width)),
             ob.tensor("w1", [length * width, 64], [0.0] * (length * width * 64)), ob.tensor("b1", [64], [0.0] * 64),
             ob.tensor("w2", [64, length * words], [0.0] * (64 * length * words)),
             ob.tensor("b2", [length * words], [0.0] * (length * words)),
             ob.tensor("shape", [3], [-1, length, words], ob.INT64)])
        ids = array.array("q", [(s + i) % 9 + 3 for s in range(72) for i in range(length)])
        hide = {"name": "mask-tokens", "input": "ids", "mask": 1, "vocabulary": words, "special": [0, 2],
                "probability": 0.3}
        spec = {"optimizer": {"name": "adam", "lr": 0.005}, "steps": 400, "init": "random", "augment": [hide]}
        with tempfile.TemporaryDirectory(prefix="shunt-finetune-") as tmp:
            with open(os.path.join(tmp, "words.onnx"), "wb") as f:
                f.write(graph)
            with open(os.path.join(tmp, "words.safetensors"), "wb") as f:
                f.write(st_bytes({"ids": ("I64", [72, length], ids.tobytes())}))
            files = {"model": os.path.join(tmp, "words"), "data": os.path.join(tmp, "words")}
            losses = self.losses_of(spec, **files)
            self.assertGreater(losses[0], 2)
            self.assertLess(sum(losses[-40:]) / 40, 1)
            self.assertEqual(self.losses_of(spec, **files), losses)
            self.assertIn("label", self.train({**spec, "batch": 8, "augment": []}, "fp32", **files)[1])
            wide = {**hide, "vocabulary": words + 1}  # one that may never be drawn in so few steps
            self.assertIn("outside the table of 12",
                          self.train({**spec, "steps": 1, "batch": 8, "augment": [wide]}, "fp32", **files)[1])

    def test_what_augmentation_does_not_suit_is_refused(self):
        for augment, text in (
                ([{"name": "mask-tokens", "input": "ids", "mask": 1, "vocabulary": 4}], 'no input "ids"'),
                ([{"name": "mask-tokens", "input": "x", "mask": 1, "vocabulary": 4}], "not INT64")):
            spec = {"optimizer": {"name": "sgd"}, "batch": 8, "steps": 1, "augment": augment}
            self.assertIn(text, self.train(spec, "fp32")[1])

    def test_from_scratch_it_learns(self):
        spec = {"optimizer": {"name": "adam", "lr": 0.01}, "batch": 8, "steps": 200, "init": "random"}
        losses = self.train(spec, "fp32")[0]
        self.assertGreater(losses[0], 1.2)
        self.assertLess(sum(losses[-12:]) / 12, 0.2)

    def test_gradients_that_are_never_finite_change_nothing(self):
        spec = {"optimizer": {"name": "adam", "lr": 0.01}, "batch": 8, "steps": 20, "loss_scale": 1e30,
                "shuffle": False}
        state = self.train(spec, "fp32")[1]
        self.assertIn("loss scale 1e+30, 20 updates skipped", self.said)
        initial = self.train({**spec, "steps": 1, "optimizer": {"name": "sgd", "lr": 0}, "loss_scale": 0},
                             "fp32")[1]
        self.assertNotIn("scale", self.said)
        for name in initial:
            if "running" not in name:
                self.assertEqual(state[name], initial[name], name)

    @unittest.skipIf(DEVICE != "cpu", "a precision of the cpu's")
    def test_in_double_precision(self):
        self.agrees("sgd", "fp64")
        self.agrees("adamw", "fp64")

    def test_a_name_that_no_parameter_has_is_refused_with_those_there_are(self):
        spec = {"optimizer": {"name": "sgd"}, "steps": 1, "batch": 8}
        for field in ("frozen", "no_decay"):
            text = self.train({**spec, field: ["fc.*", "layer4.*"]}, "fp32")[1]
            self.assertIn('"spec.%s": no parameter is called "layer4.*"; there are trunk.0.weight' % field, text)
        self.assertIn("nothing to train", self.train({**spec, "frozen": "*"}, "fp32")[1])

    @unittest.skipIf(DEVICE != "cpu", "a system of its own is on the cpu")
    def test_a_job_evaluates_each_of_its_heads(self):
        files = {}
        for name in ("twins.onnx", "twins.safetensors"):
            with open(golden(name), "rb") as f:
                files[name] = f.read()
        with open(golden("heads.json"), encoding="utf-8") as f:
            spec = {**json.load(f)["spec"], "ema": 0, "epochs": None}
        with System() as s:
            key = s.tenant("lab")
            s.push(key, "twins", files["twins.onnx"], max_batch=8)
            s.push_data(key, "data", files["twins.safetensors"])
            job = {"model": "twins", "dataset": "data", "eval_dataset": "data"}
            for loss, text in (("mse", 'model \\"twins\\" has 2 outputs (y, z)'),
                               ([*spec["loss"][:1], {**spec["loss"][1], "labels": "label"}], "wants FP32"),
                               ([*spec["loss"][:1], {**spec["loss"][1], "output": "w"}], "it has: y, z")):
                r = s.submit(key, **job, spec={**spec, "loss": loss})
                self.assertEqual(r.status // 100, 4, r)
                self.assertIn(text, r.raw.decode())
            ends = []
            for output in ("y", "z"):
                evaluation = {"every": 50, "best": "accuracy" if output == "y" else "loss", "output": output}
                r = s.submit(key, **job, spec={**spec, "evaluation": evaluation})
                self.assertIn(r.status, (200, 201), r)
                ends.append(s.wait_job(key, r.json["id"]))
                self.assertEqual(ends[-1]["state"], "SUCCEEDED", ends[-1])
            log = s.job(key, r.json["id"], "/log").raw.decode()
        for end, output in zip(ends, ("y", "z")):
            heads = {h["output"]: h for h in end["result"]["heads"]}
            self.assertEqual(list(heads), ["y", "z"])
            self.assertAlmostEqual(end["result"]["eval_loss"], heads["y"]["loss"] + 0.3 * heads["z"]["loss"], places=6)
            self.assertEqual(end["result"]["accuracy"], heads[output]["accuracy"])
            self.assertGreater(heads["y"]["accuracy"], 0.6)
            self.assertIsNone(heads["z"]["accuracy"])
            self.assertLess(heads["z"]["loss"], 0.2)
            self.assertEqual(end["evaluation"]["accuracy"] is None, output == "z")
        self.assertIn("evaluated on 96 samples: output z: loss", log)

    @unittest.skipIf(DEVICE != "cpu", "a system of its own is on the cpu")
    def test_a_job_ends_early_where_pytorch_does(self):
        """Frozen trunk, warm-up, clipping, accumulation, and evaluations on data that is held out."""
        with open(golden("early.json"), encoding="utf-8") as f:
            want = json.load(f)
        files = {}
        for name in ("net.onnx", "data.safetensors", "held.safetensors"):
            with open(golden(name), "rb") as f:
                files[name] = f.read()
        with System() as s:
            key = s.tenant("lab")
            s.push(key, "net", files["net.onnx"], max_batch=8)
            s.push_data(key, "data", files["data.safetensors"])
            s.push_data(key, "held", files["held.safetensors"])
            r = s.submit(key, model="net", dataset="data", eval_dataset="held",
                         spec={**want["spec"], "epochs": None})
            self.assertIn(r.status, (200, 201), r)
            job = s.wait_job(key, r.json["id"])
            self.assertEqual(job["state"], "SUCCEEDED", job)
            log = s.job(key, r.json["id"], "/log").raw.decode()
            folder = os.path.join(s.state, "jobs", str(r.json["id"]))
            with open(os.path.join(folder, "losses.json"), encoding="utf-8") as f:
                losses = json.load(f)
            final = read_st(os.path.join(folder, "final.safetensors"))
        self.assertLess(len(want["losses"]), STEPS)
        self.assertEqual(len(losses), len(want["losses"]))
        rounding = max(abs(a - b) for a, b in zip(want["losses"], want["losses_fp32"]))
        self.assertLess(max(abs(a - b) for a, b in zip(losses, want["losses"])), 4 * rounding)
        said = [[int(step), float(loss)] for step, loss in
                re.findall(r"step (\d+) evaluated on 44 samples: accuracy [0-9.e-]+, loss ([0-9.e-]+);", log)]
        self.assertEqual([step for step, _ in said], [step for step, _ in want["seen"]])
        for (_, a), (_, b) in zip(said, want["seen"]):
            self.assertAlmostEqual(a, b, delta=6e-6)  # the log has six digits
        best = min(want["seen"], key=lambda x: x[1])
        self.assertEqual((job["result"]["best_step"], job["result"]["steps"]), (best[0], len(want["losses"])))
        rounding = max(abs(a[1] - b[1]) for a, b in zip(want["seen"], want["seen_fp32"]))
        self.assertAlmostEqual(job["evaluation"]["best"], best[1], delta=4 * rounding)
        self.assertAlmostEqual(job["result"]["eval_loss"], best[1], delta=4 * rounding)
        weights = read_st(golden("early_best.safetensors"))
        for param in weights:
            for a, b in zip(floats(final, param), floats(weights, param)):
                self.assertAlmostEqual(a, b, delta=2e-6, msg=param)

    @unittest.skipIf(DEVICE != "cpu", "a system of its own is on the cpu")
    def test_a_job_leaves_the_mean_of_the_weights_and_rates_that(self):
        with open(golden("sgd.json"), encoding="utf-8") as f:
            want = json.load(f)
        with open(golden("net.onnx"), "rb") as f:
            net = f.read()
        with open(golden("data.safetensors"), "rb") as f:
            data = f.read()
        with System() as s:
            key = s.tenant("lab")
            s.push(key, "net", net, max_batch=8)
            s.push_data(key, "data", data)
            r = s.submit(key, model="net", dataset="data", eval_dataset="data",
                         spec={**want["spec"], "epochs": None})
            self.assertIn(r.status, (200, 201), r)
            job = s.wait_job(key, r.json["id"])
            self.assertEqual(job["state"], "SUCCEEDED", job)
            folder = os.path.join(s.state, "jobs", str(r.json["id"]))
            with open(os.path.join(folder, "losses.json"), encoding="utf-8") as f:
                losses = json.load(f)
            final = read_st(os.path.join(folder, "final.safetensors"))
        self.assertLess(max(abs(a - b) for a, b in zip(losses, want["losses"])), 1e-6)
        means = read_st(golden("sgd_ema.safetensors"))
        self.assertFalse([k for k in final if "#" in k])
        for param in means:
            for a, b in zip(floats(final, param), floats(means, param)):
                self.assertAlmostEqual(a, b, delta=2e-5, msg=param)
        rated = job["result"]
        self.assertGreater(rated["accuracy"], 0.7, rated)
        self.assertGreater(rated["f1"], 0.6, rated)
        self.assertAlmostEqual(rated["perplexity"], 2.718281828459045 ** rated["eval_loss"], delta=1e-4)
        self.assertIsNone(rated["top5"])  # there are five classes


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
