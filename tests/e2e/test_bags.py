#!/usr/bin/env python3
"""Bags as PyTorch exports nn.EmbeddingBag: a loop over bags, and where one id is padding another over ids.

Without it: thousands of bags would be too many nodes, and a model with padding could not be trained; or a
bag could get the rows of another, or what is padding.

The loops are written as the exporter writes them, and run beside sums by NumPy.

Usage: test_bags.py [-v] [name ...]
DEVICE names another device than cpu.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnx.parser  # noqa: E402
from system import BIN  # noqa: E402
from test_node_tests import NUMPY, Tensor, read_st, write_st  # noqa: E402

DEVICE = os.environ.get("DEVICE") or "cpu"
KINDS = {np.dtype(v): k for k, v in NUMPY.items() if k != "BF16"}
ROWS, WIDTH, LR = 9, 3, 0.5
# ids, and where each bag begins; begins: as many bags as lines of ids, or a list
EVEN = """
    at0 = Shape<start = 0, end = 1>(ids)
    bags = Squeeze(at0)
    zero = Constant<value_int = 0>()
    wide = Constant<value_int = %d>()
    all = Mul(bags, wide)
    begins = Range(zero, all, wide)
"""
GIVEN = """
    zero = Constant<value_int = 0>()
    begins = Constant<value_ints = [%s]>()
"""
BOTH = """
    last = Constant<value_ints = [-1]>()
    one = Constant<value_int = 1>()
    two = Constant<value_int = 2>()
    first = Constant<value_ints = [0]>()
    flat = Reshape(ids, last)
    rows = Gather(table, flat)
    n0 = Size(flat)
    n = Reshape(n0, last)
    n_bags = Size(begins)
    offsets = Concat<axis = 0>(begins, n)
    none = SequenceEmpty()
    any = Less(zero, n_bags)
"""
PLAIN = """
    all_bags, i_end = Loop(, any, none, zero) <body = turn (int64 t, bool go, seq(float[1, d]) s, int64 i) =>
            (bool more, seq(float[1, d]) s2, int64 next) {
        k = Reshape(i, last)
        k1 = CastLike(one, k)
        k2 = Add(k, k1)
        from = Slice(offsets, k, k2)
        k3 = CastLike(one, k)
        k4 = Add(k, k3)
        k5 = CastLike(two, k)
        k6 = Add(k, k5)
        to = Slice(offsets, k4, k6)
        is_empty = Equal(from, to)
        row = If(is_empty) <
            then_branch = nothing () => (float[1, d] r0) { r0 = Constant<value = float[1, 3] {0, 0, 0}>() },
            else_branch = some () => (float[1, d] r1) { %s }>
        s2 = SequenceInsert(s, row)
        i1 = CastLike(one, i)
        next = Add(i, i1)
        more = Less(next, n_bags)
    }>
    bag = ConcatFromSequence<axis = 0>(all_bags)
"""
PADDED = """
    nothing_yet = Constant<value = int64[0] {}>()
    padding = Constant<value_int = %d>()
    size = Constant<value_int = 9>()
    all_bags, i_end = Loop(, any, none, zero) <body = turn (int64 t, bool go, seq(float[1, d]) s, int64 i) =>
            (bool more, seq(float[1, d]) s2, int64 next) {
        from = Gather(offsets, i)
        k1 = CastLike(one, i)
        k2 = Add(i, k1)
        to = Gather(offsets, k2)
        any_id = Less(from, to)
        j_end, found = Loop(, any_id, from, nothing_yet) <body = id (int64 u, bool on, int64 j, int64[m] list) =>
                (bool on2, int64 j2, int64[m2] list2) {
            x = Gather(flat, j)
            x0 = CastLike(zero, x)
            is_back = Less(x, x0)
            y = If(is_back) <then_branch = a () => (int64 ya) { ya = Add(x, size) },
                             else_branch = b () => (int64 yb) { yb = Identity(x) }>
            is_pad = Equal(y, padding)
            counts = Not(is_pad)
            list2 = If(counts) <
                then_branch = c () => (int64[m2] la) { j1 = Reshape(j, last)
                                                       la = Concat<axis = 0>(list, j1) },
                else_branch = e () => (int64[m2] lb) { lb = Identity(list) }>
            j3 = CastLike(one, j)
            j2 = Add(j, j3)
            on2 = Less(j2, to)
        }>
        how_many = Size(found)
        h0 = CastLike(zero, how_many)
        is_empty = Equal(how_many, h0)
        row = If(is_empty) <
            then_branch = nothing () => (float[1, d] r0) { r0 = Constant<value = float[1, 3] {0, 0, 0}>() },
            else_branch = some () => (float[1, d] r1) { w = Gather(rows, found)
                                                        r1 = %s(w, first) }>
        s2 = SequenceInsert(s, row)
        i1 = CastLike(one, i)
        next = Add(i, i1)
        more = Less(next, n_bags)
    }>
    bag = ConcatFromSequence<axis = 0>(all_bags)
"""
SUM = "w = Slice(rows, from, to)\n r1 = ReduceSum(w, first)"
MEAN = """
    w = Slice(rows, from, to)
    before = Sub(n_bags, one)
    is_last = Equal(i, before)
    r1 = If(is_last) <
        then_branch = f () => (float[1, d] ra) {
            s0 = ReduceSum(w, first)
            h = Shape<start = 0, end = 1>(flat)
            left = Sub(h, from)
            l0 = CastLike(zero, left)
            is_any = Greater(left, l0)
            ra = If(is_any) <
                then_branch = p () => (float[1, d] rp) { lf = Cast<to = 1>(left)
                                                         rp = Div(s0, lf) },
                else_branch = q () => (float[1, d] rq) { rq = Identity(s0) }> },
        else_branch = g () => (float[1, d] rb) { rb = ReduceMean(w, first) }>
"""
# Of all models that look so, the exporter's take the last bag (all - 1) to the end of the rows.
MAX = """
    all = Constant<value_int = %d>()
    before = Sub(all, one)
    is_last = Equal(i, before)
    end = Constant<value_ints = [%d]>()
    w = If(is_last) <
        then_branch = f () => (float[m, d] wa) { wa = Slice(rows, from, end) },
        else_branch = g () => (float[m, d] wb) { wb = Slice(rows, from, to) }>
    r1 = ReduceMax(w, first)
"""
# The exporter puts what a loop carries into any order.
OTHER_ORDER = [[("all_bags, i_end = Loop(, any, none, zero)", "i_end, all_bags = Loop(, any, zero, none)"),
                ("seq(float[1, d]) s, int64 i)", "int64 i, seq(float[1, d]) s)"),
                ("seq(float[1, d]) s2, int64 next)", "int64 next, seq(float[1, d]) s2)")],
               [("j_end, found = Loop(, any_id, from, nothing_yet)", "found, j_end = Loop(, any_id, nothing_yet, from)"),
                ("int64 j, int64[m] list)", "int64[m] list, int64 j)"),
                ("int64 j2, int64[m2] list2)", "int64[m2] list2, int64 j2)")]]
NUMPY_OF = {"sum": np.sum, "mean": np.mean, "max": np.max}
REDUCE = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}


def model_of(shape, begins, loop):
    head = '<ir_version: 8, opset_import: ["" : 18]> g (int64[%s] ids) => (float[b, 3] bag)\n' \
           '<float[9, 3] table = {%s}> {\n%s\n}'
    rng = np.random.default_rng(5)
    table = ", ".join("%.3f" % v for v in rng.normal(size=ROWS * WIDTH))
    return onnx.parser.parse_model(head % (shape, table, begins + BOTH + loop))


def orders(loop):
    for swaps in ([], OTHER_ORDER[0], OTHER_ORDER[1], OTHER_ORDER[0] + OTHER_ORDER[1]):
        text = loop
        for a, b in swaps:
            text = text.replace(a, b)
        yield text


def table_of(model):
    return onnx.numpy_helper.to_array(model.graph.initializer[0])


def bags_by_numpy(table, ids, offsets, mode, padding=None):
    out = np.zeros((len(offsets) - 1, WIDTH), np.float32)
    for b, (i, k) in enumerate(zip(offsets, offsets[1:])):
        mine = ids.ravel()[i:k] % ROWS
        mine = mine[mine != padding] if padding is not None else mine
        if len(mine):
            out[b] = NUMPY_OF[mode](table[mine], 0)
    return out


class Bags(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="shunt-e2e.")
        self.addCleanup(folder.cleanup)
        self.dir = folder.name

    def path(self, name):
        return os.path.join(self.dir, name)

    def shunt_run(self, what, model, tensors, *options):
        onnx.save(model, self.path("m.onnx"))
        write_st(self.path("in.st"), {k: Tensor(KINDS[v.dtype], v) for k, v in tensors.items()})
        r = subprocess.run([os.path.join(BIN, "shunt-run"), what, "--model", self.path("m.onnx"), "--device", DEVICE,
                            "--inputs", self.path("in.st"), *options], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        self.assertEqual(r.returncode, 0, r.stdout)

    def same(self, model, ids, offsets, mode, padding=None):
        self.shunt_run("infer", model, {"ids": ids}, "--outputs", self.path("out.st"))
        got = read_st(self.path("out.st"))["bag"].array
        want = bags_by_numpy(table_of(model), ids, offsets, mode, padding)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)

    def test_lines_of_ids(self):
        rng = np.random.default_rng(1)
        for mode in REDUCE:
            for padding in (0, 4, 8):
                model = model_of("b, 5", EVEN % 5, PADDED % (padding, REDUCE[mode]))
                for n in (1, 2, 6):
                    ids = rng.integers(-ROWS, ROWS, (n, 5))
                    ids[0] = [padding, padding - ROWS, padding, padding, padding]  # nothing but padding
                    with self.subTest(mode, padding=padding, n=n):
                        self.same(model, ids, np.arange(0, 5 * n + 1, 5), mode, padding)

    def test_bags_of_any_length(self):
        ids = np.random.default_rng(2).integers(0, ROWS, 11)
        for begins in ([0, 2, 2, 7], [0, 0, 1], [0], [0, 3, 11]):
            offsets, given = begins + [11], GIVEN % ", ".join(map(str, begins))
            for mode, loop in (("sum", PLAIN % SUM), ("mean", PLAIN % MEAN)):
                with self.subTest(mode, begins=begins):
                    self.same(model_of("11", given, loop), ids, offsets, mode)
            for mode in REDUCE:
                with self.subTest(mode, begins=begins, padded=True):
                    self.same(model_of("11", given, PADDED % (3, REDUCE[mode])), ids, offsets, mode, 3)

    def test_another_bag_than_the_last_may_go_to_the_end(self):
        ids, given = np.random.default_rng(4).integers(0, ROWS, 11), GIVEN % "0, 2, 7"
        self.same(model_of("11", given, PLAIN % (MAX % (3, 11))), ids, [0, 2, 7, 11], "max")
        for which, end, offsets in ((2, 11, [(0, 2), (2, 11), (7, 11)]), (3, 9, [(0, 2), (2, 7), (7, 9)]),
                                    (1, 1, [(0, 1), (2, 7), (7, 11)])):
            model = model_of("11", given, PLAIN % (MAX % (which, end)))
            want = np.stack([table_of(model)[ids[i:k]].max(0) for i, k in offsets])
            with self.subTest(which=which, end=end):
                self.shunt_run("infer", model, {"ids": ids}, "--outputs", self.path("out.st"))
                np.testing.assert_allclose(read_st(self.path("out.st"))["bag"].array, want, rtol=1e-6)

    def test_thousands_of_bags(self):
        ids = np.random.default_rng(3).integers(0, ROWS, (5000, 4))
        for loop in orders(PLAIN % MEAN):
            self.same(model_of("b, 4", EVEN % 4, loop), ids, np.arange(0, 20001, 4), "mean")

    def test_a_step_of_training_leaves_padding_as_it_is(self):
        for order, loop in enumerate(orders(PADDED % (0, "ReduceSum"))):
            with self.subTest(order=order):
                self.trains(model_of("b, 4", EVEN % 4, loop))

    def trains(self, model):
        ids, label = np.array([[1, 0, 1, 2], [0, 0, 0, 0], [3, 4, 5, 0]]), np.ones((3, WIDTH), np.float32)
        self.shunt_run("train", model, {"ids": ids, "label": label}, "--labels", "label", "--loss", "mse", "--lr",
                       str(LR), "--steps", "2", "--losses", self.path("losses.json"))
        table, want = table_of(model).astype(np.float64).copy(), []
        for _ in range(2):
            off = bags_by_numpy(table, ids, [0, 4, 8, 12], "sum", 0).astype(np.float64) - label
            want.append((off ** 2).mean())
            for b, line in enumerate(ids):
                for i in line[line != 0]:
                    table[i] -= LR * 2 * off[b] / off.size
        with open(self.path("losses.json"), encoding="utf-8") as f:
            np.testing.assert_allclose(json.load(f), want, rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
