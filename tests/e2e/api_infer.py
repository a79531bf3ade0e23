"""shunt-api alone with a played scheduler and executor: the life of an inference request.

Without it only the whole system could show that payloads get through, that every request ends, and
that nobody's bytes are reused while an executor may still write them.

    tests/pg.sh run python3 tests/e2e/api_infer.py
"""
import http.client
import json
import mmap
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import wire
from system import free_port

BIN = os.environ.get("SHUNT_BIN", os.path.join(wire.ROOT, "build", "bin"))
URL = os.environ["DATABASE_URL"]
NONE, ABSENT, LOADING, READY, FAILED = range(5)  # enum msg_up
WAIT_S = 60  # for what takes a moment on an idle machine
X = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
K = {"name": "k", "datatype": "INT64", "shape": [-1]}
Y = {"name": "y", "datatype": "FP32", "shape": [-1, 4]}
N = {"name": "n", "datatype": "INT64", "shape": [-1]}


def sql(text):
    out = subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", URL, "-c", text], check=True,
                         stdout=subprocess.PIPE)
    return out.stdout.decode().strip()


def pg_ctl(*args):
    cmd = [os.path.join(os.environ["SHUNT_PG_BIN"], "pg_ctl"), "-w", "-D",
           os.environ["SHUNT_PG_DATA"], *args]
    if os.getuid() == 0:
        cmd = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *cmd]
    subprocess.run(cmd, check=True, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Played:
    """Scheduler and executor: y = 2x, n = k + 1. `mode` says what happens to a request."""

    def __init__(self, folder):
        self.sched_addr = os.path.join(folder, "sched.sock")
        self.unix_addr = os.path.join(folder, "exec.sock")
        self.port = free_port()
        self.mode, self.is_hasty = "serve", False
        self.log, self.ready, self.ended, self.again = [], {}, {}, []
        self.sched = self.data = self.slab = None
        self.mirror = bytearray(1 << 20)
        self.lock = threading.RLock()
        self.listeners = []
        self.listen(socket.AF_UNIX, self.sched_addr, self.on_sched)
        self.listen(socket.AF_UNIX, self.unix_addr, self.on_exec)
        self.listen(socket.AF_INET, ("127.0.0.1", self.port), self.on_exec)

    def listen(self, family, addr, fn):
        s = socket.socket(family)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(addr)
        s.listen(8)

        def loop():
            while True:
                c, _ = s.accept()
                threading.Thread(target=self.serve, args=(wire.Conn(c), fn), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()

    @staticmethod
    def serve(conn, fn):
        try:
            while True:
                m = conn.recv(3600)
                if m:
                    fn(conn, m)
        except (EOFError, OSError):
            pass

    def exec_up(self, tcp, up=1):
        addr = "tcp:127.0.0.1:%d" % self.port if tcp else "unix:" + self.unix_addr
        self.sched.send("EXEC_UP", executor="tcp" if tcp else "local", host_id="h", data_addr=addr,
                        up=up)

    def model_up(self, version, state, **more):
        self.sched.send("MODEL_UP", **{"version_id": version, "state": state, "step": "", "done": 0,
                                       "total": 0, "left_ns": -1, "msg": "", **more})

    def on_sched(self, conn, m):
        with self.lock:
            self.log.append((m.type, getattr(m, "rid", getattr(m, "what", None))))
            if m.type == "API_HELLO":
                self.sched = conn
                conn.send("WELCOME", epoch=1, name="played")
                self.exec_up(False)
                self.exec_up(True)
                for version in range(1, 9):
                    self.model_up(version, READY)
                conn.send("SERVING", executors=2, missing=0)
            elif m.type == "INFER_OPEN":
                self.open = m
                if self.mode == "refuse":
                    conn.send("INFER_REFUSED", rid=m.rid, rc=-19, retry_after_ms=2500, predicted_ms=41,
                              msg="it would take 9 ms too long")
                elif self.mode != "silent":
                    conn.send("INFER_PLACED", rid=m.rid,
                              compile_ns=0,
                              executor=self.mode if self.mode in ("tcp", "away") else "local")
            elif m.type == "INFER_READY":
                self.ready[m.rid] = m
                if self.mode == "serve":
                    self.run(m, self.slab, None)
                elif self.mode == "tcp":
                    self.run_remote(m.rid)
                elif self.mode == "echo":
                    (at, n), (to, room) = (struct.unpack_from("<QQ", s) for s in (m.in_spans, m.out_spans))
                    assert n == room
                    self.slab[to:to + n] = self.slab[at:at + n]
                    self.result(m.rid)
                elif self.mode == "fail":
                    self.result(m.rid, rc=-12, msg="the device was lost")
                elif self.mode == "cut":
                    self.result(m.rid, rc=-9, msg="cancelled before it ran")
                elif self.mode in ("die", "die-once"):
                    self.dead = self.data
                    self.data.sock.shutdown(2)
            elif m.type == "INFER_AGAIN" and self.mode == "die":
                conn.send("INFER_REFUSED", rid=m.rid, rc=-17, retry_after_ms=1000, predicted_ms=0,
                          msg="the executor was lost; try again")
            elif m.type == "INFER_AGAIN" and m.n_placed == 0:
                pass  # it only asks whether its request is still known
            elif m.type == "INFER_AGAIN":
                self.again.append(m.n_placed)
                conn.send("INFER_PLACED", rid=m.rid, executor="local", compile_ns=0)
                self.mode = "serve"
                threading.Thread(target=self.run_later, args=(self.ready[m.rid],)).start()

    def on_exec(self, conn, m):
        with self.lock:
            self.log.append((m.type, getattr(m, "rid", None)))
            if m.type == "DATA_HELLO":
                if m.fds:
                    self.data = conn
                    self.slab = mmap.mmap(m.fds[0], m.slab_bytes)
                else:
                    self.remote = conn
                    self.mirror = bytearray(m.slab_bytes)
                conn.send("DATA_READY", executor="local" if m.fds else "tcp", incarnation=1,
                          run_ms=1000)
            elif m.type == "DATA_CHUNK":
                self.mirror[m.off:m.off + len(m.bytes)] = m.bytes
            elif m.type == "DATA_END":
                self.ended[m.rid] = conn
                self.run_remote(m.rid)

    def run_later(self, m):
        assert wait_for(lambda: self.data is not self.dead)
        with self.lock:
            self.run(m, self.slab, None)

    def run_remote(self, rid): # DATA_END and INFER_READY come on two connections, in any order
        if rid in self.ended and rid in self.ready:
            self.run(self.ready[rid], self.mirror, self.ended.pop(rid))

    def run(self, m, slab, remote):
        ins = list(struct.iter_unpack("<QQ", m.in_spans))
        outs = list(struct.iter_unpack("<QQ", m.out_spans))
        xs = struct.unpack("<%df" % (4 * m.batch), slab[ins[0][0]:ins[0][0] + ins[0][1]])
        ks = struct.unpack("<%dq" % m.batch, slab[ins[1][0]:ins[1][0] + ins[1][1]])
        ys = struct.pack("<%df" % len(xs), *[2 * v for v in xs])
        ns = struct.pack("<%dq" % len(ks), *[v + 1 for v in ks])
        for (off, length), data in zip(outs, (ys, ns)):
            assert length == len(data)
            if remote and self.is_hasty:
                self.result(m.rid, conn=remote)
            slab[off:off + length] = data
            if remote:
                remote.send("DATA_CHUNK", rid=m.rid, off=off, bytes=data)
        self.result(m.rid, conn=remote)

    def result(self, rid, rc=0, msg="", conn=None):
        (conn or self.data).send("RESULT", rid=rid, rc=rc, msg=msg, run_batch=8, queue_ns=1000,
                                 copy_ns=2000, compute_ns=3000, total_ns=9000)

    def wait(self, what, rid=None, timeout=WAIT_S):
        end = time.monotonic() + timeout
        while True:
            with self.lock:
                if any(t == what and (rid is None or r == rid) for t, r in self.log):
                    return True
            if time.monotonic() >= end:
                return False
            time.sleep(0.005)


class System:
    def __init__(self, *options):
        self.options = options
        self.dir = tempfile.mkdtemp(prefix="shunt-infer-")
        sql("SET client_min_messages = error; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        subprocess.run([os.path.join(BIN, "shunt-scheduler"), "--migrate-only", "--db-url", URL,
                        "--migrations-dir", os.path.join(wire.ROOT, "migrations")], check=True,
                       stdout=subprocess.DEVNULL)
        self.played = Played(self.dir)
        self.start()
        self.admin = admin = open(os.path.join(self.dir, "admin")).read().strip()
        for t in ("vision", "other"):
            self.call("POST", "/api/v1/tenants", {"name": t}, key=admin)
        self.key = self.call("POST", "/api/v1/tenants/vision/keys",
                             {"name": "k", "role": "submit"}, key=admin)[1]["key"]
        self.other = self.call("POST", "/api/v1/tenants/other/keys",
                               {"name": "k", "role": "infer"}, key=admin)[1]["key"]
        for name, visible in (("double", "private"), ("common", "shared")):
            sql("WITH m AS (INSERT INTO model (tenant_id, name, visibility) SELECT id, '%s', '%s' "
                "FROM tenant WHERE name = 'vision' RETURNING id) INSERT INTO model_version "
                "(model_id, version, state, digest, package, inputs, outputs, max_batch) SELECT "
                "id, 3, 'READY', repeat('0', 64), 'packages/x', '%s', '%s', 8 FROM m"
                % (name, visible, json.dumps([X, K]), json.dumps([Y, N])))
        sql("INSERT INTO slo (model_id, latency_ms, priority) SELECT id, 5000, 7 FROM model "
            "WHERE name = 'double'")
        self.wait_ready()

    def start(self):
        log = os.path.join(self.dir, "log")
        out = open(log, "ab")
        size = os.path.getsize(log)
        self.metrics = free_port()
        self.proc = subprocess.Popen(
            [os.path.join(BIN, "shunt-api"), "--listen", "127.0.0.1:0", "--metrics-addr",
             "127.0.0.1:%d" % self.metrics, "--db-url", URL, "--state-dir",
             os.path.join(self.dir, "state"), "--admin-key-file", os.path.join(self.dir, "admin"),
             "--scheduler", "unix:" + self.played.sched_addr, "--scheduler-silence-ms=0",
             "--slab-bytes", "1M",
             "--max-infer-bytes", "256K", "--infer-timeout-ms", "4000", "--max-inflight", "16",
             *self.options], stderr=out)
        out.close()

        def port():
            with open(log) as f:
                f.seek(size)
                found = re.search(r"ev=api.ready .*port=(\d+)", f.read())
            self.port = int(found.group(1)) if found else 0
            return self.port
        assert wait_for(port), "shunt-api did not start"

    def wait_ready(self):
        assert wait_for(lambda: self.call("GET", "/v2/health/ready")[0] == 200 and self.played.data), \
            "shunt-api is not ready"

    def call(self, method, path, body=None, key=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        h = dict(headers or {})
        if key:
            h["Authorization"] = "Bearer " + key
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        c.request(method, path, body, h)
        r = c.getresponse()
        data = r.read()
        c.close()
        self.headers = {k.lower(): v for k, v in r.getheaders()}
        n = self.headers.get("inference-header-content-length")
        if n:
            return r.status, json.loads(data[:int(n)]), data[int(n):]
        return r.status, json.loads(data) if data else None

    def infer(self, body, binary=b"", model="double", key=None, path=None):
        text = json.dumps(body).encode()
        h = {"Inference-Header-Content-Length": str(len(text))} if binary else {}
        return self.call("POST", path or "/v2/models/%s/infer" % model, text + binary,
                         key or self.key, h)

    def metric(self, name):
        c = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=WAIT_S)
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
        c.close()
        found = re.search(r"^%s (\S+)$" % re.escape(name), text, re.M)
        return float(found.group(1)) if found else None


def body(batch=2, **extra):
    b = {"inputs": [
        {"name": "x", "datatype": "FP32", "shape": [batch, 4],
         "data": [float(i) for i in range(4 * batch)]},
        {"name": "k", "datatype": "INT64", "shape": [batch], "data": list(range(batch))}]}
    b.update(extra)
    return b


def binary_body(batch=2, **extra):
    b = body(batch, **extra)
    raw = struct.pack("<%df" % (4 * batch), *range(4 * batch)) + struct.pack("<%dq" % batch,
                                                                           *range(batch))
    for i, n in zip(b["inputs"], (16 * batch, 8 * batch)):
        del i["data"]
        i["parameters"] = {"binary_data_size": n}
    return b, raw


def wait_for(test):
    end = time.monotonic() + WAIT_S
    while not test():
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


class Case(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.s = System(*cls.OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.s.proc.terminate()
        code = cls.s.proc.wait(WAIT_S)
        if code == 0:
            shutil.rmtree(cls.s.dir)
        if code:
            raise AssertionError("shunt-api ended with %d" % code)

    def setUp(self):
        self.s.played.mode = "serve"
        self.s.played.log.clear()
        self.s.wait_ready()

    def refused(self, want, pattern, b, binary=b"", **kw):
        r = self.s.infer(b, binary, **kw)
        self.assertEqual((r[0], bool(re.search(pattern, r[1]["error"]))), (want, True), r)
        return r

    def begin(self, length, first=b"", model="double"):
        """A connection with a request whose body has begun with `first`."""
        s = socket.create_connection(("127.0.0.1", self.s.port))
        s.sendall(("POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                   "Content-Length: %d\r\n\r\n" % (model, self.s.key, length)).encode() + first)
        return s

    def heard(self, what):
        with self.s.played.lock:
            return sum(t == what for t, _ in self.s.played.log)

    def used(self):
        time.sleep(0.1)  # a sweep of the link counts it
        return self.s.metric('shunt_payload_bytes{kind="used"}')


class Infer(Case):
    def test_json_in_and_out(self):
        code, r = self.s.infer(body(id="7"))
        self.assertEqual(code, 200)
        self.assertEqual(r["model_name"], "double")
        self.assertEqual((r["model_version"], r["id"]), ("3", "7"))
        self.assertEqual([o["name"] for o in r["outputs"]], ["y", "n"])
        self.assertEqual(r["outputs"][0]["data"], [2.0 * i for i in range(8)])
        self.assertEqual(r["outputs"][0]["shape"], [2, 4])
        self.assertEqual(r["outputs"][1]["data"], [1, 2])

    def test_nested_data(self):
        b = body()
        b["inputs"][0]["data"] = [[0, 1, 2, 3], [4, 5, 6, 7]]
        self.assertEqual(self.s.infer(b)[1]["outputs"][0]["data"], [2.0 * i for i in range(8)])

    def test_binary_in_and_out(self):
        b, raw = binary_body(parameters={"binary_data_output": True})
        code, r, data = self.s.infer(b, raw)
        self.assertEqual(code, 200)
        self.assertEqual(r["outputs"][0]["parameters"], {"binary_data_size": 32})
        self.assertEqual(struct.unpack("<8f2q", data), tuple(2.0 * i for i in range(8)) + (1, 2))
        self.assertEqual(self.s.headers["content-type"], "application/octet-stream")

    def test_each_output_may_choose(self):
        b, raw = binary_body(outputs=[{"name": "n", "parameters": {"binary_data": False}},
                                      {"name": "y", "parameters": {"binary_data": True}}])
        _, r, data = self.s.infer(b, raw)
        self.assertEqual([o["name"] for o in r["outputs"]], ["n", "y"])
        self.assertEqual(r["outputs"][0]["data"], [1, 2])
        self.assertEqual(len(data), 32)
        code, r = self.s.infer(body(outputs=[{"name": "n"}]))
        self.assertEqual([o["name"] for o in r["outputs"]], ["n"])

    def test_open_goes_out_before_a_large_body(self):
        text = json.dumps(body()).encode() + b" " * 9000
        s = self.begin(len(text))
        self.assertTrue(self.s.played.wait("INFER_OPEN"))
        m = self.s.played.open
        self.assertEqual((m.tenant, m.model, m.body_bytes, m.priority), ("vision", "double",
                                                                         len(text), 7))
        self.assertFalse(self.s.played.wait("INFER_READY", timeout=0.1))
        s.sendall(text)
        self.assertIn(b"200 OK", s.recv(65536))
        s.close()

    def test_open_goes_out_with_a_small_body(self):
        text = json.dumps(body()).encode()
        s = self.begin(len(text), text[:9])
        self.assertFalse(self.s.played.wait("INFER_OPEN", timeout=0.3))
        s.sendall(text[9:])
        self.assertIn(b"200 OK", s.recv(65536))
        s.close()
        m = self.s.played.open
        self.assertEqual((m.tenant, m.body_bytes, m.priority), ("vision", len(text), 7))
        self.assertGreater(m.age_ns, 250e6)  # its latency target counts from the headers
        self.assertLess(m.age_ns, 20e9)
        self.assertEqual((self.heard("INFER_OPEN"), self.heard("INFER_READY")), (1, 1))

    def test_a_small_body_whose_client_hangs_up_costs_nothing(self):
        before = self.used()
        for _ in range(40):  # more than --max-inflight
            self.begin(5000, b"{").close()
            time.sleep(0.02)
        self.assertTrue(wait_for(lambda: self.used() <= before))
        self.assertTrue(wait_for(lambda: self.s.infer(body())[0] == 200))
        self.assertEqual((self.heard("INFER_OPEN"), self.heard("INFER_CANCEL")), (1, 0))

    def test_a_small_body_takes_its_place_when_it_is_complete(self):
        self.s.played.mode = "silent"
        text = json.dumps(body()).encode()
        late = self.begin(len(text), b"{")
        others = [self.begin(len(text), text) for _ in range(16)]  # --max-inflight
        self.assertTrue(wait_for(lambda: self.heard("INFER_READY") == 16))
        late.sendall(text[1:])
        reply = late.recv(65536)
        self.assertIn(b"too many requests are in flight", reply)
        self.assertIn(b"Retry-After", reply)
        self.refused(503, "in flight", body())
        for s in others + [late]:
            s.close()
        self.assertTrue(wait_for(lambda: self.heard("INFER_CANCEL") == 16))
        self.s.played.mode = "serve"
        self.assertEqual([self.s.infer(body())[0] for _ in range(20)], [200] * 20)
        self.assertEqual(self.heard("INFER_OPEN"), 36)

    def test_a_small_body_that_is_wrong_is_not_heard_of(self):
        for _ in range(20):
            r = self.s.call("POST", "/v2/models/double/infer", json.dumps(body())[:-3], self.s.key)
            self.assertEqual(r[0], 400, r)
        self.assertEqual(self.s.infer(body())[0], 200)
        self.assertEqual((self.heard("INFER_OPEN"), self.heard("INFER_CANCEL")), (1, 0))

    def test_the_time_of_a_small_body_counts_from_its_headers(self):
        self.s.played.mode = "silent"
        text = json.dumps(body(parameters={"timeout": 2000000})).encode()
        s = self.begin(len(text), b"{")
        time.sleep(0.5)
        s.sendall(text[1:])
        self.assertTrue(self.s.played.wait("INFER_READY"))
        self.assertLess(self.s.played.ready[self.s.played.open.rid].budget_ns, 1.9e9) # from the last byte: 2e9
        self.assertIn(b" 504 ", s.recv(65536))
        s.close()

    def test_binary_tensors_lie_where_a_device_reads_them_best(self):
        for n in range(1, 20):
            b, raw = binary_body(id="x" * n)
            self.assertEqual(self.s.infer(b, raw)[0], 200)
            off = struct.unpack("<Q", self.s.played.ready[self.s.played.open.rid].in_spans[:8])[0]
            self.assertEqual(off % 64, 0)

    def test_wrong_tensors_are_named(self):
        def change(i, **kw):
            b = body()
            b["inputs"][i].update(kw)
            return b
        self.refused(400, r'no input "z"; it has: "x", "k"', change(0, name="z"))
        self.refused(400, r'"x" has datatype FP64, the model wants FP32', change(0, datatype="FP64"))
        self.refused(400, r'"x" has shape \[2,5\], the model wants \[-1,4\]', change(0, shape=[2, 5]))
        self.refused(400, r'"x" has shape \[8\]', change(0, shape=[8]))
        self.refused(400, r"batch of 9, the model takes 1 to 8", body(9))
        self.refused(400, r"batch of 0", change(0, shape=[0, 4]))
        self.refused(400, r"another input has 2", change(1, shape=[1], data=[1]))
        self.refused(400, r'"data" has 7 elements, its shape needs 8', change(0, data=[1.0] * 7))
        self.refused(400, r"more than the 8 elements", change(0, data=[1.0] * 9))
        self.refused(400, r"element 1 of .data. must be a number", change(0, data=[1, "a"] * 4))
        self.refused(400, r"whole number that fits", change(1, data=[1.5, 2]))
        self.refused(400, r'"k" is missing', {"inputs": body()["inputs"][:1]})
        self.refused(400, r'"x" is given twice', {"inputs": body()["inputs"][:1] * 2})
        self.refused(400, r'no output "q"', body(outputs=[{"name": "q"}]))
        self.refused(400, r'"y" is asked for twice', body(outputs=[{"name": "y"}] * 2))
        self.refused(400, r'"colour" is not a known field', body(colour=1))
        self.refused(400, r'"inputs" is missing', {})
        b = change(0, parameters={"shared_memory_region": "a", "shared_memory_byte_size": 32})
        del b["inputs"][0]["data"]
        self.refused(422, r"client-shm", b)
        self.refused(400, r"timeout", body(parameters={"timeout": -1}))
        self.refused(400, r"reserved", body(parameters={"triton_x": 1}))
        self.assertFalse(self.s.played.wait("INFER_READY", timeout=0))

    def test_wrong_binary_lengths(self):
        b, raw = binary_body()
        self.refused(400, r"8 bytes more", b, raw + b"12345678")
        self.refused(400, r"body ends within input \"k\": 8 of its 16", b, raw[:-8])
        b["inputs"][0]["parameters"]["binary_data_size"] = 31
        self.refused(400, r'"x" has 31 bytes of data, .* need 32', b, raw)
        code, r = self.s.call("POST", "/v2/models/double/infer", b"{}", self.s.key,
                              {"Inference-Header-Content-Length": "3"})
        self.assertEqual(code, 400)
        code, r = self.s.call("POST", "/v2/models/double/infer", b"{}", self.s.key,
                              {"Inference-Header-Content-Length": "0"})
        self.assertEqual(code, 422)
        code, r = self.s.call("POST", "/v2/models/double/infer", b"{", self.s.key)
        self.assertEqual((code, "line 1" in r["error"]), (400, True))
        code, r = self.s.call("POST", "/v2/models/double/infer", b"{}", self.s.key,
                              {"Content-Encoding": "br"})
        self.assertEqual(code, 415)
        code, r = self.s.call("POST", "/v2/models/double/infer", b" " * 300000, self.s.key)
        self.assertEqual(code, 413)

    def test_chunked_body(self):
        s = socket.create_connection(("127.0.0.1", self.s.port))
        s.sendall(("POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n" % self.s.key).encode())
        self.assertIn(b"411", s.recv(65536))
        s.close()

    def test_versions_and_tenants(self):
        self.assertEqual(self.s.infer(body(), path="/v2/models/double/versions/3/infer")[0], 200)
        self.refused(404, "version", body(), path="/v2/models/double/versions/4/infer")
        self.refused(404, "no model", body(), key=self.s.other)
        self.assertEqual(self.s.infer(body(), model="common", key=self.s.other)[0], 200)
        self.assertEqual(self.s.played.open.tenant, "other")

    def test_a_refusal_says_when_to_come_back(self):
        self.s.played.mode = "refuse"
        self.refused(503, "9 ms too long", body())
        self.assertEqual(self.s.headers["retry-after"], "3")

    def test_a_request_that_is_over_in_mid_body_gives_its_memory_back(self):
        s = socket.create_connection(("127.0.0.1", self.s.port))
        s.sendall(("POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                   "Content-Length: 200000\r\n\r\n" % self.s.key).encode() + b"{")
        self.assertTrue(self.s.played.wait("INFER_OPEN"))
        self.assertTrue(wait_for(lambda: self.used() >= 200000))
        during = self.used()
        self.s.played.sched.send("INFER_REFUSED", rid=self.s.played.open.rid, rc=-18, predicted_ms=0,
                                 retry_after_ms=2000, msg="the queue is full")
        time.sleep(0.2)
        s.sendall(b" " * 60000)
        self.assertTrue(wait_for(lambda: self.used() <= during - 200000))
        s.sendall(b" " * 139999)
        reply = s.recv(65536).decode()
        s.close()
        self.assertIn(" 503 ", reply)
        self.assertIn("the queue is full", reply)

    def test_a_tenant_holds_its_share_of_the_payload_memory_and_no_more(self):
        head = ("POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                "Content-Length: 240000\r\n\r\n" % self.s.key).encode()
        slow = []
        for i in range(2):
            slow.append(socket.create_connection(("127.0.0.1", self.s.port)))
            slow[i].sendall(head + b"{")
            self.assertTrue(wait_for(lambda: sum(t == "INFER_OPEN" for t, _ in self.s.played.log) > i))
        r = self.s.call("POST", "/v2/models/double/infer", b" " * 100000, self.s.key)
        self.assertEqual((r[0], "payload memory" in r[1]["error"]), (429, True), r)
        self.assertEqual(self.s.headers["retry-after"], "1")
        self.assertEqual(self.s.infer(body(), model="common", key=self.s.other)[0], 200)
        for c in slow:
            c.close()
        self.assertTrue(wait_for(lambda: self.s.call(
            "POST", "/v2/models/double/infer", b" " * 100000, self.s.key)[0] == 400))

    def test_made_up_names_do_not_keep_the_database_busy(self):
        name = 'shunt_db_query_seconds_count{statement="catalog_mark"}'
        before, start = self.s.metric(name), time.monotonic()
        for i in range(300):
            self.refused(404, "no model", body(), model="made-up-%d" % i)
        asked, took = self.s.metric(name) - before, time.monotonic() - start
        self.assertTrue(10 <= asked <= 20 + 25 * (took + 1), (asked, took))
        self.assertEqual(self.s.infer(body())[0], 200)

    def test_more_requests_a_second_than_the_quota_allows(self):
        quota = "/api/v1/tenants/other/quota"
        self.assertEqual(self.s.call("PUT", quota, {"requests_per_second": 0.5, "burst": 2},
                                     self.s.admin)[0], 200)
        for _ in range(100):
            r = self.s.infer(body(), model="common", key=self.s.other)
            if r[0] != 200:
                break
            time.sleep(0.02)
        self.assertEqual((r[0], "requests_per_second" in r[1]["error"]), (429, True), r)
        self.assertIn(self.s.headers["retry-after"], ("1", "2"))
        self.assertEqual(self.s.infer(body())[0], 200)  # another tenant
        self.assertEqual(self.s.call("PUT", quota, {}, self.s.admin)[0], 200)
        self.assertTrue(wait_for(lambda: self.s.infer(body(), model="common", key=self.s.other)[0] == 200))

    def test_a_failed_run(self):
        self.s.played.mode = "fail"
        self.refused(500, "device was lost", body())

    def test_a_run_that_the_scheduler_cut_off_was_not_answered_in_time(self):
        self.s.played.mode = "cut"
        self.refused(504, "in time", body())

    def test_time_is_up(self):
        self.s.played.mode = "silent"
        self.refused(504, "in time", body(parameters={"timeout": 200000, "priority": 1}))
        m = self.s.played.ready[self.s.played.open.rid]
        self.assertLess(m.budget_ns, 200e6)
        self.assertEqual(m.priority, 100)
        self.assertTrue(0 < m.budget_ns <= 200000000)
        self.assertTrue(self.s.played.wait("INFER_CANCEL", m.rid))

    def test_more_time_than_there_is_cannot_be_had(self):
        self.s.played.mode = "silent"
        self.refused(504, "in time", body(parameters={"timeout": 3600000000}))
        m = self.s.played.ready[self.s.played.open.rid]
        self.assertTrue(0 < m.budget_ns <= 4e9, m)  # --infer-timeout-ms

    def test_a_client_that_leaves_cancels(self):
        self.s.played.mode = "silent"
        text = json.dumps(body()).encode()
        s = socket.create_connection(("127.0.0.1", self.s.port))
        s.sendall(("POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                   "Content-Length: %d\r\n\r\n" % (self.s.key, len(text))).encode() + text)
        self.assertTrue(self.s.played.wait("INFER_READY"))
        s.close()
        self.assertTrue(self.s.played.wait("INFER_CANCEL", self.s.played.open.rid))

    def test_a_client_that_leaves_in_mid_body_cancels(self):
        s = self.begin(10000, b"{")
        self.assertTrue(self.s.played.wait("INFER_OPEN"))
        s.close()
        self.assertTrue(self.s.played.wait("INFER_CANCEL", self.s.played.open.rid))

    def test_the_executor_is_lost(self):
        self.s.played.mode = "die"
        self.refused(503, "executor was lost", body())
        self.s.played.mode = "serve"
        self.s.played.log.clear()
        self.assertTrue(self.s.played.wait("DATA_HELLO"))
        self.assertEqual(self.s.infer(body())[0], 200)

    def test_an_executor_that_only_the_scheduler_reaches(self):
        """It need not wait out the 60 s that a request has."""
        self.s.played.mode = "away"
        for up in (1, 0, 1):  # known, unknown, and anew
            self.s.played.sched.send("EXEC_UP", executor="away", host_id="h", up=up,
                                     data_addr="unix:" + os.path.join(self.s.dir, "nobody.sock"))
            began = time.monotonic()
            self.refused(503, "\"away\" cannot be reached by this API server; try again", body())
            self.assertLess(time.monotonic() - began, 10)
        self.assertTrue(self.s.played.wait("INFER_CANCEL"))

    def test_the_executor_is_lost_and_another_run_answers(self):
        self.s.played.mode = "die-once"
        self.s.played.again.clear()
        before = self.used()
        self.assertEqual(self.s.infer(body())[0], 200)
        self.assertEqual(self.s.played.again, [1])
        # The executor that was lost may still write: nobody else gets the memory for a while.
        self.assertTrue(wait_for(lambda: self.used() > before))

    def test_readiness_is_what_the_scheduler_says(self):
        ready = lambda of="": self.s.call("GET", "/v2/%s/ready" % (of or "health"), key=self.s.key)  # noqa: E731
        played, model = self.s.played, "models/double"
        self.assertEqual((ready()[0], ready(model)[0]), (200, 200))
        for state, said, text in ((LOADING, "LOADING", "loads it"), (ABSENT, "UNAVAILABLE", "no executor"),
                                  (FAILED, "UNAVAILABLE", "out of luck"), (NONE, "UNAVAILABLE", "scheduler")):
            played.model_up(1, state, step="compile", done=2, total=5, left_ns=int(3e9),
                            msg="out of luck" if state == FAILED else "")
            self.assertTrue(wait_for(lambda: ready(model)[0] == 503))
            index = [m for m in self.s.call("POST", "/v2/repository/index", {}, key=self.s.key)[1]
                     if m["name"] == "double"]
            self.assertEqual(index[0]["state"], said)
            self.assertIn(text, index[0]["reason"])
            v = self.s.call("GET", "/api/v1/models/double/versions/3", key=self.s.key)[1]
            self.assertEqual(v["state"], "FAILED" if state == FAILED else "LOADING")
            self.assertEqual(v["loading"] and {**v["loading"], "seconds_left": 0},
                             {"step": "compile", "done": 2, "total": 5, "seconds_left": 0}
                             if state == LOADING else None)
            self.assertEqual(self.s.call("GET", "/api/v1/models/double", key=self.s.key)[1]["versions"][0]["state"],
                             v["state"])
            self.assertEqual(ready("models/common")[0], 200)
            played.model_up(1, READY)
            self.assertTrue(wait_for(lambda: ready(model)[0] == 200))
        played.sched.send("SERVING", executors=1, missing=3)
        self.assertTrue(wait_for(lambda: ready()[0] == 503))
        self.assertIn("3 model versions are being loaded", ready()[1]["error"])
        played.sched.send("SERVING", executors=0, missing=0)
        self.assertTrue(wait_for(lambda: "no executor" in ready()[1].get("error", "")))
        played.sched.send("SERVING", executors=2, missing=0)
        self.assertTrue(wait_for(lambda: ready()[0] == 200))

    def test_traffic_is_what_the_scheduler_says_while_there_is_one(self):
        def traffic():
            return self.s.call("GET", "/api/v1/models/double", key=self.s.key)[1]["traffic"]
        say = lambda **m: self.s.played.sched.send("MODEL_TRAFFIC", **{  # noqa: E731
            "tenant": "", "model": "", "n_requests": 0, "window_s": 50.0, "p50_ms": 0.0, "p99_ms": 0.0, **m})
        say()
        none = {"window_s": 50, "requests": 0, "per_s": 0, "p50_ms": None, "p99_ms": None}
        self.assertTrue(wait_for(lambda: traffic() == none))
        say(tenant="vision", model="double", n_requests=125, p50_ms=1.23456, p99_ms=4.0)
        self.assertTrue(wait_for(lambda: traffic() == {
            "window_s": 50, "requests": 125, "per_s": 2.5, "p50_ms": 1.235, "p99_ms": 4.0}))
        say(tenant="vision", model="double")  # idle for a minute
        self.assertTrue(wait_for(lambda: traffic() == none))
        say(tenant="vision", model="double", n_requests=1)
        self.s.played.sched.sock.shutdown(2)
        self.assertTrue(wait_for(lambda: traffic() is None))  # nobody knows any more
        self.s.wait_ready()
        self.assertIsNone(traffic())

    def test_the_scheduler_is_lost(self):
        self.s.played.mode = "silent"
        got = []
        t = threading.Thread(target=lambda: got.append(self.s.infer(body())))
        t.start()
        self.assertTrue(self.s.played.wait("INFER_READY"))
        self.s.played.sched.sock.shutdown(2)
        t.join(WAIT_S)
        self.assertEqual((got[0][0], "scheduler" in got[0][1]["error"]), (503, True))
        self.s.played.log.clear()
        self.s.wait_ready()
        self.s.played.mode = "serve"
        self.assertEqual(self.s.infer(body())[0], 200)

    def test_an_executor_on_another_host(self):
        self.s.played.mode = "tcp"
        b, raw = binary_body(8, parameters={"binary_data_output": True})
        for _ in range(3):
            code, r, data = self.s.infer(b, raw)
            self.assertEqual(code, 200)
            self.assertEqual(struct.unpack("<32f8q", data),
                             tuple(2.0 * i for i in range(32)) + tuple(range(1, 9)))
        self.assertTrue(self.s.played.wait("DATA_CHUNK", timeout=0))

    def test_a_result_whose_outputs_have_not_come_is_none(self):
        self.s.played.mode = "tcp"
        self.s.played.is_hasty = True
        self.addCleanup(setattr, self.s.played, "is_hasty", False)
        b, raw = binary_body(8, parameters={"binary_data_output": True})
        code, r, data = self.s.infer(b, raw)
        self.assertEqual(code, 200)
        self.assertEqual(struct.unpack("<32f8q", data),
                         tuple(2.0 * i for i in range(32)) + tuple(range(1, 9)))

    def test_many_clients_and_no_slot_is_lost(self):
        bad = []

        def client():
            c = http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=WAIT_S)
            text = json.dumps(body()).encode()
            for _ in range(100):
                c.request("POST", "/v2/models/double/infer", text,
                          {"Authorization": "Bearer " + self.s.key})
                r = c.getresponse()
                data = r.read()
                if r.status != 200:
                    bad.append((r.status, data))
            c.close()
        threads = [threading.Thread(target=client) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(bad, [])
        # What other tests left draining is given back when no run can use it any more.
        self.assertTrue(wait_for(lambda: self.used() < 16384))
        stats = self.s.call("GET", "/v2/models/double/stats", key=self.s.key)[1]["model_stats"][0]
        self.assertGreaterEqual(stats["inference_stats"]["success"]["count"], 800)
        self.assertGreaterEqual(stats["inference_count"], 1600)
        met = self.s.metric('shunt_slo_requests_total{tenant="vision",model="double",outcome="met"}')
        self.assertGreaterEqual(met, 800)

    def test_large_json_runs_beside_the_http_thread(self):
        b = body()
        text = json.dumps(b).encode() + b" " * 150000
        code, r = self.s.call("POST", "/v2/models/double/infer", text, self.s.key)
        self.assertEqual(code, 200)

    def test_inference_goes_on_without_the_database(self):
        self.assertEqual(self.s.infer(body())[0], 200)
        pg_ctl("-m", "fast", "-s", "stop")
        try:
            self.assertEqual(self.s.infer(body())[0], 200)
            self.assertEqual(self.s.call("GET", "/v2/models/double", key=self.s.key)[0], 200)
            code, r = self.s.call("GET", "/api/v1/models", key=self.s.key)
            self.assertEqual((code, r["code"]), (503, "DBDOWN"))
            time.sleep(1.5) # the refresh thread has noticed by now, and keeps what it has
            self.assertEqual(self.s.infer(body())[0], 200)
        finally:
            folder = re.search(r"host=([^&]+)", URL).group(1)
            pg_ctl("-s", "-l", os.path.join(folder, "log"), "-o",
                   "-c listen_addresses='' -c unix_socket_directories='%s'" % folder, "start")
        self.assertTrue(wait_for(lambda: self.s.call("GET", "/api/v1/models", key=self.s.key)[0] == 200))

    def test_the_database_is_reached_where_it_takes_commits(self):
        """A leader that hears so gives its lease up. While commits hang for all, nobody can take it."""
        def words():
            return self.s.played.log.count(("HINT", "reached"))

        def more_words():
            before = words()
            return wait_for(lambda: words() > before + 1)
        name = sql("SELECT current_database()")
        sql("ALTER DATABASE %s SET synchronous_commit = on" % name)
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
            "datname = current_database()")
        try:
            self.assertTrue(more_words())
            sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            sql("SELECT pg_reload_conf()")
            time.sleep(1.5) # the word of a commit that was under way has come
            before = words()
            time.sleep(3)
            self.assertEqual(words(), before)
        finally:
            sql("ALTER SYSTEM RESET synchronous_standby_names")
            sql("SELECT pg_reload_conf()")
            sql("ALTER DATABASE %s RESET synchronous_commit" % name)
        self.assertTrue(more_words())

    def test_term_waits_for_what_is_in_flight(self):
        self.s.played.mode = "silent"
        got = []
        t = threading.Thread(target=lambda: got.append(self.s.infer(body())))
        t.start()
        self.assertTrue(self.s.played.wait("INFER_READY"))
        proc = self.s.proc
        proc.terminate()
        time.sleep(0.3)
        self.assertIsNone(proc.poll())
        m = self.s.played.ready[self.s.played.open.rid]
        self.s.played.sched.send("INFER_PLACED", rid=m.rid, executor="local", compile_ns=0)
        self.s.played.run(m, self.s.played.slab, None)
        t.join(WAIT_S)
        self.assertEqual(got[0][0], 200)
        self.assertEqual(proc.wait(WAIT_S), 0)
        self.s.played.data = None
        self.s.start()
        self.s.wait_ready()


class Memory(Case):
    """Inputs in a client's shared memory, and outputs: of what is large, copied by several threads."""
    OPTIONS = ("--client-shm=any", "--slab-bytes", "64M", "--copy-threads=2")
    LARGE, SMALL = 512 << 10, 64 << 10

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        wide = {"name": "x", "datatype": "UINT8", "shape": [-1, -1]}
        sql("WITH m AS (INSERT INTO model (tenant_id, name, visibility) SELECT id, 'wide', 'private' "
            "FROM tenant WHERE name = 'vision' RETURNING id) INSERT INTO model_version "
            "(model_id, version, state, digest, package, inputs, outputs, max_batch) SELECT "
            "id, 1, 'READY', repeat('0', 64), 'packages/x', '%s', '%s', 8 FROM m"
            % tuple(json.dumps([{**wide, "name": name, "shape": [-1, cls.SMALL]}]) for name in "xy"))
        cls.path, cls.out = cls.region("r"), cls.region("out")

    @classmethod
    def region(cls, name):
        path = "/dev/shm/shunt-api-infer-%d-%s" % (os.getpid(), name)
        cls.addClassCleanup(os.unlink, path)
        with open(path, "xb") as f:
            f.truncate(cls.LARGE)
        r = cls.s.call("POST", "/v2/systemsharedmemory/region/%s/register" % name,
                       {"key": path[len("/dev/shm"):], "byte_size": cls.LARGE}, cls.s.key)
        assert r[0] == 200, r
        return path

    def setUp(self):
        super().setUp()
        os.truncate(self.path, self.LARGE)

    def from_memory(self, size):
        return {"inputs": [{"name": "x", "datatype": "UINT8", "shape": [size // self.SMALL, self.SMALL],
                            "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": size}}]}

    def to_memory(self, size):
        return {**self.from_memory(size), "outputs": [{
            "name": "y", "parameters": {"shared_memory_region": "out", "shared_memory_byte_size": size}}]}

    def copied(self):
        return sum(self.s.metric('shunt_client_shm_large_bytes_total{by="%s"}' % by) or 0
                   for by in ("caller", "helper"))

    def test_what_is_there_comes_and_goes_whole(self):
        self.s.played.mode, before = "echo", self.copied()
        for _ in range(20):
            with open(self.path, "r+b") as f, open(self.out, "w+b") as out:
                out.truncate(self.LARGE)
                sent = os.urandom(self.LARGE)
                f.write(sent)
                f.flush()
                r = self.s.infer(self.to_memory(self.LARGE), model="wide")
                self.assertEqual(r[0], 200, r)
                self.assertTrue(out.read() == sent)
        self.assertTrue(wait_for(lambda: self.copied() == before + 20 * 2 * self.LARGE))
        self.assertEqual(self.s.infer(self.to_memory(self.SMALL), model="wide")[0], 200)
        self.assertEqual(self.copied(), before + 20 * 2 * self.LARGE)  # a small one is nobody else's

    def test_memory_that_is_cut_short_while_it_is_read_is_an_error(self):
        self.s.played.mode, over, answers = "echo", threading.Event(), []
        before = self.used()

        def cut():
            while not over.is_set():
                for path, size in ((self.path, 3), (self.out, self.LARGE // 2),
                                   (self.path, self.LARGE), (self.out, self.LARGE)):
                    os.truncate(path, size)

        def ask():
            end = time.monotonic() + WAIT_S
            while not over.is_set() and time.monotonic() < end:
                c = http.client.HTTPConnection("127.0.0.1", self.s.port, timeout=WAIT_S)
                c.request("POST", "/v2/models/wide/infer", json.dumps(self.to_memory(self.LARGE)),
                          {"Authorization": "Bearer " + self.s.key})
                r = c.getresponse()
                answers.append((r.status, json.loads(r.read()).get("error", "")))
                c.close()

        threads = [threading.Thread(target=t) for t in (cut, ask, ask, ask)]
        for t in threads:
            t.start()
        enough = wait_for(lambda: len(answers) > 500 and {code for code, _ in answers} >= {200, 400})
        over.set()
        for t in threads:
            t.join()
        self.assertTrue(enough, answers[:20])
        for code, error in answers:
            self.assertTrue(code == 200 or code == 400 and "shorter than it was" in error or
                            code == 503 and "in flight" in error, (code, error))
        self.assertTrue(wait_for(lambda: self.used() <= before))
        self.setUp()
        self.test_what_is_there_comes_and_goes_whole()

    def test_open_goes_out_before_much_of_it_is_read(self):
        """Which here fails at its end: if the link was awake by then, the scheduler has heard of it."""
        os.truncate(self.path, self.LARGE - 1)
        for i in range(200):
            self.refused(400, "shorter than it was", self.from_memory(self.LARGE), model="wide")
            if i > 20 and self.heard("INFER_OPEN"):  # more than --max-inflight
                break
        self.assertTrue(self.heard("INFER_OPEN"))
        self.assertTrue(wait_for(lambda: self.heard("INFER_CANCEL") == self.heard("INFER_OPEN")))
        self.assertEqual(self.heard("INFER_READY"), 0)
        self.s.played.log.clear()
        os.truncate(self.path, self.SMALL - 1)
        for _ in range(20):
            self.refused(400, "shorter than it was", self.from_memory(self.SMALL), model="wide")
        self.assertEqual(self.s.infer(body())[0], 200)
        self.assertEqual(self.heard("INFER_OPEN"), 1)

    def test_one_that_is_refused_meanwhile_is_refused(self):
        self.s.played.mode = "refuse"
        for size in (self.LARGE, self.SMALL) * 10:
            self.refused(503, "9 ms too long", self.from_memory(size), model="wide")
        self.s.played.mode = "fail"
        for size in (self.LARGE, self.SMALL) * 10:
            self.refused(500, "the device was lost", self.from_memory(size), model="wide")
        self.assertEqual(self.heard("INFER_OPEN"), 40)

    def test_it_takes_its_place_once(self):
        self.s.played.mode = "silent"
        text = json.dumps(self.from_memory(self.LARGE)).encode()
        others = [self.begin(len(text), text, "wide") for _ in range(16)]  # --max-inflight
        self.assertTrue(wait_for(lambda: self.heard("INFER_READY") == 16))
        self.refused(503, "in flight", self.from_memory(self.LARGE), model="wide")
        for s in others:
            s.close()
        self.assertTrue(wait_for(lambda: self.heard("INFER_CANCEL") == 16))
        self.assertEqual(self.heard("INFER_OPEN"), 16)
        self.s.played.mode = "serve"
        self.assertEqual([self.s.infer(body())[0] for _ in range(20)], [200] * 20)


class Slow(Case):
    """Clients that are too slow; by limits which a busy machine makes too short for any client."""
    OPTIONS = ("--upload-grace-s=1", "--header-timeout-s=2")

    def test_small_bodies_that_stall_are_cut_off_and_others_are_served(self):
        before, t = self.used(), time.monotonic()
        slow = [self.begin(5000, b"{") for _ in range(40)]  # more than --max-inflight
        self.assertEqual(self.s.infer(body())[0], 200)
        for s in slow:
            s.settimeout(WAIT_S)
            while s.recv(1000):
                pass
            s.close()
        self.assertGreater(time.monotonic() - t, 0.9)
        self.assertTrue(wait_for(lambda: self.used() <= before))
        self.assertEqual((self.heard("INFER_OPEN"), self.heard("INFER_CANCEL")), (1, 0))

    def trickle(self, first, piece):
        """Seconds until the server cuts a connection that sends a byte every 100 ms."""
        s = socket.create_connection(("127.0.0.1", self.s.port))
        s.sendall(first)
        t = time.monotonic()
        while time.monotonic() - t < WAIT_S:
            try:
                s.sendall(piece)
                if not s.recv(100, socket.MSG_DONTWAIT):
                    break
            except BlockingIOError:
                time.sleep(0.1)
            except OSError:
                break
        s.close()
        return time.monotonic() - t

    def test_a_body_that_trickles_is_cut_off(self):
        head = ("POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                "Content-Length: 10000\r\n\r\n" % self.s.key).encode()
        self.assertLess(self.trickle(head, b" "), WAIT_S)
        self.assertTrue(self.s.played.wait("INFER_CANCEL", self.s.played.open.rid))

    def test_a_run_that_goes_on_keeps_the_memory_that_it_writes_to(self):
        """It may have begun as late as that of others with which it shares it: 4 s, then 20, then 10."""
        self.s.played.data.send("DATA_READY", executor="local", incarnation=1, run_ms=20000)
        self.s.played.mode = "silent"
        before, text = self.used(), json.dumps(body(parameters={"timeout": 300000})).encode()
        s = self.begin(len(text), text)
        self.assertTrue(self.s.played.wait("INFER_READY"))
        rid = self.s.played.open.rid
        s.close()
        self.assertTrue(self.s.played.wait("INFER_CANCEL", rid))
        during = self.used()
        self.assertGreater(during, before)
        time.sleep(32)
        self.assertEqual(self.used(), during)  # who is next must not find another's outputs there
        self.s.played.result(rid)
        self.assertTrue(wait_for(lambda: self.used() <= before))

    def test_headers_that_trickle_are_cut_off(self):
        self.assertLess(self.trickle(b"GET /v2 HTTP/1.1\r\nX: ", b"a"), WAIT_S)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
