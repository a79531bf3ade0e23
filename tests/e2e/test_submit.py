#!/usr/bin/env python3
"""Batches and arrays of jobs through the whole system: REST, database, scheduler, two real executors.

Without it: one wrong job could keep a batch out, a batch that a client repeats could run twice, an array
could run more of its jobs at once than it was allowed to, its jobs could all do the same, or nobody could
say why they wait.

Usage: test_submit.py [-v] [name ...]
"""
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import BIN, DIGITS, FINAL, Story, System, until, zoo  # noqa: E402

SPEC = {"optimizer": {"name": "sgd", "lr": 0.05}, "batch": 32, "labels": "label", "publish": False}
LIVE = ("STARTING", "RUNNING", "PREEMPTED", "COMPLETING", "CANCELLING")


class Submit(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2")
        cls.addClassCleanup(cls.s.stop)
        for name in ("two", "three"):
            cls.add_executor(name)
        cls.key = cls.s.tenant("alpha")
        cls.s.push(cls.key, "digits", zoo("digits-cnn", "training"))
        with open(os.path.join(DIGITS, "train.safetensors"), "rb") as f:
            cls.s.push_data(cls.key, "train", f.read())

    @classmethod
    def add_executor(cls, name):
        """The cpu device can be had more than once."""
        run = os.path.join(cls.s.state, "run")
        with open(os.path.join(cls.s.dir, name + ".log"), "w") as log:
            p = subprocess.Popen([
                os.path.join(BIN, "shunt-executor"), "--name=" + name, "--metrics-addr=", "--workers=2",
                "--threads=1", "--pool-bytes=256M", "--state-dir=" + cls.s.state,
                "--scheduler=unix:%s/scheduler.sock" % run,
                "--data-addr=unix:%s/executor-%s.sock" % (run, name)], stderr=log, env=cls.s.env)
        cls.addClassCleanup(p.wait)
        cls.addClassCleanup(p.terminate)

    def tearDown(self):
        self.quota(max_queued_jobs=1000)
        for j in self.call("GET", "/api/v1/jobs?limit=1000")["items"]:
            if j["state"] not in FINAL:
                self.s.call("POST", "/api/v1/jobs/%d/cancel" % j["id"], key=self.key)
                self.s.wait_job(self.key, j["id"])

    # ------------------------------------------------------------ helpers
    def call(self, method, path, body=None, want=200, **headers):
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        r = self.s.call(method, path, body, self.key, headers)
        self.assertEqual(r.status, want, r)
        self.last = r
        return r.json

    def quota(self, **fields):
        at = "/api/v1/tenants/alpha/quota"
        r = self.s.call("PUT", at, fields, self.s.admin)
        self.assertEqual(r.status, 200, r)

    def job(self, spec=None, **fields):
        return {"kind": "training", "model": "digits", "version": 1, "dataset": "train",
                "spec": {**SPEC, "epochs": 1, **(spec or {})}, **fields}

    def long(self, **fields):
        return self.job({"epochs": 4000, "checkpoint_interval_ms": 3600000}, **fields)

    def array(self, job, want=201, **fields):
        return self.call("POST", "/api/v1/job-arrays", {"job": job, **fields}, want)

    def jobs(self, array, query=""):
        items = self.call("GET", "/api/v1/jobs?limit=1000&array=%d%s" % (array, query))["items"]
        return sorted(items, key=lambda j: j["array_index"])

    # ------------------------------------------------------------ batches
    def test_a_version_of_an_earlier_release_is_pushed_again(self):
        """It is not trained, and says why. Its file can be had from the state folder."""
        old = self.s.push(self.key, "old", zoo("digits-cnn", "training")).json
        r = self.s.submit(self.key, model="old", dataset="train", hold=True, spec=dict(SPEC, steps=3, epochs=None))
        self.assertEqual(r.status, 201, r)
        folder = os.path.join(self.s.state, "blobs", "packages", old["digest"])
        with open(os.path.join(folder, "graph.json"), encoding="utf-8") as f:
            graph = f.read()
        self.assertIn('"importer":%d,' % old["meta"]["importer"], graph)
        os.unlink(os.path.join(folder, "graph.json"))  # those that have it open keep it
        with open(os.path.join(folder, "graph.json"), "w", encoding="utf-8") as f:
            f.write(graph.replace('"importer":%d,' % old["meta"]["importer"], "", 1))
        self.s.call("POST", "/api/v1/jobs/%d/release" % r.json["id"], key=self.key)
        waited = self.s.wait_job(self.key, r.json["id"], limit_s=30)  # one that waited for the upgrade
        self.assertEqual(waited["state"], "FAILED", waited)
        self.assertIn("push the file again", str(waited))
        out = subprocess.run(
            ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", os.path.join(self.s.state, "pg"), "-U", "shunt", "-c",
             "UPDATE model_version v SET meta = v.meta - 'importer' FROM model m WHERE m.id = v.model_id "
             "AND m.name = 'old'", "postgres"], capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        r = self.s.submit(self.key, model="old", dataset="train", spec=dict(SPEC, steps=3, epochs=None))
        self.assertEqual(r.status, 409, r)
        self.assertIn("shunt push model old FILE", r.error)
        with open(os.path.join(folder, "model.onnx"), "rb") as f:
            new = self.s.push(self.key, "old", f.read()).json
        self.assertEqual((new["digest"], new["version"]), (old["digest"], 2))
        r = self.s.submit(self.key, model="old", dataset="train", spec=dict(SPEC, steps=3, epochs=None))
        self.assertEqual(r.status, 201, r)
        self.assertEqual(self.s.wait_job(self.key, r.json["id"])["state"], "SUCCEEDED")

    def test_each_job_of_a_batch_has_its_own_result_and_runs(self):
        body = {"jobs": [self.job(name="a", client_token="t-a"), self.job(dataset="none"),
                         self.job(name="b", labels={"k": "v"}), {"kind": "training"},
                         self.job(client_token="t-a", name="a")]}
        dry = self.call("POST", "/api/v1/job-batches?dry_run=true", body)
        self.assertEqual((dry["created"], dry["failed"]), (2, 2), dry)
        self.assertEqual(self.call("GET", "/api/v1/jobs?state=QUEUED")["items"], [])
        r = self.call("POST", "/api/v1/job-batches", body, 201)
        self.assertEqual([x["status"] for x in r["items"]], [201, 404, 201, 400, 200], r)
        self.assertEqual(r["items"][4]["job"], r["items"][0]["job"])
        self.assertIn('"none"', r["items"][1]["error"])
        self.assertIn("model", r["items"][3]["error"])
        self.assertEqual((r["created"], r["failed"]), (2, 2))
        self.assertEqual(self.last.headers["location"], "/api/v1/jobs/%d" % r["items"][0]["job"])
        for i, name in ((0, "a"), (2, "b")):
            j = self.s.wait_job(self.key, r["items"][i]["job"])
            self.assertEqual((j["state"], j["name"], j["array"]), ("SUCCEEDED", name, None))
            events = self.s.job(self.key, j["id"], "/events").json["items"]
            self.assertEqual(events[0]["reason"], "Submitted")
        none = self.call("POST", "/api/v1/job-batches", {"jobs": [self.job(dataset="none")]}, 200)
        self.assertEqual((none["created"], none["failed"]), (0, 1))

    def test_each_job_of_a_batch_lists_all_that_is_wrong_in_it(self):
        wrong = [self.job({"batch": 0, "epochs": -1}, priority=5000), "job", self.job(queue="No Queue")]
        r = self.call("POST", "/api/v1/job-batches", {"jobs": wrong + [self.job(dataset="none")]}, 200)
        self.assertEqual([[e["pointer"] for e in x.get("errors", [])] for x in r["items"]],
                         [["/priority", "/spec/batch", "/spec/epochs"], [""], ["/queue"], []])
        for x, job in zip(r["items"], wrong):
            self.assertEqual(x["errors"][0]["detail"], x["error"])
            if isinstance(job, dict):  # as when it comes alone
                self.assertEqual(self.call("POST", "/api/v1/jobs", job, 400)["errors"], x["errors"])
        many = self.call("POST", "/api/v1/job-batches", {"jobs": [
            {"f%d" % k: i for k in range(40)} for i in range(1000)]}, 200)["items"]
        self.assertEqual([len(x.get("errors", [])) for x in many], [16] * 125 + [0] * 875)
        self.assertTrue(all(x["error"] for x in many))

    def test_a_batch_is_carried_out_once_for_its_key(self):
        body = {"jobs": [self.job(hold=True) for _ in range(50)]}
        one = self.call("POST", "/api/v1/job-batches", body, 201, Idempotency_Key="batch-1")
        self.assertNotIn("idempotency-replayed", self.last.headers)
        two = self.call("POST", "/api/v1/job-batches", body, 201, Idempotency_Key="batch-1")
        self.assertEqual(self.last.headers["idempotency-replayed"], "true")
        self.assertEqual(one, two)
        self.call("POST", "/api/v1/job-batches", {"jobs": body["jobs"][1:]}, 422,
                  Idempotency_Key="batch-1")
        held = self.call("GET", "/api/v1/jobs?state=HELD&limit=1000")["items"]
        self.assertEqual(len(held), 50)
        self.assertEqual({j["id"] for j in held}, {x["job"] for x in one["items"]})

    def test_a_whole_number_with_a_point_is_one_and_stops_nobody(self):
        """JSON has no other kind of number, and some libraries write 4.0."""
        r = self.s.call("POST", "/api/v1/jobs", {
            "kind": "training", "model": "digits", "version": 1, "dataset": "train",
            "spec": {**SPEC, "batch": 32.0, "steps": 4.0}}, self.key)
        self.assertEqual(r.status, 201, r)
        other = self.s.submit(self.key, model="digits", version=1, dataset="train", spec={**SPEC, "steps": 3, "epochs": None})
        self.assertEqual(other.status, 201, other)
        for job, steps in ((r.json["id"], 4), (other.json["id"], 3)):
            j = self.s.wait_job(self.key, job)
            self.assertEqual((j["state"], j["step"]), ("SUCCEEDED", steps), j)

    def test_a_quota_without_room_for_all_takes_none(self):
        self.quota(max_queued_jobs=10)
        self.call("POST", "/api/v1/job-batches", {"jobs": [self.job(hold=True)] * 7}, 201)
        r = self.call("POST", "/api/v1/job-batches", {"jobs": [self.job(hold=True)] * 4}, 429)
        self.assertIn("7 jobs are queued, the tenant's max_queued_jobs is 10, and 4 more", r["detail"])
        r = self.array(self.job(hold=True), 429, count=4)
        self.assertEqual(r["code"], "QUOTA")
        self.array(self.job(hold=True), 201, count=3)
        self.call("POST", "/api/v1/jobs", self.job(hold=True), 429)
        self.assertEqual(len(self.call("GET", "/api/v1/jobs?state=HELD&limit=1000")["items"]), 10)

    def test_a_batch_has_limits(self):
        self.call("POST", "/api/v1/job-batches", {"jobs": []}, 400)
        self.call("POST", "/api/v1/job-batches", {"jobs": [self.job()] * 1001}, 400)
        self.call("POST", "/api/v1/job-batches", {"jobs": [self.job(name="x" * 100000)] * 11}, 413)
        r = self.call("POST", "/api/v1/job-batches", {"jobs": [self.job(hold=True)] * 1000}, 201)
        self.assertEqual(r["created"], 1000)
        ids = [x["job"] for x in r["items"]]
        self.assertEqual(ids, sorted(ids))
        for j in ids:
            self.call("POST", "/api/v1/jobs/%d/cancel" % j)

    # ------------------------------------------------------------ arrays
    def test_an_array_runs_as_many_at_once_as_it_may_and_each_job_has_its_index(self):
        a = self.array(self.long(name="part-{index}", labels={"part": "p{index}"}), indices="10-40:10",
                       max_parallel=2)
        self.assertEqual((a["jobs"], a["max_parallel"], a["indices"]), (4, 2, "10-40:10"))
        jobs = self.jobs(a["id"])
        self.assertEqual([j["array_index"] for j in jobs], [10, 20, 30, 40])
        self.assertEqual([j["name"] for j in jobs], ["part-10", "part-20", "part-30", "part-40"])
        self.assertEqual([j["labels"]["part"] for j in jobs], ["p10", "p20", "p30", "p40"])
        self.assertEqual([j["spec"]["seed"] for j in jobs], [10, 20, 30, 40])

        def two_run():
            return self.call("GET", "/api/v1/job-arrays/%d" % a["id"])["states"].get("RUNNING") == 2
        until("two of it run", two_run)
        third = until("the scheduler says why the third waits", lambda: [
            j for j in self.jobs(a["id"], "&state=QUEUED") if j["reason"] == "ArrayLimit"])[0]
        why = self.call("GET", "/api/v1/jobs/%d/explain" % third["id"])
        self.assertEqual(why["reason"], "ArrayLimit")
        self.assertIn("Its array %d has as many jobs on executors as its max_parallel of 2" % a["id"],
                      why["text"])
        # Three executors: the free one takes a job of nobody's array.
        other = self.call("POST", "/api/v1/jobs", self.job(), 201)
        self.assertEqual(self.s.wait_job(self.key, other["id"])["state"], "SUCCEEDED")
        self.assertEqual(sum(j["state"] in LIVE for j in self.jobs(a["id"])), 2)
        # A higher limit counts at once.
        r = self.call("PATCH", "/api/v1/job-arrays/%d" % a["id"], {"max_parallel": 3})
        self.assertEqual(r["max_parallel"], 3)
        until("three of it run", lambda: self.call("GET", "/api/v1/job-arrays/%d" % a["id"])["states"]
              .get("RUNNING") == 3)
        r = self.call("POST", "/api/v1/job-arrays/%d/cancel" % a["id"])
        self.assertEqual(r["changed"], 4)
        until("all are cancelled", lambda: self.call("GET", "/api/v1/job-arrays/%d" % a["id"])[
            "states"] == {"CANCELLED": 4})
        self.assertEqual(self.call("POST", "/api/v1/job-arrays/%d/cancel" % a["id"])["changed"], 0)

    def test_an_array_that_is_let_run_never_runs_more_than_its_limit(self):
        a, most = self.array(self.job({"epochs": 3}), count=6, max_parallel=2), 0
        end = time.monotonic() + 120
        while True:
            states = self.call("GET", "/api/v1/job-arrays/%d" % a["id"])["states"]
            most = max(most, sum(n for s, n in states.items() if s in LIVE))
            if states == {"SUCCEEDED": 6}:
                break
            self.assertLess(time.monotonic(), end, states)
        self.assertLessEqual(most, 2)
        losses = {j["loss"] for j in self.jobs(a["id"])}
        self.assertEqual(len(losses), 6, "each has a seed of its own")

    def test_an_array_is_held_released_and_suspended_as_one(self):
        a = self.array(self.long(), count=3, max_parallel=1)
        at = "/api/v1/job-arrays/%d" % a["id"]
        running = until("one runs", lambda: self.jobs(a["id"], "&state=RUNNING"))[0]
        self.s.wait_step(self.key, running["id"], 1)
        self.assertEqual(self.call("POST", at + "/hold")["changed"], 2)
        self.assertEqual(self.call("POST", at + "/suspend")["changed"], 1)
        until("nothing of it runs", lambda: self.call("GET", at)["states"] == {"HELD": 2, "SUSPENDED": 1})
        self.assertEqual(self.call("POST", at + "/release")["changed"], 2)
        until("another one runs", lambda: self.jobs(a["id"], "&state=RUNNING"))
        self.assertEqual(self.call("POST", at + "/resume")["changed"], 1)
        self.assertEqual(self.s.job(self.key, running["id"]).json["state"], "QUEUED")
        self.call("POST", "/api/v1/job-arrays/999999/cancel", want=404)
        other = self.s.tenant("beta")
        for method, below in (("GET", ""), ("POST", "/cancel"), ("PATCH", "")):
            r = self.s.call(method, at + below, {"max_parallel": 9} if method == "PATCH" else None, other)
            self.assertEqual(r.status, 404, r)
        r = self.s.call("GET", "/api/v1/jobs?array=%d" % a["id"], key=other)
        self.assertEqual(r.json["items"], [])

    def test_an_array_is_made_once_and_whole_or_not_at_all(self):
        job = self.job(hold=True)
        a = self.array(job, indices="1,5-6", client_token="sweep")
        self.assertEqual(a["states"], {"HELD": 3})
        again = self.array(job, 200, indices="1,5-6", client_token="sweep")
        self.assertEqual(again["id"], a["id"])
        r = self.array(job, 422, indices="1,5-7", client_token="sweep")
        self.assertIn("array %d was submitted with this token" % a["id"], r["detail"])
        one = self.call("POST", "/api/v1/job-arrays", {"count": 2, "job": job}, 201, Idempotency_Key="k")
        two = self.call("POST", "/api/v1/job-arrays", {"count": 2, "job": job}, 201, Idempotency_Key="k")
        self.assertEqual(one["id"], two["id"])
        before = self.call("GET", "/api/v1/job-arrays")["items"]
        self.assertEqual([x["id"] for x in before][:2], [one["id"], a["id"]])
        for bad, want in (({"indices": "0-3", "count": 4}, 400), ({}, 400), ({"indices": "3-1"}, 400),
                          ({"indices": "0-2000"}, 413), ({"count": 2, "max_parallel": 0}, 400)):
            self.array(job, want, **bad)
        self.array(self.job(client_token="x"), 400, count=2)
        self.array(self.job(dataset="none"), 404, count=2)
        self.array(self.job(queue="none"), 404, count=2)
        self.array(self.job(name="{index}" + "x" * 127), 400, indices="10-11")
        self.assertEqual(self.call("GET", "/api/v1/job-arrays")["items"], before)
        dry = self.call("POST", "/api/v1/job-arrays?dry_run=true", {"count": 2, "job": job})
        self.assertEqual(dry["states"], {"HELD": 2})
        self.assertEqual(self.call("GET", "/api/v1/job-arrays")["items"], before)

    def test_who_suspends_can_wait_until_no_executor_has_them(self):
        env = {"SHUNT_KEY": self.key}
        one = self.call("POST", "/api/v1/jobs", self.long(), 201)["id"]
        self.s.wait_step(self.key, one, 1)
        self.s.cli("suspend", str(one), "--wait", env=env)
        self.assertEqual(self.s.job(self.key, one).json["state"], "SUSPENDED")
        a = self.array(self.long(), count=2)["id"]
        for j in self.jobs(a):
            self.s.wait_step(self.key, j["id"], 1)
        self.s.cli("suspend", "--array", str(a), "--wait", env=env)
        self.assertEqual(self.call("GET", "/api/v1/job-arrays/%d" % a)["states"], {"SUSPENDED": 2})
        self.s.cli("suspend", "--array", str(a), "--wait", env=env)  # nothing is left to wait for

    # ------------------------------------------------------------ grids
    def test_a_grid_is_an_array_of_every_combination_of_its_values(self):
        grid = {"lr": [0.1, 0.01], "batch": [16, 32]}
        a = self.array(self.job(hold=True), grid=grid, client_token="grid")
        self.assertEqual((a["jobs"], a["grid"], a["indices"]), (4, grid, "0"))
        self.assertNotIn("grid", a["template"])
        jobs = self.jobs(a["id"])
        self.assertEqual([(j["spec"]["optimizer"]["lr"], j["spec"]["batch"]) for j in jobs],
                         [(0.1, 16), (0.1, 32), (0.01, 16), (0.01, 32)])
        self.assertEqual([j["name"] for j in jobs][:2], ["lr=0.1 batch=16", "lr=0.1 batch=32"])
        self.assertEqual(jobs[3]["labels"], {"lr": "0.01", "batch": "32"})
        self.assertEqual(len(self.jobs(a["id"], "&label=lr=0.01")), 2)
        again = self.array(self.job(hold=True), 200, grid=grid, client_token="grid")
        self.assertEqual(again["id"], a["id"])
        self.array(self.job(hold=True), 422, grid={**grid, "batch": [16]}, client_token="grid")
        self.array(self.job(hold=True), 422, count=1, client_token="grid")
        more = self.array(self.job(hold=True, name="{batch}-{index}"), grid={"batch": [16, 32]}, count=3)
        self.assertEqual([(j["name"], j["spec"]["seed"]) for j in self.jobs(more["id"])],
                         [("16-0", 0), ("16-1", 1), ("16-2", 2), ("32-3", 0), ("32-4", 1), ("32-5", 2)])
        before = self.call("GET", "/api/v1/job-arrays")["items"]
        for bad, want in (({"grid": {"lr": [-1, 0.1]}}, 400), ({"grid": {"size": [1]}}, 400),
                          ({"grid": {"optimizer": ["fastest"]}}, 400), ({"grid": {"batch": ["many"]}}, 400),
                          ({"grid": {"batch": list(range(1, 101))}, "count": 11}, 413), ({"grid": {}}, 400),
                          ({"grid": {"batch": [16, 1000000]}}, 400), ({"grid": None}, 400)):
            self.array(self.job(), want, **bad)
        self.array(self.job(labels={"lr": "mine"}), 400, grid={"lr": [0.1]})
        self.assertEqual(self.call("GET", "/api/v1/job-arrays")["items"], before)
        env = {"SHUNT_KEY": self.key}
        self.s.cli("submit", "--model", "digits", "--dataset", "train", "--epochs", "1", "--no-publish",
                   "--set", "lr=0.05,0.005", "--set", "weight-decay=0,0.1", "--array", "0-1%2", "--wait", env=env)
        newest = self.call("GET", "/api/v1/job-arrays")["items"][0]
        self.assertEqual((newest["max_parallel"], newest["grid"]),
                         (2, {"lr": [0.05, 0.005], "weight_decay": [0, 0.1]}))
        self.assertEqual(len({j["loss"] for j in self.jobs(newest["id"])}), 8, "no two are alike")
        # One value is no array, but where a text has a word for it.
        one = ("submit", "--model", "digits", "--dataset", "train", "--epochs", "1", "--no-publish", "--hold",
               "--set", "lr=0.05", "--set", "batch=16")
        self.s.cli(*one, env=env)
        job = self.call("GET", "/api/v1/jobs")["items"][0]
        self.assertEqual((job["array"], job["spec"]["optimizer"]["lr"], job["spec"]["batch"], job["labels"]),
                         (None, 0.05, 16, {}))
        self.s.cli(*one, "--name", "at-{lr}", env=env)
        job = self.call("GET", "/api/v1/jobs")["items"][0]
        self.assertEqual((job["name"], job["labels"]["batch"]), ("at-0.05", "16"))
        self.assertIsNotNone(job["array"])

    # ------------------------------------------------------------ what a training starts from
    def test_a_training_starts_from_what_was_uploaded_unless_it_is_told_otherwise(self):
        def job(**fields):
            j = {**self.job({"publish": True, "steps": 1, "epochs": None}, model="base", **fields)}
            return j if "version" in fields else {k: v for k, v in j.items() if k != "version"}

        def of_array(**fields):
            a = self.array(job(hold=True, **fields), count=2)
            self.assertEqual({j["version"] for j in self.jobs(a["id"])}, {a.get("version")})
            return a["version"]

        def of_batch(**fields):
            r = self.call("POST", "/api/v1/job-batches", {"jobs": [job(hold=True, **fields)] * 2}, 201)
            for x in r["items"]:
                self.assertEqual(self.s.job(self.key, x["job"]).json["version"], x["version"])
            return {x["version"] for x in r["items"]}.pop()

        def starts_from(want, **fields):
            one = self.call("POST", "/api/v1/jobs", job(hold=True, **fields), 201)["version"]
            self.assertEqual((one, of_array(**fields), of_batch(**fields)), (want, want, want))

        self.s.push(self.key, "base", zoo("digits-cnn", "training"))
        trained = self.call("POST", "/api/v1/jobs", job(), 201)
        self.assertEqual(self.s.wait_job(self.key, trained["id"])["result_version"], 2)
        until("the trained version serves", lambda: self.call(
            "GET", "/api/v1/models/base/versions/2")["state"] == "READY")
        starts_from(1)
        starts_from(1, version=None)
        starts_from(2, version="latest")
        starts_from(2, version=2)
        # Inference over a dataset is of what serves: the newest.
        infer = {"kind": "batch_inference", "model": "base", "dataset": "train", "spec": {}, "hold": True}
        for version in ({}, {"version": "latest"}):
            self.assertEqual(self.call("POST", "/api/v1/jobs", {**infer, **version}, 201)["version"], 2)
        self.s.push(self.key, "base", zoo("digits-cnn", "training"))
        starts_from(3)
        for bad in ("newest", "1", "", 0, 2147483648, 1.5, True, [], {}):
            r = self.call("POST", "/api/v1/jobs", job(version=bad), 400)
            self.assertEqual([e["pointer"] for e in r["errors"]], ["/version"], bad)
        # A token that is repeated when there is a newer version is still the same job.
        first = self.call("POST", "/api/v1/jobs", job(hold=True, client_token="from"), 201)
        self.s.push(self.key, "base", zoo("digits-cnn", "training"))
        again = self.call("POST", "/api/v1/jobs", job(hold=True, client_token="from"), 200)
        self.assertEqual((again["id"], again["version"]), (first["id"], 3))
        # Where nothing that was uploaded is left it says so, and how to go on.
        for j in self.call("GET", "/api/v1/jobs?limit=1000")["items"]:
            if j["model"] == "base" and j["state"] not in FINAL:
                self.s.call("POST", "/api/v1/jobs/%d/cancel" % j["id"], key=self.key)
                self.s.wait_job(self.key, j["id"])
        for version in (1, 3, 4):
            r = self.s.call("DELETE", "/api/v1/models/base/versions/%d" % version, key=self.key)
            self.assertEqual(r.status, 204, r)
        r = self.call("POST", "/api/v1/jobs", job(), 404)
        self.assertIn('only versions that training made', r["detail"])
        self.assertIn('"latest"', r["detail"])
        starts_from(2, version="latest")


if __name__ == "__main__":
    unittest.main(verbosity=2)
