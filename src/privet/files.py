"""Writing files whole or not at all, and the folder for what can be fetched or made again."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path


def cache_directory() -> Path:
    """Return `$PRIVET_CACHE`, else `$XDG_CACHE_HOME/privet`, else `~/.cache/privet`; it need not exist yet."""
    if chosen := os.environ.get("PRIVET_CACHE"):
        return Path(chosen).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "privet"
    return Path.home() / ".cache" / "privet"


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file beside `path`, make it durable, and put it in place in one move.

    A reader sees the old file or the new one, and two writers do no harm.

    Args:
        path: where the file is to be; missing folders are made.
        write: called with the temporary path.

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
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file whole or not at all."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
