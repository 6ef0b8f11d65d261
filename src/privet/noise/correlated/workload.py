"""Workloads: what the released gradients are summed to, so that noise is judged by its error in the parameters."""

from __future__ import annotations

__all__ = ["Workload", "iterates", "prefix_errors"]

from dataclasses import dataclass

import numpy as np

from privet.noise.correlated.strategies import Array, Strategy

_QUERIES = 64  # iterates at which a workload with a learning-rate schedule is judged
_NUMBERS = 4_000_000  # largest size of its table


@dataclass(frozen=True, eq=False)
class Workload:
    """Linear queries about the releases; the error of noise C⁻¹Z is Σ weights·(C⁻¹ applied to the queries)².

    Args:
        queries: (Q, T) coefficients of the releases in each query, the latest first.
        weights: (Q, T) weight of each entry after C⁻¹ was applied.
    """

    queries: Array
    weights: Array

    def error(self, strategy: Strategy) -> float:
        """Return the mean squared error of the queries, for noise of variance 1 before C⁻¹."""
        return float((self.weights * strategy.solve(self.queries) ** 2).sum())


def iterates(steps: int, momentum: float = 0.0, rates: Array | None = None, *, last: bool = False) -> Workload:
    """Return the workload of SGD: its iterates, as functions of the released gradients.

    Args:
        steps: number of steps T.
        momentum: heavy-ball momentum β in [0, 1).
        rates: learning rate of every step, (T,); None for a constant one.
        last: judge the last iterate only; by default, the mean over all iterates.

    Returns:
        For a constant rate, all iterates are prefixes of one sequence. With a schedule, up to 64 iterates stand for all.
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
    from scipy.signal import lfilter

    # Latest first, the rates of steps s ≥ r are an earlier part of the sequence, and β to the distance a geometric filter.
    found: Array = lfilter([1.0], [1.0, -momentum], rates)
    return found


def prefix_errors(strategy: Strategy, steps: int) -> Array:
    """Return the squared error of each prefix sum, (T,), for noise of variance 1 before C⁻¹."""
    found: Array = np.cumsum(strategy.solve(np.ones(steps)) ** 2)
    return found
