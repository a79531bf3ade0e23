#!/usr/bin/env python3
"""What general packers make of the bytes that `bench/pack --raw` wrote: zstd and LZ4 (pyarrow has
them) on one core, nvCOMP (nvidia-nvcomp-cu13, with cupy) on a GPU, as the bytes are and sorted into
planes: first bytes of all numbers, then second ones. Prints ratio and speed; both ways give the same
bytes again, or it says so.

    pack.py WIDTH FILE...      WIDTH: bytes of a number
"""
import sys
import time

import numpy as np

PART = 64 << 20  # bytes; a core needs seconds for them
ALGORITHMS = ("ANS", "Bitcomp", "LZ4", "Zstd", "GDeflate", "Cascaded")


def timed(fn, n=1):
    times = []
    for _ in range(n):
        began = time.perf_counter()
        out = fn()
        times.append(time.perf_counter() - began)
    return out, sorted(times)[n // 2]


def on_a_core(name, level, data):
    import pyarrow

    codec = pyarrow.Codec(name, compression_level=level) if level else pyarrow.Codec(name)
    packed, pack_s = timed(lambda: codec.compress(data))
    back, unpack_s = timed(lambda: codec.decompress(packed, decompressed_size=len(data)))
    same = memoryview(back) == memoryview(data)
    print(f"  {name}{level or ''}: {packed.size / len(data):.4f}, packs {len(data) / pack_s / 1e6:.0f} MB/s, "
          f"unpacks {len(data) / unpack_s / 1e6:.0f} MB/s{'' if same else ', OTHER BYTES'}", flush=True)


def on_a_gpu(what, data):
    import cupy
    from nvidia import nvcomp

    device = cupy.asarray(data)
    for name in ALGORITHMS:
        try:
            codec = nvcomp.Codec(algorithm=name)
            packed = codec.encode(nvcomp.as_array(device))

            def unpack(codec=codec, packed=packed):
                out = codec.decode(packed)
                cupy.cuda.Device().synchronize()
                return out

            unpack()
            back, s = timed(unpack, 5)
            same = bool((cupy.asarray(back).view(cupy.uint8).ravel()[:data.size] == device).all())
            print(f"  nvCOMP {name}, {what}: {packed.buffer_size / data.size:.4f}, unpacks {data.size / s / 1e9:.0f} GB/s"
                  f"{'' if same else ', OTHER BYTES'}", flush=True)
        except Exception as e:  # one that does not run says why
            print(f"  nvCOMP {name}, {what}: {e!r:.160}", flush=True)


def main():
    width = int(sys.argv[1])
    for path in sys.argv[2:]:
        data = np.fromfile(path, np.uint8)
        data = data[:data.size // width * width]
        print(f"{path}: {data.size / 1e6:.1f} MB")
        for name, level in (("lz4_raw", None), ("zstd", 1), ("zstd", 9)):
            on_a_core(name, level, data[:PART].tobytes())
        try:
            on_a_gpu("as it is", data)
            on_a_gpu("planes", np.ascontiguousarray(data.reshape(-1, width).T).ravel())
        except ImportError as e:
            print(f"  nvCOMP: {e}")


if __name__ == "__main__":
    main()
