"""Sources of standard normal numbers and random words, in tiers that every statement names."""

from __future__ import annotations

import functools
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from privet._utils.unique import Unique
from privet.errors import choice
from privet.noise.compiled import arithmetic
from privet.noise.prefetch import Prefetcher

BLOCK = 1 << 16  # numbers per block: half a megabyte stays in cache, and threads synchronise rarely
ROOM = 2  # extra words that `fill` needs at the end of its buffer, because the cipher may ask for one more block
_ZEROS = memoryview(bytes(1 << 17))  # plaintext, encrypted in pieces that stay in cache
_FIRST = 2  # the count of the first block of a nonce, as GCM has it
_STRETCH = 1 << 35  # bytes of one nonce: the count has 32 bits, for 2³⁶ bytes
_TRIED = 1 << 14  # bytes to encrypt in order to see how fast it is
_WORTH_A_THREAD = 50_000  # smaller releases take less than half a millisecond

_Mode = Callable[[bytes], modes.CTR | modes.GCM]

_NO_COPY = "Two owners would draw the same noise. Create a new source: plan.noise.make_source()."


def _counter(nonce: bytes) -> modes.CTR:
    return modes.CTR(nonce + _FIRST.to_bytes(4, "big"))


@functools.cache
def _mode() -> _Mode:
    """Return the faster way to encrypt by AES in counter mode with a nonce of 12 bytes; both give the same words.

    GCM is counter mode with a checksum, which nobody reads. OpenSSL has it for the widest vectors of a processor, and there it
    takes half the time; elsewhere the checksum makes it slower.
    """

    def seconds(mode: _Mode) -> float:
        cipher, times = Cipher(algorithms.AES(bytes(32)), mode(bytes(12))).encryptor(), []
        for _ in range(5):
            start = time.perf_counter()
            cipher.update(_ZEROS[:_TRIED])
            times.append(time.perf_counter() - start)
        return min(times)

    offered: tuple[_Mode, ...] = (_counter, modes.GCM)
    return min(offered, key=seconds)


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
        self._left = 0  # bytes until the next nonce
        self._cipher: CipherContext
        self._ciphers: Iterator[CipherContext]

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return the next `size` words, each uniform over 64 bits."""
        words = np.empty(size + ROOM, dtype=np.uint64)
        self.fill(words)
        return words[:size]

    def fill(self, words: NDArray[np.generic]) -> None:
        """Overwrite an array of 64-bit numbers with the next words, except for its last `ROOM` elements."""
        content = words.data.cast("B")
        size, room, start = 8 * (len(words) - ROOM), 8 * ROOM, 0
        with self._lock:
            if self._process != os.getpid():
                if self._key is not None and self._process >= 0:
                    raise RuntimeError("a stream that several processes share does not go on in a fork")
                key, nonce = (os.urandom(32), os.urandom(12)) if self._key is None else (self._key, bytes(12))
                self._ciphers, self._left = _ciphers(key, nonce), 0
                self._process = os.getpid()
            while start < size:
                if not self._left:
                    self._cipher, self._left = next(self._ciphers), _STRETCH
                stop = min(size, start + min(len(_ZEROS), self._left))
                self._cipher.update_into(_ZEROS[: stop - start], content[start : stop + room])
                self._left, start = self._left - (stop - start), stop


def _ciphers(key: bytes, nonce: bytes) -> Iterator[CipherContext]:
    """Yield a key's cipher with one nonce after another, from the first on."""
    for number in itertools.count(int.from_bytes(nonce, "big")):
        yield Cipher(algorithms.AES(key), _mode()((number % 2**96).to_bytes(12, "big"))).encryptor()


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
        for length in _pieces(size):
            yield torch.randn(length, dtype=torch.float64, generator=self._generator, device="cpu")

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` uniform 64-bit words, the same on every run."""
        return self._stream.integers(0, 2**64, size=size, dtype=np.uint64)


SOURCES: dict[str, type[SecureSource | FixedSource]] = {"secure": SecureSource, "fixed": FixedSource}


def check_source(argument: str, name: object) -> None:
    """Refuse a name that no source has. A plan of an earlier version may name "fast", whose claim no source makes any more."""
    fix = "It was slower than 'secure', which makes a stronger claim; use that." if name == "fast" else ""
    choice(argument, name, SOURCES, fix)
