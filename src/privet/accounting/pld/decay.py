"""Upper bounds on transforms of tilted losses at all frequencies above those that a series sums.

The masses of a distribution on nodes contain uniform distributions: in a block of M equally spaced nodes, each has at least the
smallest of their masses. The rest is a positive measure, so its transform is at most its mass. With c for the mass of uniform
blocks and D for the largest magnitude of their transforms (a Dirichlet kernel), |E e^{iω·loss}| ≤ 1 − c(1 − D), at every
frequency above ω at which the block's own spacing does not repeat. To the power of many releases this is next to nothing long
before the frequencies end at which the distances between nodes show.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privet.accounting.pld.discrete_loss import Array, Nodes

# Frequencies are bounded in this many intervals, whose ends are these multiples of a series' lowest frequency.
INTERVALS = 40
NUMBERS: Array = 16 * (2.0**0.375) ** np.arange(INTERVALS + 1, dtype=np.float64)
# Sizes of blocks.
_SIZES = (8, 16, 32, 64, 128)
# Mass that rounding may have moved.
_ROUNDING = 1e-12


# Blocks of one size: where segments start, and which segments are blocks, as a (segments, distances) table of their sizes.
_Blocks = tuple[NDArray[np.int64], Array]


@lru_cache(maxsize=64)
def _distances(where: Nodes) -> tuple[Array, tuple[_Blocks, ...]]:
    """Return the distinct distances (Q,) between adjacent nodes, and the blocks of every size."""
    gaps = np.rint(np.diff(where.values) / where.width).astype(np.int64)
    # A run starts where the distance to the next node changes.
    starts = np.append(0, np.flatnonzero(np.diff(gaps)) + 1)
    lengths = np.diff(np.append(starts, len(gaps)))
    within = np.arange(len(gaps)) - np.repeat(starts, lengths)
    distances = np.unique(gaps[starts])
    found = []
    for size in _SIZES:
        first = np.flatnonzero(within % size == 0)
        whole = np.diff(np.append(first, len(gaps))) == size
        found.append((first, np.where(whole[:, None] & (gaps[first, None] == distances), float(size), 0.0)))
    return np.asarray(distances * where.width, dtype=np.float64), tuple(found)


def uniform_masses(weights: Array, where: Nodes) -> Array:
    """Return the mass of (R, K) weights on the nodes that uniform blocks of every size and distance contain, (R, L, Q)."""
    _, blocks = _distances(where)
    most = weights[:, :-1]
    return np.stack([np.minimum.reduceat(most, starts, axis=1) @ table for starts, table in blocks], axis=1)


def edges(period: float) -> Array:
    """Return the (INTERVALS + 1,) ends of the intervals of angular frequencies of a series with this period."""
    return 2 * math.pi / period * NUMBERS


def first_interval(frequencies: int) -> int:
    """Return the first interval that contains higher frequencies than these many; INTERVALS if there is none."""
    return min(max(int(np.searchsorted(NUMBERS, frequencies, side="right")) - 1, 0), INTERVALS)


@lru_cache(maxsize=64)
def _gains(where: Nodes, period: float) -> Array:
    """Return 1 − D for every interval, size and distance, (G, L, Q); 0 where a block's spacing repeats within the interval."""
    distances, _ = _distances(where)
    ends, sizes = edges(period), np.array(_SIZES, dtype=np.float64)[:, None]
    half = ends[:-1, None, None] * distances / 2
    lobe = math.pi / sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        main = np.sin(sizes * half) / (sizes * np.sin(half))
    # The kernel falls until its first zero. Beyond it |D| ≤ 1/(M·sin(ω·distance/2)), which falls until ω·distance = π.
    highest = np.where(half < lobe, np.maximum(main, 1 / (sizes * np.sin(lobe))), 1 / (sizes * np.sin(np.maximum(half, lobe))))
    return np.asarray(np.where(ends[1:, None, None] * distances <= math.pi, np.maximum(1 - highest, 0.0), 0.0))


def log_bounds(masses: Array, where: Nodes, period: float) -> Array:
    """Return upper bounds on log|E e^{iω·loss}| in every interval of ω, (R, INTERVALS), from the (R, L, Q) `uniform_masses`."""
    kept = (masses[:, None] * _gains(where, period)).max(axis=2).sum(axis=2)
    return np.asarray(np.log1p(-np.clip(kept - _ROUNDING, 0.0, 1 - _ROUNDING)))
