"""Strategies: Toeplitz matrices C of which noise C⁻¹Z is made, their sensitivity, and the error of SGD with their noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_QUERIES = 64  # iterates at which a workload with a learning-rate schedule is judged
_NUMBERS = 4_000_000  # largest size of its table


class Strategy(Protocol):
    """A lower-triangular Toeplitz matrix C whose diagonal is 1."""

    def column(self, steps: int) -> Array:
        """Return the first column of C, (T,)."""

    def solve(self, sequences: Array) -> Array:
        """Return C⁻¹x for each sequence x, along the last axis; same shape."""


@dataclass(frozen=True)
class Bands:
    """A banded strategy, from the first column of C up to a factor, (b,), whose first entry is not 0."""

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

    Source:
        Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024, "Efficient and Near-Optimal Noise Generation for Streaming
        Differential Privacy"; McMahan, Xu, Zhang 2024, "A Hassle-free Algorithm for Private Learning in Practice".
    """

    decays: tuple[float, ...]
    scales: tuple[float, ...]

    def column(self, steps: int) -> Array:
        """Return the first column of C, (T,)."""
        found = np.ones(steps)
        for first in range(1, steps, 1 << 16):  # powers in blocks, which bounds the memory
            age = np.arange(first - 1, min(first - 1 + (1 << 16), steps - 1))
            found[first : first + (1 << 16)] = np.power.outer(np.asarray(self.decays), age).T @ np.asarray(self.scales)
        return found

    def solve(self, sequences: Array) -> Array:
        """Return C⁻¹x for each sequence, along the last axis: C is a rational filter, Σᵢ sᵢ·x/(1 − dᵢx) + 1."""
        below = np.atleast_1d(np.poly(self.decays))  # coefficients of Πᵢ (1 − dᵢx), (m + 1,)
        above = below.copy()
        for number, scale in enumerate(self.scales):
            above[1:] += scale * np.poly(self.decays[:number] + self.decays[number + 1 :])
        return _filter(below, above, sequences)


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
    from scipy.signal import lfilter

    return np.asarray(lfilter(above, below, sequences, axis=-1))


def pattern_sums(column: Array, separation: int, times: int) -> Array:
    """Return the sum of k = `times` columns of C at steps 1, 1 + separation, 1 + 2·separation, … ≤ T, (T,)."""
    steps = len(column)
    rest = -steps % separation
    # Row t of column j·separation is c[t − j·separation]: sums with a stride of `separation`.
    running = np.pad(column, (0, rest)).reshape(-1, separation).cumsum(0).ravel()
    found = running.copy()
    if separation * times < len(found):
        found[separation * times :] -= running[: -separation * times]
    return found[:steps]


def squared_sensitivity(column: Array, separation: int, times: int) -> float:
    """Return an upper bound on ‖C·G‖², for any G with rows of norm ≤ 1 at up to `times` steps and 0 elsewhere.

    Args:
        column: first column of C, (T,).
        separation: smallest distance of two steps at which an example takes part, ≥ 1.
        times: largest number of such steps k ≥ 1.

    Returns:
        The exact maximum if the column decreases and is nowhere negative, or if it is shorter than `separation`: then columns
        do not overlap. Otherwise, the maximum for the smallest decreasing column above its absolute values.

    Guarantee:
        ‖C·G‖² = Σ_ij (CᵀC)_ij ⟨gᵢ, gⱼ⟩ is at most the same sum for |C| and ⟨gᵢ, gⱼ⟩ = 1, and it grows with every entry of |C|.
        For a column that decreases, the worst steps are the earliest ones: 1, 1 + separation, … (Kalinin, Lampert 2024, "Banded
        Square Root Matrix Factorization for Differentially Private Model Training", Theorem 2).

    >>> squared_sensitivity(np.array([1, 0.5, 0.25, 0, 0, 0, 0, 0, 0, 0]), separation=3, times=3)
    3.9375
    """
    majorant = np.maximum.accumulate(np.abs(column)[::-1])[::-1]
    found = pattern_sums(majorant, separation, times)
    overlapping = float(found @ found)
    if np.flatnonzero(column)[-1] >= separation:
        return overlapping
    return min(overlapping, min(times, -(-len(column) // separation)) * float(column @ column))


@dataclass(frozen=True, eq=False)
class Workload:
    """Linear queries about the releases; the error of noise C⁻¹Z is Σ weights·(C⁻¹ applied to the queries)².

    `queries` are (Q, T) coefficients of the releases, the latest first; `weights` those of the entries after C⁻¹, (Q, T).
    """

    queries: Array
    weights: Array

    def error(self, strategy: Strategy) -> float:
        """Return the mean squared error of the queries, for noise of variance 1 before C⁻¹."""
        return float((self.weights * strategy.solve(self.queries) ** 2).sum())


def iterates(steps: int, momentum: float = 0.0, rates: Array | None = None, *, last: bool = False) -> Workload:
    """Return the workload of SGD: its iterates, as functions of the released gradients.

    `rates` are the learning rates of the steps, (T,), None for a constant one: then all iterates are prefixes of one sequence.
    With a schedule, up to 64 iterates stand for all. By default, the mean over all iterates is judged, else the last one.
    """
    if rates is None or np.ptp(rates) == 0:
        # The weight of an entry is the fraction of the iterates that contain it.
        weights = np.ones(steps) if last else 1 - np.arange(steps) / steps
        return Workload(_gather(np.ones(steps), momentum)[None], weights[None])
    number = 1 if last else max(2, min(_QUERIES, steps, _NUMBERS // steps))
    ends = np.linspace(steps, 1, number).round().astype(np.int64)
    queries, weights = np.zeros((2, number, steps))
    for row, end in enumerate(ends):
        queries[row, :end] = _gather(rates[:end][::-1], momentum)
        weights[row, :end] = 1 / number
    return Workload(queries, weights)


def _gather(rates: Array, momentum: float) -> Array:
    """Return how much of each release, the latest first, is in an iterate: Σₛ ηₛ·β^(s−r) over the steps s since its own, r."""
    # Latest first, the rates of steps s ≥ r are an earlier part of the sequence, and β to the distance a geometric filter.
    return _filter(np.ones(1), np.array([1.0, -momentum]), rates)
