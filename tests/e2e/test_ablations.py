#!/usr/bin/env python3
"""The laboratory's shunt-executor on the cpu device: each way of a switch, beside a training job. And that a
release has none of its options.

Without it: a figure could be taken of a way that computes something else, that leaves the training job
behind, or that is not the way it is called.

Usage: test_ablations.py [-v] [name ...]   (programs from build/lab, or beside SHUNT_BIN; make lab)
"""
import os
import re
import signal
import subprocess
import unittest

from exec_driver import BIN, LAB, WAIT_S
from test_executor import TRAIN, Case, spec

LABEL = 'shunt_%s{executor="e0"%s}'
COPIED = LABEL % ("copied_bytes_total", ',direction="h2d",purpose="weights"')
ONE_RUN = LABEL % ("worker_exits_total", ',cause="one-run"')


class Ablations(Case):
    def begin(self, ablation, *options):
        d = self.driver("--debug-cold", "--workers=2", "--log-level=debug",
                        "--debug-ablation=" + ablation, *options)
        d.load(1, d.package(self.net)[0])
        self.want = self.infer(d, 1, 3, 8)[0]
        d.start_job(1, d.package(self.net_train)[0], TRAIN, spec(epochs=100000))
        self.steps(d, 2)
        return d

    def steps(self, d, n):
        d.wait_job(1, ("RUNNING",))
        d.wait_step(1, d.jobs[1].step + n)
        self.assertIn(d.jobs[1].phase, ("RUNNING", "PREEMPTED"), d.jobs[1])

    def check(self, d, runs=3):
        """Some runs between steps of the job; what the executor copied to the device for the last."""
        for _ in range(runs):
            self.steps(d, 2)
            before = d.metrics().get(COPIED, 0)
            self.assert_close(self.infer(d, 1, 3, 8)[0], self.want)
            after = d.metrics().get(COPIED, 0)
        self.steps(d, 2)
        return after - before

    def events(self, d, name):
        log = open(d.dir + "/executor.log").read()
        return [dict(re.findall(r"(\S+?)=(\S+)", line)) for line in log.splitlines()
                if "ev=%s " % name in line]

    def image(self, d):
        return d.states[1].image_bytes

    def test_none_copies_the_image_for_each_run(self):
        d = self.begin("none")
        self.assertEqual(self.check(d), self.image(d))

    def test_no_daemon_leaves_the_copies_to_the_worker(self):
        d = self.begin("no-daemon", "--debug-switch-mode=per-layer")
        self.assertEqual(self.check(d), 0)
        self.assertGreater(int(self.events(d, "switch.send")[-1]["groups"]), 1)

    def go_through(self, d, n):
        """What the executor copied to the device for a run in each step of a list of n."""
        got = []
        for i in range(n):
            got.append(self.check(d, 2))
            d.proc.send_signal(signal.SIGHUP)
            d.wait(lambda: len(self.events(d, "ablation.step")) == i + 1, WAIT_S, "step")
        return got

    def test_a_list_that_takes_images_as_the_product_does_copies_packed_bytes(self):
        names = ["none", "fixed-2mb", "per-layer", "one-group", "ipc"]
        d = self.begin(",".join(names), "--pack-images=on")
        packed = d.states[1].link_bytes
        self.assertLess(packed, self.image(d))
        self.assertEqual(self.go_through(d, len(names)), [packed] * len(names))

    def test_one_step_that_needs_images_as_they_are_has_the_whole_list_copy_them(self):
        for name in ("no-daemon", "pageable", "one-process", "two-processes", "new-process"):
            d = self.begin("none," + name, "--pack-images=on")
            self.assertEqual(d.states[1].link_bytes, self.image(d))
            self.assertEqual(self.go_through(d, 2), [self.image(d), 0 if name == "no-daemon" else self.image(d)])
            d.stop()

    def test_from_a_packed_copy_on_the_device_no_step_copies(self):
        """Nor is there more than one group, whatever the mode: modes need no measuring there."""
        names = ["none", "per-layer", "ipc"]
        d = self.begin(",".join(names), "--pack-images=on", "--keep-packed-percent=0", "--copy-gb-per-s=0.05")
        self.assertEqual(self.go_through(d, len(names)), [0] * len(names))
        self.assertEqual({e["groups"] for e in self.events(d, "switch.send")[-len(names):]}, {"1"})

    def test_ipc_and_pageable_copy_as_ever(self):
        for name in ("ipc", "pageable"):
            d = self.begin(name)
            self.assertEqual(self.check(d), self.image(d))

    def test_one_process_swaps_the_job_out_and_runs_where_it_trained(self):
        d = self.begin("one-process")
        self.check(d)
        self.assertEqual({e["way"] for e in self.events(d, "train.drained")}, {"swap"})
        self.assertEqual(self.events(d, "switch.send")[-1]["worker"],
                         [e for e in self.events(d, "worker.state") if e["to"] == "cleaning"][-1]
                         ["worker"])

    def test_a_process_for_each_run(self):
        for name in ("two-processes", "new-process"):
            d = self.begin(name)
            before, ready = d.metrics().get(ONE_RUN, 0), len(self.events(d, "worker.ready"))
            self.check(d)
            d.rest(0.3)
            self.assertEqual(d.metrics()[ONE_RUN] - before, 3)
            self.assertGreaterEqual(len(self.events(d, "worker.ready")) - ready, 2)
            # the trainer, and the one that waits
            self.assertEqual(len(d.worker_pids()), 2 if name == "two-processes" else 1)

    def test_a_smaller_batch_is_refused_by_a_process_for_one_run(self):
        d = self.begin("new-process")
        self.check(d)
        r, _ = d.result(d.run(1, [self.digits(0, 3)], [120], 3))
        self.assertIn("no program for a batch of 3", r.msg)
        self.check(d)

    def test_hangup_goes_through_the_list(self):
        names = ["none", "one-group", "ipc", "no-daemon", "pageable", "one-process",
                 "two-processes", "new-process"]
        d = self.begin(",".join(names))
        for i in range(2 * len(names)):
            self.check(d, 2)
            d.proc.send_signal(signal.SIGHUP)
            d.wait(lambda: len(self.events(d, "ablation.step")) == i + 1, WAIT_S, "step")
        want = [n if n != "one-group" else "none" for n in names[1:] + names[:1]]
        self.assertEqual([e["now"] for e in self.events(d, "ablation.step")], 2 * want)

    def refuses(self, programs, options, says, **env):
        r = subprocess.run([os.path.join(programs, "shunt-executor"), "--metrics-addr=", *options],
                           stderr=subprocess.PIPE, text=True, timeout=WAIT_S, env={**os.environ, **env})
        self.assertEqual(r.returncode, 1)
        self.assertIn(says, r.stderr.replace("\\", ""))

    def test_an_unknown_name_is_refused(self):
        for option, says in (("ablation=none,warp", 'debug-ablation "warp" is unknown'),
                             ("stop-way=warp", 'debug-stop-way "warp" is unknown'),
                             ("switch-mode=warp", 'debug-switch-mode "warp" is unknown')):
            self.refuses(LAB, ["--debug-" + option], says)

    def test_a_release_has_no_such_option(self):
        for name in ("ablation=ipc", "cold", "stop-way=drop", "switch-mode=per-layer"):
            self.refuses(BIN, ["--debug-" + name], 'no option "--debug-%s"; it is for measurements' % name)
        self.refuses(BIN, [], "environment SHUNT_DEBUG_COLD: there is no such option; it is for measurements",
                     SHUNT_DEBUG_COLD="true")
        for name in ("shunt-executor", "shunt-worker"):
            with open(os.path.join(BIN, name), "rb") as f:
                program = f.read()
            for word in (b"ablation", b"lab_init", b"two-processes", b"per-layer"):
                self.assertNotIn(word, program, name)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
