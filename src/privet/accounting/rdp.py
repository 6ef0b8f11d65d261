"""Rényi differential privacy of sampled Gaussian mechanisms, by quadrature.

For a pair of densities P and Q, the Rényi divergence of order α is log ∫ P^α Q^(1−α) / (α − 1). The pairs that dominate
Poisson sampling (sensitivity 1, noise σ) are one-dimensional:

    add-remove, zero-out   P = (1−q)·N(0, σ²) + q·N(1, σ²)     Q = N(0, σ²)           and the reverse
    replace-one            P = (1−q)·N(0, σ²) + q·N(1, σ²)     Q = (1−q)·N(0, σ²) + q·N(−1, σ²)

so the integral is one-dimensional, and the trapezoidal rule converges exponentially fast for such smooth, decaying integrands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from privet.accounting.events import EpsilonDeltaEvent, Event, FixedSizeEvent, LaplaceEvent, RandomizedResponseEvent, Release

Array = NDArray[np.float64]

ORDERS: Array = np.concatenate(
    [
        1 + np.geomspace(1e-4, 0.01, 12, endpoint=False),
        1 + np.geomspace(0.01, 1.0, 40, endpoint=False),
        np.arange(2.0, 12.0, 0.1),
        np.arange(12.0, 64.0),
        np.geomspace(64.0, 512.0, 70, endpoint=False),
        np.geomspace(512.0, 1e6, 40),
    ]
)
# The moments accountant goes up to moment 32; moment λ is Rényi order λ + 1.
LARGEST_MOMENT = 32
_MOMENTS = np.array([int(np.argmin(np.abs(ORDERS - order))) for order in range(2, LARGEST_MOMENT + 2)])
_POINTS = 20_000
_STANDARD_DEVIATIONS = 12.0
_LARGEST_WHOLE = 512
# Largest rounding error in the logarithm of a sum.
_ROUNDING = 4e-15


def _log_mixture(x: Array, rate: float, deviation: float, centre: float) -> Array:
    """Return log[(1−q)·exp(−x²/2σ²) + q·exp(−(x−centre)²/2σ²)], up to the common normalisation."""
    away = -((x - centre) ** 2) / (2 * deviation**2) + np.log(rate)
    return np.asarray(np.logaddexp(away, -(x**2) / (2 * deviation**2) + np.log1p(-rate)))


def _log_sums(orders: Array, log_p: Array, log_q: Array) -> Array:
    """Return log Σ P^α Q^(1−α) over the points, for every order α."""
    logs = log_q + orders[:, None] * (log_p - log_q)
    highest = logs.max(axis=1, keepdims=True)
    logs -= highest
    np.exp(logs, out=logs)
    return np.asarray(highest[:, 0] + np.log(logs.sum(axis=1)))


@lru_cache(maxsize=4096)
def divergences(sampling_rate: float, noise_multiplier: float, adjacency: str) -> Array:
    """Return the Rényi divergences of one release on a Poisson sample, for every order in ORDERS.

    Mironov, Talwar, Zhang 2019, §3.1 (the dominating pair) and §3.3.
    """
    q, s = sampling_rate, noise_multiplier
    reach = 2.0 if adjacency == "replace-one" else 1.0
    if q == 1.0:
        return ORDERS * (reach / s) ** 2 / 2
    # The mixture switches from one component to the other within s², and the components vary within s; resolve both.
    step = min(s / 4, 0.6 * s**2)
    # Orders far above σ² are never the best, and covering the peaks of high orders at small σ would take too many points, so
    # these orders are skipped (∞ is a bound too).
    top = min(64 + 60 * s**2, _POINTS * step / (2 * reach))
    far = _STANDARD_DEVIATIONS * s
    # P^α·Q^(1−α) of the components at 1 and 0 peaks at 0 and at α, of those at 1 and −1 at up to 2α − 1, each with width σ. The
    # reverse peaks between the components only, or by symmetry at the mirror image.
    x = np.arange(-far - 1, reach * min(top, float(ORDERS[-1])) + far + step, step)
    log_p = _log_mixture(x, q, s, 1.0)
    log_q = _log_mixture(x, q, s, -1.0) if adjacency == "replace-one" else -(x**2) / (2 * s**2)
    found = np.full(len(ORDERS), np.inf)
    log_weight = math.log(step / s) - 0.5 * math.log(2 * math.pi)
    near = int(np.searchsorted(x, 1 + far))
    place = 0
    while place < len(ORDERS) and ORDERS[place] <= top:
        # Orders up to twice the lowest in their group share its points.
        end = min(int(np.searchsorted(ORDERS, min(2 * max(float(ORDERS[place]), s), top), side="right")), place + 64)
        end = max(end, place + 1)
        orders = ORDERS[place:end]
        reached = int(np.searchsorted(x, reach * orders[-1] + far)) + 1
        sums = _log_sums(orders, log_p[:reached], log_q[:reached])
        if adjacency != "replace-one":
            sums = np.maximum(sums, _log_sums(orders, log_q[:near], log_p[:near]))
        found[place:end] = (np.maximum(sums + log_weight, 0.0) + _ROUNDING) / (orders - 1)
        place = end
    return found


@lru_cache(maxsize=256)
def without_replacement(sampling_rate: float, noise_multiplier: float) -> Array:
    """Return the Rényi divergences of a release on a fixed-size sample for replace-one neighbours, for every order in ORDERS.

    The bound holds at integer orders; (α − 1)·divergence is convex, so linear interpolation between them is an upper bound. σ is
    relative to the bound of one contribution, half the sensitivity of replacing.

    Source:
        Wang, Balle, Kasiviswanathan 2019, "Subsampled Rényi Differential Privacy and Analytical Moments Accountant", Theorem 9.
    """
    q, s = sampling_rate, noise_multiplier
    whole = np.unique(np.round(ORDERS[(ORDERS >= 2) & (ORDERS <= _LARGEST_WHOLE)]))
    moments = []
    for order in whole:
        j = np.arange(3.0, order + 1)
        log_terms = j * math.log(q) + _log_binomial(order, j) + math.log(2) + (j - 1) * 2 * j / s**2
        second = min(math.log(4) + 4 / s**2 + math.log(-math.expm1(-4 / s**2)), math.log(2) + 4 / s**2)
        log_second = 2 * math.log(q) + float(_log_binomial(order, np.array(2.0))) + second
        moments.append(logsumexp(np.concatenate([[0.0, log_second], log_terms])))
    between = np.interp(ORDERS, np.append(1.0, whole), np.append(0.0, moments), right=np.inf)
    return np.asarray(np.minimum(between / (ORDERS - 1) + _ROUNDING, 2 * ORDERS / s**2))


def _log_binomial(n: float, k: Array) -> Array:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def covers(event: Release) -> bool:
    """Return whether Rényi divergences are known for this kind of release."""
    if isinstance(event, Event):
        return event.projections is None
    if isinstance(event, LaplaceEvent):
        return event.sampling_rate == 1.0
    return isinstance(event, (FixedSizeEvent, RandomizedResponseEvent)) or (
        isinstance(event, EpsilonDeltaEvent) and event.delta == 0.0
    )


def laplace(reach: float) -> Array:
    """Return the divergences in ORDERS of Laplace noise with sensitivity/scale = `reach` (Mironov 2017, Proposition 6)."""
    above = np.log(ORDERS / (2 * ORDERS - 1)) + (ORDERS - 1) * reach
    below = np.log((ORDERS - 1) / (2 * ORDERS - 1)) - ORDERS * reach
    return np.asarray((np.maximum(np.logaddexp(above, below), 0.0) + _ROUNDING) / (ORDERS - 1))


def responses(truthful: float, other: float, answers: int) -> Array:
    """Return the divergences in ORDERS of randomised response among `answers` values (Mironov 2017, Proposition 5, for two).

    `truthful` is the probability of the true value, and `other` that of each other value.
    """
    log_true, log_other = math.log(truthful), math.log(other)
    terms = np.stack([
        ORDERS * log_true + (1 - ORDERS) * log_other,
        ORDERS * log_other + (1 - ORDERS) * log_true,
        np.full_like(ORDERS, math.log((answers - 2) * other) if answers > 2 else -math.inf),
    ])  # fmt: skip
    return np.asarray((np.maximum(logsumexp(terms, axis=0), 0.0) + _ROUNDING) / (ORDERS - 1))


def release_curve(event: Release, adjacency: str) -> Array:
    """Return the Rényi divergences of one of the event's releases, for every order in ORDERS."""
    if isinstance(event, FixedSizeEvent):
        return without_replacement(event.sampling_rate, event.noise_multiplier)
    if isinstance(event, LaplaceEvent):
        return laplace((2.0 if adjacency == "replace-one" else 1.0) / event.noise_multiplier)
    if isinstance(event, RandomizedResponseEvent):
        return responses(event.truthful, event.other, event.answers)
    if isinstance(event, EpsilonDeltaEvent):
        share = 1 / (1 + math.exp(-event.epsilon))
        return responses(share, share * math.exp(-event.epsilon), 2)
    assert isinstance(event, Event), f"coverage refuses {type(event).__name__}"
    return divergences(event.sampling_rate, event.noise_multiplier, adjacency)


def curve(events: Sequence[Release], adjacency: str) -> Array:
    """Return the Rényi divergences of the composition, for every order in ORDERS: the sums."""
    return sum((event.count * release_curve(event, adjacency) for event in events), np.zeros_like(ORDERS))


def to_epsilon(divergence: Array, delta: float, orders: Array) -> Array:
    """Convert the Rényi divergence of each order to ε at δ: ρ(α) + log(1 − 1/α) − log(δ·α)/(α − 1).

    Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    proven: Array = np.maximum(divergence + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1), 0.0)
    return proven


def epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ: the sum of the divergences, converted at the best order."""
    return float(np.min(to_epsilon(curve(events, adjacency), delta, ORDERS)))


def moments_epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ: the minimum of (Σ log moment(λ) + log 1/δ)/λ over λ = 1, …, 32.

    Abadi et al. 2016, "Deep Learning with Differential Privacy", Theorem 2.
    """
    orders = np.arange(1, LARGEST_MOMENT + 1)
    divergences = curve(events, adjacency)[_MOMENTS]
    return float(np.min(divergences + math.log(1 / delta) / orders))
