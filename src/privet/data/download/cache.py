"""Where fetched data are kept, and how they get there without ever being half there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet._utils.files import cache_directory, write_atomically


def path(name: str) -> Path:
    """Return the file in the cache that belongs to the data set `name`, whether or not it exists."""
    return cache_directory() / "data" / f"{name}.npz"


def write(target: Path, arrays: Mapping[str, NDArray[np.generic]]) -> Path:
    """Write an .npz in one go: a reader sees the old file or the new one, and two writers do no harm.

    Args:
        target: the file; missing folders are made.
        arrays: name → array, of plain dtypes.
    Returns: `target`.
    Errors: OSError if the place cannot be written; nothing is left behind.
    """

    def save(temporary: Path) -> None:
        with temporary.open("xb") as file:  # a path without its suffix would be given one
            np.savez(file, **dict(arrays))  # type: ignore[arg-type]

    return write_atomically(target, save)
