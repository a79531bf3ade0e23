#!/usr/bin/env python3
"""Streams of answers: a GET with Accept: text/event-stream; and the files of the console.

Without it: a page that follows a list could miss a change or get every answer twice, a stream could outlive
its key or what it is about, show a tenant another one's things, or keep events of jobs waiting; and a
browser could run a script that is not ours on a page of ours.

Usage: test_answers.py [-v]
"""
import gzip
import http.client
import json
import os
import re
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import ROOT, WAIT_S, Story, System, st_bytes, until  # noqa: E402

TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
         "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


class Stream:
    def __init__(self, s, path, key):
        self.conn = http.client.HTTPConnection("127.0.0.1", s.port, timeout=WAIT_S)
        self.conn.request("GET", path, headers={"Authorization": "Bearer " + key, "Accept": "text/event-stream"})
        self.r = self.conn.getresponse()
        self.status = self.r.status

    def __iter__(self):
        """(event, data) as they come, without comments."""
        event = data = None
        for line in iter(self.r.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                data = json.loads(value)
            elif not name and data is not None:
                yield event, data
                event = data = None

    def next(self):
        event, data = next(iter(self))
        assert event == "answer", event
        return data

    def close(self):
        self.r.close()
        self.conn.close()


class Answers(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", KEY_POLL_MS="200", MAX_TENANT_STREAMS="20")
        cls.addClassCleanup(s.stop)
        cls.key, cls.theirs = s.tenant("vision"), s.tenant("rival")
        s.call("PUT", "/api/v1/tenants/vision/quota", {"max_running_jobs": 0}, s.admin)
        s.push(cls.key, "lin", onnx.linear(64, 10), max_batch=4)
        s.push_data(cls.key, "data", st_bytes({"x": ("F32", [64, 64], bytes(64 * 256)),
                                                "label": ("I64", [64], bytes(512))}))

    def open(self, path, key=None):
        stream = Stream(self.s, path, key or self.key)
        self.addCleanup(stream.close)
        return stream

    def submit(self):
        r = self.s.submit(self.key, model="lin", dataset="data", hold=True)
        self.assertEqual(r.status, 201, r)
        return r.json["id"]

    def test_a_change_is_sent_once_and_what_stays_is_not(self):
        job = self.submit()
        stream = self.open("/api/v1/jobs/%d" % job)
        self.assertEqual(stream.status, 200)
        self.assertEqual(stream.r.getheader("Content-Type"), "text/event-stream")
        self.assertEqual(stream.next(), self.s.job(self.key, job).json)
        time.sleep(2.5)  # two looks that find nothing
        self.s.call("PATCH", "/api/v1/jobs/%d" % job, {"priority": 5}, self.key)
        self.assertEqual(stream.next()["priority"], 5)
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, {}, self.key)
        last = stream.next()
        while last["state"] != "CANCELLED":
            last = stream.next()
        self.assertEqual(last, self.s.job(self.key, job).json)

    def test_lists_keep_their_filters(self):
        job = self.submit()
        stream = self.open("/api/v1/jobs?limit=3&state=HELD")
        self.assertIn(job, [j["id"] for j in stream.next()["items"]])
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, {}, self.key)
        self.assertNotIn(job, [j["id"] for j in stream.next()["items"]])

    def test_what_is_refused_has_a_status(self):
        job = self.submit()
        for path, key, want in (("/api/v1/jobs/%d" % job, self.theirs, 404), ("/api/v1/jobs/999999999", self.key, 404),
                                ("/api/v1/shares", self.key, 403), ("/api/v1/jobs?limit=x", self.key, 400),
                                ("/api/v1/jobs?tenant=vision", self.theirs, 403),
                                ("/api/v1/jobs", "shunt_nobody_x", 401)):
            stream = self.open(path, key)
            self.assertEqual(stream.status, want, path)
            self.assertIn("json", stream.r.getheader("Content-Type"))

    def test_an_admin_sees_all_and_a_tenant_its_own(self):
        ours, theirs = self.open("/api/v1/models"), self.open("/api/v1/models", self.theirs)
        self.assertEqual([m["name"] for m in ours.next()["items"]], ["lin"])
        self.assertEqual(theirs.next()["items"], [])
        self.s.call("POST", "/api/v1/models", {"name": "new"}, self.key)
        self.assertEqual(sorted(m["name"] for m in ours.next()["items"]), ["lin", "new"])
        self.s.call("POST", "/api/v1/models", {"name": "own"}, self.theirs)
        self.assertEqual([m["name"] for m in theirs.next()["items"]], ["own"])
        admin = self.open("/api/v1/shares", self.s.admin)
        self.assertEqual(sorted(x["tenant"] for x in admin.next()["items"]), ["rival", "vision"])

    def test_a_stream_ends_with_its_key_and_with_what_it_is_about(self):
        r = self.s.call("POST", "/api/v1/tenants/vision/keys", {"name": "k", "role": "read"}, self.key)
        stream = self.open("/api/v1/models", r.json["key"])
        stream.next()
        self.s.call("DELETE", "/api/v1/tenants/vision/keys/" + r.json["id"], None, self.key)
        self.assertEqual([e for e, _ in stream if e != "answer"], [])  # its end

        self.s.call("POST", "/api/v1/models", {"name": "gone"}, self.key)
        stream = self.open("/api/v1/models/gone")
        stream.next()
        self.s.call("DELETE", "/api/v1/models/gone", None, self.key)
        self.assertEqual(list(stream), [])

    def test_streams_whose_client_left_are_closed(self):
        def open_now():
            return self.s.metrics("api").get("shunt_http_streams", 0)

        many = [self.open("/api/v1/models") for _ in range(12)]
        for stream in many:
            stream.next()
        self.assertGreaterEqual(open_now(), 12)
        for stream in many:
            stream.close()
        self.s.call("POST", "/api/v1/models", {"name": "wakes"}, self.key)  # who has left is noticed by what is sent
        until("they are closed", lambda: open_now() < 12)

    def test_a_model_says_how_its_target_was_met(self):
        self.assertIsNone(self.s.call("GET", "/api/v1/models/lin", key=self.key).json["slo"])
        stream = self.open("/api/v1/models/lin")
        stream.next()
        self.s.call("PUT", "/api/v1/models/lin/slo", {"latency_ms": 30000, "percentile": 95}, self.key)
        self.assertEqual(stream.next()["slo"], {"latency_ms": 30000, "percentile": 95, "requests": 0, "met": 0})
        one = {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0] * 64}
        for _ in range(3):
            self.assertEqual(self.s.infer(self.key, "lin", [one]).status, 200)
        for m in iter(stream.next, None):
            if m["slo"]["requests"] == 3:
                break
        self.assertEqual(m["slo"]["met"], 3)

    def test_who_has_a_gpu_is_followed_and_others_are_not_told(self):
        one = {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0] * 64}

        def seen(page):
            """{(tenant, use): ms} of all cells."""
            out = {}
            for g in page["items"]:
                for c in g["cells"]:
                    for p in c["parts"]:
                        out[p["tenant"], p["use"]] = out.get((p["tenant"], p["use"]), 0) + p["ms"]
            return out

        admin = self.open("/api/v1/gpu-timelines", self.s.admin)
        page = admin.next()
        while ("vision", "inference") not in seen(page):
            self.assertEqual(self.s.infer(self.key, "lin", [one]).status, 200)
            page = admin.next()
        self.assertIn((None, "idle"), seen(page))

        ours = self.s.call("GET", "/api/v1/gpu-timelines", key=self.key).json
        self.assertLessEqual({("vision", "inference"), (None, "others")}, set(seen(ours)))
        self.assertEqual({t for t, use in seen(ours) if use != "others"}, {"vision"})
        theirs = self.s.call("GET", "/api/v1/gpu-timelines", key=self.theirs).json
        self.assertEqual(set(seen(theirs)), {(None, "others")})
        self.assertEqual([g["switches"] for g in theirs["items"]], [[]])

    # ------------------------------------------------------------ the files of the console
    def files(self):
        with open(os.path.join(ROOT, "api", "console", "files.def")) as f:
            return re.findall(r'^FILE\(\w+, "([^"]+)"', f.read(), re.M)

    def test_each_file_is_sent_as_it_is_with_its_policy(self):
        names = self.files()
        self.assertGreater(len(names), 5)
        for name in names:
            at = "/console/" + name
            with open(os.path.join(ROOT, "api", "console", name), "rb") as f:
                want = f.read()
            r = self.s.call("GET", at)
            self.assertEqual((r.status, r.raw), (200, want), name)
            self.assertEqual(r.headers["content-type"], TYPES[name.rsplit(".", 1)[1]])
            policy = r.headers["content-security-policy"]
            self.assertIn("default-src 'self'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual(r.headers["x-content-type-options"], "nosniff")
            self.assertEqual(self.s.call("HEAD", at).headers["content-length"], str(len(want)))
            old = self.s.call("GET", at, headers={"If-None-Match": r.headers["etag"]})
            self.assertEqual((old.status, old.raw), (304, b""))
            packed = self.s.call("GET", at, headers={"Accept-Encoding": "gzip"})
            self.assertEqual(packed.headers["content-encoding"], "gzip")
            self.assertEqual(gzip.decompress(packed.raw), want)
            self.assertNotEqual(packed.headers["etag"], r.headers["etag"])
        page, file = (self.s.call("GET", "/console" + name).raw for name in ("", "/index.html"))
        if self.s.call("GET", "/docs/").status == 404:  # none was built: the page does not lead there
            self.assertIn(b'href="/docs/"', file)
            file = re.sub(rb'<a class="docs".*\n', b"", file)
        self.assertEqual(page, file)

    def test_no_other_file_is(self):
        for name in ("main.c", "..", "../main.c", "app.js.map", "%2e%2e", "APP.JS", ""):
            self.assertIn(self.s.call("GET", "/console/" + name).status, (400, 404), name)
        self.assertEqual(self.s.call("POST", "/console", {}).status, 405)

    def test_the_page_has_no_code_inside(self):
        for name in self.files():
            with open(os.path.join(ROOT, "api", "console", name)) as f:
                text = f.read()
            self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function")
            self.assertNotRegex(text, r"https?://(?!www\.w3\.org/2000/svg)", name)
            if name.endswith("html"):
                self.assertNotRegex(text, r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)")


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
