"""Writing files whole or not at all, and the folder for what can be fetched or made again."""

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
    """Let `write` fill a temporary file beside `path`, make it durable, and put it in place in one move.

    A reader sees the old file or the new one, and two writers do no harm.

    Args:
        path: where the file is to be; missing folders are made.
        write: called with the temporary path.
        keep: where the file that is replaced goes, in the same folder; a crash in between leaves it there and `path` missing.

    Returns:
        `path`.

    Raises:
        OSError: the place cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write(temporary)
        with temporary.open("r+b") as file:  # Windows synchronises only what may be written to
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
    """Write a text file whole or not at all."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8", newline="\n"))


def remove_unfinished(path: Path) -> None:
    """Remove what writers of `path` left that were killed; only for whoever keeps others from writing it."""
    for left in path.parent.glob(f".{path.name}.*"):
        left.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each durable in the one above.

    Raises:
        OSError: it cannot be made.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        synchronise_folder(made.parent)


def synchronise(descriptor: int) -> None:
    """Return when everything written to the file is on the disk.

    Raises:
        OSError: it is not, and the state of the file is unknown: the same descriptor must not be tried again.
    """
    if hasattr(fcntl, "F_FULLFSYNC"):  # elsewhere fsync waits for the disk itself; there it does not
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def synchronise_folder(folder: Path) -> None:
    """Return when names that were put into the folder are on the disk; errors as for `synchronise`.

    On Windows there is nothing to ask for: folders cannot be opened, and NTFS keeps a log of their changes by itself.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        synchronise(descriptor)
    finally:
        os.close(descriptor)
