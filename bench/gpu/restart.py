#!/usr/bin/env python3
"""How soon models are served again after their executor was killed, with what is kept of earlier
loads and without.

The whole system (`shunt up`) with all models loaded. The executor gets SIGKILL, the supervisor
starts another one, and for each model a client asks again and again whether it is ready and, when
it is, for an inference. The time runs from the start of the new process to the first answer of
each model; "after the kill" is the time since the signal. A refusal of what was said to be ready
fails the check.
"""
import glob
import http.client
import json
import os
import re
import shutil
import sys
import threading
import time

import numpy as np

from lab import DEVICE, POOL, onnx, tensors
from over_http import DATATYPE, Served
from system import until
import part
from rows import row

EVERY_S = 0.005
LIMIT_S = 300


class Client(threading.Thread):
    """The first answer of one model."""

    def __init__(self, s, key, name, model):
        super().__init__(daemon=True)
        arrays = tensors(model, 1)
        head = {"inputs": [{"name": k, "datatype": DATATYPE[a.dtype.name], "shape": list(a.shape),
                            "parameters": {"binary_data_size": a.nbytes}}
                           for k, a in arrays.items()],
                "parameters": {"binary_data_output": True}}
        text = json.dumps(head).encode()
        self.body = text + b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
        self.headers = {"Authorization": "Bearer " + key,
                        "Inference-Header-Content-Length": str(len(text))}
        self.s, self.at, self.served_s, self.lies = s, "/v2/models/" + name, None, 0

    def ask(self, conn, method, path, body=None):
        conn.request(method, self.at + path, body, self.headers)
        r = conn.getresponse()
        said = r.read()
        if body and r.status != 200:
            print("     refused:", r.status, said[:300], file=sys.stderr)
        return r.status == 200

    def run(self):
        end = time.monotonic() + LIMIT_S
        conn = http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=LIMIT_S)
        while self.served_s is None and time.monotonic() < end:
            if not self.ask(conn, "GET", "/ready"):
                time.sleep(EVERY_S)
            elif self.ask(conn, "POST", "/infer", self.body):
                self.served_s = time.monotonic()
            else:
                self.lies += 1
        conn.close()


def restart(s, key, models):
    """Seconds for each model since the new process began, and since the kill; refusals of what was
    said to be ready."""
    name = "executor-%s0" % DEVICE
    clients = {n: Client(s, key, n, m) for n, m in models.items()}
    killed = time.monotonic()
    old = s.kill(name)
    until("its end is noticed", lambda: s.call("GET", "/v2/health/ready").status == 503,
          every_s=EVERY_S)
    began = until("a new process", lambda: s.pid(name) not in (0, old) and time.monotonic(),
                  every_s=EVERY_S)
    for c in clients.values():
        c.start()
    for c in clients.values():
        c.join()
    missing = [n for n, c in clients.items() if c.served_s is None]
    assert not missing, "not served again: %s" % missing
    return ({n: (c.served_s - began, c.served_s - killed) for n, c in clients.items()},
            sum(c.lies for c in clients.values()))


def steps(s):
    """What the executor says of its last loads."""
    lines = s.logged("executor-%s0" % DEVICE, "model.steps") + \
        s.logged("executor-%s0" % DEVICE, "worker.ready")
    return [re.sub(r"^ts=(\S+).* ev=", r"\1 ", line).strip() for line in sorted(lines)]


def measure(case, args):
    s = Served("--device=" + DEVICE, "--pool-bytes=" + POOL, "--threads=0", DETERMINISTIC="false",
               BUSY_POLL_US=part.BUSY_POLL_US)
    try:
        key = s.tenant("bench")
        names = {"%s-%d" % (m, i): m for i in range(args.copies) for m in args.models}
        for n, m in names.items():
            with open(onnx(m), "rb") as f:
                s.push(key, n, f.read(), max_batch=case["batch"], precision=case["precision"])
        until("what is measured of kernels is there", lambda: glob.glob(s.state + "/kept/*.kept"))
        lies = 0
        for kept in (False, True):
            times = {n: [] for n in names}
            n_lines = len(steps(s))
            for _ in range(args.runs):
                if not kept:
                    shutil.rmtree(os.path.join(s.state, "kept"))
                got, n_lies = restart(s, key, names)
                lies += n_lies
                for n, t in got.items():
                    times[n].append(t)
            for n, t in times.items():
                yield row("restart", "shunt", {"model": n, **case, "kept": kept},
                          [1e3 * a for a, _ in t], after_kill_ms=[round(1e3 * b, 1) for _, b in t])
            for line in steps(s)[n_lines:][-args.lines:]:
                print("       ", line, file=sys.stderr)
        yield {"check": "what is said to be ready is served", "ok": lies == 0, "refused": lies}
    except Exception:
        s.failed = True
        raise
    finally:
        s.stop()


def main():
    p = part.options(__doc__, "tf32", runs=3)
    p.add_argument("--copies", type=int, default=1, help="of each model, under names of their own")
    p.add_argument("--lines", type=int, default=40, help="of the executor's log that are shown")
    args = p.parse_args()
    return part.collect(args, "restart", "shunt", lambda case: measure(case, args),
                        [{"precision": p, "batch": args.batch} for p in args.precisions])


if __name__ == "__main__":
    sys.exit(main())
