#!/usr/bin/env python3
"""Clients that retry submit jobs while API, scheduler, executor and database are killed in turn.

Without it: a submission that was acknowledged could be gone, one that was repeated could run twice, a
job could end twice or never, and a change that a client was told of could be missing from the events.

Usage: test_nothing_lost.py [-v] [name ...]
SHUNT_LOST_JOBS: submissions (default 120; 2000 takes some ten minutes)
SHUNT_LOST_EVERY_S: time between two kills (default 2)
"""
import collections
import contextlib
import http.client
import os
import random
import struct
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import FINAL, WAIT_S, Story, System, st_bytes, until  # noqa: E402

N_JOBS = int(os.environ.get("SHUNT_LOST_JOBS", "120"))
EVERY_S = float(os.environ.get("SHUNT_LOST_EVERY_S", "2"))
N_CLIENTS = 8
STEPS = 3
SUBMIT_S = 9 * EVERY_S  # long enough for each victim to be killed twice while clients submit
VICTIMS = ("api", "scheduler", "executor-cpu0", "postgres")
LOST = (OSError, http.client.HTTPException)  # of a connection


def dataset(n=32):
    rng = random.Random(1)
    x = b"".join(struct.pack("<4f", *(rng.uniform(-1, 1) for _ in range(4))) for _ in range(n))
    return st_bytes({"x": ("F32", [n, 4], x),
                     "label": ("I64", [n], struct.pack("<%dq" % n, *(i % 3 for i in range(n))))})


class Client(threading.Thread):
    """Submits its jobs one after the other; each tenth is cancelled as soon as it is acknowledged."""

    def __init__(self, story, number, n):
        super().__init__(daemon=True)
        self.story, self.number, self.n = story, number, n
        self.rng = random.Random(number)
        self.jobs, self.cancelled, self.retries = {}, {}, 0
        self.failure = None

    def insist(self, method, path, body=None, headers=None):
        """The first answer that is not a passing trouble."""
        end = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(*LOST):
                r = self.story.s.call(method, path, body, self.story.key, headers, timeout=10)
                in_progress = r.status == 409 and r.headers.get("retry-after")
                if r.status not in (429, 500, 502, 503) and not in_progress:
                    return r
                assert r.status != 500, r
            assert time.monotonic() < end, "no answer to %s %s" % (method, path)
            self.retries += 1
            time.sleep(self.rng.uniform(0.02, 0.3))

    def submit(self, k):
        token = "client-%d-%d" % (self.number, k)
        body = {"kind": "training", "model": "tiny", "version": 1, "dataset": "small",
                "max_attempts": 100, "priority": self.rng.randint(-2, 2), "name": token,
                "spec": {"optimizer": {"name": "sgd", "lr": 0.1}, "batch": 8, "steps": STEPS, "seed": k}}
        r = self.insist("POST", "/api/v1/jobs", body, {"Idempotency-Key": token})
        assert r.status == 201, r
        self.jobs[token] = r.json["id"]
        again = self.insist("POST", "/api/v1/jobs", body, {"Idempotency-Key": token})
        assert again.status == 201 and again.headers["idempotency-replayed"] == "true", again
        assert again.json["id"] == r.json["id"], (r, again)
        if k % 10 == 9:
            r = self.insist("POST", "/api/v1/jobs/%d/cancel" % r.json["id"])
            assert r.status in (200, 409), r
            if r.status == 200:
                self.cancelled[self.jobs[token]] = r.json["state"]

    def run(self):
        try:
            for k in range(self.n):
                self.submit(k)
                time.sleep(self.rng.uniform(0, 2 * SUBMIT_S / self.n))
        except BaseException as e:  # noqa: B902 - shown by the story
            self.failure = e


class NothingLost(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=3", LEASE_TTL_MS="1000", GRACE_MS="1000")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("lab")
        r = s.call("GET", "/api/v1/tenants/lab/quota", key=s.admin)
        quota = {k: v for k, v in r.json.items() if v is not None and k not in ("row_version", "tenant")}
        quota["max_queued_jobs"] = 2 * N_JOBS
        r = s.call("PUT", "/api/v1/tenants/lab/quota", quota, s.admin,
                   {"If-Match": r.headers.get("etag", "*")})
        assert r.status == 200, r
        s.push(cls.key, "tiny", onnx.linear(), max_batch=2)
        s.push_data(cls.key, "small", dataset())

    def kill_in_turn(self, stop, kills):
        turn = 0
        while not stop.wait(EVERY_S):
            name = VICTIMS[turn % len(VICTIMS)]
            turn += 1
            if self.s.pid(name):
                old = self.s.kill(name)
                kills[name] += 1
                self.s.wait_new(name, old)

    def observe(self, stop, seen):
        """Every state that a client was told."""
        cursor = ""
        while not stop.wait(0.1):
            with contextlib.suppress(*LOST):
                r = self.s.call("GET", "/api/v1/jobs?limit=100" + cursor, key=self.key, timeout=10)
                cursor = ""
                if r.status == 200:
                    for j in r.json["items"]:
                        seen[j["id"]].add(j["state"])
                    if r.json.get("next_cursor"):
                        cursor = "&cursor=" + r.json["next_cursor"]

    def all_jobs(self):
        jobs, cursor = [], ""
        while True:
            r = self.s.call("GET", "/api/v1/jobs?limit=100" + cursor, key=self.key)
            assert r.status == 200, r
            jobs += r.json["items"]
            if not r.json.get("next_cursor"):
                return jobs
            cursor = "&cursor=" + r.json["next_cursor"]

    def events(self, job):
        r = self.s.job(self.key, job, "/events?limit=1000")
        self.assertEqual(r.status, 200, r)
        self.assertFalse(r.json.get("next_cursor"))
        return r.json["items"]

    def storm(self):
        stop, kills, seen = threading.Event(), collections.Counter(), collections.defaultdict(set)
        share = [N_JOBS // N_CLIENTS + (i < N_JOBS % N_CLIENTS) for i in range(N_CLIENTS)]
        clients = [Client(self, i, n) for i, n in enumerate(share)]
        others = [threading.Thread(target=self.kill_in_turn, args=(stop, kills), daemon=True),
                  threading.Thread(target=self.observe, args=(stop, seen), daemon=True)]
        for t in clients + others:
            t.start()
        for c in clients:
            c.join()
        # The jobs are killed as much as their submissions.
        until("most jobs have ended", lambda: self.live() <= N_JOBS // 4 and len(kills) == len(VICTIMS)
              and min(kills.values()) >= 2, WAIT_S + 2 * N_JOBS, 0.5)
        stop.set()
        for t in others:
            t.join()
        self.assertEqual([c.failure for c in clients], [None] * N_CLIENTS)
        self.assertGreaterEqual(sum(c.retries for c in clients), 1, "nothing got in the clients' way")
        return clients, kills, seen

    def live(self):
        with contextlib.suppress(AssertionError, *LOST):
            return sum(j["state"] not in FINAL for j in self.all_jobs())
        return N_JOBS

    def check(self, job, seen, cancelled):
        chain = [(e["from"], e["to"]) for e in self.events(job["id"])]
        tos = [to for _, to in chain]
        self.assertEqual(chain[0], (None, "QUEUED"), chain)
        self.assertEqual([a for a, _ in chain[1:]], tos[:-1], "a change is missing of job %d" % job["id"])
        self.assertEqual([t in FINAL for t in tos], [False] * (len(tos) - 1) + [True], chain)
        self.assertEqual(tos[-1], job["state"])
        self.assertLessEqual(seen, set(tos), "a client was told of a change without an event")
        if cancelled:
            self.assertEqual(job["state"], "CANCELLED", chain)
        elif job["state"] != "CANCELLED":
            self.assertEqual((job["state"], job["step"]), ("SUCCEEDED", STEPS), job)
        return len(tos)

    def test_each_submission_is_one_job_with_one_end(self):
        started = time.monotonic()
        clients, kills, seen = self.storm()
        until("all jobs have ended", lambda: self.live() == 0, WAIT_S + N_JOBS)
        jobs = self.all_jobs()
        acknowledged = {}
        cancelled = {}
        for c in clients:
            acknowledged.update(c.jobs)
            cancelled.update(c.cancelled)
        self.assertEqual(len(jobs), N_JOBS)
        self.assertEqual({j["name"]: j["id"] for j in jobs}, acknowledged)
        n_events = sum(self.check(j, seen[j["id"]], j["id"] in cancelled) for j in jobs)
        ends = collections.Counter(j["state"] for j in jobs)
        self.assertGreaterEqual(len(cancelled), 1)
        self.assertEqual(ends["SUCCEEDED"] + ends["CANCELLED"], N_JOBS, ends)
        versions = [j["result_version"] for j in jobs if j["state"] == "SUCCEEDED"]
        self.assertEqual(len(set(versions)), len(versions), "two jobs have one result")
        print("%d jobs: %s, %d events, %d calls repeated, killed %s, %d s"
              % (N_JOBS, dict(ends), n_events, sum(c.retries for c in clients), dict(kills),
                 time.monotonic() - started))


if __name__ == "__main__":
    unittest.main()
