#!/usr/bin/env python3
"""Two shunt-api, a shunt-scheduler and a PostgreSQL, as the people who run a shared system use them:
keys, usage and shares, queues, the audit. This file plays the executors.

Without it: a key that was revoked could go on opening one of several doors, a change could leave no
trace in the audit, a queue that is held could start jobs, and what a tenant is shown of its share
could be other numbers than those that decide.

Usage: test_tenancy.py [-v] [name ...]   (sched_world.py)
"""
import datetime
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import DIGITS, System, zoo  # noqa: E402
from things import roles_of  # noqa: E402
from sched_world import BIN, RUNNING, URL, Case, main, sql, wait  # noqa: E402

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
                                                      open(path).read()))[0])

    described = None
    call, spec = System.call, System.spec


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
            wait("refused", lambda: not self.opens(key, api))

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
            wait("new", lambda: self.opens(new["key"], api))
            self.assertTrue(self.opens(k["key"], api))
        newest = self.ok("POST", path + "/rotate", api=self.two, status=200)
        self.shut(k["key"])
        self.shut(new["key"])
        for api in (self.one, self.two):
            wait("newest", lambda: self.opens(newest["key"], api))
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
        wait("its use", lambda: self.ok("GET", path)["last_used_at"])
        soon = self.key(expires_at=at(5))
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

    # ------------------------------------------------------------ quotas, usage, shares
    def quota(self, tenant, **fields):
        self.ok("PUT", "/api/v1/tenants/%s/quota" % tenant, fields)

    def share(self, tenant):
        return self.ok("GET", "/api/v1/tenants/%s/share" % tenant)

    def reason(self, job, want):
        wait("job %d waits: %s" % (job, want),
             lambda: sql("SELECT reason FROM job WHERE id = %d" % job) == want)

    def test_what_is_not_lent_is_kept_and_the_share_says_so(self):
        self.quota("research", guaranteed_gpus=1, lending_limit=0)
        e = self.ready_executor()
        borrower = self.submit(tenant=2)
        self.reason(borrower, "LendingLimit")
        wait("what is kept", lambda: self.share("research")["reserved_gpus"] == 1)
        owner = self.submit(tenant=1)
        m = e.expect("JOB_START", job=owner)
        e.job(owner, RUNNING, attempt=m.attempt, step=1, busy_ns=5 * 10 ** 9)
        self.state(owner, "RUNNING")
        own = wait("the share", lambda: (s := self.share("research"))["usage_gpu_seconds"] > 4 and s)
        self.assertEqual([own["running_gpus"], own["reserved_gpus"], own["fair_gpus"]], [1, 0, 1])
        self.assertEqual(own["saturation"], 1)
        other = self.share("vision")
        self.assertEqual([other["running_gpus"], other["waiting_gpus"]], [0, 1])
        self.assertEqual({s["tenant"] for s in self.ok("GET", "/api/v1/shares")["items"]},
                         {"research", "vision"})
        path = "/api/v1/tenants/research/usage"
        e.used(2, (owner, 5 * 10 ** 9, 1, 4))
        e.stored(2)
        self.assertTrue(self.ok("GET", path)["items"])
        for by in ("class", "model", "minute", "hour", "day"):
            items = self.ok("GET", "%s?by=%s&class=training" % (path, by))["items"]
            self.assertEqual(sum(i["gpu_seconds"] for i in items), 5, by)
        self.refused(400, "at most 7 days", "GET", path + "?by=minute&from=" + at(-9 * 86400))
        self.refused(400, "before", "GET", "%s?from=%s&to=%s" % (path, at(9), at(0)))
        self.refused(400, "by", "GET", path + "?by=colour")
        self.refused(404, "no tenant", "GET", path, key=self.key(tenant="vision")["key"])

    # ------------------------------------------------------------ queues
    def submit_to(self, queue):
        return int(sql("INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec)"
                       " SELECT 1, id, 'training', 1, 1, '{\"batch\": 4}' FROM queue WHERE name ="
                       " '%s' AND deleted_at IS NULL RETURNING id" % queue))

    def test_a_queue_that_is_held_starts_nothing_and_one_that_drains_goes_on(self):
        k = self.key()["key"]
        e = self.ready_executor()
        q = self.ok("POST", "/api/v1/queues", {"name": "night", "state": "HELD"}, k)
        self.assertEqual([q["state"], q["shared"], q["jobs"]], ["HELD", False, 0])
        job = self.submit_to("night")
        self.reason(job, "QueueHeld")
        self.ok("PATCH", "/api/v1/queues/night", {"state": "DRAINING", "priority": 5}, k)
        m = e.expect("JOB_START", job=job)
        e.job(job, RUNNING, attempt=m.attempt, step=1)
        self.state(job, "RUNNING")
        self.ok("PATCH", "/api/v1/queues/night", {"state": "HELD"}, k)
        self.refused(409, "live jobs", "DELETE", "/api/v1/queues/night", key=k)
        self.assertEqual(sql("SELECT state FROM job WHERE id = %d" % job), "RUNNING")
        self.cancel(job)
        e.expect("JOB_STOP", job=job)
        e.job(job, 6, attempt=m.attempt, step=1)
        self.state(job, "CANCELLED")
        self.ok("DELETE", "/api/v1/queues/night", key=k)
        self.refused(404, "no queue", "GET", "/api/v1/queues/night", key=k)

    def test_shared_queues_are_the_admins(self):
        k, reader = self.key()["key"], self.key("read")["key"]
        self.refused(403, "admin key", "PATCH", "/api/v1/queues/default", {"state": "HELD"}, k)
        self.refused(403, "tenant-admin", "POST", "/api/v1/queues", {"name": "x"}, reader)
        self.refused(409, "cannot be deleted", "DELETE", "/api/v1/queues/default")
        self.refused(409, "exists already", "POST", "/api/v1/queues", {"name": "default"}, k)
        self.refused(400, "state", "PATCH", "/api/v1/queues/default", {})
        self.refused(400, "HELD", "PATCH", "/api/v1/queues/default", {"state": "SHUT"})
        self.ok("POST", "/api/v1/queues", {"name": "all"})
        self.assertTrue(self.ok("GET", "/api/v1/queues/all", key=reader)["shared"])
        r = self.ok("PATCH", "/api/v1/queues/all?tenant=research", {"priority": 3})
        self.refused(412, "ETag", "PATCH", "/api/v1/queues/all", {"priority": 4},
                     headers={"If-Match": '"%d"' % (r["row_version"] - 1)})
        self.assertEqual([q["name"] for q in self.ok("GET", "/api/v1/queues")["items"]],
                         ["default", "all"])

    # ------------------------------------------------------------ audit
    def changes(self):
        """One use of each route that changes something: method, route, path, body, what there was."""
        t, m, d = "/api/v1/tenants", "/api/v1/models", "/api/v1/datasets"
        q, j, of = "/api/v1/queues", "/api/v1/jobs", "?tenant=new"
        spec = {"loss": "cross-entropy", "optimizer": {"name": "sgd", "lr": 0.05}, "batch": 32,
                "epochs": 1, "labels": "label"}
        job = {"kind": "training", "model": "m", "dataset": "d", "spec": spec, "queue": "q"}
        with open(DIGITS + "/test.safetensors", "rb") as f:
            data = f.read()
        yield "POST", t, t, {"name": "new"}, False
        yield "PATCH", t + "/{tenant}", t + "/new", {"state": "ACTIVE"}, True
        yield "PUT", t + "/{tenant}/quota", t + "/new/quota", {"max_running_jobs": 3}, True
        yield "POST", t + "/{tenant}/keys", t + "/new/keys", {"name": "k", "role": "read"}, False
        key = t + "/new/keys/" + self.last["id"]
        yield "POST", t + "/{tenant}/keys/{key}/rotate", key + "/rotate", {"overlap_s": 60}, True
        yield "DELETE", t + "/{tenant}/keys/{key}", key, None, True
        yield "POST", m, m + of, {"name": "m"}, False
        yield "POST", m + "/{model}/versions", m + "/m/versions" + of, {}, False
        yield ("PUT", m + "/{model}/versions/{version}/artifact", m + "/m/versions/1/artifact" + of,
               zoo("digits-cnn", "training"), True)
        yield "PATCH", m + "/{model}", m + "/m" + of, {"visibility": "shared"}, True
        sql("INSERT INTO executor (name, host_id, device, pool_bytes, data_addr, state, epoch)"
            " VALUES ('big', 'h', 'd', 68719476736, '', 'UP', 1)")  # there is room to pin
        for below, at in (("/{model}/versions/{version}", "/m/versions/1"), ("/{model}", "/m")):
            for verb in ("unload", "load", "pin", "unpin"):
                if verb == "pin":  # no executor is there that would make it READY
                    sql("UPDATE model_version SET state = 'READY', image_bytes = 4096")
                yield "POST", m + below + "/" + verb, m + at + "/" + verb + of, None, True
        yield "PUT", m + "/{model}/slo", m + "/m/slo" + of, {"latency_ms": 5}, False
        yield "PUT", m + "/{model}/slo", m + "/m/slo" + of, {"latency_ms": 6}, True
        yield "DELETE", m + "/{model}/slo", m + "/m/slo" + of, None, True
        a, at = m + "/{model}/aliases/{alias}", m + "/m/aliases/live"
        yield "PUT", a, at + of, {"targets": [{"version": 1}]}, False
        yield "PUT", a, at + of, {"targets": [{"version": 1, "weight": 2}]}, True
        yield "POST", a + "/promote", at + "/promote" + of, {"version": 1}, True
        yield "POST", a + "/rollback", at + "/rollback" + of, None, True
        yield "DELETE", a, at + of, None, True
        yield "POST", d, d + of, {"name": "d"}, False
        yield "PUT", d + "/{dataset}/artifact", d + "/d/artifact" + of, data, True
        yield "POST", q, q + of, {"name": "q"}, False
        yield "POST", j, j + of, job, False
        at_job = j + "/%d" % self.last["id"]
        yield "PATCH", j + "/{job}", at_job + of, {"priority": 3, "labels": {"team": "a"}}, True
        for verb in ("hold", "release", "suspend", "resume", "requeue", "checkpoint"):
            if verb in ("suspend", "requeue", "checkpoint"):
                sql("UPDATE job SET state = 'RUNNING', executor = 'big', wish = ''")
            yield "POST", j + "/{job}/" + verb, at_job + "/" + verb + of, None, True
        yield "PATCH", "/api/v1/config", "/api/v1/config", {"max-streams": 99}, True
        b, a = "/api/v1/job-batches", "/api/v1/job-arrays"
        yield "POST", b, b + of, {"jobs": [job, job]}, False
        yield "POST", a, a + of, {"count": 2, "job": job}, False
        at_array = a + "/%d" % self.last["id"]
        yield "PATCH", a + "/{array}", at_array + of, {"max_parallel": 1}, True
        for verb in ("hold", "release", "suspend", "resume", "requeue", "checkpoint", "cancel"):
            if verb in ("suspend", "requeue", "checkpoint"):
                sql("UPDATE job SET state = 'RUNNING', executor = 'big', wish = '' WHERE array_id > 0")
            yield "POST", a + "/{array}/" + verb, at_array + "/" + verb + of, None, True
        one = at_job.rsplit("/", 1)[1]
        sql("DELETE FROM job_event WHERE job_id <> %s; DELETE FROM job WHERE id <> %s" % (one, one))
        yield "PATCH", q + "/{queue}", q + "/q" + of, {"state": "DRAINING"}, True
        self.refused(409, "DRAINING", "POST", j + of, job)
        sql("UPDATE job SET state = 'QUEUED', executor = NULL, wish = ''")
        sql("INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, state, finished_at, spec, result)"
            " SELECT tenant_id, queue_id, 'batch_inference', version_id, dataset_id, 'SUCCEEDED', now(), '{}',"
            " jsonb_build_object('bytes', 5, 'digest', repeat('a', 64)) FROM job")
        done = sql("SELECT max(id) FROM job")
        yield "DELETE", j + "/{job}/result/artifact", j + "/" + done + "/result/artifact" + of, None, True
        yield "POST", j + "/{job}/cancel", at_job + "/cancel" + of, None, True
        yield "DELETE", q + "/{queue}", q + "/q" + of, None, True
        yield "DELETE", d + "/{dataset}", d + "/d" + of, None, True
        yield "DELETE", m + "/{model}/versions/{version}", m + "/m/versions/1" + of, None, True
        yield "DELETE", m + "/{model}", m + "/m" + of, None, True
        yield "DELETE", t + "/{tenant}", t + "/new", None, True

    def audit(self, query):
        return self.ok("GET", "/api/v1/audit?" + query)

    def test_every_route_that_changes_something_says_so_in_the_audit(self):
        # The scheduler would see that no executor has the job. Before it listens a signal kills it.
        wait("scheduler", lambda: os.path.exists(self.addr))
        self.procs[0].terminate()
        self.assertEqual(self.procs[0].wait(LONG_S), 0)
        # What an executor brings is no change of anybody: the job's events tell of it. A what-if changes
        # nothing.
        routes = {(method.upper(), path) for path, methods in self.ok("GET", "/openapi.json")[
            "paths"].items() for method, op in methods.items() if path.startswith("/api/v1/") and
            method in ("post", "put", "patch", "delete") and roles_of(op) != {"executor"} and
            path != "/api/v1/simulate"}
        me, used, secrets = self.admin.split("_")[1], set(), [self.admin.split("_", 2)[2]]
        for n, (method, route, path, body, had) in enumerate(self.changes()):
            request = "change-%d" % n
            r = self.one.call(method, path, body, self.admin, {"X-Request-ID": request})
            self.assertIn(r.status, (200, 201, 202, 204), (path, r))
            self.last = r.json
            if "key" in (r.json or {}):
                secrets.append(r.json["key"].split("_", 2)[2])
            used.add((method, route))
            rows = [a for a in self.audit("actor=" + me)["items"] if a["request_id"] == request]
            self.assertEqual(len(rows), 1, (method, route))
            a = rows[0]
            self.assertEqual([a["actor"], a["tenant"] or "new"], [me, "new"], a)
            self.assertRegex(a["action"], r"^[a-z]+\.[a-z]+$")
            self.assertTrue(a["resource"], a)
            self.assertEqual(a["before"] is not None, had, a)
            self.assertTrue(method == "DELETE" or a["after"], a)
        self.assertEqual(routes - used, set(), "changes() has no use of these routes")
        self.assertEqual(used - routes, set())
        text = sql("SELECT string_agg(a::text, ' ') FROM audit a")
        hashes = sql("SELECT string_agg(encode(hash, 'hex') || ' ' || coalesce(encode(old_hash,"
                     " 'hex'), ''), ' ') FROM api_key").split()
        for secret in secrets + hashes:
            self.assertNotIn(secret, text)

    def test_what_is_refused_is_not_in_the_audit_and_its_pages_are_for_admins(self):
        k = self.key()
        self.one.call("POST", "/api/v1/tenants", {"name": "research"}, self.admin,
                      {"X-Request-ID": "refused"})
        self.refused(403, "admin", "GET", "/api/v1/audit", key=k["key"])
        rows, cursor = [], ""
        while cursor is not None:
            page = self.audit("limit=1" + cursor)
            rows += page["items"]
            cursor = "&cursor=" + page["next_cursor"] if "next_cursor" in page else None
        self.assertNotIn("refused", [r["request_id"] for r in rows])
        self.assertEqual([r["id"] for r in rows], sorted((r["id"] for r in rows), reverse=True))
        self.assertIn("key/" + k["id"], [r["resource"] for r in rows])
        self.assertEqual(self.audit("tenant=vision")["items"], [])
        self.assertEqual(self.audit("tenant=research&action=key")["items"][0]["action"], "key.create")
        self.assertEqual(self.audit("to=" + at(-3600))["items"], [])
        self.refused(400, "from", "GET", "/api/v1/audit?from=yesterday")

    # ------------------------------------------------------------ the end of what is old
    def test_the_leader_removes_what_is_old_while_jobs_go_on(self):
        self.procs[0].terminate()
        self.procs[0].wait(LONG_S)
        sql("""INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, state,
                                finished_at)
                   SELECT 1, 1, 'training', 1, 1, '{}', 'SUCCEEDED', now() - interval '9 days'
                   FROM generate_series(1, 3000);
               INSERT INTO job_event (job_id, to_state, at)
                   SELECT id, 'SUCCEEDED', finished_at FROM job;
               INSERT INTO audit (at, request_id, action, resource)
                   SELECT now() - interval '9 days', 'old', 'a.b', 'c' FROM generate_series(1, 3000)""")
        self.start("s2", "--keep-jobs-days=5", "--keep-audit-days=5")
        e = self.ready_executor()
        job = self.running(e)
        wait("old jobs are gone", lambda: sql("SELECT count(*) FROM job") == "1")
        wait("the audit too", lambda: sql("SELECT count(*) FROM audit WHERE request_id = 'old'")
             == "0")
        # The audit's first one is long: the first leader may have made one that follows it, or not.
        wait("partitions ahead", lambda: sql("SELECT count(DISTINCT parent) FROM history_partition WHERE lo > now() "
             "AND NOT is_default AND parent <> 'audit'") == "2")
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING"])
        self.assertEqual(sql("SELECT epoch FROM lease"), "2")


if __name__ == "__main__":
    main()
