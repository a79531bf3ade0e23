"""A shunt-scheduler with a real PostgreSQL, whose executors and APIs a story plays: what test_scheduler*.py
and those beside them share. No story.

Programs from build/bin, or SHUNT_BIN; main() starts a throw-away PostgreSQL with tests/pg.sh when
DATABASE_URL is not set.
"""
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import wire
from system import BIN, WAIT_S, until  # noqa: F401

URL = os.environ.get("DATABASE_URL", "")
LOADING, READY, FAILED, GONE = range(4)
UP_NONE, UP_ABSENT, UP_LOADING, UP_READY, UP_FAILED = range(5)  # enum msg_up
STARTING, RUNNING, PREEMPTED, COMPLETING, DONE, JOB_FAILED, CANCELLED, SUSPENDED = range(8)
UNSUPPORTED, UNAVAILABLE, NAN, QUOTA, SLO, TIMEOUT, CONFLICT = -7, -17, -23, -8, -19, -20, -5
RESULT = {"accuracy": 0.98, "eval_loss": 0.1, "final_loss": 0.01, "steps": 100,
          "package_digest": "c" * 64, "package": "packages/" + "c" * 64, "onnx_bytes": 321,
          "meta": {"ok": True, "inputs": [{"name": "x"}], "outputs": [{"name": "y"}], "opset": 18}}


def sql(text):
    p = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", URL, "-c", text],
                       capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr)
    return p.stdout.strip()


GRACE_S, MIN_RUN_S, LEASE_S = 0.6, 0.5, 1
# Where a busy machine must not be what ends them.
LONG_GRACE, LONG_LEASE = "--grace-ms=60000", "--lease-ttl-ms=3000"


def wait(what, fn):
    """until(), in shorter steps: what is played here takes milliseconds."""
    return until(what, fn, every_s=0.01)


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

    def model(self, version, state=READY, rc=0, msg="", ns=5e6, need_bytes=0, step="", done=0, total=0,
              left_ns=-1, short_bytes=0, short_of_tenant=0):
        profile = b"".join(struct.pack("<IIdd", b, 0, ns, ns) for b in (1, 2, 4, 8))
        self.send("MODEL_STATE", version_id=version, state=state, rc=rc, msg=msg,
                  image_bytes=1 << 20, resident_bytes=1 << 20, link_bytes=0, profile=profile, need_bytes=need_bytes,
                  step=step, done=done, total=total, left_ns=left_ns, short_bytes=short_bytes,
                  short_of_tenant=short_of_tenant)

    def load(self, version):
        self.expect("MODEL_LOAD", version_id=version)
        self.model(version)

    def job(self, job, state, attempt=1, step=0, rc=0, msg="", result="", **more):
        f = dict(steps=100, loss=0.5, samples_per_s=10.0, redone=0, preemptions=0, busy_ns=0, need_bytes=0)
        f.update(more)
        self.send("JOB_STATE", job=job, attempt=attempt, state=state, step=step, rc=rc, msg=msg,
                  result=result, **f)

    def done(self, run, rc=0, ns=4000000):
        self.send("RUN_DONE", run_id=run.run_id, rc=rc, msg="", total_ns=5000000, copy_ns=0,
                  compute_ns=4000000, resident_bytes=1 << 20, busy_ns=ns, copied_bytes=0, cold=0, unpack_ns=0)


    def used(self, number, *rows, source="a1"):
        """Each (tenant, version, ns, requests, samples), or (job, ns, step, samples of a step)."""
        blob = b""
        for r in rows:
            tenant, kind, id_, ns, requests, samples, step = \
                (r[0], 0, *r[1:], 0) if len(r) == 5 else ("", 1, r[0], r[1], 0, r[3], r[2])
            blob += struct.pack("<64sIIqqqqqq", tenant.encode(), kind, 0, id_, 0, ns, requests, samples, step)
        self.send("USAGE", source=source, number=number, rows=blob)

    def stored(self, number, source="a1"):
        self.expect("USAGE_STORED", source=source, number=number)


class Api(Peer):
    next = 100  # request that a test asks for

    def __init__(self, addr, api_id=7):
        super().__init__(addr)
        self.send("API_HELLO", api_id=api_id, name="api")
        self.expect("WELCOME")

    def open(self, rid, version=1, tenant="research", budget_ms=0, age_ms=0):
        self.send("INFER_OPEN", rid=rid, tenant=tenant, model="digits", version_id=version,
                  body_bytes=64, budget_ns=int(budget_ms * 1e6), priority=0, age_ns=int(age_ms * 1e6),
                  has_sizes=0)

    def ready(self, rid, batch=1):
        self.send("INFER_READY", rid=rid, batch=batch, in_spans=struct.pack("<QQ", 0, 64),
                  out_spans=struct.pack("<QQ", 64, 40), budget_ns=0, priority=0, sizes=b"")


class Scheduler(subprocess.Popen):
    def kill(self):
        """It is dead then: whoever connects does not reach its socket any more."""
        super().kill()
        self.wait(WAIT_S)


class Case(unittest.TestCase):
    """An empty database with one model and one dataset, and schedulers on it."""

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
        p = Scheduler(
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


def main():
    """Runs the tests of the program's file."""
    if not URL:
        pg = os.path.join(wire.ROOT, "tests", "pg.sh")
        os.execv(pg, [pg, "run", sys.executable, os.path.abspath(sys.argv[0])] + sys.argv[1:])
    unittest.main(warnings="ignore")
