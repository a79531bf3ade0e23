"""Requests and answers of the Open Inference Protocol over HTTP, with tensors as bytes behind the JSON."""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._errors import ShuntError
from ._tensors import WIDTHS, Array, Tensor, to_array, to_tensor


_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class Placed:
    """A tensor that lies in a region of shared memory."""

    region: str
    offset: int
    nbytes: int


class Result(dict[str, Array]):
    """The outputs of a request by their names; besides, what answered. The arrays may be read-only."""

    def __init__(self, outputs: Mapping[str, Array], head: Mapping[str, Any]) -> None:
        super().__init__(outputs)
        self.model = str(head.get("model_name", ""))
        self.version = int(head.get("model_version") or 0)
        self.id: str | None = head.get("id")
        self.parameters: dict[str, Any] = dict(head.get("parameters") or {})


@dataclass
class Wish:
    """What a caller wants besides the inputs."""

    outputs: list[str] | None = None
    places: dict[str, Placed] = field(default_factory=dict)
    id: str | None = None
    priority: int | None = None
    timeout_s: float | None = None


def _placed(p: Placed) -> dict[str, Any]:
    return {"shared_memory_region": p.region, "shared_memory_offset": p.offset, "shared_memory_byte_size": p.nbytes}


def _outputs(wish: Wish) -> list[dict[str, Any]] | None:
    names = wish.outputs if wish.outputs is not None else list(wish.places) or None
    if names is None:
        return None
    return [{"name": n, "parameters": _placed(wish.places[n])} if n in wish.places else {"name": n} for n in names]


def request(inputs: Mapping[str, Tensor | tuple[Tensor, Placed]], wish: Wish) -> tuple[dict[str, str], bytes]:
    """(headers, body)"""
    described: list[dict[str, Any]] = []
    behind: list[memoryview] = []
    for name, value in inputs.items():
        t, place = value if isinstance(value, tuple) else (value, None)
        if place is None:
            behind.append(t.data)
        described.append({"name": name, "datatype": t.datatype, "shape": t.shape,
                          "parameters": _placed(place) if place else {"binary_data_size": t.nbytes}})
    parameters: dict[str, Any] = {"binary_data_output": True}
    if wish.priority is not None:
        parameters["priority"] = wish.priority
    if wish.timeout_s is not None:
        parameters["timeout"] = max(1, round(1e6 * wish.timeout_s))
    head: dict[str, Any] = {"inputs": described, "parameters": parameters}
    outputs = _outputs(wish)
    if outputs is not None:
        head["outputs"] = outputs
    if wish.id is not None:
        head["id"] = wish.id
    text = _encode(head).encode()
    return ({"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(text))},
            b"".join([text, *behind]))


def _written(o: Mapping[str, Any], array: Array) -> Array:
    """As much of an array in shared memory as the server has written."""
    if o["shape"] == list(array.shape) and o["datatype"] == to_tensor(o["name"], array).datatype:
        return array
    raw = array.reshape(-1).view(np.uint8)
    size = math.prod(o["shape"]) * WIDTHS.get(o["datatype"], 0)
    return to_array(o["datatype"], o["shape"], raw[:size].data)


def answer(body: bytes, head_size: str | None, placed: Mapping[str, Array]) -> Result:
    """placed: where the outputs lie that were asked for in shared memory."""
    n = int(head_size) if head_size else len(body)
    try:
        head = json.loads(body[:n])
        return Result(_outputs_of(head, memoryview(body)[n:], placed), head)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise ShuntError(f"the server's answer is not one of the inference protocol: {e}") from e


def _outputs_of(head: Mapping[str, Any], view: memoryview, placed: Mapping[str, Array]) -> dict[str, Array]:
    at, outputs = 0, {}
    for o in head["outputs"]:
        size = (o.get("parameters") or {}).get("binary_data_size")
        if o["name"] in placed:
            outputs[o["name"]] = _written(o, placed[o["name"]])
        elif size is not None:
            outputs[o["name"]] = to_array(o["datatype"], o["shape"], view[at:at + size])
            at += size
        else:
            raise ShuntError(f"the server sent output {o['name']} as text, although bytes were asked for")
    return outputs
