#!/usr/bin/env python3
"""Training beside requests that switch cold, at a given rate (peers/share.py: the same arrivals).

A request is sent at its time, whatever became of those before it, and its latency counts from then
until the result is in host memory. Training should lose no more than the time that runs have the
device. --resident does it once more with weights that stay on the device, as those of the peers do.
"""
import sys
import time

from lab import TRAIN_BATCH, Lab, Sender, train_precision
import part
from rows import arrivals, load_seconds, p99, row

JOB, VERSION = 1, 1
SPIN_S = 0.0005  # select() wakes up late
LATE_S = 30
LIMIT = 0.95
OURS = "shunt"


class Progress:
    """When the job reported which step; reports come four times a second."""

    def __init__(self, d):
        self.d, self.seen = d, []

    def look(self):
        step = self.d.jobs[JOB].step
        if not self.seen or self.seen[-1][1] != step:
            self.seen.append((time.monotonic(), step))

    def rate(self):
        """Samples per second, and between which two reports."""
        if len(self.seen) < 3:
            raise ValueError("the job reported %d times meanwhile; it takes more --seconds" %
                             len(self.seen))
        (t0, s0), (t1, s1) = self.seen[1], self.seen[-1]
        return (s1 - s0) * TRAIN_BATCH / (t1 - t0), t0, t1


def alone(lab, seconds):
    """Samples per second while nobody asks."""
    p, end = Progress(lab.d), time.monotonic() + seconds
    while time.monotonic() < end or len(p.seen) < 4:
        p.look()
        lab.d.pump(0.05)
    return p.rate()[0]


def load(lab, sender, at):
    """[(latency, when it ended, for how long it had the device)] in seconds, and the progress."""
    d, progress = lab.d, Progress(lab.d)
    start, sent, pending, got = time.monotonic() + 0.05, 0, {}, []
    while sent < len(at) or pending:
        due = start + at[sent] if sent < len(at) else time.monotonic() + 0.1
        left = due - time.monotonic()
        if left <= 0:
            pending[sender.send()] = due
            sent += 1
            continue
        d.pump(left - SPIN_S if left > SPIN_S else 0)
        now = time.monotonic()
        progress.look()
        for rid in [r for r in pending if r in d.results]:
            r = d.results.pop(rid)
            assert r.rc == 0, r
            got.append((now - pending.pop(rid), now, (r.total_ns - r.queue_ns) / 1e9))
        assert all(now - t < LATE_S for t in pending.values()), "a request is not answered"
    return got, progress


def measure(case, args, by):
    with Lab(*(["--debug-cold"] if by == OURS else [])) as lab:
        lab.load(VERSION, case["model"], case["precision"], case["batch"])
        for _ in range(5):
            lab.run(VERSION)
        lab.train(JOB, case["model"], train_precision(case["precision"]))
        sender = Sender(lab, VERSION)
        load(lab, sender, arrivals(20, 0.5))
        exclusive, loads = [alone(lab, args.seconds)], []
        for rate in args.rates:
            seconds = load_seconds(rate, args.seconds, args.requests)
            loads.append((rate, load(lab, sender, arrivals(rate, seconds))))
        exclusive.append(alone(lab, args.seconds))
    return report(case, by, loads, sum(exclusive) / len(exclusive))


def report(case, by, loads, exclusive):
    out = []
    for rate, (got, progress) in loads:
        throughput, t0, t1 = progress.rate()
        need = sum(s for _, end, s in got if t0 <= end < t1) / (t1 - t0)
        ms = [1e3 * latency for latency, _, _ in got]
        kept = throughput / ((1 - need) * exclusive)
        out.append(row("share", by, {**case, "requests_per_s": rate}, ms, value=p99(ms),
                       training_samples_per_s=round(throughput, 2),
                       training_alone_samples_per_s=round(exclusive, 2),
                       inference_share=round(need, 4), training_kept=round(kept, 4),
                       device_ms=[round(1e3 * s, 4) for _, _, s in got]))
        out.append({"check": "%s, %s %s, %g/s: training keeps %.0f %% of what runs leave it" % (
            by, case["model"], case["precision"], rate, 100 * LIMIT), "ok": kept >= LIMIT,
            "training_kept": round(kept, 4), "inference_share": round(need, 4),
            "training_samples_per_s": round(throughput, 2), "training_alone_samples_per_s": round(exclusive, 2)})
    return out


def main():
    p = part.options(__doc__, "tf32", seconds=2.5)
    p.set_defaults(models=["resnet152", "bert-base"])  # half a minute each
    p.add_argument("--rates", default="5,20,50", type=lambda s: [float(x) for x in s.split(",")],
                   help="requests a second")
    p.add_argument("--requests", type=int, default=50, help="of each load, about, at least")
    p.add_argument("--resident", action="store_true", help="also without cold switches")
    args = p.parse_args()

    def one(case):
        for by in (OURS, *([OURS + " resident"] if args.resident else [])):
            yield from measure(case, args, by)
    return part.collect(args, "share", OURS, one)


if __name__ == "__main__":
    sys.exit(main())
