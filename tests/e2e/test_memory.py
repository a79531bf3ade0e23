#!/usr/bin/env python3
"""Quotas of device memory, as tenants feel them: what is kept for one is not taken by the images of
another, and what needs more than its tenant may have is refused with the reason.

Without it: gpu_memory_min_bytes, _share and _max_bytes could be numbers that nobody looks at, or bound
the wrong tenant; and a job that can never fit could wait without a word.

Usage: test_memory.py [-v] [name ...]
"""
import os
import sys
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
        r = self.s.call("GET", "/api/v1/models/%s/versions/1/placements" % model, key=key)
        return r.json["placements"][0]["device_bytes"]

    def press(self):
        """Berta's three images and a workspace do not fit beside Anna's."""
        for _ in range(4):
            for n in "bcd":
                self.infer(self.berta, n)

    def test_what_is_kept_for_one_is_not_taken_by_another(self):
        whole = self.s.call("GET", "/api/v1/models/a/versions/1", key=self.anna).json["image_bytes"]
        self.assertGreater(whole, 8 * MIB - 1)
        self.infer(self.anna, "a")
        self.press()
        until("without a quota it goes", lambda: self.held(self.anna, "a") < whole)
        self.quota("anna", gpu_memory_min_bytes=12 * MIB)
        self.infer(self.anna, "a")
        until("it is there", lambda: self.held(self.anna, "a") == whole)
        before = self.s.metrics("executor-cpu0")['shunt_evicted_bytes_total{executor="cpu0"}']
        self.press()
        self.assertGreater(self.s.metrics("executor-cpu0")['shunt_evicted_bytes_total{executor="cpu0"}'], before)
        self.assertEqual(self.held(self.anna, "a"), whole)
        self.assertEqual(self.s.metrics("executor-cpu0")['shunt_resident_bytes{executor="cpu0",model="a"}'], whole)
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
        until("it was tried", lambda: self.s.job(key, job).json["reason"] == "BackoffUntil")
        self.assertIn("gpu_memory_max_bytes", str(self.s.job(key, job, "/explain").json))
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
        self.quota("carla")
        self.assertEqual(self.s.call("POST", at + "/load", {}, key).status, 202)
        until("it is served", lambda: self.s.call("GET", at, key=key).json["state"] == "READY")


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
