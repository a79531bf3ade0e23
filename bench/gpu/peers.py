#!/usr/bin/env python3
"""The same work with PyTorch (../peers/): ready, load, process, share, train.

ready-compiled and train-compiled are what torch.compile makes of it. That takes minutes, so it is
compiled first, in one process for each model and precision at the same time, and only the figures
are taken one after the other. Options that are not listed go to the peers: share --rates 20
"""
import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time

import lab  # noqa: F401 (makes ../lib known)
import part
from rows import failed

ALL = ",".join(part.MODELS)
READY = {"--models": ALL, "--precisions": part.here("tf32,fp16"), "--batch": 8}
TRAIN = {"--models": ALL, "--precisions": part.here("tf32,bf16"), "--batch": 32}
PEERS = {"ready": {**READY, "--compiled": "not"},
         "load": READY,
         "process": {**READY, "--precisions": part.here("tf32")},
         "train": {**TRAIN, "--compiled": "not"},
         "share": {"--models": "resnet152,bert-base", "--precisions": part.here("tf32"),
                   "--batch": 8},
         "ready-compiled": {**READY, "--compiled": "only"},
         "train-compiled": {**TRAIN, "--compiled": "only"}}
COMPILED = "-compiled"  # at the end of a name: the same program
LIMIT_S = 540  # of one peer; it prints what it has when it is stopped
STOP_S = 60
PROCESSES = 3  # started for each case of "process", beside one that does not count

running, told = [], []  # processes; not empty once we are told to stop


def cases(name, args):
    """Models and precisions."""
    of = PEERS[name]
    return (args.models or of["--models"].split(","),
            args.precisions or of["--precisions"].split(","))


def command(name, args, models, precisions, **more):
    given = {**PEERS[name], "--models": ",".join(models), "--precisions": ",".join(precisions),
             **({"--batch": args.batch} if args.batch else {}), **more}
    program = name.removesuffix(COMPILED) + ".py"
    return [sys.executable, os.path.join(part.ROOT, "bench", "peers", program),
            *(str(x) for kv in given.items() for x in kv), *args.more]


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


def passed_on(pipe, last):
    """Shows what a process says, and keeps the end of it."""
    for line in pipe:
        sys.stderr.write(line)
        last.append(line)


def on_stop(*_):
    """What runs prints what it has; nothing else is started."""
    told.append(True)
    for p in running:
        if p.poll() is None:
            p.terminate()


def compile_all(names, args):
    """Fills the compiler's caches; what fails here fails again, and is reported, when measured."""
    if args.compile_limit <= 0:
        return
    began = time.monotonic()
    processes = [start(command(n, args, [m], [p], **{"--runs": 1}), stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
                 for n in names if n.endswith(COMPILED)
                 for models, precisions in (cases(n, args),) for m in models for p in precisions]
    for p in processes:
        ended(p, max(0, began + args.compile_limit - time.monotonic()))
    if processes:
        print("  compiling took %.0f s" % (time.monotonic() - began), file=sys.stderr, flush=True)


def run(name, args):
    more = {"--seconds": args.seconds} if name == "share" else {}
    if args.runs and name != "share":
        more["--runs"] = min(args.runs, PROCESSES) if name == "process" else args.runs
    p = start(command(name, args, *cases(name, args), **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
              text=True)
    last = collections.deque(maxlen=5)
    reader = threading.Thread(target=passed_on, args=(p.stderr, last))
    p.stderr = None  # the reader's
    reader.start()
    printed = ended(p, LIMIT_S)
    reader.join(1)
    if not printed:
        raise RuntimeError("it printed no figures and ended with %d: %s" % (
            p.returncode, " ".join("".join(last).split())))
    return json.loads(printed.splitlines()[-1])


def main():
    p = part.options(__doc__, precisions=None, runs=0)
    p.set_defaults(models=None, batch=None)  # each peer has its own
    p.add_argument("--compile-limit", type=float, default=300,
                   help="seconds; what is not compiled then is compiled when it is measured. 0: "
                        "an earlier --compile-only did it")
    p.add_argument("--compile-only", action="store_true",
                   help="measure nothing: for a run that follows on the same host")
    args, args.more = p.parse_known_args()
    names = args.only or list(PEERS)
    part.check_known(p, names, PEERS, "peer")
    rows, settings = [], {}
    signal.signal(signal.SIGTERM, on_stop)
    compile_all(names, args)
    for name in names:
        if told or args.compile_only:
            break
        print("  peer", name, file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            got = run(name, args)
            rows += got["rows"]
            settings[name] = got["settings"]
        except (OSError, ValueError, RuntimeError) as e:
            rows.append(failed(name, "pytorch", {}, e))
        print("  peer %s took %.0f s" % (name, time.monotonic() - began), file=sys.stderr,
              flush=True)
    print(json.dumps({"settings": settings, "rows": rows}))
    return 1 if told or any("error" in r for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
