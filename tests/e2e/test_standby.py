#!/usr/bin/env python3
"""A scheduler that stands by takes over: from a leader that was killed, and from one that hangs.

Without it: a leader whose host goes silent could hold executors and APIs for ever, a leader that wakes
after its lease could still write or command, and a change of leader could cost training its steps.

Usage: test_standby.py [-v] [name ...]
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, DIGITS, Story, System, free_port, until, zoo  # noqa: E402

INPUTS = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]},
          {"name": "k", "datatype": "INT64", "shape": [1, 2], "data": [5, 6]}]


class Standby(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--schedulers=2", "--workers=2")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("lab")
        s.push(cls.key, "two", onnx.two_outputs(), max_batch=4)
        s.push(cls.key, "digits", zoo("digits-cnn", "training"), max_batch=4)
        with open(os.path.join(DIGITS, "train.safetensors"), "rb") as f:
            s.push_data(cls.key, "train", f.read())

    def setUp(self):
        until("the system serves", lambda: self.infer().status == 200)

    def infer(self):
        with contextlib.suppress(OSError):
            return self.s.infer(self.key, "two", INPUTS)
        raise AssertionError("the API does not answer")

    def log(self, process, event):
        with open(os.path.join(self.s.state, "log", process + ".log"), errors="replace") as f:
            return [x for x in f if " ev=%s " % event in x]

    def leads(self, name):
        with contextlib.suppress(OSError):
            return self.s.metrics(name).get("shunt_leader") == 1
        return False

    def leader(self):
        """(its name, that of the other one)"""
        names = ["scheduler", "scheduler-1"]
        return tuple(until("one leads", lambda: sorted(names, key=self.leads, reverse=True)
                           if any(map(self.leads, names)) else None))

    def train(self):
        r = self.s.submit(self.key, model="digits", version=1, dataset="train",
                          spec={"epochs": None, "steps": 100000, "checkpoint_interval_ms": 200})
        self.assertEqual(r.status, 201, r)
        self.s.wait_step(self.key, r.json["id"], 20)
        return r.json["id"]

    def outage(self):
        """Requests, one after the other, until the next leader serves: seconds, and how many were refused."""
        began, refused = time.monotonic(), 0
        while True:
            r = self.infer()
            if r.status == 200 and refused:
                return time.monotonic() - began, refused
            if r.status != 200:
                self.assertEqual(r.status, 503, r)
                self.assertGreaterEqual(int(r.headers["retry-after"]), 1)
                refused += 1
            self.assertLess(time.monotonic() - began, 60, r)
            time.sleep(0.01)

    def goes_on(self, job, before):
        """The job trains where it was: the same attempt, nothing done again."""
        self.s.wait_step(self.key, job, before["step"] + 50)
        after = self.s.job(self.key, job).json
        self.assertEqual((after["state"], after["attempt"], after["steps_redone"]), ("RUNNING", 1, 0), after)
        r = self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, None, self.key)
        self.assertEqual(r.status, 200, r)
        self.assertEqual(self.s.wait_job(self.key, job)["state"], "CANCELLED")
        return [e["to"] for e in self.s.job(self.key, job, "/events").json["items"]]

    def test_all_are_ready(self):
        """The one that stands by too, for it could lead: a rollout or a probe must not wait for that."""
        for process in ("scheduler", "scheduler-1", "executor-cpu0", "api"):
            until("%s is ready" % process, lambda: self.s.at_metrics(process, "/readyz")[0] == 200)

    def test_one_without_a_database_is_not_ready(self):
        port = free_port()
        with subprocess.Popen([os.path.join(BIN, "shunt-scheduler"), "--db-url=postgresql://127.0.0.1:1/none",
                               "--listen=unix:%s/run/cut-off.sock" % self.s.state,
                               "--metrics-addr=127.0.0.1:%d" % port], stdout=subprocess.DEVNULL) as p:
            self.s.metrics_ports["cut off"] = port
            try:
                until("it is alive", lambda: self.answers("cut off", "/healthz") == 200)
                self.assertEqual(self.answers("cut off", "/readyz"), 503)
            finally:
                p.terminate()

    def answers(self, process, path):
        with contextlib.suppress(OSError):
            return self.s.at_metrics(process, path)[0]

    def test_a_killed_leader(self):
        leader, other = self.leader()
        job = self.train()
        before = self.s.job(self.key, job).json
        with self.s.held():
            self.s.kill(leader)
            seconds, refused = self.outage()
            self.assertEqual(self.leader()[0], other)
            states = self.goes_on(job, before)
        print("killed: served again after %.2f s, %d requests refused" % (seconds, refused))
        self.assertEqual(states.count("STARTING"), 1, states)
        until("the old leader stands by", lambda: self.s.pid(leader))

    def test_a_leader_that_hangs_and_wakes(self):
        leader, other = self.leader()
        job = self.train()
        before = self.s.job(self.key, job).json
        hung = self.s.pid(leader)
        os.kill(hung, signal.SIGSTOP)
        try:
            seconds, refused = self.outage()
            self.goes_on(job, before)
            second = self.train()
            events = self.events_of_all()
        finally:
            os.kill(hung, signal.SIGCONT)
        until("it sees that it does not lead", lambda: self.log(leader, "lease.lost"))
        self.assertEqual(self.s.pid(leader), hung)
        self.assertEqual(self.leader()[0], other)
        self.assertEqual(self.events_of_all()[:len(events)], events, "an event was changed")
        self.goes_on(second, self.s.job(self.key, second).json)
        print("hung: served again after %.2f s, %d requests refused" % (seconds, refused))

    def events_of_all(self):
        jobs = self.s.call("GET", "/api/v1/jobs?limit=100", key=self.key).json["items"]
        return [json.dumps(e) for j in sorted(jobs, key=lambda j: j["id"])
                for e in self.s.job(self.key, j["id"], "/events").json["items"]]


if __name__ == "__main__":
    unittest.main()
