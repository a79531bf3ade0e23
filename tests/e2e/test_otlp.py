#!/usr/bin/env python3
"""Spans go to an OpenTelemetry collector. Without it: what is sent could be no OTLP, spans of one request could
be of several traces or hang from no parent, requests that nobody asked for could be sent and slow ones not, one
tenant could have all that is sent, and a collector that is dead, slow or hostile could cost requests, memory or
the end of a process.

Usage: test_otlp.py [-v] [name ...]
"""
import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from collector import CLIENT, INTERNAL, SERVER, Collector  # noqa: E402
from system import BIN, Story, System, until, zoo  # noqa: E402

X = [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}]
STAGES = {"wait", "memory", "first weights", "compute", "result"}
# What a request has, by service and name: kind, and the name of its parent's span.
TREE = {("shunt-api", "request"): (SERVER, None), ("shunt-api", "body"): (INTERNAL, "request"),
        ("shunt-api", "answer"): (CLIENT, "request"), ("shunt-api", "reply"): (INTERNAL, "request"),
        ("shunt-scheduler", "queue"): (SERVER, "answer"), ("shunt-scheduler", "run"): (CLIENT, "answer"),
        ("shunt-executor", "part"): (SERVER, "answer"),
        **{("shunt-executor", s): (INTERNAL, "part") for s in STAGES}}
SLACK_NS = 2_000_000  # processes read the clock at moments of their own


def counted(s, name, **labels):
    """Of all processes."""
    series = name + ("{%s}" % ",".join('%s="%s"' % kv for kv in labels.items()) if labels else "")
    return sum(s.metrics(process).get(series, 0) for process in s.metrics_ports)


def dropped(s, reason):
    return counted(s, "shunt_otlp_dropped_spans_total", reason=reason)


def tell(n, flags="01"):
    """traceparent of the n-th trace, and its trace id."""
    trace = "%032x" % (0xfeed0000000000 + n)
    return {"traceparent": "00-%s-%016x-%s" % (trace, n + 1, flags)}, trace


class Otlp(Story):
    @classmethod
    def setUpClass(cls):
        cls.c = Collector()
        cls.addClassCleanup(cls.c.stop)
        cls.s = s = System("--workers=2", "--pool-bytes=64M", OTLP_ENDPOINT=cls.c.url + "/", OTLP_SLOW_MS="30000")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        s.push(cls.key, "one", zoo("digits-cnn", "training"), max_batch=4)
        cls.n = 0

    def setUp(self):
        self.c.mode = "good"

    def tearDown(self):
        self.assertEqual(self.c.wrong, [])

    def ask(self, flags="01", **more):
        Otlp.n += 1
        headers, trace = tell(self.n, flags)
        r = self.s.infer(self.key, "one", X, headers={**headers, **more.pop("headers", {})}, **more)
        return r, trace, "%016x" % (self.n + 1)

    def whole(self, trace, n=len(TREE)):
        def found():
            got = self.c.of(trace)
            return len(got) >= n and got
        return until("%d spans of %s" % (n, trace), found, 20)

    def test_one_trace_goes_through_all_processes(self):
        for _ in range(10):
            r, trace, client = self.ask()
            self.assertEqual(r.status, 200, r)
            spans = self.whole(trace)
            self.assertEqual(len(spans), len(TREE), spans)
            by_name = {(s["service"], s["name"]): s for s in spans}
            self.assertEqual(set(by_name), set(TREE))
            self.assertEqual(len({s["spanId"] for s in spans}), len(spans))
            for key, (kind, parent) in TREE.items():
                s = by_name[key]
                above = next((p for p in spans if p["spanId"] == s["parentSpanId"]), None)
                self.assertEqual(s["kind"], kind, s)
                self.assertNotIn("status", s)
                if not parent:
                    self.assertIsNone(above)
                    self.assertEqual(s["parentSpanId"], client)
                    continue
                self.assertEqual(above and above["name"], parent, s)
                self.assertGreaterEqual(s["begin"], above["begin"] - SLACK_NS, key)
                if key != ("shunt-scheduler", "run"):  # the scheduler hears of its end after the API
                    self.assertLessEqual(s["end"], above["end"] + SLACK_NS, key)
            whole = by_name["shunt-api", "request"]
            self.assertEqual(whole["attributes"]["shunt.model"], "one")
            self.assertEqual(whole["attributes"]["shunt.request_id"], trace)
            self.assertLess(abs(whole["end"] / 1e9 - time.time()), 30)
            stages = sorted((s["begin"], s["end"]) for s in spans
                            if s["service"] == "shunt-executor" and s["name"] in STAGES)
            for (_, end), (begin, _) in zip(stages, stages[1:]):
                self.assertEqual(end, begin)
            runs = {s["attributes"]["shunt.run"] for s in spans if "shunt.run" in s["attributes"]}
            self.assertEqual(len(runs), 1)

    def test_requests_of_one_run_have_a_trace_each(self):
        """Several at a time, so that some share a run."""
        asked = []

        def ask(n):
            headers, trace = tell(10 ** 6 + n)
            self.assertEqual(self.s.infer(self.key, "one", X, headers=headers).status, 200)
            asked.append(trace)
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(asked), 16)
        for trace in asked:
            self.assertEqual({(s["service"], s["name"]) for s in self.whole(trace)}, set(TREE))

    def test_who_does_not_ask_is_not_sent(self):
        quiet = [self.ask(flags)[1] for flags in ("00", "02")]
        plain = self.s.infer(self.key, "one", X).headers["x-request-id"]
        for bad in ("zz", "01-%032x-%016x" % (7, 7), "00-%032x-%016x-01" % (77, 0), "00-%032x-zz-01" % 78,
                    "00-%032x-%016x-01x" % (79, 1)):
            self.assertEqual(self.s.infer(self.key, "one", X, headers={"traceparent": bad}).status, 200)
        _, trace, _ = self.ask()
        self.whole(trace)
        for other in quiet + [plain] + ["%032x" % n for n in (77, 78, 79)]:
            self.assertEqual(self.c.of(other), [], other)

    def test_a_slow_request_is_sent_by_itself(self):
        self.s.call("PATCH", "/api/v1/config", {"otlp-slow-ms": 1}, self.s.admin)
        self.addCleanup(self.s.call, "PATCH", "/api/v1/config", {"otlp-slow-ms": None}, self.s.admin)

        def sent():
            r = self.s.infer(self.key, "one", X, headers={"X-Request-ID": os.urandom(16).hex()})
            time.sleep(1)
            return self.c.of(r.headers["x-request-id"]) and r.headers["x-request-id"]
        spans = self.whole(until("one that took more than a millisecond", sent, 60))
        root = next(s for s in spans if s["name"] == "request")
        self.assertNotIn("parentSpanId", root)

    def test_a_late_request_is_sent_with_its_error(self):
        def late():
            r, trace, _ = self.ask("00", parameters={"timeout": 1})  # us
            self.assertIn(r.status, (200, 503, 504), r)
            return r.status == 504 and trace
        trace = until("one that is late", late)
        root = next(s for s in self.whole(trace, 1) if s["name"] == "request")
        self.assertEqual(root["status"]["code"], 2)
        self.assertEqual(root["attributes"]["error.type"], "TIMEOUT")

    def test_a_run_that_outlasts_its_request_is_sent_too(self):
        """Else a trace of what was late would lack what made it late."""
        _, workers = self.s.pids()
        for p in workers:
            os.kill(p, signal.SIGSTOP)
        try:
            r, trace, _ = self.ask("00", parameters={"timeout": 500000})  # us
            self.assertEqual(r.status, 504, r)
            self.whole(trace, 5)  # what has ended
            time.sleep(1)
        finally:
            for p in workers:
                os.kill(p, signal.SIGCONT)
        spans = self.whole(trace)
        self.assertEqual({(s["service"], s["name"]) for s in spans}, set(TREE))
        self.assertEqual(len(spans), len(TREE))

    def test_a_refused_request_has_a_span_too(self):
        r, trace, client = self.ask(headers={"Inference-Header-Content-Length": "x"})
        self.assertEqual(r.status, 400, r)
        root = next(s for s in self.whole(trace, 1) if s["name"] == "request")
        self.assertEqual((root["parentSpanId"], root["attributes"]["error.type"]), (client, "INVALID"))
        self.assertNotIn("status", root)  # the client's mistake
        self.assertEqual({s["service"] for s in self.c.of(trace)}, {"shunt-api"})

    def bad(self, mode, n=3):
        """Requests are answered as fast as ever while the collector behaves like this."""
        self.c.mode = mode
        before = len(self.c.asked)
        begin = time.monotonic()
        for _ in range(n):
            self.assertEqual(self.ask()[0].status, 200)
        self.assertLess(time.monotonic() - begin, 5)
        until("it was asked", lambda: len(self.c.asked) > before, 45)

    def again(self):
        """It is well again, and gets what comes from then on."""
        self.c.mode = "good"
        asked = []

        def is_well():
            asked.append(self.ask()[1])
            return any(len(self.c.of(trace)) == len(TREE) for trace in asked)
        until("spans come again", is_well, 120, 1)

    def test_one_that_is_busy_gets_the_spans_later(self):
        for mode in ("503", "429 at a date"):
            self.c.mode = mode
            before = len(self.c.asked)
            _, trace, _ = self.ask()
            until("it was asked", lambda n=before: len(self.c.asked) >= n + 3, 20)
            self.c.mode = "good"
            self.assertEqual(len(self.whole(trace)), len(TREE))  # once, though it was asked before
            self.again()

    def test_one_that_refuses_is_not_asked_again(self):
        for mode in ("400", "redirect", "endless"):
            was = dropped(self.s, "refused")
            self.bad(mode, 1)
            until("all are dropped: " + mode, lambda n=was: dropped(self.s, "refused") >= n + len(TREE), 30)
            self.again()

    def test_what_it_takes_in_part_is_counted(self):
        was, taken = dropped(self.s, "rejected"), counted(self.s, "shunt_otlp_sent_spans_total")
        self.bad("takes a part", 1)
        until("the rest is counted", lambda: dropped(self.s, "rejected") >= was + len(TREE) - 3)
        self.assertGreaterEqual(counted(self.s, "shunt_otlp_sent_spans_total"), taken + 3)
        for mode in ("rejects a negative number", "rejects more than it got", "garbage"):
            self.bad(mode, 1)
            self.again()
        for name in ("api", "scheduler", "executor-cpu0"):
            with open(os.path.join(self.s.state, "log", name + ".log"), encoding="utf-8") as f:
                self.assertFalse([x for x in f if x.startswith("ev=forged")])

    def test_a_hostile_answer_costs_no_request(self):
        for mode in ("endless head", "no HTTP", "closes"):
            self.bad(mode)
        self.again()


class Alone(Story):
    """Systems whose collector is away, hangs, or speaks TLS."""

    def start(self, url, **env):
        self.s = s = System("--workers=2", "--pool-bytes=64M", OTLP_ENDPOINT=url, **env)
        self.addCleanup(s.stop)
        self.key = s.tenant("vision")
        s.push(self.key, "one", zoo("digits-cnn", "training"), max_batch=4)

    def ask(self, n, count):
        for i in range(n, n + count):
            headers, trace = tell(i)
            r = self.s.infer(self.key, "one", X, headers=headers)
            self.assertEqual(r.status, 200, r)
        return trace

    def quick_down(self):
        begin = time.monotonic()
        self.s.cli("down")
        return time.monotonic() - begin

    def test_one_that_is_dead_is_given_up(self):
        with socket.socket() as held:  # nobody listens there
            held.bind(("127.0.0.1", 0))
            self.start("http://127.0.0.1:%d" % held.getsockname()[1])
            self.ask(0, 20)
            until("five tries are enough", lambda: dropped(self.s, "unreachable") >= 20 * len(TREE), 60)
            self.assertEqual(counted(self.s, "shunt_otlp_sent_spans_total"), 0)
            self.ask(100, 20)
            self.assertLess(self.quick_down(), 20)

    def test_one_that_hangs_holds_nobody_up(self):
        for mode in ("slow", "drip", "never reads"):
            with Collector() as c:
                c.mode = mode
                self.start(c.url)
                self.ask(0, 50)
                until("all of them send", lambda c=c: len(c.asked) >= 3, 20)
                begin = time.monotonic()
                self.ask(100, 50)
                self.assertLess(time.monotonic() - begin, 10)
                self.assertLess(self.quick_down(), 20)  # while they send
                self.s.stop()

    def test_what_is_left_at_the_end_is_sent(self):
        with Collector() as c:
            self.start(c.url)
            trace = self.ask(0, 5)
            until("all executors know", lambda: any(s["service"] == "shunt-executor" for s in c.of(trace)))
            trace = self.ask(50, 1)
            self.s.cli("down")
            self.assertIn("request", {s["name"] for s in c.of(trace)})
            self.assertEqual(c.wrong, [])

    def test_tls_and_headers(self):
        with Sealed(self) as c:
            self.start(c.url, OTLP_CA_FILE=c.ca, OTLP_HEADERS_FILE=c.headers)
            trace = self.ask(0, 1)
            until("all spans", lambda: len(c.of(trace)) == len(TREE), 20)
            self.assertEqual({h["Authorization"] for h in c.heads}, {"Basic c2h1bnQ6c2VjcmV0"})
            self.assertEqual({h["X-Scope-OrgID"] for h in c.heads}, {"1"})
            for name in os.listdir(os.path.join(self.s.state, "log")):
                with open(os.path.join(self.s.state, "log", name), "rb") as f:
                    self.assertNotIn(b"c2h1bnQ6c2VjcmV0", f.read())

    def test_one_that_resets_a_tls_connection_ends_no_process(self):
        """What is sent is longer than a socket takes at once, so that some of it is written after the reset."""
        with Sealed(self) as c:
            c.mode = "resets"
            self.start(c.url, OTLP_CA_FILE=c.ca, OTLP_MAX_PER_S="0")
            pids = self.s.pids()
            for n in range(6):
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    list(pool.map(lambda i: self.ask(i, 1), range(1000 * n, 1000 * n + 300)))
            until("it has reset all of them", lambda: len(c.asked) >= 12, 60)
            self.assertEqual(self.s.pids(), pids)

    def test_a_certificate_that_is_not_trusted_gets_nothing(self):
        with Sealed(self) as c:
            self.start(c.url)
            self.ask(0, 1)
            until("it was tried", lambda: self.s.logged("api", "otlp.unreachable"), 20)
            self.assertEqual(c.asked, [])

    def test_an_option_that_is_wrong_is_told_at_once(self):
        for args, why in ((("--otlp-endpoint=gopher://x",), "otlp-endpoint"),
                          (("--otlp-endpoint=http://me:secret@x",), "otlp-headers-file"),
                          (("--otlp-endpoint=https://x", "--otlp-ca-file=/none"), "otlp-ca-file"),
                          (("--otlp-endpoint=http://x", "--otlp-headers-file=/dev/null"), "otlp-headers-file"),
                          (("--otlp-endpoint=http://x", "--otlp-headers-file=/none"), "otlp-headers-file")):
            r = subprocess.run([os.path.join(BIN, "shunt-executor"),
                                "--metrics-addr=", "--scheduler=unix:/none", *args], capture_output=True, text=True,
                               timeout=30, check=False)
            self.assertEqual(r.returncode, 1, r)
            self.assertIn(why, r.stderr)


class Shares(Story):
    """A tenant that marks all of its requests as sampled."""

    RATE, SECONDS = 8, 6

    def ask(self, key, n):
        headers, trace = tell(n)
        self.assertEqual(self.s.infer(key, "one", X, headers=headers).status, 200)
        return trace

    def sampled(self, tenant, outcome="sampled"):
        return counted(self.s, "shunt_otlp_requests_total", tenant=tenant, outcome=outcome)

    def test_one_that_floods_leaves_the_others_theirs(self):
        with Collector() as c:
            self.s = s = System("--workers=2", "--pool-bytes=64M", OTLP_ENDPOINT=c.url, OTLP_SLOW_MS="30000",
                                OTLP_MAX_PER_S=str(self.RATE))
            self.addCleanup(s.stop)
            keys = {t: s.tenant(t) for t in ("flood", "quiet")}
            for key in keys.values():
                s.push(key, "one", zoo("digits-cnn", "training"), max_batch=4)
            begin = time.monotonic()
            traces = {"flood": [], "quiet": []}

            def flood(first):
                n = first
                while time.monotonic() < begin + self.SECONDS:
                    traces["flood"].append(self.ask(keys["flood"], n))
                    n += 1
            threads = [threading.Thread(target=flood, args=(k * 10 ** 6,)) for k in (1, 2, 3)]
            for t in threads:
                t.start()
            while time.monotonic() < begin + self.SECONDS:
                traces["quiet"].append(self.ask(keys["quiet"], len(traces["quiet"])))
                time.sleep(0.5)  # less than half of the rate
            for t in threads:
                t.join()
            took = time.monotonic() - begin

            self.assertGreater(len(traces["flood"]), 4 * self.RATE * self.SECONDS)  # else it is no flood
            for trace in traces["quiet"]:
                until("all of " + trace, lambda t=trace: len(c.of(t)) == len(TREE), 20)
            got = len({x["traceId"] for x in c.spans} & set(traces["flood"]))
            self.assertLessEqual(got, self.RATE * (took + 1))
            self.assertGreater(got, self.RATE * self.SECONDS / 2)  # what is left is not wasted
            self.assertEqual(self.sampled("quiet", "dropped"), 0)
            self.assertEqual(self.sampled("flood", "dropped"), len(traces["flood"]) - self.sampled("flood"))
            self.assertEqual(dropped(s, "share"), self.sampled("flood", "dropped"))

            s.call("PATCH", "/api/v1/config", {"otlp-max-per-s": 0}, s.admin)
            for n in range(3 * self.RATE):
                trace = self.ask(keys["flood"], 9 * 10 ** 6 + n)
            until("there is no limit any more", lambda: len(c.of(trace)) == len(TREE), 20)
            self.assertEqual(c.wrong, [])


class Sealed(Collector):
    """By https, with a certificate of its own, and a file of headers."""

    def __init__(self, story):
        d = tempfile.mkdtemp(prefix="shunt-e2e.")
        story.addCleanup(subprocess.run, ["rm", "-rf", d], check=True)
        self.ca, key, self.headers = (os.path.join(d, n) for n in ("cert.pem", "key.pem", "headers"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=collector", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", key, "-out", self.ca], check=True, capture_output=True)
        with open(self.headers, "w", encoding="utf-8") as f:
            f.write("Authorization: Basic c2h1bnQ6c2VjcmV0\n\nX-Scope-OrgID: 1\r\n")
        os.chmod(self.headers, 0o600)
        os.chmod(d, 0o755)
        os.chmod(self.ca, 0o644)
        super().__init__(self.ca, key)


if __name__ == "__main__":
    unittest.main()
