#!/usr/bin/env python3
"""Many models on one device, whole ones loaded and unloaded: Triton's way, as docs/replay.md has it.

A queue in the order of arrival. What is to run next takes others of its model with it, up to --batch.
A model that is not on the device is copied there, whole and from page-locked memory, as soon as it is
asked for, beside what runs; the least recently used leave for it, but not the one that runs. A request
that has waited for --slo-ms is dropped. Each model is a CUDA graph for each batch size, its weights one buffer (load.py).

In the peer's favour: requests are there without HTTP, their inputs page-locked; what leaves the device
stays where it is, so that graphs stay valid, and only what all have together is held to --pool; nothing is
ever freed or loaded from a file. Models of one architecture are copied to one place, as if each had its own.

../gpu/many.py starts it and tells it to go on by lines: it has made the models ("made"), they are on the
device ("ready"), then an object for each rate, and "end".
"""
import argparse
import collections
import contextlib
import json
import sys
import time

import common as c
import load
import torch
import wider

LOOK = 256  # requests of the queue that are looked through for a batch: bench/sim/serve_queues.c
PIECE = 32 << 20  # of a copy, so that inputs need not wait for a whole model
UNITS = {"K": 10, "M": 20, "G": 30}


def size(text):
    return int(text[:-1]) << UNITS[text[-1]] if text[-1] in UNITS else int(text)


def batch_sizes(most):
    return [1 << i for i in range(most.bit_length())]


class Network:
    """On the device: weights, inputs and a graph of each batch size."""

    def __init__(self, name, of, args, pool):
        model, xs = wider.placed(name, args.precision, args.batch, of, c.DTYPE.get(args.precision))
        self.device, self.host = load.in_one_buffer(model)
        self.bytes = self.device.numel()
        self.sample = [c.pinned(x[:1]) for x in xs]
        self.sample_bytes = sum(x.numel() * x.element_size() for x in self.sample)
        self.graphs = {}
        for n in batch_sizes(args.batch):
            ins = [x[:n].clone() for x in xs]
            graph, out = c.captured(lambda ins=ins: run(model, ins), pool)
            self.graphs[n] = (ins, graph, out, c.pinned(out))

    def begin(self, n):
        """A run of n samples; what tells that its result is in host memory."""
        ins, graph, out, host_out = self.graphs[min(b for b in self.graphs if b >= n)]
        for x, h in zip(ins, self.sample):
            for i in range(n):
                x[i:i + 1].copy_(h, non_blocking=True)
        graph.replay()
        host_out.copy_(out, non_blocking=True)
        return Event()


class Model:
    def __init__(self, network):
        self.network, self.bytes, self.there = network, network.bytes, None

    def bring(self, stream):
        to, of = self.network.device, self.network.host
        with stream:
            for at in range(0, self.bytes, PIECE):
                to[at:at + PIECE].copy_(of[at:at + PIECE], non_blocking=True)
            self.there = Event()

    def begin(self, n):
        self.there.hold()
        return self.network.begin(n)


def run(model, xs):
    with torch.inference_mode():
        return model(*xs)


class Event:
    """After all that the current stream has been given."""

    def __init__(self):
        self.e = torch.cuda.Event() if c.DEVICE == "cuda" else None
        if self.e:
            self.e.record()

    def hold(self):
        if self.e:
            torch.cuda.current_stream().wait_event(self.e)

    def has_passed(self):
        return not self.e or self.e.query()


class Server:
    def __init__(self, models, args):
        self.models, self.slo, self.most = models, args.slo_ms / 1e3, args.batch
        self.pool, self.held = size(args.pool), 0
        self.resident = collections.OrderedDict()  # by number, the least recently used first
        self.stream = contextlib.nullcontext()
        if c.DEVICE == "cuda":
            self.side = torch.cuda.Stream()
            self.stream = torch.cuda.stream(self.side)
        self.running, self.bytes, self.runs = None, 0, 0

    def come(self, m):
        if m not in self.resident:
            need = self.models[m].bytes
            while self.held + need > self.pool:
                gone = next(k for k in self.resident if k != self.running)
                del self.resident[gone]
                self.held -= self.models[gone].bytes
            self.held += need
            self.bytes += need
            self.models[m].bring(self.stream)
        self.resident[m] = True
        self.resident.move_to_end(m)

    def take(self, queue):
        """The first, and others of its model."""
        first = queue.popleft()
        batch, looked = [first], []
        while queue and len(looked) + len(batch) <= LOOK and len(batch) < self.most:
            r = queue.popleft()
            (batch if r[1] == first[1] else looked).append(r)
        queue.extendleft(reversed(looked))
        return batch

    def serve(self, arrivals, from_s):
        """[(model, whether it was answered, ms when due, ms that it took)], by arrival; and the counters from
        from_s on."""
        start, queue, out, i, seen = time.monotonic() + 0.05, collections.deque(), [], 0, None

        def now():
            return time.monotonic() - start

        def accept(i):
            t = now()
            while i < len(arrivals) and arrivals[i][0] <= t:
                if arrivals[i][1] not in self.resident:
                    self.come(arrivals[i][1])
                queue.append(arrivals[i])
                i += 1
            return i

        while i < len(arrivals) or queue:
            i = accept(i)
            if seen is None and now() >= from_s:
                seen = (self.bytes, self.runs, now())
            while queue and now() - queue[0][0] > self.slo:
                at, m = queue.popleft()
                out.append((m, False, 1e3 * at, 1e3 * (now() - at)))
            if not queue:
                continue  # arrivals are close together: no sleep
            batch = self.take(queue)
            self.running = batch[0][1]
            self.come(self.running)
            done = self.models[self.running].begin(len(batch))
            self.runs += 1
            self.bytes += len(batch) * self.models[self.running].network.sample_bytes
            while not done.has_passed():
                i = accept(i)
            t, self.running = now(), None
            out += [(m, True, 1e3 * at, 1e3 * (t - at)) for at, m in batch]
        span = now() - seen[2]
        return sorted(out, key=lambda x: x[2]), (self.bytes - seen[0]) / span, (self.runs - seen[1]) / span


def say(what):
    print(json.dumps(what), flush=True)


def told():
    if not sys.stdin.readline():
        sys.exit(1)


def read_load(path, rate):
    """As ../gpu/many.py reads it: at this rate on average."""
    with open(path) as f:
        rows = [(int(at), int(model)) for at, model, _ in map(str.split, f)]
    by = len(rows) / rows[-1][0] / rate
    return [(at * by, model) for at, model in rows]


def trainer(args):
    """A process that trains, by the share of the device that the driver gives it."""
    import share
    child = share.Child("train", argparse.Namespace(seconds=60), args.trains, args.precision, args.train_batch, None)
    child.line()
    return child


def one_load(server, args, rate):
    at = read_load(args.load, rate)
    from_s = at[-1][0] / 2
    ones, bytes_s, runs_s = server.serve(at, from_s)
    return {"rate": rate, "ones": ones, "from_ms": 1e3 * from_s, "slo_ms": args.slo_ms, "bytes_per_s": bytes_s,
            "runs_per_s": runs_s}


def beside_trainer(server, args):
    """All loads, with what was trained in the second half of each."""
    child, times, got = trainer(args), [], []
    for rate in args.beside:
        begin = time.monotonic()
        got.append(one_load(server, args, rate))
        times.append(((begin + time.monotonic()) / 2, time.monotonic()))
    child.end_input()
    stamps = json.loads(child.line())
    child.stop()
    for g, (half, end) in zip(got, times):
        n = sum(half <= t < end for t in stamps)
        g["training_samples_per_s"] = round(n * args.train_batch / (end - half), 1)
    return got


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--models", required=True, type=lambda s: s.split(","), help="in turns")
    p.add_argument("--count", type=int, required=True)
    p.add_argument("--precision", default="tf32")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--pool", default="8G")
    p.add_argument("--slo-ms", type=float, default=50)
    p.add_argument("--load", required=True)
    p.add_argument("--rates", required=True, type=lambda s: [float(x) for x in s.split(",")])
    p.add_argument("--trains", help="then once more, while a process trains this")
    p.add_argument("--beside", type=lambda s: [float(x) for x in s.split(",")], help="at these rates")
    p.add_argument("--train-batch", type=int, default=32)
    args = p.parse_args()
    made = {name: wider.build(name).eval() for name in args.models}
    told()
    say("made")
    told()
    pool = torch.cuda.graph_pool_handle() if c.DEVICE == "cuda" else None
    networks = [Network(n, made[n], args, pool) for n in args.models]
    server = Server([Model(networks[i % len(networks)]) for i in range(args.count)], args)
    c.synchronize()
    say("ready")
    for rate in args.rates:
        told()
        say(one_load(server, args, rate))
    if args.trains:
        told()
        got = beside_trainer(server, args)
        say(got[0])
        for g in got[1:]:
            told()
            say(g)
    told()
    say("end")


if __name__ == "__main__":
    main()
