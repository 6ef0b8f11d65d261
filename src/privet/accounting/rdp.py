"""Rényi differential privacy of the Poisson-sampled Gaussian mechanism, by quadrature.

For a pair of densities P and Q, the Rényi divergence of order α is log ∫ P^α Q^(1−α) / (α − 1). The pairs that dominate
Poisson sampling (sensitivity 1, noise σ) are one-dimensional:

    add-remove, zero-out   P = (1−q)·N(0, σ²) + q·N(1, σ²)     Q = N(0, σ²)           and the reverse
    replace-one            P = (1−q)·N(0, σ²) + q·N(1, σ²)     Q = (1−q)·N(0, σ²) + q·N(−1, σ²)

so the integral is a trapezoid sum on a line, which converges exponentially fast for such smooth, decaying integrands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privet.accounting.events import Event

Array = NDArray[np.float64]

DIRECTION = "upper bound"
ORDERS: Array = np.concatenate(
    [
        1 + np.geomspace(0.01, 1.0, 40, endpoint=False),
        np.arange(2.0, 12.0, 0.1),
        np.arange(12.0, 64.0),
        np.geomspace(64.0, 512.0, 25),
    ]
)
_POINTS = 20_000


def _log_mixture(x: Array, rate: float, deviation: float, centre: float) -> Array:
    """Return log[(1−q)·exp(−x²/2σ²) + q·exp(−(x−centre)²/2σ²)], up to the common normalisation."""
    away: Array = -((x - centre) ** 2) / (2 * deviation**2) + np.log(rate)
    if rate == 1.0:
        return away
    mixed: Array = np.logaddexp(away, -(x**2) / (2 * deviation**2) + np.log1p(-rate))
    return mixed


def _divergences(log_p: Array, log_q: Array, log_weight: float) -> Array:
    """Return the divergence of each order in ORDERS; `log_weight` is the log of grid step × normalisation."""
    logs = ORDERS[:, None] * log_p + (1 - ORDERS[:, None]) * log_q
    found: Array = np.maximum((logsumexp(logs, axis=1) + log_weight) / (ORDERS - 1), 0.0)
    return found


@lru_cache(maxsize=1024)
def divergences(sampling_rate: float, noise_multiplier: float, adjacency: str) -> Array:
    """Return the Rényi divergences of one release, for every order in ORDERS.

    Args:
        sampling_rate: q in (0, 1].
        noise_multiplier: σ > 0.
        adjacency: "add-remove", "zero-out" or "replace-one".

    Source:
        Mironov, Talwar, Zhang 2019, §3.1 (the dominating pair) and §3.3.
    """
    q, s = sampling_rate, noise_multiplier
    # P^α·Q^(1−α) for unit Gaussians at 1 and 0 peaks at α, at 1 and −1 at 2α − 1, each with width σ; the points that cover the
    # peaks of high orders at small σ would be too many, so those orders are given up (∞ is a bound too).
    reach = 2.0 if adjacency == "replace-one" else 1.0
    top = min(ORDERS[-1], _POINTS * s / (8 * reach))
    x = np.arange(-reach * top - 12 * s, reach * top + 12 * s, s / 4)
    log_weight = -np.log(4.0) - 0.5 * np.log(2 * np.pi)
    log_p = _log_mixture(x, q, s, 1.0)
    log_q = _log_mixture(x, q, s, -1.0) if adjacency == "replace-one" else -(x**2) / (2 * s**2)
    worst = np.maximum(_divergences(log_p, log_q, log_weight), _divergences(log_q, log_p, log_weight))
    return np.where(top >= ORDERS, worst, np.inf)


def epsilon(events: Sequence[Event], delta: float, adjacency: str) -> float:
    """Return ε at δ: the sum of the divergences, converted at the best order.

    Source:
        Canonne, Kamath, Steinke 2020, Proposition 12: ε = ρ(α) + log(1 − 1/α) − log(δ·α)/(α − 1).
    """
    total = sum(
        (event.count * divergences(event.sampling_rate, event.noise_multiplier, adjacency) for event in events),
        np.zeros_like(ORDERS),
    )
    return float(max(0.0, np.min(total + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1))))
