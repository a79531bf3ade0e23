#!/usr/bin/env python3
"""Ready models of architectures that nobody tuned, beside torch.compile: geometric mean, the worst.

PyTorch exports and compiles all at once (../peers/wider.py); then one after the other is timed,
theirs first. What Shunt refuses is a row with its reason.
"""
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time

import lab
import part
from rows import failed, row

MODELS = ("mobilenet_v3_large efficientnet_b0 convnext_tiny vit_b_16 swin_t resnext50_32x4d "
          "regnet_y_1_6gf densenet121 mixer unet distilbert gpt2 bert-large lstm").split()
MEAN, WORST = 0.95, 1.2  # of compiled PyTorch's time
PEER = os.path.join(part.ROOT, "bench", "peers", "wider.py")


class Peer:
    """A process that exports and compiles; go() lets it time."""

    def __init__(self, model, args):
        self.model = model
        self.exported, self.compiled = threading.Event(), threading.Event()
        self.said = []
        self.p = subprocess.Popen(
            [sys.executable, PEER, model, "--folder", lab.FOLDER, "--runs", str(args.runs),
             "--precisions", ",".join(args.precisions), "--batches", ",".join(args.batches)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.p.stderr:
            self.said.append(line)
            if line.strip() in ("exported", "compiled"):
                getattr(self, line.strip()).set()
        self.exported.set()
        self.compiled.set()

    def give_up(self, why):
        """Before the others are timed: who compiles beside them slows them down."""
        self.p.kill()
        self.p.wait()
        self.said = [why]

    def go(self, limit_s):
        """Its rows."""
        stop = threading.Timer(limit_s, self.p.kill)
        stop.start()
        try:
            self.p.stdin.write("go\n")
            self.p.stdin.close()
            return json.loads(self.p.stdout.read().splitlines()[-1])["rows"]
        except (OSError, ValueError, IndexError):
            self.p.kill()
            return [failed("ready", "pytorch compiled", {"model": self.model},
                           " ".join("".join(self.said[-3:]).split()) or "it printed nothing")]
        finally:
            stop.cancel()
            self.p.wait()


def ours(case, runs):
    at = os.path.join(lab.FOLDER, case["model"])
    if not os.path.exists(at + ".onnx"):
        return failed("ready", "shunt", case, "it was not exported")
    try:
        got = json.loads(part.program(
            "shunt-run", "bench", "--device", lab.DEVICE, "--model", at + ".onnx", "--inputs",
            at + ".st", "--batch", case["batch"], "--precision", case["precision"], "--runs", runs,
            "--no-deterministic", "--tune", lab.TUNE, "--ops", limit_s=120))
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        return failed("ready", "shunt", case, e)
    return row("ready", "shunt", case, got["ms"], operations=got["operations"], ops=got["ops"])


def checks(rows):
    """Over all cases that both have."""
    value = {(r["by"], *r["case"].values()): r["value"] for r in rows if "value" in r}
    ratio = {k[1:]: v / value[("pytorch compiled", *k[1:])] for k, v in value.items()
             if k[0] == "shunt" and ("pytorch compiled", *k[1:]) in value}
    if not ratio:
        return []
    mean = math.exp(sum(map(math.log, ratio.values())) / len(ratio))
    worst = max(ratio, key=ratio.get)
    return [{"check": "geometric mean of %d cases over compiled %.3f, at most %g" % (
                 len(ratio), mean, MEAN), "ok": mean <= MEAN},
            {"check": "the worst, %s: %.3f, at most %g" % (
                 " ".join(map(str, worst)), ratio[worst], WORST), "ok": ratio[worst] <= WORST}]


def measure(args, rows):
    """Adds to rows, and shows them."""
    peers = [Peer(m, args) for m in args.models]
    end = time.monotonic() + args.compile_limit
    for peer in peers:
        if not peer.compiled.wait(max(0, end - time.monotonic())):
            peer.give_up("it has not compiled in %g s" % args.compile_limit)
    theirs = (r for peer in peers for r in peer.go(60))
    own = (ours({"model": m, "precision": q, "batch": int(b)}, args.runs)
           for m in args.models for q in args.precisions for b in args.batches)
    for r in itertools.chain(theirs, own):
        rows.append(r)
        part.show(r)


def main():
    p = part.options(__doc__, runs=60)
    p.set_defaults(models=MODELS)
    p.add_argument("--batches", type=lambda s: s.split(","), default=["8"])
    p.add_argument("--compile-limit", type=float, default=300, help="seconds for all to compile")
    args = p.parse_args()
    os.makedirs(lab.FOLDER, exist_ok=True)
    signal.signal(signal.SIGTERM, part.stop)
    rows = []
    try:
        measure(args, rows)
    finally:
        found = checks(rows)
        for c in found:
            part.show(c)
        settings = {**vars(args), "device": part.DEVICE}
        print(json.dumps({"settings": settings, "rows": rows, "checks": found}), flush=True)
    return 1 if any("error" in r for r in rows) or not all(c["ok"] for c in found) else 0


if __name__ == "__main__":
    sys.exit(main())
