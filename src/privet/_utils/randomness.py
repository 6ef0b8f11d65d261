"""Randomness of user code: a secret seed per example, without changing the user's generators.

Data sets draw augmentations from the global generators of torch, NumPy and Python. With one stream for a whole batch, every
example would shift the draws of those after it, so each example starts from its own seed.
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

# A source of random words: number of words → that many independent uniform 64-bit words.
Words = Callable[[int], NDArray[np.uint64]]

_KEY_BYTES = 32
_ODD = 0x9E37_79B1
_SEED = 20_260
_OF_NUMPY, _OF_PYTHON = float(np.random.RandomState(_SEED).random_sample()), random.Random(_SEED).random()
_SPARE = np.random.MT19937(0)


@dataclass(frozen=True)
class Seeds:
    """Secret seeds for the positions of one draw, each a function of the key (32 uniform bytes, for one draw) and its position.

    So an example's random numbers depend neither on the physical batch size nor on the process that reads it.
    """

    key: bytes = field(repr=False)
    start: int = 0

    @staticmethod
    def draw(words: Words | None = None) -> Seeds:
        """Return seeds with a fresh key from a source of random words; by default from the operating system."""
        return Seeds(os.urandom(_KEY_BYTES) if words is None else words(_KEY_BYTES // 8).tobytes())

    def after(self, number: int) -> Seeds:
        """Return the seeds from `number` positions on."""
        return replace(self, start=self.start + number)

    def for_rows(self, each: int) -> Seeds:
        """Return the seeds for positions with `each` rows each."""
        return replace(self, start=self.start * each)

    def numbers(self, size: int) -> list[int]:
        """Return `size` 64-bit numbers of AES-256 in counter mode, indistinguishable from uniform ones without the key."""
        block, skipped = divmod(self.start, 2)  # of 16 bytes
        cipher = Cipher(algorithms.AES(self.key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
        numbers: list[int] = np.frombuffer(cipher.update(bytes(8 * (size + skipped))), dtype="<u8")[skipped:].tolist()
        return numbers


_kept: ContextVar[bool] = ContextVar("kept", default=False)


@contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the global generators of torch, Python and NumPy at the end; nested uses do nothing.

    Inside, NumPy's functions draw from a spare generator, which is faster than copying the state of the user's generator. NumPy
    draws normal numbers in pairs; the second number of a begun pair is lost.
    """
    if _kept.get():
        yield
        return
    torch_states = [(generator, generator.get_state()) for generator in torch_generators()]
    python_state, numpy_bits = random.getstate(), mtrand.get_bit_generator()
    mtrand.set_bit_generator(_SPARE)
    token = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(token)
        mtrand.set_bit_generator(numpy_bits)
        random.setstate(python_state)
        for generator, state in torch_states:
            generator.set_state(state)


def seed_generators(number: int) -> None:
    """Seed the global generators of torch, NumPy and Python, within `preserve_generators`.

    torch and NumPy run the same algorithm, and equal 32-bit seeds would give equal streams: torch gets the lower half, NumPy the
    upper one plus a multiple of the lower. For a uniform 64-bit number both are uniform and independent; small public numbers
    differ in both.
    """
    for generator in torch_generators():
        generator.manual_seed(number & 0xFFFF_FFFF)
    np.random.seed(((number >> 32) + _ODD * number) & 0xFFFF_FFFF)
    random.seed(number)


def watch_generators() -> Callable[[], bool]:
    """Return what tells, once, whether Python's or NumPy's global generator was drawn from since; it changes both."""
    np.random.seed(_SEED)
    random.seed(_SEED)  # in a tenth of the time that it takes to read the state
    return lambda: float(np.random.random_sample()) != _OF_NUMPY or random.random() != _OF_PYTHON


def torch_generators() -> list[torch.Generator]:
    """Return torch's global generators; those of devices only if CUDA is in use, because initialising it takes seconds."""
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [torch.default_generator, *devices]
