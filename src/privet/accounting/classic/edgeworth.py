"""The Edgeworth accountant: ε from an expansion of the distribution of composed losses around the normal one.

The estimate is an approximation, which can be too small: tails of an expansion are not those of the distribution. The interval
holds, because a bound on the distance between distribution and expansion is added; it tells something where that bound is well
below δ, so for many releases and a large δ.

Source:
    Wang, Gao, Zhang, Shen, Su 2022, "Analytical Composition of Differential Privacy via the Edgeworth Accountant",
    arXiv:2206.04236; Derumigny, Girard, Guyonvarch 2023, "Explicit Non-Asymptotic Bounds for the Distance to the First-Order
    Edgeworth Expansion", Theorem A.2; Shevtsova 2010, "An Improvement of Convergence Rate Estimates in the Lyapunov Theorem".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma as gamma_function
from scipy.special import gammainc, gammaincc, ndtr

from privet.accounting.classic import gaussian
from privet.accounting.classic.single_release import composed_mu
from privet.accounting.events import Event

Array = NDArray[np.float64]

_STANDARD_DEVIATIONS, _MOST_POINTS = 14.0, 200_000
# Values of ε that are tried, and how far they reach in standard deviations of the loss.
_TRIED, _REACH = 4001, 40.0
_BISECTIONS = 60
# Constants of Derumigny et al.: their ε, the bound on a kernel, and χ₁.
_CUT, _KERNEL, _CHI = 0.1, 1.0253, 0.09916191


@dataclass(frozen=True)
class _Sum:
    """Moments of a sum of independent losses under one data set."""

    number: int  # of losses
    mean: float
    deviation: float
    third: float  # cumulants, relative to powers of the deviation
    fourth: float
    absolute: float  # Σ E|X|³ of the centred losses, in the same unit
    raw: float  # Σ E X⁴
    mixed: float  # Σ E|X|³ + E|X|·Var X

    def survival(self, points: Array, second: bool) -> Array:
        """Return the probability above the points by the expansion of first or second order."""
        z = (points - self.mean) / self.deviation
        terms = self.third / 6 * (z**2 - 1)
        if second:
            terms = terms + self.fourth / 24 * (z**3 - 3 * z) + self.third**2 / 72 * (z**5 - 10 * z**3 + 15 * z)
        return np.asarray(ndtr(-z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * terms)

    def distance(self) -> float:
        """Return a bound on the distance between the distribution function and the first-order expansion."""
        if self.third == self.fourth == 0.0:
            return 0.0
        # Berry–Esseen, and the distance between the expansion and the normal distribution.
        simple = 0.5583 * self.absolute + abs(self.third) / (6 * math.sqrt(2 * math.pi))
        return min(simple, _refined_distance(self), 1.0)


def epsilon(events: Sequence[Event], delta: float, adjacency: str) -> float:
    """Return the estimate of ε at δ of merged releases on Poisson samples, by expansions of second order; exact when q = 1."""
    if all(event.sampling_rate == 1.0 for event in events):
        return gaussian.epsilon(composed_mu(events, adjacency), delta)

    def at(sums: tuple[_Sum, _Sum]) -> Callable[[Array], Array]:
        first, second = sums
        return lambda points: first.survival(points, True) - np.exp(points) * np.maximum(second.survival(points, True), 0.0)

    return max(_last_above(at(sums), sums[0], delta) for sums in _directions(events, adjacency))


def interval(events: Sequence[Event], delta: float, adjacency: str) -> tuple[float, float]:
    """Return bounds on ε at δ from both sides; 0 and infinity where the distance to the expansion is too large to say more."""
    if all(event.sampling_rate == 1.0 for event in events):
        exact = epsilon(events, delta, adjacency)
        return exact, exact
    low, high = 0.0, 0.0
    for first, second in _directions(events, adjacency):
        below, beside = first.distance(), second.distance()
        lower, upper = (partial(_claimed, (first, second), (sign * below, sign * beside)) for sign in (-1.0, 1.0))
        low = max(low, _last_above(lower, first, delta))
        high = max(high, math.inf if below >= delta else _last_above(upper, first, delta))
    return low, high


def _claimed(sums: tuple[_Sum, _Sum], by: tuple[float, float], points: Array) -> Array:
    """Return δ at the points, with both probabilities moved by the distances from their expansions."""
    above = np.clip(sums[1].survival(points, False) - by[1], 0.0, 1.0)
    return np.asarray(sums[0].survival(points, False) + by[0] - np.exp(points) * above)


def _last_above(claimed: Callable[[Array], Array], losses: _Sum, delta: float) -> float:
    """Return the largest ε that a function does not place below δ, up to many deviations above the mean loss."""
    highest = max(losses.mean, 0.0) + _REACH * losses.deviation
    tried = np.minimum(highest, 700.0) * np.linspace(0.0, 1.0, _TRIED)
    above = np.flatnonzero(claimed(tried) > delta)
    if not len(above):
        return 0.0
    if above[-1] == _TRIED - 1:
        return math.inf
    low, high = float(tried[above[-1]]), float(tried[above[-1] + 1])
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if claimed(np.array([middle]))[0] > delta else (low, middle)
    return high


def _directions(events: Sequence[Event], adjacency: str) -> list[tuple[_Sum, _Sum]]:
    """Return the composed losses log P/Q under P and under Q, in each direction between neighbours."""
    found = []
    for reverse in (False,) if adjacency == "replace-one" else (False, True):
        parts = [_moments(event.sampling_rate, event.noise_multiplier, adjacency, reverse) for event in events]
        found.append((_compose(events, [first for first, _ in parts]), _compose(events, [second for _, second in parts])))
    return found


def _compose(events: Sequence[Event], moments: Sequence[tuple[float, ...]]) -> _Sum:
    counts, table = np.array([float(event.count) for event in events]), np.array(moments)
    mean, variance, third, fourth, absolute, mixed = (float(value) for value in counts @ table)
    cumulant = fourth - 3 * float(counts @ table[:, 1] ** 2)
    deviation = math.sqrt(variance)
    return _Sum(
        int(counts.sum()), mean, deviation, third / deviation**3, cumulant / variance**2, absolute / deviation**3,
        fourth / variance**2, mixed / deviation**3,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _moments(rate: float, deviation: float, adjacency: str, reverse: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return moments of one release's loss under P and under Q: mean, central moments 2 to 4, E|X|³, E|X|³ + E|X|·Var X."""
    far = _STANDARD_DEVIATIONS * deviation
    low, high = -far - 1.0, far + 1.0
    step = max(min(deviation / 16, deviation**2 / 4), (high - low) / _MOST_POINTS)
    x: Array = np.arange(low, high, step)

    def log_mixture(centre: float) -> Array:
        away = -((x - centre) ** 2) / (2 * deviation**2)
        none = -(x**2) / (2 * deviation**2)
        return np.asarray(away if rate == 1.0 else np.logaddexp(math.log1p(-rate) + none, math.log(rate) + away))

    log_p = log_mixture(1.0)
    log_q = log_mixture(-1.0) if adjacency == "replace-one" else -(x**2) / (2 * deviation**2)
    if reverse:
        log_p, log_q = log_q, log_p
    loss = log_p - log_q
    found = []
    for log_weights in (log_p, log_q):
        weights = np.exp(log_weights)
        weights /= weights.sum()
        mean = float(weights @ loss)
        centred = loss - mean
        second, third, fourth = (float(weights @ centred**power) for power in (2, 3, 4))
        absolute, first = float(weights @ np.abs(centred) ** 3), float(weights @ np.abs(centred))
        found.append((mean, second, third, fourth, absolute, absolute + first * second))
    return found[0], found[1]


def _refined_distance(losses: _Sum) -> float:
    """Return the bound of Derumigny et al., Theorem A.2, or infinity; K₄/n, K̃₃/√n and λ₃/√n are `raw`, `mixed` and `third`."""
    fourth, mixed, third, absolute = losses.raw, losses.mixed, abs(losses.third), losses.absolute
    room, cut = (1 - 4 * _CHI - math.sqrt(fourth)) / 2, 1 - 3 * _CUT
    if losses.number < 3 or room <= 0:
        return math.inf
    share = (144 + 48 * _CUT + 4 * _CUT**2 + 96 * math.sqrt(2 * _CUT) + 32 * _CUT + 16 * math.sqrt(2) * _CUT**1.5) / 576
    growth = math.exp(_CUT**2 * (1 / 6 + 2 * share / cut**2))
    main = 0.1995 * mixed + 0.031 * mixed**2 + 0.327 * fourth * (1 / 12 + 1 / (4 * cut**2))
    skewed = 0.054 * third * mixed + 0.037 * growth * third**2
    # The remainder: integrals of powers of t times e^{−t²/4}, each from 0 to infinity.
    inner, kernel = 1 / 24 + share / (2 * cut**2), _KERNEL / math.pi
    integrated = kernel / cut**2 * (
        fourth**1.5 / 48 * 2**3 * gamma_function(5.0)
        + fourth**2 / (2 * 24**2) * 2**4 * gamma_function(6.0)
        + fourth**1.25 / 12 * 2**2.5 * gamma_function(4.5)
        + fourth**1.5 / 72 * 2**3 * gamma_function(5.0)
        + fourth**1.75 / 144 * 2**3.5 * gamma_function(5.5)
    ) + kernel * growth * 2**4 * gamma_function(6.0) * (fourth**2 * inner**2 / 2 + third * fourth * inner / 6)  # fmt: skip
    end = 2 / mixed
    start = min(math.sqrt(2 * _CUT) * fourth**-0.25, end)
    between = gamma_function(1.5) * (gammaincc(1.5, start) - gammaincc(1.5, end))
    upper, lower = room * end**2, 2 * room * min(_CUT / math.sqrt(fourth), end**2 / 2)
    middle = 0.5 * room**-1.5 * gamma_function(1.5) * abs(gammainc(1.5, upper) - gammainc(1.5, lower))
    remainder = (
        (14.1961 + 67.0415) * mixed**4 / (16 * math.pi**4)
        + 4.3394 * third * mixed**3 / (8 * math.pi**3)
        + integrated
        + third * between
        + _KERNEL * absolute * middle / (6 * math.pi)
    )
    return float(main + skewed + remainder)
