"""What a process of ours has, from /proc: for stories that look at workers. Root sees all of
it; their own user little more than the status."""
import os
import re
import signal
import time

HARMLESS = re.compile(r"(PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|(LD|OMP|GOMP|CUDA|CUDNN|NVIDIA|NV)_\w+|\w+_OPTIONS)$")


def freeze(pid):
    """SIGSTOP, and waits for each thread's stop: until the first has taken the signal the others go on."""
    os.kill(pid, signal.SIGSTOP)
    for task in os.listdir("/proc/%d/task" % pid):
        while Process(pid, task).status["State"][0] not in "TtZX":
            time.sleep(0.001)


class Process:
    def __init__(self, pid, thread=None):
        self.pid, self.dir = pid, "/proc/%d" % pid + ("/task/%s" % thread if thread else "")
        with open(self.dir + "/status") as f:
            self.status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)

    def environ(self):
        """The names."""
        with open(self.dir + "/environ", "rb") as f:
            return {e.split(b"=")[0].decode() for e in f.read().split(b"\0") if e}

    def harmless(self):
        """Of its environment: the system's, and of tools that test."""
        return {name for name in self.environ() if HARMLESS.match(name)}

    def files(self):
        out = {}
        for fd in os.listdir(self.dir + "/fd"):
            out[int(fd)] = os.readlink("%s/fd/%s" % (self.dir, fd))
        return out

    def shared(self):
        """{name: bytes} of the memory that it shares with others and gets at."""
        out = {}
        with open(self.dir + "/maps") as f:
            for line in f:
                m = re.match(r"(\w+)-(\w+) (...)s .* /memfd:(\S+)", line)
                if m and m[3] != "---":
                    out[m[4]] = out.get(m[4], 0) + int(m[2], 16) - int(m[1], 16)
        return out

    def is_hidden(self):
        """From everybody but root: nobody of its user looks into it."""
        return not os.access(self.dir + "/fd", os.R_OK)

    def faults(self):
        """Why it is no prisoner, as a worker has to be."""
        s, out = self.status, []
        if os.geteuid() == 0 and "0" in s["Uid"].split() + s["Gid"].split():
            out.append("it is root: %s" % s["Uid"])
        if os.geteuid() == 0 and s["Groups"].split():
            out.append("it has groups: %s" % s["Groups"])
        out += ["%s is %s" % (cap, s[cap]) for cap in ("CapInh", "CapPrm", "CapEff", "CapAmb")
                if int(s[cap], 16)]
        if (s["NoNewPrivs"], s["Seccomp"]) != ("1", "2"):
            out.append("NoNewPrivs %s, Seccomp %s" % (s["NoNewPrivs"], s["Seccomp"]))
        if os.geteuid() != 0:
            return out + ([] if self.is_hidden() else ["its user may look into it"])
        for task in os.listdir(self.dir + "/task"):
            with open("%s/task/%s/status" % (self.dir, task)) as f:
                if "Seccomp:\t2" not in f.read():
                    out.append("its thread %s may call everything" % task)
        sockets = sum(name.startswith("socket:") for name in self.files().values())
        if sockets != 1:
            out.append("%d sockets, not the executor's alone" % sockets)
        out += ["%d is %s" % (fd, name) for fd, name in self.files().items()
                if fd > 2 and name.startswith("/") and not re.match("/memfd:shunt-(ctl|payload) ", name)]
        return out
