"""Sources of standard normal numbers and random words, in tiers that every statement names."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from privet._utils.unique import Unique
from privet.noise.compiled import arithmetic
from privet.noise.prefetch import Prefetcher

BLOCK = 1 << 16  # numbers per block: half a megabyte stays in cache, and threads synchronise rarely
ROOM = 2  # extra words that `fill` needs at the end of its buffer, because the cipher may ask for one more block
_ZEROS = memoryview(bytes(1 << 17))  # plaintext, encrypted in pieces that stay in cache
_WORTH_A_THREAD = 50_000  # smaller releases take less than half a millisecond

_NO_COPY = "Two owners would draw the same noise. Create a new source: plan.noise.make_source()."


class Keystream(Unique):
    """An endless stream of 64-bit words from AES-256 in counter mode.

    The key comes from the operating system and is never seeded, stored or shown. A forked process takes a new one. Threads may
    share an instance.

    Processes that draw alike are given one `key`, of this stream alone; such a stream does not go on in a fork.
    """

    no_copy = "Two owners of one stream would draw the same noise. Create a new Keystream, which takes a new key."

    def __init__(self, key: bytes | None = None) -> None:
        self._lock, self._key = threading.Lock(), key
        self._process = -1
        self._cipher: CipherContext

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return the next `size` words, each uniform over 64 bits."""
        words = np.empty(size + ROOM, dtype=np.uint64)
        self.fill(words)
        return words[:size]

    def fill(self, words: NDArray[np.generic]) -> None:
        """Overwrite an array of 64-bit numbers with the next words, except for its last `ROOM` elements."""
        content = words.data.cast("B")
        size, room = 8 * (len(words) - ROOM), 8 * ROOM
        with self._lock:
            if self._process != os.getpid():
                if self._key is not None and self._process >= 0:
                    raise RuntimeError("a stream that several processes share does not go on in a fork")
                key, counter = (os.urandom(32), os.urandom(16)) if self._key is None else (self._key, bytes(16))
                self._cipher = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
                self._process = os.getpid()
            for start in range(0, size, len(_ZEROS)):
                stop = min(size, start + len(_ZEROS))
                self._cipher.update_into(_ZEROS[: stop - start], content[start : stop + room])


class Source(Protocol):
    """A source of randomness."""

    claim: str
    private: bool

    def normals(self, size: int) -> Iterator[Tensor]:
        """Yield `size` independent standard normal float64 numbers on the CPU, in pieces whose memory is reused."""

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` independent uniform 64-bit words."""

    def normal(self, size: int) -> Tensor:
        """Return `size` independent standard normal float64 numbers on the CPU."""
        return torch.cat([torch.empty(0, dtype=torch.float64, device="cpu"), *(piece.clone() for piece in self.normals(size))])

    def draw_ahead(self, size: int) -> None:
        """Prefetch for releases of `size` numbers each, until called with 0; sources that are fast enough do nothing."""


def _pieces(size: int) -> Iterator[int]:
    for start in range(0, size, BLOCK):
        yield min(BLOCK, size - start)


def _allocate(size: int) -> Tensor:
    """Return an empty block that `_draw` can fill with `size` numbers."""
    return torch.empty(size + size % 2 + ROOM, dtype=torch.float64, device="cpu")


def _draw(stream: Keystream, block: Tensor) -> None:
    """Overwrite a block with standard normals, except for its last `ROOM` elements."""
    stream.fill(block.numpy())
    arithmetic().box_muller(block[:-ROOM])


class SecureSource(Unique, Source):
    """AES-256-CTR keyed by the operating system, with a Box–Muller transform in float64.

    Noise and sampling are unpredictable without the key, which is never stored. Separate instances, forked processes and threads
    never share a stream, and no number is returned twice.
    """

    claim = "cryptographic: AES-256-CTR keyed by the operating system, Gaussian transform in float64, released on a grid"
    private = True
    no_copy = _NO_COPY

    def __init__(self) -> None:
        self._stream = Keystream()
        self._prefetcher: Prefetcher | None = None

    def normals(self, size: int) -> Iterator[Tensor]:
        """Yield standard normals: prefetched blocks as long as any are ready, without waiting for the other thread."""
        ahead, own = self._prefetcher, None
        for length in _pieces(size):
            ready = None if ahead is None else ahead.take()
            if ahead is not None and ready is not None:
                try:
                    yield ready[:length]
                finally:
                    ahead.give_back(ready)
                continue
            if own is None or length < BLOCK:
                own = _allocate(length)
            _draw(self._stream, own)
            yield own[:length]

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` independent uniform 64-bit words."""
        return self._stream.words(size)

    def draw_ahead(self, size: int) -> None:
        """Let a second thread prefetch for releases of `size` numbers each, until called with 0.

        It keeps half a release in stock: 4 bytes per number, as much as a float32 gradient. Both threads draw the rest on demand.
        """
        self._prefetcher = None
        if size < _WORTH_A_THREAD or _cores() < 2:
            return
        arithmetic()  # compile, if necessary, before two threads need it
        blocks = [_allocate(BLOCK) for _ in range(math.ceil(size / 2 / BLOCK))]
        # A separate keystream: a fork could inherit the lock of a shared one, held by a thread that the child does not have.
        self._prefetcher = Prefetcher.start(functools.partial(_draw, Keystream()), blocks)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _draw_by_torch(generator: torch.Generator, size: int) -> Iterator[Tensor]:
    for length in _pieces(size):
        yield torch.randn(length, dtype=torch.float64, generator=generator, device="cpu")


class FastSource(Unique, Source):
    """Noise from torch's generator, seeded by the operating system, anew in a forked process; sampling stays cryptographic.

    Statistically sound, but predictable to an attacker who can search its seed space (32 bits on the CPU).
    """

    claim = "statistical, not cryptographic: torch's generator, seeded with at most 64 bits by the operating system"
    private = True
    no_copy = _NO_COPY

    def __init__(self) -> None:
        self._process = -1
        self._generator = torch.Generator()
        self._stream = Keystream()

    def normals(self, size: int) -> Iterator[Tensor]:
        """Yield `size` independent standard normal float64 numbers on the CPU, in pieces."""
        if self._process != os.getpid():
            self._generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
            self._process = os.getpid()
        yield from _draw_by_torch(self._generator, size)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` independent uniform 64-bit words."""
        return self._stream.words(size)


class FixedSource(Unique, Source):
    """The same numbers on every run, for tests and debugging; there is no privacy, and every statement says so."""

    claim = "fixed and publicly known: there is no privacy in this run"
    private = False
    no_copy = _NO_COPY

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._stream = np.random.Generator(np.random.PCG64(0))

    def normals(self, size: int) -> Iterator[Tensor]:
        """Yield `size` standard normal float64 numbers on the CPU in pieces, the same on every run."""
        return _draw_by_torch(self._generator, size)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` uniform 64-bit words, the same on every run."""
        return self._stream.integers(0, 2**64, size=size, dtype=np.uint64)


SOURCES: dict[str, type[SecureSource | FastSource | FixedSource]] = {
    "secure": SecureSource, "fast": FastSource, "fixed": FixedSource,
}  # fmt: skip
