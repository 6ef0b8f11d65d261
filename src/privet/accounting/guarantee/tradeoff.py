"""Interpretation of (ε, δ) as limits on membership inference.

A membership test with false positive rate α has a false negative rate of at least f(α), the trade-off curve. Every valid (ε, δ)
bounds f from below; many pairs together approximate f closely, on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.accounting.events import Release
from privet.accounting.queries import composed_deltas, composed_epsilon
from privet.errors import InvalidArgumentError, between

Array = NDArray[np.float64]

_POINTS = 40
# Profiles reach down to the first δ, or to the guarantee's if that is smaller. A composition planned for less than the second is
# loose at large δ, so another one is computed there.
_SMALLEST_DELTA, _LOOSE_BELOW = 1e-5, 1e-7


@dataclass(frozen=True)
class PrivacyProfile:
    """Pairs (ε, δ) that hold simultaneously."""

    epsilons: Array  # (K,) ε ≥ 0, increasing; the first is 0
    deltas: Array  # (K,) in [0, 1]


def profile(*parts: Iterable[Release], adjacency: str = "add-remove", delta: float = _SMALLEST_DELTA) -> PrivacyProfile:
    """Return the privacy profile δ(ε), from ε = 0 to the ε at which δ is min(1e-5, `delta`).

    Args:
        parts: the releases on each disjoint part of the data, usually one; at every ε, the part with the largest δ counts.
        adjacency: how neighbouring data sets differ.
        delta: δ in (0, 1) of the guarantee.
    """
    given, smallest = [tuple(part) for part in parts], min(delta, _SMALLEST_DELTA)
    ends = [composed_epsilon(part, delta=smallest, adjacency=adjacency) for part in given]
    highest = max(ends)
    if not math.isfinite(highest):
        return PrivacyProfile(np.zeros(1), np.ones(1))
    epsilons = _grid(highest)

    def deltas_of(part: tuple[Release, ...], end: float) -> Array:
        found = [
            composed_deltas(part, epsilons=epsilons, likely=likely, adjacency=adjacency)
            for likely in {smallest, max(smallest, _LOOSE_BELOW)}
        ]
        deltas: Array = np.minimum.reduce(found)
        deltas[epsilons >= end] = np.minimum(deltas[epsilons >= end], smallest)
        return deltas

    return PrivacyProfile(epsilons, np.maximum.reduce([deltas_of(part, end) for part, end in zip(given, ends, strict=True)]))


def _grid(highest: float) -> Array:
    return np.unique(highest * np.linspace(0, 1, _POINTS) ** 2)


def false_negative_rate(privacy: PrivacyProfile, false_positive_rate: ArrayLike) -> Array:
    """Return the trade-off curve f(α), the lowest false negative rate of any attack with false positive rate α in [0, 1].

    Dong, Roth, Su 2022, "Gaussian Differential Privacy" (duality of (ε, δ) and trade-off curves).
    """
    rates = np.asarray(false_positive_rate, dtype=np.float64)
    if not ((rates >= 0) & (rates <= 1)).all():
        raise InvalidArgumentError("false_positive_rate", false_positive_rate, "between 0 and 1")
    alpha = rates[..., None]
    with np.errstate(over="ignore", invalid="ignore"):
        steep = 1 - privacy.deltas - np.where(alpha > 0, np.exp(privacy.epsilons) * alpha, 0.0)
    flat = np.exp(-privacy.epsilons) * (1 - privacy.deltas - alpha)
    return np.asarray(np.maximum(np.maximum(steep, flat), 0.0).max(axis=-1))


def true_positive_rate(privacy: PrivacyProfile, false_positive_rate: ArrayLike) -> Array:
    """Return the highest true positive rate of any attack with this false positive rate."""
    return np.asarray(1 - false_negative_rate(privacy, false_positive_rate))


def advantage(privacy: PrivacyProfile) -> float:
    """Return the highest advantage (true minus false positive rate) of any attack, the total variation distance.

    That is δ at ε = 0. Where the profile is loose there, another pair bounds it: with (ε, δ), true and false positive rates
    differ by at most (e^ε − 1 + 2δ)/(e^ε + 1), where the two lines of the pair meet.
    """
    # 1/(e^ε + 1) is (1 − tanh(ε/2))/2, which does not overflow.
    balance = np.tanh(privacy.epsilons / 2)
    return float(np.min(balance + privacy.deltas * (1 - balance), initial=1.0))


def bayes_risk(privacy: PrivacyProfile, prior: float = 0.5) -> float:
    """Return the lowest error probability of any attack on membership, for an attacker's prior probability of it in (0, 1)."""
    between("prior", prior, 0.0, 1.0)
    rates = np.concatenate([[0.0], np.geomspace(1e-9, 1e-3, 200, endpoint=False), np.linspace(1e-3, 1.0, 2000)])
    # f decreases, so between two rates the risk is at least the first term at the lower rate plus the second at the higher.
    missed = false_negative_rate(privacy, rates)
    return float(np.min((1 - prior) * rates[:-1] + prior * missed[1:]))


@dataclass(frozen=True)
class Meaning:
    """Limits on every membership attack, regardless of its knowledge, computing power and inserted data."""

    advantage: float  # highest true minus false positive rate
    found_at_one_in_a_thousand: float  # highest true positive rate at a false positive rate of 0.1 %
    found_at_one_in_a_hundred: float  # the same at 1 %
    bayes_risk: float  # lowest error probability if membership is a fair coin flip
    profile: PrivacyProfile = field(compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values."""
        return {
            "advantage": self.advantage,
            "tpr_at_fpr_0.1%": self.found_at_one_in_a_thousand,
            "tpr_at_fpr_1%": self.found_at_one_in_a_hundred,
            "bayes_risk": self.bayes_risk,
            "profile": {"epsilon": self.profile.epsilons.tolist(), "delta": self.profile.deltas.tolist()},
        }


def from_dict(values: Mapping[str, Any]) -> Meaning:
    """Restore a `Meaning` from `Meaning.to_dict`."""
    curve = values["profile"]
    return interpret(PrivacyProfile(np.array(curve["epsilon"], dtype=float), np.array(curve["delta"], dtype=float)))


def interpret(privacy: PrivacyProfile) -> Meaning:
    """Return the limits on attacks that a privacy profile implies."""
    found = true_positive_rate(privacy, [0.001, 0.01])
    return Meaning(advantage(privacy), float(found[0]), float(found[1]), bayes_risk(privacy), privacy)


def meaning(*parts: Iterable[Release], adjacency: str = "add-remove", delta: float = _SMALLEST_DELTA) -> Meaning:
    """Return the limits on attacks against these releases, each on the safe side; arguments as for `profile`."""
    return interpret(profile(*parts, adjacency=adjacency, delta=delta))


def meaning_of(epsilon_at: Callable[[float], float], deltas_at: Callable[[Array], Array], delta: float) -> Meaning:
    """Return the limits on attacks against a mechanism with formulas of its own: ε at a δ, and δ (K,) at some ε (K,)."""
    epsilons = _grid(epsilon_at(min(delta, _SMALLEST_DELTA)))
    return interpret(PrivacyProfile(epsilons, deltas_at(epsilons)))


# For releases without private noise.
NO_PRIVACY = interpret(PrivacyProfile(np.zeros(1), np.ones(1)))
