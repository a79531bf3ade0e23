#!/usr/bin/env python3
"""A system of an older release goes on with the programs of this one, on the same state.

As docs/operations.md says: stop, start the new programs, which migrate the database. Then once more without
the stop, as if the machine had lost power in between. Programs of both releases run, none is a stand-in.

Without it: a migration could lose or refuse rows that only a used database has, a file of the old release
could be unreadable for the new one, and a job that was acknowledged could be gone or begin anew.

SHUNT_OLD_BIN: the folder of the old programs (run.sh builds them).
Usage: test_upgrade.py [-v]
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from system import BIN, DIGITS, FINAL, Story, System, until, zoo  # noqa: E402

OLD = os.environ.get("SHUNT_OLD_BIN", "")
LONG = {"epochs": None, "steps": 6000, "checkpoint_interval_ms": 200, "publish": False}
SHORT = {"epochs": 1, "publish": False}
TINY = {"steps": 3, "publish": False}
BASE = {"loss": "cross-entropy", "labels": "label", "batch": 32, "optimizer": {"name": "sgd", "lr": 0.05}}
PIXELS = [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [i / 64 for i in range(64)]}]
ANSWERS_DIFFER = 1e-4  # kernels may have changed


class Upgrade(Story):
    def setUp(self):
        self.s = self.old = System("--workers=2", programs=OLD)
        self.addCleanup(lambda: self.s.stop())
        s, self.key = self.s, self.s.tenant("vision")
        self.reader = s.key("vision", "read")
        self.revoked = s.call("POST", "/api/v1/tenants/vision/keys", {"name": "gone", "role": "submit"}, s.admin).json
        gone = s.call("DELETE", "/api/v1/tenants/vision/keys/%s" % self.revoked["id"], key=s.admin)
        self.assertEqual(gone.status, 204, gone)
        s.push(self.key, "digits", zoo("digits-cnn", "training"), max_batch=8)
        s.push(self.key, "served", zoo("digits-cnn"), max_batch=8)
        with open(os.path.join(DIGITS, "train.safetensors"), "rb") as f:
            s.push_data(self.key, "data", f.read())
        slo = s.call("PUT", "/api/v1/models/served/slo", {"latency_ms": 5000}, self.key)
        self.assertEqual(slo.status, 200, slo)
        self.answer = s.infer(self.key, "served", PIXELS).json["outputs"]

    # ------------------------------------------------------------ jobs of every kind of state
    def train(self, spec, **fields):
        r = self.s.submit(self.key, model="digits", version=1, dataset="data", spec=spec, **fields)
        self.assertEqual(r.status, 201, r)
        return r.json["id"]

    def fill(self):
        s = self.s
        self.done = self.train({"epochs": 2})
        s.wait_job(self.key, self.done, ("SUCCEEDED",))
        self.result = s.call("GET", "/api/v1/jobs/%d/result/artifact" % self.done, key=self.key).raw
        self.suspended = self.train(LONG)
        s.wait_step(self.key, self.suspended, 50)
        r = s.call("POST", "/api/v1/jobs/%d/suspend" % self.suspended, {}, self.key)
        self.assertIn(r.status, (200, 202), r)
        s.wait_job(self.key, self.suspended, ("SUSPENDED",))
        self.running = self.train(LONG)
        self.queued = [self.train(SHORT, name="queued-%d" % i, priority=i) for i in range(3)]
        self.held = self.train(SHORT, hold=True)
        r = s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "served", "dataset": "data",
                                            "spec": {}}, self.key)
        self.assertEqual(r.status, 201, r)
        self.batch = r.json["id"]
        r = s.call("POST", "/api/v1/job-arrays", {"max_parallel": 2, "indices": "0-3", "job": {
            "kind": "training", "model": "digits", "version": 1, "dataset": "data", "spec": {**BASE, **SHORT}}},
                   self.key)
        self.assertEqual(r.status, 201, r)
        self.array = r.json["id"]
        until("it has a checkpoint",
              lambda: s.job(self.key, self.running, "/checkpoints").json["items"])
        self.step = s.wait_step(self.key, self.running, 200)["step"]

    def submit_until_it_stops(self):
        """Acknowledged: {idempotency key: id}, of a client that goes on while the system stops."""
        self.acknowledged, self.stop = {}, threading.Event()

        def client():
            n = 0
            while not self.stop.is_set():
                n += 1
                try:
                    r = self.s.call("POST", "/api/v1/jobs", {
                        "kind": "training", "model": "digits", "version": 1, "dataset": "data",
                        "spec": {**BASE, **TINY}}, self.key, {"Idempotency-Key": "late-%d" % n}, timeout=5)
                except (OSError, http.client.HTTPException):
                    return
                if r.status == 201:
                    self.acknowledged["late-%d" % n] = r.json["id"]
                time.sleep(0.05)
        t = threading.Thread(target=client)
        t.start()
        self.addCleanup(t.join)
        until("it submits", lambda: len(self.acknowledged) > 3)
        return t

    # ------------------------------------------------------------ the new programs
    def upgrade(self):
        s = self.s
        s.programs, s.described = BIN, None
        up = json.loads(s.cli("up", "--port=%d" % s.port, "--pool-bytes=256M", "--threads=1", "--workers=2", "-o",
                              "json"))
        s.port = int(up["server"].rsplit(":", 1)[1])
        s.metrics_ports = up["metrics_ports"]
        until("the model is served again", lambda: s.call("GET", "/v2/models/served/ready", key=self.key).status == 200)

    def check_keys(self):
        s = self.s
        for key, role in ((self.key, "tenant-admin"), (self.reader, "read"), (s.admin, "admin")):
            who = s.call("GET", "/api/v1/whoami", key=key)
            self.assertEqual((who.status, who.json.get("role")), (200, role), who)
        self.assertEqual(s.call("GET", "/api/v1/whoami", key=self.revoked["key"]).status, 401)
        more = s.key("vision", "submit")
        self.assertEqual(s.call("GET", "/api/v1/whoami", key=more).status, 200)

    def check_models(self):
        s = self.s
        outputs = s.infer(self.key, "served", PIXELS).json["outputs"]
        self.assertEqual([o["shape"] for o in outputs], [o["shape"] for o in self.answer])
        for new, old in zip(outputs[0]["data"], self.answer[0]["data"]):
            self.assertAlmostEqual(new, old, delta=ANSWERS_DIFFER * max(1, abs(old)))
        self.assertEqual(s.call("GET", "/api/v1/models/served/slo", key=self.key).json["latency_ms"], 5000)
        s.push(self.key, "later", zoo("digits-cnn"), max_batch=8)
        self.assertEqual(s.infer(self.key, "later", PIXELS).status, 200)

    def check_jobs(self):
        s = self.s
        self.assertEqual(s.job(self.key, self.held).json["state"], "HELD")
        self.assertEqual(s.job(self.key, self.suspended).json["state"], "SUSPENDED")
        for job, action in ((self.held, "release"), (self.suspended, "resume")):
            r = s.call("POST", "/api/v1/jobs/%d/%s" % (job, action), {}, self.key)
            self.assertEqual(r.status, 200, r)
        again = {k: s.call("POST", "/api/v1/jobs", {
            "kind": "training", "model": "digits", "version": 1, "dataset": "data", "spec": {**BASE, **TINY}},
            self.key, {"Idempotency-Key": k}) for k in list(self.acknowledged)[-3:]}
        for k, r in again.items():
            self.assertEqual((r.status, r.json.get("id")), (201, self.acknowledged[k]), r)
        mine = [self.running, self.suspended, self.held, self.batch, *self.queued, *self.acknowledged.values()]
        for job in mine:
            self.assertEqual(s.wait_job(self.key, job, FINAL, 600)["state"], "SUCCEEDED", s.job(self.key, job))

        def array_ended():
            a = s.call("GET", "/api/v1/job-arrays/%d" % self.array, key=self.key)
            return a.status == 200 and a.json["states"].get("SUCCEEDED", 0) == 4
        until("the array has ended", array_ended, 300)
        ran = s.job(self.key, self.running).json
        self.assertEqual(ran["step"], LONG["steps"])
        self.assertEqual(ran["attempt"], 1, ran)  # the end of an executor uses up none
        begun = [e for e in s.job(self.key, self.running, "/events?limit=500").json["items"]
                 if e["to"] == "RUNNING"]
        self.assertGreaterEqual(len(begun), 2, "it did not run across the upgrade")
        got = s.call("GET", "/api/v1/jobs/%d/result/artifact" % self.done, key=self.key)
        self.assertEqual(got.raw, self.result)

    # ------------------------------------------------------------ stories
    def test_stopped_as_the_page_says(self):
        self.fill()
        client = self.submit_until_it_stops()
        self.s.cli("down")
        self.stop.set()
        client.join()
        before = self.s.state
        saved = os.path.join(self.s.dir, "before.tar")
        self.s.cli("backup", saved)
        self.upgrade()
        self.assertEqual(self.s.state, before)
        self.check_keys()
        self.check_models()
        job = self.s.job(self.key, self.running).json
        self.assertGreaterEqual(job["step"], self.step)
        self.check_jobs()
        self.goes_no_way_back(saved)

    def goes_no_way_back(self, saved):
        """The old programs refuse the new schema; with the backup they go on from where it was made."""
        self.s.cli("down")
        env = {**self.s.env}
        r = subprocess.run([os.path.join(OLD, "shunt"), "up", "--port=0", "--quiet", "--state-dir", self.s.state],
                           env=env, timeout=180, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False)
        self.assertNotEqual(r.returncode, 0, r.stdout)
        with open(os.path.join(self.s.state, "log", "migrate.log")) as f:
            said = f.read() + r.stdout
        self.assertRegex(said, r"use the release that contains it")
        back = os.path.join(self.s.dir, "back")
        for args in (("restore", saved), ("up", "--port=0", "--pool-bytes=256M", "--threads=1", "--workers=2")):
            subprocess.run([os.path.join(OLD, "shunt"), *args, "--quiet", "--state-dir", back], env=env, timeout=180,
                           check=True, stdout=subprocess.DEVNULL)
        try:
            r = subprocess.run([os.path.join(OLD, "shunt"), "get", "jobs", str(self.running), "-o", "json",
                                "--state-dir", back, "--tenant", "vision"], env=env, timeout=60, check=True,
                               stdout=subprocess.PIPE)
            self.assertIn(b'"step"', r.stdout)
        finally:
            subprocess.run([os.path.join(OLD, "shunt"), "down", "--purge", "--quiet", "--state-dir", back],
                           env=env, timeout=150, check=False)

    def test_after_a_loss_of_power(self):
        self.fill()
        client = self.submit_until_it_stops()
        pids = [self.s.pid(n) for n in ("supervisor", "api", "scheduler", "executor-cpu0", "postgres")]
        workers = self.s.workers()
        for pid in pids[:1] + pids[1:] + workers:
            os.kill(pid, signal.SIGKILL)
        self.stop.set()
        client.join()
        self.upgrade()
        self.check_keys()
        self.check_models()
        self.check_jobs()


if __name__ == "__main__":
    if not OLD:
        print("skip: SHUNT_OLD_BIN names no programs of an older release: make upgrade-test")
        sys.exit(0)
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
