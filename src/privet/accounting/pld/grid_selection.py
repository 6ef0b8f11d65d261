"""What is known of a composition before it is summed: which tilt, period and frequencies suit it, and which losses are far.

Nothing here decides whether a bound holds, only how close it is. Moments of single releases add up, and say about where the
composition's losses are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from privet.accounting import rdp
from privet.accounting.events import Release, rounded_down
from privet.accounting.pld import event_losses
from privet.accounting.pld.composition import smoothing
from privet.accounting.pld.discrete_loss import Array, Nodes
from privet.accounting.pld.transforms import Grid

# What is summed serves every ε between this share of the expected one and that.
LOWEST_FOUND = 0.25

# Share of δ that may be lost to infinite losses: less than what a release more or less changes.
_LOST, _SMALLEST_TAIL = 1e-10, -307
# What lies outside a period, or beyond the frequencies, is e^−26 of what decides δ.
_NEGLIGIBLE_EXPONENT, _MOST_FREQUENCIES = 26.0, 2**18
# A tilt may leave e^3 times as much rounding as the best; less where far losses are apart to save digits.
_SPARE_EXPONENT, _SPARE_EXPONENT_APART = 3.0, 0.5
# How many exponents between one and its double tilts are chosen from, and the range of them in terms of the nodes' widths.
_RUNGS = 8
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = 1e-9, 1e3
# Far losses begin at one of so many places, the first at about this many ε, each 1/√2 of the one before; and so many nodes from
# zero. They are apart if sums leave less than this share of rounding then.
_STARTS, _FIRST_START, _NODES_BEFORE, _WORTH_IT = 12, 2.0, 16, 0.25
# Schedules with more distinct multipliers are forecast from rounded ones (and composed of the exact ones).
_FORECAST_EXACTLY, _FORECAST_PER_OCTAVE = 16, 8
# Of what is raised to e.
_HIGHEST_LOG = 600.0


@dataclass(frozen=True)
class Moments:
    """log E[e^{t·loss}] of a composition.

    Args:
        exponents: (M,) growing t > 0.
        logs: (M,) its values.
    """

    exponents: Array
    logs: Array

    def costs(self, epsilon: float) -> Array:
        """Return by about how much the sums under each tilt exceed δ at ε, as logarithms, up to a common one."""
        return self.logs - self.exponents * epsilon - np.log(self.exponents) - np.log1p(self.exponents)

    def best(self, epsilon: float) -> float:
        """Return the exponent whose cost at ε is least."""
        return float(self.exponents[np.argmin(self.costs(epsilon))])

    def proven(self, delta: float) -> float:
        """Return the ε that the best of the moments proves at δ."""
        return float(np.min(rdp.converted(self.logs / self.exponents, delta, 1 + self.exponents)))

    def period(self, place: int, epsilon: float, more: Moments, highest: float) -> float:
        """Return how far apart losses must be repeated under the tilt at this place.

        Args:
            place: of the tilt.
            epsilon: about which ε is asked for.
            more: other moments; from these and those, Chernoff's bound says how far losses reach.
            highest: of the losses.
        """
        tilt, at_tilt = self.exponents[place], self.logs[place]
        # E[e^{t·loss}] is 1 at t = 0 and, as losses under Q mirror those under P, at t = −1 − s about what it is at s.
        exponents = np.concatenate([self.exponents, more.exponents, [0.0], -1 - more.exponents])
        away = exponents - tilt
        reach = np.concatenate([self.logs, more.logs, [0.0], more.logs]) - at_tilt + _NEGLIGIBLE_EXPONENT
        # A loss a period above ε would count e^{tilt · period} times, and ε may turn out to be lower than expected.
        above = np.min(reach[away > 0] / away[away > 0], initial=highest) - LOWEST_FOUND * epsilon
        below = np.min(reach[away < 0] / -away[away < 0]) + epsilon
        return _upwards(float(max(above, below + _NEGLIGIBLE_EXPONENT / tilt)))


@dataclass(frozen=True)
class Forecast:
    """What a composition is made of, or about.

    Args:
        counts: releases, or some like them, and how often at most.
        fewest: the share of those that there are at least.
        adjacency: whose data differ between neighbours.
        tail: probability of one release that may be counted as an infinite loss.
    """

    counts: tuple[tuple[Release, int], ...]
    fewest: float
    adjacency: str
    tail: float

    @property
    def width(self) -> float:
        """How far apart the nodes around zero are, at most."""
        return max(grid.width for grid in self._nodes())

    def likely(self, delta: float) -> float:
        """Return the ε that moments prove at δ."""
        return self._coarse()[0].proven(delta)

    def grid(self, epsilon: float) -> Grid:
        """Return what is to be summed for an ε near this one; its numbers are rounded, so that similar ones are equal."""
        return self._grid(epsilon)

    def grids_apart(self, epsilon: float, delta: float | None = None) -> tuple[Grid, ...]:
        """Return the same if far losses are apart from the others; or together, if it leaves as little rounding.

        Args:
            epsilon: where δ is asked for; or what ε is at most.
            delta: where ε is asked for; None if δ is.
        """
        each = {start: self._coarse(start) for start in self._starts(epsilon)}
        if delta is not None and each:
            epsilon = min(epsilon, *(max(others.proven(delta), far.proven(delta)) for others, far in each.values()))
        costs = {start: max(others.costs(epsilon).min(), far.costs(epsilon).min()) for start, (others, far) in each.items()}
        best = min(costs, key=lambda start: costs[start], default=0.0)
        if not costs or costs[best] > self._coarse()[0].costs(epsilon).min() + math.log(_WORTH_IT):
            return (self.grid(epsilon),)
        return self._grid(epsilon, best), self._grid(epsilon, best, added=True)

    def _starts(self, epsilon: float) -> list[float]:
        """Return where far losses may begin if δ is asked for at this ε."""
        if epsilon == 0.0:
            return []
        first, nearest = math.floor(4 * math.log2(_FIRST_START * epsilon)), _NODES_BEFORE * self.width
        return [start for number in range(_STARTS) if (start := 2.0 ** ((first - 2 * number) / 4)) >= nearest]

    def _nodes(self) -> list[Nodes]:
        return [event_losses.own_nodes(event, self.adjacency, self.tail) for event, _ in self.counts]

    def _moments(self, exponents: tuple[float, ...], start: float | None) -> tuple[Moments, Moments]:
        """Return the log moments of the composition if no loss is far, and what is added to them if some are."""
        others, expected = np.zeros(len(exponents)), np.zeros(len(exponents))
        for event, count in self.counts:
            other, far = event_losses.log_moments(event, self.adjacency, self.tail, exponents, start)
            others += count * other
            expected += count * np.exp(np.minimum(far - other, _HIGHEST_LOG))
        with np.errstate(divide="ignore"):
            added = np.where(expected < _HIGHEST_LOG, np.log(np.expm1(np.minimum(expected, _HIGHEST_LOG))), expected)
        return Moments(np.array(exponents), others), Moments(np.array(exponents), others + added)

    def _coarse(self, start: float | None = None) -> tuple[Moments, Moments]:
        """Return moments at all exponents that may matter."""
        narrowest = min(grid.width for grid in self._nodes())
        first, last = math.log2(_LOWEST_EXPONENT / self.width), math.log2(_HIGHEST_EXPONENT / narrowest)
        return self._moments(tuple(2.0**power for power in range(math.floor(first), math.ceil(last))), start)

    def _grid(self, epsilon: float, start: float | None = None, added: bool = False) -> Grid:
        """Return what is to be summed of all losses, of others than far ones, or of what these add."""
        coarse = self._coarse(start)
        exponents = _around(coarse[added].best(epsilon))
        fine = self._moments(exponents, start)
        costs = fine[added].costs(epsilon)
        # Where moments explode, just beyond the best tilt, a lower one costs little and has a far shorter period.
        spare = _SPARE_EXPONENT if start is None else _SPARE_EXPONENT_APART
        candidates = np.flatnonzero(costs <= costs.min() + spare).tolist()
        highest = sum(count * grid.high for grid, (_, count) in zip(self._nodes(), self.counts, strict=True))
        whole = self._coarse()[0] if added else coarse[0]
        period, place = min((fine[added].period(place, epsilon, whole, highest), place) for place in candidates)
        variance = smoothing((grid, self.fewest * count) for grid, (_, count) in zip(self._nodes(), self.counts, strict=True))
        deviations = math.sqrt(2 * (_NEGLIGIBLE_EXPONENT + math.log1p(exponents[place] * period)))
        frequencies = _upwards(max(period / (2 * math.pi) * deviations / math.sqrt(variance), 32.0))
        scale = None
        if added:
            others, far = (float(moments.logs[place]) for moments in fine)
            scale = 2.0 ** math.ceil(math.log2(math.log1p(math.exp(far - others))))
        return Grid(self.tail, exponents[place], period, int(min(frequencies, _MOST_FREQUENCIES)), start, scale)


def forecast(events: Sequence[Release], delta: float, adjacency: str, ahead: bool) -> Forecast:
    """Return what is known of the composition of the events.

    Args:
        events: merged, with noise.
        delta: δ, about, at which ε is asked for.
        adjacency: one that all events are valid for.
        ahead: whether as many as up to the next power of two are thought of, so that more steps have the same forecast.
    """
    total = sum(event.count for event in events)
    horizon = 1 << (total - 1).bit_length()
    tail = float(10.0 ** max(math.floor(math.log10(_LOST) + math.log10(delta) - math.log10(horizon)), _SMALLEST_TAIL))
    alike = events if len(events) <= _FORECAST_EXACTLY else rounded_down(events, _FORECAST_PER_OCTAVE)
    growth = horizon / total if ahead else 1.0
    counts = tuple((replace(event, count=1), math.ceil(event.count * growth)) for event in alike)
    return Forecast(counts, 0.5 if ahead else 1.0, adjacency, tail)


@lru_cache(maxsize=64)
def first_grids(of: Forecast, delta: float) -> tuple[tuple[Grid, ...], float]:
    """Return what is to be summed if nothing else is known, and the ε that is expected."""
    likely = of.likely(delta)
    return (of.grid(likely),), likely


def _around(exponent: float) -> tuple[float, ...]:
    return tuple(exponent * 2.0 ** (power / _RUNGS) for power in range(-2 * _RUNGS, 2 * _RUNGS + 1))


def _upwards(value: float) -> float:
    """Return the next multiple of an eighth of a power of two."""
    eighth = 2.0 ** (math.ceil(math.log2(value)) - 3)
    return math.ceil(value / eighth) * eighth
