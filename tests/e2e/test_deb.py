#!/usr/bin/env python3
"""The packages for Debian: they install, what their units start tells the demo's story, nothing stays.

Without it: a library or program that a package lacks, a unit that starts something else than it
should, a file that nobody removes, a library whose licence nobody tells of, or a configuration that an
upgrade replaces would go unnoticed.

The packages are installed in a root of its own: this machine's, with all changes on top of it and
thrown away, or a bare one that SHUNT_BARE_ROOT names and that is made if need be (`make deb-check`;
that wants the network). There is no systemd in it: the units are read here, and what they say is
done. Needs root and debhelper, else it says "skip".

Usage: test_deb.py [-v]
"""
import hashlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from roots import ENV, layered, lo_up, make_bare, run  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.realpath(os.path.join(HERE, "..", ".."))
BIN = os.path.realpath(os.environ.get("SHUNT_BIN") or os.path.join(TOP, "build", "bin"))
BARE = os.environ.get("SHUNT_BARE_ROOT")
DEMO = ["--model", "resnet18", "--epochs", "60", "--bursts", "6"]  # a short one
UNITS = "lib/systemd/system"
WAIT_S = 120
# What dpkg and its neighbours note for themselves. passwd- and the like: the version before.
NOTED = re.compile(r"^(var/(lib/(dpkg|apt|systemd|pam)|log|cache)|etc/(passwd|group|shadow|gshadow)-|"
                   r"etc/\.pwd\.lock|run|tmp|proc|sys|dev|root)(/|$)")

checks = failed = 0


def ok(what, good, more=""):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print("FAIL  %s\n%s" % (what, "".join("      | %s\n" % line for line in str(more).splitlines()[-30:])), end="")
    elif "-v" in sys.argv:
        print("ok    %s" % what)
    return good


def skip(why):
    print("skip: %s" % why)
    sys.exit(0)


# ---------------------------------------------------------------- the packages, and a root for them

def build(to):
    made = run(os.path.join(TOP, "deploy", "deb.sh"), os.path.dirname(BIN), "test", to,
               env=dict(os.environ, DEB_BUILD_OPTIONS="noautodbgsym", DPKG_DEB_COMPRESSOR_TYPE="none",
                        SHUNT_CONFIG="/dev/null"))
    if not ok("the packages are made", made.returncode == 0, made.stdout):
        sys.exit(1)
    return packed(to)


def packed(to):
    """Their names and files."""
    return {re.match(r"[a-z-]+", f).group().rstrip("_"): os.path.join(to, f)
            for f in sorted(os.listdir(to)) if f.endswith(".deb")}


def stem(library):
    """Of a package's name: without its version, which another release of Debian may have."""
    return re.sub(r"[0-9.-]+(t64)?$", "", library)


def licences(debs):
    """Each package says under what terms it is, and names all libraries that its programs are linked with."""
    for name, deb in debs.items():
        text = run("sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/share/doc/$2/copyright"', "sh", deb,
                   name).stdout
        ok("%s says under what terms it is" % name, text.startswith("Format: ") and "\nLicense: " in text, text)
        told = {stem(n) for n in re.findall(r"^  ([a-z0-9.+-]+) +\S", text, re.M)}
        needs = {re.split(r"[ (|:]", n.strip())[0] for n in run("dpkg-deb", "-f", deb, "Depends").stdout.split(",")}
        missing = [n for n in needs if n.startswith(("lib", "zlib")) and stem(n) not in told]
        ok("%s says whose libraries it is linked with" % name, not missing, missing)


def wanted(debs):
    """What the packages need from Debian, the first of alternatives; and what the story needs."""
    names = {"postgresql", "curl", "jq", "procps"}
    for deb in debs.values():
        for want in run("dpkg-deb", "-f", deb, "Depends").stdout.split(","):
            name = re.split(r"[ (|]", want.strip())[0]
            if name and name not in debs:
                names.add("systemd-standalone-sysusers" if name == "systemd" else name)
    return sorted(names)


def prepare(root, debs):
    """Into a bare root: what the packages say that they need, and a database."""
    make_bare(root)
    made = run("sh", "-ec", "apt-get -qq update && apt-get -qq install -y --no-install-recommends \"$@\"",
               "sh", *wanted(debs), root=root, env=dict(os.environ, **ENV))
    if made.returncode:
        sys.exit("what the packages need cannot be installed: %s" % made.stdout[-2000:])


def enter(debs, work):
    """A root of our own, which goes with this process: its mounts, its processes, its network."""
    lower = BARE or "/"
    root, upper = layered(lower, work)
    lo_up()
    os.mkdir(root + "/tmp/debs")
    for deb in debs.values():
        shutil.copy(deb, root + "/tmp/debs/")
    return Root(lower, upper, root)


class Root:
    """A folder with a root in it: what was there, and what was changed on top of it."""

    def __init__(self, lower, upper, merged):
        self.lower, self.upper, self.merged = lower, upper, merged

    def changes(self):
        """What was changed, as path: from what to what. A folder that is only written anew is none."""
        found = {}
        for folder, names, files in os.walk(self.upper):
            for name in names + files:
                path = os.path.normpath(os.path.join(os.path.relpath(folder, self.upper), name))
                before, after = what_is(self.lower, path), what_is(self.merged, path)
                if before != after and not NOTED.match(path):
                    found[path] = "%s -> %s" % (before, after)
        return found


def what_is(root, path):
    """What tells one state of a file from another; None: there is none."""
    path = os.path.join(root, path)
    try:
        s = os.lstat(path)
    except OSError:
        return None
    what = ""
    if stat.S_ISLNK(s.st_mode):
        what = os.readlink(path)
    elif stat.S_ISREG(s.st_mode):
        with open(path, "rb") as f:
            what = hashlib.sha256(f.read()).hexdigest()
    return "%o %d:%d %s" % (s.st_mode, s.st_uid, s.st_gid, what)


# ---------------------------------------------------------------- units, without systemd

class Unit:
    """What a unit says, and what systemd would do with it, as far as the daemons notice."""

    def __init__(self, root, name):
        self.root, self.name, self.process = root, name, None
        self.instance = (re.match(r"[^@]+@(.*)\.service", name) or [None, ""])[1]
        self.says = {}
        file = re.sub(r"@.*\.", "@.", name)
        with open(os.path.join(root, UNITS, file)) as f:
            for line in f:
                if re.match(r"[A-Za-z]+=", line):
                    key, value = line.strip().split("=", 1)
                    self.says.setdefault(key, []).append(self.filled(value))

    def filled(self, value):
        return value.replace("%i", self.instance).replace("%l", socket.gethostname().split(".")[0])

    def one(self, key, default=None):
        return self.says.get(key, [default])[-1]

    def path(self, p):
        return os.path.join(self.root, p.lstrip("/"))

    def may_start(self):
        all_of = [v for v in self.says.get("ConditionPathExists", []) if v[0] != "|"]
        some_of = [v[1:] for v in self.says.get("ConditionPathExists", []) if v[0] == "|"]
        return all(os.path.exists(self.path(v)) for v in all_of) and \
            (not some_of or any(os.path.exists(self.path(v)) for v in some_of))

    def environment(self):
        env = {"PATH": ENV["PATH"], "LANG": ENV["LANG"]}
        for pair in self.says.get("Environment", []):
            key, value = pair.split("=", 1)
            env[key] = value
        for name in self.says.get("EnvironmentFile", []):
            path = self.path(name.lstrip("-"))
            if name[0] == "-" and not os.path.exists(path):
                continue
            with open(path) as f:
                for line in f:
                    if line.strip() and line[0] != "#":
                        key, value = line.strip().split("=", 1)
                        env[key] = value
        return env

    def folders(self):
        ids = run("id", "-u", self.one("User"), root=self.root).stdout, \
            run("id", "-g", self.one("Group"), root=self.root).stdout
        for key, at in (("State", "/var/lib/"), ("Runtime", "/run/")):
            path = self.path(at + self.one(key + "Directory"))
            os.makedirs(path, exist_ok=True)
            os.chmod(path, int(self.one(key + "DirectoryMode"), 8))
            os.chown(path, int(ids[0]), int(ids[1]))

    def argv(self, line):
        return ["chroot", self.root, "setpriv", "--reuid=" + self.one("User"), "--regid=" + self.one("Group"),
                "--init-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "sh", "-c",
                "umask %s; exec %s" % (self.one("UMask"), line)]

    def start(self, log):
        self.folders()
        env = self.environment()
        for line in self.says.get("ExecStartPre", []):
            done = run(*self.argv(line), env=env)
            ok("%s: %s" % (self.name, line), done.returncode == 0, done.stdout)
        self.process = subprocess.Popen(self.argv(self.one("ExecStart")), env=env, stdout=log, stderr=log)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(float(self.one("TimeoutStopSec")))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "too late"


def enabled(root):
    """The services that start with the machine, in the order that they ask for."""
    names = os.listdir(os.path.join(root, "etc/systemd/system/multi-user.target.wants"))
    units, todo = {}, [n for n in sorted(names) if n.startswith("shunt")]
    while todo:
        name = todo.pop(0)
        units[name] = Unit(root, name)
        todo += units[name].says.get("Wants", []) if name.endswith(".target") else []
    services = [u for u in units.values() if u.name.endswith(".service")]
    order, left = [], services
    while left:
        names = [u.name for u in left]
        free = [u for u in left if not set(u.one("After", "").split()) & set(names)]
        order += free
        left = [u for u in left if u not in free]
        if not free:
            raise RuntimeError("the units wait for each other: %s" % names)
    return order


# ---------------------------------------------------------------- the story

def start_database(root):
    versions = sorted(os.listdir(os.path.join(root, "usr/lib/postgresql")), key=int)
    programs = "/usr/lib/postgresql/%s/bin/" % versions[-1]
    # root's own folder, where postgres may not be, is not its home
    as_user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "sh", "-ec")
    done = run(*as_user, "cd /tmp; %sinitdb -D /tmp/pg -A trust >/dev/null" % programs, root=root)
    server = subprocess.Popen(
        ("chroot", root) + as_user + ("exec %spostgres -D /tmp/pg -k /tmp -h 127.0.0.1 -c fsync=off" % programs,),
        env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = until(lambda: run(*as_user, "createuser -h /tmp shunt && createdb -h /tmp -O shunt shunt",
                             root=root).returncode == 0)
    ok("a database is made", done.returncode == 0 and made, done.stdout)
    return server


def until(what):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.2)
    return False


def serves(root):
    return run("curl", "-fsS", "http://127.0.0.1:8000/v2/health/ready", root=root).returncode == 0 and \
        os.path.exists(root + "/var/lib/shunt/admin.key")


def is_private(path):
    s = os.stat(path)
    return stat.S_IMODE(s.st_mode) == 0o750 and s.st_gid != 0


def install(root, debs):
    # at once, in the order of their names: each is unpacked before any is configured
    return run("dpkg", "-i", *["/tmp/debs/" + os.path.basename(d) for d in debs.values()], root=root)


def installed(root, debs):
    done = install(root, debs)
    ok("they are installed", done.returncode == 0, done.stdout)
    for name in debs:
        said = run("dpkg-query", "-W", "-f=${db:Status-Status}", name, root=root).stdout
        ok("%s is whole" % name, said == "installed", said)
        said = run("dpkg", "--verify", name, root=root).stdout
        ok("%s is as it was packed" % name, said == "", said)


def story(root):
    units = enabled(root)
    names = [u.name for u in units]
    ok("three services are enabled, the scheduler is the first", names[:1] == ["shunt-scheduler.service"] and
       sorted(names[1:]) == ["shunt-api.service", "shunt-executor@0.service"], names)
    ok("none starts without configuration", not any(u.may_start() for u in units))
    ok("/etc/shunt is for its user", is_private(root + "/etc/shunt"))
    with open(root + "/etc/shunt/db.env", "w") as f:
        f.write("SHUNT_DB_URL=postgresql://shunt@127.0.0.1/shunt\n")
    os.chmod(root + "/etc/shunt/db.env", 0o600)
    with open(root + "/etc/shunt/api.env", "a") as f:
        f.write("SHUNT_DRAIN_S=5\n")
    ok("all start with it", all(u.may_start() for u in units))
    database = start_database(root)
    with open(root + "/tmp/log", "w+") as log:
        for u in units:
            u.start(log)
        ok("they serve", until(lambda: serves(root)), open(root + "/tmp/log").read())
        told = run("shunt-demo", "--server", "http://127.0.0.1:8000", "--admin-key", "/var/lib/shunt/admin.key",
                   "--state-dir", "/tmp/demo", *DEMO, root=root)
        ok("the demo tells its story", told.returncode == 0, told.stdout + open(root + "/tmp/log").read()[-3000:])
        page = run("curl", "-fsSL", "http://127.0.0.1:8000/docs", root=root)
        ok("the documentation is served", page.returncode == 0 and "<h1" in page.stdout, page.stdout[-500:])
        for u in reversed(units):
            ended = u.stop()
            ok("%s ends when it is asked to" % u.name, ended == 0, ended)
    database.send_signal(signal.SIGQUIT)
    database.wait()


def removed(r, debs):
    names, root = sorted(debs), r.merged
    done = run("dpkg", "-r", *names, root=root)
    ok("they are removed", done.returncode == 0, done.stdout)
    stays = re.compile(r"etc/(passwd|group|shadow|gshadow)|etc/shunt(/(api|scheduler|executor|db)\.env)?|"
                       r"var/lib/shunt(/.*)?|etc/systemd/system(/multi-user\.target\.wants(/shunt.*)?)?")
    left = ["%s: %s" % c for c in r.changes().items() if not stays.fullmatch(c[0])]
    ok("configuration and data stay, and nothing else", not left, "\n".join(left))
    ok("what somebody wrote is kept", "SHUNT_DRAIN_S=5" in open(root + "/etc/shunt/api.env").read())
    ok("so is what was trained", os.listdir(root + "/var/lib/shunt/jobs"))
    done = install(root, debs)
    ok("they are installed again", done.returncode == 0, done.stdout)
    ok("it is kept still", "SHUNT_DRAIN_S=5" in open(root + "/etc/shunt/api.env").read())
    done = run("dpkg", "-P", *names, root=root)
    ok("they are purged", done.returncode == 0, done.stdout)
    left = ["%s: %s" % c for c in r.changes().items()]
    ok("nothing stays", not left, "\n".join(left))


def inside(work):
    """In namespaces of our own."""
    debs = packed(os.path.join(work, "debs"))
    root = enter(debs, work)
    installed(root.merged, debs)
    story(root.merged)
    removed(root, debs)


def main():
    work = os.environ.get("SHUNT_TEST_INSIDE")
    if work:
        inside(work)
        print("%d checks, %d failed" % (checks, failed))
        sys.exit(1 if failed else 0)
    if os.getuid() != 0:
        skip("only root can make a root of its own")
    if not shutil.which("dh"):
        skip("debhelper is not there to make packages")
    if run("unshare", "-m", "mount", "-t", "tmpfs", "none", "/tmp").returncode:
        skip("mounts of one's own are not allowed here")
    with tempfile.TemporaryDirectory(prefix="shunt-deb.") as work:
        os.chmod(work, 0o755)
        debs = build(os.path.join(work, "debs"))
        ok("CUDA is packed if it was compiled", ("shunt-cuda" in debs) ==
           os.path.exists(os.path.join(BIN, "../lib/shunt-dev-cuda.so")), debs)
        licences(debs)
        if BARE:
            prepare(BARE, debs)
        ended = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                                sys.executable, os.path.abspath(__file__), *sys.argv[1:]],
                               env=dict(os.environ, SHUNT_TEST_INSIDE=work)).returncode
    sys.exit(1 if failed else ended)


if __name__ == "__main__":
    main()
