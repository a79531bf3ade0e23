#!/usr/bin/env python3
"""ONNX Runtime's side of ../cpu.py: loads FILE.onnx, says "ready", and for each number on standard
input runs the model so often with the tensors of FILE.st, and prints the milliseconds of each run.
"""
import json
import sys
import time

import numpy as np
import onnxruntime

DTYPES = {"F32": np.float32, "I64": np.int64}


def tensors(path, batch):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    for name, t in json.loads(data[8:8 + n]).items():
        a, b = (8 + n + x for x in t["data_offsets"])
        yield name, np.frombuffer(data[a:b], DTYPES[t["dtype"]]).reshape(t["shape"])[:batch]


def main():
    at, batch, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Between its turns it must not take the processor from who is measured then.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(at + ".onnx", options, providers=["CPUExecutionProvider"])
    x = dict(tensors(at + ".st", batch))
    session.run(None, x)
    print("ready", flush=True)
    for line in sys.stdin:
        ms = []
        for _ in range(int(line)):
            start = time.perf_counter()
            session.run(None, x)
            ms.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(ms), flush=True)


if __name__ == "__main__":
    main()
