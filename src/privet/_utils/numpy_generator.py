"""NumPy's global generator, saved, restored and watched.

NumPy's own functions copy the 624 words of the state one by one, in both directions: 65 µs, as long as three layers of a small
model. So the memory of the generator is copied, where its layout is known.
"""

from __future__ import annotations

__all__ = ["save_numpy_generator", "watch_numpy_generator"]

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import mtrand

_BYTES = 4 * (624 + 1)  # words of the Mersenne Twister, and the position in them
_TAIL = 64  # bytes at the end: every draw changes the position; all words are renewed before it repeats

_SEED = 20_260
_FIRST = float(np.random.RandomState(_SEED).random_sample())
_Memory: Any = ctypes.c_char * _BYTES
_End: Any = ctypes.c_char * _TAIL

Restore = Callable[[], None]


def save_numpy_generator() -> Restore:
    """Save NumPy's global generator, and return a function that restores it.

    Until then the generator is one that `np.random.seed` can seed.
    """
    bits = mtrand.get_bit_generator()
    if type(bits) is np.random.MT19937:
        return (_save_memory if _memory_is_known() else _save_state)(bits)
    restore = _save_state(bits)
    mtrand.set_bit_generator(np.random.MT19937())
    return restore


def watch_numpy_generator() -> Callable[[], bool]:
    """Return a function that tells, once, whether NumPy's global generator was drawn from or replaced since.

    Use it between `save_numpy_generator` and its restoring: it changes the generator.
    """
    bits = mtrand.get_bit_generator()
    if type(bits) is not np.random.MT19937 or not _memory_is_known():
        np.random.seed(_SEED)
        return lambda: float(mtrand.random_sample()) != _FIRST
    _drop_half_pair(bits)
    # Numbers after a seed of the user's lead to another state, however many are drawn.
    _write(bits, _memory_without_seed())
    end = _read_end(bits)
    return lambda: mtrand.get_bit_generator() is not bits or _read_end(bits) != end


def _save_state(bits: Any) -> Restore:
    """Save the state by NumPy's own functions."""
    state = np.random.get_state(legacy=False)

    def restore() -> None:
        _bind(bits)
        np.random.set_state(state)

    return restore


def _save_memory(bits: np.random.MT19937) -> Restore:
    """Save the state by copying its memory."""
    memory = _read(bits)
    left = _drop_half_pair(bits)

    def restore() -> None:
        _bind(bits)
        _drop_half_pair(bits)
        _write(bits, memory)
        if left is not None:
            np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 1, "gauss": left})

    return restore


@functools.cache
def _memory_without_seed() -> bytes:
    """Return a state that `np.random.seed` does not reach from an integer, as it seeds by another algorithm."""
    return _read(np.random.MT19937(_SEED))


def _drop_half_pair(bits: Any) -> float | None:
    """Return what is left of the last pair of normal numbers, which nothing else can read, and drop it.

    Normal numbers are drawn in pairs: drawing the second of a pair does not change the memory.
    """
    before = _read_end(bits)
    number = float(mtrand.standard_normal())
    if _read_end(bits) == before:
        return number
    mtrand.standard_normal()
    return None


def _bind(bits: Any) -> None:
    """Bind a generator as the global one, unless it is: binding loses what is left of a pair of normal numbers."""
    if mtrand.get_bit_generator() is not bits:
        mtrand.set_bit_generator(bits)


def _read(bits: np.random.MT19937) -> bytes:
    held: bytes = _view(bits).raw
    return held


def _read_end(bits: np.random.MT19937) -> bytes:
    end: bytes = _view_end(bits).raw
    return end


def _write(bits: np.random.MT19937, memory: bytes) -> None:
    _view(bits).raw = memory


@functools.lru_cache(maxsize=2)
def _view(bits: np.random.MT19937) -> Any:
    return _Memory.from_address(bits.ctypes.state_address)


@functools.lru_cache(maxsize=2)
def _view_end(bits: np.random.MT19937) -> Any:
    return _End.from_address(bits.ctypes.state_address + _BYTES - _TAIL)


@functools.cache
def _memory_is_known() -> bool:
    """Return whether the memory of a generator holds what its public state says, in that order."""
    bits = np.random.MT19937(1)
    try:
        held: Any = bits.state["state"]
        return _read(bits) == np.append(held["key"], held["pos"]).astype(np.uint32).tobytes()
    except (AttributeError, KeyError, TypeError):
        return False
