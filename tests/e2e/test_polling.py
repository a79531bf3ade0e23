#!/usr/bin/env python3
"""Daemons that poll behind a request: how many HTTP threads do, and that they stop.

Without it: polling threads could take all cores of a host, or an API that nobody asks could take one.

Usage: test_polling.py [-v]
"""
import concurrent.futures
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from clients import Client, pack  # noqa: E402
from system import WAIT_S, Story, System, until  # noqa: E402

POLL_S = 3
THREADS = 4
CLIENTS = 24
CORES_EACH = 8  # api/http/http.c
X = {"x": ("FP32", [1, 4], pack("FP32", [1, 2, 3, 4]))}


class Polling(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = s = System("--workers=2", BUSY_POLL_US=str(POLL_S * 1000000), THREADS=str(THREADS))
        cls.addClassCleanup(s.stop)
        cls.key = s.tenant("vision")
        s.push(cls.key, "lin", onnx.linear(), max_batch=4)

    def http_threads(self):
        """{thread: seconds on a core}"""
        at, out = "/proc/%d/task" % self.s.pid("api"), {}
        for tid in os.listdir(at):
            with open("%s/%s/comm" % (at, tid)) as name, open("%s/%s/schedstat" % (at, tid)) as stat:
                if name.read().strip() == "http":
                    out[tid] = int(stat.read().split()[0]) / 1e9
        return out

    def busy(self, seconds):
        """HTTP threads that take a part of a core, of the next so many seconds."""
        before = self.http_threads()
        time.sleep(seconds)
        after = self.http_threads()
        return [t for t in after if after[t] - before[t] > 0.05 * seconds]

    def ask(self, client):
        for _ in range(3):
            self.assertEqual(client.infer("lin", X)["logits"][1], [1, 3])

    def test_a_few_threads_poll_and_only_behind_inference(self):
        clients = [Client(self.s.port, self.key, WAIT_S) for _ in range(CLIENTS)]
        self.addCleanup(lambda: [c.close() for c in clients])
        until("they sleep", lambda: not self.busy(0.5))
        self.assertEqual(len(self.http_threads()), THREADS)

        before = self.http_threads()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for f in [pool.submit(c.conn.connect) for c in clients]:
                f.result(WAIT_S)

            def polling_after_all_asked():
                for f in [pool.submit(self.ask, c) for c in clients]:
                    f.result(WAIT_S)
                return self.busy(POLL_S / 3)
            # On a busy machine it may be over before it is looked at.
            polling = until("somebody polls", polling_after_all_asked)
        served = [t for t, s in self.http_threads().items() if s > before[t]]
        self.assertGreater(len(served), 1, "one thread has all connections: nothing was tried")
        self.assertLessEqual(len(polling), max(len(os.sched_getaffinity(0)) // CORES_EACH, 1))

        # All these connections are open still.
        until("the API sleeps", lambda: not self.busy(0.5), 10 * POLL_S)
        for _ in range(20):
            self.assertEqual(self.s.call("GET", "/v2/health/live").status, 200)
        # Who polls does so all the time; others may be late with what was asked.
        polling = set.intersection(*(set(self.busy(0.5)) for _ in range(3)))
        self.assertEqual(polling, set(), "polls behind what is no inference")
        self.ask(clients[0])


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
