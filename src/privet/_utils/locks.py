"""Locks of files, which end with their process however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

try:
    import fcntl
except ImportError:  # as on Windows
    fcntl = None  # type: ignore[assignment]

# What flock says when somebody else has the lock, rather than that there are no locks.
_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_SUFFIX = ".lock"
# Seconds in which filelock finds out that whoever left a lock behind is dead, where the system does not free it.
_PATIENCE = 0.5


def lock(descriptor: int, path: Path, *, wait: bool) -> Callable[[], None]:
    """Take the exclusive lock of an open file, and return what gives it back.

    With flock, the lock is on the descriptor itself: whoever inherits it in a fork shares the lock, which is given back when the
    last copy is closed. Elsewhere it is filelock's, on a file beside this one: Windows keeps others from reading what is locked.

    Args:
        descriptor: of the file, open for writing.
        path: of the file.
        wait: for whoever has the lock, instead of refusing.

    Raises:
        BlockingIOError: somebody else has it.
        OSError: the file system has no locks.
    """
    if fcntl is None:
        return _lock_beside(path, wait)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _TAKEN:
            raise BlockingIOError(error.errno, os.strerror(error.errno), str(path)) from None
        raise
    return _with_the_descriptor


def _with_the_descriptor() -> None:
    """Do nothing: the lock is given back when the descriptor is closed."""


def _lock_beside(path: Path, wait: bool) -> Callable[[], None]:
    import filelock

    # For all threads: a journal is closed by whichever is there at the end.
    beside = filelock.FileLock(f"{path.absolute()}{_SUFFIX}", thread_local=False)
    try:
        beside.acquire(timeout=-1 if wait else _PATIENCE)
    except filelock.Timeout:
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(path)) from None

    def give_back() -> None:
        with contextlib.suppress(OSError):
            beside.release()

    return give_back
