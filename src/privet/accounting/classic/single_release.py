"""Closed forms for one sampled release: the exact δ at every ε, and the exact ε at every δ.

For a mechanism with the trade-off curve of noise around 0 or 1, let r be the density ratio of noise around 1 to noise around 0.
A Poisson sample at rate q has the ratio 1 + q(r − 1), so removing an example has the hockey-stick divergence
E[(q(r − 1) − (e^ε − 1))₊] = q·δ₁(ε₁), where δ₁ is that of the mechanism without sampling and e^ε₁ = 1 + (e^ε − 1)/q.

Adding is never worse at ε ≥ 0 if noise is symmetric. With a = 1 − (1 − e^{−ε})/q its divergence is q·e^ε·E[(a − r)₊], which
symmetry turns into q·e^ε·a·E[(r − 1/a)₊]; e^ε·a ≤ 1 and 1/a ≥ e^ε₁, so it is at most that of removing.

Source:
    Balle, Barthe, Gaboardi 2018, "Privacy Amplification by Subsampling", Theorem 2 (the first formula).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

from privet.accounting.classic import gaussian
from privet.accounting.events import EpsilonDeltaEvent, Event, FixedSizeEvent, LaplaceEvent, RandomizedResponseEvent, Release

Array = NDArray[np.float64]

_PRECISION = 1e-12
# From here on e^ε leaves the floating-point range, and −1 no longer matters.
_LARGE = 600.0


def covers(events: Sequence[Release]) -> bool:
    """Return whether these events are one release, or full batches with Gaussian noise alone, whose δ has a closed form."""
    if all(isinstance(event, Event) and event.sampling_rate == 1.0 and event.projections is None for event in events):
        return True
    first = events[0]
    known = type(first) in _FORMS and getattr(first, "projections", None) is None
    return len(events) == 1 and first.count == 1 and known


def epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return the smallest ε ≥ 0 of covered events at δ in (0, 1), at most a relative 1e-11 above; infinity if there is none."""
    if len(events) == 1 and events[0].count == 1:
        return _FORMS[type(events[0])].epsilon(events[0], delta, adjacency)
    return gaussian.epsilon(composed_mu(events, adjacency), delta)


def delta(events: Sequence[Release], epsilon: float, adjacency: str) -> float:
    """Return δ of covered events at ε ≥ 0."""
    if len(events) == 1 and events[0].count == 1:
        return min(1.0, _FORMS[type(events[0])].delta(events[0], epsilon, adjacency))
    return math.exp(gaussian.log_delta(composed_mu(events, adjacency), epsilon))


def largest_loss(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return the sum of the largest finite losses of all releases, an ε at δ by basic composition; infinity if there is none."""
    limits = [_largest_losses(event, adjacency) for event in events]
    revealed = -math.expm1(math.fsum(event.count * math.log1p(-share) for event, (_, share) in zip(events, limits, strict=True)))
    if revealed * (1 + _PRECISION) > delta:
        return math.inf
    return math.fsum(event.count * loss for event, (loss, _) in zip(events, limits, strict=True)) * (1 + _PRECISION)


def _largest_losses(event: Release, adjacency: str) -> tuple[float, float]:
    """Return the largest finite loss of one release, and the probability of an infinite one."""
    if isinstance(event, LaplaceEvent):
        return amplify(event.sampling_rate, _reach(event, adjacency)), 0.0
    if isinstance(event, (RandomizedResponseEvent, EpsilonDeltaEvent)):
        return event.epsilon, getattr(event, "delta", 0.0)
    return math.inf, 0.0


def composed_mu(events: Sequence[Release], adjacency: str) -> float:
    """Return μ of Gaussian releases together, without amplification; rounded up to hide rounding errors of its ε."""
    return _mu(math.fsum(event.count / event.noise_multiplier**2 for event in events) ** -0.5, adjacency)


class _Form(NamedTuple):
    epsilon: Callable[[Any, float, str], float]
    delta: Callable[[Any, float, str], float]


def _gaussian_epsilon(event: Event | FixedSizeEvent, delta: float, adjacency: str) -> float:
    if _is_mixed_replacement(event, adjacency):
        return replacement_epsilon(event.sampling_rate, event.noise_multiplier, delta)
    rate = event.sampling_rate
    return amplify(rate, 0.0 if delta >= rate else gaussian.epsilon(_mu(event.noise_multiplier, adjacency), delta / rate))


def _gaussian_delta(event: Event | FixedSizeEvent, epsilon: float, adjacency: str) -> float:
    if _is_mixed_replacement(event, adjacency):
        return math.exp(replacement_log_delta(event.sampling_rate, event.noise_multiplier, epsilon))
    rate = event.sampling_rate
    return rate * math.exp(gaussian.log_delta(_mu(event.noise_multiplier, adjacency), undo_amplification(rate, epsilon)))


def _is_mixed_replacement(event: Event | FixedSizeEvent, adjacency: str) -> bool:
    """Return whether both neighbours are mixtures: a replaced example is in a Poisson sample of either."""
    return adjacency == "replace-one" and isinstance(event, Event) and event.sampling_rate < 1.0


def _mu(deviation: float, adjacency: str) -> float:
    """Return the sensitivity over the deviation, rounded up just enough to hide the rounding error of its ε."""
    # Replacing moves a sum by up to twice the bound of one contribution.
    mu = (2.0 if adjacency == "replace-one" else 1.0) / deviation
    return float(2.0 ** (math.ceil(math.log2(mu) * 2**33) / 2**33))


def _laplace_epsilon(event: LaplaceEvent, delta: float, adjacency: str) -> float:
    rate, reach = event.sampling_rate, _reach(event, adjacency)
    return amplify(rate, 0.0 if delta >= rate else max(0.0, reach + 2 * math.log1p(-delta / rate)))


def _laplace_delta(event: LaplaceEvent, epsilon: float, adjacency: str) -> float:
    rate, reach = event.sampling_rate, _reach(event, adjacency)
    return rate * max(0.0, -math.expm1((undo_amplification(rate, epsilon) - reach) / 2))


def _reach(event: LaplaceEvent, adjacency: str) -> float:
    return (2.0 if adjacency == "replace-one" else 1.0) / event.noise_multiplier


def _response_epsilon(event: RandomizedResponseEvent, delta: float, adjacency: str) -> float:
    return 0.0 if delta >= event.truthful - event.other else math.log(event.truthful - delta) - math.log(event.other)


def _response_delta(event: RandomizedResponseEvent, epsilon: float, adjacency: str) -> float:
    return max(0.0, event.truthful - math.exp(min(epsilon, _LARGE)) * event.other)


def _bounded_epsilon(event: EpsilonDeltaEvent, delta: float, adjacency: str) -> float:
    if delta < event.delta:
        return math.inf
    spare = (delta - event.delta) / (1 - event.delta)
    # log(e^ε − spare·(1 + e^ε))
    inside = 1 - spare * (1 + math.exp(-event.epsilon))
    return 0.0 if inside <= 0 else max(0.0, event.epsilon + math.log(inside))


def _bounded_delta(event: EpsilonDeltaEvent, epsilon: float, adjacency: str) -> float:
    spare = -math.expm1(min(epsilon - event.epsilon, 0.0)) / (1 + math.exp(-event.epsilon))
    return event.delta + (1 - event.delta) * spare


_FORMS: dict[type, _Form] = {
    Event: _Form(_gaussian_epsilon, _gaussian_delta),
    FixedSizeEvent: _Form(_gaussian_epsilon, _gaussian_delta),
    LaplaceEvent: _Form(_laplace_epsilon, _laplace_delta),
    RandomizedResponseEvent: _Form(_response_epsilon, _response_delta),
    EpsilonDeltaEvent: _Form(_bounded_epsilon, _bounded_delta),
}


def amplify(rate: float, epsilon: float) -> float:
    """Return log(1 + q(e^ε − 1)): the ε at q·δ of sampling at rate q, if ε at δ is that without sampling."""
    if rate == 1.0:
        return epsilon
    if epsilon > _LARGE:
        return epsilon + math.log(rate)
    return math.log1p(rate * math.expm1(epsilon)) * (1 + _PRECISION)


def undo_amplification(rate: float, epsilon: float) -> float:
    """Return ε₁ with log(1 + q(e^ε₁ − 1)) = ε."""
    if rate == 1.0:
        return epsilon
    return epsilon - math.log(rate) if epsilon > _LARGE else math.log1p(math.expm1(epsilon) / rate) * (1 - _PRECISION)


def replacement_log_delta(rate: float, deviation: float, epsilon: float) -> float:
    """Return log δ at ε ≥ 0 of a Gaussian release on a Poisson sample, for replace-one neighbours.

    The pair is (1−q)·N(0, σ²) + q·N(1, σ²) against (1−q)·N(0, σ²) + q·N(−1, σ²), whose loss increases with the point.
    """
    point = float(replacement_points(np.asarray(epsilon), np.asarray(rate), np.asarray(deviation)))
    one, none, other = (float(log_ndtr((centre - point) / deviation)) for centre in (1.0, 0.0, -1.0))
    growth = math.log(-math.expm1(-epsilon)) + epsilon if epsilon > 0 else -math.inf
    unsampled = math.log1p(-rate) - math.log(rate) + growth + none - one if rate < 1 else -math.inf
    lost = math.exp(min(epsilon + other - one, 0.0)) + math.exp(min(unsampled, 0.0))
    return math.log(rate) + one + math.log1p(-min(lost, 1 - 1e-16))


def replacement_epsilon(rate: float, deviation: float, delta: float) -> float:
    """Return the smallest ε ≥ 0 at δ in (0, 1), at most a relative 1e-11 above; other arguments as above."""
    target = math.log(delta)
    if replacement_log_delta(rate, deviation, 0.0) <= target:
        return 0.0
    # Sampling only amplifies.
    high = gaussian.epsilon(2 / deviation, delta) * (1 + 1e-9)
    smallest = _PRECISION * high * 1e-3
    found = float(
        brentq(lambda value: replacement_log_delta(rate, deviation, value) - target, 0.0, high, xtol=smallest, rtol=_PRECISION)
    )
    return (found + 2 * smallest) * (1 + 4 * _PRECISION)


def replacement_points(losses: Array, rates: Array, deviations: Array) -> Array:
    """Return the points at which log P/Q of that pair equals the losses.

    x = σ²·(loss/2 + asinh(c·sinh(loss/2))) with c = (1−q)/q·e^{1/2σ²}: with u = e^{x/σ²} and a = q·e^{−1/2σ²}, P/Q = e^loss is
    a·u² + (1−q)(1 − e^loss)·u − a·e^loss = 0.
    """
    half = np.abs(losses) / 2
    with np.errstate(divide="ignore"):
        log_factor = np.log1p(-rates) - np.log(rates) + 0.5 / deviations**2
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2.0)
    log_inner = log_factor + log_sinh
    inner = np.where(log_inner < 300.0, np.arcsinh(np.exp(np.minimum(log_inner, 300.0))), log_inner + math.log(2.0))
    return np.asarray(np.copysign(deviations**2 * (half + inner), losses))
