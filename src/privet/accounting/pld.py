"""Privacy loss distributions: the tightest of the upper bounds, at every δ.

One release's losses come in closed form (`pairs`), are composed by tilted Fourier transforms (`composition`), and read at δ
(`hockey_stick`). Everything that is cut off, rounded or folded over on the way makes ε larger, not smaller; only the rounding of
the elementary functions themselves is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privet.accounting import gaussian, hockey_stick, rdp, release_losses
from privet.accounting.composition import Composed, Composer, Grid
from privet.accounting.events import Event, Release, rounded_down
from privet.noise.gaussian import MULTIPLIER_RANGE

Array = NDArray[np.float64]

DIRECTION = "upper bound"

# What discretising may add to ε, relative to it, by estimate.
_LOOSENESS = 5e-4
# Share of δ that may be lost to infinite losses, and mass below the window under the tilted distribution.
_LOST, _OUTSIDE = 1e-6, 1e-6
_SMALLEST_EPSILON = 1e-9
# How much of the range of double precision, e^36, may go unused under a tilt that is not the best.
_SPARE_EXPONENT = 16.0
# Ratio of neighbouring exponents that plans choose from.
_RUNG = 1.25
# Costs in that exponent that do not matter.
_INDIFFERENCE = 0.3
_MOST_LOSSES, _MOST_SURPRISED, _MOST_CELLS = 2**22, 2**20, 2**20
# Share of what the moments prove below which ε is a surprise.
_SURPRISE = 0.6
# Schedules with more distinct multipliers than this are planned on rounded ones (and composed on the exact ones).
_PLANNED_EXACTLY, _PLANNED_RATIO = 48, 1.02
# Answers are rounded up to so many digits, as their last ones depend on the order of multiplication.
_DIGITS = 10
# How often δ is asked for with a better idea of it.
_DELTA_ROUNDS = 3

_COMPOSER = Composer(release_losses.losses)


def epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ for the composition of all events.

    Args:
        events: merged, with noise.
        delta: δ in (0, 1).
        adjacency: one that all events are valid for.

    Guarantee:
        Connecting the dots dominates each release's pair of distributions, so compositions of the former dominate those of the
        latter; what lies outside the window counts as an infinite loss. Full-batch releases among themselves are one Gaussian,
        whose ε is a formula.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots"; Koskela, Jälkö, Honkela 2020 (Fourier
        accountant).
    """
    together = _gaussians_as_one(events)
    if all(_is_gaussian(event) for event in together):
        return gaussian.epsilon(_mu(together, adjacency), delta)
    grid, proven = _planned(together, delta, adjacency)
    found = _read(together, delta, adjacency, grid)
    if found < _SURPRISE * proven:
        # Far fewer losses matter than the plan expected, so it was too coarse. Both answers are upper bounds.
        found = min(found, _read(together, delta, adjacency, _planned(together, delta, adjacency, surprised=True)[0]))
    if (math.isinf(found) or len(together) <= _PLANNED_EXACTLY) and all(rdp.covers(event) for event in together):
        # Another upper bound, and the smaller one where the grid had to be coarse.
        return min(_rounded_up(found), rdp.epsilon(together, delta, adjacency))
    return _rounded_up(found)


def delta(events: Sequence[Release], epsilon: float, adjacency: str) -> float:
    """Return δ at ε ≥ 0 for the composition of all events; arguments and guarantee as for `epsilon`."""
    together = _gaussians_as_one(events)
    if all(_is_gaussian(event) for event in together):
        return math.exp(gaussian.log_delta(_mu(together, adjacency), epsilon))
    exponents = rdp.ORDERS - 1
    bounds = release_losses.moments(_rounded(together), adjacency, _tail(1e-10, sum(event.count for event in together)))
    likely = math.exp(max(min(float(np.min(bounds - exponents * epsilon)), math.log(0.5)), -600.0))
    found = 1.0
    for _ in range(_DELTA_ROUNDS):
        # δ falls steeply where ε is small, so the finer grid; and what may be lost is a share of δ, so again at what was found.
        ways = _composed(together, adjacency, _planned(together, likely, adjacency, surprised=True)[0])
        found = min(found, max(hockey_stick.delta(way.losses, way.masses, way.infinite, epsilon) for way in ways))
        if not 0.0 < found < likely / 4:
            break
        likely = max(found, 1e-280)
    return found


def deltas(events: Sequence[Release], epsilons: Array, adjacency: str, likely: float) -> Array:
    """Return δ at every ε ≥ 0 of a growing (E,) array, from one composition.

    Args:
        events, adjacency: as for `epsilon`.
        epsilons: where to ask.
        likely: δ that the composition is planned for: near it the bound is as tight as that of `epsilon`, elsewhere looser.
    """
    together = _gaussians_as_one(events)
    if all(_is_gaussian(event) for event in together):
        mu = _mu(together, adjacency)
        return np.array([math.exp(gaussian.log_delta(mu, float(value))) for value in epsilons])
    ways = _composed(together, adjacency, _planned(together, likely, adjacency)[0])
    found: Array = np.maximum.reduce([hockey_stick.deltas(way.losses, way.masses, way.infinite, epsilons) for way in ways])
    return found


def grid_width(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return the width of the grid that losses are on when ε at δ is asked for, at most; 0 where ε is a formula."""
    together = _gaussians_as_one(events)
    return 0.0 if all(_is_gaussian(event) for event in together) else _planned(together, delta, adjacency)[0].width


def _read(events: Sequence[Release], delta: float, adjacency: str, grid: Grid) -> float:
    ways = _composed(events, adjacency, grid)
    return max(hockey_stick.epsilon(way.losses, way.masses, way.infinite, delta) for way in ways)


def _is_gaussian(event: Release) -> bool:
    return isinstance(event, Event) and event.sampling_rate == 1.0 and event.projections is None


def _mu(events: Sequence[Release], adjacency: str) -> float:
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0
    return sensitivity * math.sqrt(math.fsum(event.count / event.noise_multiplier**2 for event in events))


def _gaussians_as_one(events: Sequence[Release]) -> tuple[Release, ...]:
    """Return the events with all full-batch releases, which compose into one, replaced by that one if it is in range."""
    full = [event for event in events if _is_gaussian(event)]
    low, high = MULTIPLIER_RANGE
    if len(full) == len(events) or not full or not low <= (one := 1 / _mu(full, "add-remove")) <= high:
        return tuple(events)
    return (*(event for event in events if not _is_gaussian(event)), Event(1.0, one))


def _rounded(events: Sequence[Release]) -> Sequence[Release]:
    """Return many events as few, by rounding multipliers down."""
    return events if len(events) <= _PLANNED_EXACTLY else rounded_down(events, _PLANNED_RATIO)


def _composed(events: Sequence[Release], adjacency: str, grid: Grid) -> tuple[Composed, ...]:
    counts = {replace(event, count=1) if event.count != 1 else event: event.count for event in events}
    return _COMPOSER.compose(counts, adjacency, grid)


def _planned(events: Sequence[Release], delta: float, adjacency: str, surprised: bool = False) -> tuple[Grid, float]:
    """Return a grid fine and wide enough for ε at δ, and the ε that the moments prove.

    Args:
        events, delta, adjacency: as for `epsilon`.
        surprised: whether ε is known to be far below what the moments prove, about what the central limit says.

    It is planned for the next power of two of the number of releases, and its numbers are rounded, so that it stays the same over
    many steps of a training, whose spectra can then be reused. Nothing here decides whether the bound holds.
    """
    total = sum(event.count for event in events)
    horizon = 1 << (total - 1).bit_length()
    alike, tail = _rounded(events), _tail(delta, horizon)
    exponents = rdp.ORDERS - 1
    moments = release_losses.moments(alike, adjacency, tail) * (horizon / total)
    proven = rdp.converted(moments / exponents, delta, rdp.ORDERS)
    best = int(np.argmin(proven))
    # With t the slope of log δ at ε, about the best order of RDP, connecting dots adds up to t(t+1)·h²/8, and 1/12 on average,
    # to the log moment of each release, and 1/t of that to ε.
    width = math.sqrt(12 * _LOOSENESS * max(float(proven[best]), _SMALLEST_EPSILON) / (horizon * rdp.ORDERS[best]))
    width = min(width, 0.25 / rdp.ORDERS[best])
    # Where far fewer losses matter than the moments say, the standard deviation of one release is the better guide.
    deviation = _deviation(exponents, moments)
    one = deviation / math.sqrt(horizon)
    width = min(width, 0.05 * one) if surprised else max(min(width, max(0.1 * one, width / 4)), 0.02 * one)
    limit = gaussian.epsilon(deviation, delta)
    tilt = _tilt(exponents, moments, min(limit, float(proven[best])), float(proven[best]), delta)
    if surprised:  # the plan's tilt may be just where moments explode; a step below costs little
        tilt /= _RUNG
    reach = max(release_losses.reach(event, adjacency, tail) for event in alike)
    width = 2.0 ** (math.floor(2 * math.log2(max(width, reach / _MOST_CELLS))) / 2)
    low, high, bounding = _window(exponents, moments, tilt, delta)
    while (size := _size((high - low) / width)) > (_MOST_SURPRISED if surprised else _MOST_LOSSES):
        width *= 2
    step = size // 8
    return Grid(width, tail, tilt, bounding, size, math.ceil(high / width / step) * step), float(proven[best])


def _deviation(exponents: Array, moments: Array) -> float:
    """Return about the standard deviation of the composition: t(t+1)/2 times its square is the moment of a normal loss at t."""
    place = int(np.searchsorted(exponents, 0.01))
    return math.sqrt(max(2 * float(moments[place] / (exponents[place] * (1 + exponents[place]))), 1e-300))


def _tilt(exponents: Array, moments: Array, limit: float, proven: float, delta: float) -> float:
    """Return the exponent of the tilted distribution, from a geometric ladder.

    Rounding costs about e^{moment − θ·ε}/θ of δ, so the best is the θ that makes this smallest at the true ε. That one lies
    between what the central limit says and what was proven. Where the two differ, moments beyond the true slope grow steeply,
    so the lowest θ that is nearly the best is the safest; unless even at the proven ε it leaves too little precision.

    Args:
        exponents, moments: t > 0 and log E[e^{t·loss}].
        limit, proven: ε by the central limit, and by the best moment.
        delta: δ.
    """
    costs = moments - exponents * limit - np.log(exponents)
    at_limit = float(exponents[np.argmax(costs <= costs.min() + _INDIFFERENCE)])
    precise = exponents[moments - exponents * proven <= math.log(delta) + _SPARE_EXPONENT]
    tilt = max(at_limit, float(precise[0]) if len(precise) else 0.0)
    return _on_ladder(tilt)


def _on_ladder(exponent: float) -> float:
    return float(_RUNG ** round(math.log(exponent, _RUNG)))


def _tail(delta: float, horizon: int) -> float:
    """Return what one release may lose to infinity, a power of ten."""
    return float(10.0 ** max(math.floor(math.log10(_LOST) + math.log10(delta) - math.log10(horizon)), -300))


def _window(orders: Array, moments: Array, tilt: float, delta: float) -> tuple[float, float, float]:
    """Return the losses between which the composition lies, but for a share of δ and of the tilted distribution, by Chernoff.

    And the exponent that bounds what lies above.

    Args:
        orders: t > 0 of the log moments.
        moments: log E[e^{t·loss}] of the composition up to its horizon; it has at least half as many releases.
        tilt: θ, the exponent of the tilted distribution.
        delta: δ.
    """
    at_tilt = float(np.interp(tilt, orders, moments))
    best = int(np.argmin((moments - math.log(_LOST * delta)) / orders))
    high = float((moments[best] - math.log(_LOST * delta)) / orders[best])
    # E[e^{t·loss}] is 1 at t = 0 and, as losses under Q mirror those under P, at t = −1−s about what it is at s.
    below = orders < tilt * 0.99
    lower = np.concatenate([orders[below], [0.0], -1 - orders])
    lower_moments = np.concatenate([moments[below], [0.0], moments])
    # What lies below folds over to just below the top, where the tilt is taken out again.
    log_outside = min(math.log(_OUTSIDE), math.log(_LOST * delta) + tilt * high - at_tilt)
    low = float(np.max((0.5 * (at_tilt - lower_moments) + log_outside) / (tilt - lower)))
    return min(low, high), high, _on_ladder(float(orders[best]))


def _size(losses: float) -> int:
    """Return a transform length that is a power of two or half as much again, with room to round the window's top up."""
    needed = 1.3 * losses + 64
    power = 1 << math.ceil(math.log2(needed))
    return power if needed > 0.75 * power else 3 * power // 4


def _rounded_up(value: float) -> float:
    if not 0.0 < value < math.inf:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return math.ceil(value / unit) * unit
