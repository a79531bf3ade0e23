#!/usr/bin/env python3
"""The Python client as its users have it: the wheel in a clean environment, against a running system.

Without it: the page of python/README.md could show what does not work, a wheel could lack a file that the
checkout has, and what the server answers could drift from what the client expects.

The block about PyTorch needs torch and onnxscript, in the interpreter of SHUNT_TORCH_PYTHON: without it, it
is left out, and that is said.

Usage: test_python.py [-v] [name ...]
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402

from system import DIGITS, ROOT, Story, System, read_st, zoo  # noqa: E402

FOLDER = os.path.join(ROOT, "python")
TORCH = os.environ.get("SHUNT_TORCH_PYTHON")
NUMPY = {"F32": np.float32, "I64": np.int64}

MANY = """
import gc, os, threading
import numpy as np
import shunt

def held():
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096, len(os.listdir("/proc/self/fd"))

client = shunt.Client()
x = np.random.default_rng(1).random((2, 1, 8, 8), np.float32)
want = client.infer("many", {"x": x})["logits"]
fds_of_one = held()[1]
wrong = []

def work(n):
    for _ in range(n):
        got = client.infer("many", {"x": x})["logits"]
        if not np.allclose(got, want, atol=1e-4):
            wrong.append(got)

def round(n):
    threads = [threading.Thread(target=work, args=(n,)) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

round(60)
bytes_before = held()[0]
round(625)
bytes_after, fds = held()
assert not wrong, wrong[0]
print(bytes_after - bytes_before, fds - fds_of_one)
"""


def run(*command, **options):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, **options)
    assert not r.returncode, "%s: %d: %s" % (command[0], r.returncode, r.stdout[-4000:])
    return r.stdout


def blocks():
    """Of the page: (heading, code)."""
    with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as f:
        text = f.read()
    heading, found = "", []
    for part in re.finditer(r"^## ([^\n]*)$|^```python\n(.*?)^```$", text, re.M | re.S):
        if part.group(1):
            heading = part.group(1)
        else:
            found.append((heading, part.group(2)))
    return found


class Python(Story):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="shunt-python-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, True)
        source = os.path.join(cls.dir, "source")
        shutil.copytree(FOLDER, source, ignore=shutil.ignore_patterns("_sync", "build", "*.egg-info"))
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", cls.dir, source)
        wheel, = glob.glob(os.path.join(cls.dir, "shunt-*.whl"))
        clean = os.path.join(cls.dir, "venv")
        run(sys.executable, "-m", "venv", clean)
        cls.python = os.path.join(clean, "bin", "python")
        run(cls.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        cls.s = s = System(CLIENT_SHM="any")
        cls.addClassCleanup(s.stop)
        cls.env = {"PATH": os.environ["PATH"], "SHUNT_SERVER": "http://127.0.0.1:%d" % s.port,
                   "SHUNT_KEY": s.tenant("demo"), "HOME": cls.dir}
        s.push(cls.env["SHUNT_KEY"], "many", zoo("digits-cnn"), max_batch=16)

    def test_a_its_own_tests(self):
        for test in glob.glob(os.path.join(FOLDER, "tests", "test_*.py")):
            run(self.python, test, env={**self.env, "PYTHONDONTWRITEBYTECODE": "1"}, cwd=self.dir)

    def test_b_types(self):
        source = os.path.join(self.dir, "source")
        run(sys.executable, "-m", "mypy", "--python-executable", self.python, "--cache-dir", self.dir + "/mypy",
            cwd=source)

    def test_c_the_page(self):
        at = os.path.join(self.dir, "page")
        os.mkdir(at)
        with open(os.path.join(at, "digits.onnx"), "wb") as f:
            f.write(zoo("digits-cnn", "training"))
        some = read_st(os.path.join(DIGITS, "train.safetensors"))
        np.savez(os.path.join(at, "train.npz"), **{
            k: np.frombuffer(data, NUMPY[kind]).reshape(shape) for k, (kind, shape, data) in some.items()})
        page = [b for b in blocks() if TORCH or b[0] != "PyTorch"]
        self.assertGreaterEqual(len(page), 5)
        with open(os.path.join(at, "page.py"), "w", encoding="utf-8") as f:
            f.write("\n".join(code for _, code in page) + "\nprint('to the end', float(logits.sum()))\n")
        command = [self.python, "page.py"]
        if TORCH:  # behind its own packages: another numpy is none for its torch
            site = run(self.python, "-c", "import httpx, os; print(os.path.dirname(os.path.dirname(httpx.__file__)))")
            command = [TORCH, "-c", "import runpy, sys; sys.path.append(%r); runpy.run_path('page.py', run_name="
                       "'__main__')" % site.strip()]
        else:
            print("skip: the block about PyTorch: SHUNT_TORCH_PYTHON names no python that has torch")
        said = run(*command, env=self.env, cwd=at)
        for want in ("(3, 10) by version 1", "is the loss of version 2", "NOTFOUND there is no model", "to the end"):
            self.assertIn(want, said)

    def test_d_sixteen_threads(self):
        """10,000 requests of one client: nothing that grows with their number."""
        grown, more = map(int, run(self.python, "-c", MANY, env=self.env, cwd=self.dir).split())
        self.assertLess(grown, 8 << 20)
        self.assertLess(more, 16)  # a connection for each thread at most, and it had one


if __name__ == "__main__":
    unittest.main()
