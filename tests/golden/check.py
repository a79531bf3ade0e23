#!/usr/bin/python3
"""check.py - shunt-run against numbers that another implementation computed.

Without it, a wrong gradient, a wrong epsilon or a folded BatchNorm that is off by a little would go
unnoticed: everything runs, losses fall, and the numbers are wrong.

Needs Debian's python3-numpy and nothing else. GOLDENS names the folder of the golden models
(default: shared/goldens beside the checkout), SHUNT_RUN the program, DEVICE and THREADS the device.

    check.py [--device cpu|cuda] [--precision P,...] [--json FILE] [model ...]

By default all of MODELS in every precision of the device: see PRECISIONS and BOUNDS.

Training is checked twice on the cpu: in fp64, and at fp32. Ten steps of resnet_tiny cannot be
compared at fp32: some of its units come within 1e-6 of their kink, where rounding decides on which
side they fall, and the trajectories part (a change of the inputs by 1e-7 does the same; NumPy at
float32 is off by 4e-2 at step 10). There fp32 and what is coarser is held to the gradients and to
the losses before the first such turn, and the rest is printed for information. The same holds for
gradients and final states in the coarser precisions, whose losses alone have bounds.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    sys.exit("check.py needs numpy: apt-get install python3-numpy, and run it with /usr/bin/python3")

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
GOLDENS = os.environ.get("GOLDENS") or os.path.join(ROOT, "..", "shared", "goldens")
SHUNT_RUN = os.environ.get("SHUNT_RUN") or os.path.join(ROOT, "build", "bin", "shunt-run")
THREADS = os.environ.get("THREADS") or "2"
MODELS = ["mlp", "lenet_digits", "resnet_tiny", "inception_tiny", "bert_tiny", "mobilenet_v3_small"]

SENSITIVE = {"resnet_tiny": 2}  # losses that must match in all but fp64
# Losses that can match at all. This exporter left out biases that start as zeros, so other parameters
# are trained than PyTorch trained.
OTHER_PARAMETERS = {("bert_tiny", "train_dynamo18.onnx"): 1}

PRECISIONS = {"cpu": {"infer": ["fp32"], "train": ["fp64", "fp32"]},
              "cuda": {"infer": ["fp32", "tf32", "fp16", "bf16"],
                       "train": ["fp32", "tf32", "bf16"]}}
# logits: of their range; loss: relative; grad and final: of each tensor's range, None: not bounded
BOUNDS = {("cpu", "fp64"): {"loss": 1e-3, "grad": 1e-3, "final": 2e-3},
          ("cpu", "fp32"): {"logits": 1e-4, "loss": 1e-3, "grad": 1e-3, "final": 2e-3},
          ("cuda", "fp32"): {"logits": 1e-3, "loss": 2e-3, "grad": 1e-3, "final": 2e-3},
          ("cuda", "tf32"): {"logits": 1e-2, "loss": 2e-2, "grad": None, "final": None},
          ("cuda", "fp16"): {"logits": 3e-2, "loss": 2e-2, "grad": None, "final": None},
          ("cuda", "bf16"): {"logits": 3e-2, "loss": 2e-2, "grad": None, "final": None}}
# PyTorch's own autocast is off by 2.1e-2 at the second step and 2.7e-2 at the tenth (autocast.py).
LOSS_BOUNDS = {("resnet_tiny", "sgd", "bf16"): 3e-2}
NO_GRADIENT = 1e-12  # below this everywhere, rounding decides what Adam does

DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32,
          "U8": np.uint8, "BOOL": np.bool_}


def load(path):
    """Tensors of a safetensors file by name."""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        a, b = t["data_offsets"]
        raw = np.frombuffer(data[8 + n + a:8 + n + b], dtype=DTYPES[t["dtype"]])
        out[name] = raw.reshape(t["shape"])
    return out


def error_of_range(got, want):
    """Largest difference over the range of the wanted tensor."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    if got.shape != want.shape:
        return float("inf")
    span = float(want.max() - want.min()) if want.size else 0.0
    if span == 0.0:  # one element, or a constant: its size is the only scale there is
        span = max(float(np.abs(want).max()) if want.size else 0.0, 1e-30)
    diff = np.abs(got - want)
    return float("inf") if np.isnan(diff).any() else float(diff.max()) / span


class Checks:
    """Rows of a table, and how many failed."""

    def __init__(self, device):
        self.device = device
        self.passed = self.failed = 0
        self.rows = []

    def row(self, model, what, error, bound, note=""):
        """A bound of None: for information."""
        good = bound is None or error <= bound
        self.passed += good and bound is not None
        self.failed += not good
        sign = "--  " if bound is None else "ok  " if good else "FAIL"
        limit = "(not checked)" if bound is None else f"<= {bound:.0e}"
        print(f"  {sign} {model:20} {what:38} {error:10.2e}  {limit}  {note}", flush=True)
        self.keep(model, what, error=error, bound=bound, ok=good)

    def broken(self, model, what, text):
        self.failed += 1
        print(f"  FAIL {model:20} {what:38} {text}", flush=True)
        self.keep(model, what, wrong=text, ok=False)

    def keep(self, model, what, **more):
        self.rows.append({"model": model, "check": what, **more})

    def shunt_run(self, *args):
        """None, or what went wrong."""
        try:
            device = "oracle" if "fp64" in args else self.device  # the cpu device in double
            r = subprocess.run([SHUNT_RUN, *args, "--device", device, "--threads", THREADS],
                               capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as e:
            return str(e)
        return None if r.returncode == 0 else f"exit {r.returncode}: {r.stderr.strip()[-300:]}"


def check_eval(checks, model, folder, onnx, precision, tmp):
    inputs, out = os.path.join(folder, "eval.safetensors"), os.path.join(tmp, "out.safetensors")
    what = f"{onnx[:-5]} {precision} logits"
    wrong = checks.shunt_run("infer", "--model", os.path.join(folder, onnx), "--inputs", inputs,
                             "--outputs", out, "--precision", precision)
    if wrong:
        checks.broken(model, what, wrong)
        return
    checks.row(model, what, error_of_range(load(out)["logits"], load(inputs)["logits"]),
               BOUNDS[checks.device, precision]["logits"])


def worst(got, want, skip):
    """Largest error by tensor; a tensor that is missing is infinitely wrong."""
    worst_error, worst_name = 0.0, ""
    for name, w in want.items():
        if name in skip:
            continue
        e = error_of_range(got[name], w) if name in got else float("inf")
        if e >= worst_error:
            worst_error, worst_name = e, name
    return worst_error, worst_name


def train_args(folder, onnx, optimizer, conf, tmp):
    args = ["train", "--model", os.path.join(folder, onnx),
            "--inputs", os.path.join(folder, "eval.safetensors"),
            "--labels", os.path.join(folder, f"train_{optimizer}.safetensors") + ":label",
            "--loss", "cross-entropy", "--optimizer", optimizer, "--lr", repr(conf["lr"]),
            "--weight-decay", repr(conf["weight_decay"]), "--steps", str(conf["steps"]),
            "--losses", os.path.join(tmp, "losses.json"),
            "--gradients", os.path.join(tmp, "grad.safetensors"),
            "--state", os.path.join(tmp, "state.safetensors")]
    if optimizer == "sgd":
        args += ["--momentum", repr(conf["momentum"])]
    else:
        args += ["--beta1", repr(conf["betas"][0]), "--beta2", repr(conf["betas"][1]),
                 "--eps", repr(conf["eps"])]
    return args


def check_losses(checks, model, what, losses, wanted, bound, n_checked):
    if len(losses) != len(wanted):
        checks.broken(model, what, f"{len(losses)} losses, not {len(wanted)}")
        return
    errors = [abs(a - b) / abs(b) for a, b in zip(losses, wanted)]
    checks.row(model, what + " losses", max(errors[:n_checked]), bound, f"steps 1 to {n_checked}")
    if n_checked < len(errors):
        checks.row(model, what + " losses", max(errors), None, "all steps")


def check_train(checks, model, folder, onnx, optimizer, precision, tmp):
    with open(os.path.join(folder, f"train_{optimizer}.json"), encoding="utf-8") as f:
        conf = json.load(f)
    what = f"{onnx[6:-5]} {optimizer} {precision}"
    wrong = checks.shunt_run(*train_args(folder, onnx, optimizer, conf, tmp), "--precision",
                             precision)
    if wrong:
        checks.broken(model, what, wrong)
        return
    bounds = BOUNDS[checks.device, precision]
    sensitive = model in SENSITIVE and precision != "fp64"
    n_losses = OTHER_PARAMETERS.get((model, onnx), conf["steps"])
    with open(os.path.join(tmp, "losses.json"), encoding="utf-8") as f:
        check_losses(checks, model, what, json.load(f), conf["losses_float64"],
                     LOSS_BOUNDS.get((model, optimizer, precision), bounds["loss"]),
                     SENSITIVE[model] if sensitive else n_losses)
    golden = load(os.path.join(folder, f"train_{optimizer}.safetensors"))
    grad = {k[6:]: v for k, v in golden.items() if k.startswith("grad1/")}
    final = {k[6:]: v for k, v in golden.items() if k.startswith("final/")}
    flat = {k for k, v in grad.items() if np.abs(v).max() < NO_GRADIENT}
    counters = {k for k, v in final.items() if v.dtype == np.int64}  # BatchNorm's batch counter
    state = load(os.path.join(tmp, "state.safetensors"))
    if "dynamo" in onnx and not set(grad) <= set(state):
        return  # the newer exporter renamed initializers: only the losses can be compared
    error, name = worst(load(os.path.join(tmp, "grad.safetensors")), grad, flat)
    checks.row(model, what + " grad1", error, bounds["grad"], f"{len(grad)} tensors, worst {name}")
    error, name = worst(state, final, flat | counters)
    checks.row(model, what + " final", error, None if sensitive else bounds["final"],
               f"{len(final) - len(counters)} tensors, worst {name}")


def check_model(checks, model, wanted, tmp):
    """wanted: precisions, or None for all."""
    folder = os.path.join(GOLDENS, model)
    files = sorted(f for f in os.listdir(folder) if f.endswith(".onnx"))
    for onnx in files:
        form = "infer" if onnx.startswith("eval_") else "train"
        for precision in PRECISIONS[checks.device][form]:
            if wanted and precision not in wanted:
                continue
            if form == "infer":
                check_eval(checks, model, folder, onnx, precision, tmp)
                continue
            for optimizer in ("sgd", "adamw"):
                check_train(checks, model, folder, onnx, optimizer, precision, tmp)


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--device", default=os.environ.get("DEVICE") or "cpu", choices=PRECISIONS)
    p.add_argument("--precision", help="some of them, with commas; default: all of the device")
    p.add_argument("--json", help="file to write the results to as well")
    p.add_argument("models", nargs="*", help="default: " + " ".join(MODELS))
    args = p.parse_args()
    args.precision = args.precision.split(",") if args.precision else None
    known = {x for form in PRECISIONS[args.device].values() for x in form}
    if args.precision and not set(args.precision) <= known:
        p.error(f"the precisions of {args.device} are {' '.join(sorted(known))}")
    return args


def main():
    args = options()
    if not os.path.isdir(GOLDENS):
        if os.environ.get("GOLDENS"):
            sys.exit(f"check.py: there is no folder {GOLDENS}")
        print("skip: the golden models are not beside this checkout (set GOLDENS)")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    checks = Checks(args.device)
    with tempfile.TemporaryDirectory(prefix="shunt-golden-") as tmp:
        for model in args.models or MODELS:
            check_model(checks, model, args.precision, tmp)
    print(f"{checks.passed} passed, {checks.failed} failed")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"device": args.device, "passed": checks.passed, "failed": checks.failed,
                       "checks": checks.rows}, f, indent=1)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
