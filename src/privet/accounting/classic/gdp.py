"""Gaussian differential privacy by the central limit theorem: fast, but possibly too small."""

from __future__ import annotations

__all__ = ["DIRECTION", "epsilon"]

import math
from collections.abc import Sequence

from privet.accounting.classic import gaussian
from privet.accounting.events import Event

DIRECTION = "approximation that can be too small"
_LARGEST_EXPONENT = 100.0


def _square(event: Event, adjacency: str) -> float:
    """Return the event's share of μ²: exact for q = 1, else the limit n·Var[log P/Q] as q → 0.

    With r₁ and r₋₁ the likelihood ratios of N(±1, σ²) to N(0, σ²), E[r₁²] = exp(1/σ²) and E[r₁r₋₁] = exp(−1/σ²), so
    Var[q(r₁ − 1)] = q²(exp(1/σ²) − 1) and Var[q(r₁ − r₋₁)] = 4q²·sinh(1/σ²).
    """
    q, inverse = event.sampling_rate, event.noise_multiplier**-2
    if q == 1.0:
        return event.count * inverse * (4 if adjacency == "replace-one" else 1)
    if inverse > _LARGEST_EXPONENT:
        return math.inf
    return event.count * q**2 * (4 * math.sinh(inverse) if adjacency == "replace-one" else math.expm1(inverse))


def epsilon(events: Sequence[Event], delta: float, adjacency: str) -> float:
    """Return ε at δ of the Gaussian limit of the composition; exact when q = 1.

    Source:
        Dong, Roth, Su 2022; Bu, Dong, Long, Su 2020, "Deep Learning with Gaussian Differential Privacy".
    """
    square = sum(_square(event, adjacency) for event in events)
    if math.isinf(square):
        return math.inf
    mu = math.sqrt(square)
    return gaussian.epsilon(mu, delta)
