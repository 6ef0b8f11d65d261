"""Strategies: lower-triangular Toeplitz matrices C, of which the noise C⁻¹Z is made, in forms with a short state."""

from __future__ import annotations

__all__ = ["Array", "Bands", "Buffers", "Strategy", "square_root"]

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Strategy(Protocol):
    """A lower-triangular Toeplitz matrix C whose diagonal is 1."""

    def column(self, steps: int) -> Array:
        """Return the first column of C, (T,)."""

    def solve(self, sequences: Array) -> Array:
        """Return C⁻¹x for each sequence x, along the last axis; same shape."""


@dataclass(frozen=True)
class Bands:
    """A banded strategy.

    Args:
        coefficients: first column of C up to a factor, (b,); the first one is not 0.
    """

    coefficients: tuple[float, ...]

    def column(self, steps: int) -> Array:
        """Return the first column of C, (T,), zero after b entries."""
        found, own = np.zeros(steps), np.asarray(self.coefficients)[:steps]
        found[: len(own)] = own / own[0]
        return found

    def solve(self, sequences: Array) -> Array:
        """Return C⁻¹x for each sequence, along the last axis."""
        return _filter(np.ones(1), np.asarray(self.coefficients) / self.coefficients[0], sequences)


@dataclass(frozen=True)
class Buffers:
    """A strategy whose column is a sum of m geometric sequences: c₀ = 1, cₖ = Σᵢ sᵢ·dᵢᵏ⁻¹.

    Args:
        decays: d, (m,), each in [0, 1).
        scales: s, (m,), each ≥ 0.

    Source:
        Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024, "Efficient and Near-Optimal Noise Generation for Streaming
        Differential Privacy"; McMahan, Xu, Zhang 2024, "A Hassle-free Algorithm for Private Learning in Practice".
    """

    decays: tuple[float, ...]
    scales: tuple[float, ...]

    def column(self, steps: int) -> Array:
        """Return the first column of C, (T,)."""
        found = np.ones(steps)
        for first in range(1, steps, _ROWS):  # powers in blocks, which bounds the memory
            age = np.arange(first - 1, min(first - 1 + _ROWS, steps - 1))
            found[first : first + _ROWS] = np.power.outer(np.asarray(self.decays), age).T @ np.asarray(self.scales)
        return found

    def solve(self, sequences: Array) -> Array:
        """Return C⁻¹x for each sequence, along the last axis: C is a rational filter, Σᵢ sᵢ·x/(1 − dᵢx) + 1."""
        below = self.denominator()
        above = below.copy()
        for number, scale in enumerate(self.scales):
            others = Buffers(self.decays[:number] + self.decays[number + 1 :], ()).denominator()
            above[1:] += scale * others
        return _filter(below, above, sequences)

    def denominator(self) -> Array:
        """Return the coefficients of Πᵢ (1 − dᵢx), (m + 1,)."""
        found = np.ones(1)
        for decay in self.decays:
            found = np.convolve(found, [1.0, -decay])
        return found


_ROWS = 1 << 16


def square_root(steps: int) -> Array:
    """Return the coefficients binom(2k, k)/4ᵏ of the matrix whose square sums prefixes, (T,).

    Source:
        Fichtenberger, Henzinger, Upadhyay 2023, "Constant Matters: Fine-grained Error Bound on Differentially Private Continual
        Observation": it is optimal for the largest error, if every example takes part once.

    >>> square_root(5).tolist()
    [1.0, 0.5, 0.375, 0.3125, 0.2734375]
    """
    k = np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def _filter(above: Array, below: Array, sequences: Array) -> Array:
    """Return the sequences filtered by the rational function above/below."""
    from scipy.signal import lfilter

    found: Array = lfilter(above, below, sequences, axis=-1)
    return found
