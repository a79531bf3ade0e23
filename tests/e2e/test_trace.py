#!/usr/bin/env python3
"""`shunt trace`: one file, every process on one axis. Without it: the stages of a request could fail to add
up to what its client waited for, a client could not find its request by the identifier that it chose, spans
that overlap could hide each other, and a process that is away could cost the whole trace.

SHUNT_TRACE_PROCESSOR: Perfetto's trace_processor_shell, which then has to read all of it too.
Usage: test_trace.py [-v] [name ...]
"""
import collections
import csv
import json
import os
import re
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import DIGITS, Story, System, until, zoo  # noqa: E402

X = [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}]
N_ASKED = 40
THREADS = 4
PROCESSOR = os.environ.get("SHUNT_TRACE_PROCESSOR")
# A slice with its process, its arguments by name.
REQUESTS = """select p.name as process, s.name as name, s.ts as ts, s.dur as dur from slice s
    join thread_track t on s.track_id = t.id join thread using (utid) join process p using (upid)
    where extract_arg(s.arg_set_id, 'args.id') = '%s' order by s.ts"""


def trace_id(n):
    return "%032x" % (0xabc000000000 + n)


class File:
    """What Perfetto reads: slices by the name of their process."""

    def __init__(self, text):
        events = json.loads(text)["traceEvents"]
        self.procs = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.slices = [e for e in events if e["ph"] == "X"]
        self.arrows = collections.defaultdict(list)
        for e in events:
            if e["ph"] in "stf":
                self.arrows[e["id"]].append((e["ts"], e["ph"]))

    def of(self, proc, name):
        return [e for e in self.slices if self.procs[e["pid"]].startswith(proc) and e["name"].split()[0] == name]

    def with_id(self, wanted):
        """The slices of a request, by process and name."""
        return {(self.procs[e["pid"]].split("-")[0], e["name"].split()[0]): e for e in self.slices
                if e["args"].get("id") == wanted}


class Trace(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", "--pool-bytes=64M", "--copy-gb-per-s=0.05")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        for name in ("one", "two"):
            s.push(cls.key, name, zoo("digits-cnn", "training"), max_batch=4)

    def write(self, *options):
        path = os.path.join(self.s.dir, "trace.json")
        self.s.cli("trace", "--out", path, *options)
        with open(path, encoding="utf-8") as f:
            return File(f.read())

    def ask(self, numbers, waited):
        """As clients that are traced: what each waited for, ms."""
        for i in numbers:
            begin = time.monotonic()
            r = self.s.infer(self.key, ("one", "two")[i % 2], X,
                             headers={"traceparent": "00-%s-%016x-01" % (trace_id(i), i + 1)})
            waited[i] = 1e3 * (time.monotonic() - begin)
            self.assertEqual(r.status, 200, r)
            self.assertEqual(r.headers["x-request-id"], trace_id(i))

    def asked(self, first=0):
        waited = {}
        threads = [threading.Thread(target=self.ask, args=(range(first + n, first + N_ASKED, THREADS), waited))
                   for n in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(waited), N_ASKED)
        return waited

    def test_one_identifier_goes_through_all_processes(self):
        waited = self.asked()
        t = self.write("--seconds", "30")
        for i, ms in waited.items():
            got = t.with_id(trace_id(i))
            for wanted in (("api", "request"), ("api", "body"), ("api", "answer"), ("api", "reply"),
                           ("scheduler", "queue"), ("executor", "part")):
                self.assertIn(wanted, got, trace_id(i))
            whole = got["api", "request"]
            self.assertLessEqual(whole["dur"], 1e3 * ms)
            parts = sum(got["api", p]["dur"] for p in ("body", "answer", "reply"))
            self.assertLessEqual(abs(parts - whole["dur"]), 0.02 * whole["dur"])
            inside = got["executor", "part"]
            self.assertGreaterEqual(inside["ts"], whole["ts"])  # one axis
            self.assertLessEqual(inside["ts"] + inside["dur"], whole["ts"] + whole["dur"])
            run = inside["args"]["run"]
            stages = [e for e in t.slices if e["cat"] == "runs" and e["args"].get("run") == run and
                      t.procs[e["pid"]].startswith("executor")]
            self.assertEqual({e["name"].rsplit(" ", 1)[0] for e in stages},
                             {"run", "wait", "memory", "first weights", "compute", "result"})
            stages = [e for e in stages if not e["name"].startswith("run ")]
            self.assertIn(trace_id(i), stages[0]["args"]["ids"])
            total = sum(e["dur"] for e in stages)
            self.assertLessEqual(abs(total - inside["dur"]), 0.02 * inside["dur"] + 1)
        for key in t.arrows:
            self.assertRegex(key, "^[0-9a-f]{1,16}$")  # Perfetto draws no arrow of another name
        arrows = [a for a in t.arrows.values() if [phase for _, phase in sorted(a)] == ["s", "t", "f"]]
        self.assertGreaterEqual(len(arrows), N_ASKED)

    def query(self, sql):
        """What Perfetto's trace processor finds in the file that was written last: [{column: text}]."""
        path = os.path.join(self.s.dir, "query.sql")
        with open(path, "w", encoding="utf-8") as f:
            f.write(sql)
        r = subprocess.run([PROCESSOR, "-q", path, os.path.join(self.s.dir, "trace.json")], capture_output=True,
                           text=True, timeout=120, check=False)
        self.assertEqual(r.returncode, 0, r)
        return list(csv.DictReader(r.stdout.splitlines()))

    @unittest.skipUnless(PROCESSOR, "SHUNT_TRACE_PROCESSOR names no trace_processor_shell")
    def test_perfettos_own_trace_processor_reads_all_of_it(self):
        waited = self.asked(first=1000)
        t = self.write("--seconds", "30")
        self.assertEqual(self.query("select name, value from stats where severity in ('error', 'data_loss') "
                                    "and value > 0"), [])
        self.assertEqual(int(self.query("select count(*) as n from slice")[0]["n"]), len(t.slices))
        self.assertEqual({r["name"] for r in self.query("select name from process where name is not null")},
                         set(t.procs.values()))
        self.assertGreaterEqual(int(self.query("select count(*) as n from flow")[0]["n"]), 2 * N_ASKED)
        for i in list(waited)[:5]:
            found = {(r["process"].split("-")[0], r["name"].split()[0]): r
                     for r in self.query(REQUESTS % trace_id(i))}
            ours = t.with_id(trace_id(i))
            self.assertEqual(set(found), set(ours))
            for key, r in found.items():  # ns there, us in the file
                self.assertLessEqual(abs(int(r["dur"]) - 1e3 * ours[key]["dur"]), 1, key)
            parts = sum(int(found["api", p]["dur"]) for p in ("body", "answer", "reply"))
            whole = int(found["api", "request"]["dur"])
            self.assertLessEqual(abs(parts - whole), 0.02 * whole)

    def test_slices_of_a_track_never_overlap_in_part(self):
        self.asked()
        t = self.write()
        tracks = collections.defaultdict(list)
        for e in t.slices:
            tracks[e["pid"], e["tid"]].append((e["ts"], -e["dur"]))
        for at, found in tracks.items():
            open_until = []
            for ts, less in sorted(found):
                while open_until and open_until[-1] <= ts + 0.0005:
                    open_until.pop()
                if open_until:
                    self.assertLessEqual(ts - less, open_until[-1] + 0.0005, t.tracks[at])
                open_until.append(ts - less)

    def test_training_copies_and_groups_are_there(self):
        with open(os.path.join(DIGITS, "train.safetensors"), "rb") as f:
            self.s.push_data(self.key, "digits", f.read())
        r = self.s.submit(self.key, model="one", version=1, dataset="digits", spec={"epochs": 10000})
        self.assertEqual(r.status, 201, r)
        job = r.json["id"]
        self.s.wait_step(self.key, job, 5)
        net, written = zoo("digits-cnn"), threading.Event()

        def ask():  # each for weights that are not there yet; a stretch of steps ends by it
            n = 0
            while not written.wait(0.3):
                n += 1
                self.s.push(self.key, "new-%d" % n, net, max_batch=4)
                self.s.infer(self.key, "new-%d" % n, X)
        asks = threading.Thread(target=ask)
        asks.start()
        t = self.write("--next", "3")
        written.set()
        asks.join()
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, {}, self.key)
        self.assertTrue(t.of("executor", "steps"))
        self.assertTrue(t.of("executor", "drain"))
        for e in t.of("executor", "steps"):
            self.assertEqual(e["args"]["job"], job)
        copied = t.of("executor", "weights")
        self.assertTrue(any(e["args"]["bytes"] > 0 for e in copied))
        self.assertTrue(t.of("executor", "group"))  # --next only

    def test_who_does_not_answer_is_left_out(self):
        ports = self.s.metrics_ports
        alive = "127.0.0.1:%d" % ports["api"]
        path = os.path.join(self.s.dir, "part.json")
        r = subprocess.run([os.path.join(self.s.programs, "shunt"), "trace", "--out", path, "--metrics",
                            alive + ",127.0.0.1:1"], env=self.s.env, capture_output=True, text=True, timeout=60,
                           check=False)
        self.assertEqual(r.returncode, 0, r)
        self.assertIn("127.0.0.1:1 is left out", r.stderr)
        with open(path, encoding="utf-8") as f:
            self.assertEqual(list(File(f.read()).procs.values()), [alive])
        r = subprocess.run([os.path.join(self.s.programs, "shunt"), "trace", "--out", path, "--metrics",
                            "127.0.0.1:1"], env=self.s.env, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(r.returncode, 1, r)

    def test_an_empty_one_says_what_to_do(self):
        path = os.path.join(self.s.dir, "empty.json")
        r = subprocess.run([os.path.join(self.s.programs, "shunt"), "trace", "--out", path, "--seconds", "0.001",
                            "--metrics", "127.0.0.1:%d" % self.s.metrics_ports["api"]], env=self.s.env,
                           capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(r.returncode, 0, r)
        self.assertIn("no spans", r.stdout + r.stderr)
        self.assertIn("--seconds", r.stdout + r.stderr)

    def test_a_name_of_a_client_stays_text(self):
        hostile = 'a"}],"x":[{"<script>'
        r = self.s.infer(self.key, "one", X, headers={"X-Request-ID": hostile})
        self.assertRegex(r.headers["x-request-id"], "^[0-9a-f]{32}$")  # it is not plain: one is made
        for bad in ("00-" + "0" * 32 + "-" + "1" * 16 + "-01", "zz", "00-" + "A" * 32 + "-" + "1" * 16 + "-01", ""):
            r = self.s.infer(self.key, "one", X, headers={"traceparent": bad})
            self.assertEqual(r.status, 200)
            self.assertTrue(re.match("^[0-9a-f]{32}$", r.headers["x-request-id"]))
            self.assertNotIn(r.headers["x-request-id"].upper(), bad)
        until("it can be read", lambda: self.write().slices)


if __name__ == "__main__":
    unittest.main()
