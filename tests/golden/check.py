#!/usr/bin/python3
"""check.py - shunt-run against numbers that another implementation computed.

Without it, a wrong gradient, a wrong epsilon or a folded BatchNorm that is off by a little would go
unnoticed: everything runs, losses fall, and the numbers are wrong.

Needs Debian's python3-numpy and nothing else. GOLDENS names the folder of the golden models
(default: shared/goldens beside the checkout), SHUNT_RUN the program, DEVICE and THREADS the device.

    check.py [model ...]     default: the models of MODELS

Training is checked twice on the cpu: with shunt-run's default, fp64, and at fp32. Ten steps of
resnet_tiny cannot be compared at fp32: some of its units come within 1e-6 of their kink, where
rounding decides on which side they fall, and the trajectories part (a change of the inputs by 1e-7
does the same; NumPy at float32 is off by 4e-2 at step 10). There fp32 is held to the gradients and
to the losses before the first such turn, and the rest is printed for information.
"""
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
DEVICE = os.environ.get("DEVICE") or "cpu"
THREADS = os.environ.get("THREADS") or "2"
MODELS = ["mlp", "lenet_digits", "resnet_tiny", "inception_tiny"]

SENSITIVE = {"resnet_tiny": 2}  # losses that fp32 must match

BOUND_LOGITS = 1e-4  # of the range of the logits
BOUND_LOSS = 1e-3  # relative
BOUND_GRAD = 1e-3  # of each tensor's range
BOUND_FINAL = 2e-3  # of each tensor's range
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

    def __init__(self):
        self.passed = self.failed = 0

    def row(self, model, what, error, bound, note=""):
        good = error <= bound
        self.passed += good
        self.failed += not good
        print(f"  {'ok  ' if good else 'FAIL'} {model:20} {what:38} {error:10.2e}  <= {bound:.0e}  "
              f"{note}", flush=True)

    @staticmethod
    def info(model, what, error, note=""):
        print(f"  --   {model:20} {what:38} {error:10.2e}  (not checked)  {note}", flush=True)

    def broken(self, model, what, text):
        self.failed += 1
        print(f"  FAIL {model:20} {what:38} {text}", flush=True)


def shunt_run(*args):
    """None, or what went wrong."""
    try:
        r = subprocess.run([SHUNT_RUN, *args, "--device", DEVICE, "--threads", THREADS],
                           capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    return None if r.returncode == 0 else f"exit {r.returncode}: {r.stderr.strip()[-300:]}"


def check_eval(checks, model, folder, onnx, tmp):
    inputs, out = os.path.join(folder, "eval.safetensors"), os.path.join(tmp, "out.safetensors")
    wrong = shunt_run("infer", "--model", os.path.join(folder, onnx), "--inputs", inputs,
                      "--outputs", out)
    if wrong:
        checks.broken(model, onnx, wrong)
        return
    checks.row(model, onnx + " logits", error_of_range(load(out)["logits"], load(inputs)["logits"]),
               BOUND_LOGITS)


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


def check_losses(checks, model, what, losses, wanted, n_checked):
    if len(losses) != len(wanted):
        checks.broken(model, what, f"{len(losses)} losses, not {len(wanted)}")
        return
    errors = [abs(a - b) / abs(b) for a, b in zip(losses, wanted)]
    checks.row(model, what + " losses", max(errors[:n_checked]), BOUND_LOSS,
               f"steps 1 to {n_checked}")
    if n_checked < len(errors):
        checks.info(model, what + " losses", max(errors), "all steps")


def check_train(checks, model, folder, onnx, optimizer, precision, tmp):
    with open(os.path.join(folder, f"train_{optimizer}.json"), encoding="utf-8") as f:
        conf = json.load(f)
    what = f"{onnx[6:-5]} {optimizer} {precision}"
    wrong = shunt_run(*train_args(folder, onnx, optimizer, conf, tmp), "--precision", precision)
    if wrong:
        checks.broken(model, what, wrong)
        return
    sensitive = model in SENSITIVE and precision != "auto"
    with open(os.path.join(tmp, "losses.json"), encoding="utf-8") as f:
        check_losses(checks, model, what, json.load(f), conf["losses_float64"],
                     SENSITIVE[model] if sensitive else conf["steps"])
    golden = load(os.path.join(folder, f"train_{optimizer}.safetensors"))
    grad = {k[6:]: v for k, v in golden.items() if k.startswith("grad1/")}
    final = {k[6:]: v for k, v in golden.items() if k.startswith("final/")}
    flat = {k for k, v in grad.items() if np.abs(v).max() < NO_GRADIENT}
    counters = {k for k, v in final.items() if v.dtype == np.int64}  # BatchNorm's batch counter
    state = load(os.path.join(tmp, "state.safetensors"))
    if "dynamo" in onnx and not set(grad) <= set(state):
        return  # the newer exporter renamed initializers: only the losses can be compared
    error, name = worst(load(os.path.join(tmp, "grad.safetensors")), grad, flat)
    checks.row(model, what + " grad1", error, BOUND_GRAD, f"{len(grad)} tensors, worst {name}")
    error, name = worst(state, final, flat | counters)
    note = f"{len(final) - len(counters)} tensors, worst {name}"
    if sensitive:
        checks.info(model, what + " final", error, note)
    else:
        checks.row(model, what + " final", error, BOUND_FINAL, note)


def check_model(checks, model, tmp):
    folder = os.path.join(GOLDENS, model)
    files = sorted(f for f in os.listdir(folder) if f.endswith(".onnx"))
    for onnx in files:
        if onnx.startswith("eval_"):
            check_eval(checks, model, folder, onnx, tmp)
    for onnx in files:
        if onnx.startswith("train_"):
            for optimizer in ("sgd", "adamw"):
                for precision in ("auto", "fp32") if DEVICE == "cpu" else ("auto",):
                    check_train(checks, model, folder, onnx, optimizer, precision, tmp)


def main():
    if not os.path.isdir(GOLDENS):
        if os.environ.get("GOLDENS"):
            sys.exit(f"check.py: there is no folder {GOLDENS}")
        print("skip: the golden models are not beside this checkout (set GOLDENS)")
        print("0 passed, 0 failed, 1 skipped")
        return
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="shunt-golden-") as tmp:
        for model in sys.argv[1:] or MODELS:
            check_model(checks, model, tmp)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
