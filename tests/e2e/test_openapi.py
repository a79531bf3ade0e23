#!/usr/bin/env python3
"""The description at /openapi.json against the server: schemathesis calls every operation with generated
requests, good and bad ones, with all of its checks.

Without it: a status, header, media type or field could be described and not answered, or the reverse; a
request that the description allows could be refused, or a wrong one taken; and an odd one could end in
"internal error".

SCHEMATHESIS_CASES: how many cases at least (600). SCHEMATHESIS_SEED: other cases than the usual ones.
Usage: test_openapi.py [-v] [name ...]
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__, else_skip=True)
import onnx_bytes as onnx  # noqa: E402
from system import Story, System, st_bytes  # noqa: E402
from things import has_parameter, roles_of  # noqa: E402

SEED = os.environ.get("SCHEMATHESIS_SEED")
CASES = int(os.environ.get("SCHEMATHESIS_CASES", "600"))
LIMIT_S = int(os.environ.get("SHUNT_TEST_TIMEOUT_S", "600")) - 60
OK = ["2xx", "401", "403", "404", "409", "429", "5xx"]  # what the tool takes a good request to get

NO = ["400", "401", "403", "404", "405", "406", "409", "414", "415", "422", "428", "429", "5xx"]  # and a bad one

# No check is off. Some expect what this API cannot promise: the statuses that are right here too, and why.
EXPECT = (
    # A bad request's parameters may be longer than a URL may be.
    (lambda path, op: True, "negative_data_rejection", NO),
    # Which version is current is not in the description: a well-formed ETag may be an old one, and a
    # malformed one is none of ours. 412 says no to both.
    (lambda path, op: has_parameter(op, "If-Match", "header"), "positive_data_acceptance", [*OK, "412"]),
    (lambda path, op: has_parameter(op, "If-Match", "header"), "negative_data_rejection", [*NO, "412"]),
    # Each job of a batch is answered by itself, within 200 for all of them.
    (lambda path, op: path.endswith("/job-batches"), "negative_data_rejection", ["200"]),
    # A key that came before, with another body: the tool repeats what it has drawn.
    (lambda path, op: has_parameter(op, "Idempotency-Key", "header"), "positive_data_acceptance",
     [*OK, "422"]),
    # Whether tensors fit a model, a file is a model, or a job fits a dataset only they themselves say.
    (lambda path, op: path.endswith(("/infer", "/artifact", "/jobs", "/job-arrays")), "positive_data_acceptance",
     [*OK, "400", "413", "415", "422"]),
    # One of two members has to be given, and null is as good as none.
    (lambda path, op: path.endswith("/promote"), "positive_data_acceptance", [*OK, "400"]),
    # A time may be too long ago, or in the past, or after the other end of its range.
    (lambda path, op: any(has_parameter(op, n, "query") for n in ("from", "to")) or
     path.endswith(("/jobs/{job}", "/keys")), "positive_data_acceptance", [*OK, "400"]),
    # Objects of any content: a NUL in a name, a number that no 64 bits hold, a setting of another server.
    (lambda path, op: "sharedmemory" in path or "/repository/models/" in path, "positive_data_acceptance",
     [*OK, "400"]),
    # Shared memory of clients is off, and said to be.
    (lambda path, op: "501" in op["responses"], "not_a_server_error", ["2xx", "4xx", "501"]),
    # "Not ready" is 503 in this protocol, and a model without a file never is.
    (lambda path, op: path.endswith(("/ready", "/infer")), "not_a_server_error",
     ["2xx", "3xx", "4xx", "503"]),
)


class OpenApi(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("fuzz")
        for name in ("prey", "prey2"):
            s.tenant(name)
        # Jobs stay in the queue, so that they are there to be looked at and nothing trains for a year.
        s.call("PUT", "/api/v1/tenants/fuzz/quota", {"max_running_jobs": 0}, s.admin)
        s.push(cls.key, "lin", onnx.linear(64, 10), max_batch=4)
        s.push(cls.key, "lin", onnx.linear(64, 10), max_batch=4)
        s.push(cls.key, "second", onnx.linear(4, 2), max_batch=4)
        s.call("PUT", "/api/v1/models/lin/slo", {"latency_ms": 50}, cls.key)
        s.call("PUT", "/api/v1/models/lin/aliases/live", {"targets": [{"version": 1}]}, cls.key)
        for name in ("data", "data2"):
            s.push_data(cls.key, name, st_bytes({"x": ("F32", [64, 64], bytes(64 * 256)),
                                                 "label": ("I64", [64], bytes(512))}))
        jobs = [s.submit(cls.key, model="lin", dataset="data").json["id"] for _ in range(3)]
        array = s.call("POST", "/api/v1/job-arrays", {"count": 2, "job": {
            "kind": "training", "model": "lin", "dataset": "data",
            "spec": {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 3}}}, cls.key).json["id"]
        other = s.key("fuzz", "read")
        cls.things = {"tenant": "fuzz", "model": "lin", "version": 1, "choice": "live", "alias": "live",
                      "dataset": "data",
                      "eval_dataset": "data2", "job": jobs[0], "array": array, "key": other.split("_")[1],
                      "queue": "default", "file": "losses.json", "page": "app.js",
                      "digest": s.call("GET", "/api/v1/datasets/data", key=cls.key).json["digest"]}

    def cursors(self):
        """A real one for each list that has two pages."""
        found = {}
        for method, path, op in self.s.spec().operations():
            if method != "GET" or not has_parameter(op, "cursor", "query"):
                continue
            platform = roles_of(op) == {"admin"}
            r = self.s.call("GET", path.format(**self.things) + "?limit=1",
                            key=self.s.admin if platform else self.key)
            if "next_cursor" in r.json:
                found[path] = r.json["next_cursor"]
        return found

    def config(self):
        """The tool's configuration, by operations that exist."""
        lines = ['hooks = "%s"' % os.path.join(HERE, "openapi_hooks.py"), 'warnings = false',
                 'seed = %s' % SEED if SEED else '',
                 '[generation]', 'database = "none"', 'deterministic = %s' % ("false" if SEED else "true")]
        checks = {}
        for method, path, op in self.s.spec().operations():
            for applies, check, statuses in EXPECT:
                if applies(path, op):
                    checks.setdefault(op["operationId"], {}).setdefault(check, set()).update(statuses)
        for name, wanted in checks.items():
            lines += ["[[operations]]", 'include-operation-id = "%s"' % name]
            lines += ["checks.%s.expected-statuses = %s" % (c, json.dumps(sorted(s)))
                      for c, s in wanted.items()]
        return "\n".join(lines) + "\n"

    def test_every_operation_answers_as_described(self):
        n = len(self.s.spec().operations())
        d = tempfile.mkdtemp(dir=self.s.dir)
        files = {k: os.path.join(d, k) for k in ("WORLD", "COUNTS", "schemathesis.toml")}
        with open(os.path.join(self.s.state, "executor.key")) as f:
            executor = f.read().strip()
        with open(files["WORLD"], "w") as f:
            json.dump({"key": self.key, "admin": self.s.admin, "executor": executor, "cursors": self.cursors(),
                       "things": self.things, "platform": {**self.things, "tenant": "prey"}}, f)
        with open(files["schemathesis.toml"], "w") as f:
            f.write(self.config())
        run = subprocess.run(
            [os.path.join(packages.VENV, "bin", "schemathesis"), "--config-file",
             files["schemathesis.toml"], "run", "http://127.0.0.1:%d/openapi.json" % self.s.port,
             "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful", "--max-examples",
             str(max(1, CASES // n)), "--continue-on-failure", "--no-color", "--request-timeout", "30"],
            cwd=d, env={**os.environ, **files}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=LIMIT_S)
        self.assertEqual(run.returncode, 0, run.stdout[-60000:])
        with open(files["COUNTS"]) as f:
            calls = json.load(f)
        calls["GET /openapi.json"] = calls.get("GET /openapi.json", 0) + 1  # the tool begins with it
        missed = [m + " " + p for m, p, _ in self.s.spec().operations() if not calls.get(m + " " + p)]
        self.assertEqual(missed, [], "never called")
        self.assertGreaterEqual(sum(calls.values()), CASES, calls)
        self.assertEqual(self.s.call("GET", "/api/v1/models", key=self.key).status, 200)
        self.assertEqual(self.s.call("GET", "/api/v1/tenants", key=self.s.admin).status, 200)
        print("%d cases, %d operations; the fewest: %s" % (
            sum(calls.values()), n, min(calls.items(), key=lambda c: c[1])))
        print(*re.findall(r"^ +\d+ generated.*$", run.stdout, re.M))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
