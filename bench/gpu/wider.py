#!/usr/bin/env python3
"""Architectures that nobody tuned, beside torch.compile: geometric mean, the worst.

Ready models, or with --training steps in a row, as train.py takes them. PyTorch exports and
compiles all at once (../peers/wider.py), each case in a process; then one after the other is timed,
theirs first. --autotune N: also as max-autotune makes it, as far as that ends within the limit; N at a
time, since each tries hundreds of kernels; then the faster of the two counts. What Shunt refuses is a row
with its reason. With --alone PyTorch only exports, and only what is not there: cold.py and warm.py take
the files too.
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
          "regnet_y_1_6gf densenet121 mixer unet distilbert gpt2 bert-large lstm dlrm").split()
UNTRAINED = ("unet", "gpt2")  # no classes
MEAN, WORST = 0.95, 1.2              # of compiled PyTorch's time
TRAIN_MEAN, TRAIN_WORST = 1.0, 0.85  # of its throughput
COMPILED, AUTOTUNED = "pytorch compiled", "pytorch autotuned"
MODE = {COMPILED: "reduce-overhead", AUTOTUNED: "max-autotune"}  # of torch.compile
PEER = os.path.join(part.ROOT, "bench", "peers", "wider.py")


def what_of(args):
    return "train" if args.training else "ready"


def file_of(model, args):
    """Without its ending: .onnx, and .st, which is written after it."""
    return os.path.join(lab.FOLDER, model + ("-training" if args.training else ""))


def gpu_of(model, args):
    return args.models.index(model) % args.gpus


def seen(gpu):
    """The environment of a program that sees this one alone, of those that we see."""
    ours = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ours.split(",")[gpu] if ours else str(gpu)}


def last(said):
    return " ".join("".join(said[-3:]).split())


class Process:
    """Of PyTorch; what it says on standard error is kept."""

    def __init__(self, model, args, *more):
        self.model, self.said, self.compiled = model, [], threading.Event()
        self.p = subprocess.Popen(
            [sys.executable, PEER, model, "--folder", lab.FOLDER, "--runs", str(args.runs),
             *(["--training"] if args.training else []), *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=seen(gpu_of(model, args)))
        self.ear = threading.Thread(target=self.listen, daemon=True)
        self.ear.start()

    def listen(self):
        for line in self.p.stderr:
            self.said.append(line)
            if line.strip() == "compiled":
                self.compiled.set()
        self.compiled.set()


class Exporter(Process):
    def __init__(self, model, args):
        super().__init__(model, args, "--export", max(args.batches, key=int))

    def finish(self, limit_s):
        try:
            if self.p.wait(limit_s):
                self.ear.join(1)
                print("   no %s: %s" % (self.model, last(self.said)), file=sys.stderr, flush=True)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            print("   no %s: not exported in %g s" % (self.model, limit_s), file=sys.stderr, flush=True)


class Peer(Process):
    """Compiles one case; go() lets it time."""

    def __init__(self, case, args, by=COMPILED):
        self.case, self.what, self.by, self.why = case, what_of(args), by, None
        super().__init__(case["model"], args, "--precision", case["precision"],
                         "--batch", str(case["batch"]), "--mode", MODE[by])

    def give_up(self, why):
        """Before the others are timed: who compiles beside them slows them down."""
        self.p.kill()
        self.p.wait()
        self.why = why

    def go(self, limit_s):
        """Its row."""
        stop = threading.Timer(limit_s, self.p.kill)
        stop.start()
        try:
            self.p.stdin.write("go\n")
            self.p.stdin.close()
            return json.loads(self.p.stdout.read().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            self.p.kill()
            self.ear.join(1)
            return failed(self.what, self.by, self.case,
                          self.why or last(self.said) or "it printed nothing")
        finally:
            stop.cancel()
            self.p.wait()


class Queue:
    """Peers of which only so many compile at a time; those that have not begun at the end never do."""

    def __init__(self, cases, args, at_once):
        self.cases, self.args, self.peers, self.over = list(cases), args, [], False
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(at_once)]
        for t in self.threads:
            t.start()

    def work(self):
        while True:
            with self.lock:
                if self.over or not self.cases:
                    return
                peer = Peer(self.cases.pop(0), self.args, AUTOTUNED)
                self.peers.append(peer)
            peer.compiled.wait()

    def is_busy(self):
        with self.lock:
            return bool(self.cases) or not all(p.compiled.is_set() for p in self.peers)

    def close(self, why):
        """Those that have compiled; the others are ended. Rows of what there is not: missing."""
        with self.lock:
            self.over = True
        for peer in self.peers:
            if not peer.compiled.is_set():
                peer.give_up(why)
        self.missing = [failed(what_of(self.args), AUTOTUNED, c, why) for c in self.cases]
        return self.peers


def bench(case, at, args, *options):
    return json.loads(part.program(
        "shunt-run", "bench", "--device", lab.DEVICE, "--model", at + ".onnx", "--inputs", at + ".st",
        "--batch", case["batch"], "--precision", case["precision"], "--runs", args.runs,
        "--no-deterministic", "--tune", lab.TUNE, *options, limit_s=120,
        env=seen(gpu_of(case["model"], args))))


def ours(case, args):
    at = file_of(case["model"], args)
    text = case["model"] in ("distilbert", "bert-large", "lstm")
    if not os.path.exists(at + ".st"):
        return failed(what_of(args), "shunt", case, "it was not exported")
    try:
        if args.training:
            got = bench(case, at, args, "--labels", "label", "--optimizer",
                        "adamw" if text else "sgd")
            return row("train", "shunt", case, [case["batch"] * 1e3 / ms for ms in got["ms"]],
                       "samples/s", got["samples_per_s"], step_ms=got["median_ms"],
                       operations=got["operations"])
        got = bench(case, at, args, "--ops")
        return row("ready", "shunt", case, got["ms"], operations=got["operations"], ops=got["ops"])
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        return failed(what_of(args), "shunt", case, e)


def checks(rows, training):
    """Over all cases that both have."""
    value = {(r["by"], *r["case"].values()): r["value"] for r in rows if "value" in r}
    best = {}  # of the peers
    for (by, *case), v in value.items():
        if by != "shunt":
            best[tuple(case)] = (max if training else min)(v, best.get(tuple(case), v))
    ratio = {k[1:]: v / best[k[1:]] for k, v in value.items() if k[0] == "shunt" and k[1:] in best}
    if not ratio:
        return []
    mean = math.exp(sum(map(math.log, ratio.values())) / len(ratio))
    worst = (min if training else max)(ratio, key=ratio.get)
    limits = [("geometric mean of %d cases" % len(ratio), mean, TRAIN_MEAN if training else MEAN),
              ("the worst, " + " ".join(map(str, worst)), ratio[worst],
               TRAIN_WORST if training else WORST)]
    return [{"check": "%s over compiled: %.3f, at %s %g" % (
                 what, got, "least" if training else "most", limit),
             "ok": got >= limit if training else got <= limit} for what, got, limit in limits]


def measure(args, rows):
    """Adds to rows, and shows them."""
    end = time.monotonic() + args.compile_limit
    exporters = [Exporter(m, args) for m in args.models
                 if not args.alone or not os.path.exists(file_of(m, args) + ".st")]
    cases = [{"model": m, "precision": q, "batch": int(b)}
             for m in args.models for q in args.precisions for b in args.batches]
    peers = [] if args.alone else [Peer(case, args) for case in cases]
    tuned = Queue([] if args.alone else cases, args, args.autotune)
    for e in exporters:
        e.finish(max(1, end - time.monotonic()))
    for peer in peers:
        if not peer.compiled.wait(max(0, end - time.monotonic())):
            peer.give_up("it has not compiled in %g s" % args.compile_limit)
    if args.autotune:
        while time.monotonic() < end and tuned.is_busy():
            time.sleep(0.5)
        peers += tuned.close("it has not compiled in %g s" % args.compile_limit)
        rows += tuned.missing
    print("   now they are timed", file=sys.stderr, flush=True)

    def of_one(gpu):
        theirs = (peer.go(60) for peer in peers if gpu_of(peer.model, args) == gpu)
        own = (ours(case, args) for case in cases if gpu_of(case["model"], args) == gpu)
        for r in itertools.chain(theirs, own):
            rows.append(r)
            part.show(r)
    threads = [threading.Thread(target=of_one, args=(i,), daemon=True) for i in range(args.gpus)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def main():
    p = part.options(__doc__, precisions=None, runs=60)
    p.add_argument("--batches", type=lambda s: s.split(","), help="default 8, of training 32")
    p.add_argument("--training", action="store_true")
    p.add_argument("--gpus", type=int, default=1, help="models are spread over so many, one of each "
                   "timed at a time")
    p.add_argument("--autotune", type=int, default=0, metavar="N", help="max-autotune too, N at a time")
    p.add_argument("--alone", action="store_true", help="without what PyTorch takes")
    p.set_defaults(models=MODELS)
    p.add_argument("--compile-limit", type=float, default=300, help="seconds for all to compile")
    args = p.parse_args()
    args.precisions = args.precisions or part.here(
        "tf32,bf16" if args.training else "tf32,fp16").split(",")
    args.batches = args.batches or ["32" if args.training else "8"]
    if args.training:
        args.models = [m for m in args.models if m not in UNTRAINED]
    os.makedirs(lab.FOLDER, exist_ok=True)
    signal.signal(signal.SIGTERM, part.stop)
    rows = []
    try:
        measure(args, rows)
    finally:
        found = checks(rows, args.training)
        for c in found:
            part.show(c)
        settings = {**vars(args), "device": part.DEVICE}
        print(json.dumps({"settings": settings, "rows": rows, "checks": found}), flush=True)
    return 1 if any("error" in r for r in rows) or not all(c["ok"] for c in found) else 0


if __name__ == "__main__":
    sys.exit(main())
