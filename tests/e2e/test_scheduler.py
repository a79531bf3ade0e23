#!/usr/bin/env python3
"""shunt-scheduler alone, with a real PostgreSQL; this file plays executors and APIs.

Without it: two schedulers could lead at once, a job could run on two executors or on none after a
failure, a cancelled job could go on, a request could wait for ever for an executor that is gone, and
a database that is away could stop requests or lose what happened meanwhile.

Usage: test_scheduler.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN; starts a throw-away
PostgreSQL with tests/pg.sh when DATABASE_URL is not set)
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import wire  # noqa: E402

BIN = os.environ.get("SHUNT_BIN", os.path.join(wire.ROOT, "build", "bin"))
URL = os.environ.get("DATABASE_URL", "")
LOADING, READY, FAILED, GONE = range(4)
STARTING, RUNNING, PREEMPTED, COMPLETING, DONE, JOB_FAILED, CANCELLED, SUSPENDED = range(8)
UNAVAILABLE, NAN, QUOTA, SLO, TIMEOUT = -17, -23, -8, -19, -20
RESULT = {"accuracy": 0.98, "eval_loss": 0.1, "final_loss": 0.01, "steps": 100,
          "package_digest": "c" * 64, "package": "packages/" + "c" * 64, "onnx_bytes": 321,
          "meta": {"ok": True, "inputs": [{"name": "x"}], "outputs": [{"name": "y"}], "opset": 18}}


def sql(text):
    p = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", URL, "-c", text],
                       capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr)
    return p.stdout.strip()


WAIT_S = 120  # for what takes a moment on an idle machine
GRACE_S, MIN_RUN_S, LEASE_S = 0.6, 0.5, 1
# Where a busy machine must not be what ends them.
LONG_GRACE, LONG_LEASE = "--grace-ms=60000", "--lease-ttl-ms=3000"


def wait(what, fn):
    end = time.monotonic() + WAIT_S
    while True:
        v = fn()
        if v:
            return v
        if time.monotonic() > end:
            raise AssertionError("not within %g s: %s" % (WAIT_S, what))
        time.sleep(0.01)


class Peer:
    """A connection whose messages are collected by a thread."""

    def __init__(self, addr):
        self.conn, self.inbox, self.closed = wire.connect("unix:" + addr), [], False
        self.lock = threading.Lock()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        try:
            while True:
                m = self.conn.recv(3600)
                if m.type == "PING":
                    self.send("PONG", cookie=m.cookie)
                else:
                    self.inbox.append(m)
        except (EOFError, OSError):
            self.closed = True

    def send(self, name, /, **values):
        with self.lock:
            self.conn.send(name, **values)

    def find(self, type_name, **want):
        for m in list(self.inbox):
            if m.type == type_name and all(getattr(m, k) == v for k, v in want.items()):
                return m
        return None

    def all(self, type_name):
        return [m for m in list(self.inbox) if m.type == type_name]

    def expect(self, type_name, **want):
        return wait("%s %r" % (type_name, want), lambda: self.find(type_name, **want))

    def close(self):
        """The descriptor goes when nobody waits on it: its number may be another file's at once."""
        with contextlib.suppress(OSError):
            self.conn.sock.shutdown(socket.SHUT_RDWR)
        self.reader.join()
        self.conn.sock.close()


class Exec(Peer):
    def __init__(self, addr, name="e0", incarnation=1, models=(), jobs=(), pool_bytes=1 << 30):
        super().__init__(addr)
        self.name = name
        self.send("EXEC_HELLO", executor=name, host_id="h", data_addr="unix:/tmp/none", device="fake",
                  pool_bytes=pool_bytes, n_workers=3, incarnation=incarnation)
        for v in models:
            self.model(v)
        for job, attempt, state in jobs:
            self.job(job, state, attempt=attempt)
        self.send("EXEC_SYNCED", incarnation=incarnation)

    def model(self, version, state=READY, rc=0, msg="", ns=5e6, need_bytes=0):
        profile = b"".join(struct.pack("<IId", b, 0, ns) for b in (1, 2, 4, 8))
        self.send("MODEL_STATE", version_id=version, state=state, rc=rc, msg=msg,
                  image_bytes=1 << 20, resident_bytes=1 << 20, profile=profile, need_bytes=need_bytes)

    def load(self, version):
        self.expect("MODEL_LOAD", version_id=version)
        self.model(version)

    def job(self, job, state, attempt=1, step=0, rc=0, msg="", result="", **more):
        f = dict(steps=100, loss=0.5, samples_per_s=10.0, redone=0, preemptions=0, busy_ns=0, need_bytes=0)
        f.update(more)
        self.send("JOB_STATE", job=job, attempt=attempt, state=state, step=step, rc=rc, msg=msg,
                  result=result, **f)

    def done(self, run, rc=0):
        self.send("RUN_DONE", run_id=run.run_id, rc=rc, msg="", total_ns=5000000, copy_ns=0,
                  compute_ns=4000000, resident_bytes=1 << 20)


class Api(Peer):
    def __init__(self, addr, api_id=7):
        super().__init__(addr)
        self.send("API_HELLO", api_id=api_id, name="api")
        self.expect("WELCOME")

    def open(self, rid, version=1, tenant="research", budget_ms=0, age_ms=0):
        self.send("INFER_OPEN", rid=rid, tenant=tenant, model="digits", version_id=version,
                  body_bytes=64, budget_ns=int(budget_ms * 1e6), priority=0, age_ns=int(age_ms * 1e6))

    def ready(self, rid, batch=1):
        self.send("INFER_READY", rid=rid, batch=batch, in_spans=struct.pack("<QQ", 0, 64),
                  out_spans=struct.pack("<QQ", 64, 40), budget_ns=0, priority=0)


class Case(unittest.TestCase):
    """A scheduler's world without stories of its own."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="shunt-sched-")
        self.addr, self.procs, self.peers = self.dir + "/s.sock", [], []
        self.log = open(self.dir + "/log", "ab")
        sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        p = subprocess.run([BIN + "/shunt-scheduler", "--migrate-only", "--db-url", URL,
                            "--migrations-dir", wire.ROOT + "/migrations"],
                           stderr=subprocess.PIPE, text=True)
        self.assertEqual(p.returncode, 0, p.stderr)
        sql("""INSERT INTO tenant (name) VALUES ('research'), ('vision');
               INSERT INTO quota (tenant_id) VALUES (1), (2);
               INSERT INTO model (tenant_id, name) VALUES (1, 'digits');
               INSERT INTO model_version (model_id, version, state, digest, package)
                   VALUES (1, 1, 'REGISTERED', repeat('a', 64), 'packages/a');
               INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples)
                   VALUES (1, 'train', 'READY', repeat('b', 64), 'datasets/b.safetensors', 10)""")

    def tearDown(self):
        for p in self.procs:
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.terminate()
                p.wait(WAIT_S)
        for p in self.peers:
            try:
                p.close()
            except OSError:
                pass
        with open(self.dir + "/log") as f:
            differences = [line for line in f if " ev=view.difference " in line]
        failed = any(e for _, e in getattr(self._outcome, "errors", []) or []) or \
            getattr(getattr(self._outcome, "result", None), "failures", None)
        if failed:
            sys.stderr.write(open(self.dir + "/log").read()[-6000:])
        shutil.rmtree(self.dir)
        self.assertEqual(differences, [], "full looks at the database found")

    def start(self, name="s1", *options):
        p = subprocess.Popen(
            [BIN + "/shunt-scheduler", "--name=" + name, "--listen=unix:" + self.addr,
             "--db-url=" + URL, "--metrics-addr=", "--poll-ms=50",
             "--lease-ttl-ms=%d" % (LEASE_S * 1000), "--grace-ms=%d" % (GRACE_S * 1000),
             "--min-run-ms=%d" % (MIN_RUN_S * 1000), "--full-look-ms=300", *options],
            stderr=self.log)
        self.procs.append(p)
        return p

    def exec(self, *a, **k):
        self.peers.append(Exec(self.addr, *a, **k))
        return self.peers[-1]

    def api(self, **k):
        self.peers.append(Api(self.addr, **k))
        return self.peers[-1]

    def ready_executor(self, **k):
        e = self.exec(**k)
        e.load(1)
        wait("READY", lambda: sql("SELECT state FROM model_version WHERE id = 1") == "READY")
        return e

    def submit(self, tenant=1, max_attempts=5, priority=0, kind="training", spec='{"batch": 4}'):
        return int(sql("INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec,"
                       " max_attempts, priority) VALUES (%d, 1, '%s', 1, 1, '%s', %d, %d)"
                       " RETURNING id" % (tenant, kind, spec, max_attempts, priority)))

    def running(self, e, start="JOB_START", **k):
        job = self.submit(**k)
        m = e.expect(start, job=job)
        e.job(job, RUNNING, attempt=m.attempt, step=1)
        self.state(job, "RUNNING")
        return job

    def state(self, job, want):
        wait("job %d %s" % (job, want),
             lambda: sql("SELECT state FROM job WHERE id = %d" % job) == want)

    def cancel(self, job):
        sql("INSERT INTO job_event (job_id, from_state, to_state) SELECT id, state, 'CANCELLING' FROM"
            " job WHERE id = %d; UPDATE job SET state = 'CANCELLING' WHERE id = %d" % (job, job))

    def chain(self, job):
        """The states by its events: one unbroken chain."""
        rows = [r.split("|") for r in
                sql("SELECT coalesce(from_state, ''), to_state FROM job_event WHERE job_id = %d"
                    " ORDER BY id" % job).splitlines()]
        for a, b in zip(rows, rows[1:]):
            self.assertEqual(a[1], b[0], rows)
        return [r[1] for r in rows]


class Scheduler(Case):
    # ------------------------------------------------------------ models and requests

    def test_a_version_is_loaded_and_becomes_ready_with_its_profile(self):
        self.start()
        e = self.exec()
        m = e.expect("MODEL_LOAD", version_id=1)
        self.assertEqual(m.package, "packages/a")
        wait("LOADING", lambda: sql("SELECT state FROM model_version") == "LOADING")
        e.model(1)
        wait("READY", lambda: sql("SELECT state FROM model_version") == "READY")
        self.assertEqual(sql("SELECT image_bytes, profile->0->>'batch' FROM model_version"),
                         "%d|1" % (1 << 20))

    def test_a_version_that_fails_everywhere_is_failed_with_the_reason(self):
        self.start()
        e = self.exec()
        e.expect("MODEL_LOAD", version_id=1)
        e.model(1, state=FAILED, rc=-7, msg="no such operation")
        wait("FAILED", lambda: sql("SELECT state, reason_code, reason FROM model_version") ==
             "FAILED|UNSUPPORTED|no such operation")

    def test_a_version_out_of_memory_is_tried_again(self):
        self.start()
        e = self.exec()
        e.expect("MODEL_LOAD", version_id=1)
        e.inbox.clear()
        e.model(1, state=FAILED, rc=-14, msg="no device memory")
        e.load(1)
        wait("READY", lambda: sql("SELECT state FROM model_version") == "READY")

    def test_a_deleted_version_is_unloaded(self):
        self.start()
        e = self.ready_executor()
        sql("UPDATE model_version SET state = 'DELETED'")
        e.expect("MODEL_UNLOAD", version_id=1)

    def test_an_unloaded_version_leaves_every_executor_before_it_is_said_to_have(self):
        self.start()
        e = self.ready_executor()
        api = self.api()
        api.open(1)
        api.expect("INFER_PLACED", rid=1)
        sql("UPDATE model_version SET state = 'UNLOADING', row_version = row_version + 1")
        m = api.expect("INFER_REFUSED", rid=1)
        self.assertEqual(m.rc, UNAVAILABLE)
        self.assertIn("unloaded", m.msg)
        e.expect("MODEL_UNLOAD", version_id=1)
        api.open(2)
        self.assertIn("not loaded", api.expect("INFER_REFUSED", rid=2).msg)
        e.model(1)  # a word from before it heard: no reason to believe that it is back
        self.assertEqual(sql("SELECT state FROM model_version"), "UNLOADING")
        e.model(1, state=GONE)
        wait("UNLOADED", lambda: sql("SELECT state, reason_code FROM model_version") ==
             "UNLOADED|UNLOADED")
        e.inbox.clear()
        sql("UPDATE model_version SET state = 'REGISTERED', row_version = row_version + 1")
        e.load(1)
        wait("READY", lambda: sql("SELECT state FROM model_version") == "READY")
        api.open(3)
        api.expect("INFER_PLACED", rid=3)

    def test_a_wish_to_load_while_it_leaves_waits_until_it_has_left(self):
        self.start()
        e = self.ready_executor()
        e.inbox.clear()
        sql("UPDATE model_version SET state = 'UNLOADING'")
        e.expect("MODEL_UNLOAD", version_id=1)
        sql("UPDATE model_version SET state = 'REGISTERED'")
        time.sleep(0.2)  # several looks at the database
        self.assertIsNone(e.find("MODEL_LOAD"))
        e.model(1, state=GONE)
        e.load(1)
        wait("READY", lambda: sql("SELECT state FROM model_version") == "READY")

    def test_an_executor_that_comes_back_with_an_unloaded_version_gives_it_up(self):
        self.start()
        self.ready_executor().close()
        sql("UPDATE model_version SET state = 'UNLOADING'")
        wait("UNLOADED", lambda: sql("SELECT state FROM model_version") == "UNLOADED")
        e = self.exec(incarnation=1, models=(1,))
        e.expect("MODEL_UNLOAD", version_id=1)

    def test_an_unloaded_version_can_still_be_trained(self):
        self.start()
        e = self.ready_executor()
        sql("UPDATE model_version SET state = 'UNLOADING'")
        e.expect("MODEL_UNLOAD", version_id=1)
        e.model(1, state=GONE)
        wait("UNLOADED", lambda: sql("SELECT state FROM model_version") == "UNLOADED")
        self.running(e)

    def test_pins_and_places_go_through(self):
        self.start()
        e = self.ready_executor()
        sql("UPDATE model_version SET pinned = true")
        self.assertEqual(e.expect("MODEL_PIN", version_id=1).pinned, 1)
        e.send("MODEL_PLACE", version_id=1, device_bytes=77, host_bytes=99, pin=1, idle_ns=int(3e9))
        wait("its place", lambda: sql("SELECT executor, state, pin, device_bytes, host_bytes, extract("
                                      "epoch FROM now() - last_use_at) BETWEEN 2 AND 30 FROM"
                                      " placement") == "e0|READY|held|77|99|t")
        e.send("MODEL_PLACE", version_id=1, device_bytes=1, host_bytes=2, pin=900, idle_ns=-1)
        wait("nonsense does no harm", lambda: sql("SELECT pin, device_bytes, last_use_at IS NULL FROM"
                                                  " placement") == "waiting|1|t")
        e.close()
        e = self.exec(incarnation=2)  # another process: it holds nothing and knows of no pin
        e.expect("MODEL_LOAD", version_id=1)
        wait("what it held is forgotten", lambda: sql("SELECT count(*), sum(device_bytes) FROM"
                                                      " placement") == "1|0")
        e.model(1)
        e.expect("MODEL_PIN", version_id=1)
        sql("UPDATE model_version SET pinned = false, state = 'UNLOADING'")
        e.expect("MODEL_UNLOAD", version_id=1)
        e.model(1, state=GONE)
        wait("no place", lambda: sql("SELECT count(*) FROM placement") == "0")

    def test_runs_become_a_profile_and_the_targets_percentile_predicts(self):
        sql("INSERT INTO slo (model_id, latency_ms, percentile) VALUES (1, 60000, 20)")
        self.start()
        e = self.ready_executor()
        wait("the first profile", lambda: sql("SELECT predicted_ns, source, runs FROM measured WHERE"
                                              " batch = 1") == "5000000|profile|0")
        self.assertEqual(sql("SELECT max(batch) FROM measured"), "8")
        api = self.api()
        for i in range(12):
            api.open(i)
            api.expect("INFER_PLACED", rid=i)
            api.ready(i)
            run = wait("a run", lambda: len(e.all("RUN")) == i + 1 and e.all("RUN")[-1])
            if i == 11:
                time.sleep(0.3)  # one that is far slower than all others
            e.done(run)
        wait("a dozen runs", lambda: sql("SELECT runs, recent FROM measured WHERE batch = 1") ==
             "12|12")
        source, low, p50, p99 = sql("SELECT source, predicted_ns, p50_ns, p99_ns FROM measured WHERE"
                                    " batch = 1").split("|")
        self.assertGreater(int(p99), 3e8)
        self.assertLessEqual(int(p50), int(p99))
        if source == "runs":  # its runs are not too old for that on a machine that is busy
            self.assertLessEqual(int(low), int(p50))

    def test_a_target_of_higher_priority_goes_first(self):
        sql("INSERT INTO model (tenant_id, name) VALUES (1, 'urgent'); INSERT INTO model_version"
            " (model_id, version, state, digest, package) VALUES (2, 1, 'REGISTERED', repeat('c', 64),"
            " 'packages/c'); INSERT INTO slo (model_id, latency_ms, priority) VALUES (2, 60000, 50)")
        self.start("s1", "--max-runs=1")
        e = self.ready_executor()
        e.load(2)
        wait("both READY", lambda: sql("SELECT count(*) FROM model_version WHERE state = 'READY'") ==
             "2")
        api = self.api()
        for rid, version in ((1, 1), (2, 1), (3, 2)):
            api.open(rid, version=version)
            api.expect("INFER_PLACED", rid=rid)
            api.ready(rid)
            if rid == 1:
                e.expect("RUN")
        api.open(4)  # when it is placed, all before it has arrived
        api.expect("INFER_PLACED", rid=4)
        # Both wait for the first run's end; the later one goes first.
        e.done(e.all("RUN")[0])
        second = wait("the next run", lambda: len(e.all("RUN")) == 2 and e.all("RUN")[1])
        self.assertEqual(second.version_id, 2)
        e.done(second)
        third = wait("the last run", lambda: len(e.all("RUN")) == 3 and e.all("RUN")[2])
        self.assertEqual(third.version_id, 1)

    def test_a_request_is_placed_prepared_run_and_accounted(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        a.expect("EXEC_UP", executor="e0", up=1)
        a.open(1)
        self.assertEqual(a.expect("INFER_PLACED", rid=1).executor, "e0")
        e.expect("PREPARE", rid=1, version_id=1)
        self.assertFalse(e.find("RUN"))
        a.ready(1, batch=3)
        part, run = e.expect("RUN_PART", rid=1), e.expect("RUN")
        self.assertEqual((part.run_id, part.api_id, part.batch), (run.run_id, 7, 3))
        self.assertEqual((run.n_parts, run.batch, run.version_id), (1, 3, 1))
        self.assertEqual(struct.unpack("<QQ", part.out_spans), (64, 40))
        e.done(run)
        wait("usage", lambda: sql("SELECT gpu_ns, requests, samples FROM usage") == "4000000|1|3")

    def test_requests_that_wait_share_a_run(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        for rid in range(1, 7):
            a.open(rid)
            a.expect("INFER_PLACED", rid=rid)
            a.ready(rid)
        wait("two runs", lambda: len(e.all("RUN")) == 2)
        for r in e.all("RUN"):
            e.done(r)
        wait("the third", lambda: len(e.all("RUN")) == 3)
        self.assertEqual(sum(r.batch for r in e.all("RUN")), 6)
        self.assertEqual(e.all("RUN")[2].batch, 4)

    def test_limits_and_deadlines_refuse_with_their_code(self):
        sql("UPDATE quota SET max_concurrent_requests = 2 WHERE tenant_id = 2")
        self.start("s1", "--max-requests=4")
        e, a = self.ready_executor(), self.api()
        a.open(1, tenant="vision")
        a.open(2, tenant="vision")
        a.open(3, tenant="vision")
        self.assertEqual(a.expect("INFER_REFUSED", rid=3).rc, QUOTA)
        a.open(4, budget_ms=2)  # a run takes 5 ms
        m = a.expect("INFER_REFUSED", rid=4)
        self.assertEqual(m.rc, SLO)
        self.assertIn("cannot be met", m.msg)
        self.assertGreater(m.retry_after_ms, 0)
        a.open(5, budget_ms=300)  # its body never comes
        self.assertEqual(a.expect("INFER_REFUSED", rid=5).rc, TIMEOUT)
        a.open(6, version=99)
        self.assertEqual(a.expect("INFER_REFUSED", rid=6).rc, UNAVAILABLE)
        for rid in (7, 8, 9):
            a.open(rid)
        self.assertEqual(a.expect("INFER_REFUSED", rid=9).rc, -18)
        self.assertFalse(e.find("RUN"))

    def test_a_slo_with_reject_refuses_by_prediction(self):
        sql("INSERT INTO slo (model_id, latency_ms, on_miss) VALUES (1, 3, 'reject')")
        self.start()
        self.ready_executor()
        a = self.api()
        a.open(1)
        self.assertEqual(a.expect("INFER_REFUSED", rid=1).rc, SLO)
        sql("UPDATE slo SET on_miss = 'best-effort'")
        wait("the change", lambda: a.open(a.next) or self.placed(a))

    def test_the_time_of_a_request_counts_from_its_headers_and_a_budget_from_now(self):
        sql("INSERT INTO slo (model_id, latency_ms, on_miss) VALUES (1, 1000, 'reject')")
        self.start()
        self.ready_executor()
        a = self.api()
        a.open(1, age_ms=10)
        a.expect("INFER_PLACED", rid=1)
        a.open(2, age_ms=1100)
        m = a.expect("INFER_REFUSED", rid=2)
        self.assertEqual(m.rc, SLO)
        self.assertIn("deadline of 1000 ms", m.msg)
        self.assertGreaterEqual(m.predicted_ms, 1100)
        a.open(3, age_ms=500, budget_ms=300)  # 300 ms are left of it
        a.expect("INFER_PLACED", rid=3)
        sql("DELETE FROM slo")

    def placed(self, a):
        m = wait("an answer", lambda: a.find("INFER_PLACED", rid=a.next) or
                 a.find("INFER_REFUSED", rid=a.next))
        a.next += 1
        return m.type == "INFER_PLACED"

    def test_a_cancelled_request_does_not_run_and_a_running_one_is_told(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        a.open(1)
        a.expect("INFER_PLACED", rid=1)
        a.send("INFER_CANCEL", rid=1)
        a.ready(1)
        a.open(2)
        a.ready(2)
        run = e.expect("RUN")
        self.assertFalse(e.find("RUN_PART", rid=1))
        a.send("INFER_CANCEL", rid=2)
        e.expect("RUN_CANCEL", rid=2, run_id=run.run_id)

    def test_a_lost_executor_refuses_its_requests_at_once(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        a.open(1)
        a.ready(1)
        e.expect("RUN")
        a.open(2)
        a.expect("INFER_PLACED", rid=2)
        e.close()
        self.assertEqual(a.expect("INFER_REFUSED", rid=1).rc, UNAVAILABLE)
        self.assertEqual(a.expect("INFER_REFUSED", rid=2).rc, UNAVAILABLE)
        a.expect("EXEC_UP", up=0)
        a.open(3)
        self.assertEqual(a.expect("INFER_REFUSED", rid=3).rc, UNAVAILABLE)

    # ------------------------------------------------------------ jobs

    def test_a_job_goes_all_the_way_and_its_model_is_the_next_version(self):
        self.start()
        e = self.ready_executor()
        job = self.submit()
        m = e.expect("JOB_START", job=job)
        self.assertEqual(m.dataset, "datasets/b.safetensors")
        self.assertEqual((m.dir, m.resume, m.eval_dataset), (str(job), "", ""))
        self.assertEqual(json.loads(m.spec), {"batch": 4})
        e.job(job, RUNNING, step=1)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=50, path="%d/ckpt-50" % job, digest="d",
               bytes=10)
        e.job(job, PREEMPTED, step=60)
        e.job(job, RUNNING, step=60, preemptions=1, busy_ns=5000000)
        e.job(job, COMPLETING, step=100)
        e.job(job, DONE, step=100, preemptions=1, busy_ns=9000000, result=json.dumps(RESULT))
        self.state(job, "SUCCEEDED")
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING", "PREEMPTED", "RUNNING",
                                           "COMPLETING", "SUCCEEDED"])
        self.assertEqual(json.loads(sql("SELECT result FROM job")),
                         {"accuracy": 0.98, "eval_loss": 0.1, "final_loss": 0.01, "steps": 100,
                          "version": 2})
        self.assertEqual(sql("SELECT preemptions, busy_ns, step FROM job"), "1|9000000|100")
        self.assertEqual(sql("SELECT path FROM checkpoint"), "%d/ckpt-50" % job)
        e.load(2)
        wait("READY", lambda: sql("SELECT state FROM model_version WHERE id = 2") == "READY")
        self.assertEqual(json.loads(sql("SELECT meta FROM model_version WHERE id = 2")),
                         {"opset": 18})
        wait("usage", lambda: sql("SELECT sum(gpu_ns) FROM usage WHERE class = 'training'") ==
             "9000000")

    def test_a_failure_worth_a_try_uses_up_an_attempt_and_resumes(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e, max_attempts=2)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=40, path="%d/ckpt-40" % job, digest="d",
               bytes=10)
        e.job(job, JOB_FAILED, step=45, rc=-12, msg="device lost")
        m = e.expect("JOB_START", job=job, attempt=2)
        self.assertEqual(m.resume, "%d/ckpt-40" % job)
        self.assertEqual(m.resume_step, 40)
        wait("redone", lambda: sql("SELECT steps_redone FROM job") == "5")
        e.job(job, JOB_FAILED, attempt=2, step=45, rc=-12, msg="device lost again")
        self.state(job, "FAILED")
        self.assertEqual(sql("SELECT error_code, error FROM job"), "DEVLOST|device lost again")

    def test_a_job_too_large_for_one_device_uses_up_no_attempt_and_starts_on_a_larger(self):
        self.start()
        large = self.ready_executor(pool_bytes=4 << 20)
        other = self.running(large)
        small = self.exec(name="e1", pool_bytes=1 << 20)
        small.load(1)
        job = self.submit(max_attempts=2)
        m = small.expect("JOB_START", job=job)
        small.job(job, JOB_FAILED, attempt=m.attempt, rc=-6, msg="the pool has 1 MiB", need_bytes=2 << 20)
        self.state(job, "QUEUED")
        wait("its error", lambda: sql("SELECT error FROM job WHERE id = %d" % job) == "the pool has 1 MiB")
        self.assertEqual(len(small.all("JOB_START")), 1)
        large.job(other, JOB_FAILED, rc=-7, msg="no more")
        self.assertEqual(large.expect("JOB_START", job=job).attempt, 1)
        large.job(job, JOB_FAILED, rc=-6, msg="the pool has 4 MiB", need_bytes=5 << 20)
        wait("FAILED", lambda: sql("SELECT state, reason, error_code, attempt FROM job WHERE id = %d" % job)
             == "FAILED|TOOBIG|TOOBIG|1")

    def test_nan_fails_at_once_and_names_the_step_and_the_checkpoint(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=40, path="%d/ckpt-40" % job, digest="d",
               bytes=10)
        e.job(job, JOB_FAILED, step=44, rc=NAN, msg="the loss is not a number", loss=float("nan"))
        self.state(job, "FAILED")
        text = sql("SELECT error_code || error FROM job")
        self.assertIn("NAN", text)
        self.assertIn("step 44", text)
        self.assertIn("checkpoint of step 40 is kept", text)
        self.assertEqual(sql("SELECT step FROM checkpoint"), "40")

    def test_cancelling_reaches_the_executor_and_ends_the_job(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        job = self.running(e)
        self.cancel(job)
        a.send("HINT", what="jobs")
        m = e.expect("JOB_STOP", job=job)
        self.assertEqual(m.how, 0)
        e.job(job, CANCELLED, step=9)
        self.state(job, "CANCELLED")
        self.assertEqual(self.chain(job)[-1], "CANCELLED")

    def test_done_and_cancel_at_the_same_time_ends_cancelled(self):
        self.start("s1", "--poll-ms=60000")
        e = self.ready_executor_hinted()
        job = self.submit()
        self.hint.send("HINT", what="jobs")
        e.expect("JOB_START", job=job)
        e.job(job, RUNNING, step=1)
        self.state(job, "RUNNING")
        self.cancel(job)
        e.job(job, DONE, step=100, result=json.dumps(RESULT))
        self.state(job, "CANCELLED")
        self.assertEqual(sql("SELECT count(*) FROM model_version"), "1")

    def ready_executor_hinted(self):
        e = self.exec()
        self.hint = self.api()
        e.load(1)
        wait("READY", lambda: sql("SELECT state FROM model_version WHERE id = 1") == "READY")
        self.hint.send("HINT", what="models")
        return e

    def test_a_job_that_waits_says_why(self):
        self.start()
        e = self.ready_executor()
        self.running(e)
        second = self.submit()
        wait("Resources", lambda: sql("SELECT reason FROM job WHERE id = %d" % second) ==
             "Resources")
        sql("UPDATE queue SET state = 'HELD'")
        wait("QueueHeld", lambda: sql("SELECT reason FROM job WHERE id = %d" % second) ==
             "QueueHeld")

    def test_a_higher_priority_suspends_after_the_minimum_run_and_the_other_resumes(self):
        self.start()
        e = self.ready_executor()
        low = self.running(e)
        began = time.monotonic()
        high = self.submit(priority=9)
        self.assertEqual(e.expect("JOB_STOP", job=low).how, 1)
        self.assertGreater(time.monotonic() - began, 0.3)
        self.assertFalse(e.find("JOB_START", job=high))
        e.job(low, SUSPENDED, step=7)
        e.expect("JOB_START", job=high)
        self.state(low, "QUEUED")
        e.job(high, JOB_FAILED, rc=-1, msg="bad")
        e.inbox.clear()
        e.expect("JOB_START", job=low, attempt=1)

    def test_a_job_of_a_lost_executor_starts_elsewhere_after_the_grace(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        began = time.monotonic()
        e.close()
        f = self.exec(name="e1")
        f.load(1)
        f.expect("JOB_START", job=job, attempt=1)
        self.assertGreater(time.monotonic() - began, GRACE_S)
        self.assertEqual(self.chain(job)[2:], ["QUEUED", "STARTING"])

    def test_an_executor_that_comes_back_with_its_job_keeps_it(self):
        self.start("s1", "--grace-ms=3000")
        e = self.ready_executor()
        job = self.running(e)
        e.close()
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        time.sleep(3.5)  # longer than the grace
        self.assertFalse(e.find("JOB_START"))
        self.assertFalse(e.find("JOB_STOP"))
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING"])

    def test_an_executor_that_comes_back_without_its_job_gets_it_again(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        e.close()
        e = self.exec(incarnation=2, models=[1])
        e.expect("JOB_START", job=job, attempt=1)

    def test_a_job_that_is_not_the_executors_is_stopped_and_holds_its_slot_until_then(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        e.close()
        self.state(job, "QUEUED")
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        e.expect("JOB_STOP", job=job)
        time.sleep(0.3)
        self.assertFalse(e.find("JOB_START"))
        e.job(job, CANCELLED)
        e.expect("JOB_START", job=job)

    # ------------------------------------------------------------ batch inference

    def batch(self, e, **k):
        return self.running(e, "BATCH_START", kind="batch_inference", **k)

    def part(self, e, job, step, digest="d" * 64, attempt=1):
        e.send("JOB_CHECKPOINT", job=job, attempt=attempt, step=step, path="%d/result-0.part" % job,
               digest=digest, bytes=10)
        wait("checkpoint", lambda: sql("SELECT count(*) FROM checkpoint WHERE digest = '%s'" %
                                       digest) == "1")

    def test_batch_inference_goes_all_the_way_and_makes_no_version(self):
        sql("""UPDATE model_version SET inputs = '[{"name": "x"}]', outputs = '[{"name": "y"}]'""")
        self.start()
        e = self.ready_executor()
        job = self.batch(e)
        m = e.find("BATCH_START", job=job)
        self.assertEqual((json.loads(m.inputs), json.loads(m.outputs)), ([{"name": "x"}],
                                                                         [{"name": "y"}]))
        self.assertEqual((m.version_id, m.attempt, m.resume_step, m.resume_digest), (1, 1, 0, ""))
        self.assertEqual(json.loads(m.spec), {"batch": 4})
        self.assertEqual(m.dataset, "datasets/b.safetensors")
        self.assertEqual(m.dir, str(job))
        self.assertFalse(e.find("JOB_START"))
        e.job(job, PREEMPTED, step=8, steps=10, busy_ns=4000000, preemptions=1)
        self.state(job, "PREEMPTED")
        e.job(job, COMPLETING, step=10, steps=10, busy_ns=9000000)
        e.job(job, DONE, step=10, steps=10, busy_ns=9000000, loss=float("nan"), result=json.dumps(
            {"samples": 10, "bytes": 480, "digest": "e" * 64, "seconds": 0.5}))
        self.state(job, "SUCCEEDED")
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING", "PREEMPTED", "COMPLETING",
                                           "SUCCEEDED"])
        self.assertEqual(json.loads(sql("SELECT result FROM job")),
                         {"samples": 10, "bytes": 480, "digest": "e" * 64, "seconds": 0.5})
        self.assertEqual(sql("SELECT count(*) FROM model_version"), "1")
        wait("usage", lambda: sql("SELECT sum(gpu_ns), sum(samples) FROM usage WHERE class ="
                                  " 'inference'") == "9000000|9")
        self.assertEqual(sql("SELECT count(*) FROM usage WHERE class = 'training'"), "0")

    def test_batch_inference_goes_on_from_its_last_part_with_its_digest(self):
        self.start()
        e = self.ready_executor()
        job = self.batch(e, max_attempts=3)
        self.part(e, job, 8)
        e.job(job, JOB_FAILED, step=9, rc=-12, msg="device lost")
        m = e.expect("BATCH_START", job=job, attempt=2)
        self.assertEqual((m.resume_step, m.resume_digest), (8, "d" * 64))
        # That one was damaged, so it began again: what it had then counts.
        self.part(e, job, 4, "f" * 64, attempt=2)
        e.close()
        e = self.exec(incarnation=2, models=[1])
        m = e.expect("BATCH_START", job=job, attempt=2)
        self.assertEqual((m.resume_step, m.resume_digest), (4, "f" * 64))
        self.cancel(job)
        e.expect("JOB_STOP", job=job, how=0)
        e.job(job, CANCELLED, attempt=2, step=4)
        self.state(job, "CANCELLED")

    def test_batch_inference_without_a_file_has_not_succeeded(self):
        self.start()
        e = self.ready_executor()
        job = self.batch(e, max_attempts=1)
        e.job(job, DONE, step=10, result=json.dumps({"samples": 10}))
        self.state(job, "FAILED")
        self.assertIn("names no file", sql("SELECT error FROM job"))

    def test_training_that_does_not_publish_makes_no_version(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e, spec='{"batch": 4, "publish": false}')
        r = {"accuracy": None, "final_loss": 0.01, "digest": "e" * 64, "bytes": 9}
        e.job(job, COMPLETING, step=100)
        e.job(job, DONE, step=100, result=json.dumps(r))
        self.state(job, "SUCCEEDED")
        self.assertEqual(json.loads(sql("SELECT result FROM job")), r)
        self.assertEqual(sql("SELECT count(*) FROM model_version"), "1")
        second = self.running(e, spec='{"publish": true}', max_attempts=1)
        e.job(second, COMPLETING, step=100)
        e.job(second, DONE, step=100, result=json.dumps(r))
        self.state(second, "FAILED")  # it should have named a package

    # ------------------------------------------------------------ what clients wish

    def wish(self, job, text):
        """What the API writes: a column and an event without a change of state."""
        sql("UPDATE job SET wish = '%s', row_version = row_version + 1 WHERE id = %d; INSERT INTO"
            " job_event (job_id, from_state, to_state, reason) SELECT id, state, state, 'Asked' FROM"
            " job WHERE id = %d" % (text, job, job))

    def test_a_suspended_job_gives_its_slot_to_the_next_and_goes_on_when_resumed(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        second = self.submit()
        self.wish(job, "SUSPEND")
        self.assertEqual(e.expect("JOB_STOP", job=job).how, 1)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=9, path="%d/ckpt-9" % job, digest="d",
               bytes=1)
        e.job(job, SUSPENDED, step=9)
        self.state(job, "SUSPENDED")
        e.expect("JOB_START", job=second)
        self.assertEqual(sql("SELECT reason, wish, executor FROM job WHERE id = %d" % job),
                         "Suspended||")
        e.job(second, JOB_FAILED, rc=-1, msg="bad")
        self.state(second, "FAILED")
        e.inbox.clear()
        time.sleep(0.5)
        self.assertFalse(e.find("JOB_START"))  # not before it is resumed
        sql("UPDATE job SET state = 'QUEUED' WHERE id = %d" % job)
        m = e.expect("JOB_START", job=job, attempt=1)
        self.assertEqual(m.resume_step, 9)

    def test_a_requeued_job_starts_after_its_equals(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        second = self.submit()
        self.wish(job, "REQUEUE")
        e.expect("JOB_STOP", job=job)
        e.job(job, SUSPENDED, step=3)
        e.expect("JOB_START", job=second)
        self.state(job, "QUEUED")
        self.assertIn("Requeued", sql("SELECT string_agg(reason, ' ') FROM job_event WHERE job_id ="
                                      " %d" % job))

    def test_a_wish_is_told_again_to_an_executor_that_was_away(self):
        self.start("s1", LONG_GRACE)
        e = self.ready_executor()
        job = self.running(e)
        self.wish(job, "SUSPEND")
        e.expect("JOB_STOP", job=job)
        e.close()
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        self.assertEqual(e.expect("JOB_STOP", job=job).how, 1)
        e.job(job, SUSPENDED)
        self.state(job, "SUSPENDED")

    def test_a_job_whose_executor_is_lost_while_it_is_suspended_stays_suspended(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        self.wish(job, "SUSPEND")
        e.expect("JOB_STOP", job=job)
        e.close()
        self.state(job, "SUSPENDED")

    def test_a_new_leader_carries_out_what_the_old_one_was_asked(self):
        leader = self.start("s1")
        e = self.ready_executor()
        job = self.running(e)
        leader.kill()
        self.wish(job, "SUSPEND")
        self.start("s2", LONG_GRACE)
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        self.assertEqual(e.expect("WELCOME").epoch, 2)
        self.assertEqual(e.expect("JOB_STOP", job=job).epoch, 2)
        e.job(job, SUSPENDED)
        self.state(job, "SUSPENDED")

    def test_a_leader_that_lost_the_lease_does_not_carry_out_a_wish(self):
        self.start("s1", "--lease-ttl-ms=60000")
        e = self.ready_executor()
        job = self.running(e)
        sql("UPDATE lease SET holder = 'other/1', epoch = epoch + 1")
        self.wish(job, "SUSPEND")
        e.job(job, SUSPENDED, step=3)
        wait("the loss", lambda: e.closed)
        self.assertEqual(sql("SELECT state, wish FROM job"), "RUNNING|SUSPEND")
        sql("UPDATE lease SET expires_at = now() - interval '1 s'")

    def test_a_checkpoint_on_demand_is_asked_once_and_answered_in_the_row(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        sql("UPDATE job SET save_asked = 1")
        m = e.expect("JOB_SAVE", job=job, asked=1)
        self.assertEqual((m.attempt, m.epoch), (1, 1))
        time.sleep(0.4)
        self.assertEqual(len(e.all("JOB_SAVE")), 1)
        e.send("JOB_SAVED", job=job, attempt=1, asked=1, step=12, rc=0, msg="")
        wait("the answer", lambda: sql("SELECT save_done FROM job") == "1")
        sql("UPDATE job SET save_asked = 2")
        e.expect("JOB_SAVE", job=job, asked=2)
        e.send("JOB_SAVED", job=job, attempt=1, asked=2, step=13, rc=-5, msg="disk full")
        wait("the answer", lambda: sql("SELECT save_done FROM job") == "2")
        self.assertEqual(sql("SELECT string_agg(reason || (detail ->> 'step'), ' ' ORDER BY id) FROM"
                             " job_event WHERE reason LIKE 'Check%'"),
                         "CheckpointWritten12 CheckpointFailed13")

    def test_a_job_that_is_not_preemptible_keeps_its_place_and_needs_a_guarantee(self):
        self.start()
        e = self.ready_executor()
        job = self.submit()
        e.expect("JOB_START", job=job)
        e.job(job, RUNNING, step=1)
        fixed = self.submit()
        sql("UPDATE job SET preemptible = false, priority = 5 WHERE id = %d" % fixed)
        wait("the reason", lambda: sql("SELECT reason FROM job WHERE id = %d" % fixed) ==
             "QuotaGuaranteed")
        sql("UPDATE quota SET guaranteed_gpus = 1 WHERE tenant_id = 1")
        e.expect("JOB_STOP", job=job)
        e.job(job, SUSPENDED)
        e.expect("JOB_START", job=fixed)
        e.job(fixed, RUNNING, step=1)
        self.submit(priority=9)
        time.sleep(2 * MIN_RUN_S)
        self.assertFalse(e.find("JOB_STOP", job=fixed))

    def test_a_jobs_own_minimum_run_counts_up_to_the_limit(self):
        self.start("s1", "--max-min-run-ms=4000")
        e = self.ready_executor()
        job = self.submit()
        sql("UPDATE job SET min_runtime_ms = 86400000")
        e.expect("JOB_START", job=job)
        began = time.monotonic()
        e.job(job, RUNNING, step=1)
        high = self.submit(priority=9)
        wait("the reason", lambda: sql("SELECT reason FROM job WHERE id = %d" % high) ==
             "MinRuntimeProtected")
        e.expect("JOB_STOP", job=job)
        self.assertGreater(time.monotonic() - began, 2)  # not after the 0.5 s of --min-run-ms

    def test_a_job_that_cannot_end_in_time_expires_whoever_keeps_it_waiting(self):
        self.start()
        e = self.ready_executor()
        runs = self.running(e)
        sql("UPDATE job SET deadline = now() + interval '1 s'")
        waits, held = self.submit(), self.submit()
        tight = int(sql("INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec,"
                        " deadline, step, steps, busy_ns) VALUES (1, 1, 'training', 1, 1, '{}', now()"
                        " + interval '1 h', 10, 100000, 10000000000) RETURNING id"))
        sql("UPDATE job SET deadline = now() + interval '1 s' WHERE id = %d; UPDATE job SET state ="
            " 'HELD', deadline = now() + interval '1 s' WHERE id = %d" % (waits, held))
        for job in (waits, held, tight):
            self.state(job, "EXPIRED")
        self.assertEqual(sql("SELECT reason FROM job WHERE id = %d" % tight), "DeadlineUnreachable")
        self.assertEqual(sql("SELECT reason, error_code FROM job WHERE id = %d" % held),
                         "DeadlinePassed|TIMEOUT")
        self.assertIn("QUEUED: Resources", sql("SELECT error FROM job WHERE id = %d" % waits))
        self.assertEqual(sql("SELECT state FROM job WHERE id = %d" % runs), "RUNNING")

    def explain(self, a, job):
        a.next_ask = getattr(a, "next_ask", 0) + 1
        a.send("JOB_EXPLAIN", rid=a.next_ask, job=job)
        m = a.expect("JOB_EXPLAINED", rid=a.next_ask)
        return m.rc or json.loads(m.text)

    def test_an_explanation_has_place_holders_and_an_estimate_from_measured_rates(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        job = self.submit()
        e.expect("JOB_START", job=job)
        e.job(job, RUNNING, step=0)
        self.state(job, "RUNNING")
        first, second, blocked = self.submit(), self.submit(tenant=2), self.submit()
        sql("INSERT INTO queue (name, state) VALUES ('night', 'HELD'); UPDATE job SET queue_id = 2"
            " WHERE id = %d" % blocked)
        wait("the reasons", lambda: sql("SELECT string_agg(reason, ' ' ORDER BY id) FROM job WHERE"
                                        " state = 'QUEUED' AND reason <> ''").count(" ") == 2)
        x = self.explain(a, first)
        self.assertEqual((x["position"], x["waiting"]), (1, 2))
        self.assertNotIn("estimated_wait_ms", x)
        self.assertIn("no measured rate", x["basis"])
        time.sleep(0.5)
        e.job(job, RUNNING, step=20, steps=100, busy_ns=500000000)
        x = wait("an estimate", lambda: "estimated_wait_ms" in self.explain(a, second) and
                 self.explain(a, second))
        self.assertEqual((x["position"], x["reason"]), (1, "Resources"))
        self.assertGreater(x["estimated_wait_ms"], 1500)  # 80 steps at 20 in a little over 0.5 s
        self.assertLess(x["estimated_wait_ms"], 600000)
        self.assertEqual(x["waits_for"][0]["steps_left"], 80)
        self.assertNotIn("job", x["waits_for"][0])  # another tenant's
        y = self.explain(a, first)
        self.assertEqual(y["position"], 2)  # its tenant has used something by now
        self.assertEqual(y["waits_for"][0]["job"], job)
        self.assertGreater(y["estimated_wait_ms"], x["estimated_wait_ms"])
        x = self.explain(a, blocked)
        self.assertEqual(x["reason"], "QueueHeld")
        self.assertNotIn("position", x)
        x = self.explain(a, job)
        self.assertIn("priority 0", x["text"])
        self.assertEqual(x["factors"]["tenant_running_jobs"], 1)
        self.assertEqual(self.explain(a, 999), -4)

    # ------------------------------------------------------------ who leads

    def test_a_standby_does_not_listen_and_takes_over_when_the_leader_is_killed(self):
        leader = self.start("s1", LONG_LEASE)
        e = self.ready_executor()
        job = self.running(e)
        self.start("s2", LONG_LEASE, LONG_GRACE)
        time.sleep(0.5)
        self.assertEqual(sql("SELECT split_part(holder, '/', 1), epoch FROM lease"), "s1|1")
        leader.kill()
        wait("the loss", lambda: e.closed)
        wait("the lease", lambda: sql("SELECT split_part(holder, '/', 1), epoch FROM lease") ==
             "s2|2")
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        self.assertEqual(e.expect("WELCOME").epoch, 2)
        e.job(job, COMPLETING, step=100)
        e.job(job, DONE, step=100, result=json.dumps(RESULT))
        self.state(job, "SUCCEEDED")
        self.assertFalse(e.find("JOB_START"))
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING", "COMPLETING", "SUCCEEDED"])

    def test_a_leader_that_ends_gives_the_lease_back_at_once(self):
        leader = self.start("s1", "--lease-ttl-ms=60000")
        self.ready_executor()
        leader.terminate()
        self.assertEqual(leader.wait(WAIT_S), 0)
        self.start("s2")
        wait("the lease", lambda: sql("SELECT split_part(holder, '/', 1) FROM lease") == "s2")

    def test_a_leader_that_lost_the_lease_drops_its_sessions_and_writes_nothing(self):
        self.start("s1", "--lease-ttl-ms=60000")
        e = self.ready_executor()
        job = self.running(e)
        sql("UPDATE lease SET holder = 'other/1', epoch = epoch + 1")
        e.job(job, COMPLETING, step=3)
        wait("the loss", lambda: e.closed)
        self.assertEqual(sql("SELECT state FROM job"), "RUNNING")
        with self.assertRaises(OSError):
            wire.connect("unix:" + self.addr, 0.3)
        sql("UPDATE lease SET expires_at = now() - interval '1 s'")

    # ------------------------------------------------------------ the database is away

    def stop_database(self):
        # "fast": the throw-away cluster does not wait for its log, so a crash would lose commits.
        subprocess.run(self.pg("stop", "-m", "fast"), check=True, cwd="/",
                       stdout=subprocess.DEVNULL)

    def start_database(self):
        subprocess.run(self.pg("start", "-l", "/dev/null"), check=True, cwd="/",
                       stdout=subprocess.DEVNULL)

    def pg(self, *a):
        data, own = os.environ["SHUNT_PG_DATA"], []
        if os.getuid() == 0:
            st = os.stat(data)
            own = ["setpriv", "--reuid=%d" % st.st_uid, "--regid=%d" % st.st_gid, "--clear-groups",
                   "--"]
        opts = open(data + "/postmaster.opts").read().split(" ", 1)[1].strip()
        more = ["-o", opts.replace('"', "'").split("'-D' ")[-1].split("' ", 1)[-1]] \
            if a[0] == "start" else []
        return own + [os.environ["SHUNT_PG_BIN"] + "/pg_ctl", "-D", data, "-w", "-s"] + more + list(a)

    def test_a_killed_leader_takes_the_usage_of_a_moment_along_and_no_more(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        done = []
        for rid in range(1, 61):
            a.open(rid)
            a.ready(rid)
            e.done(wait("a run", lambda: len(e.all("RUN")) == rid and e.all("RUN")[-1]))
            done.append(time.monotonic())
            time.sleep(0.1)
        killed = time.monotonic()
        self.procs[0].kill()
        self.procs[0].wait(10)
        # A second, the time of a write, and what a busy machine adds.
        safe = sum(t < killed - 4 for t in done)
        self.assertGreater(safe, 10)
        counted = int(sql("SELECT coalesce(sum(requests), 0) FROM usage"))
        self.assertTrue(safe <= counted <= 60, (safe, counted))

    @unittest.skipUnless(os.environ.get("SHUNT_PG_DATA"), "needs the PostgreSQL of tests/pg.sh")
    def test_requests_go_on_without_the_database_and_nothing_is_lost(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        job = self.running(e)
        self.stop_database()
        try:
            for rid in range(1, 30):
                a.open(rid)
                a.ready(rid)
                run = wait("a run", lambda: len(e.all("RUN")) == rid and e.all("RUN")[-1])
                e.done(run)
                e.job(job, PREEMPTED, step=rid)
                e.job(job, RUNNING, step=rid)
                time.sleep(0.1)
            e.send("JOB_CHECKPOINT", job=job, attempt=1, step=29, path="%d/c" % job, digest="d",
                   bytes=1)
            e.job(job, COMPLETING, step=100)
            e.job(job, DONE, step=100, result=json.dumps(RESULT))
        finally:
            self.start_database()
        self.state(job, "SUCCEEDED")
        chain = self.chain(job)
        self.assertEqual((chain[0], chain[-1]), ("STARTING", "SUCCEEDED"))
        self.assertEqual(sql("SELECT step FROM checkpoint"), "29")
        wait("usage", lambda: sql("SELECT sum(requests) FROM usage") == "29")
        self.assertFalse(e.closed or a.closed)

    @unittest.skipUnless(os.environ.get("SHUNT_PG_DATA"), "needs the PostgreSQL of tests/pg.sh")
    def test_a_leader_that_alone_does_not_reach_the_database_stops(self):
        self.start("s1", LONG_LEASE, LONG_GRACE)
        e, a = self.ready_executor(), self.api()
        job = self.running(e)
        a.send("HINT", what="reached")  # all is well
        time.sleep(0.5)
        self.assertFalse(e.closed)
        self.stop_database()
        try:
            def lost():
                if not a.closed:
                    a.send("HINT", what="reached")  # as if the API still did
                return e.closed and a.closed
            wait("the loss", lost)
            with self.assertRaises(OSError):
                wire.connect("unix:" + self.addr, 0.3)
        finally:
            self.start_database()
        wait("the lease", lambda: sql("SELECT epoch FROM lease") == "2")
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        self.assertEqual(e.expect("WELCOME").epoch, 2)


Api.next = 100

if __name__ == "__main__":
    if not URL:  # with a throw-away cluster
        pg = os.path.join(wire.ROOT, "tests", "pg.sh")
        os.execv(pg, [pg, "run", sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
    unittest.main(warnings="ignore")
