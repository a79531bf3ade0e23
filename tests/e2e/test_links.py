#!/usr/bin/env python3
"""Weights divided over several links to the device: the answers are those of one link, bit for bit, and the weights
are there sooner.

Without it: a run could be told of weights of which one link still carries a part.

Usage: test_links.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_executor import Case  # noqa: E402
from test_packed import picture  # noqa: E402

RATE = 0.1  # GB/s of each link


class Links(Case):
    def cold(self, n, versions=(1, 2), *options):
        """The answer of each version's first run, and the shortest time of their copies, s."""
        d = self.driver("--copy-gb-per-s=%g" % RATE, "--copy-links=%d" % n, *options)
        out, took = [], []
        for v in versions:
            d.load(v, d.package(self.zoo("resnet18", "inference", v))[0], max_batch=1)
            r, data = d.result(d.run(v, [picture()], [4000], 1))
            self.assertEqual((r.rc, r.msg), (0, ""))
            out.append(data[0][0])
            took.append(r.copy_ns / 1e9)
        image = d.states[versions[0]].image_bytes
        d.stop()
        return out, min(took), image

    def test_cold_runs_are_the_same_and_sooner(self):
        one, took, image = self.cold(1)
        self.assertGreaterEqual(took, image / RATE / 1e9)
        self.assertNotEqual(*one)
        for n in (2, 4):
            for _ in range(5):  # others use this machine too
                some, less, _ = self.cold(n)
                self.assertEqual(some, one)
                self.assertGreater(less, image / n / RATE / 1e9)
                if less < 0.75 * took:
                    break
            self.assertLess(less, 0.75 * took)

    def test_packed_images_are_divided_too(self):
        one, _, _ = self.cold(1)
        some, _, _ = self.cold(4, (1, 2), "--pack-images=on")
        self.assertEqual(some, one)


if __name__ == "__main__":
    unittest.main()
