"""Atomic and durable file writes, and the cache directory."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

try:
    import fcntl
except ImportError:  # as on Windows
    fcntl = None  # type: ignore[assignment]


def cache_directory() -> Path:
    """Return `$PRIVET_CACHE`, else `$XDG_CACHE_HOME/privet`, else `~/.cache/privet`; it need not exist yet."""
    if chosen := os.environ.get("PRIVET_CACHE"):
        return Path(chosen).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "privet"
    return Path.home() / ".cache" / "privet"


def write_atomically(path: Path, write: Callable[[Path], object], *, keep: Path | None = None) -> Path:
    """Let `write` fill a temporary file in the same folder, make it durable, rename it to `path`, and return `path`.

    Readers see the old file or the new one, and concurrent writers are safe. The old file is moved to `keep`, if given: a crash
    in between leaves it there and `path` missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write(temporary)
        with temporary.open("r+b") as file:  # Windows synchronises only files that are open for writing
            synchronise(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    # Where folders cannot be synchronised, a power failure may bring the old file back, whole.
    with contextlib.suppress(OSError):
        synchronise_folder(path.parent)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8", newline="\n"))


def write_private_text(path: Path, text: str) -> Path:
    """Write a text file that only its owner can read, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.touch(0o600, exist_ok=False)
        temporary.write_text(text, encoding="utf-8", newline="\n")

    return write_atomically(path, write)


def remove_unfinished(path: Path) -> None:
    """Remove temporary files of killed writers of `path`; the caller must hold the lock that prevents others from writing it."""
    for left in path.parent.glob(f".{path.name}.*"):
        left.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        synchronise_folder(made.parent)


def synchronise(descriptor: int) -> None:
    """Block until the file is on the disk. After an OSError its state is unknown: do not retry with the same descriptor."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # on macOS, fsync does not wait for the disk
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def synchronise_folder(folder: Path) -> None:
    """Block until the folder's entries are on the disk; not on Windows, where NTFS journals them and folders cannot be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        synchronise(descriptor)
    finally:
        os.close(descriptor)
