#!/usr/bin/env python3
"""shunt-executor alone, with real workers on the cpu device; this file plays scheduler and API.

Without it: a run could answer with another tenant's or another batch's numbers, a preempted or killed
training could end with other parameters than an undisturbed one, a dead worker or a lost scheduler
could take the executor along, and a full disk could end a job.

Usage: test_executor.py [-v] [name ...]   (programs from build/bin, or SHUNT_BIN)
"""
import contextlib
import datetime
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from exec_driver import BIN, FINAL, WAIT_S, Driver, read_st, write_st  # noqa: E402
import wire  # noqa: E402

DIGITS = os.path.join(wire.ROOT, "examples", "digits")
TRAIN, TEST = os.path.join(DIGITS, "train.safetensors"), os.path.join(DIGITS, "test.safetensors")
OPTIONS = ("--threads=1", "--pool-bytes=256M")
CANCELLED, UNAVAILABLE, TIMEOUT = -9, -17, -20
QUOTA, MIB = -8, 1 << 20
NONE, HELD, WAITING = range(3)  # enum msg_pin


def spec(**over):
    s = {"loss": "cross-entropy", "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
         "batch": 32, "epochs": 16, "seed": 1, "labels": "label"}
    s.update(over)
    return s


def floats(b):
    return struct.unpack("<%df" % (len(b) // 4), b)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.onnx = tempfile.mkdtemp(prefix="shunt-onnx-")
        cls.net, cls.net_train = cls.zoo("digits-cnn", "inference"), cls.zoo("digits-cnn", "training")
        x = read_st(TEST)["x"]
        cls.samples, cls.sample_bytes = x[2], len(x[2]) // x[1][0]

    @classmethod
    def tearDownClass(cls):
        subprocess.run(["rm", "-rf", cls.onnx])

    @classmethod
    def zoo(cls, model, form, seed=1):
        out = os.path.join(cls.onnx, "%s-%s-%d.onnx" % (model, form, seed))
        if not os.path.exists(out):
            subprocess.run([os.path.join(BIN, "shunt-zoo"), model, "--form", form, "--seed", str(seed),
                            "--out", out], check=True)
        return out

    def driver(self, *options, **kw):
        d = Driver(*OPTIONS, *options, **kw)
        self.addCleanup(self.finish, d)
        return d.start()

    @contextlib.contextmanager
    def held(self, pids):
        """What they are to do is under way for certain, and does not end before the end of this."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield pids
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def finish(self, d):
        if d.proc.poll() is None:
            self.assertEqual(d.stop(), 0)  # a leak found by a sanitizer shows here
        log = open(os.path.join(d.dir, "executor.log")).read()
        d.close()
        bugs = [x for x in log.splitlines() if ".bug" in x or "AddressSanitizer" in x
                or "runtime error" in x]
        self.assertEqual(bugs, [])
        if any(e for _, e in getattr(self._outcome, "errors", []) or []):
            sys.stderr.write(log[-4000:])

    def digits(self, at, n):
        return self.samples[at * self.sample_bytes:(at + n) * self.sample_bytes]

    def infer(self, d, version, at=0, n=1, **kw):
        r, out = d.result(d.run(version, [self.digits(at, n)], [40 * n], n, **kw))
        self.assertEqual((r.rc, r.msg), (0, ""))
        return [floats(o[0]) for o in out]

    def assert_close(self, a, b):
        for x, y in zip(a, b):
            self.assertAlmostEqual(x, y, delta=1e-4 * (1 + abs(y)))


class Runs(Case):
    def test_a_batch_gives_each_request_its_own_answer(self):
        d = self.driver()
        d.load(1, d.package(self.net)[0])
        one = [self.infer(d, 1, i)[0] for i in range(6)]
        for n in (2, 3, 5, 6):
            got = self.infer(d, 1, 0, n)[0]
            for i in range(n):
                self.assert_close(got[10 * i:10 * i + 10], one[i])
        r, out = d.result(d.run(1, [self.digits(0, 2)], [80], 2, parts=3))
        self.assertEqual((r.rc, r.run_batch), (0, 6))
        for part in out:
            self.assert_close(floats(part[0]), one[0] + one[1])

    def test_an_api_on_another_host_gets_its_answers_over_tcp(self):
        d = self.driver(tcp=True)
        d.load(1, d.package(self.net)[0])
        self.assert_close(self.infer(d, 1, 0, 3)[0][:10], self.infer(d, 1, 0)[0])

    def leave(self, d):
        """The API's end, as the executor sees it."""
        def noticed():
            with open(os.path.join(d.dir, "executor.log")) as log:
                return log.read().count("ev=api.down")
        before = noticed()
        d.data.sock.close()
        d.data = None
        d.wait(lambda: noticed() > before, 60, "end of the API's connection")

    def test_a_run_waits_for_an_api_that_is_about_to_connect(self):
        """After a start the scheduler's first run may overtake it."""
        d = self.driver()
        d.load(1, d.package(self.net)[0])
        self.leave(d)
        run = d.run(1, [self.digits(0, 1)], [40], 1)
        d.rest(0.1)
        d.connect_data()
        self.assertEqual(d.result(run)[0].rc, 0)
        self.leave(d)
        lost = d.run(1, [self.digits(0, 1)], [40], 1)
        d.wait(lambda: lost[0] in d.done, 60, "end of a run whose API does not come")

    def test_an_api_that_comes_back_without_its_inputs_gets_no_answer_made_of_nothing(self):
        """Another host's: what it had sent went with its connection, and it sends nothing again."""
        d = self.driver(tcp=True)
        d.load(1, d.package(self.net)[0])
        good = self.infer(d, 1)[0]
        key = 'shunt_workers{executor="e0",state="active"}'
        with self.held(d.worker_pids()) as workers:
            run = d.run(1, [self.digits(0, 1)], [40], 1)
            d.wait(lambda: d.metrics()[key] == 1, WAIT_S, "an active worker")
            self.leave(d)
            d.connect_data()
            os.kill(workers[0], signal.SIGKILL)  # another one begins again, with what is there now
        r, out = d.result(run)
        if r.rc == 0:
            self.assert_close(floats(out[0][0]), good)
        else:
            self.assertEqual(r.rc, UNAVAILABLE)

    def test_no_run_is_on_the_device_for_longer_than_apis_are_told(self):
        """They give the memory that it writes to away behind that time."""
        d = self.driver("--run-ms=1500")
        self.assertEqual(d.run_ms, 1500)
        d.load(1, d.package(self.net)[0])
        with self.held(d.worker_pids()):
            r, _ = d.result(d.run(1, [self.digits(0, 1)], [40], 1))
        self.assertEqual(r.rc, TIMEOUT)
        self.assertIn("longer than 1500 ms", r.msg)
        self.infer(d, 1)

    def test_a_cancelled_part_that_waits_is_answered_at_once(self):
        d = self.driver("--copy-gb-per-s=0.05", "--pool-bytes=192M")
        d.load(1, d.package(self.net)[0])
        d.load(2, d.package(self.zoo("resnet18", "inference"))[0], max_batch=1)
        with self.held(d.worker_pids()):
            first = d.run(2, [bytes(602112)], [4000], 1)
            run = d.run(1, [self.digits(0, 1)], [40], 1, parts=2)
            alone = d.run(1, [self.digits(0, 1)], [40], 1)
            (gone, _), (rid, spans) = run[1]
            d.scheduler.send("RUN_CANCEL", run_id=run[0], api_id=77, rid=gone)
            d.scheduler.send("RUN_CANCEL", run_id=run[0], api_id=78, rid=rid)  # another API's of that number
            d.scheduler.send("RUN_CANCEL", run_id=alone[0], api_id=77, rid=alone[1][0][0])
            d.wait(lambda: gone in d.results and alone[1][0][0] in d.results, WAIT_S, "answer")
            self.assertEqual((d.results[gone].rc, d.results[alone[1][0][0]].rc), (CANCELLED, CANCELLED))
            self.assertNotIn(first[0], d.done)
        d.wait(lambda: alone[0] in d.done and rid in d.results, WAIT_S, "result")
        self.assertEqual((d.results[rid].rc, d.results[rid].run_batch), (0, 1))
        d.result(first)

    def test_a_run_that_nobody_waits_for_any_more_ends_at_its_next_operation(self):
        d = self.driver()
        d.load(1, d.package(self.net)[0])
        key = 'shunt_workers{executor="e0",state="active"}'
        with self.held(d.worker_pids()):
            run = d.run(1, [self.digits(0, 1)], [40], 1, parts=2)
            d.wait(lambda: d.metrics()[key] == 1, WAIT_S, "an active worker")
            for rid, _ in run[1]:
                d.scheduler.send("RUN_CANCEL", run_id=run[0], api_id=77, rid=rid)
            d.rest(0.3)
            self.assertNotIn(run[0], d.done)  # its memory is in use until the worker says so
        d.result(run)
        self.assertEqual({d.results[rid].rc for rid, _ in run[1]} | {d.done[run[0]].rc}, {CANCELLED})
        self.infer(d, 1)
        with self.held(d.worker_pids()):
            run = d.run(1, [self.digits(0, 1)], [40], 1, parts=2)
            d.wait(lambda: d.metrics()[key] == 1, WAIT_S, "an active worker")
            d.scheduler.send("RUN_CANCEL", run_id=run[0], api_id=77, rid=run[1][0][0])
            d.rest(0.3)
        self.assertEqual(d.result(run)[0].rc, 0)  # the other part is wanted
        d.rest(0.1)
        self.assertNotIn("run.failed", open(os.path.join(d.dir, "executor.log")).read())

    def test_loading_a_model_leaves_the_weights_of_others_alone(self):
        d = self.driver("--pool-bytes=120M")
        d.load(1, d.package(self.net)[0])
        want = self.infer(d, 1, 0, 3)[0]
        # Its layers are timed by a worker that maps the arena, where the weights of 1 lie.
        d.load(2, d.package(self.zoo("resnet18", "inference"))[0], max_batch=1)
        self.assertEqual(self.infer(d, 1, 0, 3)[0], want)
        r, _ = d.result(d.run(2, [bytes(602112)], [4000], 1))
        self.assertEqual((r.rc, r.msg), (0, ""))
        self.assertEqual(self.infer(d, 1, 0, 3)[0], want)

    def test_models_that_do_not_fit_together_are_evicted_and_come_back(self):
        d = self.driver("--pool-bytes=120M")
        want = {}
        for v in (1, 2, 3):  # 45 MB of weights each
            onnx = self.zoo("resnet18", "inference", v)
            pk, meta = d.package(onnx)
            d.load(v, pk, max_batch=1, tenant="t%d" % v, model="m%d" % v)
        rnd = random.Random(3)
        x = struct.pack("<150528f", *(rnd.uniform(-1, 1) for _ in range(150528)))
        for v in (1, 2, 3, 1, 3, 2, 2, 1, 3):
            r, out = d.result(d.run(v, [x], [4000], 1, tenant="t%d" % v))
            self.assertEqual(r.rc, 0)
            y = floats(out[0][0])
            self.assertTrue(max(y) != min(y))
            self.assertEqual(want.setdefault(v, y), y)  # bit for bit, wherever the image lay
        self.assertEqual(len(set(want.values())), 3)
        m = d.metrics()
        self.assertGreater(m['shunt_evicted_bytes_total{executor="e0",rule="image"}'], 0)
        # Of each tenant: how often it faulted, and what it worked with, which is more than there is.
        self.assertGreater(sum(m.get('shunt_residency_total{executor="e0",tenant="t%d",result="partial"}' % v, 0)
                               for v in (1, 2, 3)), 0)
        for v in (1, 2, 3):
            self.assertGreater(m['shunt_residency_total{executor="e0",tenant="t%d",result="none"}' % v], 0)
        used = 'shunt_working_set_bytes{executor="e0",tenant="t%d"}'
        d.wait(lambda: all(d.metrics()[used % v] == d.states[v].image_bytes for v in (1, 2, 3)), WAIT_S, "all count")
        d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=2)
        d.wait(lambda: used % 2 not in d.metrics(), WAIT_S, "its series are gone")
        self.assertIn(used % 1, d.metrics())

    def test_a_pinned_image_stays_and_gives_way_only_to_what_fits_nowhere_else(self):
        d = self.driver("--pool-bytes=256M")  # how large an image is depends on the processor
        d.load(1, d.package(self.zoo("resnet18", "inference", 1))[0], max_batch=1)
        d = self.driver("--pool-bytes=%d" % (2 * d.states[1].image_bytes + (24 << 20)))
        for v in (1, 2, 3):
            d.load(v, d.package(self.zoo("resnet18", "inference", v))[0], max_batch=1)
        x = bytes(602112)

        def place(v, test):
            d.wait(lambda: v in d.places and test(d.places[v]), WAIT_S, "place of %d" % v)
        d.scheduler.send("MODEL_PIN", epoch=d.epoch, version_id=1, pinned=1)
        image = d.states[1].image_bytes
        place(1, lambda p: (p.pin, p.device_bytes) == (HELD, image))
        self.assertEqual(d.places[1].idle_ns, -1)
        self.assertGreater(d.places[1].host_bytes, image)  # and what the workers have compiled
        for v in (2, 3, 2, 3):
            self.assertEqual(d.result(d.run(v, [x], [4000], 1))[0].rc, 0)
        place(2, lambda p: p.idle_ns >= 0)
        self.assertEqual(d.metrics()['shunt_pinned_bytes{executor="e0",state="held"}'], image)
        r, _ = d.result(d.run(1, [x], [4000], 1))
        self.assertEqual(d.metrics()['shunt_residency_total{executor="e0",tenant="t",result="full"}'], 1)
        big = d.package(self.zoo("resnet18", "inference", 4))[0]
        d.load(4, big, max_batch=8)  # its workspace leaves no room for the pinned one
        self.assertEqual(d.result(d.run(4, [x * 8], [32000], 8))[0].rc, 0)
        with open(os.path.join(d.dir, "executor.log")) as log:
            self.assertIn("ev=model.unpinned", log.read())
        place(1, lambda p: (p.pin, p.device_bytes) == (HELD, image))  # it comes back by itself
        d.scheduler.send("MODEL_PIN", epoch=d.epoch, version_id=1, pinned=0)
        place(1, lambda p: p.pin == NONE)
        for v in (2, 3, 2, 3):
            self.assertEqual(d.result(d.run(v, [x], [4000], 1))[0].rc, 0)
        place(1, lambda p: p.device_bytes < image)

    def test_copies_and_layers_overlap(self):
        opts = ("--copy-gb-per-s=0.25", "--pool-bytes=192M")
        took = {}
        for mode in ("optimum", "one-group") * 5:
            if mode == "optimum" and len(took) == 2 and took["optimum"][0] < took["one-group"][0]:
                break  # else others used this machine more in one of the two
            d = self.driver(*opts, "--debug-switch-mode=" + mode)
            pk, _ = d.package(self.zoo("resnet18", "inference"))
            x = bytes(4 * 602112)
            for version in (1, 2, 3):  # the best of three: others use this machine too
                d.load(version, pk, max_batch=4)
                cold, _ = d.result(d.run(version, [x], [16000], 4))
                warm, _ = d.result(d.run(version, [x], [16000], 4))
                self.assertEqual((cold.rc, warm.rc, warm.copy_ns), (0, 0, 0))
                took[mode] = min(took.get(mode, (9e99,)), (cold.total_ns, warm.total_ns, cold.copy_ns))
                d.scheduler.send("MODEL_UNLOAD", epoch=1, version_id=version)
                d.wait(lambda: d.states[version].phase == "GONE", WAIT_S, "GONE")
            d.stop()
        cold, warm, copy = took["optimum"]
        if os.getloadavg()[0] < 2:  # a figure only on a machine that is ours
            self.assertLess(cold, 1.15 * max(copy, warm) + 10e6)
        self.assertLess(cold, took["one-group"][0])

    def test_prepare_copies_before_the_run_comes(self):
        d = self.driver("--copy-gb-per-s=0.5", "--pool-bytes=192M")
        d.load(1, d.package(self.zoo("resnet18", "inference"))[0], max_batch=1)
        d.scheduler.send("PREPARE", epoch=1, rid=5, version_id=1, evict=0)
        key = 'shunt_copied_bytes_total{executor="e0",direction="h2d",purpose="weights"}'
        d.wait(lambda: d.metrics().get(key, 0) >= d.states[1].image_bytes, WAIT_S, "the copy")
        d.rest(0.3)
        r, _ = d.result(d.run(1, [bytes(602112)], [4000], 1))
        self.assertEqual((r.rc, r.copy_ns), (0, 0))

    def test_what_cannot_run_is_refused_with_a_reason(self):
        d = self.driver()
        d.load(1, d.package(self.net)[0], max_batch=4)
        for kw, rc, text in ((dict(version=9), -4, "not loaded"), (dict(batch=8), -1, "batch of 8")):
            batch = kw.get("batch", 1)
            r, _ = d.result(d.run(kw.get("version", 1), [self.digits(0, batch)], [40 * batch], batch))
            self.assertEqual(r.rc, rc)
            self.assertIn(text, r.msg)
        r, _ = d.result(d.run(1, [self.digits(0, 1)[:-4]], [40], 1))
        self.assertEqual(r.rc, -1)
        self.assertIn("bytes", r.msg)
        d.scheduler.send("MODEL_LOAD", epoch=1, version_id=7, tenant="t", model="x",
                         package="packages/none", max_batch=4, precision="fp32", wanted=0.0, source="")
        d.wait(lambda: 7 in d.states and d.states[7].phase == "FAILED", WAIT_S, "FAILED")
        d.epoch = 5
        self.infer(d, 1)
        d.epoch = 4  # a leader of the past: the one of now may take it, so it may be tried again
        r, _ = d.result(d.run(1, [self.digits(0, 1)], [40], 1))
        self.assertEqual(r.rc, -17)

    def test_a_model_that_can_never_fit_fails_with_the_sizes(self):
        d = self.driver("--pool-bytes=32M")
        pk, _ = d.package(self.zoo("resnet18", "inference"))
        d.load(1, pk, max_batch=1, wait=False)
        d.wait(lambda: 1 in d.states and d.states[1].phase == "FAILED", WAIT_S, "FAILED")
        self.assertEqual(d.states[1].rc, -6, d.states[1].msg)
        self.assertIn("MiB", d.states[1].msg)

    def test_a_run_whose_worker_dies_is_done_by_another_one(self):
        d = self.driver("--copy-gb-per-s=0.05", "--pool-bytes=192M")
        d.load(1, d.package(self.zoo("resnet18", "inference"))[0], max_batch=1)
        key = 'shunt_workers{executor="e0",state="active"}'
        with self.held(d.worker_pids()) as workers:
            run = d.run(1, [bytes(602112)], [4000], 1)
            d.wait(lambda: d.metrics()[key] == 1, WAIT_S, "an active worker")
            os.kill(workers[0], signal.SIGKILL)  # the first in the pool is chosen first
        r, _ = d.result(run)
        self.assertEqual(r.rc, 0)
        self.assertIn("run.failover", open(d.dir + "/executor.log").read())
        d.wait(lambda: d.metrics()['shunt_workers{executor="e0",state="standby"}'] == 3, WAIT_S,
               "a new worker")

    def test_a_version_that_no_worker_has_is_not_said_to_be_ready(self):
        d = self.driver()
        d.load(1, d.package(self.net)[0])
        good = self.infer(d, 1)[0]
        d.states.pop(1)
        for pid in d.worker_pids():
            os.kill(pid, signal.SIGKILL)
        d.wait(lambda: 1 in d.states, WAIT_S, "what has become of it")
        self.assertEqual(d.states[1].phase, "LOADING")
        d.wait(lambda: d.states[1].phase == "READY", WAIT_S, "a worker that has it again")
        self.assert_close(self.infer(d, 1)[0], good)

    def test_a_worker_that_hangs_is_killed_and_its_run_done_again(self):
        d = self.driver("--copy-gb-per-s=0.05", "--pool-bytes=192M", "--hang-ms=1000")
        d.load(1, d.package(self.zoo("resnet18", "inference"))[0], max_batch=1)
        with self.held(d.worker_pids()[:1]):
            run = d.run(1, [bytes(602112)], [4000], 1)
            self.assertEqual(d.result(run)[0].rc, 0)
        self.assertGreaterEqual(d.metrics()['shunt_worker_exits_total{executor="e0",cause="hang"}'], 1)

    def test_a_run_that_waits_too_long_gets_a_timeout(self):
        d = self.driver("--copy-gb-per-s=0.05", "--pool-bytes=192M")
        d.load(1, d.package(self.zoo("resnet18", "inference"))[0], max_batch=1)
        d.load(2, d.package(self.net)[0])
        slow = d.run(1, [bytes(602112)], [4000], 1)
        r, _ = d.result(d.run(2, [self.digits(0, 1)], [40], 1, budget_s=0.1))
        self.assertEqual(r.rc, -20)
        self.assertEqual(d.result(slow)[0].rc, 0)

    def test_unloading_waits_for_what_runs(self):
        d = self.driver()
        pk, _ = d.package(self.net)
        d.load(1, pk)
        run = d.run(1, [self.digits(0, 1)], [40], 1)
        d.scheduler.send("MODEL_UNLOAD", epoch=1, version_id=1)
        self.assertEqual(d.result(run)[0].rc, 0)
        d.wait(lambda: d.states[1].phase == "GONE", WAIT_S, "GONE")
        self.assertEqual(d.result(d.run(1, [self.digits(0, 1)], [40], 1))[0].rc, -4)
        d.load(1, pk)
        self.infer(d, 1)

    def test_what_was_used_is_said_until_it_is_stored_by_whoever_comes_after_a_kill(self):
        d = self.driver()
        d.stores = False
        pk = d.package(self.net)[0]
        d.load(1, pk)
        for n in (1, 2, 3):
            self.infer(d, 1, 0, n)
        d.wait(lambda: d.used, WAIT_S, "USAGE")
        self.infer(d, 1)
        self.assertNotEqual(d.result(d.run(9, [b""], [40], 1))[0].rc, 0)  # no such version here
        first = dict(d.used)
        d.proc.kill()
        d.proc.wait()
        self.assertEqual(list(d.used), list(first))
        d.scheduler, d.data, d.states, d.stores = None, None, {}, True
        d.start()
        d.wait(lambda: d.usage("t", 0, 1)[1] == 4, WAIT_S, "the rest")
        self.assertEqual({k: d.used[k] for k in first}, first)
        self.assertEqual(d.usage("t", 0, 1)[2], 1 + 2 + 3 + 1)
        self.assertGreater(d.usage("t", 0, 1)[0], 0)
        self.assertEqual(len({source for source, _ in d.used}), 1)
        self.assertEqual(d.usage("t", 0, 9), (0, 0, 0, 0))
        d.wait(lambda: d.metrics()['shunt_usage_unwritten_rows{executor="e0"}'] == 0, WAIT_S, "end of it")
        d.load(1, pk)
        self.infer(d, 1)
        self.assertEqual(d.stop(), 0)  # what is left goes before it does
        self.assertEqual(d.usage("t", 0, 1)[1], 5)
        self.assertEqual(os.listdir(os.path.join(d.dir, "usage")), [])

    def test_a_run_of_several_tenants_is_charged_to_each_by_its_samples(self):
        d = self.driver()
        d.load(1, d.package(self.net)[0])
        run = d.run(1, [self.digits(0, 2)], [80], 2, parts=3, tenants={1: "u"})
        self.assertEqual(d.result(run)[0].rc, 0)
        done = d.done[run[0]]
        self.assertEqual(d.stop(), 0)  # what was used goes before it does
        t, u = d.usage("t", 0, 1), d.usage("u", 0, 1)
        self.assertEqual((t[1:3], u[1:3]), ((2, 4), (1, 2)))
        self.assertEqual(t[0] + u[0], max(done.compute_ns, done.copy_ns))
        self.assertAlmostEqual(t[0], 2 * u[0], delta=3)

    def anonymous(self, d):
        """KiB of memory of their own, of the executor and each worker."""
        out = []
        for pid in (d.proc.pid, *sorted(d.worker_pids())):
            with open("/proc/%d/status" % pid) as f:
                out += [int(x.split()[1]) for x in f if x.startswith("RssAnon")]
        return out

    def chain(self, n):
        nodes = [onnx.node("Relu" if i % 2 else "Neg", ["x" if i == 0 else "a%d" % i],
                           ["y" if i == n - 1 else "a%d" % (i + 1)]) for i in range(n)]
        path = os.path.join(self.onnx, "chain.onnx")
        with open(path, "wb") as f:
            f.write(onnx.model(nodes, [onnx.value("x", ["N", 4])], [onnx.value("y", ["N", 4])]))
        return path

    def test_unloading_gives_all_its_host_memory_back(self):
        """A small file of many nodes: what it is compiled to is a thousand times as large."""
        d = self.driver()
        package = d.package(self.chain(4000))[0]
        d.load(1, package, max_batch=1)  # what each worker takes once
        d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=1)
        d.wait(lambda: d.states[1].phase == "GONE", WAIT_S, "GONE")
        d.rest(0.5)
        before = self.anonymous(d)
        for version in (2, 3):
            d.load(version, package, max_batch=8)
        loaded = self.anonymous(d)
        self.assertTrue(all(b - a > 8192 for a, b in zip(before[1:], loaded[1:])), (before, loaded))
        # Four programs of 4000 operations, twice; it was 170 MiB.
        self.assertTrue(all(b - a < 130 * 1024 for a, b in zip(before[1:], loaded[1:])), (before, loaded))
        for version in (2, 3):
            d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=version)
        end = time.monotonic() + WAIT_S
        while any(b - a > 4096 for a, b in zip(before, self.anonymous(d))):
            self.assertLess(time.monotonic(), end, (before, loaded, self.anonymous(d)))
            d.rest(0.1)

    def refused(self, d, version, package, tenant="t", max_batch=8):
        d.load(version, package, max_batch=max_batch, tenant=tenant, wait=False)
        d.wait(lambda: version in d.states and d.states[version].phase in ("READY", "FAILED"), WAIT_S, "end")
        m = d.states[version]
        self.assertEqual((m.phase, m.rc), ("FAILED", QUOTA), m)
        return m.msg

    def unload(self, d, version):
        d.scheduler.send("MODEL_UNLOAD", epoch=d.epoch, version_id=version)
        d.wait(lambda: d.states[version].phase == "GONE", WAIT_S, "GONE")

    def wide(self, d):
        """A package of 8 MiB."""
        path = os.path.join(self.onnx, "wide.onnx")
        with open(path, "wb") as f:
            f.write(onnx.linear(1024, 2048))
        return d.package(path)[0]

    def test_models_take_no_more_host_memory_than_they_may(self):
        d = self.driver("--model-host-bytes=48M")
        wide = self.wide(d)

        def used(kind):
            return d.metrics()['shunt_model_host_bytes{executor="e0",kind="%s"}' % kind]
        for version in (1, 2):
            d.load(version, wide, max_batch=1, tenant="a")
        # Images: a tenant has half of it, though nobody else has any.
        self.assertRegex(self.refused(d, 3, wide, "a", 1),
                         r"needs \d+ MiB .*; models of a tenant may take 24 MiB .* \d are left")
        for version in (4, 5):
            d.load(version, wide, max_batch=1, tenant="b")
        d.load(9, wide, max_batch=1, tenant="c")
        self.assertRegex(self.refused(d, 6, wide, "c", 1), r"all models may take 48 MiB")
        d.wait(lambda: used("images") >= 5 * 8 * MIB, WAIT_S, "metric")
        self.assertEqual(used("limit"), 48 * MIB)
        # Unloading makes room; one that has failed holds none.
        for version in (1, 3):
            self.unload(d, version)
        d.states.pop(3)
        d.load(3, wide, max_batch=1, tenant="a")
        for version in (2, 3, 4, 5, 6, 9):
            self.unload(d, version)
        # Programs: many nodes of no weight at all.
        chain = d.package(self.chain(4000))[0]
        before = self.anonymous(d)
        self.assertRegex(self.refused(d, 7, chain), r"needs \d+ MiB of host memory or more; models of a tenant")
        self.unload(d, 7)
        end = time.monotonic() + WAIT_S
        while any(b - a > 8192 for a, b in zip(before, self.anonymous(d))):
            self.assertLess(time.monotonic(), end, (before, self.anonymous(d)))
            d.rest(0.1)
        pk = d.package(self.net)[0]
        d.load(8, pk)
        self.infer(d, 8)
        d.wait(lambda: 8 in d.places and d.places[8].host_bytes > d.states[8].image_bytes, WAIT_S, "it is told with programs")

    def test_a_tenant_takes_no_more_host_memory_than_its_quota_says(self):
        d = self.driver("--model-host-bytes=64M")
        wide = self.wide(d)

        def quota(tenant, size):
            d.scheduler.send("TENANT_MEMORY", epoch=d.epoch, tenant=tenant, min_bytes=0, max_bytes=0, share=1.0,
                             host_max_bytes=size)
        quota("a", 12 * MIB)
        quota("b", 48 * MIB)
        d.load(1, wide, max_batch=1, tenant="a")
        self.assertRegex(self.refused(d, 2, wide, "a", 1),
                         r"models of a tenant may take 12 MiB \(host_memory_max_bytes of its quota\), \d are left")
        self.assertGreater(d.states[2].short_bytes, 0)
        self.assertEqual(d.states[2].short_of_tenant, 1)
        for version in range(3, 8):  # more than half
            d.load(version, wide, max_batch=1, tenant="b")
        # Asked again it tries again.
        quota("a", 20 * MIB)
        d.states.pop(2)
        d.load(2, wide, max_batch=1, tenant="a")
        quota("b", 0)  # none of its own: half
        self.assertRegex(self.refused(d, 8, wide, "b", 1), r"may take 32 MiB \(model-host-bytes\)")

    def kept(self, d):
        """The files of whole images, by the digests of their packages."""
        folder = os.path.join(d.dir, "kept")
        return {n[:64]: os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".kept")}

    def load_wide(self, d, version):
        """8 MiB, two pieces of a kept file; the outputs tell which version has run."""
        path = os.path.join(self.onnx, "wide%d.onnx" % version)
        with open(path, "wb") as f:
            f.write(onnx.linear(1024, 2048, 0.01 * version))
        to = os.path.join(d.dir, "blobs", "packages", "%064x" % version)
        os.rename(d.package(path)[0], to)
        d.load(version, to, max_batch=1)
        d.wait(lambda: "%064x" % version in self.kept(d), WAIT_S, "a file of it")

    def run_wide(self, d, version):
        r, out = d.result(d.run(version, [struct.pack("<1024f", *([1.0] * 1024))], [4 * 2048], 1))
        return r, floats(out[0][0]) if r.rc == 0 else None

    def test_images_leave_host_memory_for_disk_and_come_back(self):
        d = self.driver("--model-host-bytes=%d" % (41 * MIB), "--pool-bytes=12M", "--workers=2")

        def metric(name, label):
            return d.metrics().get('shunt_%s{executor="e0",%s}' % (name, label), 0)
        versions = range(1, 5)
        for v in versions:  # 32 MiB in all; a tenant may have 20
            self.load_wide(d, v)
        first = {v: self.run_wide(d, v)[1] for v in versions}
        self.assertEqual(len({max(x) for x in first.values()}), len(versions))
        for v in (2, 4, 1, 3, 3, 2, 1, 4):
            r, out = self.run_wide(d, v)
            self.assertEqual((r.rc, r.msg), (0, ""))
            self.assertEqual(out, first[v])
        d.rest(1.5)  # metrics and places are told once a second
        self.assertTrue(all(d.states[v].phase == "READY" for v in versions))
        self.assertLessEqual(metric("image_bytes", 'tier="host"'), 20 * MIB)
        self.assertEqual(metric("image_bytes", 'tier="host"') // MIB + metric("image_bytes", 'tier="disk"') // MIB, 32)
        self.assertGreaterEqual(metric("evicted_bytes_total", 'rule="hostmemory"'), 16 * MIB)
        self.assertGreaterEqual(metric("image_read_bytes_total", 'from="disk"'), 16 * MIB)
        self.assertEqual(sorted(d.places[v].disk_bytes // MIB for v in versions), [0, 0, 8, 8])
        # What was used last stays, and what is pinned.
        self.assertEqual({v for v in versions if d.places[v].disk_bytes == 0}, {1, 4})
        d.scheduler.send("MODEL_PIN", epoch=d.epoch, version_id=1, pinned=1)
        for v in (2, 3, 2, 3):
            self.run_wide(d, v)
        self.assertEqual(d.places[1].disk_bytes, 0)

    def test_preparing_takes_no_more_host_memory_than_there_is(self):
        """A run may, as it was let in; what is asked for in advance, also for who was refused, may not."""
        d = self.driver("--model-host-bytes=%d" % (24 * MIB), "--pool-bytes=12M", "--workers=2")

        def in_memory():
            return d.metrics()['shunt_image_bytes{executor="e0",tier="host"}'] // MIB
        for v in (1, 2):  # a tenant may have one of them
            self.load_wide(d, v)
        first = self.run_wide(d, 2)[1]
        self.run_wide(d, 1)
        d.wait(lambda: 2 in d.places and d.places[2].disk_bytes > 0, WAIT_S, "it is on disk")
        d.scheduler.send("MODEL_PIN", epoch=d.epoch, version_id=1, pinned=1)
        d.scheduler.send("PREPARE", epoch=d.epoch, rid=99, version_id=2, evict=1)
        d.rest(2.5)  # metrics are told once a second
        self.assertEqual(in_memory(), 8)
        self.assertEqual(self.run_wide(d, 2)[1], first)

    def test_training_keeps_its_memory_while_prepared_images_can_go(self):
        """They are copied once more if need be; a step that is lost is computed once more."""
        d = self.driver("--pool-bytes=24M", "--workers=3")
        for v in (1, 2, 3):
            self.load_wide(d, v)
            self.run_wide(d, v)  # its size for one sample is compiled
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 5)
        for i in range(4):
            for v in (1, 2):
                d.scheduler.send("PREPARE", epoch=d.epoch, rid=90 + v, version_id=v, evict=1)
            step = d.jobs[5].step
            self.assertEqual(self.run_wide(d, 3)[0].rc, 0)
            d.wait_step(5, step + 1)
        d.rest(1.5)  # metrics are told once a second
        stops = {way: d.metrics().get('shunt_preemptions_total{executor="e0",way="%s"}' % way, 0)
                 for way in ("pause", "drop", "swap")}
        self.assertEqual((stops["drop"], stops["swap"]), (0, 0), stops)
        self.assertGreater(stops["pause"], 0)

    def test_training_is_held_off_while_images_are_worth_more_than_its_step(self):
        """Six images of 8 MiB fit in 64 without its workspace of some 40; beside it each run copies its own."""
        d = self.driver("--pool-bytes=64M", "--workers=3", "--copy-gb-per-s=0.2")
        versions, held = range(1, 7), 'shunt_training_holds_total{executor="e0"}'

        def copied():
            return d.metrics()['shunt_copied_bytes_total{executor="e0",direction="h2d",purpose="weights"}']

        def run_all():
            before = copied()
            for v in versions:
                self.assertEqual(self.run_wide(d, v)[0].rc, 0)
            return copied() - before
        for v in versions:
            self.load_wide(d, v)
            self.run_wide(d, v)
        folder = d.start_job(5, d.package(self.net_train, "--training")[0], TRAIN, spec(epochs=10**5, batch=512))
        d.wait_step(5, 3)
        self.assertGreater(run_all(), 0)
        end = time.monotonic() + WAIT_S
        while run_all() or not d.metrics().get(held):
            self.assertLess(time.monotonic(), end, "training keeps its workspace, and images come again and again")
        step = d.jobs[5].step
        d.wait_step(5, step + 3)  # nobody asks any more: it comes back by itself
        d.rest(2.5)  # the log is written once a second
        with open(os.path.join(folder, "log.txt")) as f:
            self.assertIn("(ImagesFirst)", f.read())

    def test_an_image_whose_file_is_damaged_is_never_served(self):
        def flip(path):
            with open(path, "r+b") as f:  # in its second piece
                f.seek(-100, os.SEEK_END)
                byte = f.read(1)
                f.seek(-100, os.SEEK_END)
                f.write(bytes([byte[0] ^ 1]))

        for damage in (flip, lambda path: os.truncate(path, 5 * MIB), lambda path: os.truncate(path, 0)):
            with self.subTest(damage):
                self.serve_none_that_is_damaged(damage)

    def serve_none_that_is_damaged(self, damage):
        d = self.driver("--model-host-bytes=%d" % (24 * MIB), "--pool-bytes=12M", "--workers=2")
        for v in (1, 2):  # a tenant may have one of them
            self.load_wide(d, v)
        first = self.run_wide(d, 2)[1]
        self.run_wide(d, 1)
        d.wait(lambda: 2 in d.places and d.places[2].disk_bytes > 0, WAIT_S, "it is on disk")
        damage(self.kept(d)["%064x" % 2])
        self.assertEqual(self.run_wide(d, 2)[0].rc, UNAVAILABLE)
        d.wait(lambda: d.states[2].phase == "GONE", WAIT_S, "it unloads itself")
        self.assertNotIn("%064x" % 2, self.kept(d))
        self.run_wide(d, 1)

        def load():  # as the scheduler does: what was in use a moment ago can leave now
            d.states.pop(2)
            d.load(2, os.path.join(d.dir, "blobs", "packages", "%064x" % 2), max_batch=1, wait=False)
            d.wait(lambda: 2 in d.states and d.states[2].phase in ("READY", "FAILED"), WAIT_S, "answer")
            return d.states[2].rc != QUOTA
        d.wait(load, WAIT_S, "room")
        self.assertEqual(d.states[2].phase, "READY", d.states[2])
        self.assertEqual(self.run_wide(d, 2)[1], first)

    def test_an_image_comes_from_the_memory_of_another_executor(self):
        near, far = self.driver(tcp=True), self.driver("--workers=2")
        self.load_wide(near, 1)

        def metric(d, name, label=""):
            return d.metrics().get('shunt_%s{executor="e0"%s}' % (name, label), 0)

        def load(version, **kw):
            to = os.path.join(far.dir, "blobs", "packages", "%064x" % version)
            os.rename(far.package(os.path.join(self.onnx, "wide1.onnx"))[0], to)
            far.load(version, to, max_batch=1, **kw)

        def came():
            return metric(far, "image_read_bytes_total", ',from="host"')
        load(1, source=near.data_addr)
        self.assertEqual(self.run_wide(far, 1)[1], self.run_wide(near, 1)[1])
        self.assertGreater(came(), 8 * MIB)
        self.assertEqual(metric(near, "image_sent_bytes_total"), came())
        log = os.path.join(far.dir, "executor.log")
        self.assertIn("ev=model.build version=1 model=m worker=", open(log).read())
        self.assertRegex(open(log).read(), r"ev=model.ready version=1 .* kept=1")
        self.assertIn("%064x" % 1, self.kept(far))
        # It is made here if the other one has nothing of it, or is not there.
        load(2, source=near.data_addr)
        load(3, source="tcp:127.0.0.1:1")
        self.assertEqual(metric(near, "image_sent_bytes_total"), came())
        self.assertEqual(self.run_wide(far, 3)[1], self.run_wide(near, 1)[1])
        self.assertEqual(len(re.findall("ev=image.fetch .* msg=", open(log).read())), 2)

    def test_few_images_are_waited_for_at_a_time(self):
        """The memory they come into is not counted, and idle workers could make the others."""
        d = self.driver("--workers=2")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for v in range(1, 8):
                to = os.path.join(d.dir, "blobs", "packages", "%064x" % v)
                os.rename(d.package(self.net)[0], to)
                d.load(v, to, max_batch=1, wait=False, source="tcp:127.0.0.1:%d" % silent.getsockname()[1])
            d.wait(lambda: len(d.states) == 7 and all(s.phase == "READY" for s in d.states.values()), WAIT_S, "READY")
        log = open(os.path.join(d.dir, "executor.log")).read()
        ends = [datetime.datetime.fromisoformat(t) for t in
                re.findall(r"ts=(\S+)Z .*ev=image.fetch .* msg=", log)]
        self.assertGreaterEqual(len(ends), 4)
        for first, fifth in zip(ends, ends[4:]):  # where workers take longer than the 3 s of waiting
            self.assertGreater((fifth - first).total_seconds(), 2.9)

    def test_executors_that_ask_for_images_leave_room_for_apis(self):
        d = self.driver(tcp=True)
        asking = [wire.connect(d.data_addr) for _ in range(16)]
        for c in asking:
            c.send("IMAGE_GET", key="none", off=0, bytes=1 << 20)
            self.assertEqual(c.recv(WAIT_S).type, "IMAGE_PIECE")
        more = wire.connect(d.data_addr)
        more.send("IMAGE_GET", key="none", off=0, bytes=1 << 20)
        with self.assertRaises((EOFError, OSError)):
            more.recv(WAIT_S)
        d.connect_data()

    def test_a_model_answers_while_its_only_worker_loads_another_one(self):
        d = self.driver("--workers=2")
        packages = [d.package(p)[0] for p in (self.net, self.zoo("digits-cnn", "inference", 2),
                                              self.zoo("resnet18", "inference"))]
        for v, package in enumerate(packages, 1):
            to = os.path.join(os.path.dirname(package), "%064x" % v)  # a digest: it is kept
            os.rename(package, to)
            d.load(v, to)
            packages[v - 1] = to
        log, on_msg, order = os.path.join(d.dir, "executor.log"), d.on_msg, []

        def note(m):
            on_msg(m)
            order.append(m.type if m.type != "MODEL_STATE" else (m.version_id, m.phase))
        d.on_msg = note
        for _ in range(10):
            self.assertEqual(d.stop(), 0)
            at, d.states, d.data = os.path.getsize(log), {}, None
            d.start()
            for v, package in enumerate(packages, 1):
                d.load(v, package, wait=False)
            order.clear()

            def of(pattern):
                with open(log) as f:
                    f.seek(at)
                    return re.findall(pattern, f.read())
            builds = r"ev=model.build version=(\d+) .* worker=(\d+) kept=1"
            d.wait(lambda: len(of(builds)) == 3, WAIT_S, "load of the large one")
            worker = dict(of(builds))["3"]
            with self.held([int(pid) for i, pid in of(r"ev=worker.ready worker=(\d+) pid=(\d+)")
                            if i == worker]):
                small = [int(v) for v, w in of(builds) if w == worker and v != "3"][:1]
                is_late = of(r"ev=model.steps version=(3) ")
                if small and not is_late:
                    run = d.run(small[0], [self.digits(0, 1)], [40], 1)
            if small and not is_late:
                break
        self.assertEqual(d.result(run)[0].rc, 0)
        d.wait(lambda: (3, "READY") in order, WAIT_S, "the large one")
        self.assertLess(order.index("RUN_DONE"), order.index((3, "READY")))

    def digest(self, d, n):
        """A package whose name is a digest, as those are that the API names: it is kept."""
        package = d.package(self.net)[0]
        to = os.path.join(os.path.dirname(package), "%064x" % n)
        os.rename(package, to)
        return to

    def test_what_is_kept_was_made_for_its_tenant_alone(self):
        """Else who takes a worker over could leave a forged file for all who load after him."""
        d = self.driver("--workers=2", "--keep-renew-s=1")
        package, log = self.digest(d, 7), os.path.join(d.dir, "executor.log")

        def files():
            return [f for f in os.listdir(os.path.join(d.dir, "kept")) if f.endswith(".kept")]

        def of(pattern):
            with open(log) as f:
                return re.findall(pattern, f.read())
        for v, tenant in enumerate("aab", 1):
            d.load(v, package, tenant=tenant, model="m%d" % v)
            d.wait(lambda: len(of(r"ev=model.steps version=%d " % v)) == 2, WAIT_S, "both workers")
        # Two of one tenant are one file; the other one's was made by who had met both, and then anew.
        self.assertEqual(of(r"ev=model.build version=(\d) .* kept=1 "), ["2"])
        d.wait(lambda: len(files()) == 2, WAIT_S, "the second file")
        self.assertEqual((of(r"ev=worker.renew worker=\d model=(\S+)"), of(r"version=(\d) .* again=1")),
                         (["m3"], ["3"]))
        d.wait(lambda: len(d.worker_pids()) == 2, WAIT_S, "both workers again")
        self.assertEqual(d.stop(), 0)
        at, d.states, d.data = len(of(r"ev=model.build .*")), {}, None
        d.start()
        for v, tenant in enumerate("abc", 1):
            d.load(v, package, tenant=tenant)
        self.assertEqual([re.search(r"kept=(\d)", x)[1] for x in of(r"ev=model.build .*")[at:]], ["1", "1", "0"])

    def test_a_worker_has_no_file_that_it_could_write_to(self):
        """Whoever takes one over could fill the disk with it; or cut the log off."""
        d = self.driver("--workers=2")
        package, seen, n = self.digest(d, 8), set(), 0
        pids = d.worker_pids()
        d.load(1, package, wait=False)
        while not (1 in d.states and d.states[1].phase == "READY"):
            for pid in pids:
                n += 1
                for fd in os.listdir("/proc/%d/fd" % pid):
                    with contextlib.suppress(OSError):
                        path = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                        with open("/proc/%d/fdinfo/%s" % (pid, fd)) as f:
                            flags = int(re.search(r"flags:\s*(\d+)", f.read())[1], 8)
                        if path.startswith(d.dir) and flags & 3:
                            seen.add(path)
            d.pump(0.001)
        self.assertGreater(n, 0)
        self.assertEqual(seen, set())
        d.wait(lambda: os.listdir(os.path.join(d.dir, "kept")), WAIT_S, "what the executor writes")

    def test_a_new_scheduler_hears_what_is_held(self):
        d = self.driver()
        d.load(1, d.package(self.net)[0])
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 5)
        d.scheduler.sock.close()
        d.scheduler, d.states, d.jobs, d.epoch = None, {}, {}, 2
        d.accept()
        self.assertEqual(d.states[1].phase, "READY")
        self.assertGreater(len(d.states[1].profile), 0)
        self.assertIn(5, d.jobs)
        self.infer(d, 1)


class Trains(Case):
    """Jobs that are stopped by runs, and whose workers are killed."""

    def train(self, *options, stops=0, kills=0, job=5, want="DONE", **kw):
        """stops: runs come until they have stopped it so often, or it has ended."""
        d = self.driver("--checkpoint-interval-ms=150", *options)
        pk, _ = d.package(self.net_train, "--training")
        d.load(1, d.package(self.net)[0])
        answer = self.infer(d, 1, 0, 8)
        folder = d.start_job(job, pk, TRAIN, spec(**kw), TEST)
        d.wait_job(job, ("RUNNING",) + FINAL)
        rnd, killed, n = random.Random(1), 0, 0
        while (j := d.jobs[job]).phase not in FINAL:
            if (j.preemptions < stops or killed < kills) and j.phase in ("RUNNING", "PREEMPTED"):
                self.assertEqual(self.infer(d, 1, 0, 8), answer)
                n += 1
                limit = time.monotonic() + (rnd.random() < 0.8)  # so that it goes on, most times
                while d.jobs[job].phase == "PREEMPTED" and time.monotonic() < limit:
                    d.rest(0.005)
                d.rest(rnd.random() * 0.03)
                if n % 8 == 0:  # what is told of it is old: however slow it is to come back, it does
                    d.wait_step(job, j.step + 1)
            else:
                d.rest(0.05)
            if killed < kills and d.jobs[job].preemptions >= 4 * (killed + 1):
                os.kill(max(d.worker_pids(), key=cpu_time), signal.SIGKILL)
                killed += 1
        j = d.jobs[job]
        self.assertEqual((j.phase, j.rc if want == "DONE" else 0), (want, 0))
        j.final = open(os.path.join(folder, "final.safetensors"), "rb").read()
        j.losses = json.load(open(os.path.join(folder, "losses.json")))
        j.killed = killed
        j.metrics, j.driver, j.folder = d.metrics(), d, folder
        return j

    def ways(self, j):
        key = 'shunt_preemptions_total{executor="e0",way="%s"}'
        return [int(j.metrics.get(key % w, 0)) for w in ("pause", "drop", "swap")]

    def disturbed(self, stops, way, *options, kills=0):
        """Jobs until runs have stopped them so often in this way, and so many workers were killed. How often
        one is stopped depends on how fast it is beside who asks; its executor is gone when the next one comes."""
        stopped = killed = 0
        for _ in range(stops + kills):
            j = self.train(*options, stops=stops - stopped, kills=kills - killed)
            stopped, killed = stopped + self.ways(j)[way], killed + j.killed
            yield j
            j.driver.stop()
            if stopped >= stops and killed >= kills:
                return
        self.fail("jobs that nothing disturbs: stopped %d times, killed %d times" % (stopped, killed))


class Training(Trains):
    def calm(self):
        """The job that nobody disturbs; its folder and its executor are gone, except for whom it ran."""
        if not hasattr(Training, "undisturbed"):
            Training.undisturbed = self.train()
            Training.undisturbed.driver.stop()
        return Training.undisturbed

    def test_a_disturbed_job_ends_bit_identical_to_an_undisturbed_one(self):
        calm = self.calm()
        result = json.loads(calm.result)
        self.assertGreaterEqual(result["accuracy"], 0.97)
        self.assertEqual(result["steps"], calm.steps)
        self.assertEqual(len(calm.losses), calm.steps)
        self.assertNotIn(None, calm.losses)
        for options, kills, way in ((("--debug-stop-way=pause",), 0, 0),
                                    (("--debug-stop-way=drop",), 0, 1),
                                    (("--debug-stop-way=swap",), 0, 2),
                                    ((), 2, 0),
                                    (("--debug-stop-way=swap",), 2, 2)):
            redone = 0
            for j in self.disturbed(20, way, *options, kills=kills):
                self.assertEqual(j.final, calm.final, options)
                self.assertEqual(j.losses, calm.losses, options)
                self.assertEqual(j.preemptions, sum(self.ways(j)))
                self.assertEqual(json.loads(j.result)["accuracy"], result["accuracy"])
                redone += j.redone
            if kills:
                self.assertGreater(redone, 0)

    def test_the_way_to_stop_follows_from_the_memory(self):
        for pool, way in (("256M", 0), ("8M", 1)):
            for j in self.disturbed(5, way, "--pool-bytes=" + pool):
                self.assertEqual(self.ways(j)[way], j.preemptions)

    def test_training_stops_before_memory_is_looked_for_and_once_for_a_run(self):
        for pool, way in (("256M", 0), ("8M", 1)):
            for j in self.disturbed(10, way, "--pool-bytes=" + pool, "--log-level=debug"):
                with open(os.path.join(j.driver.dir, "executor.log"), errors="replace") as f:
                    log = f.read().partition("ev=switch.start run=0 ")[0]  # its evaluation, at the end
                events = re.findall(r" ev=(train\.go|train\.stop|train\.drained|switch\.start) ", log)
                goes, drained = False, 0
                for e in events:
                    if e == "switch.start":
                        self.assertFalse(goes, pool)
                        drained = 0
                    elif e == "train.drained":
                        drained += 1
                        self.assertEqual(drained, 1, pool)
                    else:
                        goes = e == "train.go"
                self.assertEqual(events.count("train.drained"), j.preemptions)

    def test_the_trained_model_is_a_package_that_serves(self):
        j = self.train()
        d, r = j.driver, json.loads(j.result)
        self.assertTrue(r["meta"]["ok"])
        d.load(2, r["package"])
        labels = struct.unpack("<360q", read_st(TEST)["label"][2])
        right = 0
        for at in range(0, 360, 8):
            y = self.infer(d, 2, at, 8)[0]
            right += sum(max(range(10), key=lambda c: y[10 * i + c]) == labels[at + i]
                         for i in range(8))
        self.assertEqual(right / 360, r["accuracy"])
        self.assertEqual(sorted(f for f in os.listdir(j.folder) if f[:5] not in ("ckpt-", "claim")),
                         ["final.safetensors", "log.txt", "losses.json", "trained.onnx"])
        self.assertLessEqual(len([f for f in os.listdir(j.folder) if "ckpt" in f]), 2)

    def logged(self, d, pattern):
        for _ in range(100 * WAIT_S):
            with open(d.dir + "/executor.log") as f:
                found = re.findall(pattern, f.read())
            if found:
                return found
            d.rest(0.01)
        self.fail("no " + pattern)

    def test_a_job_waits_for_a_worker_that_an_earlier_start_left_at_its_model(self):
        d = self.driver()
        pk, _ = d.package(self.net_train, "--training")
        trained = d.start_job(5, pk, TRAIN, spec(epochs=1), TEST) + "/trained.onnx"
        d.wait_job(5, ("COMPLETING",))
        pids = {w: int(pid) for w, pid in self.logged(d, r"ev=worker\.ready worker=(\d) pid=(\d+)")}
        with self.held(pids.values()):
            builder, = self.logged(d, r"ev=model\.build version=-\d+ model=net worker=(\d)")
            d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=0, why="Cancelled")
            d.wait_job(5, ("CANCELLED",))
            for worker, pid in pids.items():
                if worker != builder:
                    os.kill(pid, signal.SIGCONT)
            os.unlink(trained)
            d.start_job(5, pk, TRAIN, spec(epochs=1), TEST)
            d.wait(lambda: os.path.exists(trained), WAIT_S, "trained.onnx")
        self.assertGreater(json.loads(d.wait_job(5, ("DONE",)).result)["accuracy"], 0.5)

    def evaluate(self, **kw):
        """A job whose evaluation has begun: driver, folder, {worker: pid}, the worker that has it."""
        d = self.driver("--log-level=debug", "--copy-gb-per-s=0.01", "--debug-cold")  # runs are slow
        pk, _ = d.package(self.net_train, "--training")
        d.load(1, d.package(self.net)[0])
        folder = d.start_job(5, pk, TRAIN, spec(epochs=1, **kw), TEST)
        for _ in range(100 * WAIT_S):
            with open(d.dir + "/executor.log") as f:
                log = f.read()
            sent = re.search(r"ev=switch\.send run=0 worker=(\d)", log)
            if sent:
                break
            d.rest(0.01)
        pids = re.findall(r"ev=worker\.ready worker=(\d) pid=(\d+)", log)
        return d, folder, {int(w): int(pid) for w, pid in pids}, int(sent[1])

    def kill_at_work(self, d, pids, meanwhile=lambda: None):
        """One of them has a run."""
        with self.held(pids):
            d.wait(lambda: d.metrics()['shunt_workers{executor="e0",state="active"}'] == 1, WAIT_S,
                   "an active worker")
            meanwhile()
            with self.held([d.proc.pid]):  # else it could send the run on to one that is about to die,
                for pid in pids:           # and a run is given to two workers at most
                    os.kill(pid, signal.SIGKILL)
        # The next run would be given to one whose death is not known yet.
        d.wait(lambda: not set(pids) & set(d.worker_pids()), WAIT_S, "the death of workers")

    def test_an_evaluation_survives_all_workers(self):
        d, _, pids, _ = self.evaluate()
        self.kill_at_work(d, pids.values())
        self.infer(d, 1)
        self.assertGreater(json.loads(d.wait_job(5, ("DONE",)).result)["accuracy"], 0.5)

    def test_nobody_waits_until_another_worker_has_the_model_of_an_evaluation(self):
        d, _, pids, builder = self.evaluate()
        with self.held([pids[min(w for w in pids if w != builder)]]):  # the next one to compile it
            self.kill_at_work(d, [pids[builder]])
            self.infer(d, 1)
            self.assertEqual(d.jobs[5].phase, "COMPLETING")
        self.assertGreater(json.loads(d.wait_job(5, ("DONE",)).result)["accuracy"], 0.5)

    def test_an_evaluation_whose_model_no_worker_can_have_again_ends(self):
        d, folder, pids, _ = self.evaluate(publish=False)
        self.kill_at_work(d, pids.values(), lambda: os.unlink(folder + "/trained-e0.tmp/graph.json"))
        self.infer(d, 1)
        self.assertIn("graph.json", d.wait_job(5, ("FAILED",)).msg)

    def test_what_is_not_published_is_a_file_of_the_job_and_no_package(self):
        j = self.train()
        before, d = json.loads(j.result), j.driver
        packages = os.listdir(d.dir + "/blobs/packages")
        pk, _ = d.package(self.net_train, "--training")
        folder = d.start_job(6, pk, TRAIN, spec(publish=False), TEST)
        result = json.loads(d.wait_job(6, ("DONE",)).result)
        self.assertEqual({k: before[k] for k in ("accuracy", "final_loss", "steps", "digest", "bytes")},
                         {k: result[k] for k in ("accuracy", "final_loss", "steps", "digest", "bytes")})
        self.assertFalse({"package", "package_digest", "meta", "onnx_bytes"} & set(result))
        self.assertEqual(set(os.listdir(d.dir + "/blobs/packages")) - set(packages),
                         {os.path.basename(pk)})
        self.assertEqual(sorted(f for f in os.listdir(folder) if f[:5] not in ("ckpt-", "claim")),
                         ["final.safetensors", "log.txt", "losses.json", "trained.onnx"])
        with open(folder + "/trained.onnx", "rb") as a, open(j.folder + "/trained.onnx", "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_what_has_been_started_elsewhere_since_is_not_published(self):
        d = self.driver()
        pk, _ = d.package(self.net_train, "--training")
        for job, more in ((5, {}), (6, {"publish": False})):
            folder = d.start_job(job, pk, TRAIN, spec(**more), TEST)
            d.wait_step(job, 1)
            open(folder + "/claim-%d" % (1 << 62), "x").close()  # as another executor's
            self.assertIn("started elsewhere", d.wait_job(job, ("FAILED",)).msg)
            self.assertFalse({"final.safetensors", "trained.onnx"} & set(os.listdir(folder)))
        folder = d.start_job(6, pk, TRAIN, spec(publish=False), TEST)
        self.assertIn("started elsewhere", d.wait_job(6, ("FAILED",)).msg)

    def test_a_killed_executor_leaves_a_checkpoint_to_go_on_from(self):
        calm = self.calm()
        d = self.driver("--checkpoint-interval-ms=50")
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(), TEST)
        d.wait(lambda: len(d.checkpoints) >= 3, WAIT_S, "checkpoints")
        c = d.checkpoints[-1]
        d.proc.kill()
        d.proc.wait()
        d.scheduler = d.data = None
        d.start()
        folder = d.start_job(5, pk, TRAIN, spec(), TEST, attempt=2, resume=c.path, resume_step=c.step)
        j = d.wait_job(5, FINAL)
        self.assertEqual(j.phase, "DONE")
        self.assertEqual(open(folder + "/final.safetensors", "rb").read(), calm.final)
        self.assertEqual(json.load(open(folder + "/losses.json"))[c.step:], calm.losses[c.step:])
        d.wait(lambda: d.usage("", 1, 5)[3] == j.step and d.usage("", 1, 5)[0] >= j.busy_ns, WAIT_S,
               "usage of the last step, and of all that it took")

    def test_the_interval_of_checkpoints_follows_from_what_they_cost(self):
        d = self.driver()
        pk, _ = d.package(self.net_train, "--training")
        folder = d.start_job(5, pk, TRAIN, spec(epochs=100000))
        key = 'shunt_checkpoint_interval_seconds{executor="e0"}'
        d.wait(lambda: key in d.metrics() and d.checkpoints, WAIT_S, "a checkpoint")
        at_rest = d.metrics()[key]
        self.assertTrue(1 <= at_rest <= 900, at_rest)
        log = os.path.join(folder, "log.txt")
        d.wait(lambda: os.path.exists(log) and "a checkpoint is due" in open(log).read(), WAIT_S, "its line")
        self.assertIn("0 failures", open(log).read())

    def lose_workers(self, d):
        """All of them: the one with the job too."""
        exits = 'shunt_worker_exits_total{executor="e0",cause="killed"}'
        before, pids = d.metrics().get(exits, 0), d.worker_pids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        d.wait(lambda: d.metrics().get(exits, 0) >= before + len(pids), WAIT_S, "death of all workers")

    def test_workers_may_die_as_often_as_the_job_gets_further_even_in_steps_done_again(self):
        d = self.driver("--checkpoint-interval-ms=3600000")
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 200)
        for n in range(1, 6):
            self.lose_workers(d)  # the job is thrown back to the last checkpoint, at first to its beginning
            d.scheduler.send("JOB_SAVE", epoch=1, job=5, attempt=1, asked=n)
            d.wait(lambda: len(d.saved) == n or d.jobs[5].phase in FINAL, WAIT_S, "JOB_SAVED")
            self.assertNotIn(d.jobs[5].phase, FINAL, d.jobs[5])
        steps = [m.step for m in d.saved]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertLess(steps[3], 200)  # by the fourth death it was not where it had been

    def test_a_job_fails_whose_workers_die_in_a_row(self):
        d = self.driver("--checkpoint-interval-ms=3600000")
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 200)
        active = 'shunt_workers{executor="e0",state="active"}'
        while d.jobs[5].phase not in FINAL:
            d.wait(lambda: d.metrics()[active] == 1 or d.jobs[5].phase in FINAL, WAIT_S, "training")
            self.lose_workers(d)
        self.assertEqual((d.jobs[5].phase, d.jobs[5].rc), ("FAILED", UNAVAILABLE), d.jobs[5])
        self.assertIn("4 worker processes died in a row", d.jobs[5].msg)

    def test_suspend_resume_cancel_conflict(self):
        calm = self.calm()
        d = self.driver()
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(), TEST)
        d.wait_step(5, 20)
        d.start_job(6, pk, TRAIN, spec())
        self.assertEqual(d.wait_job(6, FINAL).rc, -5)
        d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=1, why="FairShare")
        j = d.wait_job(5, FINAL)
        self.assertEqual(j.phase, "SUSPENDED")
        self.assertEqual(d.checkpoints[-1].step, j.step)
        folder = d.start_job(5, pk, TRAIN, spec(), TEST, 2, d.checkpoints[-1].path, j.step)
        self.assertEqual(d.wait_job(5, FINAL).phase, "DONE")
        self.assertEqual(open(folder + "/final.safetensors", "rb").read(), calm.final)
        with open(folder + "/log.txt") as log:
            self.assertEqual(log.read().count("is stopped by the scheduler: FairShare"), 1)
        d.start_job(7, pk, TRAIN, spec(epochs=1000))
        d.wait_step(7, 10)
        d.scheduler.send("JOB_STOP", epoch=1, job=7, attempt=1, how=0, why="Cancelled")
        self.assertEqual(d.wait_job(7, FINAL).phase, "CANCELLED")
        # A stop that comes late has no answer: that would end the next start, which has the same attempt.
        d.scheduler.send("JOB_STOP", epoch=1, job=99, attempt=1, how=0, why="Cancelled")
        d.start_job(7, pk, TRAIN, spec(epochs=1000))
        d.wait_step(7, 10)
        self.assertNotIn(99, d.jobs)

    def test_sigterm_suspends_with_a_checkpoint(self):
        d = self.driver()
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 10)
        self.assertEqual(d.stop(), 0)
        self.assertEqual(len([f for f in os.listdir(d.dir + "/jobs/5") if "ckpt" in f]), 1)

    def test_one_that_stops_says_so_runs_what_was_on_its_way_and_takes_no_job(self):
        d = self.driver()
        pk, meta = d.package(self.net_train, "--training")
        d.load(1, d.package(self.net)[0])
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 10)
        with self.held(d.worker_pids()):
            d.proc.send_signal(signal.SIGTERM)
            d.wait(lambda: d.stopping, WAIT_S, "word that it stops")
            d.start_job(6, pk, TRAIN, spec())
            d.start_batch(7, 1, meta, TRAIN)
            for job in (6, 7):  # CONFLICT: not now, and no failure of the job
                self.assertEqual(d.wait_job(job, ("FAILED",)).rc, -5)
            run = d.run(1, [self.digits(0, 1)], [40], 1)
            d.rest(0.2)
        self.assertEqual(d.stop(), 0)
        self.assertEqual(d.results[run[1][0][0]].rc, 0)
        self.assertEqual(d.jobs[5].phase, "SUSPENDED")

    def test_a_stop_writes_the_newest_state_though_its_workers_are_signalled_or_killed(self):
        for sig in (signal.SIGINT, signal.SIGKILL):
            d = self.driver()
            pk, _ = d.package(self.net_train, "--training")
            d.start_job(5, pk, TRAIN, spec(epochs=1000))
            d.wait_step(5, 10)
            pids = d.worker_pids()
            d.proc.send_signal(signal.SIGSTOP)  # so that it sees all signals at once
            d.proc.send_signal(signal.SIGTERM)
            for pid in pids:
                os.kill(pid, sig)
            d.proc.send_signal(signal.SIGCONT)
            self.assertEqual(d.stop(), 0)
            with open(os.path.join(d.dir, "executor.log")) as log:
                self.assertNotIn("something was still under way", log.read())
            if sig == signal.SIGINT:
                self.assertEqual(len([f for f in os.listdir(d.dir + "/jobs/5") if "ckpt" in f]), 1)

    def test_a_missing_checkpoint_is_replaced_by_the_newest_and_old_ones_go(self):
        calm = self.calm()
        d = self.driver()
        pk, _ = d.package(self.net_train, "--training")
        folder = d.start_job(5, pk, TRAIN, spec(checkpoint_interval_ms=3600000), TEST)
        d.wait_step(5, 20)
        d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=1, why="FairShare")
        newest = d.wait_job(5, FINAL).step
        other = os.path.join(d.dir, "jobs", "6", "ckpt-2.safetensors")
        os.makedirs(os.path.dirname(other))
        for path in (folder + "/ckpt-2.safetensors", other):
            open(path, "w").close()
        d.start_job(5, pk, TRAIN, spec(checkpoint_interval_ms=3600000), TEST, 2, folder + "/ckpt-1.safetensors", 1)
        self.assertEqual(d.wait_job(5, FINAL).phase, "DONE")
        self.assertEqual(open(folder + "/final.safetensors", "rb").read(), calm.final)
        self.assertEqual(json.load(open(folder + "/losses.json")), calm.losses)
        self.assertNotIn("ckpt-2.safetensors", os.listdir(folder))
        self.assertIn("ckpt-%d-e0.safetensors" % newest, os.listdir(folder))
        self.assertTrue(os.path.exists(other))

    def test_a_loss_that_is_no_number_fails_the_job_and_keeps_the_checkpoint(self):
        d = self.driver("--checkpoint-interval-ms=50")
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 50)
        c = d.checkpoints[-1]
        d.scheduler.send("JOB_STOP", epoch=1, job=5, attempt=1, how=1, why="FairShare")
        d.wait_job(5, ("SUSPENDED",))
        # The same parameters with a learning rate that throws them out of range.
        c = d.checkpoints[-1]
        s = spec(epochs=1000, optimizer={"name": "sgd", "lr": 1e6, "weight_decay": 1.0})
        folder = d.start_job(5, pk, TRAIN, s, "", 2, c.path, c.step)
        j = d.wait_job(5, FINAL)
        self.assertEqual((j.phase, j.rc), ("FAILED", -23))
        self.assertIn("step %d " % (j.step + 1), j.msg)
        self.assertEqual(d.checkpoints[-1].step, j.step)
        self.assertTrue(os.path.exists(folder + "/ckpt-%d-e0.safetensors" % j.step))

    def test_bad_jobs_fail_with_a_reason(self):
        d = self.driver("--pool-bytes=8M")
        pk, _ = d.package(self.net_train, "--training")
        for job, dataset, s, text in ((1, "/none.safetensors", spec(), ""),
                                      (2, TRAIN, spec(labels="nope"), "nope"),
                                      (3, TRAIN, spec(batch=512), "MiB"),
                                      (4, TRAIN, spec(colour="red"), "colour"),
                                      (5, TRAIN, spec(batch=5000), "batch")):
            d.start_job(job, pk, dataset, s)
            j = d.wait_job(job, FINAL)
            self.assertEqual(j.phase, "FAILED", j)
            self.assertIn(text, j.msg)
        d.start_job(6, pk, TRAIN, spec(epochs=1), "/none.safetensors")
        j = d.wait_job(6, FINAL)
        self.assertEqual(j.phase, "FAILED")
        t, path = read_st(TEST), os.path.join(d.dir, "bad.safetensors")
        n = t["label"][1][0]
        for job, name, column, text in (
                (7, "label", ("I64", [n], struct.pack("<%dq" % n, *[0] * (n - 1), 10)), "label 10"),
                (8, "x", ("I32",) + tuple(t["x"][1:]), "INT32")):
            write_st(path, dict(t, **{name: column}))
            d.start_job(job, pk, TRAIN, spec(epochs=1), path)
            j = d.wait_job(job, FINAL)
            self.assertEqual(j.phase, "FAILED", j)
            self.assertIn(text, j.msg)

    @unittest.skipUnless(os.geteuid() == 0, "needs a small file system of its own")
    def test_a_full_disk_costs_a_checkpoint_and_nothing_else(self):
        d = self.driver("--checkpoint-interval-ms=50")
        pk, _ = d.package(self.net_train, "--training")
        folder = d.dir + "/jobs/5"
        os.makedirs(folder)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5M", "none", folder],
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("mounting is not allowed here")
        self.addCleanup(subprocess.run, ["umount", "-l", folder])
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait(lambda: len(d.checkpoints) >= 2, WAIT_S, "two checkpoints")
        try:
            with open(folder + "/filler", "wb", buffering=0) as f:
                while True:
                    f.write(b"x" * 4096)
        except OSError:
            pass
        key = 'shunt_checkpoints_total{executor="e0",kind="disk",outcome="DISKFULL"}'
        d.wait(lambda: d.metrics().get(key, 0) >= 2, WAIT_S, "DISKFULL")
        n, step = len(d.checkpoints), d.jobs[5].step
        kept = os.path.join(d.dir, "jobs", d.checkpoints[-1].path)
        self.assertTrue(read_st(kept))
        d.wait_step(5, step + 50)  # it trains on
        os.unlink(folder + "/filler")
        d.wait(lambda: len(d.checkpoints) > n, WAIT_S, "a checkpoint after the disk had room")

    def test_models_can_be_loaded_while_training(self):
        d = self.driver()
        pk, _ = d.package(self.net_train, "--training")
        d.start_job(5, pk, TRAIN, spec(epochs=1000))
        d.wait_step(5, 10)
        net, _ = d.package(self.net)
        for v in range(1, 6):
            d.load(v, net)
        # It has stood still for its worker to compile them: no run has taken the device from it.
        large, _ = d.package(self.zoo("resnet18", "inference"))
        for v in range(6, 9):
            d.load(v, large, max_batch=2)
        self.assertNotIn("PREEMPTED", d.history)
        self.infer(d, 5)
        step = d.jobs[5].step
        d.wait_step(5, step + 20)


def cpu_time(pid):
    """-1: it has ended since somebody saw it."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().split()
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return int(fields[13]) + int(fields[14])


if __name__ == "__main__":
    unittest.main(warnings="ignore")
