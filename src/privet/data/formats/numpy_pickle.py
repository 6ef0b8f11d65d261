"""Reading NumPy arrays out of a pickle that may do nothing else."""

from __future__ import annotations

import pickle
from typing import Any, Protocol

import numpy as np

# An array names its own rebuilding function, which spares us the private module that it lives in.
_RECONSTRUCT = np.empty(0).__reduce__()[0]

# All that pickled arrays of numbers need, under the names that NumPy 1 and NumPy 2 give them.
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
    """Return what is pickled in `file`: arrays of numbers in tuples, lists and dicts.

    Strings of Python 2 are read as Latin-1, which is how arrays were stored then.

    Errors: pickle.UnpicklingError if the pickle asks for anything else, before that is touched.
    """
    return _ArraysOnly(file, encoding="latin1").load()


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, which is not allowed") from None
