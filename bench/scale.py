#!/usr/bin/env python3
"""What one event costs the scheduler, and what it holds, from 10 to 10,000 GPUs; writes
docs/scale.md and its figures.

    make scale                    # some minutes
    bench/scale.py --docs         # only the page, from bench/results/scale.json"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "lib"))
import page  # noqa: E402
import svg  # noqa: E402

RESULTS = os.path.join(ROOT, "bench", "results", "scale.json")
TEXT = os.path.join(ROOT, "bench", "scale.md")
DOCS = os.path.join(ROOT, "docs", "scale.md")
FIGURES = os.path.join(ROOT, "docs", "figures")
GPUS = (10, 100, 1000, 10000)
EVENTS = (("requests", "a new request"), ("requests", "a request is ready"),
          ("requests", "the end of a run"), ("leader", "the end of a job"),
          ("leader", "a job's progress"), ("leader", "an executor goes, comes"),
          ("leader", "a tick"), ("leader", "a look, nothing new"), ("index", "the end of a job"),
          ("index", "a new job"), ("index", "usage"), ("index", "a job before others"),
          ("index", "one has given way"))
SCANS = (("requests", "all is looked at", "a new request"),
         ("leader", "a look at all held", "an executor goes, comes"),
         ("index", "a look at all jobs", "the end of a job"),
         ("index", "all is decided", "the end of a job"))
MEMORY = (("requests", "bytes of heap for each executor", "an executor"),
          ("requests", "for each model and executor", "a model, for each executor"),
          ("requests", "for each tenant", "a tenant"),
          ("requests", "bytes of heap for each request", "a request"),
          ("leader", "bytes of heap for each job held", "a job that a leader holds"),
          ("index", "bytes in the index for each job", "a job in the index"))


def run(program, gpus):
    """{world: {"rows": {name: row}, "facts": {name: value}}}"""
    out = [subprocess.run([program, "scale", str(gpus), world], check=True, text=True,
                          stdout=subprocess.PIPE).stdout for world in ("index", "leader", "requests")]
    worlds = {}
    for line in "".join(out).splitlines():
        row = json.loads(line)
        if "world" in row:
            world = worlds[row["world"]] = {"rows": {}, "facts": {}}
        elif "fact" in row:
            world["facts"][row["fact"]] = row["value"]
        else:
            world["rows"][row["row"]] = row
    print("%d GPUs" % gpus, file=sys.stderr)
    return worlds


def all_of(rows, world, name, what="p99"):
    return [(g, rows[str(g)][world]["rows"][name][what]) for g in GPUS
            if name in rows[str(g)][world]["rows"]]


def table(head, lines):
    out = ["| %s | %s |" % (head, " | ".join("{:,} GPUs".format(g) for g in GPUS)),
           "| --- |" + " ---: |" * len(GPUS)]
    return "\n".join(out + ["| %s | %s |" % (name, " | ".join(cells)) for name, cells in lines])


def number(v):
    return "{:,.0f}".format(v) if v >= 100 else "%.1f" % v


def event_table(rows):
    def cells(world, name):
        worlds = [rows[str(g)][world]["rows"].get(name) for g in GPUS]
        return ["%s, %s" % (number(r["median"]), number(r["p99"])) if r else "" for r in worlds]

    return table("microseconds, median and p99", [
        ("%s (%s)" % (name, world), cells(world, name)) for world, name in EVENTS])


def scan_table(rows):
    lines = []
    for world, scan, event in SCANS:
        pairs = [(rows[str(g)][world]["rows"][scan]["median"],
                  rows[str(g)][world]["rows"][event]["p99"]) for g in GPUS]
        lines.append(("%s, us (p99s of %s)" % (scan, event),
                      ["%s (%s)" % (number(a), number(a / b)) for a, b in pairs]))
    return table("a linear scan in the same run", lines)


def memory_table(rows):
    return table("bytes for each", [
        (label, [number(rows[str(g)][world]["facts"][fact]) for g in GPUS])
        for world, fact, label in MEMORY])


def rebuild_table(rows):
    return table("seconds of CPU", [
        (label, ["%.3f" % rows[str(g)][world]["facts"][fact] for g in GPUS])
        for world, fact, label in (
            ("leader", "a new leader, from rows to its first pass, s",
             "a new leader, from its rows to its first pass"),
            ("index", "a rebuild, and a decision that fills all slots, s",
             "the index of all jobs, and a decision that fills all slots"))])


def total(rows, gpus):
    """Of a whole leader: what it holds of each kind."""
    worlds = rows[str(gpus)]
    facts = worlds["requests"]["facts"]
    return (gpus * facts["bytes of heap for each executor"] +
            gpus * facts["models"] * facts["for each model and executor"] +
            gpus * facts["for each tenant"] +
            facts["requests"] * facts["bytes of heap for each request"] +
            worlds["leader"]["facts"]["jobs held"] *
            worlds["leader"]["facts"]["bytes of heap for each job held"])


def without_models(rows, gpus):
    facts = rows[str(gpus)]["requests"]["facts"]
    return total(rows, gpus) - gpus * facts["models"] * facts["for each model and executor"]


def draw(rows):
    lines = [(name, all_of(rows, world, name), False) for world, name in EVENTS
             if name in ("a new request", "the end of a run", "one has given way", "a tick")]
    lines.append(("the end of a job", all_of(rows, "leader", "the end of a job"), False))
    lines += [(scan, all_of(rows, world, scan, "median"), True) for world, scan in (
        ("requests", "all is looked at"), ("index", "a look at all jobs"))]
    svg.lines(os.path.join(FIGURES, "scale-events.svg"), "One event, p99",
              "dashed: a linear scan in the same run, median", "GPUs", "us of CPU", lines)
    svg.lines(os.path.join(FIGURES, "scale-memory.svg"), "What a leader holds",
              "ten requests and a tenant for each GPU; up to 5,000 models", "GPUs", "MB",
              [("all", [(g, total(rows, g) / 1e6) for g in GPUS], False),
               ("without models", [(g, without_models(rows, g) / 1e6) for g in GPUS], False)])


def write(rows):
    page.write(TEXT, DOCS, {"events": event_table(rows), "scans": scan_table(rows),
                            "memory": memory_table(rows), "rebuild": rebuild_table(rows)})
    draw(rows)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default=os.path.join(ROOT, "build", "bench", "pass"))
    p.add_argument("--docs", action="store_true", help="only the page, from kept results")
    o = p.parse_args()
    if not o.docs:
        rows = {str(g): run(o.program, g) for g in GPUS}
        with open(RESULTS, "w") as f:
            json.dump(rows, f, indent=1)
            f.write("\n")
    with open(RESULTS) as f:
        write(json.load(f))


if __name__ == "__main__":
    main()
