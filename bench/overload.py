#!/usr/bin/env python3
"""What a system under more load than it can carry still answers in time.

An open loop: requests of models with a latency target and on_miss reject arrive at random (Poisson, with
a seed) whether or not the ones before are answered, at multiples of the capacity that was measured just
before, without a target and with as many connections as fill the batches. Of each load it prints, by the
client's clock and as parts of that capacity, what was offered, answered in time (the goodput), late and
refused, and the goodput beside its peak; ends with 1 when from 0.9 of the peak on it was below that once
the offered load exceeded the peak, or when more than --needless of the requests were refused at half the
capacity.

The client (arrivals.c) shares the cores with the system: a model should take some ms, and a line says how
late the client itself was. Standard library only.
"""
import argparse
import collections
import json
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in ("tests/e2e", "bench/lib"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import arrivals  # noqa: E402
import models  # noqa: E402
from arrivals import percentile  # noqa: E402
from http_client import v2_request  # noqa: E402
from system import System  # noqa: E402


def closed_loop(port, requests, connections, seconds):
    """Answers a second, without the first quarter."""
    each = connections // len(requests)
    got = arrivals.send(port, seconds, 1, [("closed", each, r) for r in requests])
    assert all(x.status == 200 for x in got), [x for x in got if x.status != 200][:3]
    return sum(seconds * 250 < x.due + x.took < seconds * 1e3 for x in got) / (seconds * .75)


def open_loop(port, requests, rate, seconds, target_ms, seed):
    got = arrivals.send(port, seconds, seed, [("open", rate / len(requests), r) for r in requests])
    of = collections.Counter("met" if x.status == 200 and x.took <= target_ms else
                             {200: "late", 503: "refused"}.get(x.status, "other") for x in got)
    return {"offered": len(got), **{k: of[k] for k in ("met", "late", "refused", "other")},
            "lag_p99_ms": percentile([x.late for x in got], 99)}


def counted(s, key, names):
    """What the system says of itself: its clock goes from a request's headers to its reply."""
    total = {"met": 0, "missed": 0, "rejected": 0}
    for n in names:
        r = s.call("GET", "/api/v1/models/%s/slo/attainment?window=1h" % n, key=key).json
        total = {k: v + r[k] for k, v in total.items()}
    return total


def run(args, max_batch):
    with System("--workers=2", "--pool-bytes=%s" % args.pool_bytes) as s:
        key = s.tenant("bench")
        net = (models.conv if args.model == "conv" else models.dense)(args.layers, args.width)
        names = ["m%d" % i for i in range(args.models)]
        for n in names:
            s.push(key, n, net, max_batch=max_batch)
        requests = [b"".join(v2_request(key, n, "x", [1, models.SIDE], models.SAMPLE)) for n in names]
        one = 1 / closed_loop(s.port, requests[:1], 1, args.seconds / 2)
        capacity = closed_loop(s.port, requests, args.models * max(2 * max_batch, 4), args.seconds)
        print("max_batch %d: one request at a time takes %.1f ms, capacity %.0f requests/s (%.2f at once)" % (
            max_batch, 1e3 * one, capacity, capacity * one))
        for n in names:
            r = s.call("PUT", "/api/v1/models/%s/slo" % n, {"latency_ms": args.target_ms, "on_miss": "reject"}, key)
            assert r.status == 200, r
        time.sleep(2)
        rows = []
        for load in args.loads:
            before = counted(s, key, names)
            g = open_loop(s.port, requests, load * capacity, args.seconds, args.target_ms, args.seed)
            own = {k: v - before[k] for k, v in counted(s, key, names).items()}
            per_s = capacity * args.seconds
            rows.append({"load": load, "capacity": capacity, "max_batch": max_batch, **g, "own": own,
                         "own_met_part": own["met"] / per_s,
                         **{k + "_part": g[k] / per_s for k in ("offered", "met", "late", "refused")}})
            time.sleep(1)
        peak = max(r["met_part"] for r in rows)
        for r in rows:
            r["of_peak"] = r["met_part"] / peak
            r["refused_of_offered"] = r["refused"] / max(r["offered"], 1)
            print("  offered %5.2f: in time %.3f (%.3f of the peak), late %.3f, refused %.3f (%.4f of the offered), "
                  "other %d; by its own clock %.3f in time; client %.1f ms late (p99)" % (
                      r["offered_part"], r["met_part"], r["of_peak"], r["late_part"], r["refused_part"],
                      r["refused_of_offered"], r["other"], r["own_met_part"], r["lag_p99_ms"]))
        bad = ["%g times: %.3f of the peak" % (r["load"], r["of_peak"]) for r in rows
               if r["offered_part"] > peak and r["of_peak"] < 0.9]
        bad += ["%g times: %.4f refused" % (r["load"], r["refused_of_offered"]) for r in rows
                if r["load"] <= 0.5 and r["refused_of_offered"] > args.needless]
        return rows, bad


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--loads", type=lambda t: [float(x) for x in t.split(",")], default=[0.5, 0.75, 1, 1.5, 2, 3])
    p.add_argument("--max-batch", type=lambda t: [int(x) for x in t.split(",")], default=[1, 32])
    p.add_argument("--target-ms", type=float, default=50)
    p.add_argument("--seconds", type=float, default=10, help="of each load")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--models", type=int, default=1)
    p.add_argument("--model", choices=("conv", "dense"), default="conv")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=128, help="channels, or features")
    p.add_argument("--pool-bytes", default="1G")
    p.add_argument("--needless", type=float, default=0.005)
    p.add_argument("--out", help="all rows, as JSON")
    args = p.parse_args()
    rows, bad = [], []
    for max_batch in args.max_batch:
        r, b = run(args, max_batch)
        rows += r
        bad += ["max_batch %d, %s" % (max_batch, x) for x in b]
    if args.out:
        with open(args.out, "w") as f:
            json.dump(rows, f, indent=1)
    print("as promised" if not bad else "NOT as promised: " + "; ".join(bad))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
