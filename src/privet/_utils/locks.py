"""File locks, which are released when their process ends, even if it is killed."""

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

# Errors of flock if another process holds the lock; other errors mean that the file system has no locks.
_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_SUFFIX = ".lock"
# Seconds in which filelock detects a stale lock of a dead process, on systems that do not release it.
_PATIENCE = 0.5


def lock(descriptor: int, path: Path, *, wait: bool) -> Callable[[], None]:
    """Acquire the exclusive lock of an open file, and return the function that releases it.

    With flock, the lock belongs to the open file: a forked process shares it, and closing the last copy of the descriptor
    releases it. Without flock, filelock locks a separate file, because on Windows other processes cannot read a locked file.
    BlockingIOError means that another process holds the lock; another OSError, that the file system has no locks.
    """
    if fcntl is None:
        return _lock_separate_file(path, wait)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _TAKEN:
            raise BlockingIOError(error.errno, os.strerror(error.errno), str(path)) from None
        raise
    return lambda: None  # closing the descriptor releases the lock


def _lock_separate_file(path: Path, wait: bool) -> Callable[[], None]:
    import filelock

    # Not thread-local: another thread may close the journal.
    separate = filelock.FileLock(f"{path.absolute()}{_SUFFIX}", thread_local=False)
    try:
        separate.acquire(timeout=-1 if wait else _PATIENCE)
    except filelock.Timeout:
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(path)) from None

    def unlock() -> None:
        with contextlib.suppress(OSError):
            separate.release()

    return unlock
