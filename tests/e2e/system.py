"""A whole system of its own for a story: `shunt up` in a temporary folder, and HTTP without a library.

Standard library only. The supervisor starts again what dies; a story that wants a process to stay away
for a while holds the supervisor (System.held).
"""
import atexit
import contextlib
import glob
import gzip
import http.client
import json
import os
import pty
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import spec
from safetensors_bytes import read_st, st_bytes  # noqa: F401 - for stories

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("SHUNT_BIN", os.path.join(ROOT, "build", "bin"))
LAB = os.path.join(os.path.dirname(os.path.abspath(BIN)), "lab")  # make lab: tests/lab/README.md
DIGITS = os.path.join(ROOT, "examples", "digits")
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")
WAIT_S = 120  # for what takes a second on an idle machine


def _on_term(*_):
    """The end of a time limit: leave as at Ctrl-C, so that systems are stopped."""
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, _on_term)


class Reply:
    def __init__(self, status, headers, raw):
        self.status, self.raw = status, raw
        self.headers = {k.lower(): v for k, v in headers}
        try:
            self.json = json.loads(raw)
        except ValueError:
            self.json = None

    @property
    def code(self):
        return (self.json or {}).get("code")

    @property
    def error(self):
        return (self.json or {}).get("error", "")

    def __repr__(self):
        return "<%d %s %r>" % (self.status, self.headers.get("retry-after", ""), self.raw[:700])


def free_port():
    """Below those that the system gives to outgoing connections: nobody's takes it before its listener."""
    while True:
        port = random.randrange(15000, 32000)
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port


def until(what, fn, limit_s=WAIT_S, every_s=0.05):
    """The first true result of fn."""
    end = time.monotonic() + limit_s
    while True:
        got = fn()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError("not within %d s: %s" % (limit_s, what))
        time.sleep(every_s)


def zoo(model, form="inference"):
    with tempfile.TemporaryDirectory(prefix="shunt-zoo-") as d:
        out = os.path.join(d, "model.onnx")
        subprocess.run([os.path.join(BIN, "shunt-zoo"), model, "--form", form, "--out", out], check=True)
        with open(out, "rb") as f:
            return f.read()


class Story(unittest.TestCase):
    """A story whose class has a System `s`: after a failure the ends of its logs are shown."""
    s = None

    def run(self, result=None):
        super().run(result)
        if result and self.s and (result.failures or result.errors):
            self.s.failed = True
        return result


class System:
    """System("--workers=2", MAX_MODEL_BYTES="1M"): options of `shunt up`, and of any daemon. stop() it."""

    def __init__(self, *options, programs=BIN, **env):
        self.programs = programs
        self.dir = tempfile.mkdtemp(prefix="shunt-e2e.")
        os.chmod(self.dir, 0o755)  # PostgreSQL's user must be able to go through
        self.state = os.path.join(self.dir, "state")
        self.env = {k: v for k, v in os.environ.items()
                    if k == "SHUNT_PG_BIN" or not k.startswith("SHUNT_") and k != "DATABASE_URL"}
        self.env["SHUNT_CONFIG"] = os.path.join(self.dir, "empty.conf")
        self.env.update({"SHUNT_" + k: v for k, v in env.items()})  # for a later `shunt up`, too
        open(self.env["SHUNT_CONFIG"], "w").close()
        self.failed = self.stopped = False
        self.described = None
        atexit.register(self.stop)
        try:
            up = self.cli("up", "--port=0", "--pool-bytes=256M", "--threads=1", "-o", "json", *options)
            system = json.loads(up)
            self.port = int(system["server"].rsplit(":", 1)[1])
            self.metrics_ports = system["metrics_ports"]
            with open(system["key_file"]) as f:
                self.admin = f.read().strip()
        except BaseException:
            self.failed = True
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.failed |= kind is not None and issubclass(kind, Exception)  # else it was told to stop
        self.stop()

    def stop(self):
        if self.stopped:
            return
        self.stopped = True
        undescribed = self.logged("api", "http.undescribed")
        differences = self.logged("scheduler*", "view.difference")
        self.failed |= bool(undescribed or differences)
        if self.failed:
            for path in sorted(glob.glob(os.path.join(self.state, "log", "*.log"))):
                with open(path, errors="replace") as f:
                    print("--- " + os.path.basename(path),
                          *(line[:300].rstrip() for line in f.readlines()[-12:]), sep="\n",
                          file=sys.stderr)
        subprocess.run([os.path.join(self.programs, "shunt"), "down", "--purge", "--quiet", "--state-dir",
                        self.state], env=self.env, timeout=150, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
        assert not undescribed, "statuses that /openapi.json does not list:\n" + "".join(undescribed)
        assert not differences, "full looks at the database found:\n" + "".join(differences)

    def logged(self, program, event):
        """What must never be: a status that the description lacks, a change that was not told."""
        lines = []
        for path in glob.glob(os.path.join(self.state, "log", program + ".log")):
            with open(path, errors="replace") as f:
                lines += [line for line in f if " ev=%s " % event in line]
        return lines

    def cli(self, *args, env=None, stdout=subprocess.PIPE):
        return subprocess.run([os.path.join(self.programs, "shunt"), *args, "--quiet", "--state-dir", self.state],
                              env={**self.env, **(env or {})}, check=True, timeout=180,
                              stdout=stdout).stdout

    def cli_on_terminal(self, *args, env=None):
        """What it prints (less than a page) to a terminal that does not say how wide it is."""
        ours, theirs = pty.openpty()
        try:
            self.cli(*args, env=env, stdout=theirs)
            return os.read(ours, 1 << 16)
        finally:
            os.close(ours)
            os.close(theirs)

    # ------------------------------------------------------------ HTTP
    def call(self, method, path, body=None, key=None, headers=None, timeout=WAIT_S):
        """body: bytes, or anything else as JSON."""
        h = {"Content-Type": "application/json"} if not isinstance(body, bytes) else {}
        if key:
            h["Authorization"] = "Bearer " + key
        h.update(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, body, h)
            r = c.getresponse()
            got = Reply(r.status, r.getheaders(), r.read())
        finally:
            c.close()
        packed = got.headers.get("content-encoding") == "gzip"
        self.spec().check(method, path, got.status, got.headers,
                          gzip.decompress(got.raw) if packed else got.raw)
        return got

    def spec(self):
        """The description that this system serves; every reply of call() is checked by it."""
        if not self.described:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
            try:
                c.request("GET", "/openapi.json")
                self.described = spec.Spec(json.loads(c.getresponse().read()))
            finally:
                c.close()
        return self.described

    def talk(self, data, then_close=False, timeout=WAIT_S):
        """Bytes as they are; the reply's first line and the rest, or "" where the server just closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as c:
            c.sendall(data)
            if then_close:
                c.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(ConnectionError):
                while piece := c.recv(65536):
                    got += piece
                    head, _, rest = got.partition(b"\r\n\r\n")
                    length = [int(x.split(b":")[1]) for x in head.split(b"\r\n")
                              if x.lower().startswith(b"content-length:")]
                    if length and len(rest) >= length[0]:
                        break
        return got.decode(errors="replace")

    def infer(self, key, model, inputs, timeout=WAIT_S, headers=None, **more):
        return self.call("POST", "/v2/models/%s/infer" % model, {"inputs": inputs, **more}, key,
                         headers, timeout)

    def make(self, path, body):
        """As a client that has to have it: a database that is too slow to answer is asked again."""
        once = {"Idempotency-Key": os.urandom(8).hex()}
        r = until("%s takes %s" % (path, body), lambda: (lambda r: r.status != 503 and r)(
            self.call("POST", path, body, self.admin, once)))
        assert r.status == 201, r
        return r.json

    def tenant(self, name, role="tenant-admin"):
        self.make("/api/v1/tenants", {"name": name})
        return self.key(name, role)

    def key(self, tenant, role="tenant-admin", **more):
        return self.make("/api/v1/tenants/%s/keys" % tenant, {"name": "k", "role": role, **more})["key"]

    def push(self, key, name, onnx, ready=True, **version):
        """Reply of the upload, or the READY version."""
        self.call("POST", "/api/v1/models", {"name": name}, key)
        r = self.call("POST", "/api/v1/models/%s/versions" % name, version, key)
        assert r.status == 201, r
        at = "/api/v1/models/%s/versions/%d" % (name, r.json["version"])
        r = self.call("PUT", at + "/artifact", onnx, key)
        if not ready or r.status != 200:
            assert not ready, r
            return r

        def done():
            v = self.call("GET", at, key=key)
            assert v.status != 200 or v.json["state"] != "FAILED", v
            return v.status == 200 and v.json["state"] == "READY" and v
        return until("%s is READY" % name, done)

    def push_data(self, key, name, data, want=200):
        self.call("POST", "/api/v1/datasets", {"name": name}, key)
        r = self.call("PUT", "/api/v1/datasets/%s/artifact" % name, data, key)
        assert r.status == want, r
        return r

    def submit(self, key, **fields):
        spec = {"loss": "cross-entropy", "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
                "batch": 32, "epochs": 2, "seed": 1, "labels": "label", **fields.pop("spec", {})}
        spec = {k: v for k, v in spec.items() if v is not None}
        return self.call("POST", "/api/v1/jobs", {"kind": "training", "spec": spec, **fields}, key)

    def job(self, key, job, below=""):
        return self.call("GET", "/api/v1/jobs/%d%s" % (job, below), key=key)

    def wait_job(self, key, job, states=FINAL, limit_s=WAIT_S):
        def done():
            r = self.job(key, job)
            return r.status == 200 and r.json["state"] in states and r.json
        return until("job %d is one of %s" % (job, states), done, limit_s)

    def wait_step(self, key, job, step):
        def done():
            r = self.job(key, job)
            assert r.status != 200 or r.json["state"] not in FINAL, r
            return r.status == 200 and r.json["step"] >= step and r.json
        return until("job %d is at step %d" % (job, step), done)

    def metrics(self, process):
        """{series: value} of a process."""
        text = self.at_metrics(process, "/metrics")[1]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
                for line in text.splitlines() if line and not line.startswith("#")}

    def at_metrics(self, process, path):
        """(status, text) of a process."""
        c = http.client.HTTPConnection("127.0.0.1", self.metrics_ports[process], timeout=WAIT_S)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read().decode()
        finally:
            c.close()

    def payload(self):
        """Bytes of payloads in flight in the API."""
        return self.metrics("api")['shunt_payload_bytes{kind="used"}']

    # ------------------------------------------------------------ processes
    def pid(self, name):
        """0 while it is not there."""
        try:
            with open(os.path.join(self.state, "run", name + ".pid")) as f:
                return int(f.read().split()[0])
        except (OSError, IndexError):
            return 0

    def workers(self):
        out = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, IndexError):
                if entry.isdigit():
                    with open("/proc/%s/stat" % entry) as f:
                        name, rest = f.read().partition("(")[2].rsplit(")", 1)
                    if name == "shunt-worker" and rest.split()[0] != "Z" and \
                            int(rest.split()[1]) == self.pid("executor-cpu0"):
                        out.append(int(entry))
        return sorted(out)

    def pids(self):
        """Who runs: the same before and after means that nothing died."""
        return {n: self.pid(n) for n in ("api", "scheduler", "executor-cpu0", "postgres")}, self.workers()

    @contextlib.contextmanager
    def held(self):
        """Nothing that dies in here is started again before the end."""
        supervisor = self.pid("supervisor")
        os.kill(supervisor, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(supervisor, signal.SIGCONT)

    def kill(self, name, sig=signal.SIGKILL):
        """Returns when the process is dead (a zombie of a held supervisor is dead)."""
        pid = self.pid(name)
        assert pid, "%s does not run" % name  # 0 would be our own group
        os.kill(pid, sig)

        def dead():
            try:
                with open("/proc/%d/stat" % pid) as f:
                    return f.read().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                return True
        until("%s is dead" % name, dead, every_s=0.01)
        return pid

    def wait_new(self, name, old):
        return until("a new %s" % name, lambda: self.pid(name) not in (0, old) and self.pid(name))
