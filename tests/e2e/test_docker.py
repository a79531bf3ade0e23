#!/usr/bin/env python3
"""The Dockerfile: what it copies is there, what it runs can be run, and what it makes is not root's.

Without it: a package that the image lacks, a path that moved, a service of docker-compose.yml whose
program or option is gone would be seen by the first who builds it.

There is no Docker here. By default the file is read: instructions, shell syntax, paths, services. With
SHUNT_BARE_ROOT (`make docker-check`; root, network, as long as a build takes) every RUN of the image
without CUDA is executed in a bare Debian, and each program is started as the image's user. The image
with CUDA has the same lines on NVIDIA's base images, which are not in Debian.

Usage: test_docker.py [-v] [name ...]
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import packages  # noqa: E402

packages.enter(__file__)

import yaml  # noqa: E402
from roots import ENV, layered, make_bare, mount, run  # noqa: E402
from system import BIN, Story  # noqa: E402

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FILE = os.path.join(TOP, "deploy", "docker", "Dockerfile")
BARE = os.environ.get("SHUNT_BARE_ROOT")
INSIDE = "SHUNT_TEST_INSIDE"


def instructions():
    """[(word, rest)], lines that go on put together, comments left out."""
    with open(FILE) as f:
        text = re.sub(r"\\\n", " ", "".join(x for x in f if not x.startswith("#")))
    return [tuple(x.split(None, 1)) for x in text.splitlines() if x.strip()]


def stages():
    """[[(word, rest)]] of each FROM, and the arguments before the first."""
    found, before = [], []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        (found[-1] if found else before).append((word, rest))
    return found, before


def compose():
    with open(os.path.join(TOP, "docker-compose.yml")) as f:
        return yaml.safe_load(f)


def files_of_context():
    """What .dockerignore lets in, as far as git knows it."""
    names = run("git", "-C", TOP, "ls-files", "-co", "--exclude-standard", "-z").stdout.split("\0")
    return [n for n in names if n and os.path.exists(os.path.join(TOP, n))]


class Dockerfile(Story):
    def test_it_is_read(self):
        found, before = stages()
        self.assertEqual(len(found), 2)
        known = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER"}
        self.assertLessEqual({w for s in found for w, _ in s} | {w for w, _ in before}, known)
        self.assertEqual([w for w, _ in found[-1] if w in ("USER", "RUN")][-1], "USER")
        user = dict(found[-1])["USER"]
        self.assertRegex(user, r"^[1-9]\d+:[1-9]\d+$")
        uid, gid = user.split(":")
        self.assertIn("--uid %s --gid %s" % (uid, gid), " ".join(r for _, r in found[-1]))

    def test_what_runs_is_shell(self):
        for stage in stages()[0]:
            for word, rest in stage:
                if word == "RUN":
                    line = re.sub(r"^(--\S+\s+)+", "", rest)
                    done = run("bash", "-n", "-c", line)
                    self.assertEqual(done.returncode, 0, done.stdout)
                    first = shlex.split(line)[0]
                    if "/" in first:
                        self.assertTrue(os.access(os.path.join(TOP, first), os.X_OK), first)

    def test_what_is_copied_is_there(self):
        for stage in stages()[0]:
            for word, rest in stage:
                if word == "COPY":
                    self.assertTrue(os.path.exists(os.path.join(TOP, rest.split()[0])), rest)

    def test_arguments_are_declared(self):
        found, before = stages()
        declared = {r.split("=")[0] for w, r in before + found[0] if w == "ARG"}
        used = {x for s in found for _, r in s for x in re.findall(r"\$\{?([A-Z_]+)", r)}
        self.assertLessEqual(used, declared)
        for name, service in compose()["services"].items():
            for arg in service.get("build", {}).get("args", {}):
                self.assertIn(arg, declared, name)

    def test_services_are_programs_with_their_options(self):
        n = 0
        for name, service in compose()["services"].items():
            if "build" not in service:
                continue
            n += 1
            program, *args = service["command"]
            docs = run(os.path.join(BIN, program), "--docs").stdout
            for arg in args:
                self.assertIn("`%s`" % arg.split("=")[0], docs, name)
            for variable in service.get("environment", {}):
                text = docs + run(os.path.join(BIN, "shunt"), "--docs").stdout
                self.assertTrue("`%s`" % variable in text or
                                "`--%s`" % variable[6:].lower().replace("_", "-") in text, variable)
        self.assertEqual(n, 5)

    def test_what_is_watched_runs_without_a_profile(self):
        """A target of a service that does not run is a process that is down, for the alerts."""
        with open(os.path.join(TOP, "deploy", "docker", "targets.json"), encoding="utf-8") as f:
            hosts = {t.split(":")[0] for group in json.load(f) for t in group["targets"]}
        on = {name for name, s in compose()["services"].items() if not s.get("profiles")}
        self.assertLessEqual(hosts, on)

    def test_a_gpu_takes_the_place_of_the_other_executor(self):
        gpu = compose()["services"]["executor-gpu"]
        self.assertEqual(gpu["profiles"], ["gpu"])
        self.assertEqual(gpu["networks"]["shunt"]["aliases"], ["executor"])
        self.assertIn("gpu", gpu["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"])


@unittest.skipUnless(BARE, "SHUNT_BARE_ROOT names no bare root (make docker-check)")
class Built(Story):
    def test_every_run_is_executed(self):
        make_bare(BARE)
        with tempfile.TemporaryDirectory(prefix="shunt-docker.", dir=os.path.dirname(BARE)) as work:
            done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", sys.executable,
                                   os.path.abspath(__file__)], env=dict(os.environ, **{INSIDE: work}))
        self.assertEqual(done.returncode, 0)


class Stage:
    """What an image is at one of its lines: a root, a folder, variables."""

    def __init__(self, work, lines, arguments, others):
        self.work, self.others = work, others
        self.root, _ = layered(BARE, work, on_disk=True)
        self.at, self.env, self.user = "/", dict(ENV), []
        for name in ("http_proxy", "https_proxy", "no_proxy"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        for word, rest in lines:
            print("%s %s" % (word, rest[:100]), flush=True)
            getattr(self, "on_" + word.lower())(rest, arguments)

    def inside(self, path):
        return os.path.join(self.root, os.path.join(self.at, path).lstrip("/"))

    def on_from(self, rest, arguments):
        pass

    def on_arg(self, rest, arguments):
        name, _, value = rest.partition("=")
        self.env[name] = arguments.get(name, value)

    def on_env(self, rest, arguments):
        self.env.update(x.split("=", 1) for x in shlex.split(rest))

    def on_workdir(self, rest, arguments):
        self.at = rest
        os.makedirs(self.inside("."), exist_ok=True)

    def on_copy(self, rest, arguments):
        source, to = rest.split()
        for name in files_of_context() if source == "." else [source]:
            target = self.inside(name if source == "." else to)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(os.path.join(TOP, name), target)

    def on_run(self, rest, arguments):
        for flag in re.findall(r"^--mount=(\S+)", rest):
            said = dict(x.split("=") for x in flag.split(","))
            target = self.inside(said["target"])
            os.makedirs(target, exist_ok=True)
            mount("--bind", self.others[said["from"]].root + said["source"], target)
        line = re.sub(r"^(--\S+\s+)+", "", rest)
        self.do("cd %s && %s" % (self.at, line))

    def do(self, line):
        done = run("chroot", *self.user, self.root, "sh", "-ec", line, env=self.env)
        if done.returncode:
            raise SystemExit("%s\n%s" % (line, done.stdout[-3000:]))
        return done.stdout

    def on_user(self, rest, arguments):
        self.user = ["--userspec=" + rest]


def inside(work):
    (first, second), _ = stages()
    built = Stage(os.path.join(work, "build"), first, {}, {})
    image = Stage(os.path.join(work, "run"), second, {}, {"build": built})
    print(image.do("id -u && ls -ld /var/lib/shunt && touch /var/lib/shunt/own"))
    for service in compose()["services"].values():
        if "build" in service:
            image.do("%s --version" % service["command"][0])
    image.do("shunt --version && shunt-zoo digits-cnn --out /tmp/d.onnx && shunt-run device && "
             "shunt-import package --onnx /tmp/d.onnx --dir /tmp/d && test -e /usr/share/shunt/migrations")
    size = run("du", "-sm", "--exclude=debs", os.path.join(work, "run", "layers", "upper")).stdout.split()[0]
    print("the image's own layers have %s MB" % size)


if __name__ == "__main__":
    if INSIDE in os.environ:
        inside(os.environ.pop(INSIDE))
    else:
        unittest.main()
