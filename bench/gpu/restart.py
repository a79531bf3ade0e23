#!/usr/bin/env python3
"""How soon models are served again after a restart, with what is kept of earlier loads and without.

The whole system (`shunt up`) with all models loaded. "kill": the executor gets SIGKILL, and the
supervisor starts another one; "down": `shunt down; shunt up`. For each model a client asks again
and again whether it is ready and, when it is, for an inference. The time runs from the start of the
executor's new process to the first answer of each model. Beside it: when the model was said to be
ready, what an answer takes later, and what the plain copy of the model's bytes takes, from the page
cache into fresh memory. A refusal of what was said to be ready fails the check. Models that are
named twice have weights of their own.

On the cpu device there are ten models (bench/README.md).
"""
import collections
import glob
import http.client
import mmap
import os
import re
import shutil
import sys
import threading
import time

from lab import DEVICE, onnx
from over_http import Served, binary
from system import until
import part
from rows import row

EVERY_S = 0.02  # ten clients share the cores with what they measure
LIMIT_S = 300
WITHIN_MS = {"cuda": 3000, "cpu": 1000}[DEVICE]  # plus the copy
TEN = ["digits-cnn", "digits-cnn", "digits-cnn", "resnet18", "resnet18", "resnet50", "resnet50",
       "inception-v3", "resnet152", "bert-base"]
EXECUTOR = "executor-%s0" % DEVICE
PIECE = 4 << 20


def now():
    """Comparable with when a process began."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def began(pid):
    """To a hundredth of a second."""
    with open("/proc/%d/stat" % pid) as f:
        return int(f.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")


class Client(threading.Thread):
    """The first answer of one model."""

    def __init__(self, s, key, name, model):
        super().__init__(daemon=True)
        self.headers, self.body = binary(key, model, 1)
        self.port, self.at = s.port, "/v2/models/" + name
        self.ready_s = self.served_s = self.stages = None
        self.lies = 0

    def ask(self, conn, method, path, body=None):
        conn.request(method, self.at + path, body, self.headers if body else {
            "Authorization": self.headers["Authorization"]})
        r = conn.getresponse()
        said = r.read()
        if body and r.status != 200:
            print("     refused:", r.status, said[:300], file=sys.stderr)
        if body:
            self.stages = re.findall(r"(\w+);dur=([0-9.]+)", r.headers.get("Server-Timing", ""))
        return r.status == 200

    def run(self):
        end = now() + LIMIT_S
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        while self.served_s is None and now() < end:
            try:
                if not self.ask(conn, "GET", "/ready"):
                    time.sleep(EVERY_S)
                    continue
                self.ready_s = now()
                if self.ask(conn, "POST", "/infer", self.body):
                    self.served_s = now()
                else:
                    self.lies += 1
            except OSError:  # `shunt down`: nobody listens
                conn.close()
                time.sleep(EVERY_S)
        conn.close()

    def warm_ms(self):
        """What an answer takes when nothing has to be waited for: the fastest of a few."""
        conn, took = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S), []
        for _ in range(3):
            begin = now()
            assert self.ask(conn, "POST", "/infer", self.body)
            took.append(1e3 * (now() - begin))
        conn.close()
        return min(took)


def kill(s, clients):
    old = s.kill(EXECUTOR)
    until("its end is noticed", lambda: s.call("GET", "/v2/health/ready").status == 503,
          every_s=EVERY_S)
    for c in clients:
        c.start()
    s.wait_new(EXECUTOR, old)


def down(s, clients):
    s.cli("down")
    for c in clients:
        c.start()
    s.up_again()


def restart(s, key, models, way):
    """The clients, and when the executor's process began."""
    clients = {n: Client(s, key, n, m) for n, m in models.items()}
    way(s, clients.values())
    for c in clients.values():
        c.join()
    missing = [n for n, c in clients.items() if c.served_s is None]
    assert not missing, "not served again: %s" % missing
    return clients, began(s.pid(EXECUTOR))


def copy_ms(n):
    """n bytes from the page cache into memory that nobody has touched: the fastest of a few."""
    took, fd = [], os.memfd_create("image")
    for at in range(0, n, PIECE):
        os.pwrite(fd, os.urandom(min(PIECE, n - at)), at)
    for _ in range(3):
        with mmap.mmap(-1, n) as to, memoryview(to) as view:
            begin = now()
            for at in range(0, n, PIECE):
                os.preadv(fd, [view[at:at + PIECE]], at)
            took.append(1e3 * (now() - begin))
    os.close(fd)
    return min(took)


def copies(s):
    """{name of a model: ms of the copy of its image}"""
    found = (re.search(r" model=(\S+) image_bytes=(\d+)", line)
             for line in s.logged(EXECUTOR, "model.ready"))
    return {m[1]: copy_ms(int(m[2])) for m in {f[1]: f for f in found}.values()}


def steps(s):
    """What the executor says of its last loads."""
    lines = s.logged(EXECUTOR, "model.steps") + s.logged(EXECUTOR, "worker.ready")
    return [re.sub(r"^ts=(\S+).* ev=", r"\1 ", line).strip() for line in sorted(lines)]


def names_of(models):
    """{its own name: (model, seed)}"""
    count, out = collections.Counter(), {}
    for m in models:
        count[m] += 1
        out["%s-%d" % (m, count[m])] = (m, count[m])
    return out


def measure(case, args):
    names = names_of(args.models)
    models = {n: m for n, (m, _) in names.items()}
    way = {"kill": kill, "down": down}[case["restart"]]
    with Served() as s:
        key = s.tenant("bench")
        s.push_all(key, {n: onnx(m, seed=seed) for n, (m, seed) in names.items()}, case)
        until("what is measured of kernels is there", lambda: glob.glob(s.state + "/kept/*.kept"))
        lies, late = 0, {}
        for kept in args.kept:
            got = {n: [] for n in names}
            n_lines = len(steps(s))
            for _ in range(args.runs):
                if not kept:
                    shutil.rmtree(os.path.join(s.state, "kept"))
                clients, start = restart(s, key, models, way)
                for n, c in clients.items():
                    lies += c.lies
                    got[n].append((1e3 * (c.served_s - start), 1e3 * (c.ready_s - start)))
                    if args.lines:
                        print("      ", n, *("%s %s" % s for s in c.stages), file=sys.stderr)
            copy, warm = copies(s), {n: c.warm_ms() for n, c in clients.items()}
            for n, t in sorted(got.items(), key=lambda i: i[1]):
                r = row("restart", "shunt", {"model": n, **case, "kept": kept},
                        [a for a, _ in t], ready_ms=[round(b, 1) for _, b in t],
                        copy_ms=round(copy[n], 1), warm_ms=round(warm[n], 1))
                print("      ready %7.0f  answer %7.0f  copy %5.0f  over the copy %7.0f  warm %5.0f"
                      "  ms" % (r["ready_ms"][-1], r["value"], copy[n], r["value"] - copy[n], warm[n]),
                      file=sys.stderr)
                if kept and r["value"] - copy[n] > WITHIN_MS:
                    late[n] = round(r["value"] - copy[n])
                yield r
            for line in steps(s)[n_lines:][-args.lines:]:
                print("       ", line, file=sys.stderr)
        yield {"check": "what is said to be ready is served", "ok": lies == 0, "refused": lies}
        yield {"check": "each is served within %d ms plus its copy" % WITHIN_MS, "ok": not late,
               "later": late}


def main():
    p = part.options(__doc__, "tf32", runs=3)
    if DEVICE == "cpu":
        p.set_defaults(models=TEN)
    p.add_argument("--lines", type=int, default=40, help="of the executor's log that are shown")
    p.add_argument("--kept", type=lambda text: [w == "yes" for w in text.split(",")],
                   default=[False, True], help="no,yes: without what is kept, and with it")
    args = p.parse_args()
    ways = ["kill", "down"]
    part.check_known(p, args.only or [], ways, "way")
    return part.collect(args, "restart", "shunt", lambda case: measure(case, args),
                        [{"precision": p, "batch": args.batch, "restart": way}
                         for p in args.precisions for way in args.only or ways])


if __name__ == "__main__":
    sys.exit(main())
