#!/usr/bin/env python3
"""Aliases of models against a running system: shares of versions, promotion under load, the way back, a way
back by itself, training that publishes to one, tenants apart, hostile names.

Without it: a canary could get any share of the requests, a promotion could lose some of them, an alias
could serve what nobody chose, and a canary that fails could go on failing.

Usage: test_aliases.py [-v] [name ...]
"""
import collections
import http.client
import json
import math
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import WAIT_S, Story, System, st_bytes, until  # noqa: E402

X = [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]
BODY = json.dumps({"inputs": X}).encode()


class Client:
    """One connection that stays, as those who send many requests have."""

    def __init__(self, s, key):
        self.c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=WAIT_S)
        self.key = key

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.close()

    def infer(self, model, choice=None, **headers):
        """(status, version that served, or what was said)"""
        path = "/v2/models/%s%s/infer" % (model, "/versions/" + choice if choice else "")
        self.c.request("POST", path, BODY, {"Authorization": "Bearer " + self.key, "Content-Type":
                                            "application/json", **headers})
        r = self.c.getresponse()
        got = json.loads(r.read())
        return r.status, got["model_version"] if r.status == 200 else got


class Aliases(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        for weight in (0.1, 0.2):
            s.push(cls.key, "lin", onnx.linear(weight=weight))

    def alias(self, method, name, body=None, below="", model="lin", key=None, want=200):
        r = self.s.call(method, "/api/v1/models/%s/aliases/%s%s" % (model, name, below), body,
                        key or self.key)
        self.assertEqual(r.status, want, r)
        return r.json

    def put(self, name, *targets, model="lin", **more):
        return self.alias("PUT", name, {"targets": [{"version": v, "weight": w} for v, w in targets], **more},
                          model=model)

    def promote(self, name, model="lin", want=200, **body):
        return self.alias("POST", name, body, "/promote", model, want=want)

    def served(self, choice=None, n=1, model="lin", **headers):
        """How many of n requests each version served."""
        with Client(self.s, self.key) as c:
            got = [c.infer(model, choice, **headers) for _ in range(n)]
        self.assertEqual([g for g in got if g[0] != 200], [])
        return collections.Counter(v for _, v in got)

    def test_shares_follow_the_weights(self):
        self.put("split", (1, 9), (2, 1))
        got = self.served("split", 1000)
        # Five sigma: 47 of 1,000.
        self.assertLess(abs(got["2"] - 100), 5 * math.sqrt(1000 * 0.1 * 0.9), got)
        self.assertEqual(sum(got.values()), 1000)
        # What a request is is said by its id: the same one has the same version.
        for i in range(20):
            self.assertEqual(len(self.served("split", 3, **{"X-Request-ID": "r%d" % i})), 1)

    def test_a_session_stays_with_its_version(self):
        self.put("half", (1, 1), (2, 1))
        versions = set()
        for i in range(20):
            got = self.served("half", 4, **{"Shunt-Session": "user-%d" % i})
            self.assertEqual(len(got), 1, got)
            versions |= set(got)
        self.assertEqual(versions, {"1", "2"})
        self.assertEqual(len(self.served("half", 40)), 2)
        self.put("half", (1, 1), (2, 1), sticky=True)  # by its key now
        until("it is sticky", lambda: len(self.served("half", 40)) == 1)
        with Client(self.s, self.key) as c:
            self.assertEqual(c.infer("lin", "half", **{"Shunt-Session": "x" * 256})[0], 400)

    def test_promotion_under_load_fails_no_request_and_there_is_a_way_back(self):
        s = self.s
        s.push(self.key, "moved", onnx.linear(weight=0.1))
        self.promote("stable", "moved", version=1)
        # Without a version it is the alias stable now: what comes next does not serve by itself.
        s.push(self.key, "moved", onnx.linear(weight=0.2))
        self.assertEqual(self.served(model="moved", n=5), {"1": 5})
        stop, got = threading.Event(), []

        def ask():
            with Client(s, self.key) as c:
                while not stop.is_set():
                    got.append(c.infer("moved"))
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for t in threads:
            t.start()
        try:
            until("requests", lambda: len(got) > 100)
            # A third one is named before it is loaded: until then the one before serves.
            s.push(self.key, "moved", onnx.linear(weight=0.3), ready=False)
            self.promote("stable", "moved", version=3)
            until("3 serves", lambda: (200, "3") in got[-20:])
            self.promote("stable", "moved", version=2)
            until("2 serves", lambda: (200, "2") in got[-20:])
            self.alias("POST", "stable", None, "/rollback", "moved")
            until("3 serves again", lambda: (200, "3") in got[-3:])
            n = len(got)
            until("and nothing else", lambda: len(got) > n + 100)
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.assertEqual([g for g in got if g[0] != 200], [])
        self.assertEqual({v for _, v in got[n + 10:]}, {"3"})
        self.assertIn((200, "1"), got)
        r = self.alias("POST", "stable", None, "/rollback", "moved", want=409)
        self.assertIn("nothing to go back to", r["detail"])

    def test_a_promotion_takes_what_another_alias_serves(self):
        self.put("canary", (2, 1))
        self.put("now", (1, 1))
        a = self.promote("now", **{"from": "canary"})
        self.assertEqual([a["targets"], a["previous"]], [[{"version": 2, "weight": 1}],
                                                         [{"version": 1, "weight": 1}]])
        again = self.promote("now", **{"from": "canary"})  # repeating it changes nothing
        self.assertEqual(again["previous"], a["previous"])
        self.promote("now", want=404, **{"from": "nobody"})
        self.promote("now", want=400)
        self.promote("now", want=400, version=1, **{"from": "canary"})
        model = self.s.call("GET", "/api/v1/models/lin", key=self.key).json
        self.assertIn("canary", [a["name"] for a in model["aliases"]])

    def test_the_protocol_takes_an_alias_where_a_version_stands(self):
        self.put("proto", (2, 5), (1, 1))
        at = "/v2/models/lin/versions/proto"
        for below in ("", "/config", "/stats"):
            self.assertEqual(self.s.call("GET", at + below, key=self.key).status, 200, below)
        until("it is ready", lambda: self.s.call("GET", at + "/ready", key=self.key).status == 200)
        self.assertEqual([v["version"] for v in self.s.call("GET", at + "/stats", key=self.key).json["model_stats"]],
                         ["2"])

    def test_a_version_that_is_named_is_not_deleted(self):
        self.s.push(self.key, "kept", onnx.linear())
        self.s.push(self.key, "kept", onnx.linear(weight=0.2))
        self.put("stable", (2, 1), model="kept")
        at = "/api/v1/models/kept/versions/2"
        r = self.s.call("DELETE", at, key=self.key)
        self.assertEqual([r.status, r.code], [409, "CONFLICT"], r)
        self.assertIn('the alias "stable" names version 2', r.error)
        self.alias("DELETE", "stable", model="kept", want=204)
        self.assertEqual(self.s.call("DELETE", at, key=self.key).status, 204)
        self.alias("PUT", "stable", {"targets": [{"version": 2}]}, model="kept", want=409)
        # Unloaded by somebody: nothing else serves in its place.
        self.s.push(self.key, "kept", onnx.linear(weight=0.3))
        self.put("stable", (1, 1), model="kept")
        self.put("stable", (3, 1), model="kept")
        self.s.call("POST", "/api/v1/models/kept/versions/3/unload", key=self.key)
        with Client(self.s, self.key) as c:
            until("it is refused", lambda: c.infer("kept")[0] == 409)
        self.assertEqual(self.s.call("DELETE", "/api/v1/models/kept", key=self.key).status, 204)

    def test_training_publishes_to_the_alias_that_its_user_names(self):
        s = self.s
        s.push(self.key, "taught", onnx.linear(64, 10))
        s.push_data(self.key, "few", st_bytes({"x": ("F32", [64, 64], bytes(64 * 256)),
                                               "label": ("I64", [64], bytes(512))}))
        self.promote("stable", "taught", version=1)

        def train(**spec):
            r = s.submit(self.key, model="taught", dataset="few", spec={"epochs": 1, "labels": "label", **spec})
            self.assertEqual(r.status, 201, r)
            return s.wait_job(self.key, r.json["id"], ("SUCCEEDED",))

        def version_of(name):
            a = self.alias("GET", name, model="taught")
            return [[t["version"] for t in a[k] or ()] for k in ("targets", "previous")]

        def ready(version):
            until("it is READY", lambda: s.call("GET", "/api/v1/models/taught/versions/%d" % version,
                                                key=self.key).json["state"] == "READY")
        x = [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}]
        # Nobody says what shall serve: the version is made, and nothing changes.
        self.assertEqual(train()["result"]["version"], 2)
        ready(2)
        self.assertEqual(s.infer(self.key, "taught", x).json["model_version"], "1")
        job = train(publish_as="canary")
        self.assertEqual([job["result"]["version"], job["result"]["alias"]], [3, "canary"])
        self.assertEqual([version_of("canary"), version_of("stable")], [[[3], []], [[1], []]])
        # Requests go over when it can answer them, and none fails until then.
        job = s.submit(self.key, model="taught", dataset="few", spec={"epochs": 1, "publish_as": "stable"}).json["id"]
        got = []
        until("4 serves", lambda: got.append(s.infer(self.key, "taught", x)) or got[-1].status != 200 or
              got[-1].json["model_version"] == "4")
        self.assertEqual({(r.status, r.json.get("model_version")) for r in got}, {(200, "1"), (200, "4")})
        self.assertEqual([version_of("stable"), version_of("canary")], [[[4], [1]], [[3], []]])
        rows = s.call("GET", "/api/v1/audit?action=alias&resource=model/taught/aliases/stable", key=s.admin).json
        self.assertEqual([(a["actor"], a["request_id"]) for a in rows["items"]][:1], [(None, "job-%d" % job)])
        for i in range(14):  # and no more
            self.promote("a%d" % i, "taught", version=1)
        self.assertEqual(train(publish_as="one-more")["result"]["alias"], None)
        self.alias("GET", "one-more", model="taught", want=404)
        for spec in ({"publish_as": "No. 1"}, {"publish_as": ""}, {"publish_as": 1},
                     {"publish_as": "canary", "publish": False}):
            r = s.submit(self.key, model="taught", dataset="few", spec=spec)
            self.assertEqual(r.status, 400, r)
            self.assertIn("publish_as", r.error)

    def test_hostile_names_and_bodies(self):
        for name in ("1", "Stable", "a%2Fb", "%00", "..", "a" * 64, "%C3%A4", "a_b", "x'--", "%3Cb%3E", "a%0Ab"):
            r = self.s.call("PUT", "/api/v1/models/lin/aliases/" + name, {"targets": [{"version": 1}]}, self.key)
            self.assertIn(r.status, (400, 404), (name, r))
            r = self.s.call("POST", "/v2/models/lin/versions/%s/infer" % name, BODY, self.key,
                            {"Content-Type": "application/json"})
            self.assertIn(r.status, (200,) if name == "1" else (400, 404), (name, r))
        for body in ({}, {"targets": []}, {"targets": [{"version": 1}, {"version": 1}]},
                     {"targets": [{"version": 1, "weight": 0}]}, {"targets": [{"version": 1}] * 9},
                     {"targets": [{"version": 2 ** 31}]}, {"targets": {"1": 1}}, {"targets": [{"version": 1}],
                                                                                  "rollback": {"window_s": 1}},
                     {"targets": [{"version": 1}], "more": 1}):
            self.alias("PUT", "bad", body, want=400)
        self.alias("PUT", "bad", {"targets": [{"version": 99}]}, want=409)
        self.alias("GET", "bad", want=404)
        r = self.s.call("POST", "/v2/models/lin/versions/bad/infer", BODY, self.key,
                        {"Content-Type": "application/json"})
        self.assertEqual(r.status, 404, r)
        self.assertIn('no model "lin" with an alias "bad"', r.error)

    def test_tenants_are_apart(self):
        s = self.s
        other, reader, asker = s.tenant("acme"), s.key("vision", "read"), s.key("vision", "infer")
        self.put("own", (1, 1))
        for method, name, body in (("GET", "own", None), ("PUT", "own", {"targets": [{"version": 2}]}),
                                   ("DELETE", "own", None)):
            self.alias(method, name, body, key=other, want=404)
            if method != "GET":
                self.alias(method, name, body, key=reader, want=403)
        self.alias("GET", "own", key=reader)
        self.alias("GET", "own", key=asker, want=403)
        with Client(s, other) as c:
            self.assertEqual(c.infer("lin", "own")[0], 404)
        # A shared one may be asked by its alias, and is changed by its owner alone.
        s.push(self.key, "open", onnx.linear())
        s.call("PATCH", "/api/v1/models/open", {"visibility": "shared"}, self.key)
        self.put("own", (1, 1), model="open")
        with Client(s, other) as c:
            until("it is served", lambda: c.infer("open", "own") == (200, "1"))
        self.alias("GET", "own", model="open", key=other)
        self.alias("PUT", "own", {"targets": [{"version": 1}]}, model="open", key=other, want=403)
        self.alias("POST", "own", None, "/rollback", "open", other, 403)

    def test_by_command(self):
        s = self.s
        for weight in (0.1, 0.2, 0.3):
            s.push(self.key, "said", onnx.linear(weight=weight))

        def shunt(*args):
            return s.cli("-n", "vision", *args).decode()
        self.assertEqual(json.loads(shunt("promote", "said", "1", "-o", "json"))["name"], "stable")
        shunt("set", "alias", "said:canary", "2=9", "3", "--auto-rollback", "--window-s", "60")
        table = shunt("get", "aliases", "said")
        self.assertRegex(table, r"canary +2=9, 3=1")
        self.assertEqual(self.alias("GET", "canary", model="said")["rollback"],
                         {"window_s": 60, "min_requests": 50, "error_percent": 5, "burn_rate": 10})
        shunt("promote", "said:stable", "canary")
        self.assertRegex(shunt("get", "aliases", "said"), r"stable +2=9, 3=1 +1 ")
        shunt("rollback", "said")
        self.assertEqual(self.served(model="said"), {"1": 1})
        self.assertIn("logits", shunt("infer", "said:canary", "--random", "1", "-o", "json"))
        shunt("delete", "alias", "said:canary")
        self.assertEqual(json.loads(shunt("get", "aliases", "said", "-o", "json"))[0]["name"], "stable")
        rows = json.loads(s.cli("get", "audit", "--action", "alias", "--resource", "model/said/aliases/stable",
                                "-o", "json"))
        self.assertEqual([r["action"] for r in rows], ["alias.rollback", "alias.promote", "alias.promote"])


class ByItself(Story):
    """Version 1 takes a millisecond, version 2 a quarter of a second; a request without a limit has 100 ms."""

    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", REQUEST_TIMEOUT_MS="100")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")

    def ask_until(self, what, model, done):
        """Requests, as they come elsewhere, until it is so; their answers."""
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 512], "datatype": "FP32", "data": [0.1] * 512}]})
        c = http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=WAIT_S)
        got = collections.Counter()

        def ask():
            for _ in range(10):
                c.request("POST", "/v2/models/%s/infer" % model, body, {
                    "Authorization": "Bearer " + self.key, "Content-Type": "application/json"})
                r = c.getresponse()
                said = json.loads(r.read())
                got[r.status, said.get("model_version")] += 1
            return done()
        try:
            until(what, ask)
        finally:
            c.close()
        return got

    def canary(self, model, layers, **rule):
        """Half of the requests for version 2, which has so many layers."""
        for n in (1, layers):
            self.s.push(self.key, model, onnx.chain(n, 512), max_batch=1)
        at = "/api/v1/models/%s/aliases/stable" % model
        for targets in ([{"version": 1}], [{"version": 1}, {"version": 2}]):
            r = self.s.call("PUT", at, {"targets": targets, "rollback": {
                "window_s": 600, "min_requests": 20, **rule}}, self.key)
            self.assertEqual(r.status, 200, r)
        return lambda: (a := self.s.call("GET", at, key=self.key).json)["rolled_back"] and a

    def is_told(self, model, code):
        """By the alias, the model, the audit log, a metric, the log and in words."""
        s = self.s
        model_of = s.call("GET", "/api/v1/models/" + model, key=self.key).json
        self.assertEqual(model_of["aliases"][0]["rolled_back"]["reason_code"], code)
        audit = s.call("GET", "/api/v1/audit?action=alias.rollback&resource=model/%s/aliases/stable" % model,
                       key=s.admin).json["items"]
        self.assertEqual([(a["actor"], a["tenant"]) for a in audit], [(None, "vision")])
        self.assertEqual(s.metrics("api")['shunt_alias_rollbacks_total{tenant="vision",model="%s"}' % model], 1)
        self.assertEqual(len([line for line in s.logged("api", "alias.rolled_back") if " model=%s " % model in line]), 1)
        self.assertIn("was rolled back by itself", s.cli("-n", "vision", "explain", model).decode())

    def test_a_canary_that_fails(self):
        rolled = self.canary("fails", 25000)
        got = self.ask_until("it is rolled back", "fails", rolled)
        self.assertGreater(got[504, None], 5, got)
        a = rolled()
        self.assertEqual([a["targets"], a["previous"]], [[{"version": 1, "weight": 1}], None])
        self.assertEqual(a["rolled_back"]["from"], [{"version": 1, "weight": 1}, {"version": 2, "weight": 1}])
        self.assertRegex(a["rolled_back"]["reason"], r"version 2 failed \d+\.\d % of \d+ requests")
        self.is_told("fails", "Errors")
        got = self.ask_until("more requests", "fails", lambda: True)
        self.assertEqual(set(got), {(200, "1")}, got)

    def test_another_tenant_cannot_roll_it_back(self):
        """Whoever gives its requests no time has errors that say nothing of the version."""
        s, key = self.s, self.s.tenant("guest")
        rolled = self.canary("lent", 2)
        s.call("PATCH", "/api/v1/models/lent", {"visibility": "shared"}, self.key)
        s.call("POST", "/api/v1/models/lent/aliases/stable/promote", {"version": 2}, self.key)
        body = {"parameters": {"timeout": 1},
                "inputs": [{"name": "x", "shape": [1, 512], "datatype": "FP32", "data": [0.1] * 512}]}
        s.call("PUT", "/api/v1/models/lent/slo", {"latency_ms": 10000, "percentile": 99}, self.key)
        until("it is served", lambda: s.call("GET", "/v2/models/lent/ready", key=key).status == 200)
        got = collections.Counter(s.call("POST", "/v2/models/lent/infer", body, key).status for _ in range(60))
        self.assertGreater(got[504] + got[503], 20, got)
        time.sleep(7)  # counts are written, and looked at, every 5 s
        self.assertIsNone(rolled(), rolled())

    def test_a_canary_that_misses_its_target(self):
        rolled = self.canary("slow", 2500, error_percent=0, burn_rate=1)
        r = self.s.call("PUT", "/api/v1/models/slow/slo", {"latency_ms": 15, "percentile": 50}, self.key)
        self.assertEqual(r.status, 200, r)
        self.ask_until("it is rolled back", "slow", rolled)
        self.assertRegex(rolled()["rolled_back"]["reason"], r"version 2 missed the latency target in \d+ of \d+ requ")
        self.is_told("slow", "ErrorBudget")


if __name__ == "__main__":
    unittest.main()
