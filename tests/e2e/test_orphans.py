#!/usr/bin/env python3
"""Programs that others start for one piece of work, and whose starter dies.

Without it: a daemon that is killed could leave importers and questions behind, which go on for minutes
beside the next one's.
"""
import fcntl
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import BIN, until  # noqa: E402

STARTER = """import subprocess, sys
print(subprocess.Popen(sys.argv[2:], stdout=int(sys.argv[1])).pid, flush=True)
input()"""


def said_of(pid, what):
    try:
        with open("/proc/%d/%s" % (pid, what)) as f:
            return f.read()
    except OSError:
        return ""


def is_there(pid):
    stat = said_of(pid, "stat")
    return bool(stat) and stat.rsplit(")", 1)[1].split()[0] not in "ZX"


class Orphans(unittest.TestCase):
    def left_by_its_starter(self, *argv):
        """Its answer does not get out, since the pipe is full: it is there until somebody ends it."""
        out, into = os.pipe()
        self.addCleanup(os.close, out)
        fcntl.fcntl(into, fcntl.F_SETFL, os.O_NONBLOCK)
        try:
            while os.write(into, bytes(4096)):
                pass
        except BlockingIOError:
            pass
        fcntl.fcntl(into, fcntl.F_SETFL, 0)
        starter = subprocess.Popen([sys.executable, "-c", STARTER, str(into), *argv], pass_fds=[into],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.close(into)
        self.addCleanup(starter.communicate)
        pid = int(starter.stdout.readline())
        until("it waits in write()", lambda: "pipe" in said_of(pid, "wchan"))
        self.assertTrue(is_there(pid))
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        self.addCleanup(lambda: is_there(pid) and os.kill(pid, signal.SIGKILL))
        until("%s is gone with its starter" % argv[0], lambda: not is_there(pid), 10)

    def test_a_question(self):
        self.left_by_its_starter(os.path.join(BIN, "shunt-simulate"), "--in", "/nonexistent")

    def test_an_import(self):
        self.left_by_its_starter(os.path.join(BIN, "shunt-import"), "package", "--onnx", "/nonexistent",
                                 "--dir", "/tmp")


if __name__ == "__main__":
    unittest.main()
