#!/usr/bin/env python3
"""Two shunt-api, a shunt-scheduler and a PostgreSQL, as the people who run a shared system use them:
keys, usage and shares, queues, the audit. This file plays the executors.

Without it: a key that was revoked could go on opening one of several doors, a change could leave no
trace in the audit, a queue that is held could start jobs, and what a tenant is shown of its share
could be other numbers than those that decide.

Usage: test_tenancy.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN; starts a throw-away
PostgreSQL with tests/pg.sh when DATABASE_URL is not set)
"""
import datetime
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import wire  # noqa: E402
from system import System  # noqa: E402
from test_scheduler import BIN, RUNNING, URL, Case, sql, wait  # noqa: E402

LONG_S = 60  # for what takes a moment on an idle machine


def at(seconds):
    """RFC 3339 of so many seconds from now."""
    t = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return t.strftime("%Y-%m-%dT%H:%M:%SZ")


class Api:
    """A shunt-api of its own."""

    def __init__(self, case, name, *options):
        path = case.dir + "/" + name + ".log"
        with open(path, "wb") as log:
            self.process = subprocess.Popen(
                [BIN + "/shunt-api", "--name=" + name, "--listen=127.0.0.1:0", "--metrics-addr=",
                 "--db-url=" + URL, "--state-dir=" + case.dir, "--scheduler=unix:" + case.addr,
                 "--admin-key-file=" + case.dir + "/admin.key", *options], stderr=log)
        case.procs.append(self.process)
        self.port = int(wait(name, lambda: re.findall(r"ev=api.ready .*port=(\d+)",
                                                      open(path).read()), LONG_S)[0])

    call = System.call


class Tenancy(Case):
    def setUp(self):
        super().setUp()
        self.start()
        # One hears of changed keys by notification alone; the other writes uses often.
        self.one = Api(self, "api1", "--key-poll-ms=60000")
        self.two = Api(self, "api2", "--key-poll-ms=100")
        with open(self.dir + "/admin.key") as f:
            self.admin = f.read().strip()

    def ok(self, method, path, body=None, key=None, status=None, api=None, headers=None):
        r = (api or self.one).call(method, path, body, key or self.admin, headers)
        self.assertEqual(r.status, status or {"POST": 201, "DELETE": 204}.get(method, 200), (path, r))
        return r.json

    def refused(self, status, text, method, path, body=None, key=None, headers=None):
        r = self.one.call(method, path, body, key or self.admin, headers)
        self.assertEqual(r.status, status, (path, r))
        self.assertIn(text, r.error)

    def key(self, role="tenant-admin", tenant="research", **more):
        return self.ok("POST", "/api/v1/tenants/%s/keys" % tenant,
                       {"name": "k", "role": role, **more})

    def opens(self, key, api):
        return api.call("GET", "/api/v1/models", key=key).status == 200

    def shut(self, key):
        for api in (self.one, self.two):
            wait("refused", lambda: not self.opens(key, api), LONG_S)

    # ------------------------------------------------------------ keys
    def test_a_revoked_key_is_refused_by_every_process(self):
        k = self.key()
        path = "/api/v1/tenants/research/keys/" + k["id"]
        self.assertTrue(self.opens(k["key"], self.one) and self.opens(k["key"], self.two))
        self.ok("DELETE", path, api=self.two)
        self.assertFalse(self.opens(k["key"], self.two))  # who was asked knows it at once
        self.shut(k["key"])
        self.assertIsNotNone(self.ok("GET", path)["revoked_at"])
        self.refused(409, "revoked", "POST", path + "/rotate")

    def test_a_rotated_key_changes_its_secret_everywhere(self):
        k = self.key()
        path = "/api/v1/tenants/research/keys/" + k["id"]
        self.assertTrue(self.opens(k["key"], self.one) and self.opens(k["key"], self.two))
        new = self.ok("POST", path + "/rotate", {"overlap_s": 3600}, status=200)
        self.assertEqual(new["id"], k["id"])
        for api in (self.one, self.two):
            wait("new", lambda: self.opens(new["key"], api), LONG_S)
            self.assertTrue(self.opens(k["key"], api))
        newest = self.ok("POST", path + "/rotate", api=self.two, status=200)
        self.shut(k["key"])
        self.shut(new["key"])
        for api in (self.one, self.two):
            wait("newest", lambda: self.opens(newest["key"], api), LONG_S)
        short = self.ok("POST", path + "/rotate", {"overlap_s": 1}, status=200)
        self.shut(newest["key"])
        self.assertTrue(self.opens(short["key"], self.one))
        self.assertNotIn("key", self.ok("GET", path))
        self.refused(400, "overlap_s", "POST", path + "/rotate", {"overlap_s": -1})

    def test_a_key_expires_and_shows_when_it_was_used(self):
        k = self.key(expires_at=at(3600))
        path = "/api/v1/tenants/research/keys/" + k["id"]
        self.assertIsNone(self.ok("GET", path)["last_used_at"])
        self.assertTrue(self.opens(k["key"], self.two))
        wait("its use", lambda: self.ok("GET", path)["last_used_at"], LONG_S)
        soon = self.key(expires_at=at(2))
        self.shut(soon["key"])
        self.refused(409, "expired", "POST", path.replace(k["id"], soon["id"]) + "/rotate")
        self.refused(400, "expires_at", "POST", "/api/v1/tenants/research/keys",
                     {"name": "k", "role": "read", "expires_at": "tomorrow"})

    def test_only_who_manages_a_tenant_sees_and_changes_its_keys(self):
        k, reader, stranger = self.key(), self.key("submit"), self.key(tenant="vision")
        path = "/api/v1/tenants/research/keys/" + k["id"]
        for method, p in (("GET", path), ("POST", path + "/rotate"), ("DELETE", path)):
            self.refused(403, "tenant-admin", method, p, key=reader["key"])
            self.refused(404, "no tenant", method, p, key=stranger["key"])
            self.refused(404, "no key", method, p.replace("research", "vision"), key=stranger["key"])
        self.assertEqual(self.ok("GET", path, key=k["key"])["id"], k["id"])
        self.ok("POST", path + "/rotate", key=k["key"], status=200)


if __name__ == "__main__":
    if not URL:  # with a throw-away cluster
        pg = os.path.join(wire.ROOT, "tests", "pg.sh")
        os.execv(pg, [pg, "run", sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
    unittest.main(warnings="ignore")
