"""Privacy loss distributions on a few nodes, rounded so that they are never too private ("connect the dots")."""

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
# Unless asked otherwise, nodes up to this many widths from zero are one width apart; those twice as far, two; and so on.
_NEAR = 256
# Nodes are at most this far apart, or this share of the range.
_WIDEST, _WIDEST_SHARE = 0.25, 2.0**-13
# Ranges end at multiples of this many nodes, so that similar ones are equal.
_ROUND = 16


@dataclass(frozen=True)
class Nodes:
    """The losses that distributions are discretised on: dense around zero and sparser outwards.

    With a power of two for the width, nodes of twice the width, or of a wider spacing far out, are some of these. So what is
    discretised on the former dominates what is discretised on the latter: a coarser grid never has the smaller ε.

    Args:
        width: between neighbours around zero.
        low, high: the lowest node ≤ 0 and the highest ≥ 0.
        widest: neighbours are at most this far apart, or one width.
        near: how many widths from zero nodes are one width apart; twice as far they are two apart, and so on.
    """

    width: float
    low: float
    high: float
    widest: float
    near: int

    @property
    def values(self) -> Array:
        """(K,) the nodes, growing."""
        return _values(self)


def nodes(width: float, low: float, high: float, near: int = _NEAR) -> Nodes:
    """Return nodes whose range is at least this one and contains zero.

    Args:
        width: > 0, a power of two where comparable grids matter.
        low, high: the lowest and the highest loss.
        near: how many widths from zero they are one width apart.
    """
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


@dataclass(frozen=True)
class Losses:
    """Distributions of log P/Q under P, one for each of several releases, on the same nodes.

    Args:
        nodes: where their losses are.
        masses: (R, K) probabilities of the losses of R releases.
        infinite: (R,) probabilities of an infinite loss.
        mirrored: whether the losses are the negatives of the nodes.
    """

    nodes: Nodes
    masses: Array
    infinite: Array
    mirrored: bool = False

    @property
    def values(self) -> Array:
        """(K,) the losses."""
        return -self.nodes.values if self.mirrored else self.nodes.values


def connected(values: Array, p: Array, q: Array, hidden_p: Array, hidden_q: Array) -> Array:
    """Return P's masses on the ends of cells, given the masses of P and Q between them.

    The mass of each cell moves to its two ends such that both P's and Q's add up: every trade-off between errors of the moved
    pair is at least as good for an attacker, and on the grid itself no better.

    Args:
        values: (K + 1,) ends of the cells, growing.
        p, q: (…, K) masses of the cells, whose losses log P/Q lie between their ends.
        hidden_p, hidden_q: (…, K) how far rounding can have moved `p` and `q`; that much moves up.

    Returns:
        (…, K + 1) masses of P on the ends of the cells.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots".
    """
    lowest, widths = values[:-1], np.diff(values)
    # Where e^loss or Q's mass leaves the range of floating point, everything moves up.
    usable = (lowest < _LARGEST_EXPONENT) & (q > _SMALLEST_MASS)
    ratio = np.exp(np.minimum(lowest, _LARGEST_EXPONENT))
    higher = (p - ratio * q + hidden_p + ratio * hidden_q) / -np.expm1(-widths)
    higher = np.where(usable, np.clip(higher, 0.0, p), p)
    masses = np.zeros((*p.shape[:-1], len(values)))
    masses[..., :-1] = p - higher
    masses[..., 1:] += higher
    return masses


def moved(values: Array, losses: Array, masses: Array) -> Array:
    """Return a discrete distribution of losses on other values: every mass moves to the two neighbours that keep P and Q.

    Args:
        values: (K,) growing; the highest is not below any loss.
        losses: (N,) in any order.
        masses: (N,) probabilities under P.

    Returns:
        (K,) masses of P.
    """
    place = np.clip(np.searchsorted(values, losses, side="right") - 1, 0, len(values) - 2)
    # The share that moves up; e^{−loss} of it and of the rest add up to the e^{−loss} of the whole.
    share = np.expm1(values[place] - losses) / np.expm1(values[place] - values[place + 1])
    share = np.clip(share * (1 + 8 * _UNIT), 0.0, 1.0)
    lower, upper = np.bincount(place, masses * (1 - share), len(values)), np.bincount(place + 1, masses * share, len(values))
    return np.asarray(lower + upper, dtype=np.float64)


def regridded(losses: Array, masses: Array, infinite: float, width: float) -> Losses:
    """Return any discrete distribution of losses on nodes.

    Args:
        losses: (N,) finite losses, in any order.
        masses: (N,) probabilities under P.
        infinite: probability of an infinite loss.
        width: between the nodes around zero.
    """
    grid = nodes(width, float(losses.min()), float(losses.max()))
    return Losses(grid, moved(grid.values, losses, masses)[None], np.array([infinite]))
