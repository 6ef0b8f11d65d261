"""Privacy losses of releases without Gaussian noise: the Laplace mechanism, randomised response and (ε, δ)-DP mechanisms.

Let t be the loss of noise around 1 against noise around 0, without sampling. With scale b it lies between −1/b and 1/b, and all x
beyond the two centres share the extreme losses. A Poisson sample at rate q has the loss log(1 + q(e^t − 1)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from privet.accounting.events import EpsilonDeltaEvent, LaplaceEvent, RandomizedResponseEvent
from privet.accounting.pld.discrete_loss import Array, Losses, Nodes, connect_dots, nodes, redistribute, width_for

_UNIT = float(np.finfo(np.float64).eps)
_LARGEST = 600.0


def _scale(event: LaplaceEvent, adjacency: str) -> float:
    # Replacing moves a number by up to twice the bound of one contribution.
    return event.noise_multiplier / (2 if adjacency == "replace-one" else 1)


def laplace_nodes(event: LaplaceEvent, adjacency: str, tail: float) -> Nodes:
    """Return the nodes for one release with Laplace noise."""
    rate, scale = event.sampling_rate, _scale(event, adjacency)
    low, high = (float(np.log1p(rate * np.expm1(loss))) for loss in (-1 / scale, min(1 / scale, _LARGEST)))
    # √(2·log(1 + q²χ²)): at least √(2·KL divergence), and it grows with q and 1/b.
    chi_square = 2 / 3 * math.exp(min(1 / scale, _LARGEST)) + math.exp(-2 / scale) / 3 - 1
    return nodes(width_for(math.sqrt(2 * math.log1p(rate**2 * max(chi_square, scale**-2))), high - low), low, high)


def laplace(events: Sequence[LaplaceEvent], adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    """Return the losses of one release with Laplace noise on a Poisson sample, for removing and for adding."""
    rate, scale = events[0].sampling_rate, _scale(events[0], adjacency)
    values, reach = grid.values, 1 / scale
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.expm1(np.minimum(values, _LARGEST)) / rate
        points = np.clip(np.where(inner > -1, np.log1p(np.maximum(inner, -1.0)), -np.inf), -reach, reach)
    steps = np.diff(points)
    # The loss t has density e^{(t − 1/b)/2}/4 under noise around 1, e^{−(t + 1/b)/2}/4 under noise around 0, and two atoms.
    around_one = 0.5 * np.exp((points[:-1] - reach) / 2) * np.expm1(steps / 2)
    around_none = -0.5 * np.exp(-(points[:-1] + reach) / 2) * np.expm1(-steps / 2)
    low, high = np.log1p(rate * np.expm1(-reach)), np.log1p(rate * np.expm1(min(reach, _LARGEST)))
    for loss, one, none in ((low, 0.5 * math.exp(-reach), 0.5), (high, 0.5, 0.5 * math.exp(-reach))):
        cell = min(max(int(np.searchsorted(values, loss, side="left")) - 1, 0), len(steps) - 1)
        around_one[cell] += one
        around_none[cell] += none
    sampled = (1 - rate) * around_none + rate * around_one
    hidden = 8 * _UNIT
    removed = connect_dots(values, sampled, around_none, hidden * sampled, hidden * around_none)
    of_none, of_sampled = around_none[::-1], sampled[::-1]
    added = connect_dots(-values[::-1], of_none, of_sampled, hidden * of_none, hidden * of_sampled)
    nothing = np.zeros(1)
    ways = Losses(grid, removed[None], nothing), Losses(grid, added[None, ::-1], nothing, mirrored=True)
    return ways[:1] if adjacency == "replace-one" else ways


def bounded_nodes(event: RandomizedResponseEvent | EpsilonDeltaEvent, adjacency: str, tail: float) -> Nodes:
    """Return the nodes for losses between −ε and ε."""
    return nodes(width_for(event.epsilon, 2 * event.epsilon), -event.epsilon, event.epsilon)


def responses(events: Sequence[RandomizedResponseEvent], adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    """Return the losses of a randomised response: ε for the true value, −ε for the compared one, 0 for every other."""
    one = events[0]
    masses = np.array([one.truthful, one.other, (one.answers - 2) * one.other])
    return (_of_masses(np.array([one.epsilon, -one.epsilon, 0.0]), masses, 0.0, grid),)


def bounded(events: Sequence[EpsilonDeltaEvent], adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    """Return losses that dominate those of every (ε, δ)-DP release: ±ε, and infinite with probability δ."""
    epsilon, delta = events[0].epsilon, events[0].delta
    shares = np.array([1.0, math.exp(-epsilon)]) / (1 + math.exp(-epsilon))
    way = _of_masses(np.array([epsilon, -epsilon]), (1 - delta) * shares, delta, grid)
    return (way,) if adjacency == "replace-one" else (way, way)


def _of_masses(losses: Array, masses: Array, infinite: float, grid: Nodes) -> Losses:
    return Losses(grid, redistribute(grid.values, losses, masses)[None], np.array([infinite]))
