#!/usr/bin/env python3
"""Datasets made of arrays of NumPy, tables and parts: pushed and trained on.

Without it: `shunt push dataset` could take a file and make another dataset of it than the same numbers in
safetensors are, or leave a dataset behind that has no file.

Usage: test_arrays.py [-v] [name ...]
"""
import io
import os
import random
import struct
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, Story, System, st_bytes  # noqa: E402

N, WIDE = 40, 5
SPEC = {"optimizer": {"name": "sgd", "lr": 0.05}, "batch": 8, "epochs": 2, "seed": 3}


def classifier():
    """input [N,5] -> scores [N,2]"""
    rng = random.Random(1)
    return onnx.model(
        [onnx.node("Gemm", ["input", "w", "b"], ["y"])],
        [onnx.value("input", ["N", WIDE])], [onnx.value("y", ["N", 2])],
        [onnx.tensor("w", [WIDE, 2], [rng.uniform(-0.1, 0.1) for _ in range(2 * WIDE)]),
         onnx.tensor("b", [2], [0.0, 0.0])])


def npy(descr, shape, data, fortran=False):
    head = repr({"descr": descr, "fortran_order": fortran, "shape": shape})
    head += " " * (-(11 + len(head)) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + data


def npz(arrays):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in arrays.items():
            z.writestr(name + ".npy", data)
    return out.getvalue()


class Arrays(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System()
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("tables")
        cls.s.push(cls.key, "net", classifier())
        rng = random.Random(5)
        cls.x = [[rng.randrange(-64, 64) / 16 for _ in range(WIDE)] for _ in range(N)]
        cls.y = [int(sum(row) > 0) for row in cls.x]
        cls.s.push_data(cls.key, "plain", cls.part(0, N))
        cls.want = cls.train("plain")

    @classmethod
    def flat(cls, code, first=0, end=N):
        return struct.pack("<%d%s" % ((end - first) * WIDE, code), *(v for r in cls.x[first:end] for v in r))

    @classmethod
    def part(cls, first, end):
        return st_bytes({"input": ("F32", [end - first, WIDE], cls.flat("f", first, end)),
                         "label": ("I64", [end - first], struct.pack("<%dq" % (end - first), *cls.y[first:end]))})

    @classmethod
    def train(cls, dataset):
        r = cls.s.submit(cls.key, model="net", version=1, dataset=dataset, spec=SPEC)
        assert r.status == 201, r
        ended = cls.s.wait_job(cls.key, r.json["id"])
        assert ended["state"] == "SUCCEEDED", ended
        return cls.s.job(cls.key, r.json["id"], "/losses").json["losses"]

    def file(self, name, data):
        path = os.path.join(self.s.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def push(self, name, *args):
        return subprocess.run([os.path.join(BIN, "shunt"), "push", "dataset", name, *args, "--server",
                               "http://127.0.0.1:%d" % self.s.port], text=True, timeout=180,
                              env={**self.s.env, "SHUNT_KEY": self.key},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_each_form_trains_as_the_same_numbers_in_safetensors(self):
        labels = npy("|u1", (N,), bytes(self.y))
        table = "a,b,kind,c,d,e\n" + "".join(
            "%r,%r,%s,%r,%r,%r\n" % (r[0], r[1], "yes" if y else "no", r[2], r[3], r[4])
            for r, y in zip(self.x, self.y))
        for name, args, said in (
                ("packed", [self.file("set.npz", npz({"input": npy("<f8", (N, WIDE), self.flat("d")),
                                                      "label": labels}))], "input is FP32 here: it was FP64"),
                ("arrays", [self.file("input.npy", npy("<f4", (N, WIDE), self.flat("f"))),
                            "label=" + self.file("truth.npy", labels)], "label is INT64 here: it was UINT8"),
                ("table", [self.file("set.csv", table.encode()), "--label", "kind"], 'in column "kind" are 2 classes'),
                ("parts", [self.file("%d.safetensors" % i, self.part(i, min(N, i + 13)))
                           for i in range(0, N, 13)], "")):
            r = self.push(name, *args)
            self.assertEqual(r.returncode, 0, r.stdout)
            self.assertIn(said, r.stdout)
            self.assertEqual(self.train(name), self.want, name)

    def test_what_cannot_be_a_dataset_is_refused_and_leaves_none(self):
        whole = npz({"input": npy("<f4", (N, WIDE), self.flat("f"))})
        for name, args, text in (
                ("ragged", [self.file("ragged.csv", b"a,label\n1,2\n3\n"), "--label", "label"], "line 3"),
                ("unlabelled", [self.file("no.csv", b"a,b\n1,2\n")], "--label is needed"),
                ("gap", [self.file("gap.csv", b"a,label\n1,2\n3,NA\n"), "--label", "label"], '"NA" is no number'),
                ("fortran", [self.file("fortran.npy", npy("<f4", (2, 2), b"\0" * 16, True))], "ascontiguousarray"),
                ("objects", [self.file("objects.npy", npy("|O", (2,), b"\0" * 16))], "no type of a tensor"),
                ("cut", [self.file("cut.npz", whole[:-30])], "damaged zip file"),
                ("mixed", [self.file("one.safetensors", self.part(0, 9)), self.file("x.npy", npy(
                    "<f4", (2, 2), b"\0" * 16))], "x.npy"),
                ("parquet", [self.file("set.parquet", b"PAR1" + b"\0" * 64)], "a Parquet file")):
            r = self.push(name, *args)
            self.assertNotEqual(r.returncode, 0, r.stdout)
            self.assertIn(text, r.stdout)
            self.assertEqual(self.s.call("GET", "/api/v1/datasets/" + name, key=self.key).status, 404)


if __name__ == "__main__":
    unittest.main()
