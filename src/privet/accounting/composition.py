"""Composition of privacy losses by Fourier series, tilted so that the tail is what they resolve.

Transforms E[e^{s·loss}] multiply under composition, and δ at ε is a sum over the composition's at s = θ + 2πik/W, k = 0, ±1, …,
which is exact for the losses repeated with period W; the repetition only adds. Under the tilt θ > 0 the tail that decides δ is
the largest part of what is summed, so it does not drown in the rounding of the rest, however small it is.

A composition's losses spread over many nodes of its releases', so few frequencies carry everything. To know so without looking
at the others, one release more is composed: a Gaussian one, whose losses vary about as much as putting all others on nodes has
added. To release more is an upper bound, and how fast its transform falls off is known.

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
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.accounting.losses import Array, Losses, Nodes
from privet.accounting.transforms import LEAST, Grid, Spectrum, log_transforms

Integers = NDArray[np.int64]
# (releases, adjacency, tail) → which of them, and their losses in each direction between neighbours
Builder = Callable[[Sequence[Any], str, float], Iterable[tuple[Sequence[int], tuple[Losses, ...]]]]

_UNIT = float(np.finfo(np.float64).eps)
# Relative error of a transform: that of sums over a thousand nodes, with a wide margin.
_ROUNDING = 256 * _UNIT
# Standard deviation of the Gaussian losses that are added for every release, in widths of its nodes; and the least for all of
# them, as a share of the range of one.
_SMOOTHING, _LEAST_SMOOTHING = 0.75, 2.0**-17
# Logarithms are summed as whole multiples of this, which no order of summation rounds.
_QUANTUM = 2.0**-43
# How many times what rounding comes to under the best of tilts is counted under every tilt.
_RESERVED = 128
# Frequencies that share less than this of δ are not summed but bounded.
_NEGLIGIBLE = 1e-17
# Releases that are transformed at once, and what is remembered of everything.
_TOGETHER, _KEPT = 512, 4
_PRECISION = 1e-13


@dataclass(frozen=True)
class Composed:
    """The privacy losses of a composition in one direction between neighbours, as an upper bound on δ at every ε.

    Args:
        tilt: θ.
        log_moment: log E[e^{θ·loss}; loss < ∞].
        angular: (K,) the frequencies that count.
        shares: (K,) what each contributes to δ·e^{θε − log_moment} at ε = 0.
        rounding: how much more that can be, whatever ε.
        reserve: share of δ that is counted as rounding at least. It depends on the numbers of releases alone and exceeds the
            rounding of most sums, so that two of them differ by what is composed and not by how it is summed.
        infinite: probability of an infinite loss.
    """

    tilt: float
    log_moment: float
    angular: Array
    shares: Spectrum
    rounding: float
    reserve: float
    infinite: float

    def _finite(self, epsilon: float) -> tuple[float, float]:
        """Return log δ at ε, infinite losses left out, and how fast it falls."""
        terms = self.shares * np.exp(-1j * epsilon * self.angular)
        summed = max(float(terms.real.sum()), 0.0)
        total = summed + max(self.rounding, self.reserve * summed)
        slope = self.tilt - float(np.dot(self.angular, terms.imag)) / total
        return self.log_moment - self.tilt * epsilon + math.log(total), slope

    def delta(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0."""
        return min(1.0, math.exp(min(self._finite(epsilon)[0], 0.0)) + self.infinite)

    def doubt(self, epsilon: float) -> float:
        """Return which share of δ at ε is there only because of rounding."""
        return self.rounding / (max(float((self.shares * np.exp(-1j * epsilon * self.angular)).real.sum()), 0.0) + self.rounding)

    def epsilon(self, delta: float, guess: float) -> float:
        """Return the smallest ε ≥ 0 for δ, up to a hair above; infinity if there is none.

        Args:
            delta: δ in (0, 1).
            guess: where to start looking.
        """
        if self.infinite >= delta:
            return math.inf
        target = math.log(delta) + math.log1p(-self.infinite / delta)
        if self._finite(0.0)[0] <= target:
            return 0.0
        low, high, epsilon = 0.0, math.inf, guess
        while True:  # Newton's method, kept in brackets; log δ is nearly a straight line
            at, slope = self._finite(epsilon)
            low, high = (epsilon, high) if at > target else (low, epsilon)
            step = (at - target) / max(slope, self.tilt / 2)
            if abs(step) <= _PRECISION * epsilon or high - low <= _PRECISION * high:
                return (epsilon if math.isinf(high) else min(high, epsilon + abs(step))) * (1 + 2 * _PRECISION)
            epsilon = epsilon + step if low < epsilon + step < high else (low + high) / 2


@dataclass(frozen=True)
class _Part:
    """How often a release is part of a composition, and what is known of it in each of W directions between neighbours.

    Args:
        count: how often.
        log_moments: (W,) log E[e^{θ·loss}; loss < ∞].
        infinite: (W,) probability of an infinite loss.
        nodes: where its losses are.
    """

    count: int
    log_moments: Array
    infinite: Array
    nodes: Nodes


@dataclass
class _Sum:
    """Logarithms of transforms, added up; exactly, so that nothing depends on the order or on what was asked before.

    Args:
        parts: release → its part.
        fixed: (2, W, K + 1) log magnitudes, relative to the moments, and phases, in turns (which may overflow), in quanta.
    """

    parts: dict[Any, _Part]
    fixed: Integers

    def change(self, release: Any, logs: Array, part: _Part) -> None:
        """Count a release as often as `part` says, given the (2, W, K + 1) logarithms of its transforms."""
        before = self.parts.pop(release, None)
        if before is not None:
            self.fixed -= _in_quanta(logs, before.count)
        if part.count:
            self.fixed += _in_quanta(logs, part.count)
            self.parts[release] = part


def _in_quanta(logs: Array, count: int) -> Integers:
    many = count * logs
    np.maximum(many[0], LEAST, out=many[0])
    many[1] -= np.floor(many[1])
    return np.rint(many / _QUANTUM).astype(np.int64)


def smoothing(parts: Iterable[tuple[Nodes, float]]) -> float:
    """Return the variance of the Gaussian losses that are added to a composition; it cannot shrink as releases are added.

    Args:
        parts: nodes of releases, and how often.
    """
    each = tuple(parts)
    least = max(_LEAST_SMOOTHING * (nodes.high - nodes.low) for nodes, _ in each)
    return max(math.fsum(count * (_SMOOTHING * nodes.width) ** 2 for nodes, count in each), least**2)


@lru_cache(maxsize=_KEPT)
def _kernel(grid: Grid) -> tuple[Array, Spectrum, Array]:
    """Return frequencies, what the transform there is multiplied by for δ·e^{θε − log moment} at ε = 0, and its size."""
    angular: Array = 2 * math.pi / grid.period * np.arange(grid.frequencies + 1, dtype=np.float64)
    exponents = grid.tilt + 1j * angular
    # Half of them are those of negative frequencies.
    numbers = np.append(1.0, np.full(grid.frequencies, 2.0))
    kernel: Spectrum = np.asarray(numbers / (grid.period * exponents * (exponents + 1)), dtype=np.complex128)
    return angular, kernel, np.abs(kernel)


def _composed(total: _Sum, way: int, grid: Grid) -> Composed:
    """Return the composition in one direction, everything that is uncertain about it counted as loss."""
    parts = total.parts.values()
    number = sum(part.count for part in parts)
    variance = smoothing((part.nodes, part.count) for part in parts)
    angular, kernel, kernel_sizes = _kernel(grid)
    # E[e^{s·loss}] of a Gaussian whose losses are N(v/2, v) is e^{s(s+1)v/2}.
    sizes = kernel_sizes * np.exp(_QUANTUM * total.fixed[0, way] - variance / 2 * angular**2)
    counted = np.flatnonzero(sizes > _NEGLIGIBLE * sizes[0])
    angles = 2 * math.pi * _QUANTUM * total.fixed[1, way][counted] + variance * (grid.tilt + 0.5) * angular[counted]
    shares = kernel[counted] / kernel_sizes[counted] * sizes[counted] * np.exp(1j * angles)
    whole = float(sizes.sum())
    beyond = grid.period / (2 * math.pi**2 * grid.frequencies) * math.exp(-variance * float(angular[-1]) ** 2 / 2)
    rounding = (
        beyond
        + whole
        - float(sizes[counted].sum())
        # A factor is off by a few units, relative to it or, if it is small, to the largest.
        + _ROUNDING * (2 * number * whole + len(parts) * float(kernel_sizes.sum()))
        + _UNIT * grid.period * float(np.dot(sizes, angular))
        + 8 * _QUANTUM * len(parts) * whole
    )
    return Composed(
        grid.tilt,
        math.fsum(part.count * part.log_moments[way] for part in parts) + grid.tilt * (grid.tilt + 1) * variance / 2,
        angular[counted],
        shares,
        rounding,
        _RESERVED * (number * _ROUNDING + len(parts) * _QUANTUM),
        math.fsum(part.count * part.infinite[way] for part in parts),
    )


class Composer:
    """Composes releases, remembering the latest compositions so that one step more costs one addition.

    Only speed depends on what was asked before. What is remembered takes less than 200 MB.

    Args:
        losses: (releases, adjacency, tail) → which of them, and their losses in each direction between neighbours.
    """

    def __init__(self, losses: Builder) -> None:
        self._losses = losses
        self._sums: OrderedDict[tuple[str, Grid], _Sum] = OrderedDict()
        self._latest: OrderedDict[tuple[Any, str, Grid], tuple[Array, _Part]] = OrderedDict()
        self._lock = threading.Lock()

    def compose(self, counts: Mapping[Any, int], adjacency: str, grid: Grid) -> tuple[Composed, ...]:
        """Return the composition of every release its number of times, in each direction between neighbours.

        Args:
            counts: release → how often, ≥ 1.
            adjacency: whose data differ between neighbours.
            grid: what is summed; it suits the composition.
        """
        with self._lock:
            total = self._sums.pop((adjacency, grid), None) or _Sum({}, np.zeros(1, dtype=np.int64))
            now = {release: part.count for release, part in total.parts.items()}
            changed = [release for release in {**now, **counts} if now.get(release) != counts.get(release)]
            if len(changed) >= len(counts):
                total, changed = _Sum({}, np.zeros(1, dtype=np.int64)), list(counts)
            for release, logs, part in self._transformed(changed, adjacency, grid):
                if total.fixed.ndim == 1:
                    total.fixed = np.zeros(logs.shape, dtype=np.int64)
                total.change(release, logs, replace(part, count=counts.get(release, 0)))
            _keep(self._sums, (adjacency, grid), total)
            return tuple(_composed(total, way, grid) for way in range(total.fixed.shape[1]))

    def _transformed(self, releases: Sequence[Any], adjacency: str, grid: Grid) -> Iterator[tuple[Any, Array, _Part]]:
        """Yield the logarithms of the releases' transforms, and what else is known of them."""
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
                logs, moments = log_transforms(ways, grid)
                infinite = np.stack([way.infinite for way in ways])
                for row, place in enumerate(places):
                    one = np.ascontiguousarray(logs[:, :, row])
                    part = _Part(0, moments[:, row], infinite[:, row], ways[0].nodes)
                    _keep(self._latest, (some[place], adjacency, grid), (one, part))
                    yield some[place], one, part


def _keep(cache: OrderedDict[Any, Any], key: Hashable, value: Any) -> None:
    cache[key] = value
    while len(cache) > _KEPT:
        cache.popitem(last=False)
