#!/usr/bin/env python3
"""Rules that hold for every operation alike, tried on each that the server describes: a dry run keeps
nothing, an old ETag changes nothing, a cursor is good for its own list, examples are what is taken.

Without it: a new route could take dry_run=true and store something, or a change made on an old view of a
thing could undo another one. Nothing here knows a route.

Usage: test_rules.py [-v] [name ...]
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import Story, System, until  # noqa: E402
from things import Tenant, has_parameter, roles_of  # noqa: E402


# Of jobs, and of models and their versions: what their state may forbid.
VERBS = ("/hold", "/release", "/suspend", "/resume", "/requeue", "/checkpoint", "/load", "/unload", "/pin",
         "/unpin")


class Rules(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2")
        cls.addClassCleanup(s.stop)
        cls.a, cls.b = Tenant(s, "anna"), Tenant(s, "berta")
        cls.ops = list(s.spec().operations())

    def key(self, op):
        return self.a.admin if "tenant-admin" in roles_of(op) else self.s.admin

    def call(self, method, path, op, query="", body=None, headers=None):
        return self.s.call(method, path.format(**self.a.params(path)) + query, body, self.key(op), headers)

    def everything(self):
        """Once the scheduler has said of each job why it waits: it does so when it comes to it."""
        for key in (self.a.admin, self.b.admin):
            until("each job that waits has a reason", lambda key=key: all(
                j["reason"] or j["finished_at"] for j in
                self.s.call("GET", "/api/v1/jobs?limit=1000", key=key).json["items"]))
        tenants = self.s.call("GET", "/api/v1/tenants?limit=1000", key=self.s.admin).json
        return self.a.seen(), self.b.seen(), tenants

    def listed(self, path, op):
        path = path.replace("job-batches", "jobs")  # there is no list of them
        r = self.s.call("GET", path.format(**self.a.params(path)) + "?limit=1000", key=self.key(op))
        self.assertNotIn("next_cursor", r.json)
        return [[t.get(k) for k in ("id", "name", "version")] for t in r.json["items"]]

    # ------------------------------------------------------------ dry runs
    def test_a_dry_run_keeps_nothing_and_says_what_would_be(self):
        dry = [o for o in self.ops if has_parameter(o[2], "dry_run", "query")]
        changes = [o for o in self.ops if o[0] != "GET" and o[1].startswith("/api/")]
        self.assertEqual({o[1].rsplit("/", 1)[1] for o in changes if o not in dry},
                         {"artifact", "{file}"})
        before, made, done = self.everything(), [], set()
        for method, path, op in dry:
            with self.subTest("%s %s" % (method, path)):
                body = self.a.body(op)
                r = self.call(method, path, op, "?dry_run=true", body)
                # A thing that is in use, or in another state, is refused as it would be.
                want = {204, 409} if method == "DELETE" else \
                    {200} if "409" not in op["responses"] or not path.endswith(VERBS) else {200, 409}
                self.assertIn(r.status, want, r)
                self.assertNotIn("location", r.headers)
                done.add(r.status)
                if r.status == 200:
                    for k in set(body or {}) & set(r.json) - {"expires_at", "spec"}:
                        self.assertEqual(r.json[k], body[k], r)
                    self.assertIsNone(r.json.get("key"), r)  # no secret of a key that is none
                if method == "POST" and "201" in op["responses"]:
                    made.append((method, path, op, body))
        self.assertEqual(done, {200, 204, 409})
        self.assertEqual(self.everything(), before)
        # It was no empty talk: the same is then done, and refused where it cannot be done twice.
        for method, path, op, body in made:
            with self.subTest("in earnest: %s %s" % (method, path)):
                self.assertEqual(self.call(method, path, op, "?dry_run=false", body).status, 201)
                again = self.call(method, path, op, "", body).status
                self.assertEqual(self.call(method, path, op, "?dry_run=true", body).status,
                                 200 if again == 201 else again)

    def test_a_dry_run_keeps_no_idempotency_key(self):
        path, key = "/api/v1/jobs", {"Idempotency-Key": "rehearsed"}
        op = self.s.spec().find("POST", path)
        body = self.a.body(op)
        dry = self.call("POST", path, op, "?dry_run=true", body, key)
        self.assertEqual(dry.status, 200, dry)
        made = self.call("POST", path, op, "", body, key)
        self.assertEqual((made.status, made.headers.get("idempotency-replayed")), (201, None), made)
        for query, status in (("", 201), ("?dry_run=true", 200)):
            again = self.call("POST", path, op, query, body, key)
            self.assertEqual((again.status, again.headers["idempotency-replayed"]), (status, "true"), again)
            self.assertEqual(again.json, made.json)
            other = self.call("POST", path, op, query, {**body, "priority": 7}, key)
            self.assertEqual((other.status, other.code), (422, "CONFLICT"), other)

    def test_every_create_is_done_once_under_an_idempotency_key(self):
        creates = [o for o in self.ops if o[0] == "POST" and "201" in o[2]["responses"]]
        self.assertEqual([o[:2] for o in creates if not has_parameter(o[2], "Idempotency-Key", "header")], [])
        for n, (method, path, op) in enumerate(creates):
            with self.subTest(path):
                key, body = {"Idempotency-Key": '"once-%d"' % n}, self.a.body(op)
                one, two = {"versions": ({"version": 77}, {"version": 78}),
                            "job-arrays": ({"indices": "0-1"}, {"indices": "0-2"}),
                            "job-batches": ({}, {"jobs": 2 * body.get("jobs", [])})}.get(
                                path.split("/")[-1], ({"name": "once"}, {"name": "other"}))
                body.update(one)
                dry = self.call(method, path, op, "?dry_run=true", body, key)
                self.assertEqual((dry.status, dry.headers.get("idempotency-replayed")), (200, None), dry)
                made = self.call(method, path, op, "", body, key)
                self.assertEqual((made.status, made.headers.get("idempotency-replayed")), (201, None), made)
                before = self.listed(path, op)
                again = self.call(method, path, op, "", body, key)
                self.assertEqual((again.status, again.headers["idempotency-replayed"]), (201, "true"), again)
                self.assertEqual([again.headers.get(h) for h in ("location", "etag")],
                                 [made.headers.get(h) for h in ("location", "etag")])
                # A secret is shown once and kept nowhere.
                self.assertEqual(again.json, {**made.json, **({"key": None} if "key" in made.json else {})})
                r = self.call(method, path, op, "", {**body, **two}, key)
                self.assertEqual((r.status, r.code), (422, "CONFLICT"), r)
                self.assertEqual(self.listed(path, op), before)

    def test_a_create_that_failed_may_try_again_under_its_idempotency_key(self):
        key, path = {"Idempotency-Key": "fails-first"}, "/api/v1/models"
        op, gone = self.s.spec().find("POST", path), {"name": "in-the-way"}
        self.assertEqual(self.call("POST", path, op, "", gone).status, 201)
        self.assertEqual(self.call("POST", path, op, "", gone, key).status, 409)
        r = self.s.call("DELETE", path + "/in-the-way", key=self.a.admin)
        self.assertEqual(r.status, 204, r)
        r = self.call("POST", path, op, "", gone, key)
        self.assertEqual((r.status, r.headers.get("idempotency-replayed")), (201, None), r)

    def test_a_dry_run_is_refused_as_the_change_would_be(self):
        before = self.everything()
        for method, path, op in self.ops:
            if not has_parameter(op, "dry_run", "query"):
                continue
            with self.subTest("%s %s" % (method, path)):
                for body in () if method == "DELETE" else ({**self.a.body(op), "no such field": 1}, [], {"name": 5}):
                    dry, real = (self.call(method, path, op, q, body) for q in ("?dry_run=true", ""))
                    self.assertEqual((dry.status, dry.code, dry.error),
                                     (real.status, real.code, real.error))
                    self.assertEqual(dry.status, 400, dry)
                r = self.call(method, path, op, "?dry_run=perhaps", self.a.body(op))
                self.assertEqual((r.status, r.code), (400, "INVALID"), r)
        self.assertEqual(self.everything(), before)

    def test_other_operations_do_not_take_it_in_silence(self):
        for method, path, op in self.ops:
            if path.startswith("/api/") and not has_parameter(op, "dry_run", "query"):
                r = self.call(method, path, op, "?dry_run=true")
                self.assertEqual((r.status, r.code), (400, "INVALID"), r)
                self.assertIn("dry_run", r.error)

    # ------------------------------------------------------------ ETags
    def test_what_has_an_etag_is_changed_by_it(self):
        """PUT, PATCH and DELETE of what GET answers with an ETag honour If-Match; a file's is its digest."""
        paths = {}
        for method, path, op in self.ops:
            paths.setdefault(path, {})[method] = op
        for path, item in paths.items():
            response = self.s.spec().resolve(item["GET"]["responses"].get("200", {})) if "GET" in item else {}
            if "ETag" in response.get("headers", {}) and "206" not in item["GET"]["responses"]:
                for method in {"PUT", "PATCH", "DELETE"} & set(item):
                    self.assertTrue(has_parameter(item[method], "If-Match", "header"), (method, path))

    def test_an_old_etag_changes_nothing(self):
        before, n = self.everything(), 0
        for method, path, op in self.ops:
            if not has_parameter(op, "If-Match", "header"):
                continue
            body = self.a.body(op) if self.a.body(op) is not None else \
                b"bytes" if op.get("requestBody") else None
            for old in ('"4711"', '"0"', "W/\"1\"", "1", '""'):
                with self.subTest("%s %s with %s" % (method, path, old)):
                    r = self.call(method, path, op, "", body, {"If-Match": old})
                    # A file that is in its place is not replaced, whatever the ETag.
                    want = {412, 409} if path.endswith("/artifact") else {412}
                    self.assertIn(r.status, want, r)
                    n += 1
        self.assertEqual(self.everything(), before)
        self.assertGreater(n, 20)

    def test_the_etag_that_was_read_is_the_one_that_changes(self):
        for method, path, op in self.ops:
            get = self.s.spec().find("GET", path.format(**self.a.params(path)))
            if method not in ("PUT", "PATCH") or not has_parameter(op, "If-Match", "header") or \
                    not isinstance(get, dict):
                continue
            with self.subTest("%s %s" % (method, path)):
                tag = self.call("GET", path, get).headers["etag"]
                body = {k: v for k, v in self.call("GET", path, get).json.items() if
                        k in self.s.spec().resolve(op["requestBody"]["content"]["application/json"]
                                                   ["schema"])["properties"]} or self.a.body(op)
                r = self.call(method, path, op, "", body, {"If-Match": tag})
                self.assertEqual(r.status, 200, r)
                self.assertNotEqual(r.headers["etag"], tag)
                self.assertEqual(self.call("GET", path, get).headers["etag"], r.headers["etag"])
                self.assertEqual(self.call(method, path, op, "", body, {"If-Match": tag}).status, 412)
                self.assertEqual(self.call(method, path, op, "", body, {"If-Match": "*"}).status, 200)

    def test_a_file_for_an_old_version_is_not_taken(self):
        for collection, name in (("/api/v1/models/anna-model/versions", "version"),
                                 ("/api/v1/datasets", "name")):
            r = self.s.call("POST", collection, {} if name == "version" else {"name": "empty"}, self.a.admin)
            at = "%s/%s" % (collection, r.json[name])
            old = self.s.call("PUT", at + "/artifact", b"no file", self.a.admin, {"If-Match": '"99"'})
            self.assertEqual((old.status, old.code), (412, "PRECONDITION"), old)
            self.assertEqual(self.s.call("GET", at, key=self.a.admin).headers["etag"], r.headers["etag"])
            new = self.s.call("PUT", at + "/artifact", b"no file", self.a.admin,
                              {"If-Match": r.headers["etag"]})
            self.assertEqual(new.status, 400, new)

    # ------------------------------------------------------------ cursors
    def test_a_cursor_is_good_for_its_own_list_only(self):
        lists = [(p, op) for m, p, op in self.ops if m == "GET" and has_parameter(op, "cursor", "query")]
        for tenant in (self.a, self.b):
            for i in range(2):
                self.s.call("POST", "/api/v1/models", {"name": "more%d" % i}, tenant.admin)
                self.s.call("POST", "/api/v1/tenants", {"name": "more%d" % i}, self.s.admin)
        found = {}
        for path, op in lists:
            for tenant in (self.a, self.b):
                at = path.format(**tenant.params(path))
                key = tenant.admin if "tenant-admin" in roles_of(op) else self.s.admin
                r = self.s.call("GET", at + "?limit=1", key=key)
                if "next_cursor" in r.json:
                    shared = "{" not in path and (not has_parameter(op, "tenant", "query") or
                                                  roles_of(op) == {"admin"})
                    found[path, "" if shared else tenant.name] = at, key, r.json["next_cursor"]
        self.assertIn(("/api/v1/models", "anna"), found)
        self.assertIn(("/api/v1/tenants", ""), found)
        for own, (at, key, _) in found.items():
            for of, (_, _, cursor) in found.items():
                with self.subTest("%s with a cursor of %s" % (own, of)):
                    r = self.s.call("GET", at + "?cursor=" + cursor, key=key)
                    self.assertEqual((r.status, r.code), (200, None) if of == own else (400, "INVALID"), r)
            for text in (cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), cursor[1:], cursor + "A",
                         "c" * len(cursor), "", "YzAwMDAwMDAwMDAwMDAwMDAwMDE"):
                r = self.s.call("GET", at + "?cursor=" + text, key=key)
                self.assertEqual((r.status, r.code), (400, "INVALID"), (text, r))

    def test_pages_together_are_the_list(self):
        for i in range(5):
            self.s.call("POST", "/api/v1/datasets", {"name": "page%d" % i}, self.a.admin)
        whole = self.s.call("GET", "/api/v1/datasets", key=self.a.admin).json["items"]
        items, query = [], "?limit=2"
        while query:
            page = self.s.call("GET", "/api/v1/datasets" + query, key=self.a.admin).json
            self.assertLessEqual(len(page["items"]), 2)
            items += page["items"]
            query = "next_cursor" in page and "?limit=2&cursor=" + page["next_cursor"]
        self.assertEqual(items, whole)
        self.assertGreater(len(items), 5)

    # ------------------------------------------------------------ the description itself
    def test_examples_are_what_is_described(self):
        n = 0
        for name, schema in self.s.spec().doc["components"]["schemas"].items():
            for example in schema.get("examples", []):
                self.assertEqual(self.s.spec().faults(example, schema), [], name)
                n += 1
        self.assertGreater(n, 5)

    def test_the_judge_judges(self):
        """A reply that is not described is found out."""
        spec, get = self.s.spec(), "/api/v1/models/anna-model"
        r = self.s.call("GET", get, key=self.a.admin)
        spec.check("GET", get, 200, r.headers, r.raw)
        for what, args in (
                ("described are", ("GET", get, 418, r.headers, r.raw)),
                ("media type", ("GET", get, 200, {**r.headers, "content-type": "text/html"}, r.raw)),
                ("no header ETag", ("GET", get, 200, {**r.headers, "etag": None}, r.raw)),
                ("name is missing", ("GET", get, 200, r.headers, r.raw.replace(b'"name"', b'"n"'))),
                ("n is not described", ("GET", get, 200, r.headers, r.raw.replace(b"{", b'{"n":1,', 1))),
                ("not one of", ("GET", get, 200, r.headers, r.raw.replace(b"private", b"public"))),
                ("not of the pattern", ("GET", get, 200, r.headers, r.raw.replace(b"anna-model", b"a/b"))),
                ("no such operation", ("GET", "/api/v1/modles", 200, r.headers, r.raw)),
                ("no such operation", ("PUT", get, 200, r.headers, r.raw))):
            with self.assertRaisesRegex(AssertionError, what):
                spec.check(*args)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
