"""Discrete privacy loss distributions, rounded pessimistically by connecting the dots."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_UNIT = float(np.finfo(np.float64).eps)
_LARGEST_EXPONENT = 700.0
_SMALLEST_MASS = 1e-290
# By default, nodes up to this many widths from zero are one width apart; up to twice as far, two widths; and so on.
_NEAR = 128
# Largest distance between nodes, absolute or as a share of the range.
_WIDEST, _WIDEST_SHARE = 0.25, 2.0**-13
# Ranges end at multiples of this many nodes, so that similar ranges become equal.
_ROUND = 16


# Largest distance between nodes around zero, as a share of the spread of one release's losses, and the largest of all; but at
# least this share of their range.
_SHARE, _LARGEST_WIDTH, _CLOSEST_SHARE = 1 / 36, 0.25, 2.0**-20


def width_for(spread: float, reach: float = 0.0) -> float:
    """Return the distance of nodes around zero for losses of this range, a power of two that does not shrink as they spread."""
    return float(2.0 ** math.floor(math.log2(max(min(_SHARE * spread, _LARGEST_WIDTH), reach * _CLOSEST_SHARE))))


@dataclass(frozen=True)
class Nodes:
    """Nodes of discretised losses: dense around zero and sparser outwards.

    If the width is a power of two, nodes of twice the width, or of a wider spacing far out, are a subset of these. So a
    discretisation on the coarser nodes dominates one on the finer nodes: a coarser grid never gives a smaller ε.
    """

    width: float  # distance between adjacent nodes around zero
    low: float  # the lowest node ≤ 0
    high: float  # the highest node ≥ 0
    widest: float  # largest distance between adjacent nodes, if not less than a width
    near: int  # widths from zero up to which nodes are one width apart; up to twice as far they are two apart, …

    @property
    def values(self) -> Array:
        """(K,) the nodes, increasing."""
        return _values(self)


def nodes(width: float, low: float, high: float, near: int = _NEAR) -> Nodes:
    """Return nodes that cover losses from `low` to `high` and zero; only widths that are powers of two make grids comparable."""
    low, high = min(low, 0.0), max(high, width)
    widest = max(_WIDEST, 2.0 ** math.ceil(math.log2((high - low) * _WIDEST_SHARE)))

    def outwards(end: float) -> float:
        exponent = max(0, math.ceil(math.log2(max(end / (near * width), 1.0))))
        spacing = _ROUND * min(width * 2**exponent, max(widest, width))
        return float(math.ceil(end / spacing) * spacing)

    return Nodes(width, -outwards(-low), outwards(high), widest, near)


@lru_cache(maxsize=16)
def _values(grid: Nodes) -> Array:
    def upwards(end: float) -> Array:
        parts: list[Array] = [np.zeros(1)]
        start, spacing = 0.0, grid.width
        while start < end:
            stop = end if 2 * spacing > grid.widest else min(grid.near * spacing, end)
            parts.append(start + spacing * np.arange(1, round((stop - start) / spacing) + 1, dtype=np.float64))
            start, spacing = stop, 2 * spacing
        return np.concatenate(parts)

    found = np.concatenate([-upwards(-grid.low)[:0:-1], upwards(grid.high)])
    found.setflags(write=False)
    return found


@dataclass(frozen=True, eq=False)  # the same object is the same distributions, so that caches can have it as a key
class Losses:
    """Distributions of log P/Q under P of R releases, on the same nodes."""

    nodes: Nodes
    masses: Array  # (R, K) probabilities of the losses
    infinite: Array  # (R,) probabilities of an infinite loss
    mirrored: bool = False  # whether the losses are the negatives of the nodes

    @property
    def values(self) -> Array:
        """(K,) the losses."""
        return -self.nodes.values if self.mirrored else self.nodes.values


def connect_dots(values: Array, p: Array, q: Array, hidden_p: Array, hidden_q: Array) -> Array:
    """Discretise by connecting the dots: return P's masses on the ends of cells, given the masses of P and Q in the cells.

    The mass of each cell moves to its two ends such that the masses of both P and Q are preserved. The trade-off curve of the
    resulting pair is nowhere worse for an attacker, and equal on the grid itself (Doroshenko et al. 2022, "Connect the Dots").

    Args:
        values: (K + 1,) ends of the cells, increasing.
        p, q: (…, K) masses of the cells, whose losses log P/Q lie between their ends.
        hidden_p, hidden_q: (…, K) bounds on the rounding errors of `p` and `q`; that much mass moves up.
    """
    lowest, widths = values[:-1], np.diff(values)
    # Where e^loss or Q's mass leaves the floating-point range, all mass moves up.
    usable = (lowest < _LARGEST_EXPONENT) & (q > _SMALLEST_MASS)
    ratio = np.exp(np.minimum(lowest, _LARGEST_EXPONENT))
    higher = (p - ratio * q + hidden_p + ratio * hidden_q) / -np.expm1(-widths)
    higher = np.where(usable, np.clip(higher, 0.0, p), p)
    masses = np.zeros((*p.shape[:-1], len(values)))
    masses[..., :-1] = p - higher
    masses[..., 1:] += higher
    return masses


def redistribute(values: Array, losses: Array, masses: Array) -> Array:
    """Return the masses (K,) of P on increasing values, given (N,) losses and masses, which move to the two adjacent values.

    P and Q are preserved; no loss lies above the highest value.
    """
    place = np.clip(np.searchsorted(values, losses, side="right") - 1, 0, len(values) - 2)
    # The share that moves up: chosen such that Q's mass, P's times e^{−loss}, is preserved.
    share = np.expm1(values[place] - losses) / np.expm1(values[place] - values[place + 1])
    share = np.clip(share * (1 + 8 * _UNIT), 0.0, 1.0)
    lower, upper = np.bincount(place, masses * (1 - share), len(values)), np.bincount(place + 1, masses * share, len(values))
    return np.asarray(lower + upper, dtype=np.float64)


def regrid(losses: Array, masses: Array, infinite: float, width: float) -> Losses:
    """Redistribute any discrete loss distribution, (N,) losses and masses in any order, onto nodes of this width."""
    grid = nodes(width, float(losses.min()), float(losses.max()))
    return Losses(grid, redistribute(grid.values, losses, masses)[None], np.array([infinite]))
