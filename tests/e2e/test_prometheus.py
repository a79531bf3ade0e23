#!/usr/bin/env python3
"""Debian's Prometheus with the shipped configuration against a system under load.

Every expression of every panel and of every alert finds data; nothing fires while all is well; and alerts
fire by their real causes and clear when these are gone: models that miss their target, workers that are
killed, jobs and requests that wait, checkpoints that do not come or cannot be written, a hot GPU, a
standby, a scheduler, an executor and a database that go away.

Without it: a renamed metric or label would leave a panel empty or an alert silent, which nobody notices
before the night it is needed.

Here a minute of the rules is a second, and so is the time between two scrapes. NVML is the one of
tests/nvml. Alerts of causes that cannot be had here: tests/lint/alerts.py.

Usage: test_prometheus.py [-v] [name ...]
"""
import contextlib
import glob
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import Client, Refused  # noqa: E402
from system import BIN, DIGITS, ROOT, Story, System, free_port, read_st, until, zoo  # noqa: E402

NVML = os.path.join(os.path.dirname(os.path.abspath(BIN)), "nvml", "libnvidia-ml.so.1")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# What has no series here: TLS, strangers, and label sets that are too many.
ABSENT = ("shunt_tls_certificate_expiry_timestamp_seconds", "shunt_link_handshakes_total", "shunt_metric_series_",
          'shunt_checkpoints_total{outcome!="ok"}')
# With times a sixtieth, some thresholds have to follow.
SHORTER = (("> 4 * 3600", "> 6"), ("> 1800", "> 6"), ('kind="request"}) > 30', 'kind="request"}) > 2'))


def faster(rules):
    """The rules with a sixtieth of their times."""
    def short(text):
        return re.sub(r"(\d+)([smhd])\b", lambda m: "%ds" % max(int(m.group(1)) * UNITS[m.group(2)] // 60, 1), text)
    rules = re.sub(r"\[[^\]]*\]|for: \w+|offset \w+", lambda m: short(m.group(0)), rules)
    for old, new in SHORTER:
        assert old in rules, old
        rules = rules.replace(old, new)
    return rules


def operands(expr):
    """What an alert compares: of each comparison the left side, of `and` and `or` both."""
    depth, at, parts = 0, 0, []
    for m in re.finditer(r"[({\[]|[)}\]]| (and|or) ", expr):
        if m.group(1) and depth == 0:
            parts.append(expr[at:m.start()])
            at = m.end()
        depth += m.group(0) in "({[" and 1 or m.group(0) in ")}]" and -1 or 0
    parts.append(expr[at:])
    if len(parts) > 1:
        return [x for p in parts for x in operands(p.strip())]
    depth = 0
    for m in re.finditer(r"[({\[]|[)}\]]| (<|>|==|!=|<=|>=) ", expr):
        if m.group(1) and depth == 0:
            return operands(expr[:m.start()].strip())
        depth += m.group(0) in "({[" and 1 or m.group(0) in ")}]" and -1 or 0
    inner = expr[1:-1] if expr.startswith("(") and expr.endswith(")") else ""
    closes = inner and all(inner[:i].count("(") >= inner[:i].count(")") for i in range(len(inner)))
    return operands(inner) if closes and re.search(r" (and|or|<|>) ", inner) else [expr]


class Prometheus(Story):
    @classmethod
    def setUpClass(cls):
        nvml = tempfile.TemporaryDirectory(prefix="shunt-nvml.")
        cls.addClassCleanup(nvml.cleanup)
        shutil.copy(NVML, nvml.name)
        cls.heat = os.path.join(nvml.name, "heat")
        os.environ["LD_LIBRARY_PATH"] = nvml.name
        cls.s = System("--workers=3", "--schedulers=2", NVML="0000:41:00.0", MIN_RUN_MS="1000")
        cls.addClassCleanup(cls.s.stop)
        cls.over = threading.Event()
        cls.threads = []
        cls.addClassCleanup(cls.end_load)
        cls.key = {t: cls.s.tenant(t) for t in ("demo", "lab")}
        cls.samples = read_st(os.path.join(DIGITS, "test.safetensors"))["x"]
        net = zoo("digits-cnn", "training")
        for t in cls.key:
            cls.s.push(cls.key[t], "digits", net, max_batch=8)
            for d in ("train", "test"):
                with open(os.path.join(DIGITS, d + ".safetensors"), "rb") as f:
                    cls.s.push_data(cls.key[t], d, f.read())
        cls.slo(60000)
        cls.alias("digits", 1)
        cls.job = cls.train("demo", checkpoint_interval_ms=500)
        for t in cls.key:
            cls.threads.append(threading.Thread(target=cls.ask, args=(t,)))
        for t in cls.threads:
            t.start()
        cls.s.wait_step(cls.key["demo"], cls.job, 200)
        for pid in cls.s.workers():  # so that steps are done again
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        cls.start_prometheus()

    @classmethod
    def end_load(cls):
        cls.over.set()
        for t in cls.threads:
            t.join()

    # ------------------------------------------------------------ the load
    @classmethod
    def slo(cls, ms):
        """The database may be just coming back."""
        until("the target is set", lambda: cls.s.call("PUT", "/api/v1/models/digits/slo", {
            "latency_ms": ms, "on_miss": "reject"}, cls.key["demo"]).status == 200)

    @classmethod
    def alias(cls, model, *versions):
        """It goes back by itself where a version misses its target more often than the one before."""
        r = cls.s.call("PUT", "/api/v1/models/%s/aliases/watched" % model, {
            "targets": [{"version": v} for v in versions],
            "rollback": {"min_requests": 10, "error_percent": 0, "burn_rate": 1}}, cls.key["lab"])
        assert r.status == 200, r

    @classmethod
    def train(cls, tenant, **spec):
        r = cls.s.submit(cls.key[tenant], model="digits", version=1, dataset="train", eval_dataset="test",
                         spec={"epochs": 100000, "evaluation": {"every": 100}, **spec})
        assert r.status == 201, r
        return r.json["id"]

    @classmethod
    def cancel(cls, tenant, job):
        until("the API takes it", lambda: cls.s.call("POST", "/api/v1/jobs/%d/cancel" % job, {},
                                                     cls.key[tenant]).status < 500)
        cls.s.wait_job(cls.key[tenant], job)

    @classmethod
    def ask(cls, tenant):
        dtype, shape, raw = cls.samples
        one, n, client = len(raw) // shape[0], 0, Client(cls.s.port, cls.key[tenant])
        while not cls.over.wait(0.05):
            n += 1
            batch = n % 8 + 1
            try:
                client.infer("digits/versions/1", {"x": (dtype.replace("F32", "FP32"), [batch, *shape[1:]],
                                                         raw[:batch * one])})
            except (Refused, OSError, ValueError, ConnectionError):
                client.close()  # some causes take away what answers
        client.close()

    def batch(self):
        return self.s.call("POST", "/api/v1/jobs", {
            "kind": "batch_inference", "model": "digits", "version": 1, "dataset": "train", "priority": 90,
            "spec": {"batch": 8}}, self.key["lab"]).json["id"]

    # ------------------------------------------------------------ Prometheus
    @classmethod
    def start_prometheus(cls):
        here = os.path.join(cls.s.dir, "prometheus")
        shutil.copytree(os.path.join(cls.s.state, "prometheus"), here)
        for name, change in (("prometheus.yml", lambda t: t.replace("_interval: 5s", "_interval: 1s")),
                             ("alerts.yml", faster)):
            path = os.path.join(here, name)
            with open(path) as f:
                text = change(f.read())
            with open(path, "w") as f:
                f.write(text)
        subprocess.run(["promtool", "check", "config", os.path.join(here, "prometheus.yml")], check=True,
                       stdout=subprocess.DEVNULL)
        with open(os.path.join(here, "log"), "w") as log:
            cls.port = free_port()
            cls.prometheus = subprocess.Popen(
                ["prometheus", "--config.file=" + os.path.join(here, "prometheus.yml"),
                 "--storage.tsdb.path=" + os.path.join(here, "tsdb"),
                 "--web.listen-address=127.0.0.1:%d" % cls.port], stdout=log, stderr=log)
        cls.addClassCleanup(cls.prometheus.wait)
        cls.addClassCleanup(cls.prometheus.terminate)
        until("Prometheus is ready", cls.is_ready)

    @classmethod
    def is_ready(cls):
        assert cls.prometheus.poll() is None, "Prometheus has ended"
        with contextlib.suppress(OSError):
            return urllib.request.urlopen("http://127.0.0.1:%d/-/ready" % cls.port, timeout=10).status == 200

    def query(self, expr):
        """[(labels, value)], of those that are numbers."""
        url = "http://127.0.0.1:%d/api/v1/query?query=%s" % (self.port, urllib.parse.quote(expr))
        with urllib.request.urlopen(url, timeout=30) as r:
            got = json.load(r)["data"]
        if got["resultType"] == "scalar":
            return [({}, float(got["result"][1]))]
        return [(x["metric"], float(x["value"][1])) for x in got["result"]
                if not math.isnan(float(x["value"][1]))]

    def firing(self):
        return {m["alertname"] for m, _ in self.query('ALERTS{alertstate="firing"}')}

    @contextlib.contextmanager
    def fires(self, *names):
        """They fire by what is done inside, and clear after it."""
        until("%s do not fire" % (names,), lambda: not set(names) & self.firing())
        with contextlib.ExitStack() as undo:
            yield undo
            until("%s fire" % (names,), lambda: set(names) <= self.firing(), every_s=0.3)
        until("%s clear" % (names,), lambda: not set(names) & self.firing(), every_s=0.3)

    # ------------------------------------------------------------ the tests, in the order of their names
    def test_1_configuration_and_rules_are_valid(self):
        at = os.path.join(self.s.state, "prometheus")
        subprocess.run(["promtool", "check", "config", os.path.join(at, "prometheus.yml")], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["promtool", "check", "rules", os.path.join(at, "alerts.yml")], check=True,
                       stdout=subprocess.DEVNULL)

    def test_2_every_process_is_read_and_says_its_version(self):
        until("all four are read", lambda: len([v for _, v in self.query("up") if v == 1]) == 4)
        until("all four say it", lambda: len(self.query("shunt_build_info")) == 4)

    def test_2_promtool_accepts_what_they_say(self):
        for process in ("api", "scheduler", "executor-cpu0"):
            url = "http://127.0.0.1:%d/metrics" % self.s.metrics_ports[process]
            text = urllib.request.urlopen(url, timeout=30).read().decode()
            ours = "\n".join(x for x in text.splitlines() if "DCGM_" not in x) + "\n"
            r = subprocess.run(["promtool", "check", "metrics"], input=ours, text=True, capture_output=True,
                               check=False)
            self.assertEqual((r.returncode, r.stderr), (0, ""), process)

    def test_3_every_panel_finds_data(self):
        self.s.wait_job(self.key["lab"], self.batch())
        n = 0
        for path in sorted(glob.glob(os.path.join(ROOT, "dashboards", "grafana", "*.json"))):
            with open(path) as f:
                panels = [p for p in json.load(f)["panels"] if p["type"] != "row"]
            for p in panels:
                for t in p["targets"]:
                    expr = t["expr"].replace("$__rate_interval", "60s")
                    expr = re.sub(r"\$(job|instance|tenant|executor)\b", ".+", expr)
                    with self.subTest(dashboard=os.path.basename(path), panel=p["title"]):
                        until("data of " + expr, lambda e=expr: self.query(e), limit_s=30, every_s=0.5)
                    n += 1
        self.assertGreater(n, 80)

    def test_3_every_alert_finds_data_and_none_fires(self):
        with open(os.path.join(self.s.dir, "prometheus", "alerts.yml")) as f:
            rules = f.read()
        exprs = re.findall(r"^      - alert: (\w+)\n        expr: (?:\|\n +)?(.*)$", rules, re.M)
        self.assertGreater(len(exprs), 20)
        for name, expr in exprs:
            for part in operands(expr):
                if any(a in part for a in ABSENT):
                    continue
                with self.subTest(alert=name):
                    until("data of " + part, lambda e=part: self.query(e), limit_s=60, every_s=0.5)
        until("a standby is known", lambda: self.query("count(shunt_leader)")[0][1] == 2)
        until("nothing fires", lambda: not self.firing())

    def test_4_missed_targets_use_up_the_budget(self):
        with self.fires("ShuntSloBurnsFast") as undo:
            undo.callback(self.slo, 60000)
            self.slo(0.001)

    def test_4_a_job_that_waits_for_the_only_device(self):
        with self.fires("ShuntJobWaits") as undo:
            undo.callback(self.cancel, "demo", self.train("demo"))

    def test_4_workers_that_are_killed_again_and_again(self):
        with self.fires("ShuntWorkersDie"):
            for _ in range(8):
                for pid in self.s.workers():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.3)
        until("requests are answered", lambda: self.query(
            'sum(increase(shunt_requests_total{outcome="ok"}[10s]))')[0][1] > 0)

    def test_4_a_version_that_misses_its_target(self):
        with self.fires("ShuntAliasRolledBack") as undo:
            net = zoo("digits-cnn")
            for version in (1, 2):
                self.s.push(self.key["lab"], "turned", net, max_batch=8)
                self.alias("turned", version)
            self.s.call("PUT", "/api/v1/models/turned/slo", {"latency_ms": 0.001, "percentile": 50}, self.key["lab"])
            dtype, shape, raw = self.samples
            client = Client(self.s.port, self.key["lab"])
            undo.callback(client.close)
            x = {"x": (dtype.replace("F32", "FP32"), [1, *shape[1:]], raw[:len(raw) // shape[0]])}
            until("version 1 serves again", lambda: [client.infer("turned/versions/watched", x) for _ in range(20)] and
                  self.query('max(shunt_alias_rollbacks_total{model="turned"}) or vector(0)')[0][1] > 0, every_s=0.2)

    def make_hot(self, degrees):
        with open(self.heat, "w") as f:
            f.write("%d\n" % degrees)

    def test_4_a_gpu_that_is_hot(self):
        with self.fires("ShuntGpuHot") as undo:
            undo.callback(self.make_hot, 50)
            self.make_hot(95)

    def test_4_checkpoints_that_cannot_be_written(self):
        folder = os.path.join(self.s.state, "jobs", str(self.job))
        with self.fires("ShuntCheckpointsFail") as undo:
            undo.callback(os.rename, folder + ".away", folder)
            os.rename(folder, folder + ".away")

    def test_4_requests_that_nobody_takes(self):
        with self.fires("ShuntRequestsWait") as undo:
            pid = self.s.pid("executor-cpu0")
            undo.callback(os.kill, pid, signal.SIGCONT)
            os.kill(pid, signal.SIGSTOP)

    def test_5_a_standby_that_goes_away(self):
        with self.fires("ShuntNoStandby", "ShuntProcessDown") as undo:
            undo.enter_context(self.s.held())
            self.s.kill(min(("scheduler", "scheduler-1"), key=self.leads))

    def test_6_the_only_executor_goes_away(self):
        with self.fires("ShuntNoExecutor", "ShuntExecutorGone", "ShuntProcessDown") as undo:
            undo.enter_context(self.s.held())
            self.s.kill("executor-cpu0")

    def test_7_both_schedulers_stop(self):
        with self.fires("ShuntNoLeader") as undo:
            for pid in (self.s.pid("scheduler"), self.s.pid("scheduler-1")):
                undo.callback(os.kill, pid, signal.SIGCONT)
                os.kill(pid, signal.SIGSTOP)

    def test_8_the_database_goes_away(self):
        with self.fires("ShuntDatabaseDown") as undo:
            undo.enter_context(self.s.held())
            self.s.kill("postgres", signal.SIGINT)
        self.slo(60000)

    def test_9_checkpoints_that_do_not_come(self):
        self.s.wait_job(self.key["demo"], self.job, ("RUNNING", "PREEMPTED"))
        self.cancel("demo", self.job)
        with self.fires("ShuntCheckpointOld") as undo:
            undo.callback(self.cancel, "demo", self.train("demo", checkpoint_interval_ms=3600000))

    def leads(self, name):
        return self.s.metrics(name).get("shunt_leader") == 1


if __name__ == "__main__":
    unittest.main()
