"""An executor whose workers do not tell the truth: a child of each, between the two, changes what it says.

Usage, as the program `shunt-worker`: liar.py REAL-WORKER LIES; LIES: {message: {field: value}} in JSON, a list
as a value is for a blob of u64.
"""
import contextlib
import json
import os
import select
import shutil
import socket
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import wire  # noqa: E402


def programs(folder, of, lies):
    """In `folder`: the executor of the folder `of`, with workers that tell these lies."""
    home = os.path.join(folder, "bin")
    os.makedirs(home)
    os.chmod(folder, 0o755)
    os.symlink(os.path.join(os.path.dirname(os.path.abspath(of)), "lib"), os.path.join(folder, "lib"))
    shutil.copy(os.path.join(of, "shunt-executor"), home)
    worker = os.path.join(home, "shunt-worker")
    with open(worker, "w") as f:
        f.write("#!/bin/sh\nexec %s %s %s '%s'\n" % (sys.executable, os.path.abspath(__file__), os.path.join(
            os.path.abspath(of), "shunt-worker"), json.dumps(lies)))
    os.chmod(worker, 0o755)
    return home


def forward(m, to, lie):
    fields = {name: getattr(m, name) for _, name in wire.BY_NAME[m.type][1]}
    for name, value in lie.items():
        fields[name] = struct.pack("<%dQ" % len(value), *value) if isinstance(value, list) else value
    to.send(m.type, fds=m.fds, **fields)
    for fd in m.fds:
        os.close(fd)


def main():
    real, lies = sys.argv[1], json.loads(sys.argv[2])
    ours, theirs = socket.socketpair()
    if os.fork():  # the executor's child stays its child
        os.dup2(theirs.fileno(), 3)
        os.execv(real, ["shunt-worker"])
    executor, worker = wire.Conn(socket.socket(fileno=3)), wire.Conn(ours)
    theirs.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            ready = select.select([executor, worker], [], [])[0]
            for here, there, lie in ((executor, worker, {}), (worker, executor, lies)):
                m = here.recv(0) if here in ready else None
                while m:
                    forward(m, there, lie.get(m.type, {}))
                    m = here.recv(0)


if __name__ == "__main__":
    main()
