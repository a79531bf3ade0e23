"""As much of ONNX files as uploads and trained weights need: where tensors lie, and what is in them.

A reader of the fields of `onnx.proto` that name tensors, so that nothing has to be installed for it; numbers
of fields are those of that file.
"""
from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._tensors import Array, Payload, to_array

_MODEL_GRAPH, _MODEL_METADATA, _GRAPH_NODE, _GRAPH_INITIALIZER = 7, 14, 1, 5
_NODE_ATTRIBUTE, _ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 5, 6, 10, 11
MOST_GRAPHS = 64
_DIMS, _DATA_TYPE, _FLOATS, _INT32S, _INT64S, _NAME, _RAW, _DOUBLES, _UINT64S, _EXTERNAL = 1, 2, 4, 5, 7, 8, 9, 10, 11, 13
_TYPES = {1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 9: "BOOL", 10: "FP16",
          11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16"}


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the ONNX file is cut off or damaged")
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("this is no ONNX file")
        if at + size > len(data):
            raise ValueError("the ONNX file is cut off")
        yield tag >> 3, data[at:at + size]
        at += size


def _inside(data: memoryview, *numbers: int) -> Iterator[memoryview]:
    for n, value in _fields(data):
        if n in numbers and isinstance(value, memoryview):
            yield value


def _tensors_of_graph(graph: memoryview, depth: int = 0) -> Iterator[memoryview]:
    if depth > MOST_GRAPHS:
        raise ValueError(f"the ONNX file has more than {MOST_GRAPHS} graphs inside each other")
    yield from _inside(graph, _GRAPH_INITIALIZER)
    for node in _inside(graph, _GRAPH_NODE):
        for attribute in _inside(node, _NODE_ATTRIBUTE):
            yield from _inside(attribute, _ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS)
            for inner in _inside(attribute, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                yield from _tensors_of_graph(inner, depth + 1)


def _external(tensor: memoryview) -> dict[str, str]:
    """Where its numbers lie in another file; empty if they do not."""
    found = {}
    for entry in _inside(tensor, _EXTERNAL):
        pair = {n: bytes(v).decode() for n, v in _fields(entry) if isinstance(v, memoryview)}
        found[pair.get(1, "")] = pair.get(2, "")
    return found


def _map(path: str) -> memoryview:
    if not os.path.getsize(path):
        raise ValueError(f"{path} is empty")
    return np.memmap(path, np.uint8, "r").data


def weight_files(path: str) -> list[str]:
    """Names of the files, relative to the model's folder, that hold weights of it."""
    found = {e["location"] for graph in _inside(_map(path), _MODEL_GRAPH) for t in _tensors_of_graph(graph)
             if (e := _external(t)).get("location")}
    return sorted(map(_inner, found))


def _inner(location: str) -> str:
    """Where weights lie, which may be only in the model's folder or below: a file from elsewhere could name any
    other of this host, to be sent."""
    steps = set(location.replace("\\", "/").split("/"))
    if steps & {"", ".", ".."} or os.path.splitdrive(location)[0] or "\0" in location:
        raise ValueError(f"the ONNX file has weights in {location!r}, which is not in its folder")
    return location


def _message(*fields: tuple[int, bytes]) -> bytes:
    """A message whose fields are texts or messages."""
    def length(n: int) -> bytes:
        return bytes([n & 127 | 128]) + length(n >> 7) if n > 127 else bytes([n])
    return b"".join(length(number << 3 | 2) + length(len(data)) + data for number, data in fields)


def metadata(key: str, value: str) -> bytes:
    """An entry of a model's metadata, for behind its file: as a part of the model, the last one counts."""
    return _message((_MODEL_METADATA, _message((1, key.encode()), (2, value.encode()))))


def payload(path: str, more: bytes = b"") -> Payload:
    """The file, or a tar file of it and of those with its weights, as an upload takes it. more: what follows the
    model's file."""
    folder, names = os.path.dirname(os.path.abspath(path)), weight_files(path)
    if not names:
        return Payload([(path, os.path.getsize(path)), more])
    parts: list[bytes | memoryview | tuple[str, int]] = []
    for name in [os.path.basename(path), *names]:
        full = os.path.join(folder, name)
        if not os.path.isfile(full):
            raise FileNotFoundError(f"{path} has weights in {name}, which is not in {folder}")
        if name in names and _is_linked(folder, name):
            raise ValueError(f"{path} has weights in {name}, which is a link: put the file itself there")
        info = tarfile.TarInfo(name)
        size = os.path.getsize(full)
        behind = b"" if name in names else more
        info.size = size + len(behind)
        parts += [info.tobuf(tarfile.PAX_FORMAT), (full, size), behind, bytes(-info.size % 512)]
    return Payload([*parts, bytes(1024)])


def _is_linked(folder: str, name: str) -> bool:
    """Is the file, or a folder on the way to it, a link? It could lead to any other file of this host."""
    steps = name.split("/")
    return any(os.path.islink(os.path.join(folder, *steps[:n + 1])) for n in range(len(steps)))


def _varints(values: list[int | memoryview]) -> list[int]:
    """A repeated field of integers, packed or not."""
    out: list[int] = []
    for v in values:
        if isinstance(v, int):
            out.append(v)
            continue
        at = 0
        while at < len(v):
            n, at = _varint(v, at)
            out.append(n)
    return [n - (1 << 64) if n >> 63 else n for n in out]


def _array(tensor: memoryview, folder: str) -> tuple[str, Array] | None:
    got: dict[int, list[int | memoryview]] = {}
    for n, v in _fields(tensor):
        got.setdefault(n, []).append(v)

    def data(number: int) -> bytes:
        return b"".join(bytes(v) for v in got.get(number, ()) if isinstance(v, memoryview))

    kinds = _varints(got.get(_DATA_TYPE, []))
    kind = _TYPES.get(kinds[-1] if kinds else 0)
    if kind is None or _NAME not in got:
        return None
    name, shape = data(_NAME).decode(), _varints(got.get(_DIMS, []))
    where = _external(tensor)
    if where.get("location"):
        whole = _map(os.path.join(folder, _inner(where["location"])))
        begin = max(0, int(where.get("offset") or 0))
        size = int(where.get("length") or len(whole) - begin)
        return name, to_array(kind, shape, whole[begin:begin + size])
    if _RAW in got:
        return name, to_array(kind, shape, data(_RAW))
    if kind == "FP32":
        return name, to_array(kind, shape, data(_FLOATS))
    if kind == "FP64":
        return name, to_array(kind, shape, data(_DOUBLES))
    numbers = _varints(got.get({"INT64": _INT64S, "UINT32": _UINT64S, "UINT64": _UINT64S}.get(kind, _INT32S), []))
    if kind in ("FP16", "BF16"):
        return name, to_array(kind, shape, np.array(numbers, "<u2").tobytes())
    return name, np.array(numbers).astype(kind.lower().replace("bool", "bool_")).reshape(shape)


def initializers(path: str) -> dict[str, Array]:
    """The weights of a model by their names. path: an ONNX file, or a tar file as uploads have them."""
    if tarfile.is_tarfile(path):
        return _from_tar(path)
    out: dict[str, Array] = {}
    for graph in _inside(_map(path), _MODEL_GRAPH):
        for t in _inside(graph, _GRAPH_INITIALIZER):
            if (found := _array(t, os.path.dirname(os.path.abspath(path)))) is not None:
                out[found[0]] = found[1]
    return out


def _from_tar(path: str) -> dict[str, Array]:
    import tempfile
    from ._tensors import read_safetensors
    with tarfile.open(path) as tar, tempfile.TemporaryDirectory() as folder:
        out: dict[str, Any] = {}
        for member in tar:
            if os.path.basename(member.name) != member.name or not member.isfile():
                raise ValueError(f"{path} has a member {member.name}")
            source = tar.extractfile(member)
            assert isinstance(source, io.BufferedReader)
            with open(os.path.join(folder, member.name), "wb") as f:
                while chunk := source.read(1 << 20):
                    f.write(chunk)
        for name in sorted(os.listdir(folder)):  # initializers.safetensors goes before the graph's own
            if name.endswith(".onnx"):
                out = {**{k: v.copy() for k, v in initializers(os.path.join(folder, name)).items()}, **out}
            elif name == "initializers.safetensors":
                out.update({k: v.copy() for k, v in read_safetensors(os.path.join(folder, name)).items()})
        return out
