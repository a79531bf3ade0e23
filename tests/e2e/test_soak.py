#!/usr/bin/env python3
"""16 clients send requests for a minute while a training job runs: nothing wrong, lost or leaked.

Two models share a pool that cannot hold both beside the training: the larger one is evicted and comes
back all the time. Each reply is compared with the reference of its own input. Memory of each process
after a third of the time is compared with that at the end.

Without it: a reply could reach the wrong client, one in ten thousand requests could hang, and a leak of
a few bytes a request would show only in production.

Usage: test_soak.py [-v]      SOAK_SECONDS: how long, default 60; SOAK_CLIENTS: how many, default 16
"""
import math
import multiprocessing
import os
import random
import statistics
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as ob  # noqa: E402
from clients import Client, unpack  # noqa: E402
from system import DIGITS, System, read_st, until, zoo  # noqa: E402

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
CLIENTS = int(os.environ.get("SOAK_CLIENTS", "16"))
THINK_S = 0.1  # a client's mean pause: training gets the device in between
POOL = 12 * (2 << 20)  # `wide` has 9 blocks, the job 3, `digits` 1, and each run needs a workspace
MAX_BATCH = 8
TOLERANCE = 1e-4  # of the range of the outputs; the server may run a sample in any batch size
GROWTH, GROWTH_BYTES = 0.03, 2 << 20
CLASSES = 10


def wide(width=2048):
    """x [N,1,8,8] -> logits [N,10], 17 MB of weights."""
    rng = random.Random(9)
    some = [rng.gauss(0, 1) for _ in range(65521)]

    def dense(name, n_in, n_out):
        scaled = struct.pack("<65521f", *(v * (2 / n_in) ** 0.5 for v in some))
        size = 4 * n_in * n_out
        raw = (scaled * (size // len(scaled) + 1))[:size]
        return [ob.tensor(name + ".weight", [n_in, n_out], [], raw=raw),
                ob.tensor(name + ".bias", [n_out], [0.0] * n_out)]

    def gemm(name, x, y):
        return ob.node("Gemm", [x, name + ".weight", name + ".bias"], [y])
    return ob.model([ob.node("Flatten", ["x"], ["flat"], axis=1), gemm("fc1", "flat", "a"),
                     ob.node("Relu", ["a"], ["b"]), gemm("fc2", "b", "c"), ob.node("Relu", ["c"], ["d"]),
                     gemm("fc3", "d", "logits")],
                    [ob.value("x", ["N", 1, 8, 8])], [ob.value("logits", ["N", CLASSES])],
                    [*dense("fc1", 64, width), *dense("fc2", width, width), *dense("fc3", width, CLASSES)])


class Samples:
    """The inputs, and what each model says of each of them."""

    def __init__(self, client, models):
        dtype, shape, self.raw = read_st(os.path.join(DIGITS, "test.safetensors"))["x"]
        assert dtype == "F32"
        self.n, self.shape = shape[0], shape[1:]
        self.bytes = len(self.raw) // self.n
        self.want, self.tolerance = {}, {}
        for m in models:
            rows = []
            for at in range(0, self.n, MAX_BATCH):
                rows += self.ask(client, m, at, min(MAX_BATCH, self.n - at), True, True)
            self.want[m] = rows
            values = [v for row in rows for v in row]
            self.tolerance[m] = TOLERANCE * (max(values) - min(values))

    def ask(self, client, model, at, batch, binary_in, binary_out):
        raw = self.raw[at * self.bytes:(at + batch) * self.bytes]
        out = client.infer(model + "/versions/1", {"x": ("FP32", [batch, *self.shape], raw)}, binary_in,
                           binary_out)
        dtype, shape, data = out["logits"]
        assert len(out) == 1 and dtype == "FP32" and shape == [batch, CLASSES], out
        values = unpack(dtype, data)
        return [values[i * CLASSES:(i + 1) * CLASSES] for i in range(batch)]

    def distance(self, model, at, row):
        return max(abs(a - b) for a, b in zip(row, self.want[model][at]))

    def confusable(self, model):
        """Share of pairs of samples that the check could not tell apart."""
        pairs = [(random.Random(i).randrange(self.n), i % self.n) for i in range(5000)]
        pairs = [(a, b) for a, b in pairs if a != b]
        same = sum(self.distance(model, a, self.want[model][b]) < 4 * self.tolerance[model]
                   for a, b in pairs)
        return same / len(pairs)


def client_main(number, port, key, samples, begin, pipe):
    """Sends (model, latency, what is wrong) for each request."""
    rng = random.Random(number)
    client = Client(port, key)
    done = []
    begin.wait()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        model, batch = rng.choice(("digits", "digits", "wide")), rng.randint(1, MAX_BATCH)
        at = rng.randrange(samples.n - batch + 1)
        how = rng.random() < 0.5, rng.random() < 0.5
        start = time.monotonic()
        wrong = None
        try:
            rows = samples.ask(client, model, at, batch, *how)
            ms = (time.monotonic() - start) * 1e3
            far = [i for i in range(batch) if not samples.distance(model, at + i, rows[i])
                   <= samples.tolerance[model]]
            if far:
                wrong = "rows %s of a batch of %d differ" % (far, batch)
        except Exception as e:
            ms = (time.monotonic() - start) * 1e3
            wrong = repr(e)
            client.close()
        done.append((model, ms, wrong))
        time.sleep(min(rng.expovariate(1 / THINK_S), 5 * THINK_S))
    client.close()
    pipe.send(done)
    pipe.close()


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(q * len(values)) - 1)]


class Soak(unittest.TestCase):
    def setUp(self):
        self.s = System("--pool-bytes=%d" % POOL, "--workers=3")
        self.addCleanup(self.stop)
        self.key = self.s.tenant("soak")
        self.s.push(self.key, "digits", zoo("digits-cnn", "training"), max_batch=MAX_BATCH)
        self.s.push(self.key, "wide", wide(), max_batch=MAX_BATCH)
        with open(os.path.join(DIGITS, "train.safetensors"), "rb") as f:
            self.s.push_data(self.key, "train", f.read())
        client = Client(self.s.port, self.key)
        self.samples = Samples(client, ("digits", "wide"))
        client.close()

    def stop(self):
        self.s.failed = self.s.failed or any(e for _, e in getattr(self._outcome, "errors", []) or []) \
            or not getattr(self._outcome, "success", True)
        self.s.stop()

    def count(self, process, name, label=""):
        return sum(v for k, v in self.s.metrics(process).items()
                   if k.startswith(name + "{") and label in k)

    def processes(self):
        pids = {n: self.s.pid(n) for n in ("supervisor", "api", "scheduler", "executor-cpu0")}
        for i, pid in enumerate(self.s.workers()):
            pids["worker-%d" % i] = pid
        return pids

    def run_clients(self):
        """All requests, and the memory of each process over the time."""
        ctx = multiprocessing.get_context("fork")
        begin = ctx.Barrier(CLIENTS + 1)
        ends, children = [], []
        for i in range(CLIENTS):
            mine, theirs = ctx.Pipe(duplex=False)
            p = ctx.Process(target=client_main, daemon=True,
                            args=(i, self.s.port, self.key, self.samples, begin, theirs))
            p.start()
            theirs.close()
            ends.append(mine)
            children.append(p)
        begin.wait(30)
        memory, start = [], time.monotonic()
        pids = self.processes()
        while (now := time.monotonic() - start) < SECONDS:
            memory.append((now, {n: resident(p) for n, p in pids.items()}))
            time.sleep(0.2)
        done = []
        for pipe in ends:
            self.assertTrue(pipe.poll(90), "a client does not end: a reply is lost")
            done += pipe.recv()
            pipe.close()
        for p in children:
            p.join(10)
        self.assertEqual(self.processes(), pids, "a process died")
        return done, memory

    def check_memory(self, memory):
        grown = []
        for name in memory[0][1]:
            early = statistics.median(m[name] for t, m in memory if 0.3 <= t / SECONDS <= 0.4)
            late = statistics.median(m[name] for t, m in memory[-5:])
            print("%-14s %6.1f MB after a third, %6.1f MB at the end, %+.2f MB"
                  % (name, early / 1e6, late / 1e6, (late - early) / 1e6))
            if late - early > GROWTH * early + GROWTH_BYTES:
                grown.append(name)
        self.assertEqual(grown, [], "processes that grow")

    def report(self, done, steps):
        print("%d clients, %.0f s: %d requests, %.1f a second; %d training steps"
              % (CLIENTS, SECONDS, len(done), len(done) / SECONDS, steps))
        for model in ("digits", "wide"):
            ms = [x[1] for x in done if x[0] == model]
            print("%-7s %6d requests, p50 %.1f ms, p99 %.1f ms, most %.1f ms"
                  % (model, len(ms), quantile(ms, 0.5), quantile(ms, 0.99), max(ms)))

    def test_clients_and_training_share_the_device(self):
        for model in ("digits", "wide"):
            self.assertLess(self.samples.confusable(model), 0.01)
        r = self.s.submit(self.key, model="digits", dataset="train", spec=dict(
            epochs=None, steps=1000000, checkpoint_interval_ms=1000))
        job = r.json["id"]
        self.s.wait_step(self.key, job, 1)
        asked = self.count("api", "shunt_requests_total")
        steps = self.count("executor-cpu0", "shunt_train_steps_total")
        done, memory = self.run_clients()
        steps = self.count("executor-cpu0", "shunt_train_steps_total") - steps
        self.report(done, steps)
        wrong = [x for x in done if x[2]]
        self.assertEqual(wrong[:3], [], "%d of %d requests" % (len(wrong), len(done)))
        until("all requests are counted", lambda: self.count("api", "shunt_requests_total") - asked
              == len(done))
        self.assertEqual(self.count("api", "shunt_requests_total"),
                         self.count("api", "shunt_requests_total", 'outcome="ok"'))
        self.assertGreater(self.count("executor-cpu0", "shunt_evicted_bytes_total"), 0)
        self.assertGreater(self.count("executor-cpu0", "shunt_preemptions_total"), 20)
        self.assertGreater(steps, 0)
        self.check_memory(memory)
        self.s.wait_step(self.key, job, 1)  # still alive
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, {}, self.key)
        self.assertEqual(self.s.wait_job(self.key, job)["state"], "CANCELLED")


if __name__ == "__main__":
    unittest.main()
