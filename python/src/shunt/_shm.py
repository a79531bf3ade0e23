"""Regions of POSIX shared memory for tensors of requests."""
from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading
import uuid
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ._errors import ShuntError
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
        if not os.path.isdir(FOLDER):
            raise ShuntError(f"shared memory needs a server on this host, and {FOLDER} as Linux has it")
        self._owner = os.getpid()
        fd = os.open(FOLDER + self.key, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.close = weakref.finalize(self, _unlink, FOLDER + self.key, self._owner)  # also when the process ends
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

    def array(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32) -> Array:
        """The next piece of it. MemoryError when it is full."""
        of = np.dtype(dtype)
        lengths = tuple(int(n) for n in np.atleast_1d(np.asarray(shape, np.int64)))
        if any(n < 0 for n in lengths):
            raise ValueError(f"{lengths} is no shape")
        size = of.itemsize * math.prod(lengths)
        with self._lock:
            at = self._used
            if at + size > self.nbytes:
                raise MemoryError(f"the region of {self.nbytes} bytes has {self.nbytes - at} left, not {size}")
            self._used = at + -(-size // ALIGN) * ALIGN
        found: Array = self._all[at:at + size].view(of).reshape(lengths)
        return found

    def place(self, array: Array) -> Placed | None:
        """Where an array lies in it; None if it does not."""
        at = array.__array_interface__["data"][0] - self._begin
        if not array.flags.c_contiguous or at < 0 or at + array.nbytes > self.nbytes:
            return None
        return Placed(self.name, at, array.nbytes)

    @property
    def is_own(self) -> bool:
        """Was it made by this process, and not by the one that it was forked from?"""
        return self._owner == os.getpid()


def _unlink(path: str, owner: int) -> None:
    if os.getpid() == owner:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
