"""Privacy loss distributions: the tightest of the upper bounds, at every δ.

One release's losses come in closed form (`pairs`), are put on nodes that depend on that release alone (`release_losses`), and
are composed and read at δ by tilted Fourier series (`composition`). Everything that is cut off, rounded or repeated on the way
makes ε larger, not smaller; only the rounding of the elementary functions themselves is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from privet.accounting import gaussian, rdp, release_losses
from privet.accounting.composition import Composed, Composer, smoothing
from privet.accounting.events import BallsInBins, Event, FixedSize, Release, finely_rounded, rounded_down
from privet.accounting.losses import Array, Nodes
from privet.accounting.transforms import Grid

DIRECTION = "upper bound"

# Share of δ that may be lost to infinite losses: less than what a release more or less changes; and where rounding matters more.
_LOST, _LOST_IN_DOUBT = 1e-10, 1e-4
# What lies outside a period, or beyond the frequencies, is e^−26 of what decides δ.
_NEGLIGIBLE_EXPONENT = 26.0
# How many exponents between one and its double plans choose from, and the range of them in terms of the nodes' widths.
_RUNGS = 8
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = 1e-9, 1e3
# Schedules with more distinct multipliers are planned on rounded ones (and composed on the exact ones).
_PLANNED_EXACTLY, _PLANNED_PER_OCTAVE = 16, 8
# What is summed serves every ε between this share of the expected one and that.
_LOWEST_FOUND = 0.25
# A tilt may leave e^3 times as much rounding as the best. If rounding is more than this share of δ, it is chosen again where ε
# was found, so many times at most, until ε falls by less than this share.
_SPARE_EXPONENT, _DOUBTFUL, _ROUNDS, _SETTLED = 3.0, 1e-4, 8, 1e-6
# Answers are rounded up to so many digits, more than a release too many or too few could change.
_DIGITS = 10

_MOST_FREQUENCIES, _SMALLEST_TAIL = 2**18, -307

_COMPOSER = Composer(release_losses.losses)


def epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ for the composition of all events.

    Args:
        events: merged, with noise.
        delta: δ in (0, 1).
        adjacency: one that all events are valid for.

    Guarantee:
        Connecting the dots dominates each release's pair of distributions, so compositions of the former dominate those of the
        latter; what lies outside all nodes counts as an infinite loss. Nodes get coarser, and what is left of a release does not
        shrink, as steps, rate, 1/σ and 1/δ grow, so neither would ε if sums were exact. What may be rounding is counted as loss,
        and hidden by rounding rates and multipliers to the millionth, but not where δ is below 1e-12 or an example takes part
        less than once on average: there ε is an upper bound as everywhere, and may fall by as much as that share does. Full-batch
        releases are one Gaussian, whose ε is a formula.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots"; Zhu, Dong, Wang 2022, "Optimal Accounting of
        Differential Privacy via Characteristic Function".
    """
    together, mu = finely_rounded(events), _unsampled(events, adjacency)
    if all(_is_gaussian(event) for event in together):
        return _rounded_up(gaussian.epsilon(mu, delta))
    grid, near = _first_grid(_planned(together, delta, adjacency, _LOST, ahead=True), delta)
    found = math.inf
    for _ in range(_ROUNDS):
        now, doubt = _read(_composed(together, adjacency, grid), delta, near)
        expected, found = near, min(found, now)
        near = found
        if now >= _LOWEST_FOUND * expected and (doubt <= _DOUBTFUL or now >= (1 - _SETTLED) * expected):
            break
        # Far losses that are too rare to matter can keep a tilt from where it should be, so in doubt they are given up.
        lost = _LOST_IN_DOUBT if doubt > _DOUBTFUL else _LOST
        grid = _planned(together, delta, adjacency, lost, ahead=False).grid(found)
    if math.isinf(found) and all(rdp.covers(event) for event in together):
        found = rdp.epsilon(together, delta, adjacency)
    # Sampling amplifies, so without it there is a bound, too.
    if not math.isinf(mu) and (math.isinf(found) or gaussian.log_delta(mu, found) < math.log(delta)):
        found = min(found, gaussian.epsilon(mu, delta))
    return _rounded_up(found)


def delta(events: Sequence[Release], epsilon: float, adjacency: str) -> float:
    """Return δ at ε ≥ 0 for the composition of all events; arguments and guarantee as for `epsilon`."""
    together, mu = finely_rounded(events), _unsampled(events, adjacency)
    unsampled = 1.0 if math.isinf(mu) else math.exp(gaussian.log_delta(mu, epsilon))
    if all(_is_gaussian(event) for event in together):
        return unsampled
    likely, found = 1e-10, 1.0
    for _ in range(_ROUNDS):
        found = min(found, _delta_at(epsilon, together, _planned(together, likely, adjacency, _LOST, ahead=False)))
        if found >= likely / 10:
            break
        # What may be lost is a share of δ, so again at what was found.
        likely = max(found, 1e-290)
    return min(found, unsampled)


def deltas(events: Sequence[Release], epsilons: Array, adjacency: str, likely: float) -> Array:
    """Return δ at every ε ≥ 0 of an (E,) array.

    Args:
        events, adjacency: as for `epsilon`.
        epsilons: where to ask.
        likely: about the smallest δ that matters: a billionth of it may be lost everywhere.
    """
    together, mu = finely_rounded(events), _unsampled(events, adjacency)
    unsampled = [1.0 if math.isinf(mu) else math.exp(gaussian.log_delta(mu, float(value))) for value in epsilons]
    if all(_is_gaussian(event) for event in together):
        return np.array(unsampled)
    plan = _planned(together, likely, adjacency, _LOST, ahead=False)
    return np.minimum(unsampled, [_delta_at(float(value), together, plan) for value in epsilons])


def grid_width(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return how far apart the nodes around zero are at most that losses are on when ε at δ is asked for; 0 for a formula."""
    together = finely_rounded(events)
    if all(_is_gaussian(event) for event in together):
        return 0.0
    return _planned(together, delta, adjacency, _LOST, ahead=True).width


def _read(ways: Sequence[Composed], delta: float, likely: float) -> tuple[float, float]:
    """Return ε at δ, the largest of all directions between neighbours, and the share of rounding in δ there."""
    found, decisive = ways[0].epsilon(delta, likely), ways[0]
    for way in ways[1:]:
        if way.delta(found) > delta:
            found, decisive = way.epsilon(delta, found), way
    return found, 0.0 if math.isinf(found) else decisive.doubt(found)


def _delta_at(epsilon: float, events: Sequence[Release], plan: _Plan) -> float:
    return max(way.delta(epsilon) for way in _composed(events, plan.adjacency, plan.grid(epsilon)))


def _composed(events: Sequence[Release], adjacency: str, grid: Grid) -> tuple[Composed, ...]:
    counts = {replace(event, count=1) if event.count != 1 else event: event.count for event in events}
    return _COMPOSER.compose(counts, adjacency, grid)


def _is_gaussian(event: Release) -> bool:
    return isinstance(event, Event) and event.sampling_rate == 1.0 and event.projections is None


def _unsampled(events: Sequence[Release], adjacency: str) -> float:
    """Return μ of the Gaussian that the events together are if nothing is amplified; infinity if no such bound is known."""
    if not all(
        isinstance(event, (FixedSize, BallsInBins)) or (isinstance(event, Event) and event.projections is None)
        for event in events
    ):
        return math.inf
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0
    mu = sensitivity * math.sqrt(math.fsum(event.count / event.noise_multiplier**2 for event in events))
    # Rounded up by so little that only the rounding of its ε is hidden.
    return float(2.0 ** (math.ceil(math.log2(mu) * 2**33) / 2**33))


@dataclass(frozen=True)
class _Plan:
    """What is known of a composition beforehand. Nothing here decides whether the bound holds.

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

    def _nodes(self) -> list[Nodes]:
        return [release_losses.own_nodes(event, self.adjacency, self.tail) for event, _ in self.counts]

    def _moments(self, exponents: tuple[float, ...]) -> _Moments:
        """Return the log moments of the composition at the exponents."""
        found = np.zeros(len(exponents))
        for event, count in self.counts:
            found += count * release_losses.log_moments(event, self.adjacency, self.tail, exponents)
        return _Moments(np.array(exponents), found)

    def _coarse(self) -> _Moments:
        narrowest = min(grid.width for grid in self._nodes())
        first, last = math.log2(_LOWEST_EXPONENT / self.width), math.log2(_HIGHEST_EXPONENT / narrowest)
        return self._moments(tuple(2.0**power for power in range(math.floor(first), math.ceil(last))))

    def likely(self, delta: float) -> float:
        """Return what the best of the moments proves at δ."""
        coarse = self._coarse()
        return float(np.min(rdp.converted(coarse.logs / coarse.exponents, delta, 1 + coarse.exponents)))

    def grid(self, epsilon: float) -> Grid:
        """Return what is to be summed for an ε near this one; its numbers are rounded, so that similar ones are equal."""
        coarse = self._coarse()
        best = float(coarse.exponents[np.argmin(coarse.costs(epsilon))])
        fine = self._moments(tuple(best * 2.0 ** (power / _RUNGS) for power in range(-2 * _RUNGS, 2 * _RUNGS + 1)))
        costs = fine.costs(epsilon)
        # Where moments explode, just beyond the best tilt, a lower one costs little and has a far shorter period.
        candidates = np.flatnonzero(costs <= costs.min() + _SPARE_EXPONENT)
        highest = sum(count * grid.high for grid, (_, count) in zip(self._nodes(), self.counts, strict=True))
        period, tilt = min(
            (fine.period(int(place), epsilon, coarse, highest), float(fine.exponents[place])) for place in candidates
        )
        variance = smoothing((grid, self.fewest * count) for grid, (_, count) in zip(self._nodes(), self.counts, strict=True))
        deviations = math.sqrt(2 * (_NEGLIGIBLE_EXPONENT + math.log1p(tilt * period)))
        frequencies = _upwards(max(period / (2 * math.pi) * deviations / math.sqrt(variance), 32.0))
        return Grid(self.tail, tilt, period, int(min(frequencies, _MOST_FREQUENCIES)))


@dataclass(frozen=True)
class _Moments:
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

    def period(self, place: int, epsilon: float, more: _Moments, highest: float) -> float:
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
        above = np.min(reach[away > 0] / away[away > 0], initial=highest) - _LOWEST_FOUND * epsilon
        below = np.min(reach[away < 0] / -away[away < 0]) + epsilon
        return _upwards(float(max(above, below + _NEGLIGIBLE_EXPONENT / tilt)))


def _planned(events: Sequence[Release], delta: float, adjacency: str, lost: float, ahead: bool) -> _Plan:
    """Return a plan for the events; or for as many as up to the next power of two, to be used again after more steps."""
    total = sum(event.count for event in events)
    horizon = 1 << (total - 1).bit_length()
    tail = float(10.0 ** max(math.floor(math.log10(lost) + math.log10(delta) - math.log10(horizon)), _SMALLEST_TAIL))
    alike = events if len(events) <= _PLANNED_EXACTLY else rounded_down(events, _PLANNED_PER_OCTAVE)
    growth = horizon / total if ahead else 1.0
    counts = tuple((replace(event, count=1), math.ceil(event.count * growth)) for event in alike)
    return _Plan(counts, 0.5 if ahead else 1.0, adjacency, tail)


@lru_cache(maxsize=64)
def _first_grid(plan: _Plan, delta: float) -> tuple[Grid, float]:
    """Return what is to be summed, and about which ε to expect."""
    likely = plan.likely(delta)
    return plan.grid(likely), likely


def _upwards(value: float) -> float:
    """Return the next multiple of an eighth of a power of two."""
    eighth = 2.0 ** (math.ceil(math.log2(value)) - 3)
    return math.ceil(value / eighth) * eighth


def _rounded_up(value: float) -> float:
    if not 0.0 < value < math.inf:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return math.ceil(value / unit) * unit
