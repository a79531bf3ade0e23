"""../arrivals.c: loads that do not wait for what they measure. Standard library only."""
import collections
import subprocess

from programs import bench_program

PROGRAM = bench_program("arrivals")
NOT_SENT, NO_REPLY = 1, 0

# ms; late: the client itself; took: from when it was due; heard: from when it was sent
One = collections.namedtuple("One", "kind status due late took heard")


def of_kind(how, much, request):
    due = much if how == "listed" else []
    head = "%s %f %d\n" % (how, len(due) if how == "listed" else much, len(request))
    return head.encode() + request + b"".join(b"%d\n" % (at * 1e9) for at in due)


def send(port, seconds, seed, kinds):
    """kinds: (how, much, request) as in arrivals.c; ("listed", seconds when they are due, request). All
    requests, in the order in which they were due."""
    text = b"".join(of_kind(*k) for k in kinds)
    out = subprocess.run([PROGRAM, str(port), str(seconds), str(seed)], input=text, check=True,
                         stdout=subprocess.PIPE).stdout
    rows = (line.split() for line in out.splitlines())
    return [One(int(k), int(status), int(due) / 1e3, (int(sent) - int(due)) / 1e3,
                (int(end) - int(due)) / 1e3, (int(end) - int(sent)) / 1e3)
            for k, status, due, sent, end in rows]


def percentile(values, p):
    """The least that p percent do not exceed; 0 of none."""
    values = sorted(values)
    return values[min(len(values) - 1, max(0, -int(-len(values) * p // 100) - 1))] if values else 0.
