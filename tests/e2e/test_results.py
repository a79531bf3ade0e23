#!/usr/bin/env python3
"""Batch inference and results of jobs through a whole system: REST, scheduler, executor, database.

Without it: a result could be fetched before it is whole or by another tenant, a download could not go
on where it broke, the numbers of a job could be others than those of requests when processes die
under it, a job that publishes nothing could leave a version or nothing at all, and a submission that
cannot work could wait in a queue first.

Usage: test_results.py [-v] [name ...]
"""
import contextlib
import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import BIN, DIGITS, Story, System, read_st, st_bytes, until, zoo  # noqa: E402

N = 12003      # the last batch is not full
LONG = 100000  # seconds of work, one row after the other


class Results(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System(LEASE_TTL_MS="1000", GRACE_MS="2000")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("research")
        cls.other = s.tenant("vision")
        s.push(cls.key, "digits", zoo("digits-cnn", "training"), max_batch=8)
        for name in ("train", "test"):
            with open(os.path.join(DIGITS, name + ".safetensors"), "rb") as f:
                s.push_data(cls.key, name, f.read())
        dtype, shape, x = read_st(os.path.join(DIGITS, "train.safetensors"))["x"]
        cls.row = len(x) // shape[0]
        cls.x, cls.n, cls.shape = x, shape[0], shape[1:]
        for name, n in (("big", N), ("long", LONG)):
            rows = (x * (n // cls.n + 1))[:n * cls.row]
            s.push_data(cls.key, name, st_bytes({"pixels": (dtype, [n] + cls.shape, rows)}))

    def batch(self, want=201, dataset="train", key=None, **spec):
        r = self.s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "digits",
                                                 "dataset": dataset, "spec": spec}, key or self.key)
        self.assertEqual(r.status, want, r)
        return r.json["id"] if want == 201 else r

    def slow(self):
        return self.batch(dataset="long", batch=1, inputs={"x": "pixels"}, checkpoint_interval_ms=50)

    def fetch(self, job, **headers):
        return self.s.call("GET", "/api/v1/jobs/%d/result/artifact" % job, key=self.key,
                           headers={k.replace("_", "-"): v for k, v in headers.items()})

    def tensors(self, raw):
        with tempfile.NamedTemporaryFile() as f:
            f.write(raw)
            f.flush()
            return read_st(f.name)

    def request(self, raw, n):
        """The answer to n rows, as bytes."""
        r = self.s.infer(self.key, "digits", [{
            "name": "x", "datatype": "FP32", "shape": [n] + self.shape,
            "data": struct.unpack("<%df" % (len(raw) // 4), raw)}])
        self.assertEqual(r.status, 200, r)
        return struct.pack("<%df" % (n * 10), *r.json["outputs"][0]["data"])

    def whole(self, job):
        """The result of a job that has succeeded, checked against what is said of it."""
        j = self.s.wait_job(self.key, job)
        self.assertEqual(j["state"], "SUCCEEDED", j)
        r = self.s.job(self.key, job, "/result")
        self.assertEqual((r.status, r.json["job"], r.json["state"]), (200, job, "SUCCEEDED"), r)
        self.assertEqual(r.json["result"], j["result"])
        f, a = self.fetch(job), r.json["artifact"]
        self.assertEqual((f.status, f.headers["etag"], f.headers["content-type"]),
                         (200, '"%s"' % a["digest"], "application/octet-stream"))
        self.assertEqual((hashlib.sha256(f.raw).hexdigest(), len(f.raw)), (a["digest"], a["bytes"]))
        return j, f.raw

    def test_every_row_gets_the_answer_of_a_request(self):
        job = self.batch(outputs=["logits"])
        j, raw = self.whole(job)
        n = len(self.x) // self.row
        self.assertEqual((j["step"], j["steps"], j["result"]["samples"]), (n, n, n))
        self.assertIsNone(j["result_version"])
        self.assertNotIn("version", j["result"])
        dtype, shape, got = self.tensors(raw)["logits"]
        self.assertEqual((dtype, shape), ("F32", [n, 10]))
        for at in (0, 8, n // 8 * 8):
            k = min(8, n - at)
            self.assertEqual(self.request(self.x[at * self.row:(at + k) * self.row], k),
                             got[40 * at:40 * (at + k)])
        log = until("the end of its log", lambda: (lambda t: "ended: " in t and t)(
            self.s.job(self.key, job, "/log").raw.decode()))
        for line in ("model digits:1, dataset train\n", ": begins at sample 0 of %d, batch 8\n" % n,
                     ": sample %d of %d, " % (n, n), " samples/s", ": samples before %d are durable: " % n,
                     ": ended: it has succeeded "):
            self.assertEqual(log.count(line), 1 if line != " samples/s" else log.count(": sample "), log)
        events = self.s.job(self.key, job, "/events").json["items"]
        self.assertEqual([e["to"] for e in events if e["to"] != "PREEMPTED"][:3],
                         ["QUEUED", "STARTING", "RUNNING"])
        self.assertEqual(self.s.call("GET", "/api/v1/models/digits/versions",
                                     key=self.key).json["items"][0]["version"], 1)

    def test_a_file_in_parts_and_only_when_it_is_another(self):
        job = self.batch()
        _, raw = self.whole(job)
        tag = self.fetch(job).headers["etag"]
        r = self.fetch(job, Range="bytes=100-199")
        self.assertEqual((r.status, r.raw), (206, raw[100:200]))
        self.assertEqual(r.headers["content-range"], "bytes 100-199/%d" % len(raw))
        self.assertEqual(self.fetch(job, Range="bytes=-10").raw, raw[-10:])
        self.assertEqual(self.fetch(job, Range="bytes=10-", If_Range=tag).raw, raw[10:])
        r = self.fetch(job, Range="bytes=10-", If_Range='"another"')
        self.assertEqual((r.status, r.raw), (200, raw))
        r = self.fetch(job, Range="bytes=%d-" % len(raw))
        self.assertEqual((r.status, r.headers["content-range"]), (416, "bytes */%d" % len(raw)))
        r = self.fetch(job, If_None_Match=tag)
        self.assertEqual((r.status, r.raw, r.headers["etag"]), (304, b"", tag))
        r = self.s.call("HEAD", "/api/v1/jobs/%d/result/artifact" % job, key=self.key)
        self.assertEqual((r.status, r.headers["content-length"]), (200, str(len(raw))))

    def test_a_large_file_comes_whole_though_clients_leave_half_way(self):
        job = self.batch(dataset="big", inputs={"x": "pixels"})
        _, raw = self.whole(job)
        self.assertGreater(len(raw), 400000)  # several pieces
        path = "/api/v1/jobs/%d/result/artifact" % job
        before = self.s.pids()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", self.s.port)) as c:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                c.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n" %
                          (path.encode(), self.key.encode()))
                self.assertTrue(c.recv(100).startswith(b"HTTP/1.1 200"))
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        got = [None] * 8

        def read(i):
            got[i] = self.fetch(job).raw
        threads = [threading.Thread(target=read, args=(i,)) for i in range(len(got))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(set(got), {raw})
        self.assertEqual(self.s.pids(), before)
        until("no file is left open", lambda: not self.open_results())

    def open_results(self):
        at, out = "/proc/%d/fd" % self.s.pid("api"), []
        for fd in os.listdir(at):
            with contextlib.suppress(OSError):
                out.append(os.readlink(os.path.join(at, fd)))
        return [x for x in out if x.endswith("result.safetensors")]

    def test_a_result_counts_as_stored_until_its_file_is_removed(self):
        key = self.s.tenant("hoarder")
        self.s.push(key, "digits", zoo("digits-cnn", "training"), max_batch=8)
        with open(os.path.join(DIGITS, "test.safetensors"), "rb") as f:
            data = f.read()
        self.s.push_data(key, "data", data)
        job = self.batch(dataset="data", key=key)
        bytes_left = self.s.wait_job(key, job)["result"]["bytes"]
        path = "/api/v1/jobs/%d/result/artifact" % job
        r = self.s.call("PUT", "/api/v1/tenants/hoarder/quota", {"max_storage_bytes": 0}, self.s.admin)
        self.assertEqual(r.status, 200, r)

        def used():
            self.s.call("POST", "/api/v1/datasets", {"name": "more"}, key)
            r = self.s.call("PUT", "/api/v1/datasets/more/artifact", data, key)
            self.assertEqual((r.status, r.code), (429, "QUOTA"), r)
            return int(r.error.split()[0])
        before = used()
        for n in ("?dry_run=true", ""):
            self.assertEqual(self.s.call("GET", path, key=key).status, 200)
            self.assertEqual(self.s.call("DELETE", path + n, key=key).status, 204)
            self.assertEqual(used(), before - (0 if n else bytes_left))
        self.assertEqual(self.s.call("GET", path, key=key).status, 404)
        self.assertEqual(self.s.call("DELETE", path, key=key).status, 404)
        self.assertFalse(os.path.exists(os.path.join(self.s.state, "jobs", str(job), "result.safetensors")))
        self.assertEqual(self.s.job(key, job, "/result").json["artifact"], None)

    def test_before_the_end_and_after_a_bad_one_there_is_a_reason(self):
        job = self.slow()
        self.s.wait_job(self.key, job, ("RUNNING", "PREEMPTED"))
        for below in ("/result", "/result/artifact"):
            r = self.s.job(self.key, job, below)
            self.assertEqual((r.status, r.code), (409, "CONFLICT"), r)
            self.assertIn("when it has SUCCEEDED", r.error)
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, key=self.key)
        self.assertEqual(self.s.wait_job(self.key, job)["state"], "CANCELLED")
        self.assertIn("CANCELLED and has no result", self.s.job(self.key, job, "/result").error)
        self.assertEqual([f for f in os.listdir("%s/jobs/%d" % (self.s.state, job)) if f[:5] != "claim"],
                         ["log.txt"])
        done = self.batch()
        self.whole(done)
        for below in ("/result", "/result/artifact"):
            self.assertEqual(self.s.call("GET", "/api/v1/jobs/%d%s" % (done, below),
                                         key=self.other).status, 404)
            self.assertEqual(self.s.job(self.key, 99999, below).status, 404)
        path = "%s/jobs/%d/result.safetensors" % (self.s.state, done)
        with open(path, "ab") as f:
            f.write(b"x")
        self.assertEqual(self.fetch(done).status, 500)
        os.unlink(path)
        r = self.fetch(done)
        self.assertEqual((r.status, r.error), (404, "the file of job %d is not there any more" % done))

    def test_what_cannot_work_is_refused_at_once(self):
        for spec, status, text in (({"batch": 9}, 400, "max_batch is 8"),
                                   ({"outputs": ["nope"]}, 400, "no output"),
                                   ({"inputs": {"x": "label"}}, 400, "INT64"),
                                   ({"inputs": {"q": "x"}}, 400, "no input"),
                                   ({"epochs": 1}, 400, "epochs")):
            self.assertIn(text, self.batch(status, **spec).error)
        self.assertIn('"x"', self.batch(400, "big").error)
        self.assertIn("there is no", self.batch(404, "none").error)

    def test_processes_that_die_under_it_change_nothing(self):
        job = self.slow()
        stop = threading.Event()

        def ask():
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    self.s.infer(self.key, "digits", [{"name": "x", "datatype": "FP32", "shape":
                                                       [1] + self.shape, "data": [0.5] * 64}])
        t = threading.Thread(target=ask)
        t.start()
        try:
            self.s.wait_step(self.key, job, 200)
            for pid in self.s.workers()[:2]:
                os.kill(pid, signal.SIGKILL)
            for name in ("executor-cpu0", "scheduler"):
                step = self.s.job(self.key, job).json["step"]
                self.s.wait_step(self.key, job, step + 1)
                self.s.wait_new(name, self.s.kill(name))
            j = self.s.wait_job(self.key, job)
        finally:
            stop.set()
            t.join()
        self.assertEqual(j["state"], "SUCCEEDED", j)
        reasons = [e["reason"] for e in self.s.job(self.key, job, "/events").json["items"]]
        self.assertTrue({"ExecutorLost", "ExecutorRestarted"} & set(reasons), reasons)
        _, got = self.whole(job)
        y = self.tensors(got)["logits"][2]
        self.assertEqual(len(y), 40 * LONG)
        self.assertEqual(y, (y[:40 * self.n] * (LONG // self.n + 1))[:40 * LONG])
        for i in (0, 7, self.n - 1):
            self.assertEqual(self.request(self.x[i * self.row:(i + 1) * self.row], 1),
                             y[40 * i:40 * (i + 1)])

    def test_what_a_client_wishes_of_it_leaves_its_numbers_as_they_are(self):
        """Kept, taken off with what is done, put behind others, saved: and no row is lost or repeated."""
        def ask(action, want=200):
            r = self.s.call("POST", "/api/v1/jobs/%d/%s" % (job, action), key=self.key)
            self.assertEqual(r.status, want, r)
            return r.json

        def reasons():
            return [e["reason"] for e in self.s.job(self.key, job, "/events?limit=500").json["items"]]
        r = self.s.call("POST", "/api/v1/jobs", {
            "kind": "batch_inference", "model": "digits", "dataset": "long", "hold": True,
            "spec": {"batch": 1, "inputs": {"x": "pixels"}, "checkpoint_interval_ms": 86400000}},
            self.key)
        job = r.json["id"]
        self.assertEqual((r.status, r.json["state"]), (201, "HELD"), r)
        ask("release")
        self.s.wait_step(self.key, job, 100)
        ask("checkpoint")
        until("the checkpoint", lambda: "CheckpointWritten" in reasons())
        saved = self.s.job(self.key, job, "/checkpoints").json["items"]
        self.assertEqual(len(saved), 1, saved)
        self.assertNotIn("CHECKPOINTING", self.s.job(self.key, job).json["flags"])
        ask("suspend")
        j = self.s.wait_job(self.key, job, ("SUSPENDED",))
        self.assertGreaterEqual(j["step"], saved[0]["step"])
        self.assertEqual(max(c["step"] for c in
                             self.s.job(self.key, job, "/checkpoints").json["items"]), j["step"])
        self.whole(self.batch())  # its slot is another's
        ask("resume")
        self.s.wait_step(self.key, job, j["step"] + 1)
        ask("requeue")
        until("it was requeued", lambda: "Requeued" in reasons())
        j, raw = self.whole(job)
        self.assertEqual((j["attempt"], j["steps_redone"]), (1, 0), j)
        y = self.tensors(raw)["logits"][2]
        self.assertEqual(y, (y[:40 * self.n] * (LONG // self.n + 1))[:40 * LONG])

    def test_training_that_does_not_publish_leaves_its_model_as_a_file(self):
        before = self.s.call("GET", "/api/v1/models/digits/versions", key=self.key).json["items"]
        r = self.s.submit(self.key, model="digits", dataset="train", eval_dataset="test",
                          spec={"publish": False, "epochs": 4})
        self.assertEqual(r.status, 201, r)
        j, raw = self.whole(r.json["id"])
        self.assertGreater(j["result"]["accuracy"], 0.9)
        self.assertIsNone(j["result_version"])
        after = self.s.call("GET", "/api/v1/models/digits/versions", key=self.key).json["items"]
        self.assertEqual(len(after), len(before))
        # It serves: pushed as a model of its own it gives the job's accuracy.
        self.s.push(self.key, "again", raw, max_batch=8)
        label = read_st(os.path.join(DIGITS, "test.safetensors"))["label"][2]
        r = self.s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "again",
                                                 "dataset": "test", "spec": {}}, self.key)
        _, out = self.whole(r.json["id"])
        y = list(self.tensors(out).values())[0][2]
        want = struct.unpack("<%dq" % (len(label) // 8), label)
        y = struct.unpack("<%df" % (len(y) // 4), y)
        right = sum(max(range(10), key=lambda c: y[10 * i + c]) == want[i] for i in range(len(want)))
        self.assertEqual(right / len(want), j["result"]["accuracy"])
        # And one that does publish names its file too.
        r = self.s.submit(self.key, model="digits", version=1, dataset="train", spec={"epochs": 1})
        j, _ = self.whole(r.json["id"])
        self.assertIsNotNone(j["result_version"])

    def test_the_command_line_submits_and_fetches(self):
        with tempfile.TemporaryDirectory(prefix="shunt-cli-") as d:
            keyfile, out = os.path.join(d, "key"), os.path.join(d, "out.safetensors")
            with open(keyfile, "w") as f:
                f.write(self.key + "\n")

            def cli(*a, rc=0):
                p = subprocess.run([os.path.join(BIN, "shunt"), *a, "--key-file", keyfile,
                                    "--state-dir", self.s.state], env=self.s.env, text=True,
                                   capture_output=True, timeout=180)
                self.assertEqual(p.returncode, rc, p)
                return p.stdout + p.stderr
            self.assertIn("does not belong", cli("submit", "--kind", "batch-inference", "--model",
                                                 "digits", "--dataset", "big", "--lr", "1", rc=2))
            for option in ("--map=x=pixels", "--outputs=logits"):
                self.assertIn("belongs to --kind batch-inference", cli(
                    "submit", "--model", "digits", "--dataset", "big", "--epochs", "1", option, rc=2))
            self.assertIn("INPUT=TENSOR", cli("submit", "--kind", "batch-inference", "--model",
                                              "digits", "--dataset", "big", "--map", "x", rc=2))
            self.assertIn("--kind is", cli("submit", "--kind", "cooking", "--model", "digits",
                                           "--dataset", "big", rc=2))
            text = cli("submit", "--kind", "batch-inference", "--model", "digits:1", "--dataset",
                       "big", "--map", "x=pixels", "--outputs", "logits", "--wait")
            self.assertIn("SUCCEEDED: %d samples" % N, text)
            job = text.split("Job ")[1].split()[0]
            self.assertIn("digest: ", cli("result", job))
            self.assertIn("out.safetensors", cli("result", job, "--out", out))
            self.assertEqual(sorted(os.listdir(d)), ["key", "out.safetensors"])
            with open(out, "rb") as f:
                self.assertEqual(f.read(), self.whole(int(job))[1])
            self.assertIn("could not write", cli("result", job, "--out", d + "/no/where", rc=1))
            self.assertIn("not a job's number", cli("result", "x", rc=2))
            self.assertIn("there is no job", cli("result", "99999", rc=4))
            # What comes is not what the job left.
            path = "%s/jobs/%s/result.safetensors" % (self.s.state, job)
            with open(path, "r+b") as f:
                f.seek(-1, os.SEEK_END)
                f.write(b"\x01")
            self.assertIn("digest is another", cli("result", job, "--out", out + "2", rc=1))
            self.assertFalse(os.path.exists(out + "2"))


if __name__ == "__main__":
    unittest.main(warnings="ignore")
