"""Influence of a canary on the release, relative to the plan, and the lower bound on ε that it proves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtr, ndtri

from privet.accounting.events import MULTIPLIER_RANGE, GaussianRelease, Release
from privet.accounting.queries import composed_epsilon
from privet.audit.observations import Observations
from privet.audit.probe import Array
from privet.plan import Plan

_CANDIDATES = 60  # thresholds among which half of the data selects
_DISTINCT = 64  # shifts over which a trade-off curve is averaged
_LARGEST = 1e4
_LEAST_NOISE = MULTIPLIER_RANGE[0]
_NEGLIGIBLE = 1e-3  # fraction of the plan's influence below which ε counts as 0


@dataclass(frozen=True)
class Influence:
    """Influence of a canary on its score: an estimate of (shift / noise) / (planned shift / planned noise), with its error."""

    ratio: float
    error: float
    noise: float  # standard deviation of the noise over the planned one
    inside: int  # number of scores with a canary
    outside: int  # number of scores without one, from which the noise is estimated

    def bound(self, alpha: float) -> float:
        """Return a lower bound on the true ratio with confidence 1 − α, for normal scores."""
        return max(0.0, self.ratio + float(ndtri(alpha)) * self.error)

    def noise_interval(self, alpha: float) -> tuple[float, float]:
        """Return the interval of the noise's standard deviation over the planned one, with confidence 1 − α."""
        freedom = self.outside - 1
        low, high = (math.sqrt(freedom / stats.chi2.ppf(end, freedom)) for end in (1 - alpha / 2, alpha / 2))
        return self.noise * low, self.noise * high

    def p_value(self) -> float:
        """Return the p-value of the ratio if the true ratio is 1 (one-sided)."""
        return float(ndtr((1 - self.ratio) / self.error)) if self.error else 0.0


def estimate_influence(seen: Observations) -> Influence:
    """Estimate the influence from all scores, weighted by their planned shifts."""
    noise = np.concatenate([seen.references[seen.usable], seen.scores[seen.usable & ~seen.taking_part]])
    deviation = float(noise.std(ddof=1))
    shifts, scores = _inside(seen, seen.factors.mean() * seen.shifts[:, None]), _inside(seen, seen.scores) - noise.mean()
    power = float(shifts @ shifts)
    if power == 0:
        ratio, error = 0.0, math.inf
    elif deviation == 0:
        ratio, error = math.inf, 0.0
    else:
        ratio = float(shifts @ scores) / power / deviation
        own = float(np.linalg.norm(shifts * (scores / deviation - ratio * shifts))) / power
        common = float(shifts.sum()) / power / math.sqrt(len(noise))
        error = math.hypot(own, common, ratio / math.sqrt(2 * len(noise)))
    return Influence(ratio, error, deviation, len(shifts), len(noise))


@dataclass(frozen=True, eq=False)
class ErrorRates:
    """Errors of a threshold on scores, counted on other scores than those that selected it."""

    missed: int  # false negatives
    inside: int  # scores with a canary
    alarms: int  # false positives
    outside: int  # scores without a canary
    shifts: Array  # (s,) equally likely shifts of a canary's score according to the plan

    def bound(self, alpha: float) -> float:
        """Return a lower bound on the true ratio with confidence 1 − α, for any noise distribution."""
        if not (self.inside and self.outside):
            return 0.0
        # Upper bounds on both rates with confidence 1 − α/2 (Clopper, Pearson).
        counts = ((self.alarms, self.outside), (self.missed, self.inside))
        alarms, missed = (1.0 if n >= of else float(betaincinv(n + 1, of - n, 1 - alpha / 2)) for n, of in counts)
        return smallest_ratio(alarms, missed, self.shifts)

    def p_value(self) -> float:
        """Return the smallest power of ten α at which the bound contradicts the plan, or 1."""
        return next((alpha for alpha in 10.0 ** np.arange(-15, 0) if self.bound(alpha) > 1), 1.0)


def measure_error_rates(seen: Observations, alpha: float) -> ErrorRates:
    """Return the error rates of a test of whether a canary took part.

    The even steps select the threshold on the likelihood ratio with the best bound at level α; the odd steps count its false
    negatives and false positives. Clopper–Pearson bounds on both rates exclude trade-off curves.

    Source:
        Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning", §4.
    """
    planned = seen.shifts[:, None]
    inside, outside = (_inside(seen, planned * scores - planned**2 / 2) for scores in (seen.scores, seen.references))
    half, distinct = _inside(seen, np.arange(len(planned))[:, None] % 2 == 0), _inside(seen, planned)
    if not half.any():
        return ErrorRates(0, 0, 0, 0, distinct)
    few = distinct[:1] if np.ptp(distinct) == 0 else np.quantile(distinct, (np.arange(_DISTINCT) + 0.5) / _DISTINCT)
    shifts = np.outer(few, seen.factors).ravel()

    def rates(which: NDArray[np.bool_], threshold: float, shifts: Array) -> ErrorRates:
        with_it, without = inside[which], outside[which]
        missed, alarms = int((with_it <= threshold).sum()), int((without > threshold).sum())
        return ErrorRates(missed, len(with_it), alarms, len(without), shifts)

    candidates = np.quantile(np.concatenate([inside[half], outside[half]]), np.linspace(0.0, 1.0, _CANDIDATES + 2)[1:-1])
    # Any threshold is valid; its quality may be judged with equal shifts, which is faster.
    equal = np.sqrt((shifts**2).mean(keepdims=True))
    return rates(~half, max(candidates.tolist(), key=lambda threshold: rates(half, threshold, equal).bound(alpha)), shifts)


def _inside(seen: Observations, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values, (T, m) or (T, 1), of the canaries that took part."""
    return np.broadcast_to(values, seen.taking_part.shape)[seen.taking_part]


def smallest_ratio(false_positives: float, false_negatives: float, shifts: Array) -> float:
    """Return the smallest factor of the shifts at which a test with these error rates exists.

    The shifts, (s,), are equally likely distances between two normal distributions; the test knows the distance.

    Source:
        Dong, Roth, Su 2022, "Gaussian Differential Privacy" (trade-off curve of two normal distributions).
    """
    if false_positives + false_negatives >= 1:
        return 0.0
    if len(shifts) == 1:
        return float((-ndtri(false_positives) - ndtri(false_negatives)) / shifts[0])

    def surplus(ratio: float) -> float:
        return _least_false_negatives(ratio * shifts, false_positives) - false_negatives

    return 0.0 if surplus(1e-6) <= 0 else float(_LARGEST if surplus(_LARGEST) > 0 else brentq(surplus, 1e-6, _LARGEST))


def _least_false_negatives(shifts: Array, false_positives: float) -> float:
    def surplus(threshold: float) -> float:
        return float(ndtr(-threshold / shifts - shifts / 2).mean()) - false_positives

    limit = 40.0 * float(shifts.max()) * (1 + float(shifts.max()))
    threshold = brentq(surplus, -limit, limit)
    return float(ndtr(threshold / shifts - shifts / 2).mean())


def scaled_epsilon(plan: Plan, ratio: float) -> float:
    """Return ε of the plan's steps if every example had `ratio` times its planned influence."""
    if ratio < _NEGLIGIBLE:
        return 0.0
    if not ratio < _LARGEST:
        return math.inf
    events: list[Release] = []
    for event in plan.events():
        assert isinstance(event, GaussianRelease)  # as all of a plan
        events.append(replace(event, noise_multiplier=max(_LEAST_NOISE, event.noise_multiplier / ratio)))
    return composed_epsilon(events, delta=plan.delta, adjacency=plan.adjacency)
