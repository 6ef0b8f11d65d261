"""Choose the grid of an FFT composition: tilt, period, number of frequencies, and the start of far losses.

These choices decide how tight a bound is, never whether it holds. The log moments of single releases add up and locate the losses
of the composition approximately.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from privet.accounting import rdp
from privet.accounting.events import Release, round_multipliers_down
from privet.accounting.pld import event_losses
from privet.accounting.pld.composition import smoothing, sums_beyond
from privet.accounting.pld.decay import INTERVALS, NUMBERS
from privet.accounting.pld.discrete_loss import Array, Nodes
from privet.accounting.pld.transforms import Grid

# A grid serves every ε between this share of the expected ε and the expected ε.
LOWEST_FOUND = 0.25

# Share of δ that may be lost to infinite losses: less than the effect of one release. And the smallest exponent of the tail.
_LOST, _SMALLEST_TAIL = 1e-10, -307
# Mass outside a period, or beyond the frequencies, is at most e^−26 of δ.
_NEGLIGIBLE_EXPONENT, _MOST_FREQUENCIES = 26.0, 2**18
# A tilt may leave e^3 times as much rounding as the best tilt; less if far losses are separate, to save digits.
_SPARE_EXPONENT, _SPARE_EXPONENT_APART = 3.0, 0.5
# Number of candidate tilts per factor of two, and the range of tilts relative to the nodes' widths.
_RUNGS = 8
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = 1e-9, 1e3
# Number of candidate starts of the far losses, the first at about this many ε, each 1/√2 of the previous one; and the smallest
# distance from zero in nodes. Far losses are separate if that reduces rounding at least to this share.
_STARTS, _FIRST_START, _NODES_BEFORE, _WORTH_IT = 12, 2.0, 16, 0.25
# Schedules with more distinct multipliers are forecast from rounded multipliers (and composed from exact ones).
_FORECAST_EXACTLY, _FORECAST_PER_OCTAVE = 16, 8
# Largest exponent of e.
_HIGHEST_LOG = 600.0


@dataclass(frozen=True)
class Moments:
    """log E[e^{t·loss}] of a composition."""

    exponents: Array  # (M,) t > 0, increasing
    logs: Array  # (M,)

    def costs(self, epsilon: float) -> Array:
        """Return about how much the sum under each tilt exceeds δ at ε, as logarithms up to a common constant."""
        return self.logs - self.exponents * epsilon - np.log(self.exponents) - np.log1p(self.exponents)

    def epsilon(self, delta: float) -> float:
        """Return the ε that the best moment proves at δ."""
        return float(np.min(rdp.to_epsilon(self.logs / self.exponents, delta, 1 + self.exponents)))

    def periods(self, places: Sequence[int], epsilon: float, more: Moments, highest: float) -> Array:
        """Return the shortest sufficient period under each of the tilts at these P positions, (P,).

        Args:
            epsilon: approximate ε of the query.
            more: further moments for the Chernoff bounds on the range of losses.
            highest: the highest loss.
        """
        tilts, at_tilts = self.exponents[places, None], self.logs[places, None]
        # E[e^{t·loss}] is 1 at t = 0; losses under Q mirror those under P, so its value at t = −1 − s is about that at s.
        exponents = np.concatenate([self.exponents, more.exponents, [0.0], -1 - more.exponents])
        away = exponents - tilts
        reach = np.concatenate([self.logs, more.logs, [0.0], more.logs]) - at_tilts + _NEGLIGIBLE_EXPONENT
        with np.errstate(divide="ignore", invalid="ignore"):
            bounds = reach / np.abs(away)
        # A loss one period above ε would count e^{tilt · period} times, and ε may turn out lower than expected.
        above = np.min(np.where(away > 0, bounds, highest), axis=1, initial=highest) - LOWEST_FOUND * epsilon
        below = np.min(np.where(away < 0, bounds, np.inf), axis=1) + epsilon
        return np.asarray(np.maximum(above, below + _NEGLIGIBLE_EXPONENT / tilts[:, 0]))


@dataclass(frozen=True)
class Forecast:
    """An approximate description of a composition, from which to choose its grid."""

    counts: tuple[tuple[Release, int], ...]  # (possibly rounded) releases, and their largest multiplicities
    fewest: float  # the smallest share of these multiplicities
    adjacency: str
    tail: float  # probability per release that may count as an infinite loss

    @property
    def width(self) -> float:
        """Largest distance between adjacent nodes around zero."""
        return max(grid.width for grid in self._nodes())

    def grids_apart(self, epsilon: float, delta: float | None = None) -> tuple[Grid, ...]:
        """Return grids for near losses and far losses separately, or one grid for all if that rounds about as little.

        `epsilon` is that of a query for δ; in a query for ε at `delta` it is an upper bound.
        """
        each = {start: self.coarse(start) for start in self._starts(epsilon)}
        if delta is not None and each:
            epsilon = min(epsilon, *(max(near.epsilon(delta), far.epsilon(delta)) for near, far in each.values()))
        costs = {start: max(near.costs(epsilon).min(), far.costs(epsilon).min()) for start, (near, far) in each.items()}
        best = min(costs, key=lambda start: costs[start], default=0.0)
        if not costs or costs[best] > self.coarse()[0].costs(epsilon).min() + math.log(_WORTH_IT):
            return (self.grid(epsilon),)
        return self.grid(epsilon, best), self.grid(epsilon, best, added=True)

    def _starts(self, epsilon: float) -> list[float]:
        if epsilon == 0.0:
            return []
        first, nearest = math.floor(4 * math.log2(_FIRST_START * epsilon)), _NODES_BEFORE * self.width
        return [start for number in range(_STARTS) if (start := 2.0 ** ((first - 2 * number) / 4)) >= nearest]

    def _nodes(self) -> list[Nodes]:
        return [event_losses.own_nodes(event, self.adjacency, self.tail) for event, _ in self.counts]

    def _moments(self, exponents: tuple[float, ...], start: float | None) -> tuple[Moments, Moments]:
        """Return the log moments of the composed near losses, and those of what the far losses add."""
        composed, expected = np.zeros(len(exponents)), np.zeros(len(exponents))
        for event, count in self.counts:
            near, far = event_losses.log_moments(event, self.adjacency, self.tail, exponents, start)
            composed += count * near
            expected += count * np.exp(np.minimum(far - near, _HIGHEST_LOG))
        with np.errstate(divide="ignore"):
            added = np.where(expected < _HIGHEST_LOG, np.log(np.expm1(np.minimum(expected, _HIGHEST_LOG))), expected)
        return Moments(np.array(exponents), composed), Moments(np.array(exponents), composed + added)

    def coarse(self, start: float | None = None) -> tuple[Moments, Moments]:
        """Return the moments at all exponents that may matter."""
        narrowest = min(grid.width for grid in self._nodes())
        first, last = math.log2(_LOWEST_EXPONENT / self.width), math.log2(_HIGHEST_EXPONENT / narrowest)
        return self._moments(tuple(2.0**power for power in range(math.floor(first), math.ceil(last))), start)

    def grid(self, epsilon: float, start: float | None = None, added: bool = False) -> Grid:
        """Return the grid for an ε near this one; its numbers are rounded, so that similar queries share a grid.

        It is for all losses, for the near ones (given `start`), or for what the far ones add (`added`).
        """
        coarse = self.coarse(start)
        best = float(coarse[added].exponents[np.argmin(coarse[added].costs(epsilon))])
        exponents = tuple(best * 2.0 ** (power / _RUNGS) for power in range(-2 * _RUNGS, 2 * _RUNGS + 1))
        fine = self._moments(exponents, start)
        costs = fine[added].costs(epsilon)
        # Where moments explode just beyond the best tilt, a lower one costs little and has a much shorter period.
        spare = _SPARE_EXPONENT if start is None else _SPARE_EXPONENT_APART
        candidates = np.flatnonzero(costs <= costs.min() + spare).tolist()
        highest = sum(count * grid.high for grid, (_, count) in zip(self._nodes(), self.counts, strict=True))
        whole = self.coarse()[0] if added else coarse[0]
        periods = fine[added].periods(candidates, epsilon, whole, highest)
        period, place = min((_round_up(float(each)), place) for each, place in zip(periods, candidates, strict=True))
        variance = smoothing((grid, self.fewest * count) for grid, (_, count) in zip(self._nodes(), self.counts, strict=True))
        frequencies = self._frequencies(exponents[place], period, variance, start, added)
        scale = None
        if added:
            near, far = (float(moments.logs[place]) for moments in fine)
            scale = 2.0 ** math.ceil(math.log2(math.log1p(math.exp(far - near))))
        return Grid(self.tail, exponents[place], period, frequencies, start, scale)

    def _frequencies(self, tilt: float, period: float, variance: float, start: float | None, added: bool) -> int:
        """Return a number of frequencies beyond which the sum is negligible, given the variance of the smoothing."""
        near, far = np.zeros(INTERVALS), np.zeros(INTERVALS)
        for event, count in self.counts:
            bounds = event_losses.decays(event, self.adjacency, self.tail, tilt, start, period)
            near += self.fewest * count * bounds[0]
            far += count * bounds[1]
        if added:
            near += np.log(np.expm1(np.minimum(far, _HIGHEST_LOG)) / math.expm1(min(float(far[0]), _HIGHEST_LOG)))
        negligible = math.exp(-_NEGLIGIBLE_EXPONENT) / (period * tilt * (1 + tilt))
        enough = sums_beyond(near, period, variance, 1.0) <= negligible
        proven = float(NUMBERS[np.argmax(enough)]) if enough.any() else math.inf
        # Smoothing alone makes these enough.
        deviations = math.sqrt(2 * (_NEGLIGIBLE_EXPONENT + math.log1p(tilt * period)))
        smoothed = max(period / (2 * math.pi) * deviations / math.sqrt(variance), NUMBERS[0])
        return int(min(_round_up(min(proven, smoothed)), _MOST_FREQUENCIES))


def forecast(events: Sequence[Release], delta: float, adjacency: str, ahead: bool) -> Forecast:
    """Describe the composition of the events approximately; `ahead` plans for more releases, up to the next power of two."""
    total = sum(event.count for event in events)
    horizon = 1 << (total - 1).bit_length()
    tail = float(10.0 ** max(math.floor(math.log10(_LOST) + math.log10(delta) - math.log10(horizon)), _SMALLEST_TAIL))
    alike = events if len(events) <= _FORECAST_EXACTLY else round_multipliers_down(events, _FORECAST_PER_OCTAVE)
    growth = horizon / total if ahead else 1.0
    counts = tuple((replace(event, count=1), math.ceil(event.count * growth)) for event in alike)
    return Forecast(counts, 0.5 if ahead else 1.0, adjacency, tail)


@lru_cache(maxsize=64)
def first_grids(of: Forecast, delta: float) -> tuple[tuple[Grid, ...], float]:
    """Return the grids of the first attempt, and the expected ε."""
    likely = of.coarse()[0].epsilon(delta)
    return (of.grid(likely),), likely


def _round_up(value: float) -> float:
    """Return the next multiple of an eighth of a power of two."""
    eighth = 2.0 ** (math.ceil(math.log2(value)) - 3)
    return math.ceil(value / eighth) * eighth
