#!/usr/bin/env python3
"""Whether promises are kept on a running system: PostgreSQL, API, scheduler, executor on the cpu device.

Every load is an open loop: requests arrive at random (Poisson, with a seed) whether or not those before
are answered, sent by a program of its own (arrivals.c), and their times count from when they were due.

  overload   models with different latency targets (on_miss reject), at 0.5 to 3 times the capacity that
             was measured just before: admitted, of them in time and in time with one quantum more (the
             longest run of one request: the device is not taken from a run), the goodput beside its peak,
             how soon a refusal was heard, and the median of all loads: where few are refused, they are so
             because the machine stood still, and hear it as late
  predict    five models of which the device has room for some: by what was on the device (cold, partly
             resident, warm) the median error of predictions, and how often a slow run's held
  fair       the p99 of a quiet tenant beside one that keeps its rate and one that sends ten times as much
  shares     the device time of the jobs of two tenants with weights 1 and 3

Ends with 1 where a limit is not kept (--help). Standard library only.
"""
import argparse
import concurrent.futures
import json
import os
import re
import struct
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in ("tests/e2e", "bench/lib"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import arrivals  # noqa: E402
import models  # noqa: E402
import onnx_bytes as onnx  # noqa: E402
from arrivals import percentile  # noqa: E402
from http_client import v2_request  # noqa: E402
from system import System, st_bytes, until  # noqa: E402

FEWEST_REFUSALS = 100  # of all loads: a median of fewer says little, one of none is 0
# name, file, max_batch, latency target in ms
MIX = [("light", models.conv(3, 32), 4, 30), ("middle", models.conv(4, 64), 4, 60),
       ("heavy", models.conv(8, 96), 1, 120), ("wide", models.dense(3, 1024), 16, 40)]


def request(key, name, samples=1):
    return b"".join(v2_request(key, name, "x", [samples, models.SIDE], models.SAMPLE * samples))


def set_slo(s, key, name, ms):
    r = s.call("PUT", "/api/v1/models/%s/slo" % name, {"latency_ms": ms, "on_miss": "reject"}, key)
    assert r.status == 200, r


def usual_ms(s, r, seconds=1.):
    """Of one request at a time."""
    got = arrivals.send(s.port, seconds, 1, [("closed", 1, r)])
    assert all(x.status == 200 for x in got), got[-1]
    return percentile([x.took for x in got[len(got) // 4:]], 50)


def capacity(s, requests, each, seconds):
    """Requests a second of all kinds in equal numbers, with as many at a time as fill batches."""
    got = arrivals.send(s.port, seconds, 1, [("closed", each, r) for r in requests])
    assert all(x.status == 200 for x in got), [x for x in got if x.status != 200][:3]
    begin = seconds * 250
    times = [sum(1 for x in got if x.kind == k and begin < x.due + x.took < seconds * 1e3) / (seconds * .75)
             for k in range(len(requests))]
    return times


class Check:
    """Collects what is not as promised."""

    def __init__(self):
        self.bad = []

    def __call__(self, what, value, least=None, most=None):
        if least is not None and value < least:
            self.bad.append("%s: %.4f, at least %g wanted" % (what, value, least))
        if most is not None and value > most:
            self.bad.append("%s: %.4f, at most %g wanted" % (what, value, most))


def predictions(s):
    """By kind: how many runs, of them held, error below each bound."""
    out = {}
    for series, n in s.metrics("scheduler").items():
        kind = re.search(r'kind="(\w+)"', series)
        if series.startswith("shunt_predictions_total"):
            got = out.setdefault(kind[1], {"held": 0, "exceeded": 0, "below": {}})
            got[re.search(r'result="(\w+)"', series)[1]] += n
        elif series.startswith("shunt_prediction_error_ratio_bucket"):
            below = out.setdefault(kind[1], {"held": 0, "exceeded": 0, "below": {}})["below"]
            bound = float(re.search(r'le="([^"]+)"', series)[1])
            below[bound] = below.get(bound, 0) + n
    return out


def promises(s):
    """By what became of them, in the scheduler."""
    out = {"kept": 0, "late": 0, "given_up": 0}
    for series, n in s.metrics("scheduler").items():
        if series.startswith("shunt_promises_total"):
            out[re.search(r'result="(\w+)"', series)[1]] += n
    return out


def less(after, before):
    out = {}
    for kind, a in after.items():
        b = before.get(kind, {"held": 0, "exceeded": 0, "below": {}})
        out[kind] = {"held": a["held"] - b["held"], "exceeded": a["exceeded"] - b["exceeded"],
                     "below": {k: v - b["below"].get(k, 0) for k, v in a["below"].items()}}
    return out


def median_error(below):
    """From cumulative counts, straight between two bounds."""
    bounds = sorted(below)
    n, low, before = below[bounds[-1]], 0., 0
    for b in bounds:
        if below[b] * 2 >= n:
            return low + (b - low) * (n / 2 - before) / max(below[b] - before, 1) if b != float("inf") else b
        low, before = b, below[b]
    return float("inf")


def print_predictions(got):
    for kind, g in sorted(got.items()):
        n = g["held"] + g["exceeded"]
        if n:
            print("    %-7s %6d runs: median error %.3f, a slow run's time held for %.4f" % (
                kind, n, median_error(g["below"]), g["held"] / n))


# ---------------------------------------------------------------- overload

def one_load(s, names, requests, rates, load, quantum_ms, args):
    before, made = predictions(s), promises(s)
    got = arrivals.send(s.port, args.seconds, args.seed, [("open", r * load, q) for r, q in zip(rates, requests)])
    row = {"load": load, "offered": len(got), "admitted": 0, "kept": 0, "within": 0, "refused": 0, "other": {}}
    heard, worst = [], 0.
    for x in got:
        target = MIX[x.kind][3]
        if x.status == 200:
            row["admitted"] += 1
            row["kept"] += x.took <= target
            row["within"] += x.took <= target + quantum_ms
            worst = max(worst, x.took - target)
        elif x.status == 503:
            row["refused"] += 1
            heard.append(x.heard)
        else:
            row["admitted"] += 1
            row["other"][x.status] = row["other"].get(x.status, 0) + 1
    made = {k: int(n - made[k]) for k, n in promises(s).items()}
    row["admitted"] = max(row["admitted"], sum(made.values()))  # who was let in and refused later is one of them
    row.update(heard_ms=heard, promises=made, goodput=row["kept"] / args.seconds, worst_ms=worst,
               refusal_p50_ms=percentile(heard, 50), refusal_p99_ms=percentile(heard, 99),
               client_late_p99_ms=percentile([x.late for x in got], 99),
               predictions=less(predictions(s), before),
               by_model={n: [sum(1 for x in got if x.kind == k and x.status == 200 and x.took <= MIX[k][3]),
                             sum(1 for x in got if x.kind == k)] for k, n in enumerate(names)})
    return row


def overload(args, check):
    with System("--workers=2", "--pool-bytes=1G", "--threads=1") as s:
        key = s.tenant("bench")
        names = [m[0] for m in MIX]
        for name, net, max_batch, _ in MIX:
            s.push(key, name, net, max_batch=max_batch)
        requests = [request(key, n) for n in names]
        usual = [usual_ms(s, r) for r in requests]
        rates = capacity(s, requests, 8, max(args.seconds / 4, 4))
        quantum = max(usual)
        print("one at a time: %s ms; capacity %s requests/s; a quantum is %.1f ms" % (
            ", ".join("%s %.1f" % x for x in zip(names, usual)), ", ".join("%.0f" % r for r in rates), quantum))
        for m in MIX:
            set_slo(s, key, m[0], m[3])
        time.sleep(2)
        rows = []
        for load in args.loads:
            row = one_load(s, names, requests, rates, load, quantum, args)
            rows.append(row)
            print("  %4.2f times: offered %6d, admitted %6d, of them in time %.5f, with a quantum %.5f (worst %+.1f ms), "
                  "refused %5d (heard after %.2f ms, p99 %.2f), goodput %.1f/s; client late %.2f ms (p99)%s" % (
                      load, row["offered"], row["admitted"], row["kept"] / max(row["admitted"], 1),
                      row["within"] / max(row["admitted"], 1), row["worst_ms"], row["refused"], row["refusal_p50_ms"],
                      row["refusal_p99_ms"], row["goodput"], row["client_late_p99_ms"],
                      " other %s" % row["other"] if row["other"] else ""))
            print("      promises by the scheduler's clock: %s" % row["promises"])
            print("      in time by model: " + ", ".join("%s %d of %d" % (n, *x) for n, x in row["by_model"].items()))
            print_predictions(row["predictions"])
            time.sleep(1)
        most = max(r["goodput"] for r in rows)
        print("  goodput beside its peak: " + ", ".join("%g times %.3f" % (r["load"], r["goodput"] / most) for r in rows))
        check("admitted in time with a quantum", sum(r["within"] for r in rows) / sum(r["admitted"] for r in rows), .999)
        check("goodput at %g times the capacity" % rows[-1]["load"], rows[-1]["goodput"] / most, .95)
        heard = [ms for r in rows for ms in r.pop("heard_ms")]
        print("  of all refusals: heard after %.2f ms, p99 %.2f" % (percentile(heard, 50), percentile(heard, 99)))
        check("refusals", len(heard), least=FEWEST_REFUSALS)
        check("refusals, median ms", percentile(heard, 50), most=1)
        return rows


# ---------------------------------------------------------------- predict

# name, file, part of the requests; all images together take 1.6 times the pool
LARGE = [("a", models.dense(3, 2048), 8), ("b", models.dense(2, 2560), 4), ("c", models.dense(5, 1536), 4),
         ("d", models.dense(3, 2304), 2), ("e", models.conv(8, 128), 2)]


def predict(args, check):
    with System("--workers=2", "--pool-bytes=100M", "--threads=1", COPY_GB_PER_S=str(args.copy_gb_per_s)) as s:
        key = s.tenant("bench")
        for name, net, _ in LARGE:
            s.push(key, name, net, max_batch=1)
        requests = [request(key, x[0]) for x in LARGE]
        usual = [usual_ms(s, r) for r in requests]
        parts = sum(x[2] for x in LARGE)
        kinds = [("open", args.rate * x[2] / parts, r) for x, r in zip(LARGE, requests)]
        print("one at a time, resident: " + ", ".join("%s %.1f ms" % (x[0], ms) for x, ms in zip(LARGE, usual)))
        arrivals.send(s.port, 10, args.seed + 1, kinds)  # what a profile says is not asked for here
        before = predictions(s)
        got = arrivals.send(s.port, args.seconds, args.seed, kinds)
        assert all(x.status == 200 for x in got), [x for x in got if x.status != 200][:3]
        found = less(predictions(s), before)
        print("  %d requests, p50 %.1f ms, p99 %.1f ms" % (len(got), percentile([x.took for x in got], 50),
                                                          percentile([x.took for x in got], 99)))
        print_predictions(found)
        below, held, n = {}, 0, 0
        for g in found.values():
            held, n = held + g["held"], n + g["held"] + g["exceeded"]
            below = {k: below.get(k, 0) + v for k, v in g["below"].items()}
        print("    all     %6d runs: median error %.3f, a slow run's time held for %.4f" % (n, median_error(below), held / n))
        check("median error", median_error(below), most=.1)
        check("slow run's time held", held / n, .98, .998)
        for kind in ("cold", "partial", "warm"):
            check("runs of kind " + kind, sum(found.get(kind, {}).get(k, 0) for k in ("held", "exceeded")), least=100)
        return found


# ---------------------------------------------------------------- fair

def set_quota(s, tenant, **fields):
    r = s.call("PUT", "/api/v1/tenants/%s/quota" % tenant, fields, s.admin)
    assert r.status == 200, r


def beside(s, seconds, seed, kinds):
    """Each in a process of its own: of one tenant's requests none waits for another's connection."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        parts = [pool.submit(arrivals.send, s.port, seconds, seed + i, [k]) for i, k in enumerate(kinds)]
        return [p.result() for p in parts]


def fair(args, check):
    with System("--workers=2", "--pool-bytes=256M", "--threads=1", MAX_CONNECTIONS_PER_IP="10000") as s:
        keys, requests = {}, {}
        for tenant in ("quiet", "busy"):
            keys[tenant] = s.tenant(tenant)
            s.push(keys[tenant], "m-" + tenant, models.conv(8, 128), max_batch=args.max_batch)
            requests[tenant] = request(keys[tenant], "m-" + tenant)
        usual = usual_ms(s, requests["quiet"])
        rate = sum(capacity(s, list(requests.values()), 4 * args.max_batch, 4))
        print("one at a time: %.1f ms; capacity %.0f requests/s" % (usual, rate))
        if args.target_ms:
            for tenant, key in keys.items():
                set_slo(s, key, "m-" + tenant, args.target_ms)
        took = {1: [], 10: []}
        lost = {1: 0, 10: 0}
        for i in range(args.rounds):
            for times in took:
                quiet, busy = beside(s, args.seconds / args.rounds, args.seed + 10 * i, [
                    ("open", .1 * rate, requests["quiet"]), ("open", .2 * times * rate, requests["busy"])])
                took[times] += [x.took for x in quiet if x.status == 200]
                lost[times] += sum(x.status != 200 for x in quiet)
                ok = sum(x.status == 200 for x in busy)
                print("  busy tenant at %2d times: quiet p50 %.2f p99 %.2f ms (%d, %d not answered); busy: %d of %d answered" % (
                    times, percentile([x.took for x in quiet], 50), percentile([x.took for x in quiet], 99),
                    len(quiet), sum(x.status != 200 for x in quiet), ok, len(busy)))
                time.sleep(2)
        p99 = {k: percentile(v, 99) for k, v in took.items()}
        print("  quiet p99: %.2f ms beside its rate, %.2f beside ten times: %.3f times; not answered %s" % (
            p99[1], p99[10], p99[10] / p99[1], lost))
        check("quiet tenant's p99 beside ten times the rate, over that beside one", p99[10] / p99[1], most=1.1)
        check("quiet tenant's requests that are refused only beside ten times",
              (lost[10] - lost[1]) / max(len(took[1]), 1), most=.001)
        return {"p99": p99, "lost": lost}


# ---------------------------------------------------------------- shares

def shares(args, check):
    weights = {"one": 1, "three": 3}
    with System("--workers=3", "--pool-bytes=256M", "--threads=1", MIN_RUN_MS=str(args.min_run_ms)) as s:
        jobs = {}
        for tenant, weight in weights.items():
            key = s.tenant(tenant)
            set_quota(s, tenant, over_quota_weight=weight)
            s.push(key, "tiny", onnx.linear(), max_batch=2)
            s.push_data(key, "small", st_bytes({
                "x": ("F32", [8, 4], struct.pack("<32f", *([0.5] * 32))),
                "label": ("I64", [8], struct.pack("<8q", *([1] * 8)))}))
            r = s.submit(key, model="tiny", version=1, dataset="small",
                         spec={"batch": 8, "epochs": None, "steps": 1000000000})
            assert r.status == 201, r
            jobs[tenant] = (key, r.json["id"])

        def device_s():
            return {t: s.call("GET", "/api/v1/tenants/%s/share" % t, key=s.admin).json["usage_gpu_seconds"] for t in weights}

        def steps():
            return {t: s.job(*j).json["step"] for t, j in jobs.items()}
        until("both have run", lambda: min(device_s().values()) > 0)
        before, step = device_s(), steps()
        time.sleep(args.seconds)
        used = {t: v - before[t] for t, v in device_s().items()}
        done = {t: v - step[t] for t, v in steps().items()}
        got = {"device": used["three"] / sum(used.values()), "steps": done["three"] / sum(done.values())}
        print("  device time %s s, steps %s; the larger share is %.4f of the time, %.4f of the steps" % (
            {t: round(v, 1) for t, v in used.items()}, done, got["device"], got["steps"]))
        for what, part in got.items():
            check("share of weight 3, by " + what, part, .75 * .97, .75 * 1.03)
        return got



def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=("overload", "predict", "fair", "shares"))
    p.add_argument("--seconds", type=float, default=120, help="of each load")
    p.add_argument("--loads", type=lambda t: [float(x) for x in t.split(",")], default=[0.5, 1, 1.5, 2, 3])
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--copy-gb-per-s", type=float, default=2, help="predict: copies are slowed to this rate")
    p.add_argument("--rate", type=float, default=20, help="predict: requests a second, of all five")
    p.add_argument("--rounds", type=int, default=4, help="fair: in turns, --seconds in all for each of the two")
    p.add_argument("--max-batch", type=int, default=1, help="fair: of the models")
    p.add_argument("--target-ms", type=float, default=0, help="fair: a latency target with on_miss reject; 0: none")
    p.add_argument("--min-run-ms", type=int, default=1000, help="shares: a job keeps its executor for so long")
    p.add_argument("--out", help="all figures, as JSON")
    args = p.parse_args()
    check = Check()
    rows = globals()[args.part](args, check)
    if args.out:
        with open(args.out, "w") as f:
            json.dump(rows, f, indent=1)
    print("as promised" if not check.bad else "NOT as promised: " + "; ".join(check.bad))
    sys.exit(1 if check.bad else 0)


if __name__ == "__main__":
    main()
