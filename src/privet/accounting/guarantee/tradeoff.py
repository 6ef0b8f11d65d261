"""Interpretation of (ε, δ) as limits on membership inference.

A membership test with false positive rate α has a false negative rate of at least f(α), the trade-off curve. Every valid (ε, δ)
bounds f from below; many pairs together approximate f closely, on the safe side.
"""

from __future__ import annotations

__all__ = [
    "NO_PRIVACY",
    "Array",
    "Meaning",
    "PrivacyProfile",
    "advantage",
    "bayes_risk",
    "false_negative_rate",
    "from_dict",
    "interpret",
    "meaning",
    "parallel_meaning",
    "parallel_profile",
    "profile",
    "true_positive_rate",
]

import math
from collections.abc import Iterable, Mapping
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
    """Pairs (ε, δ) that hold simultaneously.

    Args:
        epsilons: (K,) ε ≥ 0, increasing; the first is 0.
        deltas: (K,) δ in [0, 1].
    """

    epsilons: Array
    deltas: Array


def profile(events: Iterable[Release], *, adjacency: str = "add-remove", delta: float = _SMALLEST_DELTA) -> PrivacyProfile:
    """Return the privacy profile δ(ε), from ε = 0 to the ε at which δ is min(1e-5, `delta`).

    Args:
        events: the releases.
        adjacency: how neighbouring data sets differ.
        delta: δ in (0, 1) of the guarantee.
    """
    return parallel_profile([tuple(events)], adjacency=adjacency, delta=delta)


def parallel_profile(
    parts: Iterable[Iterable[Release]], *, adjacency: str = "add-remove", delta: float = _SMALLEST_DELTA
) -> PrivacyProfile:
    """Return the privacy profile of releases on disjoint parts of the data: at every ε, the largest δ of any part.

    Args:
        parts: the releases on each part; see `privet.accounting.parallel_epsilon`.
        adjacency, delta: as for `profile`.
    """
    given, smallest = [tuple(part) for part in parts], min(delta, _SMALLEST_DELTA)
    ends = [composed_epsilon(part, delta=smallest, adjacency=adjacency) for part in given]
    highest = max(ends)
    if not math.isfinite(highest):
        return PrivacyProfile(np.zeros(1), np.ones(1))
    epsilons = np.unique(highest * np.linspace(0, 1, _POINTS) ** 2)

    def deltas_of(part: tuple[Release, ...], end: float) -> Array:
        found = [
            composed_deltas(part, epsilons=epsilons, likely=likely, adjacency=adjacency)
            for likely in {smallest, max(smallest, _LOOSE_BELOW)}
        ]
        deltas: Array = np.minimum.reduce(found)
        deltas[epsilons >= end] = np.minimum(deltas[epsilons >= end], smallest)
        return deltas

    return PrivacyProfile(epsilons, np.maximum.reduce([deltas_of(part, end) for part, end in zip(given, ends, strict=True)]))


def false_negative_rate(privacy: PrivacyProfile, false_positive_rate: ArrayLike) -> Array:
    """Return the trade-off curve f(α), the lowest false negative rate of any attack with false positive rate α.

    Args:
        privacy: valid pairs (ε, δ).
        false_positive_rate: α in [0, 1], of any shape.

    Source:
        Dong, Roth, Su 2022, "Gaussian Differential Privacy" (duality of (ε, δ) and trade-off curves).

    >>> import numpy as np
    >>> false_negative_rate(PrivacyProfile(np.zeros(1), np.array([0.25])), 0.5)
    array(0.25)
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

    >>> import numpy as np
    >>> round(advantage(PrivacyProfile(np.array([0.0, 1.0]), np.array([1.0, 0.0]))), 4)  # (e − 1)/(e + 1)
    0.4621
    """
    # 1/(e^ε + 1) is (1 − tanh(ε/2))/2, which does not overflow.
    balance = np.tanh(privacy.epsilons / 2)
    return float(np.min(balance + privacy.deltas * (1 - balance), initial=1.0))


def bayes_risk(privacy: PrivacyProfile, prior: float = 0.5) -> float:
    """Return the lowest error probability of any attack on membership.

    Args:
        privacy: valid pairs (ε, δ).
        prior: the attacker's prior probability of membership, in (0, 1).
    """
    between("prior", prior, 0.0, 1.0)
    rates = np.concatenate([[0.0], np.geomspace(1e-9, 1e-3, 200, endpoint=False), np.linspace(1e-3, 1.0, 2000)])
    # f decreases, so between two rates the risk is at least the first term at the lower rate plus the second at the higher.
    missed = false_negative_rate(privacy, rates)
    return float(np.min((1 - prior) * rates[:-1] + prior * missed[1:]))


@dataclass(frozen=True)
class Meaning:
    """Limits on every membership attack, regardless of its knowledge, computing power and inserted data.

    Args:
        advantage: highest true minus false positive rate.
        found_at_one_in_a_thousand: highest true positive rate at a false positive rate of 0.1 %.
        found_at_one_in_a_hundred: highest true positive rate at a false positive rate of 1 %.
        bayes_risk: lowest error probability if membership is a fair coin flip; 1/2 is random guessing.
        profile: the curve δ(ε) from which the other numbers are computed.
    """

    advantage: float
    found_at_one_in_a_thousand: float
    found_at_one_in_a_hundred: float
    bayes_risk: float
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


def meaning(events: Iterable[Release], *, adjacency: str = "add-remove", delta: float = _SMALLEST_DELTA) -> Meaning:
    """Return the limits on attacks against these releases, each on the safe side; arguments as for `profile`.

    >>> from privet.accounting import Event
    >>> round(meaning([Event(1.0, 1.0)]).advantage, 3)
    0.383
    """
    return interpret(profile(events, adjacency=adjacency, delta=delta))


def parallel_meaning(
    parts: Iterable[Iterable[Release]], *, adjacency: str = "add-remove", delta: float = _SMALLEST_DELTA
) -> Meaning:
    """Return the limits on attacks against releases on disjoint parts of the data; arguments as for `parallel_profile`."""
    return interpret(parallel_profile(parts, adjacency=adjacency, delta=delta))


# For releases without private noise.
NO_PRIVACY = interpret(PrivacyProfile(np.zeros(1), np.ones(1)))
