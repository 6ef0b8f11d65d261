"""Sources of standard normal numbers and random words, in tiers that every statement names."""

from __future__ import annotations

import math
import os
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.noise.keystream import Keystream

_CHUNK = 1 << 15  # pairs transformed at a time: the working set stays in cache
_MANTISSA = 52


class Source(Protocol):
    """Where randomness comes from."""

    claim: str
    private: bool

    def normal(self, size: int) -> Tensor:
        """Return `size` independent standard normal float64 numbers on the CPU."""

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` independent uniform 64-bit words."""


def _box_muller(words: NDArray[np.uint64]) -> Tensor:
    """Return as many normals as words: the first half gives the radii, the second half the angles.

    A 52-bit uniform u = (m + ½)·2⁻⁵² is exact in float64 and never 0, so radii reach √(2·53·ln 2) = 8.57 and both tails are
    the same by symmetry of the angle. The missing mass beyond is 1e-17.
    """
    bits = torch.from_numpy(words.view(np.int64)).bitwise_and_((1 << _MANTISSA) - 1)
    unit = bits.to(torch.float64).add_(0.5).mul_(2.0**-_MANTISSA)
    radius, angle = unit.chunk(2)
    radius = radius.log().mul_(-2.0).sqrt_()
    angle = angle * (2 * math.pi)
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)])


class SecureSource:
    """AES-256-CTR keyed by the operating system, with a Box–Muller transform in float64.

    Both noise and sampling are unpredictable to anyone without the key, which is never stored. Separate instances (and
    forked processes) never share a stream.
    """

    claim = "cryptographic: AES-256-CTR keyed by the operating system, Gaussian transform in float64, released on a grid"
    private = True

    def __init__(self) -> None:
        self._stream = Keystream()

    def normal(self, size: int) -> Tensor:
        """Return `size` independent standard normal float64 numbers on the CPU."""
        out = torch.empty(size, dtype=torch.float64)
        for start in range(0, size, 2 * _CHUNK):
            need = min(2 * _CHUNK, size - start)
            words = self._stream.words(need + need % 2).copy()
            out[start : start + need] = _box_muller(words)[:need]
        return out

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` independent uniform 64-bit words."""
        return self._stream.words(size)


class FastSource:
    """torch's own generator, seeded by the operating system, for the noise; sampling stays cryptographic.

    Statistically sound but not unpredictable to an attacker who can search its seed space: on the CPU that is 32 bits. Copies
    and forked processes take a seed of their own.
    """

    claim = "statistical, not cryptographic: torch's generator, seeded with at most 64 bits by the operating system"
    private = True

    def __init__(self) -> None:
        self._process = -1
        self._generator = torch.Generator()
        self._stream = Keystream()

    def __reduce__(self) -> tuple[type[FastSource], tuple[()]]:
        return (FastSource, ())

    def normal(self, size: int) -> Tensor:
        """Return `size` independent standard normal float64 numbers on the CPU."""
        if self._process != os.getpid():
            self._generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
            self._process = os.getpid()
        return torch.randn(size, dtype=torch.float64, generator=self._generator)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` independent uniform 64-bit words."""
        return self._stream.words(size)


class FixedSource:
    """The same numbers on every run, for tests and debugging: no privacy, and every statement says so."""

    claim = "fixed and known to everybody: there is no privacy in this run"
    private = False

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._stream = np.random.Generator(np.random.PCG64(0))

    def normal(self, size: int) -> Tensor:
        """Return `size` standard normal float64 numbers on the CPU, the same on every run."""
        return torch.randn(size, dtype=torch.float64, generator=self._generator)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` uniform 64-bit words, the same on every run."""
        return self._stream.integers(0, 2**64, size=size, dtype=np.uint64)


SOURCES: dict[str, type[SecureSource | FastSource | FixedSource]] = {
    "secure": SecureSource,
    "fast": FastSource,
    "fixed": FixedSource,
}
