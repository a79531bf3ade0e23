#!/usr/bin/env python3
"""`shunt top` on a terminal, by tmux: what is on the screen after each key, and the terminal after its end.

Without it: a key could do nothing or show the wrong rows, a name from a tenant could move the cursor, a small
terminal could be written over, and a shell be left without an echo.
"""
import os
import re
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import Story, System, st_bytes, until  # noqa: E402

SIDE = 64
MODELS = {"anna": ("alpha", "beta", "gamma"), "bert": ("delta",)}
REQUESTS = {"alpha": 2, "beta": 8, "gamma": 5}


class Terminal:
    """One tmux server with one window, in which a shell runs."""

    def __init__(self, folder, env, size=(110, 24)):
        self.socket = os.path.join(folder, "tmux.sock")
        self.env = {**env, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "sh", "-m")
        self.type("PS1='ready$ '", "Enter")

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, *args], env=self.env, check=True, timeout=30,
                              stdout=subprocess.PIPE, text=True).stdout

    def type(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def resize(self, cols, rows):
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    def stop(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], env=self.env, timeout=30, check=False)


class Top(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2")
        cls.addClassCleanup(cls.s.stop)
        cls.keys = {t: cls.s.tenant(t) for t in MODELS}
        for tenant, names in MODELS.items():
            for name in names:
                cls.s.push(cls.keys[tenant], name, onnx.linear(SIDE, SIDE), max_batch=1)
        cls.s.push_data(cls.keys["anna"], "d", st_bytes({
            "x": ("F32", [8, SIDE], bytes(8 * 4 * SIDE)), "label": ("I64", [8], bytes(64))}))
        r = cls.s.call("POST", "/api/v1/queues", {"name": "night", "state": "HELD"}, cls.s.admin)
        assert r.status == 201, r
        for _ in range(30):
            cls.submit(steps=5, queue="night")
        cls.t = Terminal(cls.s.dir, cls.s.env)
        cls.addClassCleanup(cls.t.stop)

    @classmethod
    def submit(cls, steps, **more):
        r = cls.s.submit(cls.keys["anna"], model="alpha", dataset="d", spec={
            "steps": steps, "epochs": None, "batch": 1, "publish": False,
            "optimizer": {"name": "sgd", "lr": 0.1}}, **more)
        assert r.status == 201, r
        return r.json["id"]

    def ask(self, requests=None):
        body = {"inputs": [{"name": "x", "shape": [1, SIDE], "datatype": "FP32", "data": [0.5] * SIDE}]}
        for name, times in (requests or REQUESTS).items():
            for _ in range(times):
                r = self.s.call("POST", "/v2/models/%s/infer" % name, body, self.keys["anna"])
                self.assertEqual(r.status, 200, r)

    def top(self, *options, key=None):
        """In the shell; it is left when the test ends, whatever it has shown."""
        words = [os.path.join(self.s.programs, "shunt"), "top", "--state-dir", self.s.state, *options]
        if key:
            path = os.path.join(self.s.dir, "key")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
                f.write(key)
            words += ["--key-file", path]
        self.t.type("clear; " + shlex.join(words), "Enter")
        self.addCleanup(self.t.resize, 110, 24)
        self.addCleanup(self.quit)
        self.sees("[1:GPUs]")

    def quit(self):
        self.t.type("C-c")
        until("the shell is back", lambda: self.t.screen().rstrip().endswith("ready$"))

    def sees(self, *texts):
        return until("%s on the screen" % (texts,), lambda: all(x in self.t.screen() for x in texts) and self.t.screen(), limit_s=20)

    def sees_not(self, text):
        until("no %s on the screen" % text, lambda: text not in self.t.screen())

    def order(self, *names):
        """Their lines from above."""
        lines = self.t.screen().splitlines()
        at = {n: i for i, line in enumerate(lines) for n in names if " %s " % n in line}
        return sorted(at, key=at.get)

    def test_each_list_has_its_rows(self):
        self.ask()
        self.top("--interval-ms=200")
        self.sees("cpu0", "UP", "REQUESTS + JOBS", "1-1 of 1")
        for key, texts in (("2", ("[2:tenants]", "anna", "bert", "WEIGHT")), ("3", ("[3:models]", "alpha", "1 READY")),
                           ("4", ("[4:jobs]", "QUEUED", "night")), ("5", ("[5:queues]", "night", "HELD")),
                           ("6", ("[6:switches]", "ALL MS"))):
            self.t.type(key)
            self.sees(*texts)
        job = self.submit(steps=200000)
        until("it trains", lambda: self.s.job(self.keys["anna"], job).json["step"] > 0)
        self.ask({"alpha": 3})  # which take the device from it
        self.sees("alpha", "yes")
        self.s.call("POST", "/api/v1/jobs/%d/cancel" % job, key=self.keys["anna"])
        self.t.type("Tab")
        self.sees("[1:GPUs]")
        self.t.type("BTab")
        self.sees("[6:switches]")

    def test_rows_are_sorted_and_turned_round(self):
        self.top("--interval-ms=200")
        self.t.type("3")
        self.sees("[3:models]", "delta")
        self.t.type(">", ">")  # by the second column: its name
        self.sees("by MODEL")
        until("by name", lambda: self.order("alpha", "beta", "delta", "gamma") == ["alpha", "beta", "delta", "gamma"])
        self.t.type("r")
        self.sees("falling")
        until("turned", lambda: self.order("alpha", "beta", "delta", "gamma") == ["gamma", "delta", "beta", "alpha"])
        self.ask()
        self.t.type(">")  # requests: of size, not of letters; who had none is last
        self.sees("by REQ/S")
        until("by rate", lambda: self.order("alpha", "beta", "gamma") == ["beta", "gamma", "alpha"])
        self.t.type("0")
        self.sees_not("by REQ/S")

    def test_rows_with_a_text_alone(self):
        self.top("--interval-ms=200")
        self.t.type("3")
        self.sees("delta", "of 4")
        self.t.type("/", "q", "\u00e9", "BSpace", "BSpace", "E", "T", "A")  # an e with an accent is one character
        self.sees("only rows with: ETA_")
        self.sees_not("alpha")
        self.t.type("Enter")
        self.sees('with "ETA"', "1-1 of 1", "beta")
        self.t.type("Escape")
        self.sees("alpha", "of 4")

    def jobs(self):
        return [line.split()[1] for line in self.t.screen().splitlines() if "QUEUED" in line]

    def test_more_rows_than_lines(self):
        self.top("--interval-ms=200")
        self.t.type("4")
        n = int(re.search(r"1-19 of (\d+)", self.sees("[4:jobs]", "1-19 of "))[1])  # some have ended, perhaps
        first = self.jobs()[0]
        self.t.type("Down")
        self.sees("2-20 of %d" % n)
        self.assertNotIn(first, self.jobs())
        self.t.type("NPage")
        self.sees("%d-%d of %d" % (n - 18, n, n))  # not beyond the last
        self.t.type("Home")
        self.sees("1-19 of %d" % n)
        self.assertEqual(self.jobs()[0], first)
        self.t.resize(60, 10)
        self.sees("1-5 of %d" % n)
        for line in self.t.screen().splitlines():
            self.assertLessEqual(len(line), 60)
        self.t.resize(20, 4)
        self.sees("shunt")

    def test_pause_help_and_how_often(self):
        self.top("--interval-ms=400")
        self.t.type("p")
        self.sees("paused")
        stood = self.sees("cpu0").splitlines()[0]
        self.t.type("?")
        self.sees("this help", "quit")
        self.t.type("x")
        self.sees("cpu0")
        self.assertEqual(self.t.screen().splitlines()[0], stood)
        self.t.type("p", "-")
        self.sees_not("paused")
        self.sees("every 0.8 s")
        self.t.type("+", "+")
        self.sees("every 0.2 s")

    def test_a_tenant_sees_its_own(self):
        self.top("--interval-ms=200", key=self.keys["bert"])
        self.t.type("2")
        self.sees("bert", "1-1 of 1")
        self.t.type("3")
        self.sees("delta", "of 1")
        self.assertNotIn("alpha", self.t.screen())
        self.t.type("4")
        self.sees("0-0 of 0")

    def test_the_terminal_is_as_before(self):
        before = until("a shell", lambda: self.t.screen().rstrip().endswith("ready$")) and self.stty()
        for how in ("q", "C-c"):
            self.top("--interval-ms=200")
            self.t.type(how)
            self.sees_not("[1:GPUs]")
            self.assertEqual(self.stty(), before)
        self.top("--interval-ms=200")
        self.t.type("C-z")
        self.sees_not("[1:GPUs]")
        self.assertEqual(self.stty(), before)
        self.t.type("fg", "Enter")
        self.sees("[1:GPUs]", "cpu0")

    def stty(self):
        self.t.type("clear; stty -g", "Enter")
        return until("stty", lambda: [x for x in self.t.screen().splitlines() if x.count(":") > 10])

    def test_no_answer_is_said_and_what_was_last_read_stays(self):
        self.top("--interval-ms=200")
        self.sees("cpu0")
        pid = self.s.pid("api")
        os.kill(pid, 19)
        try:
            self.t.type("p", "p")
        finally:
            os.kill(pid, 18)
        self.sees("cpu0", "ok")


if __name__ == "__main__":
    unittest.main()
