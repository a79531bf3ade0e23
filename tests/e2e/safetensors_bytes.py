"""safetensors: files as tensors, and tensors as files. Standard library only."""
import json
import struct


def read_st(path):
    """safetensors: {name: (dtype, shape, bytes)}"""
    with open(path, "rb") as f:
        raw = f.read()
    (n,) = struct.unpack_from("<Q", raw)
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}


def st_bytes(tensors):
    head, at = {}, 0
    for k, (dtype, shape, data) in tensors.items():
        head[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values())
