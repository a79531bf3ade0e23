"""What the parts of ../gpu/ share: options, programs, the one JSON object that they print.

bench/gpu.sh starts a part, with those of the options that it was given itself, and merges what it
prints: {"settings", "rows"} (rows.py), and perhaps "checks": [{"check", "ok", ...}].
"""
import argparse
import json
import os
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("SHUNT_BIN", os.path.join(ROOT, "build", "bin"))
MODELS = ("resnet152", "inception-v3", "bert-base")


def options(doc, precisions="tf32,fp16", batch=8, runs=100, seconds=5):
    """The options that every part takes, with this part's defaults."""
    def listed(text):
        return text.split(",")
    p = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    p.add_argument("--only", type=listed, help="some of what the part does, with commas")
    p.add_argument("--models", type=listed, default=list(MODELS), help="of shunt-zoo, with commas")
    p.add_argument("--precisions", type=listed, default=precisions and listed(precisions))
    p.add_argument("--batch", type=int, default=batch)
    p.add_argument("--runs", type=int, default=runs, help="timed runs of each case")
    p.add_argument("--seconds", type=float, default=seconds, help="of each load")
    return p


def cases(args):
    return [{"model": m, "precision": p, "batch": args.batch}
            for m in args.models for p in args.precisions]


def program(name, *args, limit_s=600):
    """Its output; RuntimeError with what it says if it fails."""
    r = subprocess.run([os.path.join(BIN, name), *map(str, args)], capture_output=True, text=True,
                       timeout=limit_s)
    if r.returncode:
        raise RuntimeError("%s %s: %s" % (name, args[0], r.stderr.strip()))
    return r.stdout


def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the report
    raise SystemExit(143)


def collect(args, what, by, measure):
    """The rows of measure(case) for each case; prints what came of it, also when told to stop."""
    from rows import failed
    rows = []
    signal.signal(signal.SIGTERM, stop)
    try:
        for case in cases(args):
            print("  ", what, by, *case.values(), file=sys.stderr, flush=True)
            try:
                rows += measure(case)
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as e:
                rows.append(failed(what, by, case, e))
    finally:
        print(json.dumps({"settings": vars(args), "rows": rows}), flush=True)
    return 1 if any("error" in r for r in rows) else 0
