#!/usr/bin/env python3
"""The fences between tenants and between roles: every operation that the server describes, called with the
wrong key, the wrong role and the identifiers of another tenant.

Without it: a new route could forget its role, show another tenant's things, change them, or tell by its
answer that they exist. Nothing here knows a route: the calls are made from /openapi.json, so an
operation that is added is tried too; where its identifiers cannot be found the story says what to add.

Usage: test_fences.py [-v] [name ...]
"""
import datetime
import os
import re
import statistics
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import process  # noqa: E402
from system import Story, System, until  # noqa: E402
from things import ROLES, Tenant, has_parameter, roles_of  # noqa: E402

CHANGES = ("POST", "PUT", "PATCH", "DELETE")


def nothing_of(path):
    """Identifiers of the right form of what does not exist, as long as those of Tenant."""
    form = {"version": 1, "choice": 1, "job": 987654321, "key": "zzzzzzzzzzzz"}
    return {p: form.get(p, "nowhere-%s" % p) for p in re.findall(r"\{(\w+)\}", path)}


class Fences(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", KEEP_RENEW_S="0")
        cls.addClassCleanup(s.stop)
        cls.a, cls.b = Tenant(s, "anna"), Tenant(s, "berta")
        cls.ops = list(s.spec().operations())
        cls.keyed = [o for o in cls.ops if o[2]["security"]]

    def body(self, op):
        content = op.get("requestBody", {}).get("content", {})
        if content and "application/json" not in content:
            return b"bytes"
        return self.s.spec().example(op)

    def call(self, method, path, op, params, key, query="", body=None):
        return self.s.call(method, path.format(**params) + query,
                           self.body(op) if body is None else body, key)

    # ------------------------------------------------------------ keys
    def refused_everywhere(self, key, what):
        before = self.a.seen()
        for method, path, op in self.ops:
            with self.subTest("%s: %s %s" % (what, method, path)):
                r = self.call(method, path, op, self.a.params(path), key)
                if not op["security"]:
                    self.assertNotIn(r.status, (401, 403), r)
                    continue
                self.assertEqual((r.status, r.code), (401, "UNAUTHENTICATED"), r)
                self.assertIn("Bearer", r.headers["www-authenticate"])
        self.assertEqual(self.a.seen(), before, what)

    def test_without_a_key(self):
        self.refused_everywhere(None, "no key")

    def test_with_a_key_that_nobody_made(self):
        self.refused_everywhere(self.a.admin[:-2] + "xx", "wrong secret")
        self.refused_everywhere("shunt_zzzzzzzzzzzz_" + "z" * 43, "unknown id")

    def test_with_an_expired_key(self):
        ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=5)
        key = self.s.key("anna", expires_at=ends.strftime("%Y-%m-%dT%H:%M:%SZ"))
        until("it has expired", lambda: self.s.call("GET", "/api/v1/models", key=key).status == 401)
        self.refused_everywhere(key, "expired")

    def test_with_a_revoked_key(self):
        key = self.s.key("anna")
        r = self.s.call("DELETE", "/api/v1/tenants/anna/keys/" + key.split("_")[1], key=self.a.admin)
        self.assertEqual(r.status, 204, r)
        until("it is revoked", lambda: self.s.call("GET", "/api/v1/models", key=key).status == 401)
        self.refused_everywhere(key, "revoked")

    # ------------------------------------------------------------ processes
    def test_a_worker_is_nobody_and_knows_nothing(self):
        """What runs tenants' models, when models have been loaded: nothing of anybody else's is in it."""
        workers = self.s.workers()
        self.assertEqual(len(workers), 2)
        for pid in workers:
            with self.subTest(pid=pid):
                w = process.Process(pid)
                self.assertEqual(w.faults(), [])
                if os.geteuid() != 0:
                    continue
                until("it lets go of its last task", lambda: set(w.shared()) <= {
                    "shunt-ctl", "shunt-tickets", "shunt-payload"})
                self.assertEqual(w.environ(), {"OMP_WAIT_POLICY", "SHUNT_SPAWN_PARENT"} | w.harmless())

    def test_the_database_is_known_to_those_alone_who_use_it(self):
        for name, knows in (("api", True), ("scheduler", True), ("executor-cpu0", False), ("postgres", False)):
            with self.subTest(name):
                p = process.Process(self.s.pid(name))
                self.assertEqual("SHUNT_DB_URL" in p.environ(), knows)
                for secret in ("SHUNT_KEY", "DATABASE_URL"):
                    self.assertNotIn(secret, p.environ() if not knows else ())

    # ------------------------------------------------------------ roles
    def test_each_role_where_it_is_not_enough(self):
        """With the tenant's own things: refused before they are looked at, and nothing changes."""
        before, n = self.a.seen(), 0
        for method, path, op in self.keyed:
            for role in ROLES[1:]:
                if role in roles_of(op):
                    continue
                with self.subTest("%s %s as %s" % (method, path, role)):
                    r = self.call(method, path, op, self.a.params(path), self.a.keys[role])
                    self.assertEqual((r.status, r.code), (403, "FORBIDDEN"), r)
                    n += 1
        self.assertEqual(self.a.seen(), before)
        self.assertGreater(n, 0)

    def test_each_role_where_it_is_enough(self):
        """With names of nothing and bodies that are refused: the role alone is no obstacle."""
        keys = {**self.a.keys, "admin": self.s.admin}
        before = self.a.seen()
        for method, path, op in self.keyed:
            params = {**nothing_of(path), "tenant": "anna"}
            if method in CHANGES and list(params) == ["tenant"]:
                params["tenant"] = "nowhere"
            body = {"no such field": 1} if op.get("requestBody") else None
            for role in ROLES:
                query = "?tenant=anna" if role == "admin" and has_parameter(op, "tenant", "query") else ""
                with self.subTest("%s %s as %s" % (method, path, role)):
                    r = self.call(method, path, op, params, keys[role], query, body)
                    if role in roles_of(op):
                        self.assertNotIn(r.status, (401, 403), r)
                    else:
                        self.assertEqual(r.status, 403, r)
        self.assertEqual(self.a.seen(), before)

    # ------------------------------------------------------------ another tenant
    def test_another_tenants_identifiers(self):
        """The same answer as for what does not exist, to the letter; and nothing happens to it."""
        before, n = self.b.seen(), 0
        for method, path, op in self.keyed:
            if "{" not in path or not self.b.owns(path):
                continue
            real, none = self.b.params(path), nothing_of(path)
            for role, key in self.a.keys.items():
                with self.subTest("%s %s as %s" % (method, path, role)):
                    got = self.call(method, path, op, real, key)
                    want = self.call(method, path, op, none, key)
                    self.assertIn(got.status, (403, 404), got)
                    self.assertEqual(got.status == 403, role not in roles_of(op), got)
                    self.assertEqual(self.plain(got, real), self.plain(want, none))
                    n += 1
            if "tenant" in real and len(real) > 1:  # one's own tenant, and a thing of the other
                got, want = (self.call(method, path, op, {**ids, "tenant": "anna"}, self.a.admin)
                             for ids in (real, none))
                self.assertEqual(got.status, 404, got)
                self.assertEqual(self.plain(got, real), self.plain(want, none))
        self.assertEqual(self.b.seen(), before)
        self.assertGreater(n, 50)

    @staticmethod
    def plain(r, ids):
        """Status, headers and body without what the request itself named."""
        text = r.raw.decode()
        for v in sorted((str(v) for v in ids.values()), key=len, reverse=True):
            text = re.sub(r"(?<![\w-])%s(?![\w-])" % re.escape(v), "ID", text)
        text = re.sub(r'"request_id":"\w+"', '"request_id":""', text)
        own = ("x-request-id", "date", "content-length")
        return r.status, sorted((k, v) for k, v in r.headers.items() if k not in own), text

    def test_another_tenants_name_in_the_query(self):
        for method, path, op in self.keyed:
            if not has_parameter(op, "tenant", "query"):
                continue
            for role in roles_of(op) - {"admin"}:
                with self.subTest("%s %s as %s" % (method, path, role)):
                    got, want = (self.call(method, path, op, nothing_of(path), self.a.keys[role],
                                           "?tenant=" + t) for t in ("berta", "nowhere"))
                    self.assertEqual(got.status, 403, got)
                    self.assertEqual(self.plain(got, {"t": "berta"}), self.plain(want, {"t": "nowhere"}))

    def test_another_tenants_names_in_a_body(self):
        """Things that a new one refers to."""
        before, n = self.b.seen(), 0
        for method, path, op in self.keyed:
            body = self.s.spec().example(op)
            named = sorted(set(body or ()) & set(self.b.id) - {"version", "choice", "job"})
            for field in named:
                with self.subTest("%s %s: %s" % (method, path, field)):
                    mine = {**body, **{k: self.a.id[k] for k in named}}
                    got, want = ({**mine, field: name} for name in (self.b.id[field], "nowhere"))
                    got, want = (self.call(method, path, op, self.a.params(path), self.a.admin, "", x)
                                 for x in (got, want))
                    self.assertIn(got.status, (400, 404), got)
                    self.assertEqual(self.plain(got, {"f": self.b.id[field]}),
                                     self.plain(want, {"f": "nowhere"}))
                    n += 1
        self.assertEqual(self.b.seen(), before)
        self.assertGreater(n, 0)

    def test_nothing_of_another_tenant_is_shown(self):
        """Lists, events, statistics, one's own things: the other's names are nowhere."""
        secret = re.compile("berta|%s" % self.b.id["key"])
        for method, path, op in self.keyed:
            if method != "GET" and not path.endswith("/index"):
                continue
            for role, key in self.a.keys.items():
                with self.subTest("%s %s as %s" % (method, path, role)):
                    r = self.call(method, path, op, self.a.params(path), key)
                    self.assertNotRegex(r.raw.decode(), secret)
                    self.assertNotRegex(str(r.headers), secret)
        for key in (None, *self.a.keys.values()):  # what every tenant has in one text has its own port
            r = self.s.call("GET", "/metrics", key=key)
            self.assertEqual(r.status, 404, r)
            self.assertNotRegex(r.raw.decode(), secret)

    # ------------------------------------------------------------ time
    def test_how_long_a_refusal_takes(self):
        """Printed, not judged: a large ratio would tell what exists."""
        for path in ("/api/v1/models/%s", "/api/v1/datasets/%s", "/v2/models/%s"):
            kind = "dataset" if "dataset" in path else "model"
            took = {}
            for _ in range(150):
                for name in (self.b.id[kind], "nowhere-" + kind):
                    t = time.perf_counter()
                    self.assertEqual(self.s.call("GET", path % name, key=self.a.admin).status, 404)
                    took.setdefault(name, []).append(time.perf_counter() - t)
            theirs, none = (statistics.median(took[n]) for n in (self.b.id[kind], "nowhere-" + kind))
            print("%-24s theirs %.3f ms, nobody's %.3f ms, ratio %.3f" % (
                path, theirs * 1e3, none * 1e3, theirs / none))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
