"""Files of data, right ones and changed ones: what `shunt push dataset` takes. See datasets.py.

Each of make_*(at, r) writes into the folder `at` and returns (the arguments of the command, what was done).
"""
import io
import json
import os
import struct
import warnings
import zipfile
import zlib

import numpy as np

import mutate
import onnx_bytes as onnx
from pictures import jpeg, png

warnings.simplefilter("ignore")  # of numbers that do not fit, and of names that come twice
TYPES = ("<f4", "<f8", "<f2", "<i8", "<i4", "<u1", "<i1", "|b1", ">f4", "<c8", "<U3", "|O", "|S4")
ODD_TYPES = ("<f4", "<f3", "", "f4", "|V8", "<f4,<i4", "[('a', '<f4')]", "<" * 300, "<f99999999999")
SIZES = (0, 1, 2, 3, 7, 255, 65536, 2 ** 31, 2 ** 32 - 1, 2 ** 40, 2 ** 62, 2 ** 63 - 1, 2 ** 63, -1)
ST_TYPES = ("F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8", "", "f32", "I128")
CELLS = ("", " ", "1", "-0", "1e999", "nan", "inf", "-inf", "0x10", "1,5", '"', '""', '"a""b"', '"a\nb"', "NA",
         "9223372036854775808", "1e-400", "\u00e9", "a" * 5000, "\0", "'", "1;2", "\ufeff1", "1 2", "+3", "1e5")
ROWS = 12


def numbers(r, code, shape):
    rng = np.random.default_rng(r.randrange(2 ** 32))
    if np.dtype(code).kind in "fc":
        a = rng.standard_normal(shape)
        if a.size and r.random() < 0.3:
            a.flat[r.randrange(a.size)] = r.choice(mutate.SPECIALS)
    else:
        a = rng.integers(0, 4, shape)
    with np.errstate(all="ignore"):
        return a.astype(code)


# ------------------------------------------------------------------ NumPy

def npy(r, a):
    out = io.BytesIO()
    np.lib.format.write_array(out, a, version=r.choice(((1, 0), (2, 0), (3, 0))))
    return out.getvalue()


def odd_header(r, a):
    """A header that says other things than what follows."""
    shape = list(a.shape)
    shape[r.randrange(len(shape))] = r.choice(SIZES)
    if r.random() < 0.2:
        shape += [1] * r.choice((1, 9, 40))
    text = "{'descr': %r, 'fortran_order': %s, 'shape': %s, }" % (
        r.choice((a.dtype.str, *ODD_TYPES)), r.choice(("False", "False", "True", "0", "None")),
        r.choice((str(tuple(shape)), str(shape), "()", "(" * 500, "(1,,2)", "(0x10,)", "(1e3,)", "(" + "9" * 60 + ",)")))
    if r.random() < 0.3:
        text = r.choice((text[:r.randrange(len(text))], text.replace(":", ""), text + text, "{" * 2000,
                         text.replace("'", '"'), text.replace("}", "'x': 1}"), ""))
    text += " " * r.choice((0, 3, 64)) + r.choice(("\n", ""))
    size = r.choice((len(text), len(text), len(text), 0, 1, 0xffff, len(text) + 1))
    return b"\x93NUMPY" + bytes(r.choice(((1, 0), (1, 0), (2, 0), (9, 9)))) + \
        struct.pack("<H", size & 0xffff) + text.encode() + a.tobytes()


def array_file(r, rows=ROWS, label=False):
    a = numbers(r, r.choice(("<i8", "<i4", "<f4", "<u1")), rows) if label else \
        numbers(r, r.choice(("<f4", "<f4", "<f8", "<u1", "<f2")), (rows, *r.choice(((3,), (2, 2), (), (0,)))))
    if r.random() < 0.15 and a.ndim:
        return odd_header(r, a), "header"
    if r.random() < 0.1:
        code = r.choice(TYPES)
        return npy(r, a.astype(code) if code != "|O" else a.astype(object)), "type " + code
    if r.random() < 0.05 and a.ndim > 1:
        return npy(r, np.asfortranarray(a)), "fortran"
    return npy(r, a), ""


def maybe_bytes(data, r, share=0.3):
    return (mutate.of_bytes(data, r), " bytes") if r.random() < share else (data, "")


def write(at, name, data):
    path = os.path.join(at, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def make_npy(at, r):
    args, what = [], "npy"
    for name in ("x", "label"):
        data, how = array_file(r, r.choice((ROWS, ROWS, ROWS, ROWS + 1)), name == "label")
        data, more = maybe_bytes(data, r)
        what += " " + how + more
        path = write(at, r.choice((name, name, name, "x")) + ".npy", data)
        args.append(r.choice((path, "%s=%s" % (r.choice((name, name, "", "__metadata__", "a" * 3000)), path))))
    return args, what


# ------------------------------------------------------------------ zip

def zip_fields(data, r):
    """Numbers of its list or of its end: sizes, places, counts, methods, flags."""
    data = bytearray(data)
    records = [(magic, i) for magic in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for i in range(len(data) - 3)
               if data[i:i + 4] == magic]
    for _ in range(r.choice((1, 1, 2, 4))):
        magic, at = r.choice(records)
        offset, n = r.choice({b"PK\1\2": ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)),
                              b"PK\3\4": ((6, 2), (8, 2), (18, 4), (22, 4), (26, 2), (28, 2)),
                              b"PK\5\6": ((8, 2), (10, 2), (12, 4), (16, 4), (20, 2))}[magic])
        value = r.choice((0, 1, 8, len(data), 2 ** (8 * n) - 1, 2 ** (8 * n - 1), r.randrange(2 ** (8 * n))))
        data[at + offset:at + offset + n] = (value % 2 ** (8 * n)).to_bytes(n, "little")
    return bytes(data)


def make_npz(at, r):
    out, what = io.BytesIO(), "npz"
    with zipfile.ZipFile(out, "w", r.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as z:
        for name in ("x", "label") + (("more",) if r.random() < 0.2 else ()):
            data, how = array_file(r, r.choice((ROWS, ROWS, ROWS, 5)), name == "label")
            what += " " + how
            with z.open(zipfile.ZipInfo(r.choice((name + ".npy",) * 9 + (name, "../x.npy", "x" * 60000, ".npy"))), "w",
                        force_zip64=r.random() < 0.2) as f:
                f.write(data)
        if r.random() < 0.1:  # a bomb
            z.writestr("b.npy", b"\x93NUMPY\1\0\x46\0" + b"{'descr': '<f4', 'fortran_order': False, "
                       b"'shape': (12, 2000000), }      \n" + bytes(30 << 20))
            what += " bomb"
    data = out.getvalue()
    if r.random() < 0.4:
        data, what = zip_fields(data, r), what + " fields"
    data, more = maybe_bytes(data, r, 0.2)
    return [write(at, r.choice(("set.npz", "set", "set.npz")), data)], what + more


# ------------------------------------------------------------------ CSV

def make_csv(at, r):
    columns = r.choice((1, 2, 3, 5, 300))
    names = ["c%d" % i for i in range(columns)] + ["label"]
    if r.random() < 0.2:
        names[r.randrange(len(names))] = r.choice(CELLS + ("label", "c0"))
    lines = [names]
    for i in range(ROWS):
        lines.append(["%g" % r.uniform(-5, 5) for _ in range(columns)] +
                     [str(i % 3) if i or r.random() < 0.8 else r.choice(CELLS)])
    for _ in range(r.choice((0, 0, 1, 3))):
        line = r.choice(lines)
        way = r.randrange(3)
        if way == 0:
            line[r.randrange(len(line))] = r.choice(CELLS)
        elif way == 1:
            line.append(r.choice(CELLS))
        elif len(line) > 1:
            line.pop()
    end = r.choice(("\n", "\n", "\r\n", "\r", "\n\n"))
    data = (end.join(r.choice((",",) * 12 + (";", "\t")).join(x) for x in lines) + r.choice((end, ""))).encode()
    if r.random() < 0.05:
        data = b"\xef\xbb\xbf" + data
    data, more = maybe_bytes(data, r)
    return [write(at, r.choice(("t.csv",) * 4 + ("t", "t.CSV")), data), "--label",
            r.choice(("label",) * 19 + ("c0", "", "none"))], "csv" + more


# ------------------------------------------------------------------ safetensors

def st_tensors(r, rows):
    out, at = {}, 0
    labels = numbers(r, "<i8", rows) % 3
    if r.random() < 0.2:
        labels[r.randrange(rows)] = r.choice((-100, -1, 3, 2 ** 62, -2 ** 63))
    for name, a in (("x", numbers(r, "<f4", (rows, 3))), ("label", labels)):
        code = {"<f4": "F32", "<i8": "I64"}[a.dtype.str]
        out[name] = ({"dtype": code, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}, a.tobytes())
        at += a.nbytes
    return out


def odd_entry(head, r):
    """Changes one entry, or what stands beside them."""
    e = head[r.choice(list(head))]
    way = r.randrange(9)
    if way == 0:
        e["dtype"] = r.choice(ST_TYPES + (7, None))
    elif way == 1 and e["shape"]:
        e["shape"][r.randrange(len(e["shape"]))] = r.choice(SIZES + (1.5, None, "3", [2], 2 ** 64, True))
    elif way == 2:
        e["shape"] = r.choice(([], [1] * 20, [0], {}, 12, [2 ** 32, 2 ** 32], [2 ** 31, 2 ** 31, 4], [-1, -36]))
    elif way in (3, 4):
        e["data_offsets"][r.randrange(2)] = r.choice(SIZES + (1.5, None, "3"))
    elif way == 5:
        e["data_offsets"] = r.choice(([], [0], [0, 1, 2], None, [36, 0]))
    elif way == 6:
        head["__metadata__"] = r.choice(({}, {"a": 1}, {"classes": "[" * 5000}, [], {"classes": "[1]"}, {"\0": "x"}))
    elif way == 7:
        del e[r.choice(list(e))]
    else:
        head[r.choice(("y", "", "\ud800", "a" * 70000, "x\0y", "__metadata__"))] = dict(e)


def safetensors(r, rows=ROWS, changed=1.0):
    """changed: how many of all are another thing than a set."""
    tensors, what = st_tensors(r, rows), ""
    head = {k: v[0] for k, v in tensors.items()}
    if r.random() >= changed:
        return struct.pack("<Q", len(json.dumps(head))) + json.dumps(head).encode() + \
            b"".join(v[1] for v in tensors.values()), "right"
    for _ in range(r.choice((0, 1, 1, 2))):
        try:
            odd_entry(head, r)
            what = " entries"
        except (TypeError, KeyError, IndexError, AttributeError):
            pass  # of what was changed before
    text = json.dumps(head).encode("utf-8", "surrogatepass")
    if r.random() < 0.1:
        text, what = mutate.of_bytes(text, r), what + " json"
    if r.random() < 0.05:
        text, what = r.choice((text[:-1] + b"," + text[1:], b"[" * 100000, b"", b"{}", text + b"x", b'{"a":' * 3000)), \
            what + " no json"
    size = r.choice((len(text),) * 12 + (0, 1, len(text) + 1, 2 ** 31, 2 ** 63, 2 ** 64 - 1, 2 ** 64 - 8))
    data = struct.pack("<Q", size) + text + b"".join(v[1] for v in tensors.values())
    data, more = maybe_bytes(data, r, 0.2)
    return data, what + more


def make_safetensors(at, r):
    args, what = [], "safetensors"
    for i in range(r.choice((1, 2, 2, 3))):
        data, how = safetensors(r, r.choice((ROWS, 4)))
        args.append(write(at, "part%d.safetensors" % i, data))
        what += how
    return args, what


# ------------------------------------------------------------------ pictures

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def odd_png(r):
    """Every kind of pixel there is, and some that are none; sizes that are not those of the data."""
    depth, colour = r.choice(((8, 2), (8, 0), (1, 0), (4, 3), (8, 3), (16, 2), (16, 6), (8, 4), (3, 2), (8, 5), (0, 0)))
    side = r.choice((8, 8, 8, 0, 1, 2 ** 14, 2 ** 20, 2 ** 31 - 1, 2 ** 32 - 1))
    data = b"".join(b"\0" + bytes(r.randrange(256) for _ in range(64)) for _ in range(8))
    if r.random() < 0.1:
        data = bytes(r.choice((0, 1 << 20, 20 << 20)))
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", side, r.choice((8, side)), depth, colour,
                                        r.choice((0, 0, 0, 1)), r.choice((0, 0, 0, 9)), r.choice((0, 0, 1, 2))))]
    if colour == 3 or r.random() < 0.1:
        parts.append(chunk(b"PLTE", bytes(r.choice((48, 3, 768, 0, 5, 900)))))
    if r.random() < 0.3:
        parts.append(chunk(r.choice((b"tRNS", b"gAMA", b"iCCP", b"zTXt", b"cHRM", b"sRGB", b"IDAT", b"aaaa", b"BBBB")),
                           bytes(r.randrange(256) for _ in range(r.choice((0, 1, 4, 32, 300))))))
    parts += [chunk(b"IDAT", zlib.compress(data))] * r.choice((1, 1, 2)) + [chunk(b"IEND", b"")]
    if r.random() < 0.1:
        r.shuffle(parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def odd_jpeg(r):
    """Numbers of its frame, its tables and its scan; scans again and again."""
    data = bytearray(jpeg(8, 8, [r.randrange(256)]))
    marker, most = r.choice(((0xC0, 15), (0xDA, 8), (0xC4, 20), (0xDB, 10)))
    at = data.index(bytes([0xFF, marker]))
    for _ in range(r.choice((0, 1, 2, 4))):
        data[at + r.randint(2, most)] = r.choice((0, 1, 2, 4, 0x11, 0x44, 0x7f, 0xff, r.randrange(256)))
    if r.random() < 0.15:
        data[data.index(b"\xff\xc0") + 1] = r.choice((0xC1, 0xC2, 0xC9, 0xCA, 0xC3))
    if r.random() < 0.1:
        scan = bytes(data[data.index(b"\xff\xda"):-2])
        data[-2:-2] = scan * r.choice((10, 2000))
    return bytes(data)


def picture(r):
    grey = r.randrange(256)
    if r.random() < 0.5:
        return ".jpg", (odd_jpeg(r) if r.random() < 0.4 else jpeg(8, 8, [grey]))
    return ".png", (odd_png(r) if r.random() < 0.4 else png(8, 8, bytes([grey]) * 192))


def make_pictures(at, r):
    folder, what = os.path.join(at, "folder"), "pictures"
    os.makedirs(folder)
    for label in range(r.choice((1, 2, 2, 2))):
        one = os.path.join(folder, r.choice(("day", "night", "\u00e9", "a b", "x" * 200)) + str(label))
        os.makedirs(one)
        for i in range(r.choice((1, 4, 6))):
            ending, data = picture(r)
            data, more = maybe_bytes(data, r, 0.25)
            what += more
            write(one, "%d%s" % (i, r.choice((ending,) * 9 + (".jpg", ".png"))), data)
        if r.random() < 0.1:
            os.symlink(r.choice(("nothing.jpg", ".", "link.jpg", "/dev/zero", "/")), os.path.join(one, "link.jpg"))
        if r.random() < 0.05:
            os.mkfifo(os.path.join(one, "pipe.jpg"))
    if r.random() < 0.1:
        os.symlink(folder, os.path.join(folder, "again"))
    args = [folder]
    if r.random() < 0.7:
        args += ["--size", r.choice(("8", "8x4", "16", "4", "1") * 4 + ("16384", "0", "8x", "-1", "99999999999"))]
    args += [x for x in ("--skip-broken", "--grey", "--stretch") if r.random() < 0.3]
    if r.random() < 0.3:
        args += r.choice((["--layout", "nhwc"], ["--resize", r.choice(("9", "1", "16384", "0"))]))
    return args, what


# ------------------------------------------------------------------ models and their data

SECRET = b"what nobody has named."
PLACES = ("m.data", "m.data", "./m.data", "sub/m.data", "../secret.bin", "/etc/passwd", "", ".", "..", "m.data/../../secret.bin",
          "pipe", "a" * 300, "m.data\0x", "nothing", "sub", "m.onnx", "\xff")


def make_model(at, r):
    """A graph whose weights lie beside it; what it names else is not to be sent."""
    folder = os.path.join(at, "model")
    os.makedirs(os.path.join(folder, "sub"))
    write(at, "secret.bin", SECRET * 10)
    for name in ("m.data", "sub/m.data"):
        write(folder, name, bytes(r.randrange(256) for _ in range(r.choice((48, 48, 0, 600)))))
    os.mkfifo(os.path.join(folder, "pipe"))
    places = PLACES if r.random() < 0.5 else PLACES[:4]
    tensors = [onnx.external("w%d" % i, [4, 3], r.choice(places), r.choice((0, 0, 12, 2 ** 63)), r.choice((48, 48, 2 ** 63)))
               for i in range(r.choice((1, 1, 2, 300)))]
    graph = onnx.model([onnx.node("MatMul", ["x", "w0"], ["y"])], [onnx.value("x", ["N", 4])],
                       [onnx.value("y", ["N", 3])], tensors)
    data, more = maybe_bytes(graph, r, 0.4)
    return [write(folder, "m.onnx", data)], "model" + more


ALL = (make_npy, make_npz, make_csv, make_safetensors, make_pictures, make_model)
