#!/usr/bin/env python3
"""The life of models in a whole system: shared, loaded and unloaded, pinned, watched.

Without it: a version that was unloaded could go on answering or never come back, a pin could take the
device from everyone or be lost at a restart, a model in use could be deleted, a tenant could change
what another one shares, and what people read of placements and profiles could be made up.
"""
import concurrent.futures
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, Story, System, st_bytes, until, zoo  # noqa: E402

X = {"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}


class Models(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System()
        cls.addClassCleanup(cls.s.stop)
        cls.key, cls.other = cls.s.tenant("vision"), cls.s.tenant("other")
        cls.net = zoo("digits-cnn")
        cls.n = 0

    def model(self, versions=1, **kw):
        """A model of its own for a test, so that each runs alone."""
        Models.n += 1
        name = "m%d" % Models.n
        for _ in range(versions):
            self.s.push(self.key, name, self.net, **kw)
        return name

    def do(self, verb, model, version=None, key=None, **kw):
        at = "/api/v1/models/%s%s/%s" % (model, "/versions/%d" % version if version else "", verb)
        return self.s.call("POST", at, key=key or self.key, **kw)

    def get(self, model, version=1, below="", key=None):
        return self.s.call("GET", "/api/v1/models/%s/versions/%d%s" % (model, version, below),
                           key=key or self.key)

    def state(self, model, want, version=1):
        return until("%s:%d is %s" % (model, version, want),
                     lambda: self.get(model, version).json["state"] == want and
                     self.get(model, version).json)

    def place(self, model, test, version=1):
        def found():
            p = self.get(model, version, "/placements").json["placements"]
            return p and test(p[0]) and p[0]
        return until("a placement of %s" % model, found)

    def infer(self, model, key=None, **kw):
        return self.s.infer(key or self.key, model, [X], **kw)

    def answers(self, model, version):
        """Without a version: what has just changed, the API may not know yet."""
        return until("version %s answers" % version,
                     lambda: self.infer(model).json.get("model_version") == version)

    def refuses(self, model):
        r = until("it is refused for good", lambda: (r := self.infer(model)).status == 409 and r)
        self.assertEqual(r.json["reason_code"], "UNLOADED", r)

    def test_who_has_read_that_a_version_is_ready_is_answered_by_it(self):
        m = self.model()
        for version in range(2, 14):
            self.s.push(self.key, m, self.net)
            r = self.infer(m)
            self.assertEqual((r.status, r.json["model_version"]), (200, str(version)))

    # ------------------------------------------------------------ sharing
    def test_a_model_is_shared_and_taken_back_by_its_owner_alone(self):
        m = self.model()
        at = "/api/v1/models/" + m
        self.assertEqual(self.infer(m, self.other).status, 404)
        r = self.s.call("GET", at, key=self.key)
        tag = r.headers["etag"]
        r = self.s.call("PATCH", at, {"visibility": "shared"}, self.key, {"If-Match": tag})
        self.assertEqual((r.status, r.json["visibility"]), (200, "shared"), r)
        until("others may use it", lambda: self.infer(m, self.other).status == 200)
        r = self.s.call("PATCH", at, {"visibility": "private"}, self.key, {"If-Match": tag})
        self.assertEqual((r.status, r.code), (412, "PRECONDITION"), r)
        r = self.s.call("PATCH", at, {"visibility": "private"}, self.other)
        self.assertEqual((r.status, r.code), (403, "FORBIDDEN"), r)
        for verb in ("load", "unload", "pin", "unpin"):
            r = self.do(verb, m, 1, key=self.other)
            self.assertEqual((r.status, r.code), (403, "FORBIDDEN"), (verb, r))
        r = self.s.call("DELETE", at + "/versions/1", key=self.other)
        self.assertEqual((r.status, r.code), (403, "FORBIDDEN"), r)
        r = self.s.call("PATCH", at, {"visibility": "public"}, self.key)
        self.assertEqual(r.status, 400)
        self.assertIn("private, shared", r.error)
        r = self.s.call("PATCH", at, {"visibility": "private"}, self.key)
        self.assertEqual(r.status, 200, r)
        until("it is private again", lambda: self.infer(m, self.other).status == 404)
        self.assertEqual(self.s.call("PATCH", "/api/v1/models/none", {"visibility": "shared"},
                                     self.key).status, 404)

    # ------------------------------------------------------------ load and unload
    def test_an_unloaded_version_leaves_and_comes_back(self):
        m = self.model()
        self.assertEqual(self.infer(m).status, 200)
        r = self.do("unload", m, 1)
        self.assertEqual(r.status, 202, r)
        self.assertIn(r.json["state"], ("UNLOADING", "UNLOADED"))  # it may be that fast
        v = self.state(m, "UNLOADED")
        self.assertEqual(v["reason_code"], "UNLOADED")
        until("the API knows it", lambda: "UNLOADED" in self.infer(m).error)
        r = self.infer(m)
        self.assertEqual((r.status, r.json["reason_code"]), (409, "UNLOADED"), r)
        self.assertIn("load it", r.error)
        self.assertNotIn("again in", r.error)
        self.assertNotIn("retry-after", r.headers)  # asking again would never help
        until("its placement is gone", lambda: self.get(m, below="/placements").json["placements"] == [])
        self.assertEqual(self.do("unload", m, 1).status, 202)  # is so already
        r = self.do("pin", m, 1)
        self.assertEqual((r.status, r.code), (409, "CONFLICT"), r)
        self.assertIn("READY", r.error)
        r = self.do("load", m, 1)
        self.assertEqual(r.status, 202)
        self.assertIsNone(r.json["reason"])
        self.state(m, "READY")
        self.assertEqual(self.infer(m).status, 200)
        self.assertEqual(self.do("load", m, 1).status, 202)

    def test_what_a_model_was_asked_in_the_last_minute_is_shown(self):
        name = self.model()

        def traffic(key=self.key):
            return self.s.call("GET", "/api/v1/models/" + name, key=key).json["traffic"]
        t = until("the scheduler has said something", traffic)
        self.assertEqual((t["requests"], t["per_s"], t["p50_ms"], t["p99_ms"]), (0, 0, None, None))
        for _ in range(20):
            self.assertEqual(self.infer(name).status, 200)
        self.assertEqual(self.s.infer(self.key, name, []).status, 400)  # no answer
        t = until("they are counted", lambda: (lambda t: t["requests"] >= 20 and t)(traffic()))
        self.assertEqual(t["requests"], 20)
        self.assertAlmostEqual(t["per_s"], 20 / t["window_s"], delta=0.1 * t["per_s"])
        self.assertTrue(0 < t["p50_ms"] <= t["p99_ms"] < 60e3, t)
        for command in ("get", "models"), ("status",):
            for run in self.s.cli, self.s.cli_on_terminal:
                table = run(*command, env={"SHUNT_KEY": self.key}).decode().splitlines()
                head = next(x for x in table if "REQ/S" in x)
                row = next(x for x in table if name in x.split())
                self.assertGreater(float(row[head.index("REQ/S"):].split()[0]), 0, table)
            self.assertLessEqual(max(map(len, table)), 80, table)
        # What others ask of a shared one is no business of who may use it.
        self.assertEqual(self.s.call("PATCH", "/api/v1/models/" + name, {"visibility": "shared"}, self.key).status, 200)
        until("it is shared", lambda: self.infer(name, self.other).status == 200)
        self.assertIsNone(traffic(self.other))
        until("their requests count", lambda: traffic()["requests"] == 21)

    def test_while_it_is_being_loaded_the_answer_says_to_wait(self):
        m = self.model()
        self.target(m, latency_ms=60000)
        self.do("unload", m, 1)
        self.state(m, "UNLOADED")
        self.refuses(m)
        before = self.attained(m)["requests"]
        self.refuses(m)
        self.assertEqual(self.attained(m)["requests"], before)  # its owner's wish is no miss
        scheduler = self.s.pid("scheduler")
        os.kill(scheduler, signal.SIGSTOP)  # so that it stays on its way
        try:
            r = self.do("load", m, 1)
            self.assertEqual((r.status, r.json["state"]), (202, "REGISTERED"), r)
            r = self.infer(m)
            self.assertEqual((r.status, r.code), (503, "UNAVAILABLE"), r)
            self.assertIn("is being loaded (REGISTERED); try again", r.error)
            self.assertGreaterEqual(int(r.headers["retry-after"]), 1)
        finally:
            os.kill(scheduler, signal.SIGCONT)
        until("it answers again", lambda: self.infer(m).status == 200)

    def test_a_change_of_mind_in_the_middle_ends_loaded(self):
        m = self.model()
        for _ in range(20):
            for _ in range(3):
                self.assertEqual(self.do("unload", m, 1).status, 202)
                self.assertEqual(self.do("load", m, 1).status, 202)
            until("it answers again", lambda: self.infer(m).status == 200, 20)
        self.state(m, "READY")
        self.place(m, lambda p: p["state"] == "READY" and p["host_bytes"] > 0)

    def test_what_no_executor_can_load_any_more_says_why(self):
        """In the database it stays READY: only the executors know."""
        packages = os.path.join(self.s.state, "blobs/packages")
        before = set(os.listdir(packages))
        self.s.push(self.key, "gone", onnx.linear(5, 7))
        self.addCleanup(self.s.call, "DELETE", "/api/v1/models/gone", key=self.key)
        package, = set(os.listdir(packages)) - before
        with self.s.held():
            old = self.s.kill("executor-cpu0")
            shutil.rmtree(os.path.join(packages, package))
        self.s.wait_new("executor-cpu0", old)
        reason = self.state("gone", "FAILED")["reason"]
        self.assertTrue(reason)
        r = self.s.call("POST", "/v2/repository/models/gone/load", key=self.key)
        self.assertEqual(r.status, 409, r)
        self.assertIn(reason, r.error)

    def test_a_whole_model_is_unloaded_and_requests_go_to_what_is_left(self):
        m = self.model(versions=2)
        self.do("unload", m, 2)
        self.state(m, "UNLOADED", 2)
        self.answers(m, "1")
        self.assertEqual(self.do("unload", m).status, 202)
        for v in (1, 2):
            self.state(m, "UNLOADED", v)
        self.refuses(m)
        self.assertEqual(self.do("load", m).status, 202)
        for v in (1, 2):
            self.state(m, "READY", v)
        self.answers(m, "2")

    def test_an_unloaded_version_stays_so_over_restarts(self):
        m = self.model()
        self.do("unload", m, 1)
        self.state(m, "UNLOADED")
        for name in ("executor-cpu0", "scheduler"):
            self.s.wait_new(name, self.s.kill(name))
        other = self.model()
        until("everything is up again", lambda: self.infer(other).status == 200)
        self.assertEqual(self.get(m).json["state"], "UNLOADED")
        self.refuses(m)
        self.do("load", m, 1)
        self.state(m, "READY")

    def test_what_is_not_there_cannot_be_loaded(self):
        m = self.model()
        self.assertEqual(self.do("load", "nothing", 1).status, 404)
        self.assertEqual(self.do("load", m, 9).status, 404)
        self.assertEqual(self.s.call("POST", "/api/v1/models/%s/versions/x/load" % m,
                                     key=self.key).status, 404)
        r = self.s.call("POST", "/api/v1/models/%s/versions" % m, {}, self.key)
        r = self.do("load", m, r.json["version"])
        self.assertEqual((r.status, r.code), (409, "CONFLICT"), r)
        self.assertIn("UPLOADING", r.error)
        infer_only = self.s.key("vision", "infer")
        self.assertEqual(self.do("load", m, 1, key=infer_only).status, 403)

    def test_series_of_a_deleted_model_go_and_a_new_one_begins_at_0(self):
        m = self.model()

        def series():
            return {(p, x): n for p in ("api", "scheduler", "executor-cpu0")
                    for x, n in self.s.metrics(p).items() if 'model="%s"' % m in x}

        def ask():
            until("it answers", lambda: self.infer(m).status == 200)
            return until("all three have counted it", lambda: (x := series()) and
                         {p for p, _ in x} == {"api", "scheduler", "executor-cpu0"} and x)
        ask()
        ask()
        for at in ("/versions/1", ""):
            r = self.s.call("DELETE", "/api/v1/models/%s%s" % (m, at), key=self.key)
            self.assertEqual(r.status, 204, r)
        until("no process shows it any more", lambda: not series())
        self.s.push(self.key, m, self.net)
        self.assertEqual(ask()["api", 'shunt_requests_total{tenant="vision",model="%s",'
                                      'outcome="ok"}' % m], 1)

    # ------------------------------------------------------------ latency targets
    def target(self, model, **fields):
        r = self.s.call("PUT", "/api/v1/models/%s/slo" % model, fields, self.key)
        self.assertEqual(r.status, 200, r)

    def attained(self, model, window="5m"):
        r = self.s.call("GET", "/api/v1/models/%s/slo/attainment?window=%s" % (model, window),
                        key=self.key)
        self.assertEqual(r.status, 200, r)
        return r.json

    def outcomes(self, model, window="5m"):
        a = self.attained(model, window)
        return a["met"], a["missed"], a["rejected"]

    def test_what_happens_at_a_miss_is_as_the_target_says(self):
        m = self.model()
        self.target(m, latency_ms=60000, percentile=90)
        none = self.attained(m)
        self.assertEqual((none["requests"], none["attained_percent"], none["p99_ms"],
                          none["error_budget_left"]), (0, None, None, 1))
        until("the target counts", lambda: self.infer(m).status == 200 and
              self.outcomes(m)[0] > 0)
        met = self.outcomes(m)[0]

        def switched(on_miss, want):
            self.target(m, latency_ms=0.001, percentile=90, on_miss=on_miss)
            return until("%s counts" % on_miss, lambda: self.infer(m).status == want)
        switched("reject", 503)
        r = self.infer(m)
        self.assertEqual((r.status, r.code), (503, "SLO"), r)
        self.assertNotIn("retry-after", r.headers)  # no model is that fast
        self.assertRegex(r.error, r"deadline of 0\.001 ms cannot be met: the result is expected after "
                                  r"\d+\.\d+ ms; the model alone takes longer .* asking again does not help")
        self.assertGreaterEqual(r.json["predicted_ms"], 1)
        for on_miss in ("delay", "best-effort"):
            before = self.outcomes(m)
            switched(on_miss, 200)
            # The scheduler knows it; the API, which counts by the target, may hear of it later.
            until("a miss counts", lambda: self.infer(m).status == 200 and
                  self.outcomes(m)[1] > before[1])
            before = self.outcomes(m)
            self.assertEqual(self.infer(m).status, 200)
            after = self.outcomes(m)
            self.assertEqual((after[1] - before[1], after[2] - before[2]), (1, 0))
        a = self.attained(m, "1h")
        self.assertGreaterEqual(a["met"], met)
        self.assertEqual(a["requests"], a["met"] + a["missed"] + a["rejected"])
        self.assertAlmostEqual(a["attained_percent"], 100 * a["met"] / a["requests"], places=6)
        self.assertAlmostEqual(a["error_budget_left"],
                               1 - (a["missed"] + a["rejected"]) / (0.1 * a["requests"]), places=6)
        self.assertTrue(0 < a["p50_ms"] <= a["p95_ms"] <= a["p99_ms"], a)
        r = self.infer("nothing")
        self.assertEqual(r.status, 404)
        r = self.s.call("POST", "/v2/models/%s/infer" % m, {"inputs": []}, self.key)
        self.assertEqual(r.status, 400)  # a client's own mistake is no matter of the target
        self.assertEqual(self.attained(m, "1h")["requests"], a["requests"])

    def test_counts_outlive_the_process_that_counted(self):
        m = self.model()
        self.target(m, latency_ms=60000)
        until("the target counts", lambda: self.infer(m).status == 200 and
              self.outcomes(m)[0] > 0)
        for _ in range(5):
            self.infer(m)
        before = self.outcomes(m)  # written by the question itself
        old = self.s.kill("api")
        self.s.wait_new("api", old)

        def up():
            try:
                return self.infer(m).status == 200
            except OSError:
                return False
        until("the API answers", up)
        until("all counts", lambda: self.outcomes(m)[0] > before[0])
        old = self.s.kill("api", signal.SIGTERM)  # writes what it has
        self.s.wait_new("api", old)
        until("the API answers", up)
        self.assertGreaterEqual(self.outcomes(m)[0], before[0] + 2)

    def test_questions_about_targets_that_make_no_sense(self):
        m = self.model()
        at = "/api/v1/models/%s/slo/attainment" % m
        self.assertEqual(self.s.call("GET", at, key=self.key).status, 404)
        self.target(m, latency_ms=5)
        self.assertEqual(self.s.call("GET", at, key=self.key).json["window"], "1h")
        r = self.s.call("GET", at + "?window=2h", key=self.key)
        self.assertEqual(r.status, 400)
        self.assertIn("5m, 1h, 1d", r.error)
        self.assertEqual(self.s.call("GET", at, key=self.other).status, 404)

    # ------------------------------------------------------------ pins
    def test_a_pinned_version_is_held_kept_and_cannot_be_taken_away(self):
        m = self.model()
        r = self.do("pin", m, 1)
        self.assertEqual((r.status, r.json["pinned"]), (200, True), r)
        image = r.json["image_bytes"]
        held = self.place(m, lambda p: p["pin"] == "held")
        self.assertEqual((held["state"], held["device_bytes"]), ("READY", image))
        failed = self.s.push(self.key, m, b"no model", ready=False)  # in nobody's way
        self.assertEqual(failed.status, 400, failed)
        for version in (1, None):
            r = self.do("unload", m, version)
            self.assertEqual((r.status, r.code), (409, "CONFLICT"), r)
            self.assertIn("version 1 of \"%s\" is READY: it is pinned, so it stays loaded; unpin it"
                          % m, r.error)
        r = self.do("load", m, 2)
        self.assertEqual((r.status, r.code), (409, "CONFLICT"), r)
        self.assertIn("it has no file; upload one first", r.error)
        self.assertEqual(self.do("pin", m).status, 200)  # is so already
        for below in ("/versions/1", ""):
            r = self.s.call("DELETE", "/api/v1/models/" + m + below, key=self.key)
            self.assertEqual((r.status, r.code), (409, "CONFLICT"), r)
            self.assertIn("unpin it first", r.error)
        self.s.wait_new("executor-cpu0", self.s.kill("executor-cpu0"))  # a pin outlives what held it
        self.place(m, lambda p: p["pin"] == "held" and p["device_bytes"] == image)
        self.assertEqual(self.do("unpin", m, 1).json["pinned"], False)
        self.place(m, lambda p: p["pin"] == "none")
        self.assertEqual(self.s.call("DELETE", "/api/v1/models/" + m, key=self.key).status, 204)

    def test_pins_are_bounded_by_the_quota(self):
        key = self.s.tenant("small")
        self.s.push(key, "a", self.net)
        image = self.s.push(key, "b", self.net).json["image_bytes"]
        quota = "/api/v1/tenants/small/quota"
        r = self.s.call("PUT", quota, {"gpu_memory_max_bytes": image + image // 2}, self.s.admin)
        self.assertEqual(r.status, 200, r)
        self.assertEqual(self.do("pin", "a", 1, key=key).status, 200)
        self.assertEqual(self.do("pin", "a", 1, key=key).status, 200)  # counts once
        r = self.do("pin", "b", 1, key=key)
        self.assertEqual((r.status, r.code), (429, "QUOTA"), r)
        self.assertIn("gpu_memory_max_bytes", r.error)
        self.assertIn(str(2 * image), r.error)
        self.assertEqual(self.do("unpin", "a", key=key).status, 200)
        self.assertEqual(self.do("pin", "b", key=key).status, 200)

    # ------------------------------------------------------------ what people see
    def test_placements_follow_what_happens(self):
        m = self.model()
        first = self.place(m, lambda p: p["state"] == "READY" and p["host_bytes"] > 0)
        self.assertEqual((first["executor"], first["last_use_at"]), ("cpu0", None))
        self.assertEqual(first["disk_bytes"], self.get(m).json["bytes"])
        self.assertEqual(self.infer(m).status, 200)
        used = self.place(m, lambda p: p["last_use_at"])
        self.assertGreater(used["device_bytes"], 0)
        self.assertEqual(self.get(m, below="/placements", key=self.other).status, 404)
        self.assertEqual(self.get(m, 9, "/placements").status, 404)
        os.kill(self.s.pid("executor-cpu0"), signal.SIGKILL)
        until("nothing is shown of an executor that is gone",
              lambda: self.get(m, below="/placements").json["placements"] == [])
        self.place(m, lambda p: p["state"] == "READY" and p["last_use_at"] is None)

    def test_the_profile_is_what_was_measured(self):
        m = self.model(max_batch=4)

        def lines():
            r = self.get(m, below="/profile")
            return {b["batch"]: b for b in r.json["batches"]}
        at_first = until("a first profile", lines)
        self.assertEqual(sorted(at_first), [1, 2, 4])
        self.assertEqual({b["source"] for b in at_first.values()}, {"profile"})
        self.assertIsNone(at_first[1]["p50_ms"])
        self.s.call("PUT", "/api/v1/models/%s/slo" % m, {"latency_ms": 3e6, "percentile": 50},
                    self.key)
        for _ in range(30):
            self.assertEqual(self.infer(m).status, 200)
        got = until("thirty runs", lambda: lines()[1]["runs"] == 30 and lines()[1])
        self.assertTrue(20 < got["recent"] <= 30, got)  # the first brought its weights
        self.assertLessEqual(got["p50_ms"], got["p99_ms"])
        r = self.get(m, below="/profile")
        self.assertEqual(r.json["percentile"], 50)
        if got["source"] == "runs":  # near the median, as the target says; the last ones count more, stretched
            self.assertTrue(got["p50_ms"] / 2 <= got["predicted_ms"] <= 2 * got["p99_ms"], got)
        self.assertEqual(lines()[4]["runs"], 0)

    # ------------------------------------------------------------ files with a batch of their own
    @staticmethod
    def fixed(batch):
        """x [batch, 4], k [batch, 2] -> y [batch, 3] = x W + b, s = k; batch "N": any."""
        w = [0.1 * (i * 7 % 11 - 5) for i in range(12)]
        return onnx.model([onnx.node("Gemm", ["x", "w", "b"], ["y"]), onnx.node("Identity", ["k"], ["s"])],
                          [onnx.value("x", [batch, 4]), onnx.value("k", [batch, 2], onnx.INT64)],
                          [onnx.value("y", [batch, 3]), onnx.value("s", [batch, 2], onnx.INT64)],
                          [onnx.tensor("w", [4, 3], w), onnx.tensor("b", [3], [0.5, 0.0, -0.5])])

    @staticmethod
    def trainable(batch):
        return onnx.model([onnx.node("Gemm", ["x", "w", "b"], ["y"])], [onnx.value("x", [batch, 4])],
                          [onnx.value("y", [batch, 3])],
                          [onnx.tensor("w", [4, 3], [0.1 * (i % 5) for i in range(12)]),
                           onnx.tensor("b", [3], [0.0] * 3)])

    @staticmethod
    def samples(n):
        return {"x": ("F32", [n, 4], struct.pack("<%df" % (4 * n), *(0.37 * (i % 13) - 2 for i in range(4 * n)))),
                "k": ("I64", [n, 2], struct.pack("<%dq" % (2 * n), *range(2 * n))),
                "label": ("I64", [n], struct.pack("<%dq" % n, *(i % 3 for i in range(n))))}

    def ask(self, model, rows, **kw):
        t = self.samples(40)
        x = struct.unpack("<160f", t["x"][2])[:4 * rows]
        return self.s.infer(self.key, model, [
            {"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": list(x)},
            {"name": "k", "datatype": "INT64", "shape": [rows, 2], "data": list(range(2 * rows))}], **kw)

    def local(self, *args):
        """`shunt` as the tenant: output and errors together, and its exit status."""
        r = subprocess.run([os.path.join(BIN, "shunt"), *args, "--state-dir", self.s.state], check=False,
                           env={**self.s.env, "SHUNT_KEY": self.key}, timeout=180, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return r.returncode, r.stdout

    def test_a_file_that_fixes_its_batch_is_served_with_it(self):
        self.s.push(self.key, "any", self.fixed("N"), max_batch=32)
        self.s.push_data(self.key, "ten", st_bytes(self.samples(10)))
        data = os.path.join(self.s.dir, "ten.safetensors")
        with open(data, "wb") as f:
            f.write(st_bytes(self.samples(10)))
        out = {}
        for b in ("any", 1, 4, 7, 32):
            name = str(b)
            if b != "any":
                v = self.s.push(self.key, "fixed-%s" % b, self.fixed(b)).json
                self.assertEqual((v["max_batch"], v["meta"].get("max_batch_named")), (b, None))
                name = "fixed-%d" % b
                want, got = self.ask("any", b), self.ask(name, b)
                self.assertEqual(got.status, 200, got)
                for w, g in zip(want.json["outputs"], got.json["outputs"]):
                    self.assertEqual(g["shape"], w["shape"])
                    for x, y in zip(w["data"], g["data"]):
                        self.assertAlmostEqual(x, y, places=5)
                r = self.ask(name, b + 1)
                self.assertEqual((r.status, "the model wants [%d,4]" % b in r.error.replace(", ", ",")),
                                 (400, True), r)
            # The last run of a dataset of ten is not full, nor is the last request for its rows.
            r = self.s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": name, "dataset": "ten",
                                                     "spec": {}}, self.key)
            self.assertEqual(r.status, 201, r)
            self.assertEqual(self.s.wait_job(self.key, r.json["id"])["state"], "SUCCEEDED")
            got = self.s.call("GET", "/api/v1/jobs/%d/result/artifact" % r.json["id"], key=self.key).raw
            n = struct.unpack("<Q", got[:8])[0]
            y = json.loads(got[8:8 + n])["y"]["data_offsets"]
            out[name] = struct.unpack("<30f", got[8 + n + y[0]:8 + n + y[1]])
            for a, c in zip(out["any"], out[name]):
                self.assertAlmostEqual(a, c, places=5)
            if b == 32:
                rc, text = self.local("infer", name, "--inputs", data)
                self.assertEqual((rc, "takes 32 rows at once" in text), (2, True), text)
            else:
                rc, text = self.local("infer", name, "--inputs", data, "-o", "json")
                self.assertEqual(rc, 0, text)
                got = json.loads(text)
                self.assertEqual(got["outputs"][0]["rows"], 10)
                self.assertEqual(got["classes"], [max(range(3), key=out["any"][3 * i:3 * i + 3].__getitem__)
                                                  for i in range(10)])
        rc, text = self.local("infer", "fixed-32", "--random", "1")
        self.assertEqual(rc, 0, text)

    def test_another_batch_than_the_file_has_is_refused_with_what_to_do(self):
        r = self.s.push(self.key, "named", self.fixed(4), ready=False, max_batch=8)
        self.assertEqual((r.status, r.code), (400, "INVALID"), r)
        for part in ("fixed batch of 4", "max_batch of 8", "--max-batch", "dynamic first axis"):
            self.assertIn(part, r.error)
        self.assertEqual(self.s.push(self.key, "named", self.fixed(4), max_batch=4).json["max_batch"], 4)
        r = self.s.push(self.key, "huge", self.fixed(2048), ready=False)
        self.assertEqual((r.code, "2048" in r.error), ("UNSUPPORTED", True), r)
        with open(os.path.join(self.s.dir, "four.onnx"), "wb") as f:
            f.write(self.fixed(4))
        rc, text = self.local("push", "model", "wrong", f.name, "--max-batch", "8")
        self.assertEqual((rc, "--max-batch" in text), (1, True), text)
        self.assertEqual(self.s.call("GET", "/api/v1/models/wrong", key=self.key).status, 404)
        rc, text = self.local("push", "model", "right", f.name, "--wait")
        self.assertEqual(rc, 0, text)

    def test_a_push_says_what_who_trains_it_should_know(self):
        """Norms that share ones by chance are trained apart; what an exporter computed is not trained."""
        def norms(x, y, n):
            return onnx.node("LayerNormalization", [x, "ones", "zeros"], [y], name="n%d" % n)

        shape = [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 4])]
        apart = onnx.model([norms("x", "h", 0), norms("h", "y", 1)], *shape,
                           [onnx.tensor("ones", [4], [1.0] * 4), onnx.tensor("zeros", [4], [0.0] * 4)])
        lost = onnx.model([onnx.node("Conv", ["x", "onnx::Conv_7", "conv.bias"], ["y"])],
                          [onnx.value("x", ["N", 4, 6, 6])], [onnx.value("y", ["N", 4, 4, 4])],
                          [onnx.tensor("onnx::Conv_7", [4, 4, 3, 3], [0.01 * (i * 7 % 11 - 5) for i in range(144)]),
                           onnx.tensor("conv.bias", [4], [0.5, 0.25, 0.125, 1.0])])
        for name, file, says in (("apart", apart, "When it is trained: "), ("lost", lost, "It cannot be trained: "),
                                 ("plain", onnx.linear(), "")):
            with open(os.path.join(self.s.dir, name + ".onnx"), "wb") as f:
                f.write(file)
            rc, text = self.local("push", "model", name, f.name)
            self.assertEqual(rc, 0, text)
            meta = self.get(name).json["meta"]
            self.assertEqual((says in text, "trained" in text), (True, bool(says)), (text, meta))
            self.assertIs(meta["training_warns"], bool(says), meta)

    def test_requests_are_not_put_together_where_samples_meet(self):
        meets = onnx.model([onnx.node("Softmax", ["x"], ["y"], name="over_all", axis=0)],
                           [onnx.value("x", ["n", 2])], [onnx.value("y", ["n", 2])], [])
        r = self.s.push(self.key, "meets-16", meets, ready=False, max_batch=16)
        self.assertEqual((r.code, "12 samples" in r.error), ("UNSUPPORTED", True), r)
        self.s.push(self.key, "meets", meets, max_batch=5)
        meta = self.get("meets").json["meta"]
        self.assertEqual((meta["solo"], "Softmax node over_all" in meta["solo_note"]), (True, True), meta)
        rc, text = self.local("explain", "meets")
        self.assertEqual((rc, "runs by itself" in text, "over_all" in text), (0, True, True), text)

        def ask(n):
            return n, self.s.infer(self.key, "meets", [{"name": "x", "datatype": "FP32", "shape": [n, 2],
                                                        "data": [0.0] * 2 * n}])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for n, r in pool.map(ask, [1, 2, 3, 5, 1, 4, 3, 2] * 4):
                self.assertEqual(r.status, 200, r)
                for got in r.json["outputs"][0]["data"]: # of so many rows, and no row of zeros beside them
                    self.assertAlmostEqual(got, 1 / n, places=5)
        self.s.push_data(self.key, "rows", st_bytes({"x": ("F32", [3, 2], bytes(24))}))
        r = self.s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "meets", "dataset": "rows",
                                                 "spec": {}}, self.key)
        self.assertEqual((r.code, "may affect each other" in r.error), ("UNSUPPORTED", True), r)

    def test_training_has_the_batch_of_the_file(self):
        self.s.push_data(self.key, "few", st_bytes(self.samples(10)))
        job = {"dataset": "few", "eval_dataset": "few"}
        for b in (1, 4):
            name = "trained-%d" % b
            self.s.push(self.key, name, self.trainable(b))
            r = self.s.submit(self.key, model=name, **job)
            self.assertEqual(r.status, 400, r)
            for part in ("spec.batch", "is 32", "fixed batch of %d" % b):
                self.assertIn(part, r.error)
            r = self.s.submit(self.key, model=name, **job, spec={"batch": None})
            self.assertEqual((r.status, r.json["spec"]["batch"]), (201, b), r)
            done = self.s.wait_job(self.key, r.json["id"])
            self.assertEqual((done["state"], done["steps"]), ("SUCCEEDED", 2 * (10 // b)), done)
            self.assertEqual(done["result"]["version"], 2)
            self.state(name, "READY", 2)
            self.assertEqual(self.get(name, 2).json["max_batch"], b)
            r = self.s.infer(self.key, name, [{"name": "x", "datatype": "FP32", "shape": [b, 4],
                                               "data": [0.25] * 4 * b}])
            self.assertEqual(r.status, 200, r)
        self.s.push(self.key, "odd", onnx.model(
            [onnx.node("Gemm", ["x", "w"], ["a"]), onnx.node("Add", ["a", "c"], ["y"])],
            [onnx.value("x", [4, 4]), onnx.value("c", [1, 3])], [onnx.value("y", [4, 3])],
            [onnx.tensor("w", [4, 3], [0.1] * 12)]))
        r = self.s.submit(self.key, model="odd", **job)
        self.assertEqual((r.code, "the first axis of input \"c\"" in r.error), ("UNSUPPORTED", True), r)
        r = self.s.infer(self.key, "odd", [
            {"name": "x", "datatype": "FP32", "shape": [4, 4], "data": [1.0] * 16},
            {"name": "c", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]}])
        self.assertEqual(r.status, 200, r)
        for got, want in zip(r.json["outputs"][0]["data"], [1.4, 2.4, 3.4] * 4):
            self.assertAlmostEqual(got, want, places=5)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
