"""Models for loads: their cost is a matter of two numbers. x is [N, 16]. Standard library only."""
import os
import random
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import onnx_bytes as onnx  # noqa: E402

SIDE = 16
SAMPLE = struct.pack("<16f", *[.5] * SIDE)


def conv(layers, channels):
    """An outer product with itself, then convolutions. Costs about as much a sample in any batch."""
    rnd = random.Random(1)
    nodes = [onnx.node("Reshape", ["x", "col"], ["c"]), onnx.node("Reshape", ["x", "row"], ["r"]),
             onnx.node("Mul", ["c", "r"], ["y0"])]
    init = [onnx.tensor("col", [4], [-1, 1, SIDE, 1], onnx.INT64), onnx.tensor("row", [4], [-1, 1, 1, SIDE], onnx.INT64)]
    for i in range(layers):
        n_in = channels if i else 1
        shape = [channels, n_in, 3, 3]
        raw = struct.pack("<%df" % (channels * n_in * 9), *(rnd.uniform(-.05, .05) for _ in range(channels * n_in * 9)))
        init.append(onnx.tensor("w%d" % i, shape, [], raw=raw))
        nodes += [onnx.node("Conv", ["y%d" % i, "w%d" % i], ["z%d" % i], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                  onnx.node("Relu", ["z%d" % i], ["y%d" % (i + 1)])]
    nodes += [onnx.node("GlobalAveragePool", ["y%d" % layers], ["g"]), onnx.node("Flatten", ["g"], ["out"])]
    return onnx.model(nodes, [onnx.value("x", ["N", SIDE])], [onnx.value("out", ["N", channels])], init)


def dense(layers, features):
    """Reads the same weights for any batch, so a batch costs little more than one sample."""
    raw = struct.pack("<8f", *(0.001 * i for i in range(8)))
    sizes = [SIDE] + [features] * layers
    init = [onnx.tensor("w%d" % i, [a, b], [], raw=raw * (a * b // 8)) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    nodes = [onnx.node("MatMul", ["x" if i == 0 else "y%d" % i, "w%d" % i], ["y%d" % (i + 1)]) for i in range(layers)]
    return onnx.model(nodes, [onnx.value("x", ["N", SIDE])], [onnx.value("y%d" % layers, ["N", features])], init)
