#!/usr/bin/env python3
"""Checkpoints: what one a second costs, how soon a job goes on after a swap, and that a job which
was preempted and killed ends with the same bits.

--only overhead,resume,identity
"""
import json
import os
import random
import signal
import sys

from lab import DEVICE, TRAIN_BATCH, Lab, Sender, train_precision
import part
from rows import p99, row

PARTS = ("overhead", "resume", "identity")
NEVER_MS = 3600000
KEPT = 0.98
WAYS = ("pause", "drop", "swap")
JOB, VERSION = 5, 1
BURST = 30  # runs one after the other: meanwhile the state leaves the device
FINAL = ("DONE", "FAILED", "CANCELLED", "SUSPENDED")


def counted(lab, name, *labels):
    return sum(v for k, v in lab.d.metrics().items()
               if k.startswith(name + "{") and all(label in k for label in labels))


# ---------------------------------------------------------------- what they cost

def window(lab, job, case, interval_ms, seconds):
    """Samples per second of a job with such checkpoints, and how many there were."""
    def checkpoints():
        return counted(lab, "shunt_checkpoints_total", 'kind="host"', 'outcome="ok"')
    lab.train(job, case["model"], train_precision(case["precision"]),
              checkpoint_interval_ms=interval_ms)
    lab.steps(job, 1)
    before = checkpoints()
    rate = lab.throughput(job, seconds)
    n = checkpoints() - before
    lab.cancel(job)
    return rate, n


def overhead(case, args):
    """Windows by turns, so that a clock that drifts hurts both."""
    without, with_, n = [], [], 0
    with Lab() as lab:
        window(lab, 1, case, NEVER_MS, 0.5)  # chooses kernels, reads files
        for i in range(args.rounds):
            order = (NEVER_MS, args.interval_ms) if i % 2 == 0 else (args.interval_ms, NEVER_MS)
            for interval in order:
                rate, k = window(lab, 2 + 2 * i + order.index(interval), case, interval,
                                 args.seconds)
                (without if interval == NEVER_MS else with_).append(rate)
                n += k
    kept = [b / a for a, b in zip(without, with_)]
    case = {**case, "precision": train_precision(case["precision"]), "batch": TRAIN_BATCH}
    r = row("checkpoint-overhead", "shunt", case, kept, "of the throughput without",
            without_samples_per_s=[round(x, 2) for x in without],
            with_samples_per_s=[round(x, 2) for x in with_],
            interval_ms=args.interval_ms, checkpoints=n,
            measured_s=round(args.seconds * args.rounds, 2))
    return [r, {"check": "checkpoints every %g s cost %s %s at most %.0f %%" % (
        args.interval_ms / 1e3, case["model"], case["precision"], 100 * (1 - KEPT)),
        "ok": r["value"] >= KEPT and n >= args.rounds, "kept": r["value"], "checkpoints": n}]


# ---------------------------------------------------------------- resume

def resumes(events):
    """[(ms, bytes)]: from a run's end to the first operation of training whose state was copied
    back."""
    found, done, loaded = [], 0, 0
    for ns, name, f in sorted((int(f["ns"]), name, f) for name, f in events if "ns" in f):
        if name == "switch.done":
            done = ns
        elif name == "train.load" and done:
            loaded = int(f["bytes"])
        elif name == "train.continue":
            if loaded:
                found.append(((ns - done) / 1e6, loaded))
            loaded = 0
    return found


def resume(case, args):
    with Lab("--debug-stop-way=swap", log="debug") as lab:
        lab.load(VERSION, case["model"], case["precision"], case["batch"])
        lab.run(VERSION)
        lab.train(JOB, case["model"], train_precision(case["precision"]))
        sender, results = Sender(lab, VERSION), lab.d.results
        before = len(lab.events())
        for _ in range(args.runs):
            sent = [sender.send() for _ in range(BURST)]
            lab.d.wait(lambda sent=sent: all(rid in results for rid in sent), 60, "results")
            assert all(results[rid].rc == 0 for rid in sent), [results[rid] for rid in sent]
            lab.steps(JOB, 2)
        lab.d.rest(0.2)
        latency, rate = lab.link()
        found = resumes(lab.events()[before:])
    assert len(found) >= args.runs / 2, "the state left the device %d times only" % len(found)
    ms, size = [m for m, _ in found], found[0][1]
    limit = 1.1 * 1e3 * size / rate + 5
    case = {**case, "precision": train_precision(case["precision"]), "batch": TRAIN_BATCH}
    return [row("resume-after-swap", "shunt", case, ms, state_bytes=size,
                copy_ms=round(1e3 * (latency + size / rate), 4), limit_ms=round(limit, 4)),
            {"check": "%s %s goes on within %.2f ms after a swap" % (
                case["model"], case["precision"], limit), "ok": p99(ms) <= limit,
             "p99_ms": round(p99(ms), 4)}]


# ---------------------------------------------------------------- identity

def kill_trainer(lab):
    """The worker to which training was given last."""
    at, pids = None, {}
    for name, f in lab.events():
        if name == "worker.ready":
            pids[f["worker"]] = int(f["pid"])
        elif name == "train.go":
            at = f["worker"]
    os.kill(pids[at], signal.SIGKILL)


def outcome(case, steps, disturbed):
    """Final state and losses of a job; a disturbed one is preempted in each way, killed once."""
    with Lab("--debug-stop-way=turns", deterministic=True, log="debug") as lab:
        lab.load(VERSION, case["model"], case["precision"], case["batch"])
        lab.train(JOB, case["model"], train_precision(case["precision"]), steps=steps,
                  checkpoint_interval_ms=200)
        rng, killed = random.Random(1), False
        while lab.d.jobs[JOB].phase not in FINAL:
            busy = lab.d.jobs[JOB].phase in ("RUNNING", "PREEMPTED")
            if disturbed and busy:
                lab.run(VERSION)
            lab.d.rest(rng.uniform(0, 0.03) if disturbed else 0.05)
            if disturbed and not killed and lab.d.jobs[JOB].step > steps * 0.4:
                kill_trainer(lab)
                killed = True
        assert lab.d.jobs[JOB].phase == "DONE", lab.d.jobs[JOB]
        stops = {w: int(counted(lab, "shunt_preemptions_total", 'way="%s"' % w)) for w in WAYS}
        redone = counted(lab, "shunt_train_steps_redone_total")
        folder = os.path.join(lab.d.dir, "jobs", str(JOB))
        with open(os.path.join(folder, "final.safetensors"), "rb") as f:
            final = f.read()
        with open(os.path.join(folder, "losses.json")) as f:
            losses = json.load(f)
    return {"final": final, "losses": losses, "stops": stops, "redone": int(redone),
            "killed": killed}


def identity(case, args):
    calm, got = outcome(case, args.steps, False), outcome(case, args.steps, True)
    assert len(calm["losses"]) == args.steps and len(set(calm["losses"])) > args.steps / 2
    same = got["final"] == calm["final"] and got["losses"] == calm["losses"]
    return [{
        "check": "%s %s: %d steps, preempted in each way and killed, end bit-identical" % (
            case["model"], train_precision(case["precision"]), args.steps),
        "ok": same and all(got["stops"].values()) and got["killed"],
        "preemptions": got["stops"], "steps_redone": got["redone"], "killed": got["killed"],
        "final_is_equal": got["final"] == calm["final"],
        "losses_that_differ": sum(a != b for a, b in zip(got["losses"], calm["losses"])),
        "final_bytes": len(calm["final"])}]


def measure(case, args):
    out = []
    if "overhead" in args.only:
        out += overhead(case, args)
    if "resume" in args.only:
        out += resume(case, args)
    if "identity" in args.only:
        out += identity({**case, "model": args.identity_model}, args)
    return out


def main():
    p = part.options(__doc__, "tf32", runs=12, seconds=3)
    p.set_defaults(models=["resnet152"], only=list(PARTS))
    p.add_argument("--interval-ms", type=int, default=1000, help="between checkpoints")
    p.add_argument("--rounds", type=int, default=2, help="pairs of windows")
    p.add_argument("--steps", type=int, default=600, help="of the job that is preempted and killed")
    p.add_argument("--identity-model", default="resnet18" if DEVICE == "cuda" else "digits-cnn")
    args = p.parse_args()
    part.check_known(p, args.only, PARTS, "part")
    return part.collect(args, "checkpoints", "shunt", lambda case: measure(case, args))


if __name__ == "__main__":
    sys.exit(main())
