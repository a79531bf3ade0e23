"""Two builds beside each other on one machine: short turns, in memory, with what each takes of the processors.

A rate alone says little beside other work, and nothing where a disk is shared: a checkpoint or a vacuum
that one side's last turn left behind fell into the other's, and single rates were 0.05 to 26 times the
other's. So the systems' folders, with their databases, are in memory; a side cleans up within its own turn,
autovacuum is off; a turn begins when both are at rest; and the seconds that processors spend on a unit of
work stand beside the rate.

Standard library only.
"""
import os
import shutil
import statistics
import tempfile
import time

TICKS = os.sysconf("SC_CLK_TCK")
REST_S, REST_SHARE = 0.2, 0.1  # it is at rest when it uses less of a core than that for so long


def in_memory():
    """New folders come into memory, if it has room (as tests/tmp.sh)."""
    if shutil.disk_usage("/dev/shm").free > 4 << 30:
        tempfile.tempdir = "/dev/shm"


def cpu_s(system):
    """Seconds of processors that all processes of a system have had, with those that have ended."""
    ticks, children = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry, encoding="utf-8", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry))
        ticks[int(entry)] = sum(map(int, fields[11:15]))
    todo, total = [system.pid("supervisor")], 0
    while todo:
        pid = todo.pop()
        total += ticks.get(pid, 0)
        todo += children.get(pid, [])
    return total / TICKS


def wait_for_rest(systems, limit_s=30):
    end = time.monotonic() + limit_s
    before = sum(map(cpu_s, systems))
    while time.monotonic() < end:
        time.sleep(REST_S)
        now = sum(map(cpu_s, systems))
        if now - before < REST_SHARE * REST_S:
            return
        before = now


class Beside:
    """Ratios of ours to theirs, in pairs of turns that follow each other."""

    def __init__(self):
        self.ratios = {}

    def pair(self, what, ours, theirs, measure, i):
        """ours, theirs: objects with a System `s`. measure(side) does some of the work: (units of it, seconds
        that they took, its result of cpu_s()). Who is first changes with i."""
        got = {}
        for side in (ours, theirs) if i % 2 else (theirs, ours):
            wait_for_rest([ours.s, theirs.s])
            before = cpu_s(side.s)
            units, seconds, after = measure(side)
            got[side] = units / seconds, (after - before) / units
        of = self.ratios.setdefault(what, ([], [], []))
        for into, value in zip(of, (got[ours][0] / got[theirs][0], got[ours][1] / got[theirs][1], 1e6 * got[ours][1])):
            into.append(value)

    def report(self, unit):
        for what, (rates, cpu, us) in self.ratios.items():
            print("%-34s %.3f of the rate %s, %.3f of the processors' time for a %s %s, %.0f us" % (
                what, statistics.median(rates), middle(rates), statistics.median(cpu), unit, middle(cpu),
                statistics.median(us)))


def middle(ratios):
    """Where the middle half of them lies."""
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return "(%.3f to %.3f of %d)" % (low, high, len(ratios))
