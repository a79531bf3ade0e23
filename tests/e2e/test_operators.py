#!/usr/bin/env python3
"""What operators do to servers that run: certificates that change, a door of their own, options that
change, a look at devices and events.

Without it: a new certificate would need a restart that cuts every connection, a broken one would shut
the door, an admin key that leaked would work from everywhere, an option that was changed would hold in
one process of many, and an event could be missing in the stream of all events.

Usage: test_operators.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN; starts a throw-away
PostgreSQL with tests/pg.sh when DATABASE_URL is not set)
"""
import http.client
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_tenancy  # noqa: E402
import wire  # noqa: E402
from exec_driver import free_port  # noqa: E402
from system import Reply  # noqa: E402
from test_scheduler import URL, Case, sql, wait  # noqa: E402

LONG_S = 60  # for what takes a moment on an idle machine


class Api(test_tenancy.Api):
    """A shunt-api of its own with metrics."""

    def __init__(self, case, name, *options):
        self.log, self.metrics_port = case.dir + "/" + name + ".log", free_port()
        super().__init__(case, name, "--metrics-addr=127.0.0.1:%d" % self.metrics_port, *options)

    def metric(self, name):
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.metrics_port, timeout=10) as r:
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
        for src, dst in zip(files, (self.dir + "/tls.crt", self.dir + "/tls.key")):
            if src:
                subprocess.run(["cp", src, dst + ".new"], check=True)
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
        wait("b is served", lambda: self.served(api) == b[2], LONG_S)
        self.assertEqual(self.live(old), 200)
        self.assertEqual(api.metric(expiry), self.expires(b[2]))
        self.assertEqual(api.metric(loads + '{result="ok"}'), 2)
        # A certificate with another one's key, and one that is none: the old pair stays.
        self.put(c[0])
        wait("it says so", lambda: api.metric(loads + '{result="failed"}') == 1, LONG_S)
        self.assertTrue(api.logged("ev=tls.kept_old"))
        self.assertEqual(self.served(api), b[2])
        with open(self.dir + "/broken", "w") as f:
            f.write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        self.put(self.dir + "/broken")
        wait("it says so again", lambda: api.metric(loads + '{result="failed"}') == 2, LONG_S)
        os.unlink(self.dir + "/tls.key")
        wait("and of no file", lambda: api.metric(loads + '{result="failed"}') == 3, LONG_S)
        self.assertEqual((self.served(api), self.live(old)), (b[2], 200))
        self.assertEqual(api.metric(expiry), self.expires(b[2]))
        time.sleep(2.5)  # a failure is not repeated while nothing changes
        self.assertEqual(api.metric(loads + '{result="failed"}'), 3)
        # SIGHUP does not wait for a look at the files.
        self.put(*c[:2])
        api.process.send_signal(signal.SIGHUP)
        wait("c is served", lambda: self.served(api) == c[2], LONG_S)
        self.assertEqual(self.live(old), 200)
        old.close()

    def test_a_server_without_its_certificate_does_not_start(self):
        a, b = self.certificate("a", 30), self.certificate("b", 30)
        p = subprocess.run([os.path.join(test_tenancy.BIN, "shunt-api"), "--listen=127.0.0.1:0",
                            "--metrics-addr=", "--db-url=" + URL, "--state-dir=" + self.dir,
                            "--scheduler=unix:" + self.addr,
                            "--tls-cert=" + a[0], "--tls-key=" + b[1]], capture_output=True, timeout=LONG_S)
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"are no certificate and its key", p.stderr)

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


if __name__ == "__main__":
    if not URL:  # with a throw-away cluster
        pg = os.path.join(wire.ROOT, "tests", "pg.sh")
        os.execv(pg, [pg, "run", sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
    unittest.main(warnings="ignore")
