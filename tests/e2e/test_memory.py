#!/usr/bin/env python3
"""Quotas of memory, as tenants feel them: what is kept for one is not taken by the images of another,
what needs more than its tenant may have is refused with the reason, and idle images leave the host's
memory for new ones.

Without it: gpu_memory_min_bytes, _share and _max_bytes could be numbers that nobody looks at, or bound
the wrong tenant; a job that can never fit could wait without a word; and a model that nobody has asked
for in a week could keep a new one out, or never come back.

Usage: test_memory.py [-v] [name ...]
"""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import Story, System, st_bytes, until  # noqa: E402

MIB = 1 << 20
FEATURES = 1024
X = [{"name": "x", "shape": [1, FEATURES], "datatype": "FP32", "data": [0.5] * FEATURES}]


class Memory(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", "--pool-bytes=32M")
        cls.addClassCleanup(s.stop)
        cls.net = onnx.linear(FEATURES, 2048)  # 8 MiB
        cls.anna, cls.berta = s.tenant("anna"), s.tenant("berta")
        s.push(cls.anna, "a", cls.net, max_batch=1)
        for n in "bcd":
            s.push(cls.berta, n, cls.net, max_batch=1)

    def quota(self, tenant, **fields):
        r = self.s.call("PUT", "/api/v1/tenants/%s/quota" % tenant, fields, self.s.admin)
        self.assertEqual(r.status, 200, r)

    def infer(self, key, model):
        r = until("%s answers" % model, lambda: (lambda r: r.status == 200 and r)(self.s.infer(key, model, X)))
        return r.json["outputs"][0]["data"][0]

    def held(self, key, model):
        """Placements are written once a second: a version may be READY before it is in the list."""
        def placed():
            return self.s.call("GET", "/api/v1/models/%s/versions/1/placements" % model, key=key).json["placements"]
        return until("%s has a place" % model, placed)[0]["device_bytes"]

    def press(self):
        """Berta's three images and a workspace do not fit beside Anna's."""
        for _ in range(4):
            for n in "bcd":
                self.infer(self.berta, n)

    def starts(self, key, job):
        return sum(e["to"] == "STARTING" for e in self.s.job(key, job, "/events").json["items"])

    def refused_for_good(self, key, model, code):
        """Nothing in it may make a client ask again by itself."""
        r = self.s.infer(key, model, X)
        self.assertEqual((r.status, r.code, r.json["reason_code"]), (409, "CONFLICT", code), r)
        self.assertNotIn("retry-after", {k.lower() for k in r.headers})

    def test_what_is_kept_for_one_is_not_taken_by_another(self):
        whole = self.s.call("GET", "/api/v1/models/a/versions/1", key=self.anna).json["image_bytes"]
        self.assertGreater(whole, 8 * MIB - 1)
        self.infer(self.anna, "a")
        until("without a quota it goes", lambda: self.press() or self.held(self.anna, "a") < whole)
        self.quota("anna", gpu_memory_max_bytes=4 * MIB)
        until("the executor knows", lambda: self.s.infer(self.anna, "a", X).status == 409)
        self.quota("anna", gpu_memory_min_bytes=12 * MIB)
        self.infer(self.anna, "a")  # not before the executor knows this, too
        until("it is there", lambda: self.held(self.anna, "a") == whole)
        evicted = 'shunt_evicted_bytes_total{executor="cpu0",rule="image"}'
        before = self.s.metrics("executor-cpu0")[evicted]
        self.press()
        self.assertGreater(self.s.metrics("executor-cpu0")[evicted], before)
        self.assertEqual(self.held(self.anna, "a"), whole)
        until("the gauge says so", lambda: self.s.metrics("executor-cpu0")[
            'shunt_resident_bytes{executor="cpu0",model="a"}'] == whole)
        # Nor by pins.
        self.quota("anna", gpu_memory_min_bytes=26 * MIB)
        self.quota("berta", gpu_memory_max_bytes=32 * MIB)
        r = self.s.call("POST", "/api/v1/models/b/versions/1/pin", {}, self.berta)
        self.assertEqual((r.status, r.code), (409, "CONFLICT"), r)
        self.assertIn("gpu_memory_min_bytes", r.error)
        self.quota("anna")
        self.quota("berta")

    def test_more_than_the_most_is_refused_with_the_reason(self):
        key = self.s.tenant("carla")
        self.quota("carla", gpu_memory_max_bytes=12 * MIB)
        self.s.push(key, "large", self.net, max_batch=1)  # its training needs as much again
        self.s.push_data(key, "data", st_bytes({
            "x": ("F32", [64, FEATURES], bytes(64 * 4 * FEATURES)), "label": ("I64", [64], bytes(512))}))
        r = self.s.submit(key, model="large", dataset="data", max_attempts=9, spec={"epochs": 1})
        self.assertEqual(r.status, 201, r)
        job = r.json["id"]
        until("it was tried", lambda: self.s.job(key, job).json["reason"] == "GpuMemory")
        time.sleep(2.5)  # long enough for two more attempts
        j = self.s.job(key, job).json
        self.assertEqual((j["state"], j["reason"], j["attempt"]), ("QUEUED", "GpuMemory", 1), j)
        self.assertRegex(j["error"], r"needs \d+ MiB .* may have 12 MiB.*gpu_memory_max_bytes")
        self.assertEqual(self.starts(key, job), 1)
        text = self.s.job(key, job, "/explain").json["text"]
        self.assertRegex(text, r"needs \d+ MiB .* may have 12 MiB.*gpu_memory_max_bytes")
        self.quota("carla", gpu_memory_max_bytes=32 * MIB)
        self.assertEqual(self.s.wait_job(key, job)["state"], "SUCCEEDED")
        self.quota("carla", gpu_memory_max_bytes=6 * MIB)
        self.s.push(key, "larger", onnx.linear(FEATURES, 2049), ready=False, max_batch=1)
        at = "/api/v1/models/larger/versions/1"

        def failed():
            v = self.s.call("GET", at, key=key).json
            return v["state"] == "FAILED" and v
        v = until("it is refused", failed)
        self.assertEqual(v["reason_code"], "QUOTA", v)
        self.assertIn("gpu_memory_max_bytes", v["reason"])
        self.refused_for_good(key, "larger", "QUOTA")
        self.quota("carla", gpu_memory_max_bytes=MIB)  # less than anything can be given
        self.assertEqual(self.s.call("POST", at + "/load", {}, key).status, 202)
        until("the reason says in which steps", lambda: "may have 0 MiB (gpu_memory_max_bytes of its quota,"
              " in whole blocks of 2 MiB)" in (self.s.call("GET", at, key=key).json["reason"] or ""))
        self.quota("carla")
        self.assertEqual(self.s.call("POST", at + "/load", {}, key).status, 202)
        until("it is served", lambda: self.s.call("GET", at, key=key).json["state"] == "READY")

    def test_a_quota_that_shrinks_below_what_is_served(self):
        key = self.s.tenant("dora")
        self.s.push(key, "small", self.net, max_batch=1)
        self.infer(key, "small")
        self.quota("dora", gpu_memory_max_bytes=4 * MIB)
        self.press()  # what it holds goes
        until("it is refused", lambda: self.s.infer(key, "small", X).status == 409)
        self.refused_for_good(key, "small", "QUOTA")
        self.quota("dora")
        self.infer(key, "small")

    def test_what_no_device_holds_fails_at_once(self):
        key = self.s.tenant("emil")
        self.s.push(key, "wide", onnx.linear(FEATURES, 3072), max_batch=1)  # its training does not fit
        self.s.push_data(key, "data", st_bytes({
            "x": ("F32", [64, FEATURES], bytes(64 * 4 * FEATURES)), "label": ("I64", [64], bytes(512))}))
        r = self.s.submit(key, model="wide", dataset="data", max_attempts=9, spec={
            "epochs": 1, "optimizer": {"name": "adam", "lr": 0.1}})
        self.assertEqual(r.status, 201, r)
        j = self.s.wait_job(key, r.json["id"])
        self.assertEqual((j["state"], j["reason"], j["attempt"]), ("FAILED", "TOOBIG", 1), j)
        self.assertRegex(j["error"], r"needs \d+ MiB .* pool has 32 MiB; lower")
        self.assertEqual(self.starts(key, r.json["id"]), 1)
        self.s.push(key, "wider", onnx.linear(FEATURES, 9000), ready=False, max_batch=1)
        until("it is refused", lambda: self.s.call(
            "GET", "/api/v1/models/wider/versions/1", key=key).json["state"] == "FAILED", 20)
        self.refused_for_good(key, "wider", "TOOBIG")


class HostMemory(Story):
    # Nothing is kept on disk, so versions leave with their images; all are of one net, and each counts as a whole.
    pool, env = "64M", {"KEPT_BYTES": "0", "SHARE_IMAGES": "false"}

    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", "--pool-bytes=" + cls.pool, MODEL_HOST_BYTES="64M", **cls.env)
        cls.addClassCleanup(s.stop)
        cls.net = onnx.linear(FEATURES, 2048)  # 8 MiB
        cls.anna, cls.berta = s.tenant("anna"), s.tenant("berta")

    def infer(self, key, model):
        r = self.s.infer(key, model, X)
        self.assertEqual(r.status, 200, r)
        return r.json["outputs"][0]["data"][0]

    def place(self, key, model):
        r = self.s.call("GET", "/api/v1/models/%s/versions/1/placements" % model, key=key)
        self.assertEqual(r.status, 200, r)
        return (r.json["placements"] or [{"state": "-", "host_bytes": 0}])[0]

    def aside(self, key, models):
        return [m for m in models if self.place(key, m)["state"] == "ASIDE"]

    def host(self):
        return self.s.call("GET", "/api/v1/gpus/cpu0", key=self.s.admin).json["host"]

    def test_who_fills_his_quota_gets_room_from_his_own_idle_images_alone(self):
        r = self.s.call("PUT", "/api/v1/tenants/anna/quota", {"host_memory_max_bytes": 20 * MIB}, self.s.admin)
        self.assertEqual((r.status, r.json["host_memory_max_bytes"]), (200, 20 * MIB), r)
        self.s.push(self.berta, "b", self.net, max_batch=1)
        for m in ("a1", "a2"):
            self.s.push(self.anna, m, self.net, max_batch=1)
        want = {m: self.infer(self.anna, m) for m in ("a1", "a2")}
        theirs = self.infer(self.berta, "b")
        until("it is told", lambda: self.host()["used_bytes"] > 24 * MIB)
        self.assertEqual(self.host()["limit_bytes"], 64 * MIB)
        # Nothing is idle yet.
        self.s.push(self.anna, "a3", self.net, ready=False, max_batch=1)
        at = "/api/v1/models/a3/versions/1"
        v = until("it is refused", lambda: (lambda v: v["state"] == "FAILED" and v)(
            self.s.call("GET", at, key=self.anna).json))
        self.assertEqual(v["reason_code"], "QUOTA", v)
        self.assertRegex(v["reason"], r"may take 20 MiB \(host_memory_max_bytes of its quota\)")
        text = self.s.cli("explain", "a3", env={"SHUNT_KEY": self.anna}).decode()
        self.assertIn("host_memory_max_bytes of its quota", text)
        self.assertIn("shunt load a3:1", text)
        # Later something is.
        time.sleep(6)
        self.assertEqual(self.s.call("POST", at + "/load", {}, self.anna).status, 202)
        until("it is served", lambda: self.s.call("GET", at, key=self.anna).json["state"] == "READY")
        gone = until("one is aside", lambda: self.aside(self.anna, want))
        self.assertEqual(len(gone), 1)
        self.assertEqual(self.place(self.berta, "b")["state"], "READY")
        self.assertEqual(self.place(self.anna, gone[0])["host_bytes"], 0)
        v = self.s.call("GET", "/api/v1/models/%s/versions/1" % gone[0], key=self.anna).json
        self.assertEqual(v["state"], "READY")
        self.assertIn("put it aside", self.s.cli("explain", gone[0], env={"SHUNT_KEY": self.anna}).decode())
        # It comes back, and another goes.
        self.assertEqual(self.infer(self.anna, gone[0]), want[gone[0]])
        until("the other is aside", lambda: self.aside(self.anna, want) not in ([], gone))
        self.assertEqual((self.place(self.berta, "b")["state"], self.infer(self.berta, "b")), ("READY", theirs))
        until("all is within the limits", lambda: self.host()["used_bytes"] < 28 * MIB)
        # What can never fit makes nobody go.
        time.sleep(6)
        before = self.aside(self.anna, ["a1", "a2", "a3"])
        self.s.push(self.anna, "wide", onnx.linear(FEATURES, 6000), ready=False, max_batch=1)
        until("it is refused", lambda: self.s.call(
            "GET", "/api/v1/models/wide/versions/1", key=self.anna).json["state"] == "FAILED")
        self.assertEqual(self.aside(self.anna, ["a1", "a2", "a3"]), before)
        for m in ("a1", "a2", "a3"):
            self.assertEqual(self.s.call("POST", "/api/v1/models/%s/unload" % m, {}, self.anna).status, 202)
        until("unloading frees", lambda: self.host()["used_bytes"] < 10 * MIB)
        self.assertEqual(self.infer(self.berta, "b"), theirs)


class DiskTier(HostMemory):
    # Only a worker that has met one tenant makes what is kept: it begins anew at most this often.
    pool, env = "16M", {"KEPT_BYTES": "1G", "KEEP_RENEW_S": "1"}

    def test_who_fills_his_quota_gets_room_from_his_own_idle_images_alone(self):
        r = self.s.call("PUT", "/api/v1/tenants/anna/quota", {"host_memory_max_bytes": 20 * MIB}, self.s.admin)
        self.assertEqual(r.status, 200, r)
        self.s.push(self.berta, "b", self.net, max_batch=1)
        theirs, want, models = self.infer(self.berta, "b"), {}, ["a%d" % i for i in range(4)]
        for i, m in enumerate(models):  # 32 MiB: an image leaves for disk, and its version stays
            self.s.push(self.anna, m, onnx.linear(FEATURES, 2048, 0.1 + i), max_batch=1)
            want[m] = self.infer(self.anna, m)
            until("it is kept", lambda n=i: len(os.listdir(os.path.join(self.s.state, "kept"))) > n + 1)

        def on_disk():
            return [m for m in models if self.place(self.anna, m).get("image_disk_bytes")]
        self.assertEqual(len(until("two are on disk", lambda: len(on_disk()) == 2 and on_disk())), 2)
        self.assertEqual({self.place(self.anna, m)["state"] for m in models}, {"READY"})
        self.assertIn("rule hostmemory", self.s.cli("explain", on_disk()[0], env={"SHUNT_KEY": self.anna}).decode())
        for m in models + models[::-1]:
            self.assertEqual(self.infer(self.anna, m), want[m])
        self.assertEqual(self.place(self.berta, "b")["image_disk_bytes"], 0)
        self.assertEqual(self.infer(self.berta, "b"), theirs)
        self.assertGreater(self.s.metrics("executor-cpu0")['shunt_image_read_bytes_total{executor="cpu0",from="disk"}'], 0)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
