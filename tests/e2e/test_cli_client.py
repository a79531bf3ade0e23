#!/usr/bin/env python3
"""`shunt` against a server that does what a real one does rarely: a stub, written here.

Without it: two people who change one quota at once could undo each other's change, and nobody would
know; a file of gigabytes could go twice where its last byte would do.

Usage: test_cli_client.py [-v] [name ...]
"""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("SHUNT_BIN", os.path.join(ROOT, "build", "bin"))


class Stub:
    """handle(method, path, headers, body) -> (status, object); every call is kept."""

    def __init__(self, handle):
        stub = self
        self.calls = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def any(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                stub.calls.append((self.command, self.path, dict(self.headers.items()), body))
                status, reply = handle(self.command, self.path, self.headers, body)
                raw = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = any

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()

    def shunt(self, *args):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SHUNT_") and k != "HOME"}
        return subprocess.run(
            [os.path.join(BIN, "shunt"), *args, "--server=http://127.0.0.1:%d" % self.httpd.server_port,
             "--key=shunt_x"], env=env, capture_output=True, text=True, timeout=60)


def problem(status, code, detail, **more):
    return status, {"type": "urn:shunt:error:" + code, "title": code, "status": status, "detail": detail,
                    "code": code, "error": detail, **more}


class Client(unittest.TestCase):
    def stub(self, handle):
        s = Stub(handle)
        self.addCleanup(s.close)
        return s

    def test_the_spec_of_a_file_goes_as_it_is_or_is_refused(self):
        s = self.stub(lambda *call: (201, {"id": 7, "state": "QUEUED"}))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "spec.json")

            def submit(spec, *args):
                s.calls.clear()
                with open(path, "w") as f:
                    json.dump(spec, f)
                return s.shunt("submit", "--model", "net:1", "--dataset", "d", "--spec", path, *args)

            for spec, part in (({"evaluation": 5}, "evaluation"), ({"evaluation": "every 10"}, "evaluation"),
                               ({"evaluation": []}, "evaluation"), ({"optimizer": "adam"}, "optimizer")):
                for args in ((), ("--eval-every", "20", "--lr", "0.1")):
                    r = submit(spec, *args)
                    self.assertEqual(r.returncode, 2, r)
                    self.assertIn('"%s" in the file of --spec is not a JSON object' % part, r.stderr)
                    self.assertEqual(s.calls, [])
            for spec, args, want in (({"evaluation": {}}, (), {}), ({}, (), None), ({"evaluation": None}, (), None),
                                     ({"evaluation": {"every": 5}}, ("--best", "loss"), {"every": 5, "best": "loss"})):
                r = submit(spec, *args)
                sent = [json.loads(body) for method, path_of, _, body in s.calls if method == "POST"]
                self.assertEqual(len(sent), 1, r)
                self.assertEqual(sent[0]["spec"].get("evaluation"), want)

    def test_a_quota_that_changes_meanwhile_is_read_again(self):
        quota = {"max_gpus": 1, "max_queued_jobs": 5, "row_version": 3}
        others = [9]

        def handle(method, path, headers, body):
            if method == "GET":
                return 200, quota
            if others:  # somebody was faster
                quota.update(max_queued_jobs=others.pop(), row_version=4)
            if headers["If-Match"] != '"%d"' % quota["row_version"]:
                return problem(412, "PRECONDITION", "it has another version")
            quota.update(json.loads(body), row_version=quota["row_version"] + 1)
            return 200, quota
        s = self.stub(handle)
        r = s.shunt("set", "quota", "t", "max_gpus=2")
        self.assertEqual(r.returncode, 0, r)
        self.assertIn("reading it again", r.stderr)
        self.assertEqual(quota, {"max_gpus": 2, "max_queued_jobs": 9, "row_version": 5})
        self.assertEqual([m for m, *_ in s.calls], ["GET", "PUT", "GET", "PUT"])

    def test_a_quota_that_changes_all_the_time_is_given_up(self):
        def handle(method, path, headers, body):
            return (200, {"max_gpus": 1, "row_version": 3}) if method == "GET" else \
                problem(412, "PRECONDITION", "it has another version")
        s = self.stub(handle)
        r = s.shunt("set", "quota", "t", "max_gpus=2")
        self.assertEqual(r.returncode, 1, r)
        self.assertIn("another version", r.stderr)
        self.assertEqual(len(s.calls), 10)

    def test_a_file_that_is_all_there_is_not_sent_twice(self):
        data, tries = b"\x01" * 100000, []

        def handle(method, path, headers, body):
            if method == "PUT":
                tries.append((headers["content-range"], len(body)))
                return (200, {"name": "d", "n_samples": 1, "bytes": len(data)}) if len(tries) == 2 else \
                    problem(503, "DBDOWN", "the database is away")
            return (200, {"bytes": len(data)}) if "/parts/" in path else (200, {"digest": None})
        s = self.stub(handle)
        with tempfile.NamedTemporaryFile() as f:
            f.write(data)
            f.flush()
            r = s.shunt("push", "dataset", "d", f.name)
        self.assertEqual(r.returncode, 0, r)
        self.assertEqual(tries, [(None, 100000), ("bytes 99999-99999/100000", 1)])

    def test_all_that_is_wrong_is_printed_once(self):
        errors = [{"pointer": "/model", "detail": "\"model\" is missing"},
                  {"pointer": "/spec", "detail": "\"spec\" is missing"}]
        s = self.stub(lambda *_: problem(400, "INVALID", errors[0]["detail"], errors=errors))
        r = s.shunt("submit", "--model=m", "--dataset=d")
        self.assertEqual(r.returncode, 1, r)
        self.assertEqual([line for line in r.stderr.splitlines() if "is missing" in line],
                         ["shunt: --model is missing", "  also: --spec is missing"])

    def test_a_server_that_is_not_ready_was_reached(self):
        loading = {"version": 1, "state": "LOADING"}
        models = [{"name": "new", "versions": [{**loading, "loading": {
                       "step": "waiting", "done": 0, "total": 0, "seconds_left": None}}]},
                  {"name": "half", "versions": [{**loading, "loading": {
                       "step": "compile", "done": 2, "total": 5, "seconds_left": 3.04}}]},
                  {"name": "late", "versions": [{**loading, "loading": {
                       "step": "profile", "done": 4, "total": 5, "seconds_left": 0.0}}]}]
        for m in models:
            m.update(tenant="t", traffic=None)

        def handle(method, path, headers, body):
            if path.startswith("/v2/health/ready"):
                return 503, {"ready": False, "error": "2 model versions are being loaded"}
            return 200, {"items": models if "/models" in path else
                         [{"name": "t"}] if "/tenants" in path else []}
        r = self.stub(handle).shunt("status")
        self.assertEqual(r.returncode, 1, r)
        self.assertIn("requests not ready: 2 model versions are being loaded", r.stdout)
        self.assertIn("1 LOADING (waiting)", r.stdout)
        self.assertIn("1 LOADING (compile 2/5, about 3.0 s left)", r.stdout)
        self.assertIn("1 LOADING (profile 4/5, longer than estimated)", r.stdout)
        self.assertEqual(r.stderr, "shunt: not ready: 2 model versions are being loaded\n")

    def test_a_field_without_a_value_is_the_servers_to_refuse(self):
        """It knows which fields there are, and what each takes."""
        said = '"spec.foo" is not a known field; known here: loss, optimizer, batch'
        s = self.stub(lambda *_: (400, {"code": "INVALID", "error": said}))
        r = s.shunt("submit", "--model=m:1", "--dataset=d", "--set", "foo=")
        self.assertIn("known here: loss, optimizer, batch", r.stderr)
        self.assertEqual(json.loads(s.calls[-1][3])["spec"]["foo"], "")
        r = s.shunt("submit", "--model=m:1", "--dataset=d", "--set", "lr=0.1,,0.2")
        self.assertIn("a value that is empty", r.stderr)

    def test_an_array_of_one_job_is_not_many(self):
        s = self.stub(lambda *_: (200, {"id": 7, "jobs": 1}))
        r = s.shunt("submit", "--model=m:1", "--dataset=d", "--array=3")
        self.assertEqual(r.returncode, 0, r)
        self.assertIn("Array 7 has 1 job.", r.stdout)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
