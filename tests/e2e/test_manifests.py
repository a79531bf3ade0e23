#!/usr/bin/env python3
"""The system as the manifests of deploy/kubernetes say it: their commands, options and files, on this machine.

Without it: options that fit one by one, and with which the processes do not find each other, would first
be seen in a cluster. Each pod is a process with an address of its own; names of Services are in a file
of hosts. Needs root, else it says "skip".

Usage: test_manifests.py [-v]
"""
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402

packages.enter(__file__, else_skip=True)

from roots import lo_up, mount, run  # noqa: E402
from system import BIN, until  # noqa: E402
from test_kubernetes import build, has_pods  # noqa: E402

TOP = os.path.realpath(os.path.join(HERE, "..", ".."))
UID = 10001
API = "127.0.9.1"  # the Service's address
ADDRESS = {"shunt-scheduler": ["127.0.1.1", "127.0.1.2"], "shunt-api": ["127.0.2.1"], "shunt-executor": ["127.0.3.1"],
           "shunt-migrate": ["127.0.4.1"]}
FIELDS = {"spec.nodeName": "node", "metadata.name": "{name}-{i}", "status.podIP": "{ip}"}


class Pod:
    """A container of a workload, with its folders below work."""

    def __init__(self, work, docs, name, i=0):
        (d,) = [d for d in docs if has_pods(d) and d["metadata"]["name"] == name]
        spec = d["spec"]["template"]["spec"]
        (c,) = spec["containers"]
        self.ip, self.name, self.process = ADDRESS[name][i], "%s-%d" % (name, i), None
        self.folders = {m["mountPath"]: self.folder(work, next(v for v in spec["volumes"] if v["name"] == m["name"]))
                        for m in c.get("volumeMounts", [])}
        self.argv = c["command"] + [self.moved(a) for a in c.get("args", [])]
        self.env = {"PATH": os.environ["PATH"]}
        for e in c["env"]:
            value = e.get("value")
            if value is None and "fieldRef" in e["valueFrom"]:
                value = FIELDS[e["valueFrom"]["fieldRef"]["fieldPath"]].format(name=name, i=i, ip=self.ip)
            elif value is None:
                value = os.environ["DATABASE_URL"]
            value = re.sub(r"\$\(([A-Z_]+)\)", lambda m: self.env[m.group(1)], value)
            self.env[e["name"]] = self.moved(value.replace("0.0.0.0", self.ip))
        self.ports = {p["name"]: p["containerPort"] for p in c.get("ports", [])}
        self.ready = c.get("readinessProbe", {}).get("httpGet")
        self.log = os.path.join(work, self.name + ".log")

    def folder(self, work, volume):
        """Of a claim and a secret: one for all."""
        name = volume.get("secret", {}).get("secretName") or \
            volume.get("persistentVolumeClaim", {}).get("claimName") or self.name + "." + volume["name"]
        path = os.path.join(work, name)
        os.makedirs(path, exist_ok=True)
        os.chown(path, UID, UID)
        return path

    def moved(self, text):
        for at, folder in sorted(self.folders.items(), reverse=True):
            if text.startswith(at):
                return folder + text[len(at):]
        return text.replace("/usr/share/shunt/migrations", os.path.join(TOP, "migrations"))

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--reuid=%d" % UID, "--regid=%d" % UID, "--clear-groups", "--no-new-privs",
                 "--bounding-set=-all", "--inh-caps=-all", os.path.join(BIN, self.argv[0]), *self.argv[1:]],
                env=self.env, stdout=log, stderr=log)
        return self

    def answers(self):
        c = http.client.HTTPConnection(self.ip, self.ports[self.ready["port"]], timeout=10)
        try:
            c.request("GET", self.ready["path"])
            return c.getresponse().status == 200
        except OSError:
            if self.process.poll() is not None:
                raise RuntimeError("%s ended: %s" % (self.name, open(self.log).read()[-2000:]))
            return False
        finally:
            c.close()

    def await_ready(self):
        until("%s is ready" % self.name, self.answers)
        print("%s is ready" % self.name)


def forward(to):
    """What a Service does: its port leads to that of a pod."""
    listener = socket.create_server((API, 80))

    def copy(a, b):
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def serve():
        while True:
            a = listener.accept()[0]
            try:
                b = socket.create_connection(to)
            except OSError:
                a.close()
                continue
            for pair in ((a, b), (b, a)):
                threading.Thread(target=copy, args=pair, daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()


def inside(work):
    lo_up()
    with open(os.path.join(work, "hosts"), "w") as f:
        f.write("127.0.0.1 localhost\n%s shunt-api\n" % API)
        f.write("".join("%s shunt-scheduler\n" % ip for ip in ADDRESS["shunt-scheduler"]))
    mount("--bind", os.path.join(work, "hosts"), "/etc/hosts")
    docs = build("overlays/cpu")
    key = os.path.join(work, "shunt-link", "link.key")
    os.makedirs(os.path.dirname(key))
    with open(key, "w") as f:
        f.write(os.urandom(32).hex() + "\n")
    os.chown(key, 0, UID)
    os.chmod(key, 0o440)
    schedulers = [Pod(work, docs, "shunt-scheduler", i) for i in range(2)]
    api, executor = Pod(work, docs, "shunt-api"), Pod(work, docs, "shunt-executor")
    job = Pod(work, docs, "shunt-migrate").start()
    assert job.process.wait(120) == 0, open(job.log).read()
    forward((api.ip, api.ports["http"]))
    for p in (*schedulers, api):
        p.start()
    for p in (*schedulers, api):
        p.await_ready()
    state = os.path.join(work, "shunt-state")
    made = os.path.join(work, "shunt-executor", "executor.key")  # as the README says
    with open(os.path.join(state, "executor.key")) as a, open(made, "w") as b:
        b.write(a.read())
    os.chown(made, 0, UID)
    os.chmod(made, 0o440)
    executor.env["SHUNT_POOL_BYTES"] = "256M"  # of this machine
    executor.start().await_ready()

    def shunt(*argv):
        done = run(os.path.join(BIN, "shunt"), *argv, "--server=http://shunt-api:80", "-n", "a",
                   "--key-file=" + os.path.join(state, "admin.key"))
        logs = [open(p.log).read()[-1500:] for p in (api, executor)]
        assert done.returncode == 0, (argv, done.stdout, logs)
        return done.stdout
    model = os.path.join(work, "d.onnx")
    subprocess.run([os.path.join(BIN, "shunt-zoo"), "digits-cnn", "--out", model], check=True)
    shunt("create", "tenant", "a")
    shunt("push", "model", "d", model, "--wait")
    shunt("infer", "d", "--random", "1")
    print("a model is served")

    def leads(s):
        c = http.client.HTTPConnection(s.ip, s.ports["metrics"], timeout=10)
        c.request("GET", "/metrics")
        return b"\nshunt_leader 1\n" in b"\n" + c.getresponse().read()
    leader = next(s for s in schedulers if leads(s))
    (other,) = [s for s in schedulers if s is not leader]
    leader.process.send_signal(signal.SIGKILL)
    until("the other one leads", lambda: leads(other))
    for p in (api, executor):
        p.await_ready()
    until("it serves", lambda: run(os.path.join(BIN, "shunt"), "infer", "d", "--random", "1", "-n", "a",
                                   "--server=http://shunt-api:80", "--key-file=" + os.path.join(state, "admin.key"))
          .returncode == 0)
    print("the other scheduler leads")
    for p in (executor, api, other):
        p.process.terminate()
        assert p.process.wait(60) == 0, open(p.log).read()[-1500:]
    print("all ended")


def main():
    if "SHUNT_TEST_INSIDE" in os.environ:
        inside(os.environ["SHUNT_TEST_INSIDE"])
        return
    if os.getuid() != 0 or run("unshare", "-m", "-n", "true").returncode:
        print("skip: only root can give pods addresses of their own")
        return
    with tempfile.TemporaryDirectory(prefix="shunt-pods.") as work:
        os.chmod(work, 0o755)
        empty = os.path.join(work, "empty.conf")
        open(empty, "w").close()
        env = {k: v for k, v in os.environ.items() if not re.match("SHUNT_(?!BIN$|TEST_|PG_)", k)}
        env.update(SHUNT_TEST_INSIDE=work, SHUNT_CONFIG=empty)
        sys.exit(subprocess.run(
            [os.path.join(TOP, "tests", "pg.sh"), "run", "unshare", "--mount", "--net", "--pid", "--fork",
             "--kill-child", "--mount-proc", sys.executable, os.path.abspath(__file__)], env=env).returncode)


if __name__ == "__main__":
    main()
