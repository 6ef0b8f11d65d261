"""Lower bound on ε from an attacker who only uses the sum of all releases.

Without the example the sum of T releases is N(0, Tσ²); with it, it is N(k, Tσ²) where k of the T steps sampled it. Every
threshold x proves ε ≥ log((P[sum > x] − δ)/Q[sum > x]). The formula is not the accountant's, shares no line with it, and holds at
any rate, noise, number of steps and δ; without sampling it is the exact ε.
"""

import math

import numpy as np
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

_CENTRES, _THRESHOLDS = 100, 300


def summed(q, sigma, steps, delta, adjacency="add-remove"):
    """Return a lower bound on ε at δ."""
    hits, weights = _hits(q, steps, delta)
    deviation, furthest = sigma * math.sqrt(steps), hits.max()
    thresholds = np.concatenate([
        np.linspace(-3 * deviation, furthest + 45 * deviation, _THRESHOLDS),
        np.linspace(hits.min() - 3 * deviation, furthest + 8 * deviation, _THRESHOLDS),
    ])  # fmt: skip
    with_it = _log_above(thresholds, hits, weights, deviation)
    # An upper bound for the other data set: hits that were left out count as none, where they should be negative.
    without = np.concatenate([-hits, [0.0]]) if adjacency == "replace-one" else np.zeros(1)
    shares = np.append(weights, max(1 - weights.sum(), 1e-300)) if adjacency == "replace-one" else np.ones(1)
    proven = with_it > math.log(delta)
    if not proven.any():
        return 0.0
    surplus = with_it[proven] + np.log1p(-np.exp(math.log(delta) - with_it[proven]))
    return max(0.0, float((surplus - _log_above(thresholds[proven], without, shares, deviation)).max()))


def _log_above(thresholds, centres, weights, deviation):
    return logsumexp(np.log(weights) + log_ndtr((centres - thresholds[:, None]) / deviation), axis=1)


def _hits(q, steps, delta):
    """Return numbers of hits, each standing for itself and those up to the next, and their probabilities."""
    if q == 1.0:
        return np.array([float(steps)]), np.ones(1)
    low, high = binom.ppf(1e-3, steps, q), binom.isf(max(delta * 1e-3, 1e-290), steps, q)
    edges = np.unique(np.floor(np.linspace(low, high + 2 if math.isfinite(high) else low + 2, _CENTRES)))
    above = binom.sf(edges - 1, steps, q)
    weights = above[:-1] - above[1:]
    return edges[:-1][weights > 0], weights[weights > 0]


def shuffled(sigma, steps, delta):
    """Return a lower bound on ε at δ of one epoch of shuffled batches.

    An attacker who controls all other examples can make every batch sum to a constant, except the target example's batch, which
    exceeds it by 2 with the target and by 1 without. The test whether the largest sum exceeds a threshold c tells the two apart,
    and P[max > c] ≤ e^ε·Q[max > c] + δ must hold for every c (Chua et al. 2024, "How Private are DP-SGD Implementations?").
    """
    thresholds = np.linspace(-10 * sigma, 2 + 40 * sigma, 20_001)
    others = (steps - 1) * log_ndtr(thresholds / sigma)
    seen, unseen = (-np.expm1(others + log_ndtr((thresholds - centre) / sigma)) for centre in (2.0, 1.0))
    sure = (seen > delta) & (unseen > 1e-290)
    return max(0.0, float(np.log((seen[sure] - delta) / unseen[sure]).max(initial=0.0)))
