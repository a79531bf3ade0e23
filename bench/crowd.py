#!/usr/bin/env python3
"""More models than fit on the device, beside training, on the cpu device: gpu/many.py made small.

--models models of 1 to 42 MB, in turns, of one tenant; all images together take --over times the pool, of
which a training job takes more than a quarter. Copies are slowed to --copy-gb-per-s. Requests come in the
order and at the pace of a trace (build/bench/replay load, see gpu/many.py) at --rates a second, first beside
training and then without. What this machine answers in time says little of a GPU: what counts are the bytes
that move for a request, what they make room for, and what training gives up, as ratios to the same without
training. Standard library only.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in ("tests/e2e", "bench/lib"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import arrivals  # noqa: E402
import models  # noqa: E402
import onnx_bytes as onnx  # noqa: E402
from arrivals import percentile  # noqa: E402
from promises import request, set_slo  # noqa: E402
from system import System, st_bytes, until  # noqa: E402

MIB = 1 << 20
# Layers and features: a thirty-second of the images of gpu/many.py, the largest a fifth of what training leaves.
SIZES = ((2, 400), (2, 400), (2, 944), (3, 1160), (2, 944), (2, 880), (2, 592), (2, 504), (2, 1368), (3, 1016), (5, 984),
         (11, 1024))
FEATURES, CLASSES = 1024, 3840  # of what trains, with adam: a quarter of the pool
WAYS = ("pause", "drop", "swap")
ROOM = ("image", "training", "workspace", "idle", "ahead")


def load_of(args):
    """[(seconds at one request a second, model)]"""
    out = subprocess.run(
        [os.path.join(ROOT, "build", "bench", "replay"), "load", "--trace", args.trace, "--order", args.order,
         "--models", str(args.models), "--requests", str(args.requests), "--rate", "1000"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [(int(at) / 1e9, int(model)) for at, model, _ in map(str.split, out.splitlines())]
    return [(at / rows[-1][0] * len(rows), model) for at, model in rows]


def counters(s):
    """By what is counted."""
    out = {}
    for series, n in s.metrics("executor-cpu0").items():
        for begins, what in (('shunt_copied_bytes_total{executor="cpu0",direction="h2d"', "copied"),
                             ("shunt_train_samples_total{", "trained"), ("shunt_runs_total{", "runs")):
            if series.startswith(begins):
                out[what] = out.get(what, 0) + n
        if series.startswith(("shunt_preemptions_total{", "shunt_evicted_bytes_total{", "shunt_ahead_bytes_total{")):
            out[series.split('"')[-2]] = n
    return out


def submit(s, key):
    s.push(key, "train", onnx.linear(FEATURES, CLASSES), max_batch=1)
    s.push_data(key, "data", st_bytes({"x": ("F32", [64, FEATURES], bytes(256 * FEATURES)),
                                       "label": ("I64", [64], bytes(512))}))
    r = s.submit(key, model="train", version=1, dataset="data", spec={
        "batch": 32, "epochs": None, "steps": 1000000000, "optimizer": {"name": "adam", "lr": .001}})
    assert r.status == 201, r
    job = r.json["id"]
    until("it trains", lambda: s.job(key, job).json["step"] > 2)
    return job


def one_load(s, load, rate, kinds, args, what):
    due = [[] for _ in kinds]
    for at, model in load:
        due[model].append(at / rate)
    before = counters(s)
    got = arrivals.send(s.port, load[-1][0] / rate + .01, 1, [("listed", d, k) for d, k in zip(due, kinds)])
    after = counters(s)
    did = {k: v - before.get(k, 0) for k, v in after.items()}
    seconds = load[-1][0] / rate
    ok = [x.took for x in got if x.status == 200]
    row = {"case": what, "rate": rate, "in_time": sum(t <= args.slo_ms for t in ok) / len(got),
           "statuses": {str(k): sum(x.status == k for x in got) for k in {x.status for x in got}},
           "p50_ms": percentile(ok, 50), "p99_ms": percentile(ok, 99),
           "mb_per_request": did["copied"] / len(got) / 1e6, "runs": did.get("runs", 0),
           "evicted_mb_per_request": {k: round(did.get(k, 0) / len(got) / 1e6, 3) for k in ROOM},
           "stops_per_s": {k: round(did.get(k, 0) / seconds, 2) for k in WAYS},
           "samples_per_s": did.get("trained", 0) / seconds}
    print("  %-16s %5g/s: in time %.2f %%, p50 %.1f p99 %.1f ms, %.2f MB a request to the device (evicted for %s), "
          "stops/s %s, training %.0f samples/s %s" % (
              what, rate, 100 * row["in_time"], row["p50_ms"], row["p99_ms"], row["mb_per_request"],
              ", ".join("%s %.2f" % x for x in row["evicted_mb_per_request"].items() if x[1]),
              row["stops_per_s"], row["samples_per_s"], row["statuses"]), flush=True)
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trace", required=True)
    p.add_argument("--order", required=True)
    p.add_argument("--models", type=int, default=40)
    p.add_argument("--requests", type=int, default=1500)
    p.add_argument("--rates", default="50,100", type=lambda t: [float(x) for x in t.split(",")])
    p.add_argument("--over", type=float, default=1.12, help="all images over the pool")
    p.add_argument("--copy-gb-per-s", type=float, default=2)
    p.add_argument("--slo-ms", type=float, default=100)
    p.add_argument("--out", help="all figures, as JSON")
    args = p.parse_args()
    load = load_of(args)
    nets = [models.dense(*SIZES[i % len(SIZES)]) for i in range(args.models)]
    pool = int(sum(map(len, nets)) / args.over / MIB)
    print("%d models, %.0f MB of images, a pool of %d MiB" % (args.models, sum(map(len, nets)) / 1e6, pool))
    with System("--workers=3", "--pool-bytes=%dM" % pool, "--threads=1", COPY_GB_PER_S=str(args.copy_gb_per_s),
                SHARE_IMAGES="false") as s:  # nets of one size have the same weights
        key = s.tenant("bench")
        for i, net in enumerate(nets):
            s.push(key, "m%d" % i, net, max_batch=4)
        kinds = [request(key, "m%d" % i) for i in range(args.models)]
        for i in range(args.models):
            set_slo(s, key, "m%d" % i, args.slo_ms)
        job = submit(s, key)
        time.sleep(2)
        rows = [one_load(s, load, rate, kinds, args, "beside training") for rate in args.rates]
        print("  memory, MB: %s" % {k.split('"')[-2]: round(v / 1e6) for k, v in s.metrics("executor-cpu0").items()
                                    if k.startswith("shunt_arena_bytes{")})
        assert s.call("POST", "/api/v1/jobs/%d/cancel" % job, {}, key).status < 300
        s.wait_job(key, job)
        rows += [one_load(s, load, rate, kinds, args, "without") for rate in args.rates]
    n = len(args.rates)
    for a, b in zip(rows[:n], rows[n:]):
        print("  %g/s: beside training %.2f times the bytes, %.3f of those in time" % (
            a["rate"], a["mb_per_request"] / max(b["mb_per_request"], 1e-9), a["in_time"] / max(b["in_time"], 1e-9)))
    if args.out:
        with open(args.out, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
