"""Fourier transforms of privacy losses under a tilt, at the frequencies that a composition is summed at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import log1p, log_ndtr

from privet.accounting.pld.discrete_loss import Array, Losses, Nodes

Spectrum = NDArray[np.complex128]

# Logarithms of magnitudes that are smaller than this count as it: less than rounding leaves of them.
LEAST = -96.0
# Most numbers in a table of phases, and the longest transform of losses on a circle.
_MOST_PHASES, _LARGEST_CIRCLE = 2**20, 2**24
# With more frequencies than this, runs of nodes are summed by convolution.
_MANY_FREQUENCIES = 2**13
# Far losses begin within this share of where they do on average.
_BLUR = 1 / 12
# What others' transforms are at least where they are divided by: again, less than rounding leaves.
_LEAST_DIVISOR = 2.0**-50


def log_shares(losses: Array, start: float | None) -> tuple[Array, Array]:
    """Return the logarithms of the probabilities with which losses are not far, and are, if far ones begin at the start."""
    if start is None:
        return np.zeros(len(losses)), np.full(len(losses), -np.inf)
    scaled = (losses / start - 1) / _BLUR
    return log_ndtr(-scaled), log_ndtr(scaled)


@dataclass(frozen=True)
class Grid:
    """What is summed.

    Args:
        tail: probability of one release that may be counted as an infinite loss.
        tilt: θ > 0, the exponent of the tilted distribution.
        period: W, with which losses repeat; a multiple of an eighth of a power of two.
        frequencies: how many beside zero: 2πk/W for k = 0, …, K.
        start: where far losses begin, if these are summed apart from the others; a loss is far with a probability that grows
            from 0 to 1 around it, so that no transform has an edge to resolve. None if they are not apart.
        scale: a power of two, about how many far losses are expected under the tilt, if what they add is summed; None if not.
    """

    tail: float
    tilt: float
    period: float
    frequencies: int
    start: float | None = None
    scale: float | None = None


@dataclass(frozen=True)
class Transforms:
    """E[e^{s·loss}] of R releases in W directions between neighbours.

    Args:
        logs: (2, W, R, K + 1) log magnitudes and turns, relative to s = θ; if far losses are apart, of the others. If what far
            ones add is summed, it is (4, W, R, K + 1): real and imaginary parts of log(1 + far/others) follow.
        log_moments: (W, R) the logarithms at s = θ.
        far: (W, R) log(1 + far/others) at s = θ; or nothing.
    """

    logs: Array
    log_moments: Array
    far: Array


@lru_cache(maxsize=4)
def kernel(grid: Grid) -> tuple[Array, Spectrum, Array]:
    """Return frequencies, what the transform there is multiplied by for δ·e^{θε − log moment} at ε = 0, and its size."""
    angular: Array = 2 * math.pi / grid.period * np.arange(grid.frequencies + 1, dtype=np.float64)
    exponents = grid.tilt + 1j * angular
    # Half of them are those of negative frequencies.
    numbers = np.append(1.0, np.full(grid.frequencies, 2.0))
    found: Spectrum = np.asarray(numbers / (grid.period * exponents * (exponents + 1)), dtype=np.complex128)
    return angular, found, np.abs(found)


def log_transforms(ways: Sequence[Losses], grid: Grid) -> Transforms:
    """Return the transforms of R releases' losses in W directions."""
    shares = [log_shares(way.values, grid.start) for way in ways]
    weights, moments = _tilted(ways, grid.tilt, [other for other, _ in shares])
    if grid.scale is None:
        return Transforms(np.stack(_polar(_transformed(weights, ways, grid))), moments, np.zeros(moments.shape))
    far_weights, far_moments = _tilted(ways, grid.tilt, [far for _, far in shares])
    together = [np.concatenate(each) for each in zip(weights, far_weights, strict=True)]
    others, far = np.split(_transformed(together, ways, grid), 2, axis=1)
    # So that a quotient times what it is divided by is what it was before, also where that is nothing but rounding.
    others = np.where(np.abs(others) < _LEAST_DIVISOR, _LEAST_DIVISOR, others)
    times = np.exp(far_moments - moments)
    added = log1p(times[:, :, None] * far / others)
    return Transforms(np.stack([*_polar(others), np.maximum(added.real, LEAST), added.imag]), moments, np.log1p(times))


def _tilted(ways: Sequence[Losses], exponent: float, shares: Sequence[Array | float]) -> tuple[list[Array], Array]:
    """Return (R, K) masses · shares · e^{exponent · loss} of each way, scaled to a sum of 1; and the sums' logarithms, (W, R)."""
    with np.errstate(divide="ignore"):
        logs = [np.log(way.masses) + (exponent * way.values + share) for way, share in zip(ways, shares, strict=True)]
        highest = [np.maximum(each.max(axis=1), np.finfo(np.float64).min) for each in logs]
        weights = [np.exp(each - most[:, None]) for each, most in zip(logs, highest, strict=True)]
        sums = [each.sum(axis=1) for each in weights]
        scaled = [each / np.maximum(whole, 1.0)[:, None] for each, whole in zip(weights, sums, strict=True)]
        return scaled, np.stack([most + np.log(whole) for most, whole in zip(highest, sums, strict=True)])


def _transformed(weights: Sequence[Array], ways: Sequence[Losses], grid: Grid) -> Spectrum:
    """Return (W, R, K + 1) sums of weights · e^{i·frequency·loss}."""
    if len({way.nodes for way in ways}) == 1:  # so their phases are the same, too
        found = _at_frequencies(np.concatenate(weights), ways[0].nodes, grid).reshape(len(ways), len(weights[0]), -1)
    else:
        found = np.stack([_at_frequencies(each, way.nodes, grid) for each, way in zip(weights, ways, strict=True)])
    return np.where(np.array([way.mirrored for way in ways])[:, None, None], np.conj(found), found)


def _polar(found: Spectrum) -> tuple[Array, Array]:
    """Return log magnitudes and turns."""
    return np.log(np.maximum(np.abs(found), math.exp(LEAST))), np.angle(found) / (2 * math.pi)


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
