"""Fourier transforms of tilted privacy losses at the frequencies of a composition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import log1p, log_ndtr

from privet.accounting.pld.decay import log_bounds, uniform_masses
from privet.accounting.pld.discrete_loss import Array, Losses, Nodes

Spectrum = NDArray[np.complex128]

# Lower limit of log magnitudes, below their rounding errors.
LEAST = -96.0
# Largest table of phases, and the longest FFT of losses on a circle.
_MOST_PHASES, _LARGEST_CIRCLE = 2**20, 2**24
# Up to this many rows are multiplied by two small tables of phases instead of one large one.
_FEW_ROWS = 8
# An FFT takes about as long per node of the circle as this many products of a node and a frequency.
_COST_OF_FFT = 12
# With more frequencies than this, runs of nodes are summed by convolution.
_MANY_FREQUENCIES = 2**11
# Relative width of the transition from near to far losses.
_BLUR = 1 / 12
# Lower limit of the near losses' transforms as divisors, again below their rounding errors.
_LEAST_DIVISOR = 2.0**-50


def log_shares(losses: Array, start: float | None) -> tuple[Array, Array]:
    """Return the log probabilities with which each loss counts as near, and as far, if far losses begin at `start`."""
    if start is None:
        return np.zeros(len(losses)), np.full(len(losses), -np.inf)
    scaled = (losses / start - 1) / _BLUR
    return log_ndtr(-scaled), log_ndtr(scaled)


@dataclass(frozen=True)
class Grid:
    """Parameters of a Fourier series; a loss is far with a probability that grows from 0 to 1 around the start of far losses."""

    tail: float  # probability per release that may count as an infinite loss
    tilt: float  # θ > 0, the exponent of the tilted distribution
    period: float  # W, with which losses repeat; a multiple of an eighth of a power of two
    frequencies: int  # K, number of frequencies besides zero: 2πk/W for k = 0, …, K
    start: float | None = None  # of the far losses, if they are summed separately; None for one sum of all losses
    scale: float | None = None  # about the expected number of far losses under the tilt, a power of two, in their sum


@dataclass(frozen=True)
class Transforms:
    """E[e^{s·loss}] of R releases in W directions between neighbours."""

    # (2, W, R, K + 1) log magnitudes and turns, relative to s = θ; of the near losses, if far ones are separate. In the sum of
    # what far losses add it is (4, W, R, K + 1), followed by real and imaginary parts of log(1 + far/near).
    logs: Array
    log_moments: Array  # (W, R) the logarithms at s = θ
    far: Array  # (W, R) log(1 + far/near) at s = θ, or zeros
    # (1, W, R, G) upper bounds on the log magnitudes in intervals of frequencies, as from `tilted`. In the sum of what far losses
    # add it is (2, W, R, G), followed by those on log(1 + far/near).
    decay: Array


@lru_cache(maxsize=4)
def kernel(grid: Grid) -> tuple[Array, Spectrum, Array]:
    """Return the frequencies, the factors that turn transforms into δ·e^{θε − log moment} at ε = 0, and their magnitudes."""
    angular: Array = 2 * math.pi / grid.period * np.arange(grid.frequencies + 1, dtype=np.float64)
    exponents = grid.tilt + 1j * angular
    # Frequencies other than zero count twice, for their negatives.
    numbers = np.append(1.0, np.full(grid.frequencies, 2.0))
    found: Spectrum = np.asarray(numbers / (grid.period * exponents * (exponents + 1)), dtype=np.complex128)
    return angular, found, np.abs(found)


def log_transforms(ways: Sequence[Losses], grid: Grid) -> Transforms:
    """Return the transforms of R releases' losses in W directions."""
    # Choosing the grid of a single release took the same sums.
    tilt = tilted if len(ways[0].masses) == 1 else tilted.__wrapped__
    weights, moments, beyond = tilt(tuple(ways), grid.tilt, grid.start, grid.period)
    if grid.scale is None:
        return Transforms(np.stack(_to_polar(_transform(weights, ways, grid))), moments, np.zeros(moments.shape), beyond[None])
    far_weights, far_moments, far_beyond = tilt(tuple(ways), grid.tilt, grid.start, grid.period, far=True)
    together = [np.concatenate(each) for each in zip(weights, far_weights, strict=True)]
    near, far = np.split(_transform(together, ways, grid), 2, axis=1)
    # So that quotient times divisor gives back the dividend, even where the divisor is mere rounding.
    near = np.where(np.abs(near) < _LEAST_DIVISOR, _LEAST_DIVISOR, near)
    times = np.exp(far_moments - moments)
    added = log1p(times[:, :, None] * far / near)
    far_beyond = np.logaddexp(0.0, (far_moments - moments)[:, :, None] + far_beyond - beyond)
    logs = np.stack([*_to_polar(near), np.maximum(added.real, LEAST), added.imag])
    return Transforms(logs, moments, np.log1p(times), np.stack([beyond, far_beyond]))


@lru_cache(maxsize=4)
def tilted(
    ways: tuple[Losses, ...], exponent: float, start: float | None, period: float, far: bool = False
) -> tuple[list[Array], Array, Array]:
    """Return `tilt_masses` of the near losses, or of the far ones, and (W, R, G) upper bounds on log|Σ weights · e^{iω·loss}|.

    There is a bound for every interval of frequencies ω.
    """
    weights, moments = tilt_masses(ways, exponent, [log_shares(way.values, start)[far] for way in ways])
    pairs = zip(weights, [way.nodes for way in ways], strict=True)
    return weights, moments, np.stack([log_bounds(uniform_masses(each, nodes), nodes, period) for each, nodes in pairs])


def tilt_masses(ways: Sequence[Losses], exponent: float, shares: Sequence[Array | float]) -> tuple[list[Array], Array]:
    """Return (R, K) masses · shares · e^{exponent · loss} per direction, scaled to sum to 1, and (W, R) logs of the sums."""
    with np.errstate(divide="ignore"):
        logs = [np.log(way.masses) + (exponent * way.values + share) for way, share in zip(ways, shares, strict=True)]
        highest = [np.maximum(each.max(axis=1), np.finfo(np.float64).min) for each in logs]
        weights = [np.exp(each - most[:, None]) for each, most in zip(logs, highest, strict=True)]
        sums = [each.sum(axis=1) for each in weights]
        scaled = [each / np.maximum(whole, 1.0)[:, None] for each, whole in zip(weights, sums, strict=True)]
        return scaled, np.stack([most + np.log(whole) for most, whole in zip(highest, sums, strict=True)])


def _transform(weights: Sequence[Array], ways: Sequence[Losses], grid: Grid) -> Spectrum:
    """Return (W, R, K + 1) sums of weights · e^{i·frequency·loss}."""
    if len({way.nodes for way in ways}) == 1:  # equal nodes have equal phases
        found = _evaluate(np.concatenate(weights), ways[0].nodes, grid).reshape(len(ways), len(weights[0]), -1)
    else:
        found = np.stack([_evaluate(each, way.nodes, grid) for each, way in zip(weights, ways, strict=True)])
    return np.where(np.array([way.mirrored for way in ways])[:, None, None], np.conj(found), found)


def _to_polar(found: Spectrum) -> tuple[Array, Array]:
    return np.log(np.maximum(np.abs(found), math.exp(LEAST))), np.angle(found) / (2 * math.pi)


def _evaluate(weights: Array, where: Nodes, grid: Grid) -> Spectrum:
    """Return (R, K + 1) sums of weights · e^{i·frequency·loss} over the nodes."""
    number, circle = grid.frequencies + 1, round(grid.period / where.width)
    numbers = len(where.values) * number
    if numbers <= _MOST_PHASES:
        return _multiply_phases(weights, *_phases(where, circle, 0, number), number)
    found = np.empty((len(weights), number), dtype=np.complex128)
    if _COST_OF_FFT * circle < numbers and circle <= _LARGEST_CIRCLE:
        places, around = np.rint(where.values / where.width).astype(np.int64) % circle, np.arange(number) % circle
        for row, each in enumerate(weights):
            # Frequencies on the far half of the circle are the negative ones of the near half.
            near = fft.rfft(np.bincount(places, each, circle))[np.minimum(around, circle - around)]
            found[row] = np.where(2 * around > circle, near, np.conj(near))
        return found
    if number > _MANY_FREQUENCIES:
        return _chirp_transform(weights, where, circle, number)
    block = max(_MOST_PHASES // len(where.values), 1)
    for first in range(0, number, block):
        last = min(first + block, number)
        found[:, first:last] = _multiply_phases(weights, *_phases.__wrapped__(where, circle, first, last), last - first)
    return found


def _chirp_transform(weights: Array, where: Nodes, circle: int, number: int) -> Spectrum:
    """Return the same sums by one convolution per run of equally spaced nodes (Bluestein 1970).

    For the m-th node of a run and the j-th frequency, m·j = (m² + j² − (j − m)²)/2.
    """
    found, each = np.zeros((len(weights), number), dtype=np.complex128), np.arange(number)
    places = np.rint(where.values / where.width).astype(np.int64)
    ends = np.flatnonzero(np.diff(places, 2)) + 2
    for first, last in zip([0, *ends], [*ends, len(places)], strict=True):
        own = last - first
        spacing = int(places[first + 1] - places[first]) if own > 1 else 1
        # The phases of a run repeat after `period` frequencies.
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


def _multiply_phases(weights: Array, coarse: Spectrum, fine: Spectrum, number: int) -> Spectrum:
    """Return (R, number) sums of weights · phases, given phases at multiples of a step and at lower frequencies than it."""
    if len(weights) <= _FEW_ROWS:
        scaled = weights[:, :, None] * coarse
        return np.asarray((np.swapaxes(scaled, 1, 2) @ fine).reshape(len(weights), -1)[:, :number])
    phases = np.multiply(coarse[:, :, None], fine[:, None, :], order="C").reshape(weights.shape[1], -1)
    # Real weights multiply real and imaginary parts side by side.
    return (weights @ phases.view(np.float64)).view(np.complex128)[:, :number]


@lru_cache(maxsize=2)
def _phases(where: Nodes, circle: int, first: int, last: int) -> tuple[Spectrum, Spectrum]:
    """Return e^{i · node · frequency} at frequencies first, first + step, …, and at 0, …, step − 1; their products give all."""
    places = np.rint(where.values / where.width).astype(np.int64)
    step = 1 << (math.isqrt(last - first - 1).bit_length())
    coarse = _powers(places * step, circle, -(-(last - first) // step))
    start = _powers(places * first, circle, 2)[:, 1:] if first else 1.0
    return coarse * start, _powers(places, circle, step)


def _powers(places: NDArray[np.int64], circle: int, number: int) -> Spectrum:
    """Return e^{2πi·place·k/circle} for k = 0, …, number − 1, as products of those for powers of two."""
    doublings = max(number - 1, 0).bit_length()
    # Integer arithmetic modulo the circle, so that angles are small before they are rounded.
    angles = 2 * math.pi / circle * ((places << np.arange(doublings)[:, None]) % circle)
    ones = np.empty(angles.shape, dtype=np.complex128)
    np.cos(angles, out=ones.real)
    np.sin(angles, out=ones.imag)
    found = np.ones((number, len(places)), dtype=np.complex128)
    for doubling, one in enumerate(ones):
        known = 1 << doubling
        more = min(known, number - known)
        np.multiply(found[:more], one, out=found[known : known + more])
    return found.T
