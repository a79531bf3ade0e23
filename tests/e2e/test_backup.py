#!/usr/bin/env python3
"""A system goes into one file while it serves, and comes out of it elsewhere; what is no whole copy is
refused.

Without it: a backup could lack what its database refers to, a job could begin anew or a key be lost, a
state folder that was copied without its database could come up as an empty system, `down --purge`
could remove somebody else's database or leave its own, and a hostile file could write outside of the
folder.

Usage: test_backup.py [-v] [name ...]
"""
import contextlib
import copy
import glob
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, ROOT, WAIT_S, Story, System, st_bytes, until, zoo  # noqa: E402

HEAD, SUMS = "shunt-backup.json", "shunt-backup.sums"
X = [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [0.5, -1.0, 2.0, 0.25, 1.0, 1.0, -3.0, 0.0]}]
ROOT_USER = os.geteuid() == 0


def aux_of(state):
    """Where the cluster lies if PostgreSQL's user cannot reach the state folder."""
    return "/var/tmp/shunt-" + hashlib.sha256(os.path.realpath(state).encode()).hexdigest()[:12]


class Files(Story):
    """What is common: a folder, `shunt` in it, and no system left behind."""

    def setUp(self):
        self.dir = self.enterContext(TemporaryFolder())
        self.conf = tempfile.NamedTemporaryFile()  # none of the user's
        self.addCleanup(self.conf.close)
        self.states = []

    def path(self, name):
        return os.path.join(self.dir, name)

    def shunt(self, *args, state=None, ok=True, env=None, **kw):
        """Output and errors of a command; ok: its exit status is to be 0."""
        base = {k: v for k, v in os.environ.items()
                if k == "SHUNT_PG_BIN" or not k.startswith("SHUNT_") and k != "DATABASE_URL"}
        where = ["--state-dir", self.path(state)] if state else []
        if state and self.path(state) not in self.states:
            self.states.append(self.path(state))
            self.addCleanup(subprocess.run, [os.path.join(BIN, "shunt"), "down", "--purge", "--quiet",
                                             "--state-dir", self.path(state)], check=False, env=base,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=150)
        r = subprocess.run([os.path.join(BIN, "shunt"), *args, *where], check=False, text=True, timeout=300,
                           env={**base, "SHUNT_CONFIG": self.conf.name, **(env or {})}, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, **kw)
        if ok is not None:
            self.assertEqual(r.returncode == 0, ok, "%s: %s" % (args, r.stdout))
        return r.stdout

    def up(self, state, **kw):
        return self.shunt("up", "--port=0", "--pool-bytes=64M", "--threads=1", "--workers=2", state=state, **kw)

    def refuses(self, *args, text, state=None, **kw):
        out = self.shunt(*args, state=state, ok=False, **kw)
        for part in (text,) if isinstance(text, str) else text:
            self.assertIn(part, out)
        return out


class TemporaryFolder(contextlib.AbstractContextManager):
    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="shunt-e2e.")
        os.chmod(self.path, 0o755)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


class Backup(Files):
    """One system with everything, and its backup."""

    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2")
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("anna")
        s.push(cls.key, "lin", onnx.linear(4, 3))
        s.push(cls.key, "digits", zoo("digits-cnn", "training"))
        with open(os.path.join(ROOT, "examples/digits/test.safetensors"), "rb") as f:
            s.push_data(cls.key, "test", f.read())
        cls.done = s.submit(cls.key, model="digits", dataset="test", spec={"epochs": 1}).json["id"]
        s.wait_job(cls.key, cls.done)
        r = s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "digits", "dataset": "test",
                                            "spec": {}}, cls.key)
        cls.batch = r.json["id"]
        s.wait_job(cls.key, cls.batch)
        cls.result = s.call("GET", "/api/v1/jobs/%d/result/artifact" % cls.batch, key=cls.key).raw
        cls.answer = s.infer(cls.key, "lin", X).json["outputs"]
        cls.failed_requests, stop = [], threading.Event()

        def client():
            while not stop.is_set():
                r = s.infer(cls.key, "lin", X)
                if r.status != 200 or r.json["outputs"] != cls.answer:
                    cls.failed_requests.append(r)
        threads = [threading.Thread(target=client) for _ in range(2)]
        for t in threads:
            t.start()
        cls.file = os.path.join(s.dir, "b.tar")
        try:
            for _ in range(3):  # each replaces the one before
                s.cli("backup", cls.file)
            cls.steps = 1500
            while not cls.backup_amid_training():
                cls.steps *= 2
        finally:
            stop.set()
            for t in threads:
                t.join()

    @classmethod
    def backup_amid_training(cls):
        """Whether the job was under way from before it to behind it; if so it is not needed any more."""
        cls.long = cls.s.submit(cls.key, model="digits", dataset="test", version=1,
                                spec={"epochs": None, "steps": cls.steps, "checkpoint_interval_ms": 20,
                                      "publish": False}).json["id"]
        until("it has a checkpoint", lambda: cls.s.job(cls.key, cls.long, "/checkpoints").json["items"])
        cls.s.cli("backup", cls.file)
        return cls.s.call("POST", "/api/v1/jobs/%d/cancel" % cls.long, key=cls.key).status == 200 and \
            cls.s.wait_job(cls.key, cls.long)["state"] == "CANCELLED"

    def members(self):
        with tarfile.open(self.file) as t:
            return {m.name: t.extractfile(m).read() for m in t.getmembers()}

    def test_requests_do_not_notice_it_and_nothing_is_left(self):
        self.assertEqual(self.failed_requests, [])
        self.assertEqual(glob.glob(self.file + ".*"), [])
        self.assertFalse(os.path.exists(os.path.join(self.s.state, "backup.tmp")))
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        names = self.members()
        head = json.loads(names[HEAD])
        self.assertEqual((list(names)[0], list(names)[-1], head["format"]), (HEAD, SUMS, 1))
        for line in names[SUMS].decode().splitlines():
            sha, size, name = line.split(" ")
            self.assertEqual((sha, int(size)), (hashlib.sha256(names[name]).hexdigest(), len(names[name])))
        self.assertTrue([n for n in names if n.startswith("jobs/%d/ckpt-" % self.long)], list(names))

    def test_everything_comes_out_of_it_elsewhere(self):
        self.shunt("restore", self.file, state="new/place")
        self.assertEqual(os.listdir(self.path("new")), ["place"])
        self.up("new/place")
        admin = open(self.path("new/place/admin.key")).read().strip()
        self.assertEqual(admin, self.s.admin)
        server = json.load(open(self.path("new/place/run/system.json")))["server"]
        r = copy.copy(self.s)
        r.port = int(server.rsplit(":", 1)[1])
        until("it serves", lambda: r.infer(self.key, "lin", X).status == 200)
        self.assertEqual(r.infer(self.key, "lin", X).json["outputs"], self.answer)
        self.assertEqual([t["name"] for t in r.call("GET", "/api/v1/tenants", key=admin).json["items"]], ["anna"])
        self.assertEqual(r.job(self.key, self.done).json["state"], "SUCCEEDED")
        got = r.call("GET", "/api/v1/jobs/%d/result/artifact" % self.batch, key=self.key)
        self.assertEqual((got.status, got.raw), (200, self.result))
        until("it goes on from a checkpoint", lambda: b"goes on from the checkpoint of step" in
              r.call("GET", "/api/v1/jobs/%d/log" % self.long, key=self.key).raw)
        ended = r.wait_job(self.key, self.long)
        self.assertEqual((ended["state"], ended["step"]), ("SUCCEEDED", self.steps), ended)
        # What comes then is behind what was: events, numbers, versions.
        r = r.submit(self.key, model="digits", dataset="test", spec={"epochs": 1})
        self.assertGreater(r.json["id"], self.long)
        events = self.shunt("events", state="new/place", env={"SHUNT_KEY": self.key})
        self.assertGreater(events.count("\n"), 10)

    def test_a_folder_that_is_used_is_not_restored_into(self):
        self.refuses("restore", self.file, "--state-dir", self.s.state, text="a system runs in")
        os.mkdir(self.path("full"))
        with open(self.path("full/notes"), "w") as f:
            f.write("mine")
        self.refuses("restore", self.file, "--state-dir", self.path("full"), text="is not empty")
        self.assertEqual(os.listdir(self.path("full")), ["notes"])
        self.refuses("restore", self.path("none.tar"), text="none.tar", state="x")
        os.mkdir(self.path("empty"))
        self.shunt("restore", self.file, state="empty")
        self.refuses("restore", self.file, "--state-dir", self.path("empty"), text="is not empty")

    def test_only_a_backup_is_replaced(self):
        with open(self.path("model.onnx"), "w") as f:
            f.write("mine")
        self.refuses("backup", self.path("model.onnx"), "--state-dir", self.s.state, text="is no backup")
        self.assertEqual(open(self.path("model.onnx")).read(), "mine")
        self.refuses("backup", self.path("no/such/b.tar"), "--state-dir", self.s.state, text="b.tar")
        self.refuses("backup", self.path("b.tar"), "--state-dir", self.path("nowhere"), text="no state folder")

    def test_standard_output_and_input(self):
        with open(self.path("out.tar"), "wb") as f:
            subprocess.run([os.path.join(BIN, "shunt"), "backup", "-", "--state-dir", self.s.state, "--quiet"],
                           check=True, env=self.s.env, stdout=f, timeout=WAIT_S)
        with open(self.path("out.tar"), "rb") as f:
            self.shunt("restore", "-", state="piped", stdin=f)
        self.assertTrue(os.path.exists(self.path("piped/admin.key")))

    def rewrite(self, change, sums=True):
        """The backup with other entries; sums: their list is right again."""
        out, listed = io.BytesIO(), ""
        with tarfile.open(self.file) as t, tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as w:
            entries = change([(m, t.extractfile(m).read()) for m in t.getmembers()])
            for m, data in entries:
                if m.name == SUMS and sums:
                    data = listed.encode()
                m.size = len(data)
                w.addfile(m, io.BytesIO(data))
                listed += "%s %d %s\n" % (hashlib.sha256(data).hexdigest(), len(data), m.name)
        return out.getvalue()

    def bad(self, what, data, text):
        with open(self.path("bad.tar"), "wb") as f:
            f.write(data)
        before = set(os.listdir(self.dir))
        out = self.shunt("restore", self.path("bad.tar"), "--state-dir", self.path("target"), ok=False)
        self.assertIn(text, out, what)
        self.assertEqual(set(os.listdir(self.dir)), before, what)

    def test_what_is_not_whole_or_not_ours_is_refused_and_leaves_nothing(self):
        with open(self.file, "rb") as f:
            good = f.read()
        rnd = random.Random(7)
        for n in [0, 1, 511, 512, 700, 1024, *(rnd.randrange(1024, len(good) - 3000) for _ in range(6))]:
            self.bad("the first %d bytes" % n, good[:n], "not whole" if n != 0 else "")
        for _ in range(8):
            at = rnd.randrange(len(good) - 11000)
            self.bad("byte %d" % at, good[:at] + bytes([good[at] ^ 0x20]) + good[at + 1:], "")
        self.bad("no tar file", os.urandom(5000), "no backup")
        self.bad("text", b"shunt-backup.json" * 100, "no backup")

        def entry(name, data=b"x", kind=tarfile.REGTYPE, link="", at=2):
            def change(entries):
                m = tarfile.TarInfo(name)
                m.type, m.linkname = kind, link
                return entries[:at] + [(m, data)] + entries[at:]
            return self.rewrite(change)
        out = self.path("outside")
        for name in ("../outside", "jobs/../../outside", "jobs/1/../../../outside", out, "jobs/1/../x", "jobs/1/.x",
                     "blobs/packages/x/graph.json", "blobs/tmp/x", "pg/data/x", "run/system.json", "notes",
                     "blobs/packages/%s/a/b" % ("0" * 64), "created-by-shunt", "jobs//x", "jobs/1/", ".", ""):
            self.bad(name, entry(name), "")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            self.bad("type %r" % kind, entry("jobs/1/x", b"", kind, "/etc/passwd"), "no plain file")
        self.bad("twice", entry("admin.key", b"other", at=-1), "twice")
        self.assertFalse(os.path.exists(out))

        def head(**fields):
            def change(entries):
                e = dict(json.loads(entries[0][1]), **fields)
                return [(entries[0][0], json.dumps(e).encode())] + entries[1:]
            return self.rewrite(change)
        self.bad("a newer schema", head(schema=1000), "newer release")
        self.bad("another format", head(format=2), "another format")
        self.bad("too large for the disk", head(bytes=1 << 60), "are free")
        self.bad("more than it says", head(bytes=-(1 << 40)), "")
        self.bad("no head", self.rewrite(lambda e: e[1:]), "it begins with")
        self.bad("no database", self.rewrite(lambda e: [x for x in e if x[0].name != "database.dump"]),
                 "no database")
        self.bad("a file less", self.rewrite(lambda e: [x for x in e if x[0].name != "admin.key"], sums=False),
                 "list of digests")
        self.bad("no list", self.rewrite(lambda e: e[:-1]), "list of digests is missing")
        broken = self.rewrite(lambda e: [(m, b"PGDMP nonsense" if m.name == "database.dump" else d) for m, d in e])
        self.bad("a broken dump", broken, "pg_restore failed")

    def test_killed_it_leaves_what_the_next_one_removes(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            p = subprocess.Popen([os.path.join(BIN, "shunt"), "backup", self.path("k.tar"), "--state-dir", self.s.state],
                                 env=self.s.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until("it works", lambda: os.path.exists(os.path.join(self.s.state, "backup.tmp/database.dump")) or
                  p.poll() is not None)
            p.send_signal(sig)
            p.wait(WAIT_S)
            if sig != signal.SIGKILL:
                self.assertFalse(os.path.exists(os.path.join(self.s.state, "backup.tmp")))
        self.shunt("backup", self.path("k.tar"), "--state-dir", self.s.state)
        self.assertFalse(os.path.exists(os.path.join(self.s.state, "backup.tmp")))
        p = subprocess.Popen([os.path.join(BIN, "shunt"), "restore", self.file, "--state-dir", self.path("half")],
                             env=self.s.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("it is at the database", lambda: os.path.exists(self.path("half/pg")) or p.poll() is not None)
        p.kill()
        if p.wait(WAIT_S) != 0:  # else it was too quick for us
            self.refuses("up", "--port=0", state="half", text=("restore", "interrupted", "--purge"))
        self.shunt("down", "--purge", state="half")
        self.assertFalse(os.path.exists(self.path("half")))
        self.shunt("restore", self.file, state="half")

    def sql(self, text, database="postgres"):
        """In the cluster of the system that runs."""
        pg = os.path.realpath(os.path.join(self.s.state, "pg"))
        p = subprocess.run(["psql", "-XAtq", "-h", pg, "-U", "shunt", "-v", "ON_ERROR_STOP=1", "-c", text, database],
                           check=True, text=True, stdout=subprocess.PIPE)
        return p.stdout.strip()

    def new_database(self, name):
        """Its URL without a name."""
        self.sql("CREATE DATABASE " + name)
        self.addCleanup(self.sql, "DROP DATABASE %s WITH (FORCE)" % name)
        return "postgresql://shunt@/?host=" + os.path.realpath(os.path.join(self.s.state, "pg")).replace("/", "%2F")

    def test_a_database_that_has_the_name_of_its_user(self):
        """Which is the one that is meant where no name is given."""
        url = self.new_database("shunt")
        self.shunt("restore", self.file, "--db-url", url, state="named")
        self.assertEqual(self.sql("SELECT count(*) FROM tenant", "shunt"), self.sql("SELECT count(*) FROM tenant"))

    def test_a_history_that_takes_longer_than_a_statement_may(self):
        """Of months, or on a slow disk: here the first statement that changes it is slow."""
        self.sql("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                 "$$ BEGIN PERFORM pg_sleep(2.5); RETURN NULL; END $$; CREATE TRIGGER slow BEFORE UPDATE ON "
                 "job_event FOR EACH STATEMENT EXECUTE FUNCTION slow()")
        self.addCleanup(self.sql, "SET client_min_messages = warning; DROP FUNCTION slow CASCADE")
        self.shunt("backup", self.path("slow.tar"), "--state-dir", self.s.state)
        url = self.new_database("shunt")
        self.shunt("restore", self.path("slow.tar"), "--db-url", url, state="slow")
        self.assertEqual(self.sql("SELECT bool_and(xid = '3') FROM job_event", "shunt"), "t")
        self.sql("CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                 "$$ BEGIN RAISE EXCEPTION 'no such luck'; END $$")
        self.shunt("backup", self.path("slow.tar"), "--state-dir", self.s.state)
        url = self.new_database("broken").replace("@/?", "@/broken?")
        self.refuses("restore", self.path("slow.tar"), "--db-url", url, state="broken",
                     text=("psql failed: no such luck", "the next try needs a new one"))
        self.assertFalse(os.path.exists(self.path("broken")))
        self.refuses("restore", self.path("slow.tar"), "--db-url", url, state="broken", text="has tables")

    def test_why_a_database_does_not_take_it_is_told(self):
        url = self.new_database("odd").replace("@/?", "@/odd?")
        for f in self.sql("SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'public'::regnamespace "
                          "AND pronargs = 0 AND prorettype = 'trigger'::regtype").split():
            self.sql("CREATE FUNCTION %s RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'" % f, "odd")
        self.refuses("restore", self.file, "--db-url", url, state="odd",
                     text=("pg_restore failed: could not execute query", "already exists"))
        self.assertEqual(self.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", "odd"), "0")

    def test_a_database_that_is_elsewhere(self):
        name = "other%d" % os.getpid()
        url = self.new_database(name).replace("@/?", "@/%s?" % name)
        self.refuses("restore", self.file, "--db-url", url.replace("/" + name, "/postgres"), state="given",
                     text="has tables")
        self.shunt("restore", self.file, "--db-url", url, state="given")
        self.assertFalse(os.path.exists(self.path("given/pg")))
        self.refuses("up", "--port=0", state="given", text=("there was a system", "--db-url"))
        self.up("given", env={"DATABASE_URL": url})
        self.assertIn("anna", self.shunt("get", "tenants", state="given"))
        self.refuses("backup", self.path("g.tar"), state="given", text="--db-url")
        self.shunt("backup", self.path("g.tar"), state="given", env={"DATABASE_URL": url})
        self.shunt("down", state="given")
        self.shunt("restore", self.path("g.tar"), state="own")
        self.up("own")
        self.assertIn("anna", self.shunt("get", "tenants", state="own"))


class Copies(Files):
    """State folders that were copied, moved or robbed. `apart`: the cluster lies outside of the folder."""

    def system(self, name, apart):
        os.makedirs(self.path(os.path.dirname(name)), exist_ok=True)
        os.chmod(self.path(os.path.dirname(name)), 0o700 if apart else 0o755)
        self.up(name)
        self.assertEqual(os.path.islink(self.path(name + "/pg")), apart)
        # A machine that stands still loses a connection to the database; the command says to try again.
        until("a tenant", lambda: "try again" not in self.shunt("create", "tenant", "anna", state=name, ok=None))
        self.assertIn("anna", self.shunt("get", "tenants", state=name))

    def copy(self, a, b):
        os.makedirs(os.path.dirname(self.path(b)), exist_ok=True)
        subprocess.run(["cp", "-a", self.path(a), self.path(b)], check=False, stderr=subprocess.DEVNULL)

    @unittest.skipUnless(ROOT_USER, "only root's clusters lie apart")
    def test_copied_without_its_database_it_is_no_empty_system(self):
        self.system("in/s", True)
        aux = aux_of(self.path("in/s"))
        self.shunt("down", state="in/s")
        self.copy("in/s", "in/copy")
        self.shunt("down", "--purge", state="in/s")
        self.assertFalse(os.path.exists(aux))
        self.copy("in/copy", "in/s")
        for name in ("in/s", "in/copy"):
            self.refuses("up", "--port=0", state=name, text=("is not there any more", "shunt restore"))
            self.refuses("backup", self.path("b.tar"), state=name, text="is not there any more")
        self.shunt("down", "--purge", state="in/s")
        self.up("in/s")

    @unittest.skipUnless(ROOT_USER, "only root's clusters lie apart")
    def test_a_copy_is_not_the_system_that_runs(self):
        self.system("in/s", True)
        self.copy("in/s", "in/copy")
        shutil.rmtree(self.path("in/copy/run"))
        self.refuses("up", "--port=0", state="in/copy", text=("leads to the database of another state folder",
                                                              self.path("in/s")))
        out = self.shunt("down", "--purge", state="in/copy")
        self.assertIn("it stays", out)
        self.assertFalse(os.path.exists(self.path("in/copy")))
        self.assertIn("anna", self.shunt("get", "tenants", state="in/s"))
        # Another system in the place of the one that the copy was taken of.
        self.shunt("down", state="in/s")
        self.copy("in/s", "in/copy")
        self.shunt("down", "--purge", state="in/s")
        self.system("in/s", True)
        self.shunt("down", state="in/s")
        os.rename(self.path("in/s"), self.path("in/mine"))
        os.rename(self.path("in/copy"), self.path("in/s"))
        self.refuses("up", "--port=0", state="in/s", text="is of another system")
        self.shunt("down", "--purge", state="in/s")
        self.assertTrue(os.path.isdir(aux_of(self.path("in/s"))))
        os.rename(self.path("in/mine"), self.path("in/s"))
        self.up("in/s")
        self.assertIn("anna", self.shunt("get", "tenants", state="in/s"))

    @unittest.skipUnless(ROOT_USER, "only root's clusters lie apart")
    def test_a_folder_that_was_renamed_takes_its_database_along_when_it_goes(self):
        for running in (False, True):
            self.system("in/s", True)
            aux = aux_of(self.path("in/s"))
            if not running:
                self.shunt("down", state="in/s")
            os.rename(self.path("in/s"), self.path("in/moved"))
            if not running:
                self.refuses("up", "--port=0", state="in/moved", text="move the folder back")
            self.shunt("down", "--purge", state="in/moved")
            self.assertFalse(os.path.exists(self.path("in/moved")))
            self.assertFalse(os.path.exists(aux))

    def test_a_copy_with_its_database_counts_if_nothing_ran(self):
        self.system("out/s", False)
        self.copy("out/s", "out/torn")
        shutil.rmtree(self.path("out/torn/run"))
        self.refuses("up", "--port=0", state="out/torn", text=("while its database ran", "shunt backup"))
        self.shunt("down", state="out/s")
        self.copy("out/s", "out/copy")
        os.rename(self.path("out/s"), self.path("out/moved"))
        for name in ("out/copy", "out/moved"):
            self.up(name)
            self.assertIn("anna", self.shunt("get", "tenants", state=name))
            self.shunt("down", state=name)
        shutil.rmtree(self.path("out/copy/pg"))
        self.refuses("up", "--port=0", state="out/copy", text=("its database is not there", "shunt restore"))
        # A system that is down is backed up as well.
        self.shunt("backup", self.path("b.tar"), state="out/moved")
        self.shunt("restore", self.path("b.tar"), state="out/back")
        self.up("out/back")
        self.assertIn("anna", self.shunt("get", "tenants", state="out/back"))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
