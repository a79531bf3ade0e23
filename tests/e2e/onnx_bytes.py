"""ONNX files as bytes, with the standard library: good ones, and ones that no exporter would write.

A protobuf message is a list of (field, value): an int is a varint, bytes and str are length-delimited,
a float is four bytes. Nothing is checked: the point is to write what is wrong.
"""
import io
import struct
import tarfile

FLOAT, INT64 = 1, 7


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def message(*fields):
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return bytes(out)


def attribute(name, value):
    if isinstance(value, int):
        return message((1, name), (3, value), (20, 2))
    if isinstance(value, float):
        return message((1, name), (2, value), (20, 1))
    if isinstance(value, str):
        return message((1, name), (4, value), (20, 3))
    return message((1, name), *((8, v) for v in value), (20, 7))


def node(op, inputs, outputs, name=None, domain="", **attributes):
    return message(*((1, i) for i in inputs), *((2, o) for o in outputs), (3, name or outputs[0]),
                   (4, op), (7, domain), *((5, attribute(*a)) for a in attributes.items()))


def tensor(name, dims, values, dtype=FLOAT, raw=None):
    """`raw` in place of the packed values: it need not fit the dimensions."""
    data = struct.pack("<%d%s" % (len(values), "f" if dtype == FLOAT else "q"), *values)
    return message(*((1, d) for d in dims), (2, dtype), (8, name), (9, data if raw is None else raw))


def external(name, dims, location, offset, length, dtype=FLOAT):
    """A tensor whose data are in another file, as torch.onnx.export leaves its weights."""
    entries = {"location": location, "offset": str(offset), "length": str(length)}
    return message(*((1, d) for d in dims), (2, dtype), (8, name),
                   *((13, message((1, k), (2, v))) for k, v in entries.items()), (14, 1))


def tar(files):
    """Name to bytes; None: a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data or b"")
            if data is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            t.addfile(info, io.BytesIO(data or b""))
    return out.getvalue()


def value(name, dims, dtype=FLOAT):
    """A dimension that is a text is symbolic, such as the batch."""
    shape = message(*((1, message((2, d) if isinstance(d, str) else (1, d))) for d in dims))
    return message((1, name), (2, message((1, message((1, dtype), (2, shape))))))


def model(nodes, inputs, outputs, initializers=(), opset=17, opset_domain="", producer="tests"):
    graph = message(*((1, n) for n in nodes), (2, "graph"), *((5, t) for t in initializers),
                    *((11, v) for v in inputs), *((12, v) for v in outputs))
    return message((1, 8), (2, producer), (7, graph), (8, message((1, opset_domain), (2, opset))))


def two_outputs():
    """x FP32 [N,4], k INT64 [N,2] -> y FP32 [N,3] = x W + b, r FP32 [N,3] = relu(y), s INT64 [N,2] = k"""
    w = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75, -2.0, 0.125, 1.0, 3.0, -0.5, 0.0625]
    return model([node("Gemm", ["x", "w", "b"], ["y"]), node("Relu", ["y"], ["r"]),
                  node("Identity", ["k"], ["s"])],
                 [value("x", ["N", 4]), value("k", ["N", 2], INT64)],
                 [value("y", ["N", 3]), value("r", ["N", 3]), value("s", ["N", 2], INT64)],
                 [tensor("w", [4, 3], w), tensor("b", [3], [0.5, -0.25, 0.0])])


def linear(features=4, classes=3, weight=0.1, name="x"):
    """A model that can be trained: x [N, features] -> logits [N, classes]."""
    w = [weight * ((i * 7 % 11) - 5) for i in range(features * classes)]
    return model([node("Gemm", [name, "w", "b"], ["logits"])], [value(name, ["N", features])],
                 [value("logits", ["N", classes])],
                 [tensor("w", [features, classes], w), tensor("b", [classes], [0.0] * classes)])


def chain(n, width):
    """x [N,width] -> y [N,width] = x W^n: n times the work of its one matrix."""
    names = ["x"] + ["y%d" % i for i in range(1, n)] + ["y"]
    w = [((i * 7 % 11) - 5) / (4 * width) for i in range(width * width)]
    return model([node("MatMul", [a, "w"], [b]) for a, b in zip(names, names[1:])],
                 [value("x", ["N", width])], [value("y", ["N", width])], [tensor("w", [width, width], w)])


def words(**cast):
    """ids [N,4] -> rows of a table: row i is i, -i. With cast the indices are known on the device alone."""
    ids = value("ids", ["N", 4], FLOAT if cast else INT64)
    nodes = [node("Cast", ["ids"], ["rows"], **cast)] if cast else []
    return model(
        [*nodes, node("Gather", ["table", "rows" if cast else "ids"], ["e"], name="emb"),
         node("Neg", ["e"], ["y"])], [ids], [value("y", ["N", 4, 2])],
        [tensor("table", [50, 2], [v for i in range(50) for v in (-i, i)])])
