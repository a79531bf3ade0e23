"""Tensors of the inference protocol with their binary extension, and of safetensors files: NumPy to bytes and back.

BF16, which NumPy does not have, comes from PyTorch tensors or arrays of ml_dtypes; it is given back as an
array of ml_dtypes where that is installed, and widened to float32 where it is not.
"""
from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_KINDS = {"bool": "BOOL", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "uint8": "UINT8",
          "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "float16": "FP16", "float32": "FP32",
          "float64": "FP64", "bfloat16": "BF16"}
_NUMPY = {v: k for k, v in _KINDS.items() if v != "BF16"}
_BY_DTYPE = {np.dtype(v): k for k, v in _NUMPY.items()}  # dtype.name takes ten times as long
_IN_FILES = {"BOOL": "BOOL", "BF16": "BF16", "INT8": "I8", "INT16": "I16", "INT32": "I32", "INT64": "I64",
             "UINT8": "U8", "UINT16": "U16", "UINT32": "U32", "UINT64": "U64", "FP16": "F16", "FP32": "F32",
             "FP64": "F64"}
WIDTHS = {"BF16": 2, **{k: np.dtype(v).itemsize for k, v in _NUMPY.items()}}
_FROM_FILES = {v: k for k, v in _IN_FILES.items()}


class Tensor:
    """Elements in row-major order, little-endian. `data` is the memory of `array`, which it keeps alive."""

    __slots__ = ("datatype", "shape", "array")

    def __init__(self, datatype: str, array: Array) -> None:
        self.datatype, self.array = datatype, array
        self.shape = list(array.shape)

    @property
    def data(self) -> memoryview:
        return self.array.reshape(-1).view(np.uint8).data if self.array.size else memoryview(b"")

    @property
    def nbytes(self) -> int:
        return self.array.nbytes


def _of_torch(value: Any) -> tuple[str | None, Array]:
    import torch
    value = value.detach().cpu().resolve_neg().contiguous()
    if value.dtype == torch.bfloat16:
        return "BF16", np.asarray(value.view(torch.int16).numpy())
    return None, np.asarray(value.numpy())


def to_tensor(name: str, value: Any) -> Tensor:
    """Of an array, a PyTorch tensor, or whatever np.asarray takes. TypeError if its elements are no numbers."""
    if isinstance(value, Tensor):
        return value
    kind: str | None = None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        kind, array = _of_torch(value)
    else:
        array = np.asarray(value)
    kind = kind or _BY_DTYPE.get(array.dtype) or _KINDS.get(array.dtype.name)
    if kind is None:
        raise TypeError(f"tensor {name} has elements of type {array.dtype}; there are {', '.join(_KINDS)}")
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.ndim and not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return Tensor(kind, array)


def stacked(name: str, rows: Sequence[Any]) -> Tensor:
    """One tensor of which each of them is a row."""
    some = [to_tensor(name, r) for r in rows]
    whole = np.stack([t.array for t in some])
    return Tensor("BF16", whole) if all(t.datatype == "BF16" for t in some) else to_tensor(name, whole)


def to_array(datatype: str, shape: Sequence[int], data: bytes | memoryview) -> Array:
    """A view of data, which may be read-only."""
    if datatype == "BF16":
        bits = np.frombuffer(data, "<u2").reshape(shape)
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            wide: Array = (bits.astype(np.uint32) << 16).view(np.float32)
            return wide
        narrow: Array = bits.view(bfloat16)
        return narrow
    if datatype not in _NUMPY:
        raise TypeError(f"the server sent elements of type {datatype}, which this release does not know")
    dtype = np.dtype(_NUMPY[datatype]).newbyteorder("<")
    return np.frombuffer(data, dtype).reshape(shape)


def cast(name: str, t: Tensor, datatype: str) -> Tensor:
    """To what a model takes, where that loses no more than precision: never from floats to integers, and from
    integers to smaller ones only if they have room for all of them."""
    if datatype == "BF16" and np.can_cast(t.array.dtype, np.float32, casting="same_kind"):
        return Tensor("BF16", _to_bf16(t.array.astype(np.float32)))
    if t.datatype == datatype or datatype not in _NUMPY:
        return t
    to = np.dtype(_NUMPY[datatype])
    if t.array.dtype.kind in "iu" and to.kind in "iu":
        has_room = not t.array.size or np.iinfo(to).min <= t.array.min() and t.array.max() <= np.iinfo(to).max
        if not has_room:
            raise ValueError(f"tensor {name} has numbers from {t.array.min()} to {t.array.max()}: the model takes {to}")
    elif not np.can_cast(t.array.dtype, to, casting="same_kind"):
        return t
    return Tensor(datatype, t.array.astype(to))


def _to_bf16(array: npt.NDArray[np.float32]) -> Array:
    """The upper halves of the floats, rounded to nearest even; what is no number stays none."""
    bits = array.reshape(-1).view(np.uint32).astype(np.uint64)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    upper = np.where(np.isnan(array.reshape(-1)), 0x7FC0, upper)
    return upper.astype("<u2").reshape(array.shape)


class Payload:
    """Bytes that can be sent more than once, from any position: pieces in memory, and files."""

    def __init__(self, parts: Sequence[bytes | memoryview | tuple[str, int]]) -> None:
        """A part (path, n) is the first n bytes of a file."""
        self.parts = list(parts)
        self.size = sum(p[1] if isinstance(p, tuple) else len(p) for p in self.parts)

    def chunks(self, start: int = 0, piece: int = 1 << 20) -> Iterator[bytes | memoryview]:
        for part in self.parts:
            size = part[1] if isinstance(part, tuple) else len(part)
            if start >= size:
                start -= size
                continue
            if isinstance(part, tuple):
                yield from _read(part[0], start, size, piece)
            else:
                view = memoryview(part)
                for at in range(start, size, piece):
                    yield view[at:at + piece]
            start = 0

    def sha256(self) -> bytes:
        h = hashlib.sha256()
        for chunk in self.chunks():
            h.update(chunk)
        return h.digest()


def _read(path: str, start: int, size: int, piece: int) -> Iterator[bytes]:
    with open(path, "rb") as f:
        f.seek(start)
        left = size - start
        while left:
            got = f.read(min(piece, left))
            if not got:
                raise OSError(f"{path} became shorter while it was sent")
            left -= len(got)
            yield got


def safetensors(tensors: Mapping[str, Any]) -> Payload:
    """A safetensors file of them, without a copy of what is in memory already."""
    head: dict[str, Any] = {}
    parts: list[bytes | memoryview | tuple[str, int]] = []
    at = 0
    for name, value in tensors.items():
        t = to_tensor(name, value)
        head[name] = {"dtype": _IN_FILES[t.datatype], "shape": t.shape, "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
        parts.append(t.data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return Payload([len(text).to_bytes(8, "little") + text, *parts])


def read_safetensors(path: str) -> dict[str, Array]:
    """All tensors of a file, mapped: they are read when they are used."""
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        if 8 + n > size:
            raise ValueError(f"{path} is no safetensors file, or is cut off")
        head = json.loads(f.read(n))
    raw = np.memmap(path, np.uint8, "r")[8 + n:] if 8 + n < size else np.zeros(0, np.uint8)
    try:
        return {name: _of_file(t, raw) for name, t in head.items() if name != "__metadata__"}
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise ValueError(f"{path} is no safetensors file, or is cut off: {e}") from e


def _of_file(t: Mapping[str, Any], raw: Array) -> Array:
    a, b = t["data_offsets"]
    if not 0 <= a <= b <= len(raw):
        raise ValueError(f"it has no bytes {a} to {b}")
    return to_array(_FROM_FILES[t["dtype"]], t["shape"], raw[a:b].data)
