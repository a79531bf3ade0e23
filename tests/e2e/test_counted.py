#!/usr/bin/env python3
"""Results whose size the data decide: NonZero, Compress, Unique, NonMaxSuppression, and what follows them.

Without it: an answer could hold boxes that are not there, those of another request, or a number that what
is undefined behind the last box got into; or a model that cuts boxes would be refused.

Each of RULES is a small graph behind one of these operators, run by shunt-run and by onnx's reference on
inputs that leave nothing, something and everything. Detector is served: requests get as many boxes as they
have.

Usage: test_counted.py [-v] [name ...]
DEVICE names another device than cpu.
"""
import json
import os
import struct
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages  # noqa: E402
packages.enter(__file__)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnx.parser  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from system import BIN, Story, System  # noqa: E402
from test_node_tests import NUMPY, Tensor, read_st, write_st  # noqa: E402

DEVICE = os.environ.get("DEVICE") or "cpu"
KINDS = {np.dtype(v): k for k, v in NUMPY.items() if k != "BF16"}
N, SEEDS = 12, 4
HEAD = '<ir_version: 8, opset_import: ["" : 18]> g (float[%d, 4] x, float[%d] s) => (%%s) {\n%%s\n}' % (N, N)
# m: which rows there are; i [n]: their numbers; y [n, 4], t [n]: they; n of them
ROWS = """
    m = Greater(s, half)
    at = NonZero(m)
    ax0 = Constant<value_ints = [0]>()
    i = Squeeze(at, ax0)
    y = Gather<axis = 0>(x, i)
    t = Gather<axis = 0>(s, i)
"""
# name: outputs, nodes behind ROWS
RULES = {
    "rows": ("float[n, 4] y, int64[n] i, int64[1, n] at", ""),
    "each": ("float[n, 4] z", "u = Sigmoid(y)\n ax1 = Constant<value_ints = [1]>()\n"
             "v = Unsqueeze(t, ax1)\n z = Mul(u, v)"),
    "two_masks_alike": ("float[n, 4] z", "m2 = Greater(s, half)\n at2 = NonZero(m2)\n i2 = Squeeze(at2, ax0)\n"
                        "y2 = Gather<axis = 0>(x, i2)\n z = Add(y, y2)"),
    "sums": ("float[1, 4] a, float[4] b, float[n] c, float d, float[1] e, float[4] f, float[n, 1] g",
             "a = ReduceSum(y, ax0)\n b = ReduceMax<keepdims = 0>(y, ax0)\n one = Constant<value_ints = [1]>()\n"
             "c = ReduceMean<keepdims = 0>(y, one)\n d = ReduceProd<keepdims = 0>(t)\n e = ReduceMin(t, ax0)\n"
             "f = ReduceMean<keepdims = 0>(y, ax0)\n g = ReduceL2(y, one)"),
    "norms": ("float[n] a, float[n, 4] b", "a = Softmax<axis = 0>(t)\n b = Softmax<axis = 1>(y)"),
    "running_sums": ("float[n, 4] a, float[n] b", "zero = Constant<value_int = 0>()\n a = CumSum(y, zero)\n"
                     "b = CumSum<reverse = 1>(t, zero)"),
    "best": ("float[k] a, int64[k] b, float[k, 4] c",
             "three = Constant<value_ints = [3]>()\n shape = Shape(t)\n both = Concat<axis = 0>(three, shape)\n"
             "few = ReduceMin<keepdims = 0>(both)\n k = Reshape(few, minus)\n"
             "a, b = TopK<axis = 0>(t, k)\n c = Gather<axis = 0>(y, b)"),
    "worst": ("float[n] a, int64[n] b", "k = Shape(t)\n a, b = TopK<axis = 0, largest = 0>(t, k)"),
    "where_is_the_best": ("int64 a, int64[1, 4] b", "a = ArgMax<axis = 0, keepdims = 0>(t)\n b = ArgMin<axis = 0>(y)"),
    "cut": ("float[k, 4] a, float[l, 4] b, float[n, 2] c, float[q] d",
            "zero = Constant<value_ints = [0]>()\n two = Constant<value_ints = [2]>()\n one = Constant<value_ints = [1]>()\n"
            "far = Constant<value_ints = [9223372036854775807]>()\n a = Slice(y, zero, two, zero)\n"
            "b = Slice(y, one, far, zero)\n c = Slice(y, one, minus_list, one)\n d = Slice(t, zero, minus_list, zero)"),
    "joined": ("float[k, 4] a, float[l] b, float[p, 4] c, float[n, 5] d",
               "low = Not(m)\n at2 = NonZero(low)\n i2 = Squeeze(at2, ax0)\n y2 = Gather<axis = 0>(x, i2)\n"
               "t2 = Gather<axis = 0>(s, i2)\n a = Concat<axis = 0>(y, y2, y)\n b = Concat<axis = 0>(t, t2, t)\n"
               "c = Concat<axis = 0>(x, y)\n one = Constant<value_ints = [1]>()\n v = Unsqueeze(t, one)\n"
               "d = Concat<axis = 1>(y, v)"),
    "views": ("float[p] a, float[2, q] b, float[n, 2, 2] c, float[4, n] d, float[1, n, 4] e, float[n, 4] f, float[n, 4] g",
              "a = Reshape(y, minus)\n tr = Transpose<perm = [1, 0]>(y)\n d = Identity(tr)\n"
              "pair = Constant<value_ints = [0, 2, 2]>()\n c = Reshape(y, pair)\n e = Unsqueeze(y, ax0)\n"
              "four = Constant<value_ints = [-1, 4]>()\n f = Reshape(a, four)\n"
              "size = Shape<start = 0, end = 1>(t)\n cols = Constant<value_ints = [4]>()\n"
              "target = Concat<axis = 0>(size, cols)\n g = Reshape(a, target)\n"
              "rows = Constant<value_ints = [0, 1]>()\n two = Gather<axis = 0>(tr, rows)\n b = Identity(two)"),
    "sizes_as_data": ("int64[2] a, int64 b, float[n] c, float d",
                      "a = Shape(y)\n b = Size(y)\n f = Cast<to = 1>(b)\n d = Sqrt(f)\n zero = Constant<value_int = 0>()\n"
                      "l = Gather<axis = 0>(a, zero)\n one = Constant<value_int = 1>()\n r = Range(zero, l, one)\n"
                      "c = Cast<to = 1>(r)"),
    "made": ("float[n, 3] a, float[n, 4] b, float[n, 2] c",
             "size = Shape<start = 0, end = 1>(t)\n three = Constant<value_ints = [3]>()\n"
             "shape = Concat<axis = 0>(size, three)\n a = ConstantOfShape<value = float[1] {7.5}>(shape)\n"
             "four = Constant<value_ints = [4]>()\n whole = Concat<axis = 0>(size, four)\n one = Constant<value_ints = [1]>()\n"
             "v = Unsqueeze(t, one)\n b = Expand(v, whole)\n ones = Constant<value_ints = [1, 2]>()\n c = Expand(v, ones)"),
    "written": ("float[%d, 4] a, float[%d] b, float[n] c" % (N, N),
                "z = Neg(y)\n one = Constant<value_ints = [1]>()\n at_i = Unsqueeze(i, one)\n a = ScatterND(x, at_i, z)\n"
                "w = Neg(t)\n b = ScatterElements<axis = 0>(s, i, w)\n size = Shape(t)\n zeros = ConstantOfShape(size)\n"
                "order = CumSum(i_ones, zero)\n at_o = Sub(order, one_i)\n c = ScatterElements<axis = 0>(zeros, at_o, t)\n"
                .replace("order =", "zero = Constant<value_int = 0>()\n one_i = Constant<value_int = 1>()\n"
                         "i0 = Mul(i, zero)\n i_ones = Add(i0, one_i)\n order =")),
    "again": ("float[k, 4] a, float[l] b, int64[1, k] c",
              "high = Constant<value_float = 0.8>()\n m2 = Greater(t, high)\n c = NonZero(m2)\n j = Squeeze(c, ax0)\n"
              "a = Gather<axis = 0>(y, j)\n few = Greater(t, high)\n b = Compress<axis = 0>(t, few)"),
    "products": ("float[n, 3] a, float[n, 3] b, float[3, n] c",
                 "w = Constant<value = float[4, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>()\n a = MatMul(y, w)\n"
                 "v = Constant<value = float[3] {1, 2, 3}>()\n b = Gemm(y, w, v)\n wt = Transpose<perm = [1, 0]>(w)\n"
                 "yt = Transpose<perm = [1, 0]>(y)\n c = MatMul(wt, yt)"),
    "pictures": ("float[n, 2, 2, 2] a", "shape = Constant<value_ints = [0, 1, 2, 2]>()\n p = Reshape(y, shape)\n"
                 "w = Constant<value = float[2, 1, 1, 1] {2, -1}>()\n a = Conv(p, w)"),
    "by_pairs": ("float[n] a, float[n, 4] b",
                 "one = Constant<value_ints = [1]>()\n col = Unsqueeze(i, one)\n zero = Constant<value_int = 0>()\n"
                 "z = Mul(col, zero)\n pair = Concat<axis = 1>(col, z)\n a = GatherND(x, pair)\n"
                 "four = Constant<value_ints = [1, 4]>()\n wide = Expand(col, four)\n b = GatherElements<axis = 0>(x, wide)"),
    "distinct": ("float[k] a, int64[k] b, int64[n] c, int64[k] d",
                 "ten = Constant<value_float = 10.0>()\n u = Mul(t, ten)\n r = Floor(u)\n a, b, c, d = Unique(r)"),
    "distinct_in_order": ("float[k] a, int64[k] b, int64[%d] c, int64[k] d" % N,
                          "ten = Constant<value_float = 10.0>()\n u = Mul(s, ten)\n r = Floor(u)\n"
                          "a, b, c, d = Unique<sorted = 0>(r)"),
    "boxes": ("int64[k, 3] a, float[k, 4] b",
              "bx = Unsqueeze(y, ax0)\n two = Constant<value_ints = [0, 1]>()\n sc = Unsqueeze(t, two)\n"
              "most = Constant<value_ints = [5]>()\n iou = Constant<value_floats = [0.3]>()\n"
              "thr = Constant<value_floats = [0.55]>()\n a = NonMaxSuppression(bx, sc, most, iou, thr)\n"
              "col = Constant<value_int = 2>()\n j = Gather<axis = 1>(a, col)\n b = Gather<axis = 0>(y, j)"),
    "branches": ("float[k, 4] a",
                 "n = Size(t)\n zero = Constant<value_int = 3>()\n c = Greater(n, zero)\n"
                 "a = If(c) <then_branch = g1 () => (float[k, 4] p) { p = Neg(y) }, "
                 "else_branch = g2 () => (float[q, 4] q) { q = Identity(x) }>"),
    "parts": ("float[k, 2] a, float[l, 2] b, float[p] c, float[q] d",
              "a, b = Split<axis = 1, num_outputs = 2>(y)\n size = Shape(t)\n low = Not(m)\n at2 = NonZero(low)\n"
              "i2 = Squeeze(at2, ax0)\n t2 = Gather<axis = 0>(s, i2)\n size2 = Shape(t2)\n all = Concat<axis = 0>(t, t2)\n"
              "sizes = Concat<axis = 0>(size, size2)\n c, d = Split<axis = 0>(all, sizes)"),
    "parts_of_computed_sizes": ("float[n, 4] a, float[l, 4] b, float[%d, 4] c, float[p, 4] d, float[%d, 4] e" % (N, N),
                                "o = Cast<to = 7>(m)\n k = ReduceSum(o, ax0)\n all = Constant<value_ints = [%d]>()\n"
                                "r = Sub(all, k)\n sizes = Concat<axis = 0>(k, r)\n a, b = Split<axis = 0>(x, sizes)\n"
                                "na = Neg(a)\n c = Concat<axis = 0>(na, b)\n d = Concat<axis = 0>(b, a)\n"
                                "e = Add(c, x)" % N),
    "padded": ("float[n, 7] a", "pads = Constant<value_ints = [0, 1, 0, 2]>()\n a = Pad(y, pads, half)"),
}
REFUSED = {
    "lengths_that_may_differ": ("float[n, 4] z", "low = Not(m)\n at2 = NonZero(low)\n i2 = Squeeze(at2, ax0)\n"
                                "y2 = Gather<axis = 0>(x, i2)\n z = Add(y, y2)", "that they are alike is not known"),
    "a_fixed_place": ("float[4] z", "zero = Constant<value_int = 0>()\n z = Gather<axis = 0>(y, zero)",
                      "takes a fixed place"),
    "the_last_ones": ("float[n, 4] z", "from = Constant<value_ints = [-2]>()\n to = Constant<value_ints = [100]>()\n"
                      "z = Slice(y, from, to, ax0)", "only the first"),
    "two_at_once": ("float[n, n] z", "one = Constant<value_ints = [1]>()\n a = Unsqueeze(t, one)\n b = Unsqueeze(t, ax0)\n"
                    "z = Mul(a, b)", "that they are alike is not known"),
    "an_operator_without_a_rule": ("float[n, 4] z", "r = Constant<value_ints = [2, 1]>()\n z = Tile(y, r)",
                                   "does not work with an axis"),
    "padded_along_it": ("float[m, 4] z", "pads = Constant<value_ints = [0, 0, 1, 0]>()\n z = Pad(y, pads, half)",
                        "does not work with an axis"),
    "padded_along_it_by_name": ("float[m, 4] z", "pads = Constant<value_ints = [1, 0]>()\n"
                                "z = Pad(y, pads, half, ax0)", "does not work with an axis"),
    "parts_larger_than_the_axis": ("float[n, 4] z", "sizes = Constant<value_ints = [9223372036854775807, 2]>()\n"
                                   "a, b = Split<axis = 0>(y, sizes)\n z = Concat<axis = 0>(b, a)",
                                   "does not work with an axis"),
    "parts_of_which_nothing_can_be_nan": ("int64[1] z", "sizes = Constant<value_ints = [2, 1]>()\n"
                                          "a, z = Split<axis = 0>(i, sizes)", "no output is of floats"),
}


SCATTERED = 'y{k} = ScatterND<reduction = "add">(y{i}, j{i}, m{i})\n'
# as an exporter writes index_add_
ADDED = """
    l{i} = Slice(y{i}, ax0, one, ax0)
    h{i} = Shape<start = 1>(l{i})
    k{i} = Concat<axis = 0>(minus, h{i})
    u{i} = Reshape(m{i}, k{i})
    d{i} = Shape(u{i})
    f{i} = Expand(j{i}, d{i})
    o{i} = Constant<value = float[%d, 4] {{%s}}>()
    v{i} = ScatterElements<axis = 0, reduction = "add">(o{i}, f{i}, u{i})
    y{k} = Add(y{i}, v{i})
""" % (N, ", ".join("0" * 4 * N))


# What torchvision does with each box that it finds, as PyTorch's older exporter writes it: a mask is put on a picture
# of 20 by 24, the best place of each of 17 maps is found.
def loop(name):
    with open(os.path.join(HERE, "loops", name + ".txt"), encoding="utf-8") as f:
        return f.read()


# lo, hi [n, 2]: the corners of boxes, some of them beyond the picture; size: of what is in maps [n, size, ...]
BOXES = '''
    zeros = Constant<value_ints = [0]>()
    ones = Constant<value_ints = [1]>()
    twos = Constant<value_ints = [2]>()
    fours = Constant<value_ints = [4]>()
    c0 = Slice(y, zeros, twos, ones)
    wide = Constant<value_floats = [22.0, 18.5]>()
    c = Mul(c0, wide)
    e0 = Slice(y, twos, fours, ones)
    nine = Constant<value_float = 9.3>()
    e = Mul(e0, nine)
    lo = Sub(c, e)
    hi = Add(c, e)
    from = Constant<value_float = 0.0>()
    step = Constant<value_float = 1.0>()
    to = Constant<value_float = %d.0>()
    ramp0 = Range(from, to, step)
    slope = Mul(c0, nine)
    first = Slice(slope, zeros, ones, ones)
    second = Slice(slope, ones, twos, ones)
    ramp = Mul(ramp0, first)
    waves = Add(ramp, second)
    wave = Sin(waves)
    shape = Constant<value_ints = [0, %d, %d, %d]>()
    maps = Reshape(wave, shape)
    rows = Shape(maps)
    zero = Constant<value_int = 0>()
    count = Gather<axis = 0>(rows, zero)
'''
RULES["masks"] = ("float[n, 20, 24] z", BOXES % (25, 1, 5, 5) + '''
    corners = Concat<axis = 1>(lo, hi)
    places = Cast<to = 7>(corners)
    none_shape = Constant<value_ints = [0, 20, 24]>()
    none = ConstantOfShape(none_shape)
''' + loop("masks") + "z = Identity(v186)")
RULES["keypoints"] = ("float[n, 3, 17] a, float[n, 17] b", BOXES % (17 * 36, 17, 6, 6) + '''
    most = Constant<value_float = 31.5>()
    lo1 = Max(lo, from)
    hi1 = Min(hi, most)
    size = Sub(hi1, lo1)
    x0 = Gather<axis = 1>(size, zero)
    one = Constant<value_int = 1>()
    y0 = Gather<axis = 1>(size, one)
    e3 = Clip(x0, step)
    e4 = Clip(y0, step)
    e1 = Ceil(e3)
    e2 = Ceil(e4)
    e5 = Gather<axis = 1>(lo1, zero)
    e6 = Gather<axis = 1>(lo1, one)
    e0m = Identity(maps)
    e7 = Gather<axis = 0>(rows, one)
    none_shape = Constant<value_ints = [0, 3, 17]>()
    none = ConstantOfShape(none_shape)
    no_shape = Constant<value_ints = [0, 17]>()
    no_scores = ConstantOfShape(no_shape)
''' + loop("keypoints").replace("e0", "e0m") + "a = Identity(v119)\n b = Identity(v120)")
RULES["products_of_each"] = (
    "float[n, 2, 2] a, float[n, 2, 3] b",
    "shape = Constant<value_ints = [0, 2, 2]>()\n p = Reshape(y, shape)\n q = Neg(p)\n a = MatMul(p, q)\n"
    "w = Constant<value = float[2, 3] {1, 2, 3, 4, 5, 6}>()\n b = MatMul(p, w)")
# x[m] = v, as PyTorch's newer exporter writes it: v is of one row, or has those that there are.
def put(v, mask="[3, 4]", x="[3, 4, 4]", behind="[-1]", cover="[3, 4, 4]", rest="[4]"):
    """behind, cover: the axes that the mask gets for NonZero, and its sizes then; rest: sizes to which a row is expanded."""
    return '''
    v = %s
    last = Constant<value_ints = [-1]>()
    pages = Constant<value_ints = %s>()
    x3 = Reshape(x, pages)
    lines = Constant<value_ints = %s>()
    of_mask = ReduceProd<keepdims = 1>(lines)
    begin = Constant<value_ints = [0]>()
    some = Slice(m, begin, of_mask)
    m3 = Reshape(some, lines)
    behind = Constant<value_ints = %s>()
    m0 = Unsqueeze(m3, behind)
    cover = Constant<value_ints = %s>()
    m1 = Expand(m0, cover)
    at1 = NonZero(m1)
    rows = Transpose<perm = [1, 0]>(at1)
    flat = Reshape(m3, last)
    ints = Cast<to = 7>(flat)
    found = ReduceSum(ints)
    rest = Constant<value_ints = %s>()
    size = Concat<axis = 0>(found, rest)
    v1 = Expand(v, size)
    v2 = Reshape(v1, last)
    a = ScatterND(x3, rows, v2)
''' % (v, x, mask, behind, cover, rest)


ROW = "Constant<value_floats = [7.0, 8.0, 9.0, 10.0]>()"
PAIR = "Constant<value = float[2, 1] {7, 8}>()"
RULES["put_one"] = ("float[3, 4, 4] a", put(ROW))
RULES["put_rows"] = ("float[3, 4, 4] a", put("Neg(y)"))
RULES["put_repeated"] = ("float[6, 2, 4] a", put(ROW, "[6]", "[6, 2, 4]", "[-2, -1]", "[6, 2, 4]", "[2, 4]"))
RULES["put_repeated_behind"] = ("float[12, 2, 2] a", put(
    "Constant<value_floats = [7.0]>()", "[12]", "[12, 2, 2]", "[-1, -2]", "[12, 2, 2]", "[2, 2]"))
RULES["put_by_a_mask_with_axes_between"] = ("float[2, 3, 2, 4] a", put(
    "Identity(half)", "[2, 2]", "[2, 3, 2, 4]", "[-1, -3]", "[2, 3, 2, 4]", "[3, 4]"))
# Each means something else than x[m] = v.
MASKS = "the mask is not one for all"
AXES = "has other axes than are there"
REFUSED.update({
    "put_into_a_part_of_each_row": ("float[3, 4, 4] a", put("Identity(half)", cover="[3, 4, 2]", rest="[2]"), MASKS),
    "put_into_a_part_of_the_rows": ("float[3, 4, 4] a", put(ROW, "[1, 4]", cover="[1, 4, 4]"), MASKS),
    "put_in_another_order": ("float[6, 2, 4] a", put(PAIR, "[6]", "[6, 2, 4]", "[-1, -2]", "[6, 2, 4]", "[2, 2, 2]"), AXES),
    "put_with_axes_between": ("float[3, 4, 2, 2, 1] a", put(
        PAIR, x="[3, 4, 2, 2, 1]", behind="[-1, -2, -3]", cover="[3, 4, 2, 2, 1]", rest="[2, 2]"), AXES),
    "put_rows_where_a_row_is": ("float[12, 1, 4] a", put(
        "Constant<value = float[3, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>()", "[12]", "[12, 1, 4]", "[-1, -2]",
        "[12, 1, 4]", "[4]"), AXES),
})
RULES["put_each"] = ("float[%d, 4] a" % N, '''
    last = Constant<value_ints = [-1]>()
    m1 = Greater(x, half)
    at1 = NonZero(m1)
    rows = Transpose<perm = [1, 0]>(at1)
    z = Neg(x)
    v = GatherND(z, rows)
    flat = Reshape(m1, last)
    ints = Cast<to = 7>(flat)
    found = ReduceSum(ints)
    v1 = Expand(v, found)
    v2 = Reshape(v1, last)
    a = ScatterND(x, rows, v2)''')


def experts(parts, mine="", last=SCATTERED):
    """A mixture of four experts as PyTorch exports it from a sample whose rows chose so many of them.
    last: how turn i ends, which makes y{k} of y{i}, j{i}, m{i}"""
    text = """
        four = Constant<value_float = 4.0>()
        u = Mul(s, four)
        chosen = Cast<to = 7>(u)
        depth = Constant<value_int = 4>()
        pair = Constant<value_ints = [0, 1]>()
        hot = OneHot(chosen, depth, pair)
        mask = Transpose<perm = [1, 0]>(hot)
        one = Constant<value_ints = [1]>()
        zero = Constant<value_int = 0>()
        of_each = ReduceSum<keepdims = 0>(mask, one)
        any = Greater(of_each, zero)
        found = NonZero(any)
        list = Transpose<perm = [1, 0]>(found)
        w = Constant<value_floats = [1.0, 10.0, 100.0, 1000.0]>()
        none = Constant<value_float = 0.0>()
        y0 = Mul(x, none)
        ones = Constant<value_ints = [%s]>()
        %s = Split<axis = 0>(list, ones)
    """ % (", ".join("1" * parts), ", ".join("p%d" % i for i in range(parts)))
    for i in range(parts):
        text += """
            q{i} = Squeeze(p{i}, one)
            e{i} = Gather<axis = 0>(q{i}, zero)
            r{i} = Gather<axis = 0>(mask, e{i})
            b{i} = Cast<to = 9>(r{i})
            n{i} = NonZero(b{i})
            i{i} = Squeeze(n{i}, ax0)
            x{i} = Gather<axis = 0>(x, i{i})
            w{i} = Gather<axis = 0>(w, e{i})
            m{i} = Mul(x{i}, w{i})
            j{i} = Unsqueeze(i{i}, one)
        """.format(i=i) + last.format(i=i, k=i + 1)
    return text + "z = Identity(y%d)\n" % parts + mine


def model_of(outputs, nodes):
    body = "half = Constant<value_float = 0.5>()\n minus = Constant<value_ints = [-1]>()\n" \
           "minus_list = Constant<value_ints = [-1]>()\n" + ROWS + nodes
    return onnx.parser.parse_model(HEAD % (outputs, body))


def inputs_of(seed):
    """Of all seeds: the first has no row above a half, the second all but one."""
    r = np.random.default_rng(seed)
    x = r.random((N, 4), dtype=np.float32)
    x[:, 2:] += x[:, :2]
    s = r.random(N, dtype=np.float32)
    high = s > 2 if seed == 0 else np.arange(N) != 3 if seed == 1 else s > 0.5
    return {"x": x, "s": np.where(high, 0.51 + s / 3, s / 3)}


def shunt_run(folder, model, inputs):
    path = os.path.join(folder, "m.onnx")
    onnx.save(model, path)
    write_st(os.path.join(folder, "in.st"), {k: Tensor(KINDS[v.dtype], v) for k, v in inputs.items()})
    return subprocess.run([os.path.join(BIN, "shunt-run"), "infer", "--model", path, "--device", DEVICE, "--inputs",
                           os.path.join(folder, "in.st"), "--outputs", os.path.join(folder, "out.st")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)


class Rules(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        import tempfile
        cls.dir = tempfile.TemporaryDirectory(prefix="shunt-e2e.")
        cls.addClassCleanup(cls.dir.cleanup)

    def run_rule(self, name, seed):
        model = model_of(*RULES[name])
        got = self.answer(model, inputs_of(seed))
        return model, [got[v.name].array for v in model.graph.output]

    def answer(self, model, given):
        r = shunt_run(self.dir.name, model, given)
        self.assertEqual(r.returncode, 0, r.stdout)
        return read_st(os.path.join(self.dir.name, "out.st"))

    def same(self, name, seed):
        model, got = self.run_rule(name, seed)
        want = ReferenceEvaluator(model).run(None, inputs_of(seed))
        for v, g, w in zip(model.graph.output, got, want):
            self.assertEqual(g.shape, np.shape(w), v.name)
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6, err_msg=v.name)

    def test_rules(self):
        for name in RULES:
            for seed in range(1, SEEDS):
                with self.subTest(name, seed=seed):
                    self.same(name, seed)

    def test_nothing_is_there(self):
        """Onnx's reference loses axes of what is empty: so the axes that the graph names by n have none."""
        for name in RULES:
            with self.subTest(name):
                model, got = self.run_rule(name, 0)
                for v, g in zip(model.graph.output, got):
                    dims = v.type.tensor_type.shape.dim
                    self.assertEqual(g.ndim, len(dims), v.name)
                    for d, size in zip(dims, g.shape):
                        self.assertEqual(size, 0 if d.dim_param == "n" else d.dim_value or size, v.name)

    def test_parts_of_fixed_sizes(self):
        """Right of as many rows as the parts have together; of others no answer is right, and none is given."""
        model = model_of("float[2, 4] a, float[1] b, int64[n] i", "sizes = Constant<value_ints = [2, 1]>()\n"
                         "a, c = Split<axis = 0>(y, sizes)\n d, b = Split<axis = 0>(t, sizes)")
        for rows in ([0, 3, 7], [2, 5], [1, 2, 3, 11], []):
            with self.subTest(rows=rows):
                given = inputs_of(2)
                given["s"] = np.where(np.isin(np.arange(N), rows), 0.75, 0.25).astype(np.float32)
                got = self.answer(model, given)
                a, b, i = (got[k].array for k in "abi")
                self.assertEqual(i.tolist(), rows)
                if len(rows) == 3:
                    np.testing.assert_array_equal(a, given["x"][rows[:2]])
                    np.testing.assert_array_equal(b, given["s"][rows[2:]])
                else:
                    self.assertTrue(np.isnan(a).all() and np.isnan(b).all(), (a, b))

    def test_as_many_as_there_is_room_for(self):
        """x[m] = rows, of which there are three: of fewer or more no answer is right, and none is given."""
        model = model_of("float[%d, 4] a" % N, "rows = Transpose<perm = [1, 0]>(at)\n"
                         "v = Constant<value = float[3, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>()\n"
                         "a = ScatterND(x, rows, v)")
        for rows in ([0, 3, 7], [2, 5], [1, 2, 3, 11], []):
            with self.subTest(rows=rows):
                given = inputs_of(2)
                given["s"] = np.where(np.isin(np.arange(N), rows), 0.75, 0.25).astype(np.float32)
                a = self.answer(model, given)["a"].array
                if len(rows) == 3:
                    want = given["x"].copy()
                    want[rows] = np.arange(1, 13).reshape(3, 4)
                    np.testing.assert_array_equal(a, want)
                else:
                    self.assertTrue(np.isnan(a).all(), a)

    def test_a_known_loop_that_may_not_begin(self):
        """All its turns are not what it computes then: it is refused, or has no rows, which are refused as well."""
        outputs, nodes = RULES["masks"]
        for start in ("Constant<value = bool {0}>()", "Less(zero, count)"):
            with self.subTest(start):
                text = nodes.replace("v186 = Loop (count, v184,", "begins = %s\n v186 = Loop (count, begins," % start)
                self.assertNotEqual(text, nodes)
                r = shunt_run(self.dir.name, model_of(outputs, text), inputs_of(2))
                self.assertNotEqual(r.returncode, 0, r.stdout)

    def test_loops_that_are_nearly_known(self):
        """What differs in an attribute, in axes or in a fraction that is cut off computes something else."""
        for name, was, is_ in (
                ("keypoints", "v20 = Constant<value = int64[1] {1}> ()", "v20 = Constant<value = int64[1] {3}> ()"),
                ("keypoints", "v63 = Cast<to = 1> (v9)", "v63i = Cast<to = 7> (v9)\n v63 = Cast<to = 1> (v63i)"),
                ("keypoints", "nearest_mode = ", "exclude_outside = 1, nearest_mode = "),
                ("masks", "nearest_mode = ", "antialias = 1, nearest_mode = "),
                ("masks", " = Shape (", " = Shape<start = 1> (")):
            with self.subTest(name, is_=is_):
                outputs, nodes = RULES[name]
                text = nodes.replace(was, is_)
                self.assertNotEqual(text, nodes)
                r = shunt_run(self.dir.name, model_of(outputs, text), inputs_of(2))
                self.assertEqual(r.returncode, 1, r.stdout)

    def test_loops_over_what_was_found(self):
        """The experts that rows chose, of which a file has as many as one sample chose: of fewer it is right too."""
        for parts, last in ((4, SCATTERED), (3, SCATTERED), (4, ADDED), (3, ADDED)):
            model = model_of("float[%d, 4] z" % N, experts(parts, last=last))
            for chosen in ([0, 1, 2, 3], [0, 2, 3], [1, 3], [2]):
                with self.subTest(parts=parts, last=last, chosen=chosen):
                    given = inputs_of(2)
                    e = np.array(chosen)[np.arange(N) % len(chosen)]
                    given["s"] = ((e + 0.5) / 4).astype(np.float32)
                    z = self.answer(model, given)["z"].array
                    if len(chosen) > parts:
                        self.assertTrue(np.isnan(z).all(), z)
                    else:
                        np.testing.assert_allclose(z, given["x"] * (10.0 ** e)[:, None], rtol=1e-6)

    def test_loops_whose_other_rows_are_not_zeros(self):
        """A mask with numbers below 0, and sums of its columns: of fewer a row that was not found would be added."""
        for name, was, is_, parts, s, want in (
                ("below 0", "pair = Constant<value_ints = [0, 1]>", "pair = Constant<value_ints = [-1, 1]>", 1,
                 [0.6] * N, 100.0),
                ("columns", "ReduceSum<keepdims = 0>(mask, one)", "ReduceSum<keepdims = 0>(mask, ax0)", 2,
                 [0.6, 0.8] + [6.0] * (N - 2), 0.0)):
            for more in (0, 1):
                with self.subTest(name, more=more):
                    text = experts(parts + more).replace(was, is_)
                    if name == "columns":  # as many as rows
                        text = text.replace("depth = Constant<value_int = 4>", "depth = Constant<value_int = %d>" % N)
                    given = inputs_of(2)
                    given["s"] = np.array(s, np.float32)
                    z = self.answer(model_of("float[%d, 4] z" % N, text), given)["z"].array
                    if more:
                        self.assertTrue(np.isnan(z).all(), z)
                    else:
                        np.testing.assert_allclose(z, given["x"] * want, rtol=1e-6)

    def test_loops_whose_turns_do_more(self):
        """What a turn does to all rows is not done for experts that nobody chose: of fewer nothing is right."""
        for name, last in (
                ("halves what was", "a{i} = Mul(y{i}, half)\n" + SCATTERED.replace("(y", "(a")),
                ("halves what is", SCATTERED.replace("y{k}", "a{i}") + "y{k} = Mul(a{i}, half)\n"),
                ("adds a weight", SCATTERED.replace("y{k}", "a{i}") + "y{k} = Add(a{i}, w{i})\n"),
                ("halves and adds", "a{i} = Mul(y{i}, half)\n" + ADDED.replace("Add(y", "Add(a")),
                ("adds onto ones", ADDED.replace("{{0,", "{{1,")),
                ("adds all up", SCATTERED + "c{i} = ReduceSum<keepdims = 0>(y{k})\n t{k} = Add(t{i}, c{i})\n")):
            for parts, chosen in ((3, [0, 1]), (2, [1]), (2, [0, 2])):
                with self.subTest(name, parts=parts, chosen=chosen):
                    own = "r = Add(z, t%d)\n" % parts if "t{k}" in last else "r = Identity(z)\n"
                    model = model_of("float[%d, 4] r" % N, "t0 = Constant<value_float = 0.0>()\n" + experts(parts, own, last))
                    given = inputs_of(2)
                    e = np.array(chosen)[np.arange(N) % len(chosen)]
                    given["s"] = ((e + 0.5) / 4).astype(np.float32)
                    r = self.answer(model, given)["r"].array
                    if len(chosen) < parts:
                        self.assertTrue(np.isnan(r).all(), r)
                    else:
                        np.testing.assert_allclose(r, ReferenceEvaluator(model).run(None, given)[0], rtol=1e-5)

    def test_parts_that_are_used_otherwise(self):
        """What a part says goes out: so it is wrong where there is none."""
        model = model_of("float[%d, 4] z, float k" % N, experts(4, "k = Cast<to = 1>(e1)\n"))
        given = inputs_of(2)
        given["s"] = np.full(N, 0.6, np.float32)
        self.assertTrue(np.isnan(self.answer(model, given)["z"].array).all())

    def test_loops_in_a_branch(self):
        """Where a file has fewer parts than there are experts, a branch that is not taken must not decide outputs."""
        def branch(parts, limit):
            return model_of("float[%d, 4] r" % N, "n = Size(t)\n limit = Constant<value_int = %d>()\n"
                            "c = Greater(n, limit)\n r = If(c) <then_branch = g1 () => (float[%d, 4] p) {%s"
                            "p = Neg(z) }, else_branch = g2 () => (float[%d, 4] q) { q = Identity(x) }>"
                            % (limit, N, experts(parts), N))
        given = inputs_of(2)
        e = np.arange(N) % 4
        given["s"] = ((e + 0.5) / 4).astype(np.float32)
        never = N + 1
        for parts in (4, 3):
            np.testing.assert_array_equal(self.answer(branch(parts, never), given)["r"].array, given["x"])
        got = self.answer(branch(4, 3), given)["r"].array
        np.testing.assert_allclose(got, -given["x"] * (10.0 ** e)[:, None], rtol=1e-6)
        r = shunt_run(self.dir.name, branch(3, 3), given)
        self.assertEqual(r.returncode, 1, r.stdout)
        self.assertIn("the branch is not possible", r.stdout)

    def test_refused(self):
        for name, (outputs, nodes, why) in REFUSED.items():
            with self.subTest(name):
                r = shunt_run(self.dir.name, model_of(outputs, nodes), inputs_of(2))
                self.assertEqual(r.returncode, 1, r.stdout)
                self.assertIn(why, r.stdout)


class Served(Story):
    @classmethod
    def setUpClass(cls):
        cls.s = System("--workers=2")
        cls.addClassCleanup(cls.s.stop)
        cls.key = cls.s.tenant("finder")

    def push(self, name, text):
        self.s.push(self.key, name, onnx.parser.parse_model(text).SerializeToString())

    def ask(self, name, inputs, **more):
        body = [{"name": k, "datatype": "FP32", "shape": list(v.shape), "data": v.flatten().tolist()}
                for k, v in inputs.items()]
        r = self.s.infer(self.key, name, body, **more)
        self.assertEqual(r.status, 200, r)
        return r

    def test_each_request_gets_what_it_has(self):
        outputs, nodes = RULES["boxes"]
        model = model_of(outputs + ", int64[1, n] at, float[n, 4] y", nodes)
        self.s.push(self.key, "boxes", model.SerializeToString())
        about = self.s.call("GET", "/v2/models/boxes", key=self.key).json
        self.assertEqual([o["shape"] for o in about["outputs"]], [[-1, 3], [-1, 4], [1, -1], [-1, 4]])
        for seed in range(1, SEEDS + 4):
            want = ReferenceEvaluator(model).run(None, inputs_of(seed))
            for o, w in zip(self.ask("boxes", inputs_of(seed)).json["outputs"], want):
                self.assertEqual(o["shape"], list(np.shape(w)), o["name"])
                np.testing.assert_allclose(np.array(o["data"]).reshape(np.shape(w)), w, rtol=1e-6)

    def test_a_request_may_have_nothing(self):
        self.s.push(self.key, "none", model_of(*RULES["rows"]).SerializeToString())
        for o in self.ask("none", inputs_of(0)).json["outputs"]:
            self.assertEqual((o["data"], 0 in o["shape"]), ([], True))

    def test_binary_outputs_end_where_they_end(self):
        outputs, nodes = RULES["rows"]
        model = model_of(outputs, nodes)
        self.s.push(self.key, "rows", model.SerializeToString())
        for seed in range(1, SEEDS):
            want = ReferenceEvaluator(model).run(None, inputs_of(seed))
            r = self.ask("rows", inputs_of(seed), parameters={"binary_data_output": True})
            head = int(r.headers.get("inference-header-content-length", len(r.raw)))
            at = head
            for o, w in zip(json.loads(r.raw[:head])["outputs"], want):
                self.assertEqual(o["shape"], list(np.shape(w)))
                n = o["parameters"]["binary_data_size"]
                self.assertEqual(n, w.nbytes)
                self.assertEqual(r.raw[at:at + n], np.ascontiguousarray(w).tobytes())
                at += n
            self.assertEqual(at, len(r.raw))

    def test_batches_of_any_size(self):
        """Samples meet in the list of boxes, so each request runs by itself."""
        self.push("many", '<ir_version: 8, opset_import: ["" : 18]> g (float[B, 6, 4] b, float[B, 2, 6] s) => '
                  '(int64[n, 3] a) {\n most = Constant<value_ints = [3]>()\n iou = Constant<value_floats = [0.5]>()\n'
                  'thr = Constant<value_floats = [0.4]>()\n a = NonMaxSuppression(b, s, most, iou, thr)\n}')
        for batch in (1, 3, 2):
            r = np.random.default_rng(batch)
            b = r.random((batch, 6, 4), dtype=np.float32)
            s = r.random((batch, 2, 6), dtype=np.float32)
            want = nms(b, s, 3, 0.5, 0.4)
            got = self.ask("many", {"b": b, "s": s}).json["outputs"][0]
            self.assertEqual(got["shape"], [len(want), 3])
            self.assertEqual(np.array(got["data"]).reshape(-1, 3).tolist(), want)

    def test_jobs_over_a_dataset_are_refused(self):
        outputs, nodes = RULES["rows"]
        self.s.push(self.key, "kept", model_of(outputs, nodes).SerializeToString())
        self.s.push_data(self.key, "data", st_of({k: v for k, v in inputs_of(2).items()}))
        r = self.s.call("POST", "/api/v1/jobs", {"kind": "batch_inference", "model": "kept", "dataset": "data",
                                                 "spec": {"batch": 12}}, key=self.key)
        self.assertEqual(r.status, 422, r)
        self.assertIn("is not the batch", r.error)


def st_of(tensors):
    from system import st_bytes
    return st_bytes({k: ("F32", list(v.shape), struct.pack("<%df" % v.size, *v.flatten())) for k, v in tensors.items()})


def nms(boxes, scores, most, iou, above):
    """ONNX's words, box by box."""
    out = []
    for b in range(len(boxes)):
        corners = np.stack([np.minimum(boxes[b, :, :2], boxes[b, :, 2:]), np.maximum(boxes[b, :, :2], boxes[b, :, 2:])])
        for c in range(scores.shape[1]):
            picked = []
            for i in sorted(range(len(boxes[b])), key=lambda i: (-scores[b, c, i], i)):
                if scores[b, c, i] <= above or len(picked) == most:
                    break
                if not any(cover(corners[:, i], corners[:, j]) > iou for j in picked):
                    picked.append(i)
            out += [[b, c, i] for i in picked]
    return out


def cover(a, b):
    both = np.prod(np.maximum(np.minimum(a[1], b[1]) - np.maximum(a[0], b[0]), 0))
    return both / (np.prod(a[1] - a[0]) + np.prod(b[1] - b[0]) - both)


if __name__ == "__main__":
    unittest.main()
