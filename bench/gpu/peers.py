#!/usr/bin/env python3
"""The same work with PyTorch (../peers/): ready, load, process, share, train.

ready-compiled and train-compiled are what torch.compile makes of it. That takes minutes, so it is
compiled first, in one process for each model at the same time, and only the figures are taken one
after the other.
"""
import json
import os
import signal
import subprocess
import sys

import lab  # noqa: F401 (makes ../lib known)
import part
from rows import failed

READY = {"--precisions": "tf32,fp16", "--batch": 8}
TRAIN = {"--precisions": "tf32,bf16", "--batch": 32}
PEERS = {"ready": {**READY, "--compiled": "not"},
         "load": {"--precisions": "tf32,fp16", "--batch": 8},
         "process": {"--precisions": "tf32", "--batch": 8},
         "train": {**TRAIN, "--compiled": "not"},
         "share": {"--precisions": "tf32", "--batch": 8},
         "ready-compiled": {**READY, "--compiled": "only"},
         "train-compiled": {**TRAIN, "--compiled": "only"}}
COMPILED = "-compiled"  # at the end of a name: the same program
LIMIT_S = 540  # of one peer; it prints what it has when it is stopped
COMPILE_LIMIT_S = 300
STOP_S = 60

running, told = [], []  # processes; not empty once we are told to stop


def command(name, args, models, **more):
    given = {**PEERS[name], "--models": ",".join(models), **more}
    if args.precisions:
        given["--precisions"] = ",".join(args.precisions)
    program = name.removesuffix(COMPILED) + ".py"
    return [sys.executable, os.path.join(part.ROOT, "bench", "peers", program),
            *(str(x) for kv in given.items() for x in kv)]


def start(cmd, **more):
    p = subprocess.Popen(cmd, **more)
    running.append(p)
    return p


def ended(p, limit_s):
    """What it printed; it is told to stop after the limit."""
    try:
        return p.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        p.terminate()
    try:
        return p.communicate(timeout=STOP_S)[0]
    except subprocess.TimeoutExpired:
        p.kill()
        return p.communicate()[0]


def on_stop(*_):
    """What runs prints what it has; nothing else is started."""
    told.append(True)
    for p in running:
        if p.poll() is None:
            p.terminate()


def compile_all(names, args):
    """Fills the compiler's caches; what fails here fails again, and is reported, when measured."""
    for p in [start(command(n, args, [m], **{"--runs": 1}), stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL)
              for n in names if n.endswith(COMPILED) for m in args.models]:
        ended(p, COMPILE_LIMIT_S)


def run(name, args):
    more = {"--seconds": args.seconds} if name == "share" else {}
    if args.runs and name not in ("process", "share"):
        more["--runs"] = args.runs
    p = start(command(name, args, args.models, **more), stdout=subprocess.PIPE, text=True)
    return json.loads(ended(p, LIMIT_S))


def main():
    p = part.options(__doc__, precisions=None, runs=0)
    args = p.parse_args()
    names = args.only or list(PEERS)
    part.check_known(p, names, PEERS, "peer")
    rows, settings = [], {}
    signal.signal(signal.SIGTERM, on_stop)
    compile_all(names, args)
    for name in names:
        if told:
            break
        print("  peer", name, file=sys.stderr, flush=True)
        try:
            got = run(name, args)
            rows += got["rows"]
            settings[name] = got["settings"]
        except (OSError, ValueError) as e:
            rows.append(failed(name, "pytorch", {}, e))
    print(json.dumps({"settings": settings, "rows": rows}))
    return 1 if told or any("error" in r for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
