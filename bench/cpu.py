#!/usr/bin/env python3
"""Ready models on the cpu device, in turns with ONNX Runtime: the ratio of their times, its geometric
mean, the worst. Needs torch, torchvision, transformers, onnxruntime and numpy.

A turn is some runs of one of them, a round a turn of each; a case is judged by the median over its
rounds of our median over theirs, since others may use the machine. --out: all samples.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, "peers")]
os.environ["SHUNT_BENCH_DEVICE"] = "cpu"
import part  # noqa: E402
import wider  # noqa: E402

MODELS = ("resnet50 mobilenet_v3_large efficientnet_b0 densenet121 convnext_tiny vit_b_16 mixer unet "
          "distilbert lstm").split()
FOLDER = os.path.join(os.environ.get("SHUNT_BENCH_DIR", "/tmp/shunt-bench"), "cpu")
MEAN, WORST = 0.95, 1.1  # of ONNX Runtime's time
MAX_RUNS = 200


class Ort:
    def __init__(self, at, batch, threads):
        self.p = subprocess.Popen([sys.executable, os.path.join(HERE, "peers", "ort.py"), at, str(batch),
                                   str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.p.stdout.readline()

    def turn(self, runs):
        self.p.stdin.write("%d\n" % runs)
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def end(self):
        self.p.stdin.close()
        self.p.wait()


def ours(at, batch, threads, runs):
    said = part.program("shunt-run", "bench", "--device", "cpu", "--model", at + ".onnx", "--inputs",
                        at + ".st", "--batch", batch, "--threads", threads, "--runs", runs,
                        "--warm-runs", 3)
    return json.loads(said)["ms"]


def case(model, batch, threads, args):
    at = os.path.join(FOLDER, model)
    ort = Ort(at, batch, threads)
    try:
        first = statistics.median(ort.turn(2))
        runs = min(MAX_RUNS, max(2, math.ceil(args.seconds * 1e3 / first)))
        rounds = [(ours(at, batch, threads, runs), ort.turn(runs)) for _ in range(args.rounds)]
    finally:
        ort.end()
    medians = [tuple(map(statistics.median, r)) for r in rounds]
    ratio = statistics.median(a / b for a, b in medians)
    print("%-20s batch %d  threads %d  ours %9.3f ms  theirs %9.3f ms  %.3f" % (
        model, batch, threads, min(a for a, _ in medians), min(b for _, b in medians), ratio), flush=True)
    return {"model": model, "batch": batch, "threads": threads, "ratio": ratio, "rounds": rounds}


def main():
    def listed(of):
        return lambda text: [of(x) for x in text.split(",")]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=listed(str), default=MODELS)
    p.add_argument("--batches", type=listed(int), default=[1, 8])
    p.add_argument("--threads", type=listed(int), default=[1, 2])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    p.add_argument("--out")
    args = p.parse_args()
    os.makedirs(FOLDER, exist_ok=True)
    rows = []
    for m in args.models:
        if not os.path.exists(os.path.join(FOLDER, m + ".st")):
            wider.export(m, FOLDER, max(args.batches), False)
        rows += [case(m, b, t, args) for b in args.batches for t in args.threads]
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(rows, f)
    mean = math.exp(statistics.mean(math.log(r["ratio"]) for r in rows))
    worst = max(rows, key=lambda r: r["ratio"])
    print("geometric mean of %d cases: %.3f (at most %g); the worst: %.3f (at most %g), %s" % (
        len(rows), mean, MEAN, worst["ratio"], WORST, worst["model"]))
    return 0 if mean <= MEAN and worst["ratio"] <= WORST else 1


if __name__ == "__main__":
    sys.exit(main())
