"""Sensitivity of a strategy to an example that takes part several times."""

from __future__ import annotations

__all__ = ["pattern_sums", "squared_sensitivity"]

import numpy as np

from privet.noise.correlated.strategies import Array


def pattern_sums(column: Array, separation: int, times: int) -> Array:
    """Return the sum of the columns of C at steps 1, 1 + separation, 1 + 2·separation, …, (T,).

    Args:
        column: first column of C, (T,).
        separation: distance of the steps, ≥ 1.
        times: number of columns k ≥ 1; those beyond T are left out.
    """
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
        do not overlap. Otherwise, that of its majorant, the smallest decreasing column above its absolute values.

    Guarantee:
        ‖C·G‖² = Σ_ij (CᵀC)_ij ⟨gᵢ, gⱼ⟩ is at most the same sum for |C| and ⟨gᵢ, gⱼ⟩ = 1, and it grows with every entry of |C|.
        For a column that decreases, the worst steps are the earliest ones: 1, 1 + separation, 1 + 2·separation, …

    Source:
        Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization"; Kalinin, Lampert 2024, "Banded Square Root Matrix
        Factorization for Differentially Private Model Training", Theorem 2 (the worst steps); McMahan, Xu, Zhang 2024.

    >>> squared_sensitivity(np.array([1, 0.5, 0.25, 0, 0, 0, 0, 0, 0, 0]), separation=3, times=3)
    3.9375
    """
    majorant = np.maximum.accumulate(np.abs(column)[::-1])[::-1]
    found = pattern_sums(majorant, separation, times)
    overlapping = float(found @ found)
    if np.flatnonzero(column)[-1] >= separation:
        return overlapping
    return min(overlapping, min(times, -(-len(column) // separation)) * float(column @ column))
