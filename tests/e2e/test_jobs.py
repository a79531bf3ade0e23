#!/usr/bin/env python3
"""Control of durable jobs through the whole system: REST, database, scheduler, a real executor.

Without it: a job could be held or suspended on paper only, a suspended job could lose steps or come
back with other numbers, a refusal could leave the user without a next step, and a filter, a label or a
deadline could be stored and never looked at.

Usage: test_jobs.py [-v] [name ...]
"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import BIN, DIGITS, FINAL, WAIT_S, Story, System, until, zoo  # noqa: E402

LONG = {"epochs": 4000, "checkpoint_interval_ms": 3600000}


class Jobs(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2", MAX_TENANT_STREAMS="6", MAX_STREAMS="8")
        cls.key = cls.s.tenant("alpha")
        cls.s.push(cls.key, "digits", zoo("digits-cnn", "training"))
        for d in ("train", "test"):
            with open(os.path.join(DIGITS, d + ".safetensors"), "rb") as f:
                cls.s.push_data(cls.key, d, f.read())

    @classmethod
    def tearDownClass(cls):
        cls.s.stop()

    def tearDown(self):
        for j in self.list()["items"]:
            if j["state"] not in FINAL:
                self.act(j["id"], "cancel")
                self.s.wait_job(self.key, j["id"])

    # ------------------------------------------------------------ helpers
    def submit(self, want=201, **fields):
        r = self.s.submit(self.key, model="digits", version=1, dataset="train", **fields)
        self.assertEqual(r.status, want, r)
        return r.json["id"] if want == 201 else r

    def act(self, job, what, want=200, key=None):
        r = self.s.call("POST", "/api/v1/jobs/%d/%s" % (job, what), key=key or self.key)
        self.assertEqual(r.status, want, r)
        return r

    def get(self, job):
        r = self.s.job(self.key, job)
        self.assertEqual(r.status, 200, r)
        return r

    def patch(self, job, body, want=200, **headers):
        r = self.s.call("PATCH", "/api/v1/jobs/%d" % job, body, self.key, headers)
        self.assertEqual(r.status, want, r)
        return r

    def list(self, query=""):
        r = self.s.call("GET", "/api/v1/jobs?limit=1000" + query, key=self.key)
        self.assertEqual(r.status, 200, r)
        return r.json

    def reasons(self, job):
        r = self.s.job(self.key, job, "/events?limit=1000")
        rows = r.json["items"]
        for a, b in zip(rows, rows[1:]):
            self.assertEqual(a["to"], b["from"], rows)
        return [e["reason"] for e in rows]

    def state(self, job, *states):
        return self.s.wait_job(self.key, job, states)

    # ------------------------------------------------------------ control

    def test_a_held_job_starts_when_it_is_released(self):
        job = self.submit(hold=True)
        self.assertEqual(self.get(job).json["state"], "HELD")
        time.sleep(1)
        self.assertEqual(self.get(job).json["state"], "HELD")
        r = self.act(job, "suspend", 409)
        self.assertEqual(r.json["state"], "HELD")
        self.assertEqual(r.json["allowed"], ["release", "cancel"])
        self.assertIn("it is HELD; allowed: release, cancel", r.json["detail"])
        self.assertEqual(self.act(job, "hold").json["state"], "HELD")
        self.act(job, "release")
        self.assertEqual(self.state(job, *FINAL)["state"], "SUCCEEDED")
        reasons = self.reasons(job)
        self.assertEqual(reasons[0:2], ["Submitted", "Released"])
        r = self.act(job, "hold", 409)
        self.assertEqual((r.json["state"], r.json["allowed"]), ("SUCCEEDED", []))
        for what in ("release", "suspend", "resume", "requeue", "checkpoint", "cancel"):
            self.act(job, what, 409)
        self.assertEqual(self.reasons(job), reasons)
        self.assertEqual(self.get(job).json["state"], "SUCCEEDED")

    def test_a_suspended_job_loses_no_step_and_gives_the_same_model(self):
        spec = {"epochs": None, "steps": 2500, "checkpoint_interval_ms": 3600000}
        plain = self.state(self.submit(spec=spec, eval_dataset="test"), *FINAL)
        job = self.submit(spec=spec, eval_dataset="test")
        self.s.wait_step(self.key, job, 20)
        by_wish = 'shunt_decisions_total{decision="preempt",rule="Suspended"}'
        before = self.s.metrics("scheduler").get(by_wish, 0)
        r = self.act(job, "suspend")
        self.assertIn("SUSPEND_PENDING", r.json["flags"])
        self.act(job, "suspend")  # once more: no error, no event
        j = self.state(job, "SUSPENDED", *FINAL)
        self.assertEqual((j["state"], j["flags"], j["executor"]), ("SUSPENDED", [], None))
        self.assertEqual(self.s.metrics("scheduler")[by_wish], before + 1)
        step = j["step"]
        points = self.s.job(self.key, job, "/checkpoints").json["items"]
        self.assertEqual(points[-1]["step"], step)
        other = self.submit(spec={"epochs": 1})  # its place is free
        self.assertEqual(self.state(other, *FINAL)["state"], "SUCCEEDED")
        self.act(job, "hold", 409)
        self.act(job, "resume")
        j = self.state(job, *FINAL)
        self.assertEqual(j["state"], "SUCCEEDED", j)
        self.assertLessEqual(j["steps_redone"], 1)  # the one it stood in
        self.assertEqual(j["attempt"], 1)
        for k in ("accuracy", "eval_loss", "final_loss"):
            self.assertEqual(j["result"][k], plain["result"][k])
        reasons = self.reasons(job)
        self.assertEqual(reasons.count("SuspendAsked"), 1)
        self.assertEqual([r for r in reasons if r in ("Suspended", "Resumed")],
                         ["Suspended", "Resumed"])

    def test_a_job_that_is_cancelled_before_it_starts_counts_as_finished_once(self):
        def cancelled():
            return sum(self.s.metrics(p).get('shunt_jobs_finished_total{tenant="alpha",state="CANCELLED"}', 0)
                       for p in ("api", "scheduler"))
        running = self.submit(spec=LONG)
        self.s.wait_step(self.key, running, 2)
        before = cancelled()
        for hold in (True, False):
            job = self.submit(hold=hold, spec=LONG)
            self.assertEqual(self.get(job).json["state"], "HELD" if hold else "QUEUED")
            self.assertEqual(self.act(job, "cancel").json["state"], "CANCELLED")
            self.act(job, "cancel")
        self.assertEqual(cancelled() - before, 2)
        self.act(running, "cancel")
        self.state(running, "CANCELLED")
        until("the third counts", lambda: cancelled() - before == 3)
        time.sleep(0.5)  # no other process counts one of them too
        self.assertEqual(cancelled() - before, 3)

    def test_a_suspension_can_be_taken_back_and_a_suspended_job_cancelled(self):
        job = self.submit(spec=LONG)
        self.s.wait_step(self.key, job, 2)
        self.act(job, "suspend")
        r = self.s.call("POST", "/api/v1/jobs/%d/resume" % job, key=self.key)
        self.assertEqual(r.status, 200, r)  # pending, or suspended already
        self.assertNotIn("SUSPEND_PENDING", r.json["flags"])
        before = self.get(job).json["step"]
        self.s.wait_step(self.key, job, before + 2)  # it may have stopped, and then started again

        def suspend():
            return self.s.call("POST", "/api/v1/jobs/%d/suspend" % job, key=self.key).status == 200
        until("it can be suspended", suspend)
        self.state(job, "SUSPENDED")
        self.assertEqual(self.act(job, "cancel").json["state"], "CANCELLED")
        self.act(job, "cancel")
        self.assertEqual(self.reasons(job)[-1], "CancelledByUser")
        self.act(job, "resume", 409)

    def test_a_requeued_job_lets_the_next_go_first(self):
        job = self.submit(spec=LONG)
        self.s.wait_step(self.key, job, 2)
        second = self.submit(spec={"epochs": 1})
        self.act(job, "requeue")
        done = self.state(second, *FINAL)
        self.assertEqual(done["state"], "SUCCEEDED")
        self.s.wait_step(self.key, job, 3)
        j = self.get(job).json
        self.assertGreater(j["started_at"], "")
        self.assertLessEqual(j["steps_redone"], 1)  # the one it stood in
        self.assertIn("Requeued", self.reasons(job))

    def test_a_checkpoint_on_demand_is_on_disk_long_before_the_interval(self):
        job = self.submit(spec=LONG)
        self.s.wait_step(self.key, job, 5)
        self.assertEqual(self.s.job(self.key, job, "/checkpoints").json["items"], [])
        r = self.act(job, "checkpoint")
        self.assertIn("CHECKPOINTING", r.json["flags"])
        at = r.json["step"]
        points = until("a checkpoint", lambda: self.s.job(self.key, job, "/checkpoints").json["items"])
        self.assertGreater(points[0]["step"], at - 1)
        until("its end", lambda: "CHECKPOINTING" not in self.get(job).json["flags"])
        self.assertTrue(os.path.exists(os.path.join(
            self.s.state, "jobs", str(job), "ckpt-%d-cpu0.safetensors" % points[0]["step"])))
        self.assertEqual([r for r in self.reasons(job) if r.startswith("Checkpoint")],
                         ["CheckpointAsked", "CheckpointWritten"])

    def test_another_tenants_job_is_as_if_it_did_not_exist(self):
        job = self.submit(hold=True)
        other = self.s.tenant("beta")
        for what in ("release", "cancel", "checkpoint"):
            self.act(job, what, 404, other)
        r = self.s.call("PATCH", "/api/v1/jobs/%d" % job, {"priority": 1}, other)
        self.assertEqual(r.status, 404, r)
        reader = self.s.key("alpha", "read")
        self.act(job, "release", 403, reader)
        self.act(999999999, "hold", 404)
        self.assertEqual(self.get(job).json["state"], "HELD")

    # ------------------------------------------------------------ explain

    def explain(self, job, key=None, want=200):
        r = self.s.call("GET", "/api/v1/jobs/%d/explain" % job, key=key or self.key)
        self.assertEqual(r.status, want, r)
        return r.json

    def test_an_explanation_says_what_a_job_waits_for_and_when_it_may_start(self):
        runs = self.submit(spec=LONG)
        self.s.wait_step(self.key, runs, 20)
        job = self.submit()
        x = until("an estimate", lambda: self.explain(job).get("estimated_start") and
                  self.explain(job))
        self.assertEqual((x["id"], x["state"], x["position"]), (job, "QUEUED", 1))
        self.assertEqual(x["waits_for"][0]["job"], runs)
        self.assertIn("measured", x["basis"])
        self.assertIn("hold", x["allowed"])
        said = self.s.cli("explain", str(job), env={"SHUNT_KEY": self.key}).decode()
        self.assertIn("number 1 of 1", said)
        self.assertIn("cpu0 has job %d" % runs, said)
        x = until("it runs", lambda: (x := self.explain(runs)).get("loss_ms") and x)
        self.assertIn("If it gave way, about ", x["text"])
        self.assertEqual(x["factors"]["tenant_running_jobs"], 1)
        self.assertIn("preempt", x["text"])
        other = self.s.tenant("gamma")
        self.explain(job, other, 404)
        self.act(job, "hold")
        self.assertIn("release it", self.explain(job)["text"])
        with self.s.held():
            self.s.kill("scheduler")
            x = until("without a scheduler", lambda: "did not answer" in self.explain(runs)["text"])
            self.assertTrue(x)
        until("the next scheduler", lambda: "factors" in self.explain(runs))
        self.act(job, "cancel")
        self.assertIn("cancelled", self.explain(job)["text"])
        executor = self.s.pid("executor-cpu0")
        os.kill(executor, signal.SIGSTOP)  # so that the wish stays one
        try:
            self.act(runs, "suspend")
            self.assertIn("It is being suspended", self.explain(runs)["text"])
        finally:
            os.kill(executor, signal.SIGCONT)
        self.s.wait_job(self.key, runs, ("SUSPENDED",))
        self.assertIn("It was suspended", self.explain(runs)["text"])

    # ------------------------------------------------------------ events as a stream

    def open_stream(self, job, key=None, **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=WAIT_S)
        c.request("GET", "/api/v1/jobs/%d/events" % job, headers={
            "Authorization": "Bearer " + (key or self.key), "Accept": "text/event-stream", **headers})
        r = c.getresponse()
        r.conn = c
        return r

    @staticmethod
    def events(r):
        """Each event as it comes; a comment as None; ends with the stream."""
        one = {}
        for line in iter(r.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "" and value:
                yield None
            elif name:
                one[name] = value
            elif "data" in one:
                e = json.loads(one["data"])
                assert one["id"] == str(e["id"]) and one["event"] == "state", one
                yield e
                one = {}
        r.conn.close()

    def test_a_stream_has_every_event_once_and_ends_with_the_job(self):
        job = self.submit(hold=True)
        streams = [self.open_stream(job) for _ in range(5)]
        self.assertEqual([r.status for r in streams], [200] * 5)
        self.assertEqual(streams[0].getheader("Content-Type"), "text/event-stream")
        before, began = self.statements(), time.monotonic()
        time.sleep(3)
        rounds, took = self.statements() - before, time.monotonic() - began
        self.assertLess(rounds, 4 * took + 5)  # one for all five, four times a second
        self.assertGreater(rounds, 1)
        self.act(job, "release")
        got = [list(self.events(r)) for r in streams]
        want = self.s.job(self.key, job, "/events?limit=1000").json["items"]
        for events in got:
            self.assertEqual(events, want)
        self.assertEqual(want[-1]["to"], "SUCCEEDED")
        late = self.open_stream(job)  # of a job that has ended: all of it, then the end
        self.assertEqual(list(self.events(late)), want)
        rest = self.open_stream(job, **{"Last-Event-ID": str(want[1]["id"])})
        self.assertEqual(list(self.events(rest)), want[2:])
        over = self.open_stream(job, **{"Last-Event-ID": str(want[-1]["id"])})
        self.assertEqual(over.status, 204)
        self.assertEqual(self.open_stream(job, **{"Last-Event-ID": "x"}).status, 400)
        self.assertEqual(self.open_stream(999999999).status, 404)

    def statements(self):
        return sum(v for k, v in self.s.metrics("api").items()
                   if k.startswith("shunt_db_query_seconds_count") and 'job_watch' in k)

    def test_streams_have_limits_and_those_whose_client_left_do_not_count(self):
        job = self.submit(hold=True)
        open_ones = [self.open_stream(job) for _ in range(6)]
        self.assertEqual([r.status for r in open_ones], [200] * 6)
        r = self.open_stream(job)
        self.assertEqual(r.status, 429)
        self.assertEqual(json.loads(r.read())["code"], "QUOTA")
        other = self.s.tenant("stranger")
        r = self.open_stream(job, other)
        self.assertEqual(r.status, 404)
        model = zoo("digits-cnn", "training")
        self.s.push(other, "digits", model, ready=True)
        with open(os.path.join(DIGITS, "train.safetensors"), "rb") as f:
            self.s.push_data(other, "train", f.read())
        theirs = self.s.submit(other, model="digits", dataset="train", hold=True).json["id"]
        more = [self.open_stream(theirs, other) for _ in range(3)]
        self.assertEqual([r.status for r in more], [200, 200, 503])
        said = self.events(open_ones[0])
        self.assertEqual(next(said)["reason"], "Submitted")
        self.assertIsNone(next(said))  # ": ping", so that proxies keep it
        for r in open_ones[1:]:
            r.close()
            r.conn.close()

        def again():
            r = self.open_stream(job)
            r.conn.close()
            return r.status == 200
        until("a stream of a client that left is closed", again)
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % theirs, key=other)
        self.assertEqual(list(self.events(more[0]))[-1]["to"], "CANCELLED")

    def test_the_command_line_follows_events_over_a_restart_of_the_api(self):
        job = self.submit(hold=True)
        command = [os.path.join(BIN, "shunt"), "events", str(job), "-f", "-o", "json",
                   "--state-dir", self.s.state]

        def listening():  # the places of streams whose clients left may not be free yet
            p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={**self.s.env, "SHUNT_KEY": self.key})
            line = p.stdout.readline()
            if not line:
                self.assertIn(b"streams", p.communicate()[1])
            return line and (p, line)
        p, line = until("a place for one more stream", listening)
        try:
            first = json.loads(line)
            self.assertEqual(first["reason"], "Submitted")
            old = self.s.kill("api", signal.SIGTERM)
            self.s.wait_new("api", old)
            until("the API is back", lambda: self.is_up())
            self.act(job, "release")
            rest = [json.loads(line) for line in p.stdout]
            self.assertEqual(p.wait(WAIT_S), 0)
        finally:
            p.kill()
        self.assertEqual([first] + rest,
                         self.s.job(self.key, job, "/events?limit=1000").json["items"])

    def is_up(self):
        try:
            return self.s.call("GET", "/healthz").status == 200
        except OSError:
            return False

    # ------------------------------------------------------------ fields, filters

    def test_a_change_needs_the_etag_that_is_current_if_it_names_one(self):
        job = self.submit(hold=True, labels={"team": "vision", "kind": "try"}, priority=3)
        r = self.get(job)
        self.assertEqual(r.json["labels"], {"team": "vision", "kind": "try"})
        etag = r.headers["etag"]
        r = self.patch(job, {"priority": -7, "labels": {"kind": None, "run": "2"},
                             "deadline": "2999-01-01T00:00:00Z"}, **{"If-Match": etag})
        self.assertEqual((r.json["priority"], r.json["labels"]), (-7, {"team": "vision", "run": "2"}))
        self.assertEqual(r.json["deadline"], "2999-01-01T00:00:00.000Z")
        self.patch(job, {"priority": 1}, 412, **{"If-Match": etag})
        self.assertEqual(self.patch(job, {"deadline": None}).json["deadline"], None)
        self.assertEqual(self.get(job).json["priority"], -7)
        r = self.patch(job, {"labels": {"l%d" % i: "x" for i in range(31)}}, 409)
        self.assertIn("32 labels", r.json["detail"])
        self.patch(job, {"labels": {"l%d" % i: "x" for i in range(30)}})
        self.assertEqual(self.reasons(job).count("Changed"), 3)
        self.act(job, "cancel")
        r = self.patch(job, {"priority": 1}, 409)
        self.assertEqual(r.json["state"], "CANCELLED")

    # ------------------------------------------------------------ the log

    def log(self, job, want=200, key=None, **headers):
        r = self.s.call("GET", "/api/v1/jobs/%d/log" % job, key=key or self.key,
                        headers={k.replace("_", "-"): v for k, v in headers.items()})
        self.assertEqual(r.status, want, r)
        self.assertEqual(r.headers["content-type"],
                         "text/plain; charset=utf-8" if want < 400 else "application/problem+json")
        return r.raw.decode()

    def test_the_log_of_a_job_tells_all_that_happened_to_it(self):
        job = self.submit(spec={"epochs": None, "steps": 60000, "checkpoint_interval_ms": 300},
                          eval_dataset="test", hold=True)
        self.assertEqual(self.log(job), "")
        follow = subprocess.Popen([os.path.join(BIN, "shunt"), "logs", str(job), "-f", "--server",
                                   "http://127.0.0.1:%d" % self.s.port, "--key", self.key],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.s.env)
        self.addCleanup(follow.kill)
        self.act(job, "release")
        self.s.wait_step(self.key, job, 20)
        j = self.get(job).json
        self.assertGreater(j["steps_per_s"], 0)
        self.assertAlmostEqual(j["samples_per_s"] / j["steps_per_s"], 32, 3)
        pixels = [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}]
        for _ in range(5):  # each takes the device away
            self.assertEqual(self.s.infer(self.key, "digits/versions/1", pixels).status, 200)
        until("a line with preemptions", lambda: re.search(
            r": step \d+ of 60000, loss \S+, \S+ steps/s, \S+ samples/s; preempted \d+ times?, \S+ s in all\n",
            self.log(job)))
        with self.s.held():
            for pid in self.s.workers():
                os.kill(pid, signal.SIGKILL)
        until("the death of a worker", lambda: "died (cause: killed) after step" in self.log(job))
        self.s.wait_step(self.key, job, self.get(job).json["step"] + 2)
        until("a checkpoint", lambda: re.search(r": checkpoint of step \d+ written: \d+ bytes in \S+ ms\n",
                                                self.log(job)))
        with self.s.held():
            old = self.s.kill("executor-cpu0")
        self.s.wait_new("executor-cpu0", old)
        until("it goes on", lambda: re.search(r"started on executor cpu0 \(cpu\): model digits:1, dataset train, "
                                              r"evaluation dataset test\n(.*\n)*.*goes on from the checkpoint of step "
                                              r"[1-9]\d*\n", self.log(job)))
        self.act(job, "suspend")
        j = self.state(job, "SUSPENDED", *FINAL)
        self.assertEqual((j["state"], j["steps_per_s"], j["samples_per_s"]), ("SUSPENDED", None, None))
        until("it left", lambda: "leaves this executor at step %d of 60000" % j["step"] in self.log(job))
        self.act(job, "cancel")
        text = self.log(job)
        self.assertEqual(text.count("is stopped by the scheduler: Suspended\n"), 1)
        self.assertEqual(text.count("started on executor"), 2)
        self.assertEqual(text.count("compiled in"), 2)
        self.assertRegex(text, r"compiled in \S+ s: precision fp32, batch 32, 60000 steps, \d+ parameters; on the "
                               r"device \S+ MiB of state and \S+ MiB for a batch\n")
        for line in text.splitlines():
            self.assertRegex(line, r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z attempt 1: \S")
        out, err = follow.communicate(timeout=WAIT_S)
        self.assertEqual((follow.returncode, err), (0, b""))
        self.assertEqual(out.decode(), text)
        self.log(job, 404, self.s.tenant("onlooker"))
        raw = text.encode()
        self.assertEqual(self.log(job, 206, Range="bytes=%d-" % (len(raw) - 10)).encode(), raw[-10:])
        self.log(job, 416, Range="bytes=%d-" % len(raw))
        shunt = lambda *a: self.s.cli("logs", str(job), *a, env={"SHUNT_KEY": self.key}).decode()  # noqa: E731
        self.assertEqual(shunt(), text)
        self.assertEqual(shunt("--tail", "2"), "".join(text.splitlines(True)[-2:]))

    def test_who_follows_a_log_loses_nothing_when_it_is_written_anew(self):
        job = self.submit(hold=True)
        path = os.path.join(self.s.state, "jobs", str(job), "log.txt")
        os.makedirs(os.path.dirname(path))

        def write(lines):
            with open(path + ".tmp", "w") as f:
                f.write("".join("line %d\n" % i if isinstance(i, int) else i for i in lines))
            os.rename(path + ".tmp", path)
        write([*range(200), "half a li"])
        follow = subprocess.Popen([os.path.join(BIN, "shunt"), "logs", str(job), "-f", "--tail", "3", "--server",
                                   "http://127.0.0.1:%d" % self.s.port, "--key", self.key],
                                  stdout=subprocess.PIPE, env=self.s.env)
        self.addCleanup(follow.kill)
        want = [*range(197, 200), *range(300, 305), *range(305, 900)]
        for i in want[:3]:
            self.assertEqual(follow.stdout.readline(), b"line %d\n" % i)
        write([0, 1, "... left out\n", 199, *range(300, 305)])  # shorter than it was
        for i in want[3:8]:
            self.assertEqual(follow.stdout.readline(), b"line %d\n" % i)
        write([0, 1, "... left out\n", 304, *range(305, 900)])  # longer, and another
        for i in want[8:]:
            self.assertEqual(follow.stdout.readline(), b"line %d\n" % i)
        self.act(job, "cancel")
        self.assertEqual((follow.communicate(timeout=WAIT_S)[0], follow.returncode), (b"", 0))

    def test_the_log_ends_with_what_came_of_the_job(self):
        good, bad = (self.submit(eval_dataset="test", max_attempts=1, spec={"epochs": 20, "optimizer": {
            "name": "sgd", "lr": lr, "weight_decay": decay}}) for lr, decay in ((0.05, 0), (1e6, 1)))
        j = self.state(good, *FINAL)
        self.assertEqual(j["state"], "SUCCEEDED", j)
        until("its end", lambda: "ended: " in self.log(good))
        self.assertRegex(self.log(good), r": step %d of %d, loss .*\n(.*\n)*.*: evaluated on 360 samples: accuracy %.6g, "
                                         r"loss %.6g\n.*: trained model: %d bytes, SHA-256 %s, to be a new version\n"
                                         r".*: ended: it has succeeded .*\n$" % (
                                             j["steps"], j["steps"], j["result"]["accuracy"], j["result"]["eval_loss"],
                                             j["result"]["bytes"], j["result"]["digest"]))
        j = self.state(bad, *FINAL)
        self.assertEqual((j["state"], j["error_code"]), ("FAILED", "NAN"), j)
        until("its end", lambda: "ended: " in self.log(bad))
        self.assertRegex(self.log(bad), r": ended: failed at step \d+, NAN: .*not a finite number.*\n$")

    def test_filters_and_pages_go_together(self):
        jobs = [self.submit(hold=True, labels={"set": "f", "n": str(i % 2)}) for i in range(5)]
        mine = [j["id"] for j in self.list("&label=set%3Df")["items"]]
        self.assertEqual(mine, sorted(jobs, reverse=True))
        odd = [j["id"] for j in self.list("&label=set%3Df,n%3D1&state=HELD,QUEUED")["items"]]
        self.assertEqual(odd, [jobs[3], jobs[1]])
        self.assertEqual(self.list("&label=set%3Df&state=RUNNING")["items"], [])
        self.assertEqual(len(self.list("&label=set%3Df&queue=default")["items"]), 5)
        self.assertEqual(self.list("&queue=night")["items"], [])
        seen, cursor = [], ""
        while cursor is not None:
            r = self.s.call("GET", "/api/v1/jobs?limit=2&label=set%3Df" + cursor, key=self.key).json
            seen += [j["id"] for j in r["items"]]
            if len(seen) == 2:  # what changes meanwhile does not move the rest
                self.patch(jobs[0], {"priority": 9})
            cursor = "&cursor=" + r["next_cursor"] if "next_cursor" in r else None
        self.assertEqual(seen, mine)
        for bad in ("state=ASLEEP", "label=x", "colour=red"):
            r = self.s.call("GET", "/api/v1/jobs?" + bad, key=self.key)
            self.assertEqual(r.status, 400, r)

    def test_a_deadline_that_passes_in_the_queue_expires_the_job(self):
        for ahead in (2, 20, 100):  # a deadline that has passed is refused
            soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + ahead))
            r = self.s.submit(self.key, model="digits", version=1, dataset="train", hold=True, deadline=soon)
            if r.status == 201:
                break
        self.assertEqual(r.status, 201, r)
        job = r.json["id"]
        j = self.state(job, *FINAL)
        self.assertEqual((j["state"], j["reason"]), ("EXPIRED", "DeadlinePassed"))
        self.assertIn("HELD", j["error"])
        self.submit(400, deadline="2001-01-01T00:00:00Z")

    def test_a_job_for_more_gpus_than_this_release_runs_is_refused_with_its_own_reason(self):
        r = self.submit(422, gpus=2)
        self.assertEqual(r.json["code"], "MULTIGPU", r)
        self.assertIn("at most 1 GPU", r.json["detail"])
        self.assertEqual(self.submit(400, gpus=0).json["code"], "INVALID")
        job = self.submit(gpus=1, hold=True)
        self.assertEqual(self.get(job).json["gpus"], 1)
        self.assertEqual(self.get(self.submit(hold=True)).json["gpus"], 1)

    def test_the_command_line_has_a_verb_for_each(self):
        def shunt(*a):
            return self.s.cli(*a, env={"SHUNT_KEY": self.key}).decode()
        job = str(self.submit(hold=True))
        shunt("set", "job", job, "--priority", "4", "--label", "a=b,c=d")
        self.assertEqual(self.get(int(job)).json["labels"], {"a": "b", "c": "d"})
        shunt("set", "job", job, "--label", "c=")
        self.assertEqual(shunt("get", "jobs", "--label", "a=b", "--state", "HELD", "-o", "name").split(),
                         [job])
        shunt("release", job)
        self.s.wait_job(self.key, int(job))
        new = shunt("submit", "--model", "digits", "--dataset", "train", "--epochs", "4000", "--hold",
                    "--label", "x=y", "--min-runtime-ms", "5000", "--deadline",
                    "2999-01-01T00:00:00Z", "-o", "name").strip()
        j = self.get(int(new)).json
        self.assertEqual((j["state"], j["labels"], j["min_runtime_ms"], j["preemptible"]),
                         ("HELD", {"x": "y"}, 5000, True))
        shunt("release", new)
        self.s.wait_step(self.key, int(new), 2)
        shunt("checkpoint", new)
        shunt("suspend", new)
        self.state(int(new), "SUSPENDED")
        shunt("resume", new)
        self.s.wait_step(self.key, int(new), self.get(int(new)).json["step"] + 1)
        shunt("requeue", new)
        until("the event", lambda: "Requeued" in self.reasons(int(new)))
        shunt("cancel", new)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
