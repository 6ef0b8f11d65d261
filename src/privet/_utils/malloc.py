"""The memory that a step frees is kept for the next one."""

from __future__ import annotations

import ctypes
import os
import platform

# Numbers of mallopt's parameters in glibc's malloc.h, and what we set them to in bytes: what is free at the end of the heap is
# kept up to the first, and blocks below the second are taken from the heap.
_TRIM_THRESHOLD, _KEPT = -1, 2**31 - 1
_MMAP_THRESHOLD, _FROM_HEAP = -3, 2**30
# Whoever sets one of these has decided already.
_DECIDED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed() -> bool:
    """Have this process keep the memory that tensors on the CPU free, up to 2 GB, and return whether it will.

    A step frees what it took, some tens of megabytes. glibc gives that back to the system, which hands it out page by page and
    cleared in the next step: up to a third of the time of a small network's step. The price is that the process stays as large
    as it has been, up to the 2 GB. The commands of `privet` keep theirs; a library does not decide it for the program that it
    is part of. False, and nothing done, where the C library is not glibc or its environment variables have decided.

    Source: mallopt(3).
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _DECIDED):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_THRESHOLD, _FROM_HEAP)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))
