#!/usr/bin/env python3
"""Two PyTorch processes on one GPU: one trains, one answers requests that come at a given rate.

With the driver's time slicing, and with MPS, whose daemon is started here with folders of its own
and stopped again. The server replays a CUDA graph of a model that stays on the device; a request
waits for the ones before it, and its latency counts from its arrival until the result is in host
memory. The trainer is eager. Prints one JSON object (see ../lib/rows.py): the value is the p99.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

START_S = 180  # for a process to be ready
STOP_S = 30
LEAVE_S = 10  # for a process to end by itself
SPIN_S = 0.0005  # sleep() wakes up late


# ---------------------------------------------------------------- the two processes

def train_forever(name, precision, batch):
    """Says "ready", trains until its input ends, says when each step ended."""
    from train import stepper
    import common as c
    step = stepper(name, precision, batch, channels_last=c.is_image(name))
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    stamps = []
    for _ in range(10):
        step()
    c.synchronize()
    print("ready", flush=True)
    while not ended.is_set():
        step()
        c.synchronize()
        stamps.append(time.monotonic())
    print(json.dumps(stamps), flush=True)


def wait_until(at):
    left = at - time.monotonic()
    if left > SPIN_S:
        time.sleep(left - SPIN_S)
    while time.monotonic() < at:
        pass


def serve(name, precision, batch):
    """Says "ready"; for each line of seconds of arrival, the latencies in ms."""
    import common as c
    model, x = c.ready(name, precision, batch, c.is_image(name))
    host_x = c.pinned(x)
    graph, out = c.captured(lambda: c.infer(model, x))
    host_out = c.pinned(out)
    c.timed(graph.replay, 10)
    print("ready", flush=True)
    for line in sys.stdin:
        start, latencies = time.monotonic() + 0.05, []
        for at in json.loads(line):
            wait_until(start + at)
            x.copy_(host_x, non_blocking=True)
            graph.replay()
            host_out.copy_(out, non_blocking=True)
            c.synchronize()
            latencies.append((time.monotonic() - start - at) * 1e3)
        print(json.dumps({"start": start, "end": time.monotonic(), "ms": latencies}), flush=True)


class Child:
    def __init__(self, role, args, name, precision, batch, env):
        self.log = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--role", role, name,
                                   precision, str(batch)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=self.log, text=True, env=env)
        self.limit_s = args.seconds * 10 + START_S

    def line(self):
        """Its next line; the process is killed if that takes too long."""
        timer = threading.Timer(self.limit_s, self.p.kill)
        timer.daemon = True
        timer.start()
        try:
            text = self.p.stdout.readline()
        finally:
            timer.cancel()
        if not text:
            self.p.wait(STOP_S)
            self.log.seek(0)
            raise RuntimeError("the process ended: " + self.log.read()[-400:])
        return text

    def ask(self, what):
        self.p.stdin.write(json.dumps(what) + "\n")
        self.p.stdin.flush()
        return json.loads(self.line())

    def end_input(self):
        self.p.stdin.close()
        self.p.stdin = None  # communicate() would use it

    def stop(self):
        """Lets it end by itself: one that is killed can leave MPS unable to serve others."""
        try:
            self.p.communicate(timeout=LEAVE_S)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait(STOP_S)
        self.log.close()


# ---------------------------------------------------------------- MPS

@contextlib.contextmanager
def mps():
    """The environment in which processes share by MPS; RuntimeError where it cannot start."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        raise RuntimeError("nvidia-cuda-mps-control is not installed")
    folder = tempfile.TemporaryDirectory(prefix="shunt-mps-", ignore_cleanup_errors=True)
    with folder as d:
        env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=d, CUDA_MPS_LOG_DIRECTORY=d)
        with open(os.path.join(d, "started"), "w+") as said:  # the daemon may keep a pipe open
            r = subprocess.run([control, "-d"], env=env, stdin=subprocess.DEVNULL, stdout=said,
                               stderr=said, timeout=STOP_S)
            said.seek(0)
            if r.returncode:
                raise RuntimeError("nvidia-cuda-mps-control: " + said.read())
        try:  # a client's devices are numbered among those that the daemon has
            yield dict(env, CUDA_VISIBLE_DEVICES="0") if "CUDA_VISIBLE_DEVICES" in env else env
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], env=env, input="quit\n", capture_output=True, text=True,
                               timeout=STOP_S)


@contextlib.contextmanager
def time_slicing():
    yield dict(os.environ)


WAYS = {"time slicing": time_slicing, "mps": mps}


# ---------------------------------------------------------------- measuring

def throughput(stamps, start, end, batch):
    n = sum(start <= t < end for t in stamps)
    return round(n * batch / (end - start), 2)


def started(stack, *of):
    child = Child(*of)
    stack.callback(child.stop)
    child.line()
    return child


def measure(case, args, by, env):
    from rows import arrivals, load_seconds, row
    name, precision, rows = case["model"], case["precision"], []
    with contextlib.ExitStack() as stack:
        # One after the other: each finds its fastest convolutions undisturbed.
        server, trainer = [started(stack, *of) for of in (
            ("serve", args, name, precision, args.batch, env),
            ("train", args, name, precision, args.train_batch, env))]
        time.sleep(0.5)
        alone = [time.monotonic()]
        time.sleep(args.seconds)
        alone.append(time.monotonic())
        loads = [(rate, server.ask(arrivals(rate, load_seconds(rate, args.seconds, args.requests))))
                 for rate in args.rates]
        trainer.end_input()
        stamps = json.loads(trainer.line())
    exclusive = throughput(stamps, *alone, args.train_batch)
    for rate, got in loads:
        r = row("share", by, {**case, "requests_per_s": rate}, got["ms"])
        r["value"] = r["p99"]
        r["training_samples_per_s"] = throughput(stamps, got["start"], got["end"], args.train_batch)
        r["training_alone_samples_per_s"] = exclusive
        rows.append(r)
    return rows


def work(args):
    import common as c
    from rows import skipped
    for way in args.ways:
        by, sharing = "pytorch " + way, WAYS[way]
        try:
            with sharing() as env:
                for case in c.cases(args):
                    yield ("share", by, case,
                           lambda case=case, by=by, env=env: measure(case, args, by, env))
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            yield "share", by, {}, lambda by=by, e=e: [skipped("share", by, {}, e)]


def main():
    import common as c
    p = c.options(__doc__, "tf32", 8)
    p.add_argument("--rates", default="5,20,50", type=lambda s: [float(x) for x in s.split(",")],
                   help="requests a second")
    p.add_argument("--seconds", type=float, default=5, help="of each load, at least")
    p.add_argument("--requests", type=int, default=60, help="of each load, about, at least")
    p.add_argument("--train-batch", type=int, default=32)
    p.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="to share the GPU")
    args = c.parse(p)
    c.collect(args, work(args))


if __name__ == "__main__":
    if len(sys.argv) == 6 and sys.argv[1] == "--role":
        {"train": train_forever, "serve": serve}[sys.argv[2]](sys.argv[3], sys.argv[4],
                                                              int(sys.argv[5]))
    else:
        main()
