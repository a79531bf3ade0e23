#!/usr/bin/env python3
"""What operators do to servers that run: certificates that change, a door of their own, options that
change, a look at devices and events.

Without it: a new certificate would need a restart that cuts every connection, a broken one would shut
the door, an admin key that leaked would work from everywhere, an option that was changed would hold in
one process of many, and an event could be missing in the stream of all events.

Usage: test_operators.py [-v] [name ...]   (sched_world.py)
"""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_tenancy  # noqa: E402
from system import BIN, Reply, free_port  # noqa: E402
from sched_world import RUNNING, URL, Case, main, sql, wait  # noqa: E402

LONG_S = 60  # for what takes a moment on an idle machine


class Api(test_tenancy.Api):
    """A shunt-api of its own with metrics."""

    def __init__(self, case, name, *options):
        self.log, self.metrics_port = case.dir + "/" + name + ".log", free_port()
        super().__init__(case, name, "--metrics-addr=127.0.0.1:%d" % self.metrics_port, *options)

    def metric(self, name):
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.metrics_port, timeout=LONG_S) as r:
            got = re.findall(r"^%s (\S+)$" % re.escape(name), r.read().decode(), re.M)
        return float(got[0]) if got else None

    def logged(self, text):
        with open(self.log) as f:
            return text in f.read()


class Operators(Case):
    def setUp(self):
        super().setUp()
        self.start()

    def admin(self):
        with open(self.dir + "/admin.key") as f:
            return f.read().strip()

    # ------------------------------------------------------------ certificates
    def certificate(self, name, days):
        """PEM files of a new self-signed certificate and its key; the certificate in DER."""
        cert, key = self.dir + "/" + name + ".crt", self.dir + "/" + name + ".key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name, "-days",
                        str(days), "-keyout", key, "-out", cert], check=True, capture_output=True)
        with open(cert) as f:
            return cert, key, ssl.PEM_cert_to_DER_cert(f.read())

    def put(self, *files):
        """Each file in its place at once, as by rename."""
        places = list(zip(files, (self.dir + "/tls.crt", self.dir + "/tls.key")))
        for src, dst in places:
            shutil.copy(src, dst + ".new")
        for _, dst in places:
            os.rename(dst + ".new", dst)

    def connect(self, api):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        c = http.client.HTTPSConnection("127.0.0.1", api.port, timeout=LONG_S, context=context)
        c.connect()
        return c

    def served(self, api):
        c = self.connect(api)
        try:
            return c.sock.getpeercert(binary_form=True)
        finally:
            c.close()

    def live(self, connection):
        connection.request("GET", "/v2/health/live")
        r = connection.getresponse()
        return Reply(r.status, r.getheaders(), r.read()).status

    def expires(self, der):
        text = subprocess.run(["openssl", "x509", "-inform", "DER", "-noout", "-enddate"], input=der,
                              check=True, capture_output=True).stdout.decode()
        return ssl.cert_time_to_seconds(text.strip().partition("=")[2])

    def test_certificates_change_without_a_restart(self):
        a, b, c = (self.certificate(name, days) for name, days in (("a", 30), ("b", 60), ("c", 90)))
        expiry, loads = "shunt_tls_certificate_expiry_timestamp_seconds", "shunt_tls_loads_total"
        self.put(*a[:2])
        api = Api(self, "api", "--tls-cert=%s/tls.crt" % self.dir, "--tls-key=%s/tls.key" % self.dir)
        old = self.connect(api)
        self.assertEqual(old.sock.getpeercert(binary_form=True), a[2])
        self.assertEqual(self.live(old), 200)
        self.assertEqual(api.metric(expiry), self.expires(a[2]))
        # A change of the files is seen; who is connected stays so.
        self.put(*b[:2])
        wait("b is served", lambda: self.served(api) == b[2])
        self.assertEqual(self.live(old), 200)
        self.assertEqual(api.metric(expiry), self.expires(b[2]))
        self.assertEqual(api.metric(loads + '{result="ok"}'), 2)
        before = api.metric(loads + '{result="failed"}') or 0  # it may have looked between the two files
        # A certificate with another one's key, and one that is none: the old pair stays.
        self.put(c[0])
        wait("it says so", lambda: api.metric(loads + '{result="failed"}') == before + 1)
        self.assertTrue(api.logged("ev=tls.kept_old"))
        self.assertEqual(self.served(api), b[2])
        with open(self.dir + "/broken", "w") as f:
            f.write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        self.put(self.dir + "/broken")
        wait("it says so again", lambda: api.metric(loads + '{result="failed"}') == before + 2)
        os.unlink(self.dir + "/tls.key")
        wait("and of no file", lambda: api.metric(loads + '{result="failed"}') == before + 3)
        self.assertEqual((self.served(api), self.live(old)), (b[2], 200))
        self.assertEqual(api.metric(expiry), self.expires(b[2]))
        time.sleep(2.5)  # a failure is not repeated while nothing changes
        self.assertEqual(api.metric(loads + '{result="failed"}'), before + 3)
        # SIGHUP does not wait for a look at the files.
        self.put(*c[:2])
        api.process.send_signal(signal.SIGHUP)
        wait("c is served", lambda: self.served(api) == c[2])
        self.assertEqual(self.live(old), 200)
        old.close()
        # What nobody should speak any more is not spoken.
        newest = Api(self, "newest", "--tls-cert=%s/tls.crt" % self.dir, "--tls-key=%s/tls.key" % self.dir,
                     "--tls-min-version=1.3")
        self.assertEqual(self.versions(api), ["TLSv1.2", "TLSv1.3"])
        self.assertEqual(self.versions(newest), ["TLSv1.3"])

    def versions(self, api):
        """Those of TLS in which it answers."""
        spoken = []
        for v in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2,
                  ssl.TLSVersion.TLSv1_3):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_ciphers("ALL:@SECLEVEL=0")  # ours would refuse the old ones by itself
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = context.maximum_version = v
            with socket.create_connection(("127.0.0.1", api.port), timeout=LONG_S) as plain:
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    with context.wrap_socket(plain) as c:
                        spoken.append(c.version())
        return spoken

    def test_a_server_without_its_certificate_does_not_start(self):
        a, b = self.certificate("a", 30), self.certificate("b", 30)
        p = subprocess.run([os.path.join(test_tenancy.BIN, "shunt-api"), "--listen=127.0.0.1:0",
                            "--metrics-addr=", "--db-url=" + URL, "--state-dir=" + self.dir,
                            "--scheduler=unix:" + self.addr,
                            "--tls-cert=" + a[0], "--tls-key=" + b[1]], capture_output=True, timeout=LONG_S)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"are no certificate and its key", p.stderr)
        p = subprocess.run([os.path.join(test_tenancy.BIN, "shunt-api"), "--tls-min-version=1.1"],
                           capture_output=True, timeout=LONG_S)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"must be 1.2 or 1.3", p.stderr)

    # ------------------------------------------------------------ the operators' door
    def test_admin_keys_are_taken_at_the_admin_address_alone(self):
        api = Api(self, "api", "--admin-listen=127.0.0.1:0")
        with open(api.log) as f:
            door = int(re.findall(r"ev=api.admin_ready .*port=(\d+)", f.read())[0])
        front, admin = api.port, self.admin()
        api.port = door
        r = api.call("POST", "/api/v1/tenants/research/keys", {"name": "k", "role": "tenant-admin"}, admin)
        self.assertEqual(r.status, 201, r)
        key, n = r.json["key"], 0
        api.port = front
        for method, path, op in api.spec().operations():
            at = path.replace("{tenant}", "research").replace("{version}", "1")
            at = re.sub(r"\{\w+\}", "none", at)
            if not op["security"]:
                continue
            r = api.call(method, at, api.spec().example(op) if op.get("requestBody") else None, admin)
            self.assertEqual((r.status, r.code), (403, "FORBIDDEN"), (method, path, r))
            self.assertIn("--admin-listen", r.error)
            n += 1
        self.assertGreater(n, 50)
        self.assertEqual(api.call("GET", "/api/v1/tenants", key=key).status, 403)
        self.assertEqual(api.call("GET", "/api/v1/tenants").status, 401)
        self.assertEqual(api.call("GET", "/api/v1/models", key=key).status, 200)
        api.port = door  # everything is here, for every key
        self.assertEqual(api.call("GET", "/api/v1/tenants", key=admin).status, 200)
        self.assertEqual(api.call("GET", "/api/v1/models?tenant=research", key=admin).status, 200)
        self.assertEqual(api.call("GET", "/api/v1/models", key=key).status, 200)
        api.process.terminate()
        self.assertEqual(api.process.wait(LONG_S), 0)

    # ------------------------------------------------------------ GPUs
    def cli(self, *args):
        """What an admin sees."""
        url = "http://127.0.0.1:%d" % self.http.port
        return subprocess.run([os.path.join(BIN, "shunt"), *args, "--state-dir", self.dir + "/none",
                               "--server", url], env={**os.environ, "SHUNT_KEY": self.root},
                              stdout=subprocess.PIPE, text=True, timeout=LONG_S).stdout

    def test_gpus_show_what_they_do_to_those_who_may_see_it(self):
        self.serve()
        e = self.ready_executor()
        e.send("EXEC_STATE", device_name="Device X", device_bytes=1 << 37, link_bytes_per_s=5e10, disk_bytes_per_s=1e9,
               weights=300, training=20, workspace=1, host_images=500, host_programs=60, host_limit=4096,
               fences=1 | 2 | 8, fences_why="no Landlock", stopping=0)
        e.send("MODEL_PLACE", version_id=1, device_bytes=77, host_bytes=99, shared_bytes=0, disk_bytes=0, pin=1, arrives_ns=0,
               idle_ns=int(3e9), unpack_ns=0)
        job = self.running(e)
        peer = self.api(api_id=99)
        peer.open(1, budget_ms=60000)
        peer.expect("INFER_PLACED", rid=1)
        peer.ready(1)
        e.expect("RUN")  # it goes on
        mine, others = self.key(), self.key("vision")

        def gpu(key=None, name="e0"):
            r = self.http.call("GET", "/api/v1/gpus/" + name, key=key or self.root)
            self.assertEqual(r.status, 200, r)
            return r.json

        wait("what it does", lambda: gpu()["runs"] and gpu()["models"] and gpu()["pool"]["used_bytes"])
        model = {"tenant": "research", "model": "digits", "version": 1}
        want = {"name": "e0", "device": "fake", "device_name": "Device X", "state": "UP", "workers": 3,
                "memory_bytes": 1 << 37, "pool_bytes": 1 << 30, "link_bytes_per_s": 5e10}
        of_admins = {"pool": {"weights_bytes": 300, "training_bytes": 20, "workspace_bytes": 1,
                              "used_bytes": 321},
                     "host": {"images_bytes": 500, "programs_bytes": 60, "used_bytes": 560, "limit_bytes": 4096},
                     "fences": {"calls": True, "capabilities": True, "files": False, "user": True,
                                "reason": "no Landlock"}}
        of_tenants = {"runs": [{**model, "batch": 1}], "models": [
            {**model, "state": "READY", "pin": "held", "device_bytes": 77, "host_bytes": 99}],
            "job": {"id": job, "tenant": "research", "name": "", "kind": "training", "state": "RUNNING",
                    "step": 1, "steps": 100}}
        nothing = {"pool": None, "host": None, "busy": None, "fences": None, "runs": [], "models": [],
                   "job": None}
        for key, shown in ((self.root, {**want, **of_admins, **of_tenants}),
                           (mine, {**nothing, **want, **of_tenants}), (others, {**nothing, **want})):
            got = gpu(key)
            self.assertEqual({k: got[k] for k in shown}, shown)
            for path in ("/api/v1/gpus", "/api/v1/executors"):
                items = self.http.call("GET", path, key=key).json["items"]
                self.assertEqual([{k: g[k] for k in shown} for g in items], [shown])
        self.assertIn("workers of e0 are not fenced by files: no Landlock", self.cli("status"))
        self.assertIn("not files", self.cli("get", "gpus", "-o", "wide"))
        e.job(job, RUNNING, step=2, busy_ns=int(1e9))
        wait("it was busy", lambda: gpu()["busy"]["jobs"] > 0)
        sql("UPDATE model SET visibility = 'shared'")
        self.assertEqual(gpu(others)["models"], of_tenants["models"])
        self.assertEqual(self.http.call("GET", "/api/v1/gpus/e1", key=mine).status, 404)
        heard = gpu()["heard_at"]
        wait("it is heard of", lambda: gpu()["heard_at"] > heard)
        e.close()
        wait("it is away", lambda: gpu()["state"] == "DOWN")
        got = gpu()
        shown = ("pool", "host", "busy", "fences", "runs", "models")
        self.assertEqual({k: got[k] for k in shown}, {k: nothing[k] for k in shown})

    # ------------------------------------------------------------ options that change
    def option(self, api, name):
        r = api.call("GET", "/api/v1/config", key=self.root)
        self.assertEqual(r.status, 200, r)
        return next(o for o in r.json["options"] if o["name"] == name)

    def patch(self, body, status=200, query="", **headers):
        r = self.http.call("PATCH", "/api/v1/config" + query, body, self.root, headers)
        self.assertEqual(r.status, status, r)
        return r

    def test_options_change_in_every_process_and_stay_changed(self):
        self.serve("--key-poll-ms=60000", "--max-tenant-streams=7")  # hears by notification alone
        other = Api(self, "other", "--key-poll-ms=60000")
        key = self.key()
        self.assertEqual([self.option(self.http, "max-tenant-streams")[k] for k in
                          ("value", "live", "changed")], [7, True, False])
        before = self.http.call("GET", "/api/v1/config", key=self.root)
        dry = self.patch({"max-tenant-streams": 1}, query="?dry_run=true")
        self.assertIn({"name": "max-tenant-streams", "value": 1, "live": True, "changed": True},
                      [{k: v for k, v in o.items() if k != "help"} for o in dry.json["options"]])
        self.assertEqual(self.option(self.http, "max-tenant-streams")["value"], 7)
        r = self.patch({"max-tenant-streams": 1, "log-level": "debug"},
                       **{"If-Match": before.headers["etag"]})
        self.assertEqual(r.json["version_in_force"], r.json["row_version"])
        wait("the other too", lambda: other.call("GET", "/api/v1/config", key=self.root)
             .json["version_in_force"] == r.json["row_version"])
        front = self.http
        for self.http in (front, other):  # it is in force, not only said to be
            kept = self.stream(key)
            self.assertEqual((kept.status, self.stream(key).status), (200, 429))
            wait("lines of debugging", lambda: self.http.logged("lvl=debug"))
        self.http = front
        # An older view changes nothing; neither does what cannot change, is none, or is out of range.
        r = self.patch({"max-streams": 5}, 412, **{"If-Match": before.headers["etag"]})
        for body, status, text in (({"threads": 4}, 400, "read when shunt-api starts"),
                                   ({"max-streams": 5, "listen": "x"}, 400, "restart"),
                                   ({"thread": 4}, 400, "thread"), ({"max-streams": 0}, 400, "max-streams"),
                                   ({"log-level": "loud"}, 400, "error, warn, info or debug"), ({}, 400, "")):
            self.assertIn(text, self.patch(body, status).error)
        self.assertFalse(self.option(self.http, "max-streams")["changed"])
        self.assertEqual(self.http.call("GET", "/api/v1/config", key=self.key(role="tenant-admin")).status, 403)
        self.assertEqual(self.option(self.http, "db-url")["value"], "***")
        # One that starts later has it too, whatever its command line says; null takes it back.
        third = Api(self, "third", "--max-tenant-streams=9")
        self.assertEqual(self.option(third, "max-tenant-streams")["value"], 1)
        self.http = third
        kept = self.stream(key)
        self.assertEqual((kept.status, self.stream(key).status), (200, 429))
        self.patch({"max-tenant-streams": None, "log-level": None})
        self.assertEqual([self.option(api, "max-tenant-streams")["value"] for api in (front, other, third)],
                         [7, 128, 9])
        self.assertEqual([self.option(api, "log-level")["value"] for api in (front, other)], ["info", "info"])
        self.assertEqual(self.stream(key).status, 200)
        rows = third.call("GET", "/api/v1/audit?action=config", key=self.root).json["items"]
        self.assertEqual([(a["before"], a["after"]) for a in rows], [
            ({"max-tenant-streams": "1", "log-level": "debug"}, {"max-tenant-streams": None, "log-level": None}),
            ({"max-tenant-streams": None, "log-level": None}, {"max-tenant-streams": "1", "log-level": "debug"})])

    # ------------------------------------------------------------ events of all jobs
    def job(self, tenant=1, labels="{}", queue=1):
        return int(sql("INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, state,"
                       " labels) VALUES (%d, %d, 'training', 1, 1, '{}', 'HELD', '%s') RETURNING id"
                       % (tenant, queue, labels)))

    def event(self, job, state="HELD", reason="", run=sql):
        run("INSERT INTO job_event (job_id, to_state, reason) VALUES (%d, '%s', '%s')" % (job, state, reason))

    def key(self, tenant="research", role="read"):
        r = self.http.call("POST", "/api/v1/tenants/%s/keys" % tenant, {"name": "k", "role": role}, self.root)
        self.assertEqual(r.status, 201, r)
        return r.json["key"]

    def stream(self, key, query="", **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.http.port, timeout=LONG_S)
        c.request("GET", "/api/v1/events" + query, headers={
            "Authorization": "Bearer " + key, "Accept": "text/event-stream", **headers})
        r = c.getresponse()
        self.addCleanup(c.close)
        return r

    @staticmethod
    def events(r):
        one, end = {}, time.monotonic() + LONG_S
        for line in iter(r.readline, b""):
            assert time.monotonic() < end, "no event comes any more"  # the server still says ": ping"
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                one[name] = value
            elif "data" in one:
                e = json.loads(one["data"])
                assert one["id"] == e["position"] and one["event"] == "state", one
                yield e
                one, end = {}, time.monotonic() + LONG_S

    def serve(self, *options):
        self.http = Api(self, "api", *options)
        self.root = self.admin()

    def test_no_event_is_lost_where_transactions_end_in_another_order(self):
        self.serve()
        a, b = self.job(), self.job(2)
        r = self.stream(self.root)
        got = self.events(r)
        self.event(a, reason="one")
        self.assertEqual(next(got)["reason"], "one")
        slow = subprocess.Popen(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", URL], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

        def say(text):
            slow.stdin.write(text + "; SELECT 'said';\n")
            slow.stdin.flush()
            while slow.stdout.readline().strip() != "said":
                pass

        say("BEGIN")
        self.event(a, reason="early number, late commit", run=say)
        self.event(b, reason="late number, early commit")
        self.event(b, reason="and another")
        time.sleep(1)  # several rounds: what is told now would leave no place for what comes
        say("COMMIT")
        first = next(got)
        self.assertEqual([first["reason"]] + [next(got)["reason"] for _ in range(2)],
                         ["early number, late commit", "late number, early commit", "and another"])
        slow.stdin.close()
        slow.wait(LONG_S)
        # Whoever lost the connection after the first of them hears the others.
        again = self.events(self.stream(self.root, **{"Last-Event-ID": first["position"]}))
        self.assertEqual([next(again)["reason"] for _ in range(2)],
                         ["late number, early commit", "and another"])
        # A place that cannot be is as now; one that is none is refused.
        beyond = self.events(self.stream(self.root, **{"Last-Event-ID": "9%017d-5" % 0}))
        time.sleep(0.5)
        self.event(b, reason="new")
        self.assertEqual(next(beyond)["reason"], "new")
        self.assertEqual(self.stream(self.root, **{"Last-Event-ID": "12"}).status, 400)
        self.assertEqual(self.stream(self.root, "?to=2027-01-01T00:00:00Z").status, 400)

    def test_events_are_those_that_a_key_may_see_and_a_filter_wants(self):
        self.serve()
        sql("INSERT INTO queue (tenant_id, name) VALUES (1, 'night')")
        mine, labelled, night, theirs = (self.job(), self.job(labels='{"team": "a"}'), self.job(queue=2),
                                         self.job(2))
        keys = {"": self.key(), "?state=RUNNING,FAILED": self.key(), "?label=team=a": self.key(),
                "?queue=night": self.key(), "?tenant=vision": self.root}
        streams = {q: self.events(self.stream(k, q)) for q, k in keys.items()}
        everything = self.events(self.stream(self.root))
        for first in (0, 75):  # more than one look takes, in two transactions
            sql("INSERT INTO job_event (job_id, to_state, reason) SELECT job, CASE WHEN n % 3 = 0 THEN"
                " 'RUNNING' ELSE 'HELD' END, n FROM generate_series({0}, {0} + 74) n, unnest(ARRAY[{1}])"
                " WITH ORDINALITY j (job, place) ORDER BY n, place".format(
                    first, ",".join(map(str, (theirs, mine, labelled, night)))))
        want = {"": [mine, labelled, night], "?label=team=a": [labelled], "?queue=night": [night],
                "?tenant=vision": [theirs]}
        for query, jobs in want.items():
            for n in range(150):
                for job in jobs:
                    e = next(streams[query])
                    self.assertEqual((e["job"], e["reason"]), (job, str(n)), query)
        for n in range(0, 150, 3):
            for job in (mine, labelled, night):
                e = next(streams["?state=RUNNING,FAILED"])
                self.assertEqual((e["job"], e["reason"], e["to"]), (job, str(n), "RUNNING"))
        self.assertEqual([next(everything)["job"] for _ in range(600)],
                         [theirs, mine, labelled, night] * 150)
        # The same as a list, newest first.
        key, rows, cursor = keys[""], [], ""
        while cursor is not None:
            page = self.http.call("GET", "/api/v1/events?limit=97" + cursor, key=key)
            self.assertEqual(page.status, 200, page)
            rows += page.json["items"]
            cursor = "&cursor=" + page.json["next_cursor"] if "next_cursor" in page.json else None
        self.assertEqual([e["job"] for e in reversed(rows)], [mine, labelled, night] * 150)
        self.assertEqual({e["tenant"] for e in rows}, {"research"})
        r = self.http.call("GET", "/api/v1/events?state=FAILED", key=self.root)
        self.assertEqual(r.json["items"], [])
        r = self.http.call("GET", "/api/v1/events?tenant=vision&limit=1", key=self.root)
        self.assertEqual([e["tenant"] for e in r.json["items"]], ["vision"])
        for query, status in (("?tenant=vision", 403), ("?state=LOST", 400), ("?from=noon", 400)):
            self.assertEqual(self.http.call("GET", "/api/v1/events" + query, key=key).status, status, query)
            self.assertEqual(self.stream(key, query).status, status, query)
        # A stream that begins at a time tells what was since then.
        sql("UPDATE job_event SET at = now() - interval '2 days' WHERE reason <> '149'")
        past = self.events(self.stream(key, "?from=" + test_tenancy.at(-3600)))
        self.assertEqual([next(past)["reason"] for _ in range(3)], ["149"] * 3)
        rows = self.http.call("GET", "/api/v1/events", key=key).json["items"]
        self.assertEqual([e["reason"] for e in rows], ["149"] * 3)  # of the last day

    def test_a_stream_ends_with_its_key(self):
        self.serve("--max-tenant-streams=2")
        job, key, other = self.job(), self.key(), self.key()
        self.assertEqual(self.stream(" " * 100 + key).status, 401)  # what is kept of it has a limit
        r, rest = self.stream(key), self.stream(other)
        self.assertEqual((r.status, rest.status, self.stream(other).status), (200, 200, 429))
        self.event(job, reason="one")
        self.assertEqual(next(self.events(r))["reason"], "one")
        path = "/api/v1/tenants/research/keys/" + key.split("_")[1]
        self.assertEqual(self.http.call("DELETE", path, key=self.root).status, 204)
        self.assertEqual(list(self.events(r)), [])  # it ends
        self.event(job, reason="two")
        self.assertEqual([next(e)["reason"] for e in [self.events(rest)] for _ in range(2)], ["one", "two"])
        self.assertEqual(self.stream(key).status, 401)


if __name__ == "__main__":
    main()
