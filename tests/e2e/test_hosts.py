#!/usr/bin/env python3
"""An executor that does not share the state folder: what it needs comes from the API by digest, what
its jobs leave goes there. It runs in a mount namespace where the folders of the API are empty. It
speaks to the scheduler and the API over TCP, at an address of this host that is not loopback where
there is one, so all processes have one key.

Without it: an executor on another host could find no model and no dataset, or take half of one or a
damaged one for whole; a job whose host is gone could begin anew; its folder could grow without end;
somebody with another key, or an executor that has lost its job, could write to a job's folder; and
whoever reaches a port could pose as an executor.

Usage: test_hosts.py [-v] [name ...]
"""
import base64
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
import wire  # noqa: E402
from system import BIN, DIGITS, Story, System, free_port, st_bytes, until, zoo  # noqa: E402

TRAIN, TEST = (open(os.path.join(DIGITS, n + ".safetensors"), "rb").read() for n in ("train", "test"))


def alone():
    """How to run a command with mounts of its own; None where that is not allowed."""
    for words in (["unshare", "-m"], ["unshare", "-r", "-m"]):
        if subprocess.run([*words, "mount", "-t", "tmpfs", "none", "/mnt"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0:
            return words
    return None


def own_address():
    """One that other hosts would use; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
            return s.getsockname()[0]
        except OSError:
            return "127.0.0.1"


class Line:
    """Between executor and API: cuts off answers about one blob, damages a byte of them or of what is
    sent, keeps what was asked."""

    def __init__(self, port):
        self.port, self.asked, self.cuts, self.damage, self.damage_out = port, [], [], 0, 0
        self.of = ""  # the blob's digest
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addr = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.port))
                asks = {"about": "", "bytes": 0}  # the last request of this connection
                for run in (self.there, self.back):
                    threading.Thread(target=run, args=(client, server, asks), daemon=True).start()

    def there(self, client, server, asks):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                head = data.split(b"\r\n\r\n")[0]
                if re.match(rb"(GET|HEAD|PUT) ", head):
                    asks.update(about=head.decode(errors="replace"), bytes=0)
                    self.asked.append(asks["about"])
                elif self.damage_out and len(data) > 1000:
                    self.damage_out -= 1
                    data = data[:-1] + bytes([data[-1] ^ 1])
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def back(self, client, server, asks):
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                asks["bytes"] += len(data)
                is_it = self.of and self.of in asks["about"]
                if is_it and self.damage and len(data) > 1000:
                    self.damage -= 1
                    data = data[:-1] + bytes([data[-1] ^ 1])
                if is_it and self.cuts and asks["bytes"] > self.cuts[0]:
                    self.cuts.pop(0)
                    break
                client.sendall(data)
        for s in (client, server):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


class Hosts(Story):
    @classmethod
    def setUpClass(cls):
        cls.alone = alone()
        if cls.alone is None:
            raise unittest.SkipTest("mounts of its own need root or user namespaces")
        folder = tempfile.mkdtemp(prefix="shunt-e2e.")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.link_key, cls.link_file = secrets.token_hex(32), os.path.join(folder, "link.key")
        cls.write_link_keys(cls.link_key)
        cls.s = s = System("--workers=2", GRACE_MS="300", MIN_COPIES="2", LINK_KEY_FILE=cls.link_file)
        cls.addClassCleanup(s.stop)
        cls.address = own_address()
        cls.open_scheduler()
        cls.key = s.tenant("anna")
        cls.executor_key = open(os.path.join(s.state, "executor.key")).read().strip()
        s.push(cls.key, "line", onnx.linear(64, 10), max_batch=4)
        s.push(cls.key, "digits", zoo("digits-cnn", "training"), max_batch=8)
        s.push_data(cls.key, "train", TRAIN)
        s.push_data(cls.key, "test", TEST)
        cls.n = 0

    @classmethod
    def write_link_keys(cls, *keys):
        """In one step, as an operator would."""
        with open(cls.link_file + ".new", "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write("".join(k + "\n" for k in keys))
        os.rename(cls.link_file + ".new", cls.link_file)

    @classmethod
    def daemon_env(cls):
        with open("/proc/%d/environ" % cls.s.pid("api"), "rb") as f:
            return dict(e.decode().split("=", 1) for e in f.read().split(b"\0") if b"=" in e)

    @classmethod
    def open_scheduler(cls):
        """`shunt up` is for one host: a scheduler that other hosts reach takes the lead from its own."""
        s, port, metrics = cls.s, free_port(), free_port()
        unix = "unix:%s/run/scheduler.sock" % s.state
        cls.scheduler = "tcp:%s:%d" % (cls.address, port)
        s.metrics_ports["open"] = metrics
        with s.held():
            s.kill("scheduler", signal.SIGTERM)
            with open(os.path.join(s.state, "log", "scheduler-open.log"), "wb") as log:
                p = subprocess.Popen(
                    [os.path.join(BIN, "shunt-scheduler"), "--name=open", "--grace-ms=300",
                     "--listen=%s,tcp:%s:%d" % (unix, "0.0.0.0", port), "--metrics-addr=127.0.0.1:%d" % metrics],
                    stderr=log, env=cls.daemon_env())
            cls.addClassCleanup(p.wait, 30)
            cls.addClassCleanup(p.terminate)
            until("it leads", cls.is_open_leading)

    @classmethod
    def is_open_leading(cls):
        return cls.counted("open", "shunt_leader")

    @classmethod
    def let_open_lead(cls):
        """On a busy machine it may not have run for as long as its lease: then the other one leads, which no
        other host reaches."""
        if not cls.is_open_leading():
            with cls.s.held():
                cls.s.kill("scheduler", signal.SIGTERM)
                until("it leads again", cls.is_open_leading)

    @classmethod
    def counted(cls, process, series):
        try:
            return cls.s.metrics(process).get(series, 0)
        except OSError:
            return 0

    def setUp(self):
        self.remote, self.slow = None, ""
        self.home = os.path.join(self.s.dir, "other%d" % Hosts.n)
        Hosts.n += 1

    def tearDown(self):
        if self.remote:
            self.end()
        self.s.failed or shutil.rmtree(self.home, ignore_errors=True)

    # ------------------------------------------------------------ the other host
    def start(self, *options, api=None, key=None, up=True, programs=BIN):
        os.makedirs(self.home, exist_ok=True)
        key_file = os.path.join(self.home, "key")
        self.data_port = free_port()
        with open(key_file, "w") as f:
            f.write(key or self.executor_key)
        hide = self.slow + "".join("mount -t tmpfs none '%s/%s' && " % (self.s.state, d) for d in ("blobs", "jobs"))
        self.log = os.path.join(self.home, "log")
        command = [os.path.join(programs, "shunt-executor"), "--name=far", "--state-dir=" + self.home,
                   "--api=" + (api or "http://127.0.0.1:%d" % self.s.port), "--api-key-file=" + key_file,
                   "--scheduler=" + self.scheduler, "--link-key-file=" + self.link_file, "--workers=2",
                   "--data-addr=tcp:%s:%d" % (self.address, self.data_port), "--pool-bytes=256M", "--threads=1",
                   "--metrics-addr=127.0.0.1:%d" % self.s.metrics_ports.setdefault("far", free_port()),
                   "--checkpoint-interval-ms=100", "--api-retry-s=3", *options]
        with open(self.log, "ab") as log:
            self.remote = subprocess.Popen([*self.alone, "sh", "-c", hide + 'exec "$@"', "sh", *command],
                                           stderr=log, env={**self.s.env, "PATH": BIN + ":" + os.environ["PATH"]})
        if up:
            until("the other executor is there", self.is_far_up)

    def is_far_up(self):
        self.let_open_lead()
        return self.executor("far").get("state") == "UP"

    def end(self, sig=signal.SIGTERM):
        self.remote.send_signal(sig)
        self.remote.wait(30)
        self.remote = None
        until("its end was heard of", lambda: self.executor("far").get("state") != "UP")

    def executor(self, name):
        items = self.s.call("GET", "/api/v1/executors", key=self.key).json["items"]
        return next((e for e in items if e["name"] == name), {})

    @contextlib.contextmanager
    def without_the_near_one(self):
        old = 0
        try:
            with self.s.held():
                old = self.s.kill("executor-cpu0")
                until("it is gone", lambda: self.executor("cpu0")["state"] != "UP")
                yield
        finally:
            self.s.wait_new("executor-cpu0", old)
            until("it is there again", lambda: self.executor("cpu0")["state"] == "UP")

    def said(self, event, text=""):
        return [line for line in open(self.log, errors="replace") if " ev=" + event in line and text in line]

    def place(self, model, version=1):
        r = self.s.call("GET", "/api/v1/models/%s/versions/%d/placements" % (model, version), key=self.key)
        return next((p for p in r.json["placements"] if p["executor"] == "far"), {})

    def ready(self, model, version=1):
        until("%s is ready there" % model, lambda: self.place(model, version).get("state") == "READY")

    def run_job(self, submitted, want="SUCCEEDED"):
        self.assertEqual(submitted.status, 201, submitted)
        j = self.s.wait_job(self.key, submitted.json["id"])
        self.assertEqual(j["state"], want, (j, open(self.log).read()[-3000:] if self.remote else ""))
        return j

    def train(self, **more):
        return self.s.submit(self.key, model="digits", version=1, dataset="train", eval_dataset="test", **more)

    def logged(self, job, text):
        """The log of a job, once it holds the text."""
        return until(text, lambda: (lambda log: text in log and log)(
            self.s.job(self.key, job, "/log").raw.decode()))

    def artifact(self, job):
        r = self.s.job(self.key, job, "/result/artifact")
        self.assertEqual(r.status, 200, r)
        return r.raw

    # ------------------------------------------------------------ stories
    def test_everything_works_without_the_folder(self):
        x = [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [i / 64 for i in range(64)]}]
        batch = {"kind": "batch_inference", "model": "digits", "version": 1, "dataset": "test", "spec": {"batch": 8}}
        here = self.s.infer(self.key, "line", x)
        self.assertEqual(here.status, 200, here)
        near = self.artifact(self.run_job(self.train())["id"])
        near_rows = self.artifact(self.run_job(self.s.call("POST", "/api/v1/jobs", batch, self.key))["id"])
        self.start()
        self.ready("line")
        self.ready("digits")
        with self.without_the_near_one():
            there = until("it answers", lambda: (lambda r: r.status == 200 and r)(
                self.s.infer(self.key, "line", x)))
            self.assertEqual(there.json["outputs"], here.json["outputs"])
            j = self.run_job(self.train())
            self.assertEqual(j["executor"], "far")
            self.assertEqual(hashlib.sha256(self.artifact(j["id"])).digest(), hashlib.sha256(near).digest())
            self.assertGreater(len(self.s.job(self.key, j["id"], "/losses").json["losses"]), 50)
            log = self.logged(j["id"], "ended: it has succeeded")  # its last line follows its end
            for line in ("started on executor far", "compiled in", "step %d of %d, loss" % (j["steps"], j["steps"]),
                         "evaluated on", "trained model"):
                self.assertEqual(log.count(line), 1, log)
            until("the trained version is served", lambda: self.s.call(
                "GET", "/api/v1/models/digits/versions/%d" % j["result_version"],
                key=self.key).json["state"] == "READY")
            own = self.run_job(self.train(spec={"publish": False}))
            self.assertIsNone(own["result_version"])
            self.assertEqual(self.artifact(own["id"]), near)
            rows = self.run_job(self.s.call("POST", "/api/v1/jobs", batch, self.key))
            self.assertEqual(self.artifact(rows["id"])[-1000:], near_rows[-1000:])
            self.logged(rows["id"], "ended: it has succeeded")
        until("its own folders of the jobs are gone",
              lambda: not [d for d in os.listdir(self.home + "/jobs") if not d.startswith(".")])
        got = self.s.metrics("far")
        self.assertGreater(got['shunt_blob_transfers_total{executor="far",direction="in",result="ok"}'], 3)
        self.assertGreater(got['shunt_blob_transfers_total{executor="far",direction="out",result="ok"}'], 3)

    def test_a_job_goes_on_on_another_host(self):
        calm = self.artifact(self.run_job(self.train(spec={"epochs": 12}))["id"])
        self.start()
        with self.without_the_near_one():  # begins there ...
            job = self.train(spec={"epochs": 12}).json["id"]
            until("a checkpoint of it is here", lambda: self.s.job(self.key, job, "/checkpoints").json["items"])
            self.end(signal.SIGKILL)
        # ... goes on here ...
        until("it runs here", lambda: self.s.job(self.key, job).json["executor"] == "cpu0")
        self.s.call("POST", "/api/v1/jobs/%d/suspend" % job, {}, self.key)
        j = self.s.wait_job(self.key, job, ("SUSPENDED", "SUCCEEDED"))
        self.start()
        with self.without_the_near_one():  # ... and ends there again
            self.s.call("POST", "/api/v1/jobs/%d/resume" % job, {}, self.key)
            j = self.s.wait_job(self.key, job)
        self.assertEqual(j["state"], "SUCCEEDED", j)
        self.assertEqual(hashlib.sha256(self.artifact(job)).digest(), hashlib.sha256(calm).digest())
        events = self.s.job(self.key, job, "/events").json["items"]
        self.assertGreater(len([e for e in events if e["to"] == "STARTING"]), 1)
        log = self.logged(job, "ended: it has succeeded")  # all of it has travelled with the job
        started = re.findall(r"started on executor (\w+)", log)
        self.assertEqual((started[0], started[-1]), ("far", "far"), log)
        self.assertIn("cpu0", started)
        self.assertIn("goes on from the checkpoint of step", log)

    def test_a_line_that_breaks_and_damages(self):
        line = Line(self.s.port)
        big = st_bytes({"x": ("F32", [3000, 64], bytes(3000 * 256)), "label": ("I64", [3000], bytes(24000))})
        line.cuts, line.of = [200000, 300000], hashlib.sha256(big).hexdigest()
        self.s.push_data(self.key, "big", big)
        self.s.push(self.key, "plain", onnx.linear(64, 10))
        self.start(api=line.addr)
        self.ready("plain")
        with self.without_the_near_one():
            fields = {"kind": "batch_inference", "model": "plain", "dataset": "big", "spec": {}}
            self.run_job(self.s.call("POST", "/api/v1/jobs", fields, self.key))
            ranges = re.findall(r"Range: bytes=(\d+)-", "\n".join(a for a in line.asked if line.of in a))
            self.assertEqual(len(ranges), 2, line.asked)
            self.assertGreater(int(ranges[1]), int(ranges[0]))
            self.assertEqual(len(self.said("blob.retry")), 2)
            big2 = st_bytes({"x": ("F32", [3001, 64], bytes(3001 * 256))})
            line.damage, line.of = 1, hashlib.sha256(big2).hexdigest()
            self.s.push_data(self.key, "big2", big2)
            self.run_job(self.s.call("POST", "/api/v1/jobs", {**fields, "dataset": "big2"}, self.key))
            self.assertEqual(len(self.said("blob.damaged")), 1)
            line.damage_out = 1
            j = self.run_job(self.s.call("POST", "/api/v1/jobs", {**fields, "dataset": "big"}, self.key))
            self.assertEqual(len(self.said("blob.damaged")), 2)
            self.assertEqual(hashlib.sha256(self.artifact(j["id"])).hexdigest(), j["result"]["digest"])

    def test_a_model_that_is_unloaded_while_it_comes_may_come_again(self):
        """Its package is made when nobody wants it any more: it counts, and is there the next time."""
        model = onnx.linear(64, 11)
        digest = hashlib.sha256(model).hexdigest()
        self.s.push(self.key, "late", model)
        os.makedirs(self.home)
        real, slow, begun, go = (os.path.join(self.home, n) for n in ("real", "slow", "begun", "go"))
        shutil.copy2(os.path.join(BIN, "shunt-import"), real)
        with open(slow, "w") as f:
            f.write("#!/bin/sh\ncase \"$*\" in *%s*) >'%s'; while [ ! -e '%s' ]; do sleep 0.05; done;; esac\n"
                    "exec '%s' \"$@\"\n" % (digest, begun, go, real))
        os.chmod(slow, 0o755)
        self.slow = "mount --bind '%s' '%s/shunt-import' && " % (slow, BIN)
        self.start()
        until("its package is being made", lambda: os.path.exists(begun))
        url = "/api/v1/models/late/versions/1"
        self.assertLess(self.s.call("POST", url + "/unload", {}, self.key).status, 300)
        until("it is unloaded", lambda: self.s.call("GET", url, key=self.key).json["state"] == "UNLOADED")
        open(go, "w").close()
        until("it has come", lambda: os.path.exists(os.path.join(self.home, "blobs", "packages", digest)))
        self.assertLess(self.s.call("POST", url + "/load", {}, self.key).status, 300)
        self.ready("late")
        self.assertEqual(self.said("blob.failed"), [])
        self.assertEqual(len(self.said("blob.here", digest)), 0)  # not fetched again

    def test_a_stop_does_not_wait_for_an_import(self):
        """With a shunt-import that never ends beside the executor."""
        programs = os.path.join(self.home, "programs", "bin")
        os.makedirs(programs)
        os.symlink(os.path.realpath(os.path.join(BIN, "..", "lib")), os.path.join(self.home, "programs", "lib"))
        shutil.copy(os.path.join(BIN, "shunt-executor"), programs)
        child = os.path.join(self.home, "import.pid")
        with open(os.path.join(programs, "shunt-import"), "w") as f:
            f.write("#!/bin/sh\necho $$ >'%s'\nexec sleep 600\n" % child)
        os.chmod(f.name, 0o755)
        self.start(programs=programs)
        until("it imports", lambda: os.path.exists(child) and open(child).read())
        remote, began = self.remote, time.monotonic()
        self.end()
        self.assertEqual(remote.returncode, 0)
        self.assertLess(time.monotonic() - began, 20)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(open(child).read()), 0)

    def test_over_tls(self):
        """A second API of the same system, whose certificate nobody but us has signed."""
        cert, pem = (os.path.join(self.s.dir, n) for n in ("cert.pem", "key.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", cert,
                        "-keyout", pem], check=True, stderr=subprocess.DEVNULL)
        log = os.path.join(self.s.dir, "tls.log")
        with open(log, "wb") as out:
            api = subprocess.Popen(
                [os.path.join(BIN, "shunt-api"), "--name=tls", "--listen=127.0.0.1:0", "--metrics-addr=",
                 "--state-dir=" + self.s.state, "--scheduler=unix:%s/run/scheduler.sock" % self.s.state,
                 "--tls-cert=" + cert, "--tls-key=" + pem], stderr=out, env=self.daemon_env())
        try:
            port = until("it listens", lambda: re.findall(r"ev=api.ready .*port=(\d+)", open(log).read()))[0]
            self.start(api="https://localhost:" + port)
            until("a stranger's certificate is refused", lambda: self.said("blob.failed", "certificate"))
            self.end()
            self.start("--api-ca-file=" + cert, api="https://localhost:" + port)
            self.ready("line")
        finally:
            api.terminate()
            api.wait(60)

    def refused(self, side, reason, process="open"):
        return self.counted(process, 'shunt_link_handshakes_total{side="%s",result="%s"}' % (side, reason))

    def answers(self, x):
        return until("it answers", lambda: (lambda r: r.status == 200 and r)(self.s.infer(self.key, "line", x)))

    def test_strangers_are_not_heard(self):
        """Neither at the scheduler's port nor at the executor's; nor does ours speak to them."""
        self.start()
        self.ready("line")
        ports = {"open": int(self.scheduler.rsplit(":", 1)[1]), "far": self.data_port}
        for process, port in ports.items():
            before = self.refused("server", "plaintext", process)
            first = {"open": ("EXEC_HELLO", {"executor": "evil"}), "far": ("DATA_HELLO", {"api_id": 7, "name": "evil"})}
            number, fields = wire.BY_NAME[first[process][0]]
            values = {f: "" if kind == "str" else 0 if kind in wire.FORMAT else b"" for kind, f in fields}
            payload = wire.encode(first[process][0], **{**values, **first[process][1]})[1]
            with socket.create_connection((self.address, port), timeout=20) as c:
                c.sendall(struct.pack("<IBBH", len(payload), wire.VERSION, 0, number) + payload)
                with contextlib.suppress(ConnectionError):
                    while c.recv(4096):
                        pass  # what it says is no frame: an alert
            until("it is counted", lambda: self.refused("server", "plaintext", process) == before + 1)  # noqa: B023
        self.assertEqual(self.executor("evil"), {})
        self.assertTrue(self.said("link.refused", "reason=plaintext"))
        self.end()
        # Another key: neither side takes the other, and each says so.
        other = os.path.join(self.home, "other.key")
        with open(other, "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(secrets.token_hex(32))
        self.start("--link-key-file=" + other, up=False)
        until("it hears that it is refused", lambda: self.said("link.refused", "side=client"))
        until("the scheduler counts it", lambda: self.refused("server", "wrong_key"))
        self.assertNotEqual(self.executor("far").get("state"), "UP")
        self.remote.terminate()
        self.remote.wait(30)
        # No key: it does not start where others would reach it.
        if self.address != "127.0.0.1":
            self.start("--link-key-file=", up=False)
            self.assertNotEqual(self.remote.wait(30), 0)
            self.assertTrue(self.said("executor.fail", "--link-key-file"))
        self.remote = None

    def test_the_key_is_replaced_while_all_runs(self):
        x = [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [i / 64 for i in range(64)]}]
        new = secrets.token_hex(32)
        refused = self.refused("server", "wrong_key")
        self.start()
        self.ready("line")
        with self.without_the_near_one():
            self.answers(x)
            for keys in ((self.link_key, new), (new, self.link_key), (new,)):
                self.write_link_keys(*keys)
                self.assertEqual(self.s.infer(self.key, "line", x).status, 200)
            self.end(signal.SIGKILL)
            self.start()  # with the new one alone
            self.answers(x)
        Hosts.link_key = new
        self.assertEqual(self.refused("server", "wrong_key"), refused)

    def test_what_it_keeps_is_bounded(self):
        self.start("--blob-cache-bytes=3M")
        self.s.push(self.key, "kept", onnx.linear(64, 10))
        self.ready("kept")
        fields = {"kind": "batch_inference", "model": "kept", "spec": {}}
        with self.without_the_near_one():
            for n in range(4000, 4006):
                data = st_bytes({"x": ("F32", [n, 64], bytes(n * 256))})
                self.s.push_data(self.key, "data%d" % n, data)
                self.run_job(self.s.call("POST", "/api/v1/jobs", {**fields, "dataset": "data%d" % n}, self.key))
                used = self.s.metrics("far")['shunt_blob_cache_bytes{executor="far",kind="used"}']
                self.assertLessEqual(used, 3 << 20)
            self.assertGreaterEqual(len(self.said("blob.evict", "datasets/")), 3)
            self.assertFalse(self.said("blob.evict", "packages/"))  # loaded, so in use
            self.assertLess(len(os.listdir(self.home + "/blobs/datasets")), 4)
            large = st_bytes({"x": ("F32", [16000, 64], bytes(16000 * 256))})
            self.s.push_data(self.key, "large", large)
            j = self.run_job(self.s.call("POST", "/api/v1/jobs",
                                         {**fields, "dataset": "large", "max_attempts": 1}, self.key), "FAILED")
            self.assertIn("--blob-cache-bytes", j["error"])
            self.assertIn("--blob-cache-bytes", self.logged(j["id"], "ended: failed at sample 0, "))

    def test_who_may_and_who_may_not(self):
        digest = self.s.call("GET", "/api/v1/datasets/test", key=self.key).json["digest"]
        get = lambda key, **h: self.s.call("GET", "/api/v1/blobs/" + digest, key=key, headers=h)  # noqa: E731
        r = get(self.executor_key)
        self.assertEqual((r.status, r.raw), (200, TEST))
        self.assertEqual(get(self.executor_key, Range="bytes=8-11").raw, TEST[8:12])
        for key in (self.key, self.s.admin):
            self.assertEqual(get(key).status, 403)
        for path in ("/api/v1/models", "/api/v1/tenants", "/v2/models/line"):
            self.assertEqual(self.s.call("GET", path, key=self.executor_key).status, 403, path)
        # Who has no job, or had it, writes nothing; and nothing but what a job leaves is written.
        job = self.train(hold=True).json["id"]
        put = lambda name, more="", h=None: self.s.call(  # noqa: E731
            "PUT", "/api/v1/jobs/%d/files/%s?executor=cpu0&attempt=1%s" % (job, name, more), b"x" * 99,
            self.executor_key, h)
        self.assertEqual(put("losses.json").status, 409)
        self.assertEqual(put("log.txt").status, 409)
        self.assertEqual(put("losses.txt").status, 404)
        self.assertFalse(os.path.exists(os.path.join(self.s.state, "jobs", str(job), "losses.json")))
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, {}, self.key)
        wrong = base64.b64encode(hashlib.sha256(b"y").digest()).decode()
        self.assertEqual(put("losses.json", h={"Content-Digest": "sha-256=:%s:" % wrong}).status, 409)
        # A wrong key: the executor says so, and serves nothing; the version stays with those who have it.
        self.start(key=self.key)
        until("it is refused", lambda: self.said("blob.failed", "403"))
        until("people see it", lambda: self.place("line").get("state") == "FAILED")


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
