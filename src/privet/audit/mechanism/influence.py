"""How far a canary moves the release: a lower bound on privacy loss as a multiple of what the plan admits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtr, ndtri

from privet import accounting
from privet.accounting.events import MULTIPLIER_RANGE
from privet.audit.observations import Observations
from privet.audit.probe import Array
from privet.plan import Plan

_CANDIDATES = 60  # thresholds that half of the data chooses from
_DISTINCT = 64  # shifts that a trade-off curve is averaged over
_LARGEST = 1e4
_LEAST_NOISE = MULTIPLIER_RANGE[0]
_NEGLIGIBLE = 1e-3  # of the influence that a plan admits: no ε to speak of


@dataclass(frozen=True)
class Influence:
    """What a canary does to its score, over what the plan lets it do; 1 is the plan to the letter.

    Args:
        ratio: estimate of (shift over noise) / (promised shift over promised noise).
        error: standard error of it.
        noise: standard deviation of the noise over the promised one.
        inside: how many scores of canaries that took part there were.
        outside: how many without, which the noise was estimated from.
    """

    ratio: float
    error: float
    noise: float
    inside: int
    outside: int

    def bound(self, alpha: float) -> float:
        """Return a number that the true ratio exceeds with confidence 1 − α, if scores are normal."""
        return max(0.0, self.ratio + float(ndtri(alpha)) * self.error)

    def noise_interval(self, alpha: float) -> tuple[float, float]:
        """Return where the noise's standard deviation over the promised one lies with confidence 1 − α."""
        freedom = self.outside - 1
        low, high = (math.sqrt(freedom / stats.chi2.ppf(end, freedom)) for end in (1 - alpha / 2, alpha / 2))
        return self.noise * low, self.noise * high

    def p_value(self) -> float:
        """Return how likely so large a ratio would be if the true one were 1."""
        return float(ndtr((1 - self.ratio) / self.error)) if self.error else 0.0


def influence(seen: Observations) -> Influence:
    """Return the estimate from all scores, weighed by how far each should have moved."""
    inside, outside = seen.taking_part, seen.usable & ~seen.taking_part
    noise = np.concatenate([seen.references[seen.usable], seen.scores[outside]])
    mean, variance = float(noise.mean()), float(noise.var(ddof=1))
    shifts = np.broadcast_to((seen.shifts * seen.factors.mean())[:, None], inside.shape)[inside]
    power = float(shifts @ shifts)
    if power == 0:
        return Influence(0.0, math.inf, math.sqrt(variance), len(shifts), len(noise))
    moved = float(shifts @ (seen.scores[inside] - mean)) / power
    rest = seen.scores[inside] - mean - moved * shifts
    own = float((shifts * rest) @ (shifts * rest)) / power**2
    common = variance / len(noise) * (float(shifts.sum()) / power) ** 2
    deviation = math.sqrt(variance)
    if deviation == 0:
        return Influence(math.inf, 0.0, 0.0, len(shifts), len(noise))
    ratio = moved / deviation
    error = math.sqrt((own + common) / variance + ratio**2 / (2 * len(noise)))
    return Influence(ratio, error, deviation, len(shifts), len(noise))


@dataclass(frozen=True, eq=False)
class ErrorRates:
    """How often a threshold on scores was wrong, on scores that it was not chosen from.

    Args:
        missed, inside: scores with a canary that stayed below it, of how many.
        alarms, outside: scores without one that exceeded it, of how many.
        shifts: (s,) equally likely distances that the plan lets a canary move a score by.
    """

    missed: int
    inside: int
    alarms: int
    outside: int
    shifts: Array

    def bound(self, alpha: float) -> float:
        """Return a number that the true ratio exceeds with confidence 1 − α, whatever the law of the noise."""
        if not (self.inside and self.outside):
            return 0.0
        alarms = _rate_bound(self.alarms, self.outside, alpha / 2)
        return smallest_ratio(alarms, _rate_bound(self.missed, self.inside, alpha / 2), self.shifts)

    def p_value(self) -> float:
        """Return the smallest power of ten at which the bound contradicts the plan."""
        return next((alpha for alpha in 10.0 ** np.arange(-15, 0) if self.bound(alpha) > 1), 1.0)


def error_rates(seen: Observations, alpha: float) -> ErrorRates:
    """Return the error rates of a test of "was the canary there?".

    The even steps choose a threshold on the likelihood ratio; the odd ones count how often scores with a canary stay below it,
    and those without exceed it. Clopper–Pearson bounds on both rates say which trade-off curves are impossible.

    Args:
        seen: scores.
        alpha: at which the threshold is to give the best bound.

    Source:
        Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning", §4.
    """
    inside, outside = _likelihood_ratios(seen, seen.scores), _likelihood_ratios(seen, seen.references)
    half = np.broadcast_to((np.arange(len(seen.shifts)) % 2 == 0)[:, None], seen.usable.shape)[seen.taking_part]
    shifts = _distinct(seen)

    def rates(which: NDArray[np.bool_], threshold: float, shifts: Array) -> ErrorRates:
        with_it, without = inside[which], outside[which]
        missed, alarms = int((with_it <= threshold).sum()), int((without > threshold).sum())
        return ErrorRates(missed, len(with_it), alarms, len(without), shifts)

    if not half.any():
        return ErrorRates(0, 0, 0, 0, shifts)
    candidates = np.quantile(np.concatenate([inside[half], outside[half]]), np.linspace(0.0, 1.0, _CANDIDATES + 2)[1:-1])
    # Any threshold is right; that it is a good one may be judged as if all shifts were alike, which is quicker.
    alike = np.sqrt((shifts**2).mean(keepdims=True))
    return rates(~half, max(candidates.tolist(), key=lambda threshold: rates(half, threshold, alike).bound(alpha)), shifts)


def _likelihood_ratios(seen: Observations, scores: Array) -> Array:
    return np.asarray((seen.shifts[:, None] * scores - seen.shifts[:, None] ** 2 / 2)[seen.taking_part])


def _distinct(seen: Observations) -> Array:
    """Return equally likely shifts, (s,), with their unknown factors."""
    shifts = np.broadcast_to(seen.shifts[:, None], seen.taking_part.shape)[seen.taking_part]
    if not len(shifts):
        return shifts
    few = shifts[:1] if np.ptp(shifts) == 0 else np.quantile(shifts, (np.arange(_DISTINCT) + 0.5) / _DISTINCT)
    return np.outer(few, seen.factors).ravel()


def _rate_bound(found: int, of: int, alpha: float) -> float:
    """Return what the rate does not exceed with confidence 1 − α (Clopper, Pearson)."""
    return 1.0 if found >= of else float(betaincinv(found + 1, of - found, 1 - alpha))


def smallest_ratio(false_positives: float, false_negatives: float, shifts: Array) -> float:
    """Return the smallest factor of the shifts at which a test with such error rates exists.

    Args:
        false_positives, false_negatives: rates.
        shifts: (s,) equally likely distances of two normal laws; the test knows which it was.

    Source:
        Dong, Roth, Su 2022, "Gaussian Differential Privacy" (trade-off curve of two normal laws).
    """
    if false_positives + false_negatives >= 1:
        return 0.0
    if len(shifts) == 1:
        return float((-ndtri(false_positives) - ndtri(false_negatives)) / shifts[0])

    def surplus(ratio: float) -> float:
        return _missed(ratio * shifts, false_positives) - false_negatives

    return 0.0 if surplus(1e-6) <= 0 else float(_LARGEST if surplus(_LARGEST) > 0 else brentq(surplus, 1e-6, _LARGEST))


def _missed(shifts: Array, false_positives: float) -> float:
    """Return the least rate of false negatives at this rate of false positives."""

    def surplus(threshold: float) -> float:
        return float(ndtr(-threshold / shifts - shifts / 2).mean()) - false_positives

    reach = 40.0 * float(shifts.max()) * (1 + float(shifts.max()))
    threshold = brentq(surplus, -reach, reach)
    return float(ndtr(threshold / shifts - shifts / 2).mean())


def epsilon(plan: Plan, ratio: float) -> float:
    """Return ε of the plan's steps if every example had this many times its influence.

    Args:
        plan: the claim.
        ratio: ≥ 0.
    """
    if ratio < _NEGLIGIBLE:
        return 0.0
    if not ratio < _LARGEST:
        return math.inf
    events = [replace(event, noise_multiplier=max(_LEAST_NOISE, event.noise_multiplier / ratio)) for event in plan.events()]
    return accounting.composed_epsilon(events, delta=plan.delta, adjacency=plan.adjacency)
