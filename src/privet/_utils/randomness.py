"""Randomness of user code: from a secret seed, for every example by itself, and without a trace in the user's generators.

Data sets draw augmentations from the global generators of torch, NumPy and Python. One generator that runs through a whole batch
would let every example shift what those after it draw, so each example starts from a number of its own.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.random import mtrand
from numpy.typing import NDArray

# A source of random words: how many → so many uniform and independent 64-bit words.
Words = Callable[[int], NDArray[np.uint64]]

_KEY_BYTES = 32
_NUMPY = "MT19937"  # the only kind that np.random.seed can seed


@dataclass(frozen=True)
class Seeds:
    """Secret numbers for the positions of one draw, each a function of the key and its position alone.

    So an example's random numbers depend neither on the size of the physical batches nor on who reads them.

    Args:
        key: 32 uniform secret bytes, for one draw only.
        start: first position.
    """

    key: bytes = field(repr=False)
    start: int = 0

    @staticmethod
    def draw(words: Words | None = None) -> Seeds:
        """Return seeds with a key of a source of random words; by default of the operating system."""
        return Seeds(os.urandom(_KEY_BYTES) if words is None else words(_KEY_BYTES // 8).tobytes())

    def after(self, number: int) -> Seeds:
        """Return the seeds from so many positions on."""
        return replace(self, start=self.start + number)

    def several(self, each: int) -> Seeds:
        """Return the seeds of positions that have so many rows each."""
        return replace(self, start=self.start * each)

    def numbers(self, size: int) -> list[int]:
        """Return `size` 64-bit numbers, uniform and independent to whoever does not know the key.

        Source:
            AES-256 in counter mode, NIST SP 800-38A.
        """
        block, skipped = divmod(self.start, 2)  # of 16 bytes
        cipher = Cipher(algorithms.AES(self.key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
        numbers: list[int] = np.frombuffer(cipher.update(bytes(8 * (size + skipped))), dtype="<u8")[skipped:].tolist()
        return numbers


_kept: ContextVar[bool] = ContextVar("kept", default=False)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Leave the global generators of torch, Python and NumPy as they were before; inside of another one, do nothing.

    Inside, NumPy's is of the kind that `seed_generators` can seed.
    """
    if _kept.get():
        yield
        return
    torch_states = [(generator, generator.get_state()) for generator in _torch_generators()]
    python_state, numpy_state, numpy_kind = random.getstate(), np.random.get_state(legacy=False), mtrand.get_bit_generator()
    seedable = numpy_state["bit_generator"] == _NUMPY
    if not seedable:
        mtrand.set_bit_generator(np.random.MT19937())
    token = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(token)
        mtrand.set_bit_generator(numpy_kind)
        if seedable:
            np.random.set_state(numpy_state)
        random.setstate(python_state)
        for generator, state in torch_states:
            generator.set_state(state)


def seed_generators(number: int) -> None:
    """Seed the global generators of torch, NumPy and Python, inside of `generators_kept`.

    torch and NumPy run the same algorithm and seed it alike with 32 bits: each gets its own half, as equal bits would give them
    equal streams.

    Args:
        number: uniform, of 64 bits.
    """
    for generator in _torch_generators():
        generator.manual_seed(number & 0xFFFF_FFFF)
    np.random.seed(number >> 32)
    random.seed(number)


def _torch_generators() -> list[torch.Generator]:
    """Return torch's global generators, those of devices only where a device is in use: starting one takes seconds."""
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [torch.default_generator, *devices]
