"""Composition of privacy losses by Fourier series, tilted to resolve the tail.

Transforms E[e^{s·loss}] multiply under composition, and δ at ε is a sum over the composed transform at s = θ + 2πik/W,
k = 0, ±1, …. The sum is exact for losses repeated with period W, and the repetition only adds to δ. Under the tilt θ > 0 the tail
that determines δ dominates the sum, so rounding errors of the rest cannot swamp it, however small it is.

The losses of a composition spread over many nodes, so a few frequencies carry all of the mass. To guarantee this without
inspecting the other frequencies, transforms are bounded there by what their masses have in common with uniform distributions
(`decay`), and one more release is composed: a Gaussian whose losses vary about as much as the discretisation has added. An extra
release gives an upper bound, and its transform decays beyond the frequencies at which the nodes' distances repeat.

Where far losses are rare, the near losses dominate a transform, and their rounding swamps the far ones, which determine δ, under
every tilt. Then the far losses are summed separately: with o and f for the transforms of a release's near and far losses,
Π(o + f) is Πo, summed under its own tilt, plus Πo · (e^{Σ log(1 + f/o)} − 1), which keeps its digits however small f is.

Source:
    Carr, Madan 1999, "Option Valuation Using the Fast Fourier Transform" (δ is the price of a call on e^loss); Zhu, Dong, Wang
    2022, "Optimal Accounting of Differential Privacy via Characteristic Function".
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expm1

from privet.accounting.pld.decay import edges, first_interval
from privet.accounting.pld.discrete_loss import Array, Losses, Nodes
from privet.accounting.pld.series import ComposedLoss, Series
from privet.accounting.pld.transforms import LEAST, Grid, Spectrum, kernel, log_transforms

Integers = NDArray[np.int64]
# (releases, adjacency, tail) → positions of releases, and their losses in each direction between neighbours
Builder = Callable[[Sequence[Any], str, float], Iterable[tuple[Sequence[int], tuple[Losses, ...]]]]

_UNIT = float(np.finfo(np.float64).eps)
# Relative error of a transform: that of a sum over a thousand nodes, with a wide margin.
_ROUNDING = 256 * _UNIT
# Standard deviation of the Gaussian losses added per release, in node widths; and the least for the whole composition, as a share
# of the largest range of a release.
_SMOOTHING, _LEAST_SMOOTHING = 0.75, 2.0**-15
# Logarithms are summed as integer multiples of this, so that the order of summation does not matter.
_QUANTUM = 2.0**-43
# Logarithms of far losses are in multiples of these times the grid's scale, high digits and low digits separately. If their sum
# at θ is at most _MOST_SCALES scales, each is at most _MOST_SCALES_EACH scales at any frequency.
_LARGE_QUANTUM, _SMALL_QUANTUM, _MOST_SCALES, _MOST_SCALES_EACH = 2.0**-3, 2.0**-48, 2.0**5, 2.0**57
# Bounds on transforms beyond the frequencies are summed as integer multiples of this, and are at least the second.
_DECAY_QUANTUM, _LEAST_DECAY, _LEAST_DECAY_OF_FAR = 2.0**-20, -(2.0**30), -600.0
# Factors by which the rounding reserve exceeds the rounding under the best tilt: per release, and once per composition.
_RESERVED, _RESERVED_ONCE = 128, 2**19
# Frequencies that contribute less than this share of δ are bounded instead of summed.
_NEGLIGIBLE = 1e-17
# Number of releases to transform at once, and number of entries in each cache.
_TOGETHER, _KEPT = 512, 4


@dataclass(frozen=True)
class _Part:
    """The part of a release in a composition, for W directions between neighbours."""

    nodes: Nodes
    count: int  # multiplicity
    log_moments: Array  # (W,) as in `Transforms`, like `far`
    far: Array
    infinite: Array  # (W,) probability of an infinite loss
    decay: Array  # (1 or 2, W, G) as in `Transforms`


@dataclass
class _Sum:
    """Sum of the logarithms of transforms; exact, so that it does not depend on the order or on earlier queries."""

    scale: float | None  # of the grid
    parts: dict[Any, _Part]
    # (2, W, K + 1) log magnitudes and turns as in `Transforms`, in quanta; turns may overflow. With a scale it is (6, W, K + 1),
    # followed by real and imaginary parts of the far losses' contribution, in large and then small quanta.
    fixed: Integers
    decay: Integers  # (1 or 2, W, INTERVALS) as in `Transforms`, in quanta

    def change(self, release: Any, logs: Array, part: _Part) -> None:
        """Set the multiplicity of a release to `part.count`, given the (L, W, K + 1) logarithms of its transforms."""
        before = self.parts.pop(release, None)
        if before is not None:
            self.fixed = self.fixed - self._to_quanta(logs, before.count)
            self.decay = self.decay - self._decay_to_quanta(part.decay, before.count)
        if part.count:
            self.fixed = self.fixed + self._to_quanta(logs, part.count)
            self.decay = self.decay + self._decay_to_quanta(part.decay, part.count)
            self.parts[release] = part

    def _decay_to_quanta(self, bounds: Array, count: int) -> Integers:
        """Return multiples of a release's bounds in quanta, rounded up."""
        many = np.maximum(count * bounds, _LEAST_DECAY)
        if self.scale is not None:
            many[1] = np.minimum(many[1] / self.scale, _MOST_SCALES_EACH * _DECAY_QUANTUM)
        return np.ceil(many / _DECAY_QUANTUM).astype(np.int64)

    def log_bounds(self, way: int) -> Array:
        """Return upper bounds (INTERVALS,) on log magnitudes in the intervals of frequencies."""
        near: Array = _DECAY_QUANTUM * self.decay[0, way]
        if self.scale is None:
            return near
        far = self.scale * _DECAY_QUANTUM * self.decay[1, way]
        return np.asarray(near + far + np.log(np.maximum(-np.expm1(-far), math.exp(_LEAST_DECAY_OF_FAR))))

    def _to_quanta(self, logs: Array, count: int) -> Integers:
        many = count * logs
        magnitudes = np.maximum(many[0], LEAST)
        if self.scale is None:
            return _quantize(magnitudes, many[1])
        # Subtract from the far losses what clipping added to the near ones, so that their sum is unchanged.
        real = np.maximum(many[2] - (magnitudes - many[0]), LEAST)
        far = np.clip(np.stack([real, many[3]]) / self.scale, -_MOST_SCALES_EACH, _MOST_SCALES_EACH)
        large = np.rint(far / _LARGE_QUANTUM)
        small = np.rint((far - large * _LARGE_QUANTUM) / _SMALL_QUANTUM)
        return np.concatenate([_quantize(magnitudes, many[1]), large.astype(np.int64), small.astype(np.int64)])

    def is_in_range(self, way: int) -> bool:
        """Return whether the far losses fit the range of the quanta; if not, there is no bound."""
        far = math.fsum(part.count * part.far[way] for part in self.parts.values())
        return self.scale is None or far <= _MOST_SCALES * self.scale

    def terms(self, way: int) -> tuple[Array, Array, Spectrum]:
        """Return (K + 1,) log magnitudes, turns, and factors to multiply the transforms by, of size about 1 or less."""
        magnitudes, turns = _QUANTUM * self.fixed[:2, way]
        if self.scale is None:
            return magnitudes, turns, np.ones(len(turns), dtype=np.complex128)
        real, imaginary = self.scale * (_LARGE_QUANTUM * self.fixed[2:4, way] + _SMALL_QUANTUM * self.fixed[4:6, way])
        large = np.where(real > 1.0, real, 0.0)
        added = np.where(real > 1.0, np.exp(1j * imaginary) - np.exp(-large), expm1(real - large + 1j * imaginary))
        return magnitudes + large, turns, added


def _quantize(magnitudes: Array, turns: Array) -> Integers:
    return np.rint(np.stack([magnitudes, turns - np.floor(turns)]) / _QUANTUM).astype(np.int64)


def smoothing(parts: Iterable[tuple[Nodes, float]]) -> float:
    """Return the variance of the Gaussian losses added to parts (nodes, multiplicity); it never shrinks when some are added."""
    each = tuple(parts)
    least = max(_LEAST_SMOOTHING * (nodes.high - nodes.low) for nodes, _ in each)
    return max(math.fsum(count * (_SMOOTHING * nodes.width) ** 2 for nodes, count in each), least**2)


def sums_beyond(log_bounds: Array, period: float, variance: float, largest: float) -> Array:
    """Return upper bounds on the sum of |factor · transform| over all frequencies from each interval on, (INTERVALS + 1,).

    `log_bounds` (INTERVALS,) bounds the composed transform as in `Transforms`, and `largest` bounds its magnitude anywhere.
    """
    ends = edges(period)
    with np.errstate(over="ignore"):
        bounds = np.append(np.minimum(np.exp(log_bounds), largest), largest)
    each = bounds * np.exp(-variance / 2 * ends**2)
    # A factor is at most 2/(period·ω²), and those of all frequencies from the last end on sum to at most this.
    numbers = np.diff(ends) * period / (2 * math.pi) + 1
    factors = np.append(2 * numbers / (period * ends[:-1] ** 2), 1 / (math.pi * ends[-1]) + 2 / (period * ends[-1] ** 2))
    return np.asarray(np.cumsum((factors * each)[::-1])[::-1])


def _make_series(total: _Sum, way: int, grid: Grid) -> Series:
    """Return the series for δ of the composition in one direction, with all its uncertainty as rounding."""
    parts = total.parts.values()
    number = sum(part.count for part in parts)
    variance = smoothing((part.nodes, part.count) for part in parts)
    angular, factors, factor_sizes = kernel(grid)
    magnitudes, turns, added = total.terms(way)
    # E[e^{s·loss}] of a Gaussian whose losses are N(v/2, v) is e^{s(s+1)v/2}.
    scales = factor_sizes * np.exp(magnitudes - variance / 2 * angular**2)
    sizes, largest = scales * np.abs(added), float(np.exp(magnitudes[0]) * abs(added[0]))
    counted = np.flatnonzero(sizes > _NEGLIGIBLE * sizes[0])
    angles = 2 * math.pi * turns[counted] + variance * (grid.tilt + 0.5) * angular[counted]
    shares = factors[counted] / factor_sizes[counted] * scales[counted] * np.exp(1j * angles) * added[counted]
    whole = float(sizes.sum())
    rounding = (
        float(sums_beyond(total.log_bounds(way), grid.period, variance, largest)[first_interval(grid.frequencies)])
        + whole
        - float(sizes[counted].sum())
        # A factor has an error of a few units, relative to itself or, if it is small, to the largest.
        + _ROUNDING * (2 * number * whole + len(parts) * largest * float(factor_sizes.sum()))
        + _UNIT * grid.period * float(np.dot(sizes, angular))
        + 8 * _QUANTUM * len(parts) * whole
    )
    if grid.scale is not None:
        # Where many far losses are expected, an error of their logarithm is one of a large factor.
        each = 2 * (_SMALL_QUANTUM * grid.scale + math.exp(LEAST)) * max(1.0, float(np.exp(magnitudes.max())))
        rounding += (_ROUNDING * largest + len(parts) * each) * float(factor_sizes.sum())
    log_moment = math.fsum(part.count * part.log_moments[way] for part in parts) + grid.tilt * (grid.tilt + 1) * variance / 2
    return Series(grid.tilt, log_moment, angular[counted], shares, rounding)


def _compose(sums: Sequence[_Sum], way: int, grids: Sequence[Grid]) -> ComposedLoss:
    parts = sums[0].parts.values()
    number = sum(part.count for part in parts)
    reserve = _RESERVED * (number * _ROUNDING + len(parts) * _QUANTUM) + _RESERVED_ONCE * _ROUNDING
    infinite = math.fsum(part.count * part.infinite[way] for part in parts)
    if not all(total.is_in_range(way) for total in sums):
        infinite = 1.0
    return ComposedLoss(tuple(_make_series(total, way, grid) for total, grid in zip(sums, grids, strict=True)), reserve, infinite)


class Composer:
    """Composes releases and caches the latest compositions, so that one more step costs one addition.

    Only speed depends on earlier queries. The caches take less than 200 MB.
    """

    def __init__(self, losses: Builder) -> None:
        self._losses = losses
        self._sums: OrderedDict[tuple[str, Grid], _Sum] = OrderedDict()
        self._latest: OrderedDict[tuple[Any, str, Grid], tuple[Array, _Part]] = OrderedDict()
        self._lock = threading.Lock()

    def compose(self, counts: Mapping[Any, int], adjacency: str, grids: Sequence[Grid]) -> tuple[ComposedLoss, ...]:
        """Return the composition of releases (with multiplicities ≥ 1) on these grids, in each direction between neighbours."""
        with self._lock:
            sums = [self._sum_logs(counts, adjacency, grid) for grid in grids]
            return tuple(_compose(sums, way, grids) for way in range(sums[0].fixed.shape[1]))

    def _sum_logs(self, counts: Mapping[Any, int], adjacency: str, grid: Grid) -> _Sum:
        """Return the summed logarithms of transforms, updating the cached sum if that takes fewer changes."""
        total = self._sums.pop((adjacency, grid), None) or _empty(grid)
        now = {release: part.count for release, part in total.parts.items()}
        changed = [release for release in {**now, **counts} if now.get(release) != counts.get(release)]
        if len(changed) >= len(counts):
            total, changed = _empty(grid), list(counts)
        for release, logs, part in self._transform(changed, adjacency, grid):
            total.change(release, logs, replace(part, count=counts.get(release, 0)))
        _keep(self._sums, (adjacency, grid), total)
        return total

    def _transform(self, releases: Sequence[Any], adjacency: str, grid: Grid) -> Iterator[tuple[Any, Array, _Part]]:
        """Yield each release with the logarithms of its transforms and its part."""
        new = []
        for release in releases:
            known = self._latest.pop((release, adjacency, grid), None)
            if known is None:
                new.append(release)
            else:
                _keep(self._latest, (release, adjacency, grid), known)
                yield release, *known
        for first in range(0, len(new), _TOGETHER):
            some = new[first : first + _TOGETHER]
            for places, ways in self._losses(some, adjacency, grid.tail):
                found = log_transforms(ways, grid)
                infinite = np.stack([way.infinite for way in ways])
                for row, place in enumerate(places):
                    one = np.ascontiguousarray(found.logs[:, :, row])
                    part = _Part(
                        ways[0].nodes, 0, found.log_moments[:, row], found.far[:, row], infinite[:, row], found.decay[:, :, row]
                    )
                    _keep(self._latest, (some[place], adjacency, grid), (one, part))
                    yield some[place], one, part


def _empty(grid: Grid) -> _Sum:
    return _Sum(grid.scale, {}, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


def _keep(cache: OrderedDict[Any, Any], key: Hashable, value: Any) -> None:
    cache[key] = value
    while len(cache) > _KEPT:
        cache.popitem(last=False)
