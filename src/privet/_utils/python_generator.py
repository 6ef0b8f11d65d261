"""Python's global generator, read and written as a whole.

Python's own functions convert the 624 words of the state one by one, in both directions. So the memory of the generator is
copied, where its layout is known.
"""

from __future__ import annotations

__all__ = ["State", "read_python_generator", "write_python_generator"]

import ctypes
import functools
import random
import sys
from typing import Any

_BYTES = 4 * (1 + 624)  # the position in the words of the Mersenne Twister, and the words

_Memory: Any = ctypes.c_char * _BYTES

State = Any  # what `random.getstate` returns, or a copy of the memory with what is left of the last pair of normal numbers
_GLOBAL: Any = random._inst


def read_python_generator() -> State:
    """Return the state of Python's global generator; states compare as equal if the same numbers follow."""
    return (_view(_GLOBAL).raw, _GLOBAL.gauss_next) if _memory_is_known() else random.getstate()


def write_python_generator(state: State) -> None:
    """Restore a state of Python's global generator."""
    if _memory_is_known():
        _view(_GLOBAL).raw, _GLOBAL.gauss_next = state
    else:
        random.setstate(state)


@functools.lru_cache(maxsize=2)
def _view(generator: random.Random) -> Any:
    """Return a view of the memory that follows the header of all objects."""
    return _Memory.from_address(id(generator) + object.__basicsize__)


@functools.cache
def _memory_is_known() -> bool:
    """Return whether the memory of a generator holds what its public state says, in that order."""
    if sys.implementation.name != "cpython" or random.Random.__basicsize__ < object.__basicsize__ + _BYTES:
        return False
    if type(_GLOBAL) is not random.Random:
        return False
    made = random.Random(1)
    made.random()  # so that the position is no round number
    *words, position = made.getstate()[1]
    return bool(_view(made).raw == b"".join(word.to_bytes(4, sys.byteorder) for word in (position, *words)))
