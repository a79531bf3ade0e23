#!/usr/bin/env python3
"""Two hosts, each in a network namespace of its own: one with four executors of `shunt up`, one with an
executor that shares no folder with them. Versions follow demand from one host to the other, an image
comes from the memory of the host that has it, and the end of an executor moves what lived there.

Without it: a version in demand could stay on one host, or be made anew on the other one although its
image lies in memory a link away; and the end of a host could leave its versions without a home.

Usage: test_tiers.py [-v] [name ...]
"""
import contextlib
import ctypes
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, Story, System, free_port, until  # noqa: E402
from test_placement import Load  # noqa: E402

WIDTH, DEPTH = 1024, 150  # an image of 4 MiB, and a run that takes much longer than its request
X = [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.5] * WIDTH}]
FOLLOWS_S, MOVES_S = 10, 2
CLONE_NEWNET = 0x40000000


def run(*words, check=True):
    return subprocess.run(words, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).returncode


class Hosts:
    """Two network namespaces with a cable between them. This process and what it starts is in the first."""

    def __init__(self):
        n = secrets.randbelow(250) + 1
        self.names = ["shunt-%d-%s" % (os.getpid(), x) for x in "ab"]
        self.addresses = ["10.77.%d.%d" % (n, i) for i in (1, 2)]
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY)
        for name in self.names:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", "veth0", "netns", self.names[0], "type", "veth", "peer", "name", "veth0",
            "netns", self.names[1])
        for name, address in zip(self.names, self.addresses):
            for words in (["addr", "add", address + "/24", "dev", "veth0"], ["link", "set", "veth0", "up"],
                          ["link", "set", "lo", "up"]):
                run("ip", "-n", name, *words)
        self.enter(os.open("/run/netns/" + self.names[0], os.O_RDONLY))

    @staticmethod
    def enter(fd):
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    def close(self):
        self.enter(self.home)
        for name in self.names:
            run("ip", "netns", "del", name, check=False)


class Tiers(Story):
    @classmethod
    def setUpClass(cls):
        try:
            cls.hosts = Hosts()
        except (OSError, subprocess.CalledProcessError) as e:
            raise unittest.SkipTest("network namespaces need root and the kernel's support: %s" % e)
        cls.addClassCleanup(cls.hosts.close)
        cls.folder = tempfile.mkdtemp(prefix="shunt-e2e.")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.link_file = os.path.join(cls.folder, "link.key")
        with open(cls.link_file, "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(secrets.token_hex(32) + "\n")
        cls.s = s = System("--executors=4", "--workers=2", "--pool-bytes=64M", "--bind=0.0.0.0", MIN_COPIES="1",
                           LINK_KEY_FILE=cls.link_file)
        cls.addClassCleanup(s.stop)
        cls.open_scheduler()
        cls.key = s.tenant("anna")
        cls.start_far()

    @classmethod
    def open_scheduler(cls):
        """`shunt up` is for one host: a scheduler that the other one reaches takes the lead from its own."""
        s, port, metrics = cls.s, free_port(), free_port()
        cls.scheduler = "tcp:%s:%d" % (cls.hosts.addresses[0], port)
        s.metrics_ports["open"] = metrics
        with open("/proc/%d/environ" % s.pid("api"), "rb") as f:
            env = dict(e.decode().split("=", 1) for e in f.read().split(b"\0") if b"=" in e)
        with s.held():
            s.kill("scheduler", signal.SIGTERM)
            with open(os.path.join(s.state, "log", "scheduler-open.log"), "wb") as log:
                p = subprocess.Popen(
                    [os.path.join(BIN, "shunt-scheduler"), "--name=open", "--metrics-addr=127.0.0.1:%d" % metrics,
                     "--listen=unix:%s/run/scheduler.sock,tcp:0.0.0.0:%d" % (s.state, port)], stderr=log, env=env)
            cls.addClassCleanup(p.wait, 30)
            cls.addClassCleanup(p.terminate)
            until("it leads", lambda: cls.metric("open", "shunt_leader"))

    @classmethod
    def start_far(cls):
        far, home, metrics = cls.hosts.addresses[1], os.path.join(cls.folder, "far"), free_port()
        cls.far_metrics = "http://%s:%d/metrics" % (far, metrics)
        os.makedirs(home)
        shutil.copy(os.path.join(cls.s.state, "executor.key"), home)
        with open(os.path.join(cls.folder, "far.log"), "wb") as log:
            cls.far = subprocess.Popen(
                ["ip", "netns", "exec", cls.hosts.names[1], os.path.join(BIN, "shunt-executor"), "--name=far",
                 "--state-dir=" + home, "--api=http://%s:%d" % (cls.hosts.addresses[0], cls.s.port),
                 "--api-key-file=" + os.path.join(home, "executor.key"), "--scheduler=" + cls.scheduler,
                 "--link-key-file=" + cls.link_file, "--data-addr=tcp:%s:%d" % (far, free_port()), "--workers=2",
                 "--metrics-addr=%s:%d" % (far, metrics), "--pool-bytes=64M", "--threads=1"],
                stderr=log, env={**cls.s.env, "PATH": BIN + ":" + os.environ["PATH"]})
        cls.addClassCleanup(cls.far.wait, 30)
        cls.addClassCleanup(cls.far.kill)
        until("the other host is there", lambda: "far" in cls.up())

    @classmethod
    def up(cls):
        items = cls.s.call("GET", "/api/v1/executors", key=cls.s.admin).json["items"]
        return {e["name"] for e in items if e["state"] == "UP"}

    @classmethod
    def metric(cls, process, series):
        """Of all series that begin so: their sum."""
        with contextlib.suppress(OSError):
            if process == "far":
                text = urllib.request.urlopen(cls.far_metrics, timeout=5).read().decode()
                return sum(float(x) for x in re.findall("^%s.* (\\S+)$" % re.escape(series), text, re.M))
            return sum(v for k, v in cls.s.metrics(process).items() if k.startswith(series))
        return 0

    def homes(self, model):
        r = self.s.call("GET", "/api/v1/models/%s/versions/1/placements" % model, key=self.key)
        return {p["executor"] for p in r.json["placements"] if p["state"] == "READY"}

    def answers(self, model):
        return self.s.infer(self.key, model, X).status == 200

    def test_1_a_version_lives_on_the_only_host_that_is_there(self):
        near = self.up() - {"far"}
        self.assertEqual(len(near), 4)
        with self.s.held():
            old = {e: self.s.kill("executor-" + e) for e in near}
            until("they are gone", lambda: self.up() == {"far"})
            self.s.push(self.key, "popular", onnx.chain(DEPTH, WIDTH), max_batch=1)
            self.s.push(self.key, "quiet", onnx.linear(WIDTH, 10), max_batch=1)
            until("both are there", lambda: self.answers("popular") and self.answers("quiet"))
        for e in near:
            self.s.wait_new("executor-" + e, old[e])
        until("all are back", lambda: self.up() == near | {"far"})
        # Placements are written once a second: the four may be back before the first is.
        until("both are said to live there", lambda: self.homes("popular") and self.homes("quiet"), 5)
        self.assertEqual((self.homes("popular"), self.homes("quiet")), ({"far"}, {"far"}))

    def test_2_it_follows_demand_and_its_image_comes_over_the_link(self):
        def came():
            return sum(self.metric("executor-" + e, 'shunt_image_read_bytes_total{executor="%s",from="host"}' % e)
                       for e in self.up() - {"far"})
        load = Load(self.s, self.key, "popular", 6, X)
        began = time.monotonic()
        try:
            until("it has a home on the other host", lambda: self.homes("popular") - {"far"}, FOLLOWS_S)
            took = time.monotonic() - began
        finally:
            load.end()
        self.assertEqual(load.refused, [])
        image = 4 * WIDTH * WIDTH
        self.assertGreaterEqual(until("bytes over the link", came, 5), image)
        sent = self.metric("far", "shunt_image_sent_bytes_total")
        self.assertGreaterEqual(sent, image)
        print("\nin demand: homes %s after %.1f s, %d answered; %d bytes of its image over the link" % (
            sorted(self.homes("popular")), took, load.answered, sent), file=sys.stderr)

    def test_3_the_end_of_a_host_moves_its_work(self):
        self.assertEqual(self.homes("quiet"), {"far"})
        died = time.monotonic()
        self.far.kill()
        for model in ("popular", "quiet"):
            until("%s answers" % model, lambda m=model: self.answers(m), MOVES_S)
        took = time.monotonic() - died
        print("\nthe other host is dead: all answered here after %.2f s" % took, file=sys.stderr)
        self.assertLessEqual(took, MOVES_S)
        self.assertTrue(until("another home", lambda: self.homes("quiet") - {"far"}))


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
