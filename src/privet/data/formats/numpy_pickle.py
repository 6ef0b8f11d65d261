"""Restricted reader of pickled NumPy arrays."""

from __future__ import annotations

__all__ = ["load"]

import pickle
from typing import Any, Protocol

import numpy as np

# An array refers to its reconstruction function, which avoids importing it from a private module.
_RECONSTRUCT = np.empty(0).__reduce__()[0]

# All globals that pickled arrays of numbers need, by their names in NumPy 1 and NumPy 2.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...
    def readline(self) -> bytes: ...


def load(file: _Readable) -> Any:
    """Load pickled arrays of numbers in tuples, lists and dicts.

    Strings of Python 2 are decoded as Latin-1, as arrays of that time require.

    Errors: pickle.UnpicklingError if the pickle refers to anything else, before it is used.
    """
    return _ArraysOnly(file, encoding="latin1").load()


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the pickle refers to {module}.{name}, which is not allowed") from None
