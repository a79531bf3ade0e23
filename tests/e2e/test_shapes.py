#!/usr/bin/env python3
"""Models whose files leave sizes open beside the batch: a length, height and width.

Without it: a request of another length would be refused, answered with another one's numbers, or would
hold others up while its shape is compiled; shapes would pile up in memory.

Usage: test_shapes.py [-v] [name ...]
"""
import json
import math
import os
import random
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_bytes as onnx  # noqa: E402
from system import BIN, Story, System, st_bytes, until  # noqa: E402

VOCAB, LONGEST = 50, 100


def sentence():
    """ids [N,L] -> y [N,L,2]: -(row of a table + row of its position); m [N,L]: a mask of positions above 2."""
    i64 = onnx.INT64
    nodes = [onnx.node("Shape", ["ids"], ["shape"]), onnx.node("Gather", ["shape", "one"], ["L"]),
             onnx.node("Range", ["zero", "L", "one"], ["at"]), onnx.node("Gather", ["positions", "at"], ["p"]),
             onnx.node("Gather", ["table", "ids"], ["e"]), onnx.node("Add", ["e", "p"], ["s"]),
             onnx.node("Neg", ["s"], ["y"]), onnx.node("Greater", ["at", "two"], ["late"]),
             onnx.node("Cast", ["late"], ["late_f"], to=1), onnx.node("Cast", ["ids"], ["ids_f"], to=1),
             onnx.node("Mul", ["ids_f", "late_f"], ["m"])]
    return onnx.model(
        nodes, [onnx.value("ids", ["batch", "length"], i64)],
        [onnx.value("y", ["batch", "length", 2]), onnx.value("m", ["batch", "length"])],
        [onnx.tensor("table", [VOCAB, 2], [v for i in range(VOCAB) for v in (i, 3 * i)]),
         onnx.tensor("positions", [LONGEST, 2], [v for i in range(LONGEST) for v in (100 * i, -i)]),
         onnx.tensor("zero", [], [0], i64), onnx.tensor("one", [], [1], i64), onnx.tensor("two", [], [2], i64)])


def sentence_wants(rows):
    y = [v for r in rows for i, w in enumerate(r) for v in (-(w + 100.0 * i), -(3.0 * w - i))]
    return y, [float(w) if i > 2 else 0.0 for r in rows for i, w in enumerate(r)]


def picture():
    """x [N,1,H,W] -> f [N,1,ceil(H/2),ceil(W/2)]: sums of 3 x 3, every second one; n [N,H*W]."""
    return onnx.model(
        [onnx.node("Conv", ["x", "w"], ["f"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
         onnx.node("Flatten", ["x"], ["n"], axis=1)],
        [onnx.value("x", ["batch", 1, "h", "w"])],
        [onnx.value("f", ["batch", 1, "a", "b"]), onnx.value("n", ["batch", "c"])],
        [onnx.tensor("w", [1, 1, 3, 3], [1.0] * 9)])


def picture_wants(rows):
    h, w = len(rows), len(rows[0])
    return [sum(rows[i][j] for i in range(max(y - 1, 0), min(y + 2, h)) for j in range(max(x - 1, 0), min(x + 2, w)))
            for y in range(0, h, 2) for x in range(0, w, 2)]


def masked():
    """ids, mask [N,L] -> y [N,L,2]: attention of rows of a table to those that the mask lets through."""
    i64 = onnx.INT64
    return onnx.model(
        [onnx.node("Gather", ["table", "ids"], ["e"]), onnx.node("Transpose", ["e"], ["t"], perm=[0, 2, 1]),
         onnx.node("MatMul", ["e", "t"], ["scores"]), onnx.node("Cast", ["mask"], ["m"], to=1),
         onnx.node("Sub", ["one", "m"], ["out"]), onnx.node("Mul", ["out", "far"], ["far_off"]),
         onnx.node("Unsqueeze", ["far_off", "axis"], ["bias"]), onnx.node("Add", ["scores", "bias"], ["s"]),
         onnx.node("Softmax", ["s"], ["p"], axis=-1), onnx.node("MatMul", ["p", "e"], ["y"])],
        [onnx.value("ids", ["batch", "length"], i64), onnx.value("mask", ["batch", "length"], i64)],
        [onnx.value("y", ["batch", "length", 2])],
        [onnx.tensor("table", [VOCAB, 2], TABLE), onnx.tensor("one", [], [1.0]),
         onnx.tensor("far", [], [-3.4028234663852886e38]), onnx.tensor("axis", [1], [1], i64)])


TABLE = [((i * 37) % 11 - 5) / 4 for i in range(2 * VOCAB)]


def masked_wants(rows, masks):
    out = []
    for row, mask in zip(rows, masks):
        e = [TABLE[2 * w:2 * w + 2] for w in row]
        for q in e:
            p = [math.exp(q[0] * k[0] + q[1] * k[1]) * m for k, m in zip(e, mask)]
            out += [sum(a * k[i] for a, k in zip(p, e)) / sum(p) for i in (0, 1)]
    return out


def floats(raw, at, n):
    return list(struct.unpack_from("<%df" % n, raw, at))


class Shapes(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2", MODEL_SHAPES="24", MAX_AXIS_SIZE="90")
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("vision")
        for name, model in (("words", sentence()), ("picture", picture()), ("other", onnx.linear())):
            cls.s.push(cls.key, name, model)
        for name, x in (("words", cls.ids([[1, 2]])), ("other", cls.other())):
            until("%s answers" % name, lambda name=name, x=x: cls.s.infer(cls.key, name, [x]).status == 200)

    @staticmethod
    def ids(rows):
        return {"name": "ids", "datatype": "INT64", "shape": [len(rows), len(rows[0])], "data": rows}

    @staticmethod
    def other():
        return {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}

    def shapes(self):
        try:
            m = self.s.metrics("executor-cpu0")
        except OSError:
            return 0  # it is not there
        return sum(v for k, v in m.items() if k.startswith("shunt_shapes{"))

    def ask(self, rows, **more):
        r = self.s.infer(self.key, "words", [self.ids(rows)], **more)
        self.assertEqual(r.status, 200, r)
        y, m = sentence_wants(rows)
        got = {o["name"]: o for o in r.json["outputs"]}
        self.assertEqual(got["y"]["shape"], [len(rows), len(rows[0]), 2])
        self.assertEqual(got["y"]["data"], y)
        self.assertEqual(got["m"]["data"], m)
        return r

    def test_metadata_says_what_is_open(self):
        r = self.s.call("GET", "/v2/models/words", key=self.key)
        self.assertEqual(r.json["inputs"][0]["shape"], [-1, -1])
        self.assertEqual([o["shape"] for o in r.json["outputs"]], [[-1, -1, 2], [-1, -1]])

    def test_lengths_in_any_order_by_many_clients(self):
        """More of them than are compiled at once: the oldest go, and every answer is exact."""
        wrong = []

        def client(seed):
            rng = random.Random(seed)
            try:
                for _ in range(40):
                    length = rng.randint(1, 64)
                    self.ask([[rng.randrange(VOCAB) for _ in range(length)] for _ in range(rng.randint(1, 3))])
            except AssertionError as e:
                wrong.append(e)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        until("they are counted", lambda: self.shapes() > 8)
        self.assertLessEqual(self.shapes(), 24 + 8)  # and those of pictures

    def test_a_shape_is_compiled_once_and_the_client_is_told(self):
        rows = [[7] * 77]
        def waited():
            return self.s.metrics("scheduler").get(
                'shunt_request_compile_wait_seconds_count{tenant="vision",model="words"}', 0)
        before = waited()
        self.assertIn("compile;dur=", self.ask(rows).headers["server-timing"])
        self.assertEqual(waited(), before + 1)
        self.assertNotIn("compile;dur=", self.ask(rows).headers["server-timing"])
        self.assertEqual(waited(), before + 1)

    def test_height_and_width(self):
        for h, w in ((5, 8), (1, 1), (8, 5), (33, 2)):
            rows = [[float((i * 7 + j * 3) % 11) for j in range(w)] for i in range(h)]
            r = self.s.infer(self.key, "picture", [{"name": "x", "datatype": "FP32", "shape": [1, 1, h, w],
                                                     "data": rows}])
            self.assertEqual(r.status, 200, r)
            f, n = r.json["outputs"]
            self.assertEqual(f["shape"], [1, 1, (h + 1) // 2, (w + 1) // 2])
            self.assertEqual(f["data"], picture_wants(rows))
            self.assertEqual(n["shape"], [1, h * w])

    def test_what_cannot_be_is_a_mistake_of_the_client(self):
        for length, part in ((91, "1 to 90 are allowed"), (0, "1 to 90")):
            r = self.s.infer(self.key, "words", [{"name": "ids", "datatype": "INT64", "shape": [1, length],
                                                   "data": [1] * length}])
            self.assertEqual(r.status, 400, r)
            self.assertIn(part, r.error)
        self.s.push(self.key, "short", onnx.model(
            [onnx.node("Add", ["x", "b"], ["y"])], [onnx.value("x", ["N", "length"])],
            [onnx.value("y", ["N", "length"])], [onnx.tensor("b", [64], [1.0] * 64)]))
        until("short answers", lambda: self.s.infer(self.key, "short", [
            {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0.0] * 64}]).status == 200)
        for _ in range(2):  # the second one is not compiled again
            r = self.s.infer(self.key, "short", [{"name": "x", "datatype": "FP32", "shape": [1, 63],
                                                   "data": [0.0] * 63}])
            self.assertEqual(r.status, 400, r)
            self.assertIn("length=63", r.error)

    def test_new_shapes_do_not_hold_others_up(self):
        late, done = [], threading.Event()

        def steady():
            while not done.is_set():
                r = self.s.infer(self.key, "other", [self.other()], parameters={"timeout": 1000000})
                if r.status != 200:
                    late.append(r)
                time.sleep(0.01)

        t = threading.Thread(target=steady)
        t.start()
        for length in range(20, 60):
            self.ask([[3] * length])
        done.set()
        t.join()
        self.assertEqual(late, [])

    def test_after_a_restart_it_goes_on(self):
        """With the shapes that were used: they are compiled before anybody asks."""
        for length in (31, 32, 33):
            self.ask([[5] * length])
        seen = os.path.join(self.s.state, "shapes")
        until("they are written down", lambda: any(
            "33" in open(os.path.join(seen, name)).read().split() for name in os.listdir(seen)))
        self.s.kill("executor-cpu0")
        until("they are there again", lambda: self.shapes() > 2)
        self.ask([[5] * 31, [6] * 31])

    def test_those_asked_for_most_come_back_after_starts(self):
        """How often is on disk, over several starts, also of one that others have pushed out of memory."""
        often, seldom = (41, 42, 43), range(44, 80)
        seen = os.path.join(self.s.state, "shapes")

        def counts():
            out = {}
            for name in os.listdir(seen):
                with open(os.path.join(seen, name)) as f:
                    for line in f:
                        n, _, sizes = line.partition(":")
                        out[tuple(sizes.split())] = out.get(tuple(sizes.split()), 0) + int(n or 0)
            return out

        for start in range(2):
            for length in often:
                for _ in range(30):
                    self.ask([[5] * length])
            until("they are counted", lambda start=start: all(
                counts().get((str(length),), 0) >= 30 * (start + 1) for length in often))
            if start == 0:
                for length in seldom:  # more than are compiled at once
                    self.ask([[5] * length])
                until("they are counted too", lambda: (str(seldom[-1]),) in counts())
            self.s.kill("executor-cpu0")
            until("it is there again", lambda: self.s.infer(self.key, "other", [self.other()]).status == 200)
            until("shapes are compiled again", lambda: self.shapes() >= 12)
            for length in often:
                self.assertNotIn("compile;dur=", self.ask([[5] * length]).headers["server-timing"])

    def test_training_takes_the_sizes_of_its_dataset(self):
        """And the evaluation those of its own; the trained version serves any."""
        self.s.push(self.key, "trained", onnx.model(
            [onnx.node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), onnx.node("Relu", ["c"], ["r"]),
             onnx.node("GlobalAveragePool", ["r"], ["g"]), onnx.node("Flatten", ["g"], ["f"], axis=1),
             onnx.node("Gemm", ["f", "v", "b"], ["logits"])],
            [onnx.value("x", ["batch", 1, "h", "w"])], [onnx.value("logits", ["batch", 2])],
            [onnx.tensor("w", [4, 1, 3, 3], [0.1 * ((i * 5) % 7 - 3) for i in range(36)]),
             onnx.tensor("v", [4, 2], [0.2 * ((i * 3) % 5 - 2) for i in range(8)]), onnx.tensor("b", [2], [0.0, 0.0])]))

        def data(name, n, h, w):
            self.s.push_data(self.key, name, st_bytes({
                "x": ("F32", [n, 1, h, w], struct.pack("<%df" % (n * h * w), *(
                    (1.0 if i // (h * w) % 2 else -1.0) * ((i * 7) % 5 + 1) / 5 for i in range(n * h * w)))),
                "label": ("I64", [n], struct.pack("<%dq" % n, *(i % 2 for i in range(n))))}))

        data("pictures", 64, 6, 9)
        data("others", 16, 5, 5)
        r = self.s.submit(self.key, model="trained", dataset="pictures", eval_dataset="others",
                          spec={"batch": 16, "epochs": 4})
        self.assertEqual(r.status, 201, r)
        done = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual(done["state"], "SUCCEEDED", done)
        self.assertEqual(done["result"]["accuracy"], 1.0, done)
        r = until("the trained one answers", lambda: (r := self.s.call(
            "POST", "/v2/models/trained/versions/%d/infer" % done["result"]["version"],
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 1, 3, 4], "data": [1.0] * 12 + [-1.0] * 12}]},
            key=self.key)).status == 200 and r)
        y = r.json["outputs"][0]["data"]
        self.assertTrue(y[1] > y[0] and y[2] > y[3], y)


    def test_batch_inference_takes_the_sizes_of_its_dataset(self):
        """Those that requests get; of a dataset whose tensors do not agree it is refused before it runs."""
        rng = random.Random(3)
        rows = [[rng.randrange(VOCAB) for _ in range(13)] for _ in range(21)]
        raw = struct.pack("<%dq" % (21 * 13), *(v for r in rows for v in r))
        self.s.push_data(self.key, "texts", st_bytes({"text": ("I64", [21, 13], raw)}))
        job = {"kind": "batch_inference", "model": "words", "dataset": "texts",
               "spec": {"batch": 8, "inputs": {"ids": "text"}}}
        r = self.s.call("POST", "/api/v1/jobs", job, self.key)
        self.assertEqual(r.status, 201, r)
        done = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual(done["state"], "SUCCEEDED", done)
        data = self.s.call("GET", "/api/v1/jobs/%d/result/artifact" % r.json["id"], key=self.key).raw
        head = json.loads(data[8:8 + struct.unpack_from("<Q", data)[0]])
        base = 8 + struct.unpack_from("<Q", data)[0]
        for name, shape, want in zip("ym", ([21, 13, 2], [21, 13]), sentence_wants(rows)):
            self.assertEqual(head[name]["shape"], shape)
            self.assertEqual(floats(data, base + head[name]["data_offsets"][0], len(want)), want)
        self.s.push(self.key, "both", masked())
        self.s.push_data(self.key, "unlike", st_bytes({
            "ids": ("I64", [4, 5], bytes(160)), "mask": ("I64", [4, 6], bytes(192))}))
        r = self.s.call("POST", "/api/v1/jobs", {**job, "model": "both", "dataset": "unlike", "spec": {}}, self.key)
        self.assertEqual(r.status, 400, r)
        self.assertIn("has size 6", r.error)
        self.s.push_data(self.key, "long", st_bytes({"ids": ("I64", [2, 101], bytes(2 * 101 * 8))}))
        r = self.s.call("POST", "/api/v1/jobs", {**job, "dataset": "long", "spec": {}}, self.key)
        self.assertEqual(r.status, 201, r)
        done = self.s.wait_job(self.key, r.json["id"])
        self.assertEqual(done["state"], "FAILED", done)
        self.assertIn("length=101", json.dumps(done))


class Buckets(Story):
    """Sizes that requests are filled up to."""
    BUCKETS = (8, 24, 80)

    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2", MAX_AXIS_SIZE="90")
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("words")
        cls.s.push(cls.key, "masked", masked(), buckets={"length": list(cls.BUCKETS)})
        cls.s.push(cls.key, "words", sentence(), buckets={"length": [16, 90]})

    def shapes(self):
        time.sleep(1.5)  # it is counted once a second
        return sum(v for k, v in self.s.metrics("executor-cpu0").items() if k.startswith("shunt_shapes{"))

    def ask(self, rows, masks):
        shape = [len(rows), len(rows[0])]
        inputs = [{"name": n, "datatype": "INT64", "shape": shape, "data": d} for n, d in (("ids", rows), ("mask", masks))]
        r = until("it answers", lambda: (r := self.s.infer(self.key, "masked", inputs)).status != 503 and r)
        self.assertEqual(r.status, 200, r)
        out = r.json["outputs"][0]
        self.assertEqual(out["shape"], [*shape, 2])
        for got, want in zip(out["data"], masked_wants(rows, masks), strict=True):
            self.assertAlmostEqual(got, want, places=5)
        return r

    @staticmethod
    def text(rng, length):
        n = rng.randint(1, 3)
        masks = [[1] * k + [0] * (length - k) for k in (rng.randint(1, length) for _ in range(n))]
        return [[rng.randrange(VOCAB) for _ in range(length)] for _ in range(n)], masks

    def test_answers_are_those_without_padding(self):
        """A size of 1 and one that is greater than all buckets run as they are."""
        rng = random.Random(1)
        for length in (1, 2, 7, 8, 9, 23, 24, 25, 79, 80, 81):
            self.ask(*self.text(rng, length))

    def test_a_mask_that_hides_all_of_a_sample_is_not_filled_up(self):
        """All scores are the same then, and the answer is a mean: of 5 rows, not of 8."""
        rows, masks = [[3, 9, 4, 1, 6], [7, 2, 1, 8, 5]], [[1, 1, 0, 1, 1], [0] * 5]
        data = [{"name": n, "datatype": "INT64", "shape": [2, 5], "data": d}
                for n, d in (("ids", rows), ("mask", masks))]
        r = until("it answers", lambda: (r := self.s.infer(self.key, "masked", data)).status != 503 and r)
        self.assertEqual(r.status, 200, r)
        mean = [sum(TABLE[2 * w + i] for w in rows[1]) / 5 for i in (0, 1)]
        want = masked_wants(rows[:1], masks[:1]) + mean * 5
        self.assertEqual(r.json["outputs"][0]["shape"], [2, 5, 2])
        for got, value in zip(r.json["outputs"][0]["data"], want, strict=True):
            self.assertAlmostEqual(got, value, places=5)

    def test_what_stays_in_its_place(self):
        for length in (2, 15, 16, 17, 89):
            rows = [[(i * 7 + length) % VOCAB for i in range(length)]] * 2
            r = self.s.infer(self.key, "words", [Shapes.ids(rows)])
            self.assertEqual(r.status, 200, r)
            y, m = sentence_wants(rows)
            got = {o["name"]: o for o in r.json["outputs"]}
            self.assertEqual((got["y"]["data"], got["m"]["data"]), (y, m))
            self.assertEqual(got["y"]["shape"], [2, length, 2])

    def test_binary_tensors_are_filled_up_and_cut_too(self):
        rows, masks = [[3, 9, 4], [7, 7, 1]], [[1, 1, 0], [1, 1, 1]]
        raw = [struct.pack("<6q", *(v for r in d for v in r)) for d in (rows, masks)]
        head = json.dumps({
            "inputs": [{"name": n, "datatype": "INT64", "shape": [2, 3], "parameters": {"binary_data_size": 48}}
                       for n in ("ids", "mask")],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
        r = self.s.call("POST", "/v2/models/masked/infer", head + b"".join(raw), self.key,
                        headers={"Inference-Header-Content-Length": str(len(head))})
        self.assertEqual(r.status, 200, r)
        n = int(r.headers["inference-header-content-length"])
        self.assertEqual(json.loads(r.raw[:n])["outputs"][0]["shape"], [2, 3, 2])
        self.assertEqual(len(r.raw) - n, 48)
        for got, want in zip(floats(r.raw, n, 12), masked_wants(rows, masks), strict=True):
            self.assertAlmostEqual(got, want, places=5)

    def test_few_shapes_are_compiled_and_unlike_lengths_run_together(self):
        rng, wrong = random.Random(2), []
        for length in self.BUCKETS:
            self.ask(*self.text(rng, length))
        before, runs = self.shapes(), self.runs()

        def client(seed):
            r = random.Random(seed)
            try:
                for _ in range(30):
                    self.ask(*self.text(r, r.randint(9, 24)))
            except AssertionError as e:
                wrong.append(e)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.shapes(), before)
        self.assertLess(self.runs() - runs, 8 * 30)
        padded = self.s.metrics("api")['shunt_requests_padded_total{tenant="words",model="masked"}']
        self.assertGreater(padded, 30)

    def test_buckets_are_compiled_before_anybody_asks(self):
        self.s.push(self.key, "warm", masked(), buckets={"length": [10, 20, 30]})
        time.sleep(1)  # nobody waits for them, so nobody is told
        for length in (5, 20, 21):
            inputs = [{"name": n, "datatype": "INT64", "shape": [1, length], "data": [1] * length}
                      for n in ("ids", "mask")]
            r = self.s.infer(self.key, "warm", inputs)
            self.assertEqual(r.status, 200, r)
            self.assertNotIn("compile;dur=", r.headers["server-timing"])

    def runs(self):
        return self.s.metrics("scheduler")['shunt_batch_size_count{model="masked"}']

    def test_a_version_says_its_buckets(self):
        v = self.s.call("GET", "/api/v1/models/masked/versions/1", key=self.key).json
        self.assertEqual(v["meta"]["buckets"], {"length": list(self.BUCKETS)})

    def test_where_it_may_change_answers_it_is_refused(self):
        r = self.s.push(self.key, "picture", picture(), ready=False, buckets={"h": [8, 16]})
        self.assertEqual(r.status, 422, r)
        self.assertIn("filled up along \"h\"", r.error)
        self.assertIn("Conv node f has a window that reaches over the end of the axis", r.error)
        v = self.s.call("GET", "/api/v1/models/picture/versions/1", key=self.key).json
        self.assertEqual((v["state"], v["reason_code"]), ("FAILED", "UNSUPPORTED"))

    def test_bad_buckets_are_mistakes_of_the_client(self):
        self.s.call("POST", "/api/v1/models", {"name": "bad"}, self.key)
        for buckets, part in ((5, "buckets"), ({"length": []}, "1 to 16"), ({"length": [8, 8]}, "must rise"),
                              ({"length": [1, 8]}, "must rise"), ({"length": [-4]}, "must rise"),
                              ({"length": [1 << 62]}, "must rise"), ({"length": ["8"]}, "must rise"),
                              ({"length": list(range(2, 19))}, "1 to 16"), ({"length": [91]}, "max-axis-size"),
                              ({str(i): [8] for i in range(9)}, "at most 8"), ({"x" * 64: [8]}, "63 bytes")):
            r = self.s.call("POST", "/api/v1/models/bad/versions", {"buckets": buckets}, self.key)
            self.assertEqual(r.status, 400, (buckets, r))
            self.assertIn(part, r.error)
        r = self.s.push(self.key, "bad", masked(), ready=False, buckets={"width": [8]})
        self.assertEqual(r.status, 400, r)
        self.assertIn('"width"', r.error)
        self.assertIn("length", r.error)

    def test_by_the_command(self):
        path = os.path.join(self.s.dir, "masked.onnx")
        with open(path, "wb") as f:
            f.write(masked())
        env = {**self.s.env, "SHUNT_KEY": self.key}

        def push(*more):
            return subprocess.run([os.path.join(BIN, "shunt"), "push", "model", "typed", path, "--server",
                                   "http://127.0.0.1:%d" % self.s.port, *more], text=True, timeout=180, env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

        for bad in ("length", "=4", "length=4,x", "length=4,,8"):
            r = push("--buckets", bad)
            self.assertEqual(r.returncode, 2, r)
            self.assertIn("AXIS=SIZE", r.stdout)
        r = push("--buckets", "length=4,32", "--wait")
        self.assertEqual(r.returncode, 0, r)
        self.assertIn("Requests are filled up along length to 4, 32.", r.stdout)
        v = self.s.call("GET", "/api/v1/models/typed/versions/1", key=self.key).json
        self.assertEqual(v["meta"]["buckets"], {"length": [4, 32]})


class Flood(Story):
    """A tenant that asks for many shapes, and one that asks for few."""
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2", MODEL_SHAPES="16", MAX_AXIS_SIZE="100000")
        cls.addClassCleanup(cls.s.stop)
        cls.flood, cls.calm = cls.s.tenant("flood"), cls.s.tenant("calm")
        for key in (cls.flood, cls.calm):
            cls.s.push(key, "m", onnx.model(
                [onnx.node("Relu", ["x"], ["y"])], [onnx.value("x", ["N", "length"])],
                [onnx.value("y", ["N", "length"])]))
            until("it answers", lambda key=key: cls.ask(key, 3).status == 200)

    @classmethod
    def ask(cls, key, length):
        return cls.s.infer(key, "m", [{"name": "x", "datatype": "FP32", "shape": [1, length], "data": [1.0] * length}])

    def test_the_other_one_waits_for_its_own_shapes_alone(self):
        over, asked, wrong = threading.Event(), [], []

        def flood(seed):
            rng = random.Random(seed)
            while not over.is_set():
                r = self.ask(self.flood, rng.randint(2, 3000))
                asked.append(r.status)
                if r.status not in (200, 429, 503):
                    wrong.append(r)

        threads = [threading.Thread(target=flood, args=(i,)) for i in range(24)]
        for t in threads:
            t.start()
        until("it floods", lambda: len(asked) > 50)
        took = []
        for i in range(20):
            begin = time.monotonic()
            r = self.ask(self.calm, 7 if i % 2 else 1000 + i)
            took.append(time.monotonic() - begin)
            self.assertEqual(r.status, 200, r)
            if i > 1 and i % 2:  # its shapes were not pushed out
                self.assertNotIn("compile;dur=", r.headers["server-timing"])
        over.set()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertLess(sorted(took)[-3], 5.0, took)
        time.sleep(1.5)
        m = self.s.metrics("executor-cpu0")
        self.assertLessEqual(sum(v for k, v in m.items() if k.startswith("shunt_shapes{")), 2 * 16)

    def test_shapes_that_no_memory_holds_are_refused(self):
        """2^62 and more by product, a size that is none, one at the limit and one above it."""
        self.s.push(self.calm, "square", onnx.model(
            [onnx.node("Relu", ["x"], ["y"])], [onnx.value("x", ["N", "a", "b", "c", "d"])],
            [onnx.value("y", ["N", "a", "b", "c", "d"])]), max_batch=1)
        for shape, status in (([1, 100000, 100000, 100000, 100000], 413), ([1, 1 << 62, 1, 1, 1], 400),
                              ([1, 100001, 1, 1, 1], 400), ([1, -1, 1, 1, 1], 400), ([1, 0, 1, 1, 1], 400),
                              ([1, 1 << 64, 1, 1, 1], 400), ([1, 1, 1, 1, 100000], 200)):
            n = 100000 if status == 200 else 1
            r = self.s.infer(self.calm, "square", [{"name": "x", "datatype": "FP32", "shape": shape, "data": [1.0] * n}])
            self.assertEqual(r.status, status, (shape, r))
        r = self.ask(self.calm, 4)
        self.assertEqual(r.status, 200, r)


class LittleMemory(Story):
    """Room for a version with a large image, and for few shapes beside it."""
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2", MODEL_HOST_BYTES="10M")
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("vision")
        width = 600
        cls.s.push(cls.key, "wide", onnx.model(
            [onnx.node("MatMul", ["x", "w"], ["y"])], [onnx.value("x", ["batch", "length", width])],
            [onnx.value("y", ["batch", "length", width])],
            [onnx.tensor("w", [width, width], [], raw=struct.pack("<f", 0.5) * width * width)]), max_batch=4)
        until("it answers", lambda: cls.ask(1).status == 200)

    @classmethod
    def ask(cls, length):
        return cls.s.infer(cls.key, "wide", [{"name": "x", "datatype": "FP32", "shape": [1, length, 600],
                                              "data": [1.0] * (600 * length)}])

    def test_shapes_make_room_for_each_other(self):
        for length in range(2, 40):
            r = self.ask(length)
            self.assertEqual(r.status, 200, r)
            self.assertEqual(r.json["outputs"][0]["data"], [300.0] * (600 * length))


if __name__ == "__main__":
    unittest.main()
