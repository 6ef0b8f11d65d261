"""Cache of fetched data, with atomic writes."""

from __future__ import annotations

__all__ = ["path", "write"]

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet._utils.files import cache_directory, write_atomically


def path(name: str) -> Path:
    """Return the path of a data set's file in the cache, whether or not it exists."""
    return cache_directory() / "data" / f"{name}.npz"


def write(target: Path, arrays: Mapping[str, NDArray[np.generic]]) -> Path:
    """Write an .npz file atomically: readers see the old or the new file, and concurrent writers are safe.

    Args:
        target: the file; missing folders are created.
        arrays: name → array of a plain dtype.
    Returns: `target`.
    Errors: OSError if the file cannot be written; no partial file remains.
    """

    def save(temporary: Path) -> None:
        with temporary.open("xb") as file:  # given a path without the suffix .npz, numpy would append it
            np.savez(file, **dict(arrays))  # type: ignore[arg-type]

    return write_atomically(target, save)
