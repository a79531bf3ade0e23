#!/usr/bin/env python3
"""What the job queue costs: submitting, listing, and starting, as the tables grow.

A system of its own (PostgreSQL included) on this machine, two for start; every figure is a ratio of two that were
taken in this run, in turns where it can be.

  submit   jobs submitted over HTTP by 8 clients, one, 10 and 100 a request, over rows inserted one by
           one into a table like job, by pgbench with 8 connections to the same database; with --beside
           FOLDER over those of the programs in FOLDER/build/bin, in memory (lib/beside.py)
  list     GET /jobs?limit=100 of a tenant with many jobs, over the same with 1,000
  start    from the submission of the only job that may run to STARTING, with many jobs queued while a
           transaction stays open and 20,000 others came and went since it began, over the same with 10
           queued; half of them are of its own tenant and queue. In parts: the submission, and from its
           answer to STARTING

Standard library only; the load is bench/http.c: `make build/bench/http`.
"""
import argparse
import contextlib
import glob
import http.client
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in ("tests/e2e", "bench/lib"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import beside  # noqa: E402
import onnx_bytes as onnx  # noqa: E402
from system import BIN, System, st_bytes, until  # noqa: E402

HTTP = os.path.join(ROOT, "build", "bench", "http")

FILL = """
INSERT INTO job (tenant_id, queue_id, kind, name, state, version_id, dataset_id, spec, finished_at,
    preemptible, priority)
SELECT t.id, q.id, 'training', 'filled ' || i, '{state}', v.id, d.id, '{spec}', {finished}, {preemptible},
    {priority} FROM generate_series(1, {n}) i, tenant t, queue q, model_version v, dataset d
WHERE t.name = '{tenant}' AND q.name = 'default' AND q.tenant_id IS NULL AND v.version = 1"""


def spec(seed=1):
    return {"optimizer": {"name": "sgd", "lr": 0.1}, "batch": 8, "steps": 3, "seed": seed}


def body(priority=0):
    return json.dumps({"kind": "training", "model": "tiny", "version": 1, "dataset": "small",
                       "priority": priority, "spec": spec()})


class Bench:
    # Jobs that stay when the table is emptied: plans that PostgreSQL makes of a table that it has seen empty
    # are kept, and are for few rows.
    n_kept = 0

    def __init__(self, programs=BIN):
        self.s = s = System("--workers=2", programs=programs)
        self.key = s.tenant("lab")
        self.quota("lab", max_queued_jobs=1000000000, max_running_jobs=0)
        s.push(self.key, "tiny", onnx.linear(), max_batch=2)
        s.push_data(self.key, "small", st_bytes({
            "x": ("F32", [8, 4], struct.pack("<32f", *([0.5] * 32))),
            "label": ("I64", [8], struct.pack("<8q", *([1] * 8)))}))
        with open("/proc/%d/environ" % s.pid("api"), "rb") as f:
            env = dict(x.split(b"=", 1) for x in f.read().split(b"\0") if b"=" in x)
        self.url = env[b"SHUNT_DB_URL"].decode()

    def quota(self, tenant, **fields):
        at = "/api/v1/tenants/%s/quota" % tenant
        r = self.s.call("GET", at, key=self.s.admin)
        r = self.s.call("PUT", at, {**{k: v for k, v in r.json.items() if v is not None and k not in
                                       ("tenant", "row_version")}, **fields},
                        self.s.admin, {"If-Match": r.headers["etag"]})
        assert r.status == 200, r

    def sql(self, text, wait=True):
        p = subprocess.Popen(["psql", "-qAtX", self.url, "-c", text], stdout=subprocess.PIPE, text=True)
        if not wait:
            return p
        out, _ = p.communicate()
        assert p.returncode == 0, text
        return out.strip()

    def http(self):
        return http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=60)

    def call(self, c, method, path, data=None):
        c.request(method, path, data, {"Authorization": "Bearer " + self.key,
                                       "Content-Type": "application/json"})
        r = c.getresponse()
        return r.status, r.read()

    # ------------------------------------------------------------ submit
    def submit_for(self, seconds, clients, batch):
        """How many jobs, in how many seconds, and what the system has had of processors then."""
        path, text = "/api/v1/jobs", body()
        if batch > 1:
            path, text = "/api/v1/job-batches", '{"jobs":[%s]}' % ",".join([text] * batch)
        request = ("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
                   "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                   % (path, self.key, len(text), text))
        before = int(self.sql("SELECT count(*) FROM job"))
        out = subprocess.run([HTTP, "load", str(self.s.port), str(clients), str(seconds)],
                             input=request.encode(), stdout=subprocess.PIPE, check=True).stdout
        used, got = beside.cpu_s(self.s), json.loads(out)
        assert got["failed"] == 0, got
        made = int(self.sql("SELECT count(*) FROM job")) - before
        assert made == got["requests"] * batch, (made, got)
        self.clear()
        return made, got["seconds"], used

    def insert_rate(self, seconds, clients):
        pgbench = sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"))[-1]
        self.sql("CREATE TABLE IF NOT EXISTS bare_job (LIKE job INCLUDING ALL)")
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as f:
            f.write("INSERT INTO bare_job (tenant_id, queue_id, kind, version_id, dataset_id, spec) "
                    "VALUES (1, 1, 'training', 1, 1, '%s');\n" % json.dumps(spec()))
            f.flush()
            out = subprocess.run([pgbench, "-n", "-f", f.name, "-c", str(clients), "-j", "2", "-T",
                                  str(seconds), self.url], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True, check=True).stdout
        return float([x for x in out.splitlines() if x.startswith("tps")][0].split()[2])

    def submit_beside(self, args):
        theirs = Bench(os.path.join(args.beside, "build", "bin"))
        turns = beside.Beside()
        try:
            for side in (self, theirs):
                side.sql("ALTER SYSTEM SET autovacuum = off")
                side.sql("SELECT pg_reload_conf()")
                side.n_kept = 2000
                side.clear()
            for i in range(args.rounds + 1):
                if i == 1:  # the first one was to warm up
                    turns.ratios.clear()
                for batch in (1, 10, 100):
                    turns.pair("submit  %4d a request, 8 clients" % batch, self, theirs,
                               lambda side, n=batch: side.submit_for(args.seconds, 8, n), i)
        finally:
            theirs.s.stop()
        print("over %s, medians of pairs and their quartiles:" % args.beside)
        turns.report("job")

    def submit(self, args):
        """In turns: what else runs on the machine is the same for all."""
        if args.beside:
            return self.submit_beside(args)
        bare, ours = [], {1: [], 10: [], 100: []}
        for _ in range(args.rounds):
            bare.append(self.insert_rate(args.seconds, 8))
            for batch, rates in ours.items():
                made, seconds, _ = self.submit_for(args.seconds, 8, batch)
                rates.append(made / seconds)
        print("submit  %8.0f rows/s by single-row inserts, 8 connections" % statistics.median(bare))
        for batch, rates in ours.items():
            ratios = [a / b for a, b in zip(rates, bare)]
            print("submit  %8.0f jobs/s, %4d a request, 8 clients: %.2f of the inserts, best %.2f%s"
                  % (statistics.median(rates), batch, statistics.median(ratios), max(ratios),
                     " (goal 0.3)" if batch > 1 else ""))

    def clear(self):
        with self.s.held():  # nobody looks while the table is emptied
            self.sql("TRUNCATE job_event, checkpoint, audit; DELETE FROM job; ANALYZE job")
        if self.n_kept:
            self.fill(self.n_kept, "SUCCEEDED")
            self.sql("VACUUM")

    # ------------------------------------------------------------ list
    def fill(self, n, state, tenant="lab", preemptible=True, priority=0):
        finished = "now()" if state == "SUCCEEDED" else "NULL"
        self.sql(FILL.format(state=state, spec=json.dumps(spec()), finished=finished, n=n,
                             tenant=tenant, preemptible=preemptible, priority=priority))
        self.sql("ANALYZE job")

    def list_ms(self, deep=False):
        c, ms, path = self.http(), [], "/api/v1/jobs?limit=100"
        status, text = self.call(c, "GET", path)
        assert status == 200, text
        if deep:
            path += "&cursor=" + json.loads(text)["next_cursor"]
        for _ in range(100):
            start = time.perf_counter()
            status, text = self.call(c, "GET", path)
            ms.append(1e3 * (time.perf_counter() - start))
            assert status == 200 and len(json.loads(text)["items"]) == 100
        return statistics.median(ms)

    def list(self, args):
        self.fill(1000, "SUCCEEDED")
        few = self.list_ms(), self.list_ms(deep=True)
        self.fill(args.rows - 1000, "SUCCEEDED")
        many = self.list_ms(), self.list_ms(deep=True)
        for what, a, b in zip(("first page", "next page"), many, few):
            print("list    %8.2f ms of %d jobs, %8.2f ms of 1,000: %.2f times (%s)"
                  % (a, args.rows, b, a / b, what))
        self.clear()

    # ------------------------------------------------------------ start
    def start_ms(self, n=20):
        """Medians of n: submitted, started after that, both."""
        c, ms = self.http(), []
        for _ in range(n):
            start = time.perf_counter()
            status, text = self.call(c, "POST", "/api/v1/jobs", body())
            assert status == 201, text
            answered, job = time.perf_counter(), json.loads(text)["id"]
            until("it starts", lambda: self.s.job(self.key, job).json["state"] != "QUEUED", 120, 0.001)
            end = time.perf_counter()
            ms.append((1e3 * (answered - start), 1e3 * (end - answered), 1e3 * (end - start)))
            self.s.wait_job(self.key, job)
        return [statistics.median(x) for x in zip(*ms)]

    def queue(self, n):
        """Half of them of a tenant that may run nothing, half of ours, which may not run these."""
        self.fill(n // 2, "QUEUED", "bulk")
        self.fill(n // 2, "QUEUED", "lab", preemptible=False)

    def come_and_go(self, n):
        """What is dead, and cannot be removed yet, stands where the next jobs are looked for."""
        self.fill(n, "QUEUED", "lab", preemptible=False, priority=500)
        self.sql("UPDATE job SET state = 'CANCELLED', finished_at = now() WHERE priority = 500")

    def ready_to_start(self, queued):
        self.s.tenant("bulk")
        self.quota("bulk", max_queued_jobs=1000000000, max_running_jobs=0)
        self.quota("lab", max_running_jobs=1, guaranteed_gpus=0)
        self.queue(queued)
        self.start_ms()

    def start(self, args):
        other, few, many = Bench(), [], []  # by turns in two systems: what else runs here slows both
        try:
            other.ready_to_start(10)
            self.ready_to_start(args.queued)
            holder = self.sql("BEGIN; SELECT pg_current_xact_id(); SELECT pg_sleep(60); COMMIT", wait=False)
            self.come_and_go(20000)
            for _ in range(args.starts):
                few.append(other.start_ms())
                many.append(self.start_ms())
            assert holder.poll() is None, "the transaction ended before the last start"
            holder.kill()
            holder.wait()
        finally:
            other.s.stop()
        for i, what in enumerate(("submitted", "started then", "together")):
            a, b = [x[i] for x in many], [x[i] for x in few]
            print("start   %8.1f ms with %d jobs queued, %8.1f ms with 10: %.2f times, best of %d rounds;"
                  " %.2f times, their median (%s)"
                  % (min(a), args.queued, min(b), min(a) / min(b), args.starts,
                     statistics.median(a) / statistics.median(b), what))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", default=["submit", "list", "start"])
    p.add_argument("--rounds", type=int, help="of submit (3; with --beside 15)")
    p.add_argument("--seconds", type=int, help="of each load (5; with --beside 1)")
    p.add_argument("--beside", metavar="FOLDER", help="submit: another build, to compare with")
    p.add_argument("--rows", type=int, default=1000000, help="jobs that have ended, for list")
    p.add_argument("--starts", type=int, default=5, help="rounds of 20 starts")
    p.add_argument("--queued", type=int, default=100000, help="jobs that wait, for start")
    args = p.parse_args()
    args.rounds = args.rounds or (15 if args.beside else 3)
    args.seconds = args.seconds or (1 if args.beside else 5)
    if args.beside:
        beside.in_memory()
    b = Bench()
    try:
        for part in args.parts:
            getattr(b, part)(args)
    finally:
        with contextlib.suppress(Exception):
            b.s.stop()


if __name__ == "__main__":
    main()
