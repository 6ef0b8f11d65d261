"""Textbook composition theorems with amplification by Poisson sampling: valid, but far from tight."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privet.accounting.classic import gaussian
from privet.accounting.events import Event, Release

Array = NDArray[np.float64]


def _amplified_epsilon(event: Event, delta: float, adjacency: str) -> float:
    """Return ε of one release at δ: that of the Gaussian at δ/q, amplified to log(1 + q·(e^ε − 1)).

    Balle, Barthe, Gaboardi 2018, "Privacy Amplification by Subsampling", Theorems 2 and 8. For replacing, the two mixture
    components that include the example are at most twice the bound apart.
    """
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0
    before = delta / event.sampling_rate
    whole = 0.0 if before >= 1 else gaussian.epsilon(sensitivity / event.noise_multiplier, before)
    if event.sampling_rate == 1.0:
        return whole
    return max(0.0, float(np.logaddexp(math.log1p(-event.sampling_rate), math.log(event.sampling_rate) + whole)))


def _epsilons_and_counts(events: Sequence[Release], delta: float, adjacency: str) -> tuple[Array, Array]:
    """Return ε and count of every kind of release when each release gets the same share of δ."""
    sampled = [event for event in events if isinstance(event, Event)]
    assert len(sampled) == len(events), "coverage refuses other kinds"
    total = sum(event.count for event in sampled)
    each = np.array([_amplified_epsilon(event, delta / total, adjacency) for event in sampled])
    return each, np.array([float(event.count) for event in sampled])


def basic(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ by basic composition, the sum (Dwork, Roth 2014, Theorem 3.16)."""
    each, counts = _epsilons_and_counts(events, delta, adjacency)
    return float(np.sum(each * counts))


def strong(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ by strong composition, with half of δ for the releases and half for composition; at most `basic`.

    Kairouz, Oh, Viswanath 2015, "The Composition Theorem for Differential Privacy", Theorem 3.5.
    """
    each, counts = _epsilons_and_counts(events, delta / 2, adjacency)
    drift = float(np.sum(counts * each * np.tanh(each / 2)))
    spread = math.sqrt(2 * math.log(2 / delta) * float(np.sum(counts * each**2)))
    return min(drift + spread, basic(events, delta, adjacency))
