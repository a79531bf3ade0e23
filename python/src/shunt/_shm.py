"""Regions of POSIX shared memory for tensors of requests."""
from __future__ import annotations

import contextlib
import mmap
import os
import threading
import uuid
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ._tensors import Array
from ._v2 import Placed

ALIGN = 64
FOLDER = "/dev/shm"  # where Linux has what shm_open() opens


class Region:
    """nbytes of memory that a server on this host reads and writes. Client.shared_memory() makes it and
    Client.release() ends it; arrays of it stay valid, but the server sees them no more. Threads may share it."""

    def __init__(self, nbytes: int) -> None:
        self.name, self.nbytes = "py-" + uuid.uuid4().hex, nbytes
        self.key = "/shunt-" + self.name
        fd = os.open(FOLDER + self.key, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(fd, 0, nbytes)  # now, not by a signal at the first use
            self._all: Array = np.frombuffer(mmap.mmap(fd, nbytes), np.uint8)  # mapped as long as arrays are there
        except BaseException:
            self.close()
            raise
        finally:
            os.close(fd)
        self._begin = self._all.__array_interface__["data"][0]
        self._used, self._lock = 0, threading.Lock()

    def array(self, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> Array:
        """The next piece of it. MemoryError when it is full."""
        of = np.dtype(dtype)
        size = of.itemsize * int(np.prod(shape, dtype=np.int64))
        with self._lock:
            at = self._used
            if at + size > self.nbytes:
                raise MemoryError(f"the region of {self.nbytes} bytes has {self.nbytes - at} left, not {size}")
            self._used = at + -(-size // ALIGN) * ALIGN
        found: Array = self._all[at:at + size].view(of).reshape(shape)
        return found

    def place(self, array: Array) -> Placed | None:
        """Where an array lies in it; None if it does not."""
        at = array.__array_interface__["data"][0] - self._begin
        if not array.flags.c_contiguous or at < 0 or at + array.nbytes > self.nbytes:
            return None
        return Placed(self.name, at, array.nbytes)

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(FOLDER + self.key)
