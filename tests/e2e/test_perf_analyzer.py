#!/usr/bin/env python3
"""perf_analyzer, unmodified, sweeps concurrencies to their end against a whole system.

Without it: a field that this tool reads unchecked (metadata, configuration, statistics around each
measurement) could be missing, and a benchmark that others run as it is would abort half-way.

The tool is SHUNT_PERF_ANALYZER (a command), else `perf_analyzer` on the path, else the package
perf-analyzer, which is made for glibc 2.38 and later; without any of them the story is skipped. The
reports stay in build/perf_analyzer/.
"""
import csv
import os
import shlex
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import ROOT, Story, System, zoo  # noqa: E402

PACKAGE = "perf-analyzer==2.60.0"
OUT = os.path.join(ROOT, "build", "perf_analyzer")


def tool():
    """The command and, without one, why."""
    if os.environ.get("SHUNT_PERF_ANALYZER"):
        return shlex.split(os.environ["SHUNT_PERF_ANALYZER"]), ""
    if shutil.which("perf_analyzer"):
        return ["perf_analyzer"], ""
    at = os.path.join(OUT, "package")
    binary = os.path.join(at, "perf_analyzer", "bin", "perf_analyzer")
    if not os.path.exists(binary):
        p = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-deps",
                            "--disable-pip-version-check", "--only-binary", ":all:", "--target", at,
                            PACKAGE], capture_output=True, text=True)
        if p.returncode:
            return None, "%s cannot be installed: %s" % (PACKAGE, p.stderr.strip().split("\n")[-1])
    os.chmod(binary, 0o755)
    p = subprocess.run([binary, "--version"], capture_output=True, text=True)
    return ([binary], "") if p.returncode == 0 else (None, p.stderr.strip())


COMMAND, WHY_NOT = tool()


@unittest.skipUnless(COMMAND, WHY_NOT)
class PerfAnalyzer(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System()
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("vision")
        cls.s.push(cls.key, "digits", zoo("digits-cnn"), max_batch=8)
        os.makedirs(OUT, exist_ok=True)

    def sweep(self, name, *options, protocol="http"):
        report, log = (os.path.join(OUT, name + ext) for ext in (".csv", ".txt"))
        with open(log, "w") as f:
            rc = subprocess.run(
                [*COMMAND, "-m", "digits", "-u", "127.0.0.1:%d" % (
                    self.s.port + (protocol == "grpc")), "-i", protocol, "-H",
                 "authorization: Bearer " + self.key, "--measurement-mode", "count_windows",
                 "--measurement-request-count", "100", "--stability-percentage", "999", "-f", report,
                 "--verbose-csv", *options],
                stdout=f, stderr=subprocess.STDOUT, timeout=400).returncode
        with open(log) as f:
            text = f.read()
        self.assertEqual(rc, 0, text)
        with open(report) as f:
            rows = {int(r["Concurrency"]): r for r in csv.DictReader(f)}
        for n, r in sorted(rows.items()):
            print("%-8s concurrency %2d: %8.1f inferences/s, p50 %6d us, p99 %6d us, queue %5s us, "
                  "compute %5s us" % (name, n, float(r["Inferences/Second"]), float(r["p50 latency"]),
                                      float(r["p99 latency"]), r["Server Queue"],
                                      r["Server Compute Infer"]))
        return rows, text

    def test_a_sweep_in_binary(self):
        rows, text = self.sweep("binary", "-b", "1", "--concurrency-range", "1:4:1")
        self.assertEqual(sorted(rows), [1, 2, 3, 4])
        for r in rows.values():
            self.assertGreater(float(r["Inferences/Second"]), 0)
            self.assertGreater(float(r["Server Compute Infer"]), 0)  # the statistics were found
        self.assertNotIn("error", text.lower().replace("errors: 0", ""))

    def test_a_search_for_the_most_that_keeps_a_latency(self):
        rows, _ = self.sweep("search", "-b", "8", "--concurrency-range", "1:4", "--binary-search", "-l",
                             "10000")
        self.assertIn(4, rows)

    def test_asynchronous_requests_in_json(self):
        rows, _ = self.sweep("json", "-a", "--concurrency-range", "4:4", "--input-tensor-format",
                             "json", "--output-tensor-format", "json")
        self.assertGreater(float(rows[4]["Inferences/Second"]), 0)

    def test_a_sweep_over_grpc(self):
        rows, text = self.sweep("grpc", "-b", "1", "--concurrency-range", "1:4:1", protocol="grpc")
        self.assertEqual(sorted(rows), [1, 2, 3, 4])
        for r in rows.values():
            self.assertGreater(float(r["Inferences/Second"]), 0)
            self.assertGreater(float(r["Server Compute Infer"]), 0)
        self.assertNotIn("error", text.lower().replace("errors: 0", ""))

    def test_grpc_asynchronously_and_in_a_stream(self):
        for name, options in (("grpc-a", ["-a"]), ("grpc-s", ["--streaming"])):
            rows, _ = self.sweep(name, *options, "-b", "8", "--concurrency-range", "4:4", protocol="grpc")
            self.assertGreater(float(rows[4]["Inferences/Second"]), 0)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
