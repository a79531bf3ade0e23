#!/usr/bin/env python3
"""Handwritten digits to 98 % with any optimizer, as somebody would who has only the command line.

Without it: an optimizer could agree with its formula step by step and still not train, because of what is
around it: its defaults, the order of the samples, running statistics, what of all this is published.

Usage: test_digits.py [-v] [name ...]
"""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from system import DIGITS, Story, System, zoo  # noqa: E402

OPTIONS = {"sgd": ("--lr", "0.02", "--momentum", "0.9", "--batch", "16"),
           "adam": ("--lr", "0.002"), "adamw": ("--lr", "0.002")}


class Digits(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2")
        cls.key = cls.s.tenant("lab")
        cls.s.push(cls.key, "digits", zoo("digits-cnn", "training"), max_batch=8)
        for d in ("train", "test"):
            with open(os.path.join(DIGITS, d + ".safetensors"), "rb") as f:
                cls.s.push_data(cls.key, d, f.read())

    @classmethod
    def tearDownClass(cls):
        cls.s.stop()

    def reaches(self, optimizer):
        text = self.s.cli("submit", "--model", "digits", "--dataset", "train", "--eval-dataset", "test",
                          "--optimizer", optimizer, *OPTIONS[optimizer], "--epochs", "20", "-o", "json",
                          env={"SHUNT_KEY": self.key})
        job = self.s.wait_job(self.key, json.loads(text)["id"])
        self.assertEqual(job["state"], "SUCCEEDED", job)
        self.assertGreaterEqual(job["result"]["accuracy"], 0.98, job["result"])

    def test_sgd(self):
        self.reaches("sgd")

    def test_adam(self):
        self.reaches("adam")

    def test_adamw(self):
        self.reaches("adamw")


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
