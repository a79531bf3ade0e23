#!/usr/bin/env python3
"""What a switch costs: from RUN at the executor to its result, the model not on the device.

One executor of the laboratory (make lab) for each way of grouping, each with two versions of the model and a pool that holds only
one of them: a run of the other version, with the largest batch, evicts the one to be measured. The
samples of all ways are taken in turns, so that what else happens on the machine hits them alike.
docs/benchmarks.md says what the figures mean.

--timeline shows the events of one switch that takes the device from a training job.

Standard library only. Ends with 0 when the acceptance holds (see LIMIT), 1 when not.
"""
import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from exec_driver import BIN, Driver  # noqa: E402

WAYS = ("optimum", "per-layer", "fixed-2mb", "one-group")
LABEL = {"optimum": "pipelined, optimum", "per-layer": "pipelined, per layer",
         "fixed-2mb": "pipelined, fixed 2 MB", "one-group": "sequential (one group)"}
LIMIT = "optimum: median <= 1.10 x max(copy, compute) + 5 ms"
SAMPLE_BYTES, OUT_BYTES = {"inception-v3": 3 * 299 * 299 * 4}, 4000
GROUPS = 'shunt_switch_groups_total{executor="e0"}'
BLOCK = 2 << 20
TICK = os.sysconf("SC_CLK_TCK")


def program(name, *args):
    subprocess.run([os.path.join(BIN, name), *args], check=True, stdout=subprocess.DEVNULL)


def sizes(onnx, batch):
    """Bytes of the image and of the workspace."""
    with tempfile.NamedTemporaryFile() as f:
        program("shunt-run", "profile", "--model", onnx, "--batch", str(batch), "--repeat", "1",
                "--copy-gb-per-s", "1", "--report", f.name)
        r = json.load(open(f.name))
    return r["image_bytes"], r["workspace_bytes"]


def blocks(n):
    return (n + BLOCK - 1) // BLOCK * BLOCK


class Way:
    """One executor, one way of grouping."""

    def __init__(self, args, name, onnx, pool, *options):
        self.name, self.batch_max = name, max(args.batches)
        self.sample_bytes = SAMPLE_BYTES.get(args.model, 3 * 224 * 224 * 4)
        self.d = Driver("--debug-switch-mode=" + name, "--pool-bytes=%d" % pool, "--workers=2",
                        "--threads=%d" % args.threads, "--copy-gb-per-s=%g" % args.gb_per_s,
                        "--free-low-percent=0", "--free-high-percent=0",
                        "--share-images=false",  # its versions stand for models that have nothing in common
                        *options).start()
        try:
            self.load(onnx)
        except BaseException:
            self.close()
            raise

    def load(self, onnx):
        for version in (1, 2):
            self.d.load(version, self.d.package(onnx)[0], max_batch=self.batch_max,
                        tenant="bench", model="m%d" % version)

    def close(self):
        try:
            self.d.stop()
        finally:
            self.d.close()

    def run(self, version, batch):
        r, _ = self.d.result(self.d.run(version, [bytes(self.sample_bytes * batch)],
                                        [OUT_BYTES * batch], batch, tenant="bench"))
        assert r.rc == 0, r
        return {"total_ms": r.total_ns / 1e6, "copy_ms": r.copy_ns / 1e6,
                "compute_ms": r.compute_ns / 1e6}

    def switch(self, batch):
        """A run of version 1 that finds nothing of it on the device."""
        self.run(2, self.batch_max)  # takes all of the pool
        before = self.d.metrics()
        got = self.run(1, batch)
        after = self.d.metrics()
        cold = 'shunt_residency_total{executor="e0",tenant="t",result="none"}'
        assert after[cold] == before[cold] + 1, "the model was not evicted"
        self.groups = int(after[GROUPS] - before.get(GROUPS, 0))
        return got


# ---------------------------------------------------------------- the machine

def children():
    """(pid, name, CPU seconds) of this process and all below it."""
    parent, out = {}, []
    for pid in (p for p in os.listdir("/proc") if p.isdigit()):
        try:
            head, _, tail = open("/proc/%s/stat" % pid).read().rpartition(")")
        except OSError:
            continue
        f = tail.split()
        parent[int(pid)] = (int(f[1]), head.partition("(")[2], (int(f[11]) + int(f[12])) / TICK)
    for pid, (_, name, used) in parent.items():
        at = pid
        while at in parent and at != os.getpid():
            at = parent[at][0]
        if at == os.getpid():
            out.append((pid, name, used))
    return out


def busy_s():
    """CPU seconds of everything, and of this bench's processes."""
    v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return (sum(v) - v[3] - v[4]) / TICK, sum(c[2] for c in children())  # no idle, no iowait


def realtime(on):
    """Executors go before workers, as their copy threads do anyway."""
    for pid, name, _ in children():
        priority = {"shunt-executor": 2, "shunt-worker": 1}.get(name)
        for t in os.listdir("/proc/%d/task" % pid) if priority else ():
            os.sched_setscheduler(int(t), os.SCHED_FIFO if on else os.SCHED_OTHER,
                                  os.sched_param(priority if on else 0))


def wait_quiet(limit_s):
    """Until others use less than a tenth of one core, or the time is over."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        a, t = busy_s(), time.monotonic()
        time.sleep(0.2)
        b = busy_s()
        if (b[0] - a[0]) / (time.monotonic() - t) < 0.1:
            return


def machine():
    cpu = re.search(r"^model name\s*: (.*)$", open("/proc/cpuinfo").read(), re.M)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT,
                            stdout=subprocess.PIPE).stdout.decode().strip()
    return {"cpu": cpu.group(1) if cpu else platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "commit": commit,
            "date": time.strftime("%Y-%m-%d", time.gmtime())}


# ---------------------------------------------------------------- measuring and reporting

def measure(args, ways, batch):
    samples = {name: [] for name in (*WAYS, "ready")}
    for w in ways:  # warm up
        w.switch(batch)
    for i in range(args.samples):
        progress("batch %d: %d of %d" % (batch, i + 1, args.samples))
        if args.realtime:
            time.sleep(0.3)  # the others' turn
            realtime(True)
        else:
            wait_quiet(args.quiet)
        for w in ways:
            samples[w.name].append(w.switch(batch))
            if w.name == "optimum":
                samples["ready"].append(w.run(1, batch))
        if args.realtime:
            realtime(False)
    return samples


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r%-40s" % text)


def median(samples, key):
    return statistics.median(s[key] for s in samples)


def p99(samples, key):
    v = sorted(s[key] for s in samples)
    return v[min(len(v) - 1, int(0.99 * len(v)))]


def report(batch, samples, groups, copy_ms):
    compute_ms = median(samples["ready"], "compute_ms")
    bound = max(copy_ms, compute_ms)
    limit = 1.10 * bound + 5
    print("\nbatch %d: copy %.1f ms, compute %.1f ms, the larger one %.1f ms" %
          (batch, copy_ms, compute_ms, bound))
    print("  %-24s %6s %10s %10s %7s" % ("", "groups", "median ms", "p99 ms", "ratio"))
    for name in (*WAYS, "ready"):
        s = samples[name]
        print("  %-24s %6s %10.1f %10.1f %7.3f" %
              (LABEL.get(name, "ready (no copy)"), groups.get(name, "-"), median(s, "total_ms"),
               p99(s, "total_ms"), median(s, "total_ms") / bound))
    got = median(samples["optimum"], "total_ms")
    print("  %s: %.1f ms, limit %.1f ms" % ("PASS" if got <= limit else "FAIL", got, limit))
    return {"batch": batch, "copy_ms": round(copy_ms, 3), "compute_ms": round(compute_ms, 3),
            "limit_ms": round(limit, 3), "pass": got <= limit, "groups": groups,
            "samples": {k: {f: [round(s[f], 3) for s in v] for f in v[0]}
                        for k, v in samples.items()}}


def bench(args, onnx):
    image, ws = sizes(onnx, max(args.batches))
    ways, out = [], {"machine": machine(), "model": args.model, "image_bytes": image,
                     "threads": args.threads, "copy_gb_per_s": args.gb_per_s, "limit": LIMIT,
                     "realtime": args.realtime,
                     "batches": []}
    try:
        for name in WAYS:
            progress("starting: " + name)
            ways.append(Way(args, name, onnx, blocks(image) + blocks(ws)))
        m = ways[0].d.metrics()
        rate = m['shunt_link_bytes_per_second{executor="e0"}']
        alpha = m['shunt_link_latency_seconds{executor="e0"}']
        out.update(link_bytes_per_second=rate, link_latency_s=alpha)
        begin, t = busy_s(), time.monotonic()
        for batch in args.batches:
            samples = measure(args, ways, batch)
            groups = {w.name: w.groups for w in ways}
            progress("")
            out["batches"].append(report(batch, samples, groups, 1e3 * (alpha + image / rate)))
        end = busy_s()
        others = (end[0] - begin[0] - (end[1] - begin[1])) / (time.monotonic() - t)
        out["cores_used_by_others"] = round(max(others, 0), 3)
    finally:
        for w in ways:
            w.close()
    ok = all(b["pass"] for b in out["batches"])
    print("\n%s, %d cores, threads %s; others used %.2f cores meanwhile" %
          (out["machine"]["cpu"], out["machine"]["cores"], args.threads or "all",
           out["cores_used_by_others"]))
    print("%s: %s" % ("PASS" if ok else "FAIL", LIMIT))
    if args.out:
        with open(args.out, "w") as f:
            text = json.dumps(out, indent=1)
            f.write(re.sub(r"\[\s+([-0-9., \n]+?)\s+\]", lambda m: "[" + " ".join(
                m.group(1).split()) + "]", text) + "\n")
    return 0 if ok else 1


# ---------------------------------------------------------------- one switch, event by event

EVENTS = {"switch.start": "run is current, model {model}, batch {batch}",
          "train.stop": "training told to stop", "train.drained": "training drained ({way})",
          "switch.send": "{groups} groups enqueued, worker {worker} told",
          "group.arrived": "  group {group} arrived", "group.compute": "  group {group} computes",
          "switch.done": "result"}


def events(log):
    """Those of the last run."""
    out = []
    for line in log.splitlines():
        f = dict(re.findall(r"(\S+?)=(\S+)", line))
        if f.get("ev") == "switch.start":
            out = []
        if f.get("ev") in EVENTS:
            out.append((int(f["ns"]), EVENTS[f["ev"]].format(**f)))
    return sorted(out)


def timeline(args, onnx, folder):
    batch = args.batches[0]
    image, ws = sizes(onnx, max(args.batches))
    net = os.path.join(folder, "net.onnx")
    program("shunt-zoo", "digits-cnn", "--form", "training", "--out", net)
    spec = {"loss": "cross-entropy", "optimizer": {"name": "sgd", "lr": 0.01}, "batch": 32,
            "epochs": 1000, "seed": 1, "labels": "label"}
    w = Way(args, args.way, onnx, blocks(image) + blocks(ws) + 16 * BLOCK, "--workers=3",
            "--log-level=debug")
    try:
        w.d.start_job(1, w.d.package(net)[0],
                      os.path.join(ROOT, "examples", "digits", "train.safetensors"), spec)
        for version in (1, 2, 1):
            w.d.wait_job(1, ("RUNNING",))
            w.d.rest(0.5)
            w.run(version, batch)
        w.d.rest(0.1)
        got = events(open(os.path.join(w.d.dir, "executor.log")).read())
    finally:
        w.close()
    print("%s, batch %d, grouping %s" % (args.model, batch, args.way))
    for ns, text in got:
        print("%9.3f ms  %s" % ((ns - got[0][0]) / 1e6, text))
    return 0


def stop(*_):
    raise SystemExit(143)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default="resnet50", help="a model of shunt-zoo with one image input")
    p.add_argument("--batches", default="1,4,8")
    p.add_argument("--samples", type=int, default=20, help="of each way and batch")
    p.add_argument("--threads", type=int, default=0, help="of a worker; 0 = all cores")
    p.add_argument("--gb-per-s", type=float, default=1, help="copies are slowed to this rate")
    p.add_argument("--quiet", type=float, default=10,
                   help="wait so many seconds at most for a quiet machine before each round")
    p.add_argument("--realtime", action="store_true",
                   help="measure at real-time priority: for a machine that others use too (root)")
    p.add_argument("--out", help="JSON file with all samples")
    p.add_argument("--timeline", action="store_true",
                   help="the events of one switch of the first batch size instead of a table")
    p.add_argument("--way", default="optimum", choices=WAYS, help="grouping of --timeline")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, stop)  # so that what was started is stopped
    sys.stdout.reconfigure(line_buffering=True)
    args.batches = [int(b) for b in args.batches.split(",")]
    with tempfile.TemporaryDirectory(prefix="shunt-bench-") as d:
        onnx = os.path.join(d, "model.onnx")
        program("shunt-zoo", args.model, "--out", onnx)
        return timeline(args, onnx, d) if args.timeline else bench(args, onnx)


if __name__ == "__main__":
    sys.exit(main())
