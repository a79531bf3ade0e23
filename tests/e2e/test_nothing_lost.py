#!/usr/bin/env python3
"""Every process is killed and stopped, one by one and all at once, while clients ask and submit.

Without it: a job that was acknowledged could be gone, run twice, end twice or never, a change that a client
was told of could be missing from the events, an answer could be another request's, a request that was
answered could be missing from the bill, and what a kill leaves behind could stay for ever.

Usage: test_nothing_lost.py [-v] [name ...]
SHUNT_LOST_SECONDS: how long kills go on (default 10, and at least once through all kinds; 1800 is a long run)
SHUNT_LOST_SEED: of the kills, the requests and the jobs (default 1)
"""
import collections
import contextlib
import http.client
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, FINAL, WAIT_S, Story, System, st_bytes, until  # noqa: E402

SECONDS = float(os.environ.get("SHUNT_LOST_SECONDS", "10"))
SEED = int(os.environ.get("SHUNT_LOST_SEED", "1"))
LONG = SECONDS > 120
PAUSE_S = 3 if LONG else 0.5  # between two kills, on average
HANG_S = 6 if LONG else 1.5   # the longest; the database: twice that
SUBMIT_S = 2 if LONG else 1   # between two jobs of a tenant, on average
TENANTS = ("ada", "bea", "cid", "dan")
N_CLIENTS = 16
STEPS, BATCH, ROWS = 3, 8, 40
SCHEDULERS = ("scheduler", "scheduler-1")
EXECUTORS = ("executor-cpu0", "executor-cpu1") # the second one is Second's
ONE = ("api", "leader", "standby", *EXECUTORS, "worker", "postgres")
LOST = (OSError, http.client.HTTPException)  # of a connection


def rows_of(rng, n):
    return [[rng.randint(-99, 99) for _ in range(4)] for _ in range(n)]


def floats(rows):
    flat = [v for row in rows for v in row]
    return struct.pack("<%df" % len(flat), *flat)


class Tenant:
    """Its model computes with integers of its own, small enough to be exact in fp32."""

    def __init__(self, story, name, number):
        s, rng = story.s, random.Random(name)
        self.name, self.key = name, s.tenant(name)
        self.w = [[rng.randint(-9, 9) for _ in range(3)] for _ in range(4)]
        self.b = [1000 * (number + 1) + k for k in range(3)]
        s.push(self.key, "exact", onnx.model(
            [onnx.node("Gemm", ["x", "w", "b"], ["y"])], [onnx.value("x", ["N", 4])],
            [onnx.value("y", ["N", 3])],
            [onnx.tensor("w", [4, 3], [v for row in self.w for v in row]), onnx.tensor("b", [3], self.b)]),
            max_batch=8)
        s.push(self.key, "tiny", onnx.linear(), max_batch=2)
        self.rows = rows_of(rng, ROWS)
        s.push_data(self.key, "rows", st_bytes({"x": ("F32", [ROWS, 4], floats(self.rows))}))
        x = b"".join(struct.pack("<4f", *(rng.uniform(-1, 1) for _ in range(4))) for _ in range(32))
        s.push_data(self.key, "small", st_bytes({
            "x": ("F32", [32, 4], x), "label": ("I64", [32], struct.pack("<32q", *(i % 3 for i in range(32))))}))
        r = s.call("GET", "/api/v1/tenants/%s/quota" % name, key=s.admin)
        quota = {k: v for k, v in r.json.items() if v is not None and k not in ("row_version", "tenant")}
        quota["max_queued_jobs"] = 100000
        r = s.call("PUT", "/api/v1/tenants/%s/quota" % name, quota, s.admin,
                   {"If-Match": r.headers.get("etag", "*")})
        assert r.status == 200, r

    def answer(self, rows):
        return [self.b[k] + sum(row[i] * self.w[i][k] for i in range(4)) for row in rows for k in range(3)]


class Asker(threading.Thread):
    """Asks one request after the other, each once; notes what came of it."""

    def __init__(self, story, number, stop):
        super().__init__(daemon=True)
        self.s, self.tenant, self.stop = story.s, story.tenants[number % len(TENANTS)], stop
        self.rng = random.Random("%d ask %d" % (SEED, number))
        self.count, self.samples, self.failure = collections.Counter(), collections.Counter(), None

    def ask(self, c, rows):
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(rows), 4],
                            "data": [v for row in rows for v in row]}]}
        c.request("POST", "/v2/models/exact/infer", json.dumps(body),
                  {"Content-Type": "application/json", "Authorization": "Bearer " + self.tenant.key})
        r = c.getresponse()
        raw = r.read()
        if r.status == 200:
            got, want = json.loads(raw)["outputs"][0]["data"], self.tenant.answer(rows)
            assert got == want, "a wrong answer to %s: %s, not %s" % (rows, got, want)
            return "answered"
        assert r.status in (429, 503, 504), (r.status, raw)
        return str(r.status)

    def run(self):
        c = None
        try:
            while not self.stop.is_set():
                rows = rows_of(self.rng, self.rng.randint(1, 3))
                c = c or http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=WAIT_S)
                try:
                    what = self.ask(c, rows)
                except LOST:
                    what = "lost"
                    c.close()
                    c = None
                self.count[what] += 1
                self.samples[what] += len(rows)
                time.sleep(self.rng.uniform(0, 0.1) + 0.1 * (what != "answered"))
        except BaseException as e:  # noqa: B902 - shown by the story
            self.failure = e


class Submitter(threading.Thread):
    """Submits jobs of a tenant, each twice with one key; each tenth is cancelled when it is acknowledged."""

    def __init__(self, story, tenant, stop):
        super().__init__(daemon=True)
        self.s, self.tenant, self.stop = story.s, tenant, stop
        self.rng = random.Random("%d submit %s" % (SEED, tenant.name))
        self.jobs, self.cancelled, self.repeated, self.failure = {}, set(), 0, None

    def insist(self, method, path, body=None, headers=None):
        """The first answer that is not a passing trouble."""
        end = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(*LOST):
                r = self.s.call(method, path, body, self.tenant.key, headers, timeout=10)
                in_progress = r.status == 409 and r.headers.get("retry-after")
                if r.status not in (429, 502, 503) and not in_progress:
                    return r
            assert time.monotonic() < end, "no answer to %s %s" % (method, path)
            self.repeated += 1
            time.sleep(self.rng.uniform(0.02, 0.3))

    def submit(self, k):
        token = "%s-%d" % (self.tenant.name, k)
        body = {"kind": "training", "model": "tiny", "version": 1, "dataset": "small",
                "spec": {"optimizer": {"name": "sgd", "lr": 0.1}, "batch": BATCH, "steps": STEPS, "seed": k,
                         "publish": k % 8 == 0}}
        if k % 3 == 2:
            body = {"kind": "batch_inference", "model": "exact", "dataset": "rows", "spec": {"batch": BATCH}}
        body.update(name=token, max_attempts=100, priority=self.rng.randint(-2, 2))
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
                self.cancelled.add(self.jobs[token])

    def run(self):
        try:
            while not self.stop.is_set() or len(self.jobs) < 10:
                self.submit(len(self.jobs))
                self.stop.wait(self.rng.uniform(0, 2 * SUBMIT_S))
        except BaseException as e:  # noqa: B902 - shown by the story
            self.failure = e


class Second(threading.Thread):
    """A second executor, which `shunt up` has none of on the cpu device: started as the first one is."""

    def __init__(self, system):
        super().__init__(daemon=True)
        self.s, self.ended, self.process = system, threading.Event(), None
        with open("/proc/%d/cmdline" % system.pid("executor-cpu0"), "rb") as f:
            self.args = [a.decode().replace("cpu0", "cpu1") for a in f.read().split(b"\0")[:-1]]
        self.args = [os.path.join(BIN, "shunt-executor"), *self.args[1:], "--metrics-addr", ""]
        self.log = open(os.path.join(system.state, "log", "executor-cpu1.log"), "ab")

    def run(self):
        while not self.ended.is_set():
            self.process = subprocess.Popen(self.args, cwd=self.s.dir, env=self.s.env, stdout=self.log,
                                            stderr=self.log, stdin=subprocess.DEVNULL)
            self.process.wait()
            self.ended.wait(0.3)

    def pid(self):
        return self.process.pid if self.process and self.process.poll() is None else 0

    def stop(self):
        self.ended.set()
        if self.pid():
            self.process.terminate()
        self.join(WAIT_S)
        self.log.close()


class Killer:
    """Each kind once in every round, in an order of its own; `did` counts them."""

    def __init__(self, story):
        self.s, self.second, self.did = story.s, story.second, collections.Counter()
        self.rng = random.Random("%d kill" % SEED)

    def leads(self, name):
        with contextlib.suppress(*LOST, ValueError):
            c = http.client.HTTPConnection("127.0.0.1", self.s.metrics_ports[name], timeout=1)
            try:
                c.request("GET", "/metrics")
                return b"\nshunt_leader 1" in c.getresponse().read()
            finally:
                c.close()
        return False

    def pids(self, what):
        """Of whom it means at the moment; [] if nobody is there."""
        if what == "all":
            return [p for n in ("api", *SCHEDULERS, *EXECUTORS, "workers", "postgres") for p in self.pids(n)]
        if what in ("leader", "standby"):
            leading = [n for n in SCHEDULERS if self.leads(n)]
            what = next((n for n in SCHEDULERS if (n in leading) == (what == "leader")), SCHEDULERS[0])
        if what in ("worker", "workers"):
            found = [p for n in EXECUTORS for p in self.children(n, "shunt-worker")]
            return found if what == "workers" or not found else [self.rng.choice(found)]
        pid = self.pid(what)
        if what == "postgres" and pid:
            return [pid, *self.children("postgres", "")]
        return [pid] if pid else []

    def pid(self, name):
        return self.second.pid() if name == EXECUTORS[1] else self.s.pid(name)

    def children(self, parent, name):
        out, pid = [], self.pid(parent)
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, IndexError):
                if entry.isdigit() and pid:
                    with open("/proc/%s/stat" % entry) as f:
                        comm, rest = f.read().partition("(")[2].rsplit(")", 1)
                    if int(rest.split()[1]) == pid and (not name or comm == name):
                        out.append(int(entry))
        return out

    @staticmethod
    def signal(pids, sig):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    def kinds(self):
        out = [("kill", what) for what in ONE + ("all",)] + [("hang", what) for what in ONE]
        out += [("restart", "postgres"), ("freeze and kill", "leader"), ("freeze and kill", "all")]
        self.rng.shuffle(out)
        return out

    def act(self, how, what, stop):
        """Kills of one process end with the process, so that it is one; hangs after some seconds."""
        pids = self.pids("postgres" if how == "freeze and kill" else what)
        if not pids:
            return
        self.did["%s %s" % (how, what)] += 1
        if how == "restart":
            self.signal(pids[:1], signal.SIGINT)
        elif how == "kill":
            self.signal(pids if what == "all" else pids[:1], signal.SIGKILL)
        else:
            self.signal(pids, signal.SIGSTOP)
            try:
                seconds = self.rng.uniform(0.3, 1) * HANG_S * (2 if what == "postgres" or "freeze" in how else 1)
                if how == "hang":
                    stop.wait(seconds)
                else: # nothing of these seconds is in the database when they die
                    stop.wait(seconds)
                    self.signal(self.pids(what), signal.SIGKILL)
                    stop.wait(0.2)
            finally:
                self.signal(pids, signal.SIGCONT)

    def run(self, seconds, failed):
        end, never = time.monotonic() + seconds, threading.Event()
        while time.monotonic() < end and not failed():
            for how, what in self.kinds():
                if failed() or LONG and time.monotonic() > end:
                    return
                self.act(how, what, never)
                time.sleep(self.rng.uniform(0, 2 * PAUSE_S))


class NothingLost(Story):
    @classmethod
    def setUpClass(cls):
        cls.shm = set(os.listdir("/dev/shm"))
        cls.s = s = System("--workers=3", "--schedulers=2", LEASE_TTL_MS="1000",
                           GRACE_MS="1000")
        cls.addClassCleanup(s.stop)
        cls.second = Second(s)
        cls.addClassCleanup(cls.second.stop)
        cls.second.start()
        cls.tenants = [Tenant(cls, name, k) for k, name in enumerate(TENANTS)]

    # ------------------------------------------------------------ the storm
    def observe(self, stop, seen):
        """Every state that a client was told."""
        while not stop.wait(0.3):
            for t in self.tenants:
                with contextlib.suppress(*LOST):
                    r = self.s.call("GET", "/api/v1/jobs?limit=100", key=t.key, timeout=10)
                    for j in r.json["items"] if r.status == 200 else ():
                        seen[j["id"]].add(j["state"])

    def storm(self):
        stop, seen, killer = threading.Event(), collections.defaultdict(set), Killer(self)
        askers = [Asker(self, i, stop) for i in range(N_CLIENTS)]
        submitters = [Submitter(self, t, stop) for t in self.tenants]
        observer = threading.Thread(target=self.observe, args=(stop, seen), daemon=True)
        for t in [*askers, *submitters, observer]:
            t.start()
        killer.run(SECONDS, lambda: any(t.failure for t in askers + submitters))
        stop.set()
        for t in [*askers, *submitters, observer]:
            t.join()
        self.assertEqual([t.failure for t in askers + submitters if t.failure], [])
        return askers, submitters, seen, killer

    # ------------------------------------------------------------ jobs
    def all_jobs(self, tenant):
        jobs, cursor = [], ""
        while True:
            r = self.s.call("GET", "/api/v1/jobs?limit=100" + cursor, key=tenant.key)
            assert r.status == 200, r
            jobs += r.json["items"]
            if not r.json.get("next_cursor"):
                return jobs
            cursor = "&cursor=" + r.json["next_cursor"]

    def live(self):
        with contextlib.suppress(AssertionError, *LOST):
            return sum(j["state"] not in FINAL for t in self.tenants for j in self.all_jobs(t))
        return -1

    def wait_for_jobs(self):
        """As long as it takes, if only they get fewer."""
        left = None
        while left != 0:
            was = left
            until("jobs end; %s are left" % was, lambda: self.live() not in (-1, was), WAIT_S, 0.3)
            left = self.live()

    def check_events(self, tenant, job, seen, cancelled):
        r = self.s.job(tenant.key, job["id"], "/events?limit=1000")
        self.assertEqual(r.status, 200, r)
        self.assertFalse(r.json.get("next_cursor"))
        chain = [(e["from"], e["to"]) for e in r.json["items"]]
        tos = [to for _, to in chain]
        self.assertEqual(chain[0], (None, "QUEUED"), chain)
        self.assertEqual([a for a, _ in chain[1:]], tos[:-1], "a change is missing of job %d" % job["id"])
        self.assertEqual([t in FINAL for t in tos], [False] * (len(tos) - 1) + [True], chain)
        self.assertEqual(tos[-1], job["state"])
        self.assertLessEqual(seen, set(tos), "a client was told of a change without an event")
        if cancelled:
            self.assertEqual(job["state"], "CANCELLED", chain)
        elif job["state"] != "CANCELLED":
            want = ROWS if job["kind"] == "batch_inference" else STEPS
            self.assertEqual((job["state"], job["step"]), ("SUCCEEDED", want), job)
        return len(tos)

    def check_result(self, tenant, job):
        """Batch inference: every row's answer, exactly."""
        raw = self.s.job(tenant.key, job["id"], "/result/artifact").raw
        (n,) = struct.unpack_from("<Q", raw)
        at = 8 + n + json.loads(raw[8:8 + n])["y"]["data_offsets"][0]
        got = list(struct.unpack_from("<%df" % (3 * ROWS), raw, at))
        self.assertEqual(got, tenant.answer(tenant.rows), "job %d" % job["id"])

    def check_jobs(self, submitters, seen):
        n_events, ends, published = 0, collections.Counter(), []
        for x in submitters:
            jobs = self.all_jobs(x.tenant)
            self.assertEqual({j["name"]: j["id"] for j in jobs}, x.jobs)
            self.assertEqual(len(jobs), len(x.jobs))
            for j in jobs:
                ends["%s %s" % (j["kind"], j["state"])] += 1
                n_events += self.check_events(x.tenant, j, seen[j["id"]], j["id"] in x.cancelled)
                if j["kind"] == "batch_inference" and j["state"] == "SUCCEEDED":
                    self.check_result(x.tenant, j)
            made = [j["result_version"] for j in jobs if j.get("result_version")]
            self.assertEqual(len(set(made)), len(made), "two jobs have one result")
            published += made
            x.samples = {kind: sum(j["step"] for j in jobs if (j["kind"], j["state"]) == (kind, "SUCCEEDED"))
                         for kind in ("training", "batch_inference")}
            x.unknown = {kind: sum(want for j in jobs if (j["kind"], j["state"]) == (kind, "CANCELLED"))
                         for kind, want in (("training", STEPS), ("batch_inference", ROWS))}
        self.assertTrue(published)
        return ends, n_events

    # ------------------------------------------------------------ usage
    def usage(self, tenant):
        r = self.s.call("GET", "/api/v1/tenants/%s/usage" % tenant.name, key=tenant.key)
        self.assertEqual(r.status, 200, r)
        rows = {u["class"]: u for u in r.json["items"]}
        none = {"requests": 0, "samples": 0, "gpu_seconds": 0}
        return rows.get("inference", none), rows.get("training", none)

    def check_usage(self, askers, submitters):
        """All that was answered is counted; nothing is that was not asked; each step once."""
        said = []
        for x in submitters:
            mine = [a for a in askers if a.tenant is x.tenant]
            answered = sum(a.count["answered"] for a in mine)
            asked = sum(sum(a.count.values()) for a in mine)
            samples = sum(a.samples["answered"] for a in mine) + x.samples["batch_inference"]
            most = sum(sum(a.samples.values()) for a in mine) + x.samples["batch_inference"] + \
                x.unknown["batch_inference"]
            trained = BATCH * x.samples["training"]
            with contextlib.suppress(AssertionError): # told below
                until("usage is written", lambda: self.usage(x.tenant)[0]["requests"] >= answered and
                      self.usage(x.tenant)[0]["samples"] >= samples and
                      self.usage(x.tenant)[1]["samples"] >= trained, 20)
            inference, training = self.usage(x.tenant)
            said.append("%s: %d answered of %d asked, %d counted; %d samples answered, %d counted; %d trained, "
                        "%d counted" % (x.tenant.name, answered, asked, inference["requests"], samples,
                                        inference["samples"], trained, training["samples"]))
            x.is_exact = answered <= inference["requests"] <= asked and \
                samples <= inference["samples"] <= most and \
                trained <= training["samples"] <= trained + BATCH * x.unknown["training"]
        self.assertTrue(all(x.is_exact for x in submitters), "\n".join(["usage is wrong:", *said]))
        return said

    # ------------------------------------------------------------ what is left
    def leftovers(self):
        """Processes that know the state folder, and shared memory that nobody has mapped."""
        out, mapped = [], set()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                for name in ("cmdline", "environ"):
                    with open("/proc/%s/%s" % (entry, name), "rb") as f:
                        if int(entry) != os.getpid() and self.s.state.encode() in f.read():
                            out.append("process " + entry)
                with open("/proc/%s/maps" % entry) as f:
                    mapped |= {line.split("/dev/shm/")[1].split()[0] for line in f if "/dev/shm/" in line}
        with open("/proc/net/unix") as f:
            out += [line.strip() for line in f if self.s.state in line]
        out += [p for p in (self.s.state,) if os.path.exists(p)]
        out += ["/dev/shm/" + n for n in set(os.listdir("/dev/shm")) - self.shm - mapped
                if n.startswith(("shunt", "PostgreSQL.")) and os.path.isfile("/dev/shm/" + n)]
        return out

    def test_a_kill_loses_nothing(self):
        began = time.monotonic()
        askers, submitters, seen, killer = self.storm()
        self.wait_for_jobs()
        ends, n_events = self.check_jobs(submitters, seen)
        self.assertGreater(ends["training SUCCEEDED"], 0)
        self.assertGreater(ends["batch_inference SUCCEEDED"], 0)
        said = self.check_usage(askers, submitters)
        self.second.stop()
        self.s.stop()
        until("nothing is left: %s" % self.leftovers(), lambda: not self.leftovers(), 30, 0.5)
        count = sum((a.count for a in askers), collections.Counter())
        print(*said, "kills: %s" % dict(sorted(killer.did.items())), sep="\n")
        print("seed %d: %d kills, %d requests: %s; jobs: %s, %d events, %d calls repeated; %d s"
              % (SEED, sum(killer.did.values()), sum(count.values()), dict(count), dict(ends), n_events,
                 sum(x.repeated for x in submitters), time.monotonic() - began))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
