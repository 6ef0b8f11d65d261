"""Loss distributions of every kind of release: the nodes of the discretisation, and the losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from privet.accounting.events import (
    BallsInBinsEvent,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    Release,
    TruncatedPoissonEvent,
)
from privet.accounting.pld import estimated_norms, interop, mechanism_losses, random_allocation, sampled_gaussian
from privet.accounting.pld.discrete_loss import Array, Losses, Nodes, nodes, width_for
from privet.accounting.pld.transforms import log_shares, tilted

# Number of nodes that count as one where only an approximation is needed.
_THINNED = 4
# Losses up to this many times as probable as the tail are too rare to count for the spread.
_RARE = 1e7


def _width(rate: float, deviation: float, adjacency: str, tail: float, reach: float) -> float:
    """Return the distance of nodes, a power of two that does not shrink as rate, 1/σ, or 1/tail grow."""
    return width_for(sampled_gaussian.spread(rate, deviation, adjacency, min(tail * _RARE, 1e-3)), reach)


def _gaussian_nodes(rate: float, deviation: float, adjacency: str, tail: float) -> Nodes:
    low, high = sampled_gaussian.span(rate, deviation, adjacency, tail)
    return nodes(_width(rate, deviation, adjacency, tail, high - low), low, high)


def _poisson_nodes(event: Event | TruncatedPoissonEvent, adjacency: str, tail: float) -> Nodes:
    q, sigma = event.sampling_rate, event.noise_multiplier
    if isinstance(event, TruncatedPoissonEvent) or event.projections is None:
        return _gaussian_nodes(q, sigma, adjacency, tail)
    largest = estimated_norms.largest_sensitivity(q, event.projections, tail)
    low, high = sampled_gaussian.span(q, sigma / largest, adjacency, tail)
    low = low if q == 1.0 else min(low, math.log1p(-q))
    return nodes(_width(q, sigma, adjacency, tail, high - low), low, high)


def _poisson(events: Sequence[Event], adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    rates, deviations = [event.sampling_rate for event in events], [event.noise_multiplier for event in events]
    if events[0].projections is None:
        return sampled_gaussian.poisson(rates, deviations, adjacency, grid)
    return estimated_norms.poisson(rates[0], deviations[0], events[0].projections, adjacency, grid, tail)


def _fixed_size_nodes(event: FixedSizeEvent, adjacency: str, tail: float) -> Nodes:
    found = _gaussian_nodes(event.sampling_rate, event.noise_multiplier / 2, "add-remove", tail)
    return replace(found, low=-max(found.high, -found.low), high=max(found.high, -found.low))


def _fixed_size(events: Sequence[FixedSizeEvent], adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    rates, deviations = [event.sampling_rate for event in events], [event.noise_multiplier for event in events]
    return sampled_gaussian.without_replacement(rates, deviations, grid)


def _balls_in_bins_nodes(event: BallsInBinsEvent, adjacency: str, tail: float) -> Nodes:
    assert event.steps is not None, "without amplification it is a full batch"
    return nodes(width_for(random_allocation.spread(event.noise_multiplier, event.steps)), 0.0, 0.0)


def _balls_in_bins(events: Sequence[BallsInBinsEvent], adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    assert events[0].steps is not None, "without amplification it is a full batch"
    return random_allocation.losses(events[0].noise_multiplier, events[0].steps, grid.width, tail)


# Kind of release → (event, adjacency, tail) → nodes; and (events, adjacency, nodes, tail) → losses.
_KINDS: dict[type, tuple[Callable[..., Nodes], Callable[..., tuple[Losses, ...]]]] = {
    Event: (_poisson_nodes, _poisson),
    FixedSizeEvent: (_fixed_size_nodes, _fixed_size),
    TruncatedPoissonEvent: (_poisson_nodes, interop.truncated_poisson),
    BallsInBinsEvent: (_balls_in_bins_nodes, _balls_in_bins),
    LaplaceEvent: (mechanism_losses.laplace_nodes, mechanism_losses.laplace),
    RandomizedResponseEvent: (mechanism_losses.bounded_nodes, mechanism_losses.responses),
    EpsilonDeltaEvent: (mechanism_losses.bounded_nodes, mechanism_losses.bounded),
}


@lru_cache(maxsize=4096)
def own_nodes(event: Release, adjacency: str, tail: float) -> Nodes:
    """Return the nodes for the losses of one release (count 1), independently of all others; `tail` may count as infinite."""
    return _KINDS[type(event)][0](event, adjacency, tail)


def _is_computed_alone(event: Release) -> bool:
    """Return whether this kind of release cannot be vectorised over rate and noise."""
    return not isinstance(event, (Event, FixedSizeEvent)) or (isinstance(event, Event) and event.projections is not None)


def losses(events: Sequence[Release], adjacency: str, tail: float) -> Iterator[tuple[Sequence[int], tuple[Losses, ...]]]:
    """Yield positions of events (counts of 1), and their losses in each direction, which do not depend on the other events."""
    alike: dict[Any, list[int]] = {}
    for place, event in enumerate(events):
        grid = own_nodes(event, adjacency, tail)
        alike.setdefault(place if _is_computed_alone(event) else (type(event), grid), []).append(place)
    for places in alike.values():
        some = [events[place] for place in places]
        if len(some) == 1:
            yield places, single_losses(some[0], adjacency, tail)
            continue
        yield places, _KINDS[type(some[0])][1](some, adjacency, own_nodes(some[0], adjacency, tail), tail)


@lru_cache(maxsize=32)
def single_losses(event: Release, adjacency: str, tail: float) -> tuple[Losses, ...]:
    """Return the losses of one release in each direction between neighbours."""
    return _KINDS[type(event)][1]([event], adjacency, own_nodes(event, adjacency, tail), tail)


@lru_cache(maxsize=32)
def _thinned(event: Release, adjacency: str, tail: float) -> tuple[tuple[Array, Array], ...]:
    """Return fewer losses and their masses in each direction: of a few neighbouring nodes each, their mean loss."""
    ways = []
    for way in single_losses(event, adjacency, tail):
        starts = np.arange(0, len(way.values), _THINNED)
        masses = np.add.reduceat(way.masses[0], starts)
        sums = np.add.reduceat(way.masses[0] * way.values, starts)
        ways.append((np.where(masses > 0, sums / np.where(masses > 0, masses, 1.0), way.values[starts]), masses))
    return tuple(ways)


@lru_cache(maxsize=1024)
def log_moments(
    event: Release, adjacency: str, tail: float, exponents: tuple[float, ...], start: float | None = None
) -> tuple[Array, Array]:
    """Return about log E[e^{t·loss}] for exponents t > 0 of one release's near losses and of its far ones, from `start` on.

    Infinite losses are left out; the maximum over the directions counts.
    """
    ways = _thinned(event, adjacency, tail)
    near, far = zip(*(log_shares(values, start) for values, _ in ways), strict=True)
    without = np.full(len(exponents), -np.inf)
    return _largest_moments(ways, near, exponents), without if start is None else _largest_moments(ways, far, exponents)


@lru_cache(maxsize=64)
def decays(event: Release, adjacency: str, tail: float, tilt: float, start: float | None, period: float) -> tuple[Array, Array]:
    """Return bounds on the transforms of one release in all intervals of frequencies, the maximum over its directions.

    They are (INTERVALS,) log magnitudes of the near losses under the tilt θ, and log(1 + far/near).
    """
    ways = single_losses(event, adjacency, tail)
    _, moments, bounds = tilted(ways, tilt, start, period)
    if start is None:
        return bounds.max(axis=(0, 1)), np.zeros(bounds.shape[-1])
    _, far_moments, far_bounds = tilted(ways, tilt, start, period, far=True)
    added = np.logaddexp(0.0, (far_moments - moments)[:, :, None] + far_bounds - bounds)
    return bounds.max(axis=(0, 1)), added.max(axis=(0, 1))


def _largest_moments(ways: Sequence[tuple[Array, Array]], shares: Sequence[Array | float], exponents: tuple[float, ...]) -> Array:
    """Return log E[share · e^{t·loss}; loss < ∞] for every exponent t, the maximum over directions, given log shares."""
    found = np.full(len(exponents), -np.inf)
    with np.errstate(divide="ignore"):
        for (values, masses), share in zip(ways, shares, strict=True):
            logs = np.outer(exponents, values) + (np.log(masses) + share)
            highest = np.maximum(logs.max(axis=1), np.finfo(np.float64).min)
            found = np.maximum(found, highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1)))
    return found
