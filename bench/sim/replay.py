#!/usr/bin/env python3
"""Replays the traces by the daemons' decisions and by other policies; writes docs/replay.md.

    bench/sim/traces/get.sh FOLDER; REPLAY_TRACES=FOLDER TRACES=../shared/traces make replay

REPLAY_TRACES has what get.sh brings, TRACES what is only read from where it lies. Without --docs
everything runs anew, those of requests as many at a time as there are processors, and
bench/results/replay.json keeps the rows; with it only the document is written from them."""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "lib"))
import page  # noqa: E402
import serve  # noqa: E402
import svg  # noqa: E402

RESULTS = os.path.join(ROOT, "bench", "results", "replay.json")
TEXT = os.path.join(ROOT, "bench", "sim", "replay.md")
DOCS = os.path.join(ROOT, "docs", "replay.md")
FIGURES = os.path.join(ROOT, "docs", "figures")
JOB_GPUS = (530, 600, 672)  # with all jobs: as much load as ...
ONE_GPU = (96, 128)  # ... the jobs of one GPU make here, and where FIFO has little to do
HALVES = (1, 2)  # the parameters were chosen on the first one
NAMES = {"fifo": "FIFO with backfill", "las": "least attained service", "drf": "dominant share",
         "themis": "finish-time fairness", "ours": "Shunt", "fcfs": "Shunt, `--level-ms 0`"}


def run(o, what, *args):
    out = subprocess.run([o.replay, what] + [str(a) for a in args], cwd=ROOT, check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    for r in rows:
        print("%-10s %5s GPUs  %-14s %6.1f s" % (r["format"], r["gpus"], r["policy"], r["cpu_s"]),
              file=sys.stderr)
    return rows


def jobs(o):
    philly = ["--trace", os.path.join(o.more, "philly.csv")]
    rows = []
    for gpus in JOB_GPUS:
        rows += run(o, "jobs", *philly, "--gpus", gpus)
    philly.append("--one-gpu")
    for gpus in ONE_GPU:
        rows += run(o, "jobs", *philly, "--gpus", gpus)
        for half in HALVES:
            rows += run(o, "jobs", *philly, "--gpus", gpus, "--half", half)
        rows += [dict(r, policy="fcfs") for r in run(o, "jobs", *philly, "--gpus", gpus,
                                                     "--policies", "ours", "--level-ms", 0)]
    return rows


# ---------------------------------------------------------------------- the document

def job_table(rows, gpus):
    rows = [r for r in rows if r["gpus"] == gpus and not r["half"]]
    fifo = next(r["mean_s"] for r in rows if r["policy"] == "fifo")
    out = ["| %d GPUs | mean, h | of FIFO's | p50, h | p95, h | ρ mean | ρ p95 | GPUs in use | "
           "stopped | longest until first start, h | CPU, s |" % gpus,
           "| --- " + "| ---: " * 10 + "|"]
    for r in rows:
        out.append("| %s | %.1f | %.2f | %.2f | %.1f | %.2f | %.2f | %.1f %% | %d | %.1f | %.1f |" % (
            NAMES[r["policy"]], r["mean_s"] / 3600, r["mean_s"] / fifo, r["p50_s"] / 3600,
            r["p95_s"] / 3600, r["ftf_mean"], r["ftf_p95"], 100 * r["used"], r["stops"],
            r["longest_wait_s"] / 3600, r["cpu_s"]))
    return "\n".join(out)


def half_table(rows):
    out = ["| GPUs | half | policy | mean, h | of FIFO's | ρ p95 |", "| ---: | --- | --- | ---: | ---: | ---: |"]
    for r in (r for r in rows if r["half"]):
        fifo = next(x["mean_s"] for x in rows if x["policy"] == "fifo" and x["half"] == r["half"] and
                    x["gpus"] == r["gpus"])
        out.append("| %d | %s | %s | %.1f | %.2f | %.2f |" % (
            r["gpus"], ("first", "second")[r["half"] - 1], NAMES[r["policy"]], r["mean_s"] / 3600,
            r["mean_s"] / fifo, r["ftf_p95"]))
    return "\n".join(out)


def draw(rows):
    for gpus in JOB_GPUS + ONE_GPU:
        mine = sorted((r for r in rows["jobs"] if r["gpus"] == gpus and not r["half"] and
                       r["policy"] != "fcfs"),
                      key=lambda r: r["policy"] != "ours")
        svg.bars(os.path.join(FIGURES, "replay-jobs-%d.svg" % gpus),
                 "Philly, %s, %d GPUs" % ("jobs of one GPU" if gpus in ONE_GPU else "all jobs", gpus),
                 "mean time from arrival to end", "hours",
                 [(NAMES[r["policy"]], r["mean_s"] / 3600) for r in mine])


def write(rows):
    parts = {"jobs-%d" % gpus: job_table(rows["jobs"], gpus) for gpus in JOB_GPUS + ONE_GPU}
    parts["halves"] = half_table(rows["jobs"])
    parts.update(serve.parts(rows["requests"], rows["needed"]))
    page.write(TEXT, DOCS, parts)
    draw(rows)
    serve.draw(rows["requests"], rows["needed"], FIGURES)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--replay", default=os.path.join(ROOT, "build", "bench", "replay"))
    p.add_argument("--docs", action="store_true", help="only the document, from kept rows")
    p.add_argument("--parts", default="jobs,requests,needed", help="run these, keep the others")
    o = p.parse_args()
    o.replay = os.path.abspath(o.replay)
    o.traces = os.path.abspath(os.environ.get("TRACES", os.path.join(ROOT, "..", "shared", "traces")))
    o.more = os.path.abspath(os.environ.get("REPLAY_TRACES", "traces"))
    rows = {}
    if os.path.exists(RESULTS):
        with open(RESULTS) as f:
            rows = json.load(f)
    for name, part in (("jobs", jobs), ("requests", lambda o: serve.measure(o, run)),
                       ("needed", lambda o: serve.measure_needed(o, run, rows["requests"]["sizes"]))):
        if not o.docs and name in o.parts.split(","):
            rows[name] = part(o)
            with open(RESULTS, "w") as f:
                json.dump(rows, f, indent=1)
                f.write("\n")
    write(rows)


if __name__ == "__main__":
    main()
