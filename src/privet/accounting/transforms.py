"""Fourier transforms of privacy losses under a tilt, at the frequencies that a composition is summed at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from privet.accounting.losses import Array, Losses, Nodes

Spectrum = NDArray[np.complex128]

# Logarithms of magnitudes that are smaller than this count as it: less than rounding leaves of them.
LEAST = -64.0
# Most numbers in a table of phases, and the longest transform of losses on a circle.
_MOST_PHASES, _LARGEST_CIRCLE = 2**20, 2**24
# With more frequencies than this, runs of nodes are summed by convolution.
_MANY_FREQUENCIES = 2**13


@dataclass(frozen=True)
class Grid:
    """What is summed.

    Args:
        tail: probability of one release that may be counted as an infinite loss.
        tilt: θ > 0, the exponent of the tilted distribution.
        period: W, with which losses repeat; a multiple of an eighth of a power of two.
        frequencies: how many beside zero: 2πk/W for k = 0, …, K.
    """

    tail: float
    tilt: float
    period: float
    frequencies: int


def log_transforms(ways: Sequence[Losses], grid: Grid) -> tuple[Array, Array]:
    """Return log E[e^{s·loss}] of R releases in W directions.

    Returns:
        (2, W, R, K + 1) log magnitudes and turns, relative to s = θ; and (W, R) their values there.
    """
    with np.errstate(divide="ignore"):
        logs = [np.log(way.masses) + grid.tilt * way.values for way in ways]
    highest = [each.max(axis=1, keepdims=True) for each in logs]
    weights = [np.exp(each - most) for each, most in zip(logs, highest, strict=True)]
    sums = [each.sum(axis=1, keepdims=True) for each in weights]
    scaled = [each / whole for each, whole in zip(weights, sums, strict=True)]
    if len({way.nodes for way in ways}) == 1:  # so their phases are the same, too
        found = _at_frequencies(np.concatenate(scaled), ways[0].nodes, grid).reshape(len(ways), len(scaled[0]), -1)
    else:
        found = np.stack([_at_frequencies(each, way.nodes, grid) for each, way in zip(scaled, ways, strict=True)])
    signs = np.array([-1.0 if way.mirrored else 1.0 for way in ways])[:, None, None]
    magnitudes = np.log(np.maximum(np.abs(found), math.exp(LEAST)))
    moments = np.stack([most[:, 0] + np.log(whole[:, 0]) for most, whole in zip(highest, sums, strict=True)])
    return np.stack([magnitudes, signs / (2 * math.pi) * np.angle(found)]), moments


def _at_frequencies(weights: Array, where: Nodes, grid: Grid) -> Spectrum:
    """Return (R, K + 1) sums of weights · e^{i·frequency·loss} over the nodes."""
    number, circle = grid.frequencies + 1, round(grid.period / where.width)
    numbers = len(where.values) * number
    if numbers <= _MOST_PHASES:
        return _turned(weights, *_phases(where, circle, 0, number))
    found = np.empty((len(weights), number), dtype=np.complex128)
    if len(weights) * circle < numbers and circle <= _LARGEST_CIRCLE:
        places, around = np.rint(where.values / where.width).astype(np.int64) % circle, np.arange(number) % circle
        for row, each in enumerate(weights):
            # Frequencies on the far half of the circle are the negative ones of the near half.
            near = fft.rfft(np.bincount(places, each, circle))[np.minimum(around, circle - around)]
            found[row] = np.where(2 * around > circle, near, np.conj(near))
        return found
    if number > _MANY_FREQUENCIES:
        return _by_chirps(weights, where, circle, number)
    block = max(_MOST_PHASES // len(where.values), 1)
    for first in range(0, number, block):
        last = min(first + block, number)
        found[:, first:last] = _turned(weights, *_phases.__wrapped__(where, circle, first, last))
    return found


def _by_chirps(weights: Array, where: Nodes, circle: int, number: int) -> Spectrum:
    """Return the sums run by run of nodes that are equally far apart, each as one convolution.

    For the m-th node of a run and the j-th frequency, m·j = (m² + j² − (j − m)²)/2.

    Source:
        Bluestein 1970, "A Linear Filtering Approach to the Computation of Discrete Fourier Transform".
    """
    found, each = np.zeros((len(weights), number), dtype=np.complex128), np.arange(number)
    places = np.rint(where.values / where.width).astype(np.int64)
    ends = np.flatnonzero(np.diff(places, 2)) + 2
    for first, last in zip([0, *ends], [*ends, len(places)], strict=True):
        own = last - first
        spacing = int(places[first + 1] - places[first]) if own > 1 else 1
        # After this part of the circle, and so many frequencies, all nodes of the run are back where they began.
        part = math.gcd(spacing, circle)
        period = circle // part
        asked = min(number, period)
        squares = spacing // part * np.arange(1 - own, asked) ** 2 % (2 * period)
        chirp = np.exp(1j * math.pi / period * squares)
        length = fft.next_fast_len(len(chirp))
        against = fft.fft(np.conj(chirp), length)
        starts = np.exp(2j * math.pi / circle * (places[first] * each % circle))
        for row, masses in enumerate(weights[:, first:last]):
            sums = fft.ifft(fft.fft(masses * chirp[:own][::-1], length) * against)[own - 1 : own - 1 + asked]
            found[row] += starts * (chirp[own - 1 :] * sums)[each % period]
    return found


def _turned(weights: Array, cosines: Array, sines: Array) -> Spectrum:
    return np.asarray(weights @ cosines + 1j * (weights @ sines))


@lru_cache(maxsize=2)
def _phases(where: Nodes, circle: int, first: int, last: int) -> tuple[Array, Array]:
    """Return cosines and sines of node · frequency, (K, last − first), for a circle of so many widths."""
    places = np.rint(where.values / where.width).astype(np.int64)
    # Whole numbers of the circle's parts, so that no angle is rounded before it is small.
    parts = np.outer(places, np.arange(first, last)) % circle
    if circle > parts.size:
        angles = 2 * math.pi / circle * parts
        return np.cos(angles), np.sin(angles)
    angles = 2 * math.pi / circle * np.arange(circle)
    return np.cos(angles)[parts], np.sin(angles)[parts]
