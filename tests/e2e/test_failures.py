#!/usr/bin/env python3
"""What fails under a whole system: database, scheduler, executor, API, workers, disk.

Without it: a scheduler that is killed could start running jobs again from nothing, a database that is
restarted could cost requests or the end of a job, a worker that dies could cost an answer, and a full
disk could take the last good checkpoint along.

Usage: test_failures.py [-v] [name ...]
"""
import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import DIGITS, FINAL, Story, System, read_st, until, zoo  # noqa: E402

CKPT = "ckpt-%d-cpu0.safetensors"
DISK = 'shunt_checkpoints_total{executor="cpu0",kind="disk",outcome="%s"}'


class Failures(Story):
    @classmethod
    def setUpClass(cls):
        # Short times: a database that is away for longer than a lease lasts is part of the stories.
        cls.s = s = System(KEEP_RENEW_S="0", LEASE_TTL_MS="1000", GRACE_MS="10000")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("research")
        s.push(cls.key, "two", onnx.two_outputs(), max_batch=4)
        s.push(cls.key, "digits", zoo("digits-cnn", "training"), max_batch=4)
        s.push(cls.key, "slow", zoo("resnet18"), max_batch=1)
        for name in ("train", "test"):
            with open(os.path.join(DIGITS, name + ".safetensors"), "rb") as f:
                s.push_data(cls.key, name, f.read())
        cls.good = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]},
                    {"name": "k", "datatype": "INT64", "shape": [1, 2], "data": [5, 6]}]
        head = json.dumps({"inputs": [{
            "name": s.call("GET", "/v2/models/slow", key=cls.key).json["inputs"][0]["name"],
            "datatype": "FP32", "shape": [1, 3, 224, 224],
            "parameters": {"binary_data_size": 4 * 3 * 224 * 224}}]}).encode()
        image = struct.pack("<%df" % (3 * 224 * 224), *(((i * 31) % 255) / 255 for i in range(3 * 224 * 224)))
        cls.image = head + image, {"Inference-Header-Content-Length": str(len(head))}
        r = cls.classify()
        assert r.status == 200, r
        cls.classes = r.json["outputs"][0]["data"]

    @classmethod
    def classify(cls):
        """A request that takes a while."""
        return cls.s.call("POST", "/v2/models/slow/infer", cls.image[0], cls.key, cls.image[1])

    def setUp(self):
        until("the system is whole", self.whole)

    def tearDown(self):
        until("the system is whole again", self.whole)

    def whole(self):
        with contextlib.suppress(OSError):
            return self.infer().status == 200 and len(self.s.workers()) == 3

    def infer(self):
        r = self.s.infer(self.key, "two", self.good)
        if r.status == 200:
            self.assertEqual(r.json["outputs"][0]["data"], [1.0, -1.25, 2.0])
        return r

    @staticmethod
    def served(got, n, more_than):
        try:
            until("requests are served", lambda: sum(r.status == 200 for r in got[n:]) > more_than)
        except AssertionError as e:
            raise AssertionError("%s: %d answers, the last: %s" % (e, len(got) - n, got[n:][-4:])) from None

    def train(self, steps, **more):
        spec = {"epochs": None, "steps": steps, "checkpoint_interval_ms": 200, **more.pop("spec", {})}
        r = self.s.submit(self.key, model="digits", version=1, dataset="train", spec=spec, **more)
        self.assertEqual(r.status, 201, r)
        return r.json["id"]

    def cancel(self, job):
        self.assertEqual(self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, None, self.key).status, 200)
        self.assertEqual(self.s.wait_job(self.key, job)["state"], "CANCELLED")

    def steps_done(self):
        return self.s.metrics("executor-cpu0").get(
            'shunt_train_steps_total{tenant="research",model="digits"}', 0)

    def states(self, job):
        return [e["to"] for e in self.read(job, "/events")["items"]]

    def read(self, job, what):
        """As soon as the database has an answer in time."""
        return until(what, lambda: (lambda r: r.status == 200 and r)(self.s.job(self.key, job, what))).json

    def succeeded(self, job, steps):
        """Ended well, with every event, a checkpoint and a version that serves."""
        j = self.s.wait_job(self.key, job)
        self.assertEqual((j["state"], j["step"]), ("SUCCEEDED", steps), j)
        states = self.states(job)
        self.assertEqual((states[0], states[-1]), ("QUEUED", "SUCCEEDED"), states)
        self.assertEqual(states.count("SUCCEEDED"), 1, states)
        # An executor that is lost meanwhile uses up no attempt.
        self.assertTrue(1 <= states.count("COMPLETING") <= states.count("STARTING"), states)
        losses = self.read(job, "/losses")["losses"]
        self.assertEqual((len(losses), losses.count(None)), (steps, 0))
        at = "/api/v1/models/digits/versions/%d" % j["result_version"]
        until("the trained version serves", lambda: self.s.call(
            "GET", at, key=self.key).json["state"] == "READY")
        return j

    def unavailable(self, r):
        self.assertEqual(r.status, 503, r)
        self.assertGreaterEqual(int(r.headers["retry-after"]), 1)
        self.assertTrue(r.error, r)
        return r

    # ------------------------------------------------------------ the database
    def test_the_database_is_away_while_a_job_trains_and_ends(self):
        steps = 1500
        before, job = self.steps_done(), self.train(steps, eval_dataset="test")
        self.s.wait_step(self.key, job, 10)
        self.assertEqual(self.infer().status, 200)
        pids, workers = self.s.pids()
        with self.s.held():
            self.s.kill("postgres", signal.SIGINT)
            r = self.unavailable(self.s.call("GET", "/api/v1/models", key=self.key))
            self.assertEqual(r.code, "DBDOWN")
            r = self.unavailable(self.s.submit(self.key, model="digits", dataset="train"))
            self.assertEqual(r.code, "DBDOWN")
            gone, n = time.monotonic(), 0
            # Longer than the lease lasts, and until the last step is done.
            while time.monotonic() - gone < 4 or self.steps_done() < before + steps:
                r = self.infer()
                self.assertEqual(r.status, 200, (n, r))
                n += 1
                time.sleep(0.02)
                self.assertLess(time.monotonic() - gone, 120, "training does not go on")
            self.assertEqual(self.s.call("GET", "/v2/models/two", key=self.key).status, 200)
            self.assertEqual(self.s.call("GET", "/v2/health/ready").status, 200)
            self.assertEqual(self.s.metrics("scheduler")["shunt_db_up"], 0)
        until("the control plane is back", lambda: self.s.call(
            "GET", "/api/v1/models", key=self.key).status == 200)
        j = self.succeeded(job, steps)
        self.assertGreater(j["result"]["accuracy"], 0.9)
        self.assertEqual(j["attempt"], 1)
        after = self.s.pids()
        self.assertEqual([after[0][n] for n in ("api", "scheduler", "executor-cpu0")],
                         [pids[n] for n in ("api", "scheduler", "executor-cpu0")])
        self.assertEqual(after[1], workers)

    def test_the_database_is_restarted_again_and_again(self):
        job = self.train(1200)
        for _ in range(4):
            self.s.wait_new("postgres", self.s.kill("postgres", signal.SIGQUIT))
            r = self.infer()
            if r.status != 200:
                # On a busy machine the API may be back at the database long before the leader, which
                # then has to take itself for cut off and stands down (scheduler/decide/lease_watch.h).
                self.unavailable(r)
                until("requests are served again", lambda: self.infer().status == 200)
        j = self.succeeded(job, 1200)
        self.assertEqual(j["attempt"], 1)

    # ------------------------------------------------------------ the scheduler
    def test_the_scheduler_is_killed_and_adopts_what_runs(self):
        job = self.train(2000)
        was = self.s.wait_step(self.key, job, 20)
        pids, workers = self.s.pids()
        with self.s.held():
            self.s.kill("scheduler")
            seen = until("the API has noticed", lambda: (lambda r: r.status != 200 and r)(self.infer()))
            self.unavailable(seen)
            self.assertEqual(self.s.call("GET", "/v2/health/ready").status, 503)
            done = self.steps_done()
            until("training goes on without a scheduler", lambda: self.steps_done() > done + 50)
            r = self.s.submit(self.key, model="digits", version=1, dataset="train", spec={
                "epochs": None, "steps": 5})
            self.assertEqual(r.status, 201, "durable work needs no scheduler: %r" % r)
            other = r.json["id"]
        self.s.wait_new("scheduler", pids["scheduler"])
        until("requests are served again", lambda: self.infer().status == 200)
        j = self.succeeded(job, 2000)
        self.assertEqual((j["attempt"], j["executor"]), (1, was["executor"]))
        states = self.states(job)
        self.assertEqual((states.count("QUEUED"), states.count("STARTING")), (1, 1), states)
        self.assertLessEqual(j["steps_redone"], j["preemptions"])
        self.assertEqual(self.s.wait_job(self.key, other)["state"], "SUCCEEDED")
        self.assertEqual((self.s.pid("executor-cpu0"), self.s.workers()),
                         (pids["executor-cpu0"], workers))

    def test_requests_on_their_way_when_the_scheduler_dies(self):
        """Each is answered: with the right result, or 503 and when to come back."""
        got, stop, lock = [], threading.Event(), threading.Lock()

        def client():
            while not stop.is_set():
                r = self.classify()
                with lock:
                    got.append(r)
        threads = [threading.Thread(target=client) for _ in range(4)]
        for t in threads:
            t.start()
        try:
            for _ in range(3):
                with lock:
                    n = len(got)
                self.served(got, n, 3)
                self.s.wait_new("scheduler", self.s.kill("scheduler"))
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.assertEqual([r for r in got if r.status not in (200, 503)], [])
        for r in got:
            if r.status == 200:
                self.assertEqual(r.json["outputs"][0]["data"], self.classes)
            else:
                self.unavailable(r)

    # ------------------------------------------------------------ the API
    def test_the_api_is_killed_in_mid_upload_and_mid_request(self):
        job = self.train(1500)
        self.s.wait_step(self.key, job, 5)
        self.s.call("POST", "/api/v1/models", {"name": "late"}, self.key)
        self.s.call("POST", "/api/v1/models/late/versions", {}, self.key)
        at = "/api/v1/models/late/versions/1/artifact"
        tmp = os.path.join(self.s.state, "blobs", "tmp")
        with contextlib.ExitStack() as open_ones:
            for path, method in ((at, "PUT"), ("/v2/models/slow/infer", "POST")):
                c = open_ones.enter_context(socket.create_connection(("127.0.0.1", self.s.port)))
                c.sendall(("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 500000"
                           "\r\n\r\n" % (method, path, self.key)).encode() + bytes(300000))
            until("the upload has begun", lambda: os.listdir(tmp))
            threads = [threading.Thread(target=self.quietly, args=(self.classify,)) for _ in range(3)]
            for t in threads:
                t.start()
            self.s.wait_new("api", self.s.kill("api"))
            for t in threads:
                t.join()
        until("requests are served again", self.whole)
        # What a dead API leaves may be another one's work: only what is old goes, at a start.
        for left in os.listdir(tmp):
            os.utime(os.path.join(tmp, left), (1e9, 1e9))
        self.s.wait_new("api", self.s.kill("api"))
        until("requests are served again", self.whole)
        self.assertEqual(os.listdir(tmp), [])
        r = self.s.call("PUT", at, onnx.linear(), self.key)
        self.assertEqual(r.status, 200, r)
        self.assertEqual(self.succeeded(job, 1500)["attempt"], 1)
        self.assertEqual(self.classify().json["outputs"][0]["data"], self.classes)

    @staticmethod
    def quietly(fn):
        with contextlib.suppress(OSError, http.client.HTTPException):
            fn()

    # ------------------------------------------------------------ workers and the executor
    def test_a_worker_is_killed_in_the_middle_of_a_request(self):
        """All workers are held, so that the request is in one of them for certain; each is killed once."""
        exits = self.worker_exits()
        for turn in range(3):
            until("the system is whole", self.whole)
            workers, got = self.s.workers(), []
            for w in workers:
                os.kill(w, signal.SIGSTOP)
            t = threading.Thread(target=lambda: got.append(self.classify()))
            t.start()
            until("a worker has the request", lambda: self.s.metrics("executor-cpu0")[
                'shunt_workers{executor="cpu0",state="active"}'] == 1)
            os.kill(workers[turn], signal.SIGKILL)
            for w in workers:
                if w != workers[turn]:
                    os.kill(w, signal.SIGCONT)
            t.join()
            self.assertEqual(got[0].status, 200, got[0])
            self.assertEqual(got[0].json["outputs"][0]["data"], self.classes)
            until("there is a new worker", lambda: len(self.s.workers()) == 3)
            self.assertNotIn(workers[turn], self.s.workers())
        self.assertGreaterEqual(self.worker_exits(), exits + 3)

    def worker_exits(self):
        return sum(v for k, v in self.s.metrics("executor-cpu0").items()
                   if k.startswith("shunt_worker_exits_total"))

    def test_workers_die_all_the_time(self):
        job, got, stop = self.train(1500), [], threading.Event()
        self.s.wait_step(self.key, job, 5)

        def client():
            while not stop.is_set():
                got.append(self.classify())
        t = threading.Thread(target=client)
        t.start()
        try:
            for turn in range(6):
                n = len(got)
                workers = until("all workers are there", lambda: (lambda w: len(w) == 3 and w)(
                    self.s.workers()))
                os.kill(workers[turn % 3], signal.SIGKILL)
                self.served(got, n, 1)
                # Four deaths in a row without progress would end the attempt, and should.
                done = self.steps_done()
                until("the job gets further", lambda: self.steps_done() > done or
                      self.read(job, "")["step"] == 1500)
        finally:
            stop.set()
            t.join()
        for r in got:
            if r.status == 200:
                self.assertEqual(r.json["outputs"][0]["data"], self.classes)
            else:
                self.unavailable(r)
        self.assertEqual(self.succeeded(job, 1500)["attempt"], 1, self.s.job(self.key, job, "/log").raw.decode())

    def test_the_executor_is_killed_and_the_job_goes_on_from_disk(self):
        job = self.train(1200)
        until("there is a checkpoint", lambda: self.s.job(self.key, job, "/checkpoints").json["items"])
        old = self.s.pid("executor-cpu0")
        with self.s.held():
            self.s.kill("executor-cpu0")
            r = until("requests are refused", lambda: (lambda r: r.status != 200 and r)(self.infer()))
            self.unavailable(r)
            j = self.s.wait_job(self.key, job, ("QUEUED",))
            self.assertIn("ExecutorLost", self.reasons(job))
        self.s.wait_new("executor-cpu0", old)
        until("requests are served again", self.whole)
        j = self.succeeded(job, 1200)
        self.assertLess(j["steps_redone"], 1200)
        detail = [s for s in self.states(job) if s == "STARTING"]
        self.assertEqual(len(detail), 2, self.states(job))
        with open(os.path.join(self.s.state, "log", "executor-cpu0.log")) as f:
            resumed = [line for line in f if "ev=job.start job=%d " % job in line]
        self.assertNotIn("resume_step=0", resumed[-1])
        log = self.s.call("GET", "/api/v1/jobs/%d/log" % job, key=self.key).raw.decode()
        self.assertRegex(log, r"started again after Executor(Lost|Restarted): it had done \d+, the newest checkpoint has \d+")
        self.assertIn("ended: it has succeeded (redone steps %d," % j["steps_redone"], log)

    def reasons(self, job):
        return [e["reason"] for e in self.s.job(self.key, job, "/events").json["items"]]

    # ------------------------------------------------------------ the disk
    @contextlib.contextmanager
    def small_disk(self):
        """The folder of jobs on a disk of 16 MiB. The system that made the folder goes on in it."""
        if os.geteuid() != 0:
            self.skipTest("only root may mount")
        jobs = os.path.join(self.s.state, "jobs")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", jobs], check=True)
        try:
            yield jobs
        finally:
            subprocess.run(["umount", "-l", jobs], check=True)

    @contextlib.contextmanager
    def full(self, folder):
        filler = os.path.join(folder, "filler")
        with open(filler, "wb", buffering=0) as f:
            for size in (65536, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        f.write(bytes(size))
        try:
            yield
        finally:
            os.unlink(filler)

    def test_the_disk_is_full_during_checkpoints(self):
        def counted(outcome):
            return self.s.metrics("executor-cpu0").get(DISK % outcome, 0)

        def listed():
            return [c["step"] for c in self.s.job(self.key, job, "/checkpoints").json["items"]]
        pids = self.s.pids()
        with self.small_disk() as jobs:
            job = self.train(1000000)
            folder = os.path.join(jobs, str(job))
            until("there is a checkpoint", listed)
            with self.full(jobs):
                full = counted("DISKFULL")
                until("two checkpoints have failed", lambda: counted("DISKFULL") >= full + 2)
                good = counted("ok")
                kept = max(listed())
                step = self.s.job(self.key, job).json["step"]
                self.assertEqual(read_st(os.path.join(folder, CKPT % kept)).keys(),
                                 read_st(self.newest(folder)).keys())
                self.assertEqual([f for f in os.listdir(folder) if "tmp" in f], [])
                j = self.s.wait_step(self.key, job, step + 50)
                self.assertIn(j["state"], ("RUNNING", "PREEMPTED"))
                self.assertEqual(self.infer().status, 200)
                self.assertEqual((counted("ok"), max(listed())), (good, kept))
            until("a newer checkpoint is listed", lambda: max(listed()) > kept)
            self.assertTrue(os.path.exists(self.newest(folder)))
            self.assertLessEqual(len([f for f in os.listdir(folder) if f.startswith("ckpt-")]), 3)
            self.cancel(job)
            self.assertEqual(self.s.job(self.key, job).json["attempt"], 1)
        self.assertEqual(self.s.pids(), pids)

    def test_the_disk_is_full_when_a_job_ends(self):
        """Its result cannot be written: it is tried again, and succeeds when there is room."""
        pids = self.s.pids()
        with self.small_disk() as jobs:
            with self.full(jobs):
                job = self.train(40)

                def again():
                    j = self.s.job(self.key, job).json
                    self.assertNotIn(j["state"], FINAL, j)
                    return j["attempt"] > 1 and j
                until("it is tried again", again)
                self.assertIn("BackoffUntil", self.reasons(job))
            self.assertGreater(self.succeeded(job, 40)["attempt"], 1)
        self.assertEqual(self.s.pids(), pids)

    @staticmethod
    def newest(folder):
        steps = [int(f.split("-")[1]) for f in os.listdir(folder) if f.startswith("ckpt-")]
        return os.path.join(folder, CKPT % max(steps))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
