"""Tuning of glibc's malloc to keep the memory that a step frees for the next one."""

from __future__ import annotations

import ctypes
import os
import platform

# mallopt's parameters in glibc's malloc.h, and their values in bytes: up to the first value of free memory is kept at the end of
# the heap, and blocks below the second value are allocated from the heap.
_TRIM_THRESHOLD, _KEPT = -1, 2**31 - 1
_MMAP_THRESHOLD, _FROM_HEAP = -3, 2**30
# Environment variables that take precedence.
_DECIDED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Make this process keep up to 2 GB of memory freed by CPU tensors, and return whether that succeeded.

    A step allocates and frees tens of megabytes. By default glibc returns them to the system, which maps and clears them page by
    page in the next step: up to a third of the time of a small network's step. The `privet` commands do this; a library should
    not decide it for its host program. See mallopt(3).
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _DECIDED):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_THRESHOLD, _FROM_HEAP)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))
