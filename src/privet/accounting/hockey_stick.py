"""Between ε and δ for a distribution of privacy losses L under P: δ(ε) = E[(1 − e^{ε − L})₊]."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Losses this far above ε count (almost) in full: 1 − e^{−40} rounds to 1.
_FAR = 40.0
# Relative error of the sums below.
_ROUNDING = 1e-9


def epsilon(losses: Array, masses: Array, infinite: float, delta: float) -> float:
    """Return the smallest ε ≥ 0, among those not below the lowest loss, with δ(ε) ≤ δ; infinity if there is none.

    Args:
        losses: (K,) in equal steps upwards; the mass of lower ones may be left out.
        masses: (K,) probability of each, ≥ 0; what they add up to may exceed 1 (an upper bound).
        infinite: probability of an infinite loss.
        delta: δ in (0, 1).
    """
    target = delta * (1 - _ROUNDING)
    if infinite >= target:
        return math.inf
    above = np.cumsum(masses[::-1])[::-1] + infinite
    # δ(ε) ≤ P[L > ε] and δ(ε − 1) ≥ (1 − 1/e)·P[L ≥ ε], so ε is at most the first loss where P[L ≥ ·] is below the target, and at
    # least 1 below the last where it is above 1.6 times the target.
    most = int(np.searchsorted(-above, -target, side="right"))
    if most == 0:
        return max(0.0, float(losses[0]))
    most = min(most, len(losses) - 1)
    reference = float(losses[most])
    least = max(0, int(np.searchsorted(-above, -1.6 * target)) - 1)
    first = max(0, int(np.searchsorted(losses, max(float(losses[least]) - 1, reference - _FAR), side="right")) - 2)
    last = int(np.searchsorted(losses, reference + _FAR, side="right"))
    near = losses[first:last] - reference
    beyond = float(above[last]) if last < len(losses) else infinite
    # Under Q; from one loss to the one below, δ grows by (e^{upper} − e^{lower})·Q[L ≥ upper]: sums of nothing negative.
    q_above = np.cumsum((masses[first:last] * np.exp(-near))[::-1])[::-1]
    growth = (np.exp(near[1:]) - np.exp(near[:-1])) * q_above[1:]
    deltas = beyond + np.append(np.cumsum(growth[::-1])[::-1], 0.0)
    found = int(np.argmax(deltas <= target))
    if deltas[found] > target:
        return math.inf
    if found == 0:
        return max(0.0, float(losses[first]))
    # Between two losses δ falls linearly in e^ε.
    within = math.log1p(-min((target - deltas[found]) / (math.exp(near[found]) * q_above[found]), 1 - 1e-12))
    return max(0.0, reference + float(near[found]) + max(within, float(near[found - 1] - near[found])))


def delta(losses: Array, masses: Array, infinite: float, epsilon: float) -> float:
    """Return δ(ε) for an ε that is not below the lowest loss; arguments as for `epsilon`."""
    above = losses > epsilon
    sure = -np.expm1(np.maximum(epsilon - losses[above], -_FAR))
    return min(1.0, infinite + float(np.dot(sure + math.exp(-_FAR), masses[above])) * (1 + _ROUNDING))


def deltas(losses: Array, masses: Array, infinite: float, epsilons: Array) -> Array:
    """Return δ at every ε ≥ 0 of a growing (E,) array, 1 where ε is below the lowest loss; other arguments as for `epsilon`."""
    found = np.ones(len(epsilons))
    places = np.searchsorted(losses, epsilons, side="right")
    upper, end, above, delta_above = math.inf, len(losses), infinite, infinite
    for number in reversed(range(len(epsilons))):
        lower, place = float(epsilons[number]), int(places[number])
        if lower < losses[0]:
            break
        # δ(ε) = E[1 − e^{ε − L}; ε < L ≤ ε′] + (1 − e^{ε − ε′})·P[L > ε′] + e^{ε − ε′}·δ(ε′): sums of nothing negative.
        ratio, between = math.exp(lower - upper), masses[place:end]
        delta_above = float(np.dot(-np.expm1(lower - losses[place:end]), between)) + (1 - ratio) * above + ratio * delta_above
        above += float(between.sum())
        upper, end = lower, place
        found[number] = min(1.0, delta_above * (1 + _ROUNDING))
    return found
