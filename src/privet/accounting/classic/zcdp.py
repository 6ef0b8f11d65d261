"""Zero-concentrated differential privacy: one number ρ, which adds up under composition.

ρ-zCDP bounds the Rényi divergence of every order α by ρα. Sampling does not lower ρ: the divergence of a sampled Gaussian release
approaches that of the unsampled one as α grows, relative to α. So ρ is a view of compositions without sampling, and for sampled
releases an upper bound that ignores amplification.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.optimize import brentq, minimize_scalar

from privet.accounting.classic.single_release import amplify
from privet.accounting.events import (
    ADJACENCIES,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    Release,
    merge,
)
from privet.errors import InvalidArgumentError, between, choice, count, positive

_PRECISION = 1e-12


def rho(events: Iterable[Release], adjacency: str = "add-remove") -> float:
    """Return the ρ of a composition: the sum of those of its releases; infinity without noise, or if only (ε, δ > 0) is known.

    Raises:
        InvalidArgumentError: no ρ is known for a release, or for this adjacency.

    Source:
        Bun, Steinke 2016, "Concentrated Differential Privacy", Propositions 1.6 (Gaussian) and 1.4 (pure DP: ε²/2).
    """
    choice("adjacency", adjacency, ADJACENCIES)
    return math.fsum(event.count * _of_release(event, adjacency) for event in merge(events, amplified=False))


def _of_release(event: Release, adjacency: str) -> float:
    if adjacency not in event.adjacencies:
        raise InvalidArgumentError("adjacency", adjacency, " or ".join(map(repr, event.adjacencies)) + f" for {event}")
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0
    if event.noise_multiplier == 0:
        return math.inf
    if isinstance(event, FixedSizeEvent) or (isinstance(event, Event) and event.projections is None):
        return (sensitivity / event.noise_multiplier) ** 2 / 2
    if isinstance(event, LaplaceEvent):
        return amplify(event.sampling_rate, sensitivity / event.noise_multiplier) ** 2 / 2
    if isinstance(event, RandomizedResponseEvent) or (isinstance(event, EpsilonDeltaEvent) and event.delta == 0.0):
        return event.epsilon**2 / 2
    if isinstance(event, EpsilonDeltaEvent):
        return math.inf
    raise InvalidArgumentError("events", event, "releases for which ρ is known", 'Ask for ε by the accountant "pld" instead.')


def epsilon_of(rho: float, delta: float) -> float:
    """Return an ε at δ in (0, 1) of every ρ-zCDP mechanism; ρ ≥ 0.

    For Gaussian noise alone, `composed_epsilon` is smaller, because it uses more than ρ.

    Source:
        Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", Proposition 12, at the best order.
    """
    between("delta", delta, 0.0, 1.0)
    if rho == 0.0 or math.isinf(rho):
        return rho

    def at(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return order * rho + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    # Every order proves an ε, so the search need not be exact.
    guess = 0.5 * math.log(math.log(1 / delta) / rho)
    found = minimize_scalar(at, bounds=(guess - 6, guess + 6), method="bounded", options={"xatol": 1e-9})
    return max(0.0, float(found.fun)) * (1 + _PRECISION)


def delta_of(rho: float, epsilon: float) -> float:
    """Return a δ at ε ≥ 0 of every ρ-zCDP mechanism; ρ ≥ 0. Source as for `epsilon_of`, solved for δ."""
    if rho == 0.0:
        return 0.0

    def at(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return (order - 1) * (order * rho - epsilon + math.log1p(-1 / order)) - math.log(order)

    found = minimize_scalar(at, bounds=(-20.0, 20.0), method="bounded", options={"xatol": 1e-9})
    return min(1.0, math.exp(min(float(found.fun), 0.0)) * (1 + _PRECISION))


def largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ, to a relative 1e-9, for which `epsilon_of` is at most ε > 0 at δ in (0, 1)."""
    target = positive("epsilon", epsilon)
    high = 1.0
    while epsilon_of(high, delta) < target:
        high *= 2
    found = float(brentq(lambda value: epsilon_of(value, delta) - target, 1e-300, high, xtol=1e-300, rtol=1e-12))
    return found * (1 - 1e-9)


def noise_multiplier(rho: float, steps: int = 1, adjacency: str = "add-remove") -> float:
    """Return the σ for which that many Gaussian releases have together this ρ > 0: sensitivity · √(steps/(2ρ))."""
    sensitivity = 2.0 if choice("adjacency", adjacency, ADJACENCIES) == "replace-one" else 1.0
    return sensitivity * math.sqrt(count("steps", steps) / (2 * positive("rho", rho)))
