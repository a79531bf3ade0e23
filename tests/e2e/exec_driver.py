"""Plays the scheduler and one API towards a real shunt-executor, for tests of the executor alone."""
import contextlib
import fcntl
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import wire
from system import BIN, LAB, free_port, read_st, st_bytes  # noqa: F401

PHASE = ["LOADING", "READY", "FAILED", "GONE"]
JOB = ["STARTING", "RUNNING", "PREEMPTED", "COMPLETING", "DONE", "FAILED", "CANCELLED", "SUSPENDED"]
FINAL = ("DONE", "FAILED", "CANCELLED", "SUSPENDED")
SLAB = 64 << 20
WAIT_S = 120  # for what takes a moment on an idle machine


def write_st(path, tensors):
    with open(path, "wb") as f:
        f.write(st_bytes(tensors))


class Driver:
    """Options are those of shunt-executor; one that begins with --debug- takes the laboratory's."""

    def __init__(self, *options, tcp=False, keep=None, programs=None):
        self.dir = keep or tempfile.mkdtemp(prefix="shunt-exec-")
        self.tcp = tcp
        self.programs = programs or (LAB if any(o.startswith("--debug-") for o in options) else BIN)
        self.sched_addr = os.path.join(self.dir, "sched.sock")
        self.data_addr = "tcp:127.0.0.1:%d" % free_port() if tcp else "unix:%s/data.sock" % self.dir
        self.metrics_port = free_port()
        self.epoch, self.next_id = 1, 1
        self.options = options
        self.states, self.jobs, self.results, self.done = {}, {}, {}, {}
        self.version_of = {}  # of each run
        self.checkpoints, self.saved = [], []
        self.used, self.stores = {}, True  # batches of usage by (source, number); they are answered
        self.history, self.places, self.stopping = [], {}, False
        self.scheduler = self.data = self.proc = None
        self.listener = socket.socket(socket.AF_UNIX)
        if os.path.exists(self.sched_addr):
            os.unlink(self.sched_addr)
        self.listener.bind(self.sched_addr)
        self.listener.listen()
        for d in ("blobs/packages", "blobs/tmp", "jobs"):
            os.makedirs(os.path.join(self.dir, d), exist_ok=True)
        fd = os.memfd_create("slab", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, SLAB)
        fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
        self.slab_fd, self.slab, self.slab_at = fd, mmap.mmap(fd, SLAB), 0

    # ------------------------------------------------------------ life
    def start(self):
        log = open(os.path.join(self.dir, "executor.log"), "ab")
        self.proc = subprocess.Popen(
            [os.path.join(self.programs, "shunt-executor"), "--name=e0", "--scheduler=unix:" + self.sched_addr,
             "--scheduler-silence-ms=0",  # this file does not always listen
             "--data-addr=" + self.data_addr, "--state-dir=" + self.dir,
             "--metrics-addr=127.0.0.1:%d" % self.metrics_port, *self.options], stderr=log)
        self.accept()
        self.connect_data()
        return self

    def accept(self):
        self.scheduler, end = None, time.monotonic() + WAIT_S
        self.listener.settimeout(0.5)
        while not self.scheduler:
            with contextlib.suppress(TimeoutError):
                self.scheduler = wire.Conn(self.listener.accept()[0])
            if not self.scheduler and (self.proc.poll() is not None or time.monotonic() > end):
                with open(os.path.join(self.dir, "executor.log"), errors="replace") as f:
                    raise AssertionError("the executor does not connect: " + f.read()[-2000:])
        hello = self.scheduler.recv(WAIT_S)
        assert hello.type == "EXEC_HELLO", hello
        self.hello, self.synced = hello, None
        self.scheduler.send("WELCOME", epoch=self.epoch, name="s0")
        self.wait(lambda: self.synced == hello.incarnation, WAIT_S, "EXEC_SYNCED")

    def connect_data(self):
        self.data = wire.connect(self.data_addr)
        self.data.send("DATA_HELLO", fds=() if self.tcp else (self.slab_fd,), api_id=77, name="a0",
                       slab_bytes=SLAB)
        m = self.data.recv(WAIT_S)
        assert m and m.type == "DATA_READY", m
        self.run_ms = m.run_ms

    def stop(self, timeout=WAIT_S):
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.pump_until_exit(timeout)
            except Exception:
                self.proc.kill()
                raise
        return self.proc.wait() if self.proc else 0

    def pump_until_exit(self, timeout):
        end = time.monotonic() + timeout
        while self.proc.poll() is None:
            assert time.monotonic() < end, "the executor does not end"
            try:
                self.pump(0.05)
            except (EOFError, OSError):
                time.sleep(0.02)

    def close(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    # ------------------------------------------------------------ messages
    def pump(self, timeout):
        end = time.monotonic() + timeout
        while True:
            got = False
            for c in (self.scheduler, self.data):
                m = c.recv(0) if c else None
                if m:
                    got = True
                    self.on_msg(m)
            left = end - time.monotonic()
            if got or left <= 0:
                return
            conns = [c for c in (self.scheduler, self.data) if c]
            wire.select.select(conns, [], [], left)

    def rest(self, seconds):
        """Lets time pass, handling what comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.pump(end - time.monotonic())

    def on_msg(self, m):
        if m.type == "MODEL_STATE":
            self.states[m.version_id] = m
            m.phase = PHASE[m.state]
        elif m.type == "MODEL_PLACE":
            self.places[m.version_id] = m
        elif m.type == "JOB_STATE":
            m.phase = JOB[m.state]
            self.jobs[m.job] = m
            self.history.append(m.phase)
        elif m.type == "JOB_CHECKPOINT":
            self.checkpoints.append(m)
        elif m.type == "JOB_SAVED":
            self.saved.append(m)
        elif m.type == "RESULT":
            self.results[m.rid] = m
        elif m.type == "RUN_DONE":
            self.done[m.run_id] = m
            place = self.places.get(self.version_of.get(m.run_id))
            if place:  # as the scheduler takes it
                place.device_bytes, place.unpack_ns = m.resident_bytes, m.unpack_ns
        elif m.type == "DATA_CHUNK":
            self.slab[m.off:m.off + len(m.bytes)] = m.bytes
        elif m.type == "USAGE":
            self.on_usage(m)
        elif m.type == "EXEC_STATE":
            self.stopping = bool(m.stopping)
        elif m.type == "EXEC_SYNCED":
            self.synced = m.incarnation

    def on_usage(self, m):
        """As the database does it: what it has it does not take again."""
        rows = {}
        for t, kind, _, id_, _, ns, requests, samples, step in struct.iter_unpack("<64sIIqqqqqq", m.rows):
            key = t.rstrip(b"\0").decode(), kind, id_
            before = rows.get(key, (0, 0, 0, 0))  # of another minute
            rows[key] = tuple(map(sum, zip(before, (ns, requests, samples)))) + (max(before[3], step),)
        self.used.setdefault((m.source, m.number), rows)
        if self.stores:
            self.scheduler.send("USAGE_STORED", source=m.source, number=m.number)

    def usage(self, *key):
        """(ns, requests, samples, step) of (tenant, 0, version) or ("", 1, job), of all batches."""
        got = [rows[key] for rows in self.used.values() if key in rows] or [(0, 0, 0, 0)]
        return tuple(sum(r[i] for r in got) for i in range(3)) + (max(r[3] for r in got),)

    def wait(self, test, timeout, what):
        end = time.monotonic() + timeout
        while not test():
            assert time.monotonic() < end, "no %s in %d s" % (what, timeout)
            assert self.proc.poll() is None, "the executor ended"
            self.pump(0.2)

    # ------------------------------------------------------------ models and runs
    def package(self, onnx, *options):
        out = tempfile.mkdtemp(dir=os.path.join(self.dir, "blobs", "packages"))
        shutil.copy(onnx, os.path.join(out, "model.onnx"))
        r = subprocess.run([os.path.join(BIN, "shunt-import"), "package", "--onnx",
                            os.path.join(out, "model.onnx"), "--dir", out, *options],
                           stdout=subprocess.PIPE, check=True)
        meta = json.loads(r.stdout)
        assert meta["ok"], meta
        return out, meta

    def load(self, version, package, max_batch=8, tenant="t", model="m", wait=True,
             precision="fp32", wanted=0.0, source=""):
        self.scheduler.send("MODEL_LOAD", epoch=self.epoch, version_id=version, tenant=tenant,
                            model=model, package=package, max_batch=max_batch, precision=precision, wanted=wanted,
                            source=source)
        if wait:
            self.wait(lambda: version in self.states and self.states[version].phase in
                      ("READY", "FAILED"), 300, "READY")
            assert self.states[version].phase == "READY", self.states[version]

    def alloc(self, n):
        at = self.slab_at
        if at + n > SLAB:
            at = 0
        self.slab_at = (at + n + 63) // 64 * 64
        return at

    def run(self, version, inputs, out_bytes, batch, tenant="t", budget_s=60, parts=1,
            api_ids={}, tenants={}):
        """inputs: bytes of each input; out_bytes: bytes of each output, for one part. Not waiting.
        parts: how many have these inputs, or the inputs of each. tenants: of parts that are not `tenant`'s."""
        run_id = self.next_id
        self.next_id += 1
        outs = []
        each = parts if isinstance(parts, list) else [inputs] * parts
        for of_part in each:
            rid = self.next_id
            self.next_id += 1
            ins, out = b"", b""
            for data in of_part:
                at = self.alloc(len(data))
                self.slab[at:at + len(data)] = data
                ins += struct.pack("<QQ", at, len(data))
                if self.tcp:
                    for i in range(0, len(data), 1 << 20):
                        self.data.send("DATA_CHUNK", rid=rid, off=at + i, bytes=data[i:i + (1 << 20)])
            spans = []
            for n in out_bytes:
                at = self.alloc(n)
                out += struct.pack("<QQ", at, n)
                spans.append((at, n))
            outs.append((rid, spans))
            nth = len(outs) - 1
            self.scheduler.send("RUN_PART", run_id=run_id, rid=rid, api_id=api_ids.get(nth, 77),
                                tenant=tenants.get(nth, ""), batch=batch, in_spans=ins, out_spans=out)
            if self.tcp:
                self.data.send("DATA_END", rid=rid)
        self.version_of[run_id] = version
        self.scheduler.send("RUN", epoch=self.epoch, run_id=run_id, version_id=version, tenant=tenant,
                            batch=batch * len(each), n_parts=len(each), budget_ns=int(budget_s * 1e9),
                            sizes=b"")
        return run_id, outs

    def result(self, run, timeout=WAIT_S):
        run_id, outs = run
        self.wait(lambda: run_id in self.done and all(rid in self.results for rid, _ in outs), timeout,
                  "result")
        r = self.results[outs[0][0]]
        return r, [[bytes(self.slab[at:at + n]) for at, n in spans] for _, spans in outs]

    # ------------------------------------------------------------ jobs
    def start_job(self, job, package, dataset, spec, eval_dataset="", attempt=1, resume="",
                  resume_step=0, tenant="r"):
        d = os.path.join(self.dir, "jobs", str(job))
        self.jobs.pop(job, None)
        self.scheduler.send("JOB_START", epoch=self.epoch, job=job, attempt=attempt,
                            placement=time.time_ns() // 1000, tenant=tenant, model="net",
                            package=package, dataset=dataset, eval_dataset=eval_dataset,
                            spec=json.dumps(spec), dir=d, resume=resume, resume_step=resume_step,
                            about="model net", redone=0, preemptions=0)
        return d

    def start_batch(self, job, version, meta, dataset, spec=None, attempt=1, done=None, tenant="r"):
        """meta: of package(). done: the JOB_CHECKPOINT to go on from."""
        d = os.path.join(self.dir, "jobs", str(job))
        self.jobs.pop(job, None)
        self.scheduler.send("BATCH_START", epoch=self.epoch, job=job, attempt=attempt,
                            placement=time.time_ns() // 1000, tenant=tenant, model="net",
                            version_id=version, inputs=json.dumps(meta["inputs"]),
                            outputs=json.dumps(meta["outputs"]), dataset=dataset,
                            spec=json.dumps(spec or {}), dir=d, resume_step=done.step if done else 0,
                            resume_digest=done.digest if done else "", about="model net", redone=0, preemptions=0)
        return d

    def wait_job(self, job, phases, timeout=WAIT_S):
        self.wait(lambda: job in self.jobs and self.jobs[job].phase in phases + FINAL, timeout,
                  "job state " + "/".join(phases))
        assert self.jobs[job].phase in phases, self.jobs[job]
        return self.jobs[job]

    def wait_step(self, job, step, timeout=WAIT_S):
        self.wait(lambda: job in self.jobs and
                  (self.jobs[job].step >= step or self.jobs[job].phase in FINAL), timeout,
                  "step %d" % step)

    def worker_pids(self):
        r = subprocess.run(["pgrep", "-P", str(self.proc.pid), "shunt-worker"], stdout=subprocess.PIPE)
        return [int(p) for p in r.stdout.split()]

    def metrics(self):
        import urllib.request
        text = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.metrics_port).read().decode()
        out = {}
        for line in text.splitlines():
            if line and line[0] != "#":
                k, _, v = line.rpartition(" ")
                out[k] = float(v)
        return out
