"""Privacy losses of one sampled Gaussian release in closed form, in both directions between neighbours.

A pair of one-dimensional densities dominates each mechanism (sensitivity 1, noise σ, sampling rate q):

    remove     P = (1−q)·N(0, σ²) + q·N(1, σ²)     Q = N(0, σ²)
    add        P = N(0, σ²)                        Q = (1−q)·N(0, σ²) + q·N(1, σ²)
    replace    P = (1−q)·N(0, σ²) + q·N(1, σ²)     Q = (1−q)·N(0, σ²) + q·N(−1, σ²)

In each pair the loss is monotone in the point x, so the point of a given loss has a closed form, and the mass between two losses
is a difference of normal distribution functions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from privet.accounting.classic.single_release import replacement_points
from privet.accounting.pld.discrete_loss import Losses, Nodes, connect_dots

Array = NDArray[np.float64]

_UNIT = float(np.finfo(np.float64).eps)
# Below this |log r|, r·log r − r + 1 is computed as a series in log r.
_SMALL = 1e-3
_MOST_POINTS = 100_000


def bounds(rate: float, deviation: float, adjacency: str, tail: float) -> tuple[float, float]:
    """Return the points beyond which P has at most mass `tail`: above for "remove" (or "replace"), below for "add"."""

    def out(probability: float) -> float:
        return -deviation * float(ndtri(min(probability, 0.5)))

    high = max(out(tail / 2), 1 + out(tail / 2 / rate))
    return (-high if adjacency == "replace-one" else -out(tail)), high


def _log_ratio(x: Array, rate: float, deviation: float) -> Array:
    """Return log of (1−q)·N(0, σ²) + q·N(1, σ²) over N(0, σ²) at the points."""
    whole = (x - 0.5) / deviation**2
    return whole if rate == 1.0 else np.logaddexp(math.log1p(-rate), math.log(rate) + whole)


def _loss(x: Array, rate: float, deviation: float, adjacency: str) -> Array:
    """Return log P/Q at the points, for "remove" or "replace"."""
    above = _log_ratio(x, rate, deviation)
    return above - _log_ratio(-x, rate, deviation) if adjacency == "replace-one" else above


def span(rate: float, deviation: float, adjacency: str, tail: float) -> tuple[float, float]:
    """Return the range of losses that contains all but `tail` of the mass, for the direction "remove" (or "replace")."""
    low, high = _loss(np.array(bounds(rate, deviation, adjacency, tail)), rate, deviation, adjacency)
    return float(low), float(high)


@lru_cache(maxsize=4096)
def spread(rate: float, deviation: float, adjacency: str, tail: float) -> float:
    """Return about the standard deviation of one release's losses, without the rarest `tail`: √(2·KL divergence of P from Q).

    A divergence instead of a variance, because it does not shrink as rate, 1/σ or the included range grow.
    """
    low, high = bounds(rate, deviation, adjacency, tail)
    # Losses turn from flat to steep within σ², and the density varies within σ; resolve both.
    x: Array = np.arange(low, high, min(deviation / 8, max(deviation**2 / 2, (high - low) / _MOST_POINTS)))
    loss = _loss(x, rate, deviation, adjacency)
    log_q = -(x**2) / (2 * deviation**2)
    if adjacency == "replace-one":
        log_q = log_q + _log_ratio(-x, rate, deviation)
    # Q·(r·log r − r + 1) for r = P/Q is non-negative; use the series where its terms cancel.
    small = np.abs(loss) < _SMALL
    exact = np.exp(log_q + loss) * (loss - 1) + np.exp(log_q)
    divergence = np.where(small, np.exp(log_q) * loss**2 * (0.5 + loss / 3 + loss**2 / 8), np.maximum(exact, 0.0))
    return math.sqrt(2 * float(divergence.sum()) * float(x[1] - x[0]) / (deviation * math.sqrt(2 * math.pi)))


def _removal_points(losses: Array, rates: Array, deviations: Array) -> Array:
    """Return the points at which log P/Q of "remove" equals the losses: ½ + σ²·log((e^loss − 1 + q)/q); −∞ below all losses."""
    # e^loss − 1 + q in three forms, each used where it does not cancel.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        rare = np.log(np.maximum(np.expm1(np.minimum(losses, 1.0)) + rates, 0.0))
        usual = np.log(np.maximum(np.exp(np.minimum(losses, 1.0)) - (1 - rates), 0.0))
        large = losses + np.log1p(-(1 - rates) * np.exp(-np.maximum(losses, 0.5)))
    logs = np.where(losses < 1.0, np.where(rates < 0.5, rare, usual), large)
    return np.asarray(0.5 + deviations**2 * np.where(rates == 1.0, losses, logs - np.log(rates)))


class _Masses(NamedTuple):
    """Probabilities of R distributions between consecutive points."""

    between: Array  # (R, K) in the cells
    hidden: Array  # (R, K) bounds on their rounding errors
    below: Array  # (R,) outside all points
    above: Array

    def reversed(self) -> _Masses:
        return _Masses(self.between[:, ::-1], self.hidden[:, ::-1], self.above, self.below)


def _normal(points: Array, centre: float, deviations: Array) -> _Masses:
    scaled = (points - centre) / deviations
    tails = ndtr(-np.abs(scaled))
    right = scaled > 0
    # Differences of the smaller tails keep relative precision on both sides.
    between = np.abs(np.diff(np.where(right, -tails, tails)))
    crossing = np.diff(right)
    between = np.where(crossing, 1.0 - tails[:, :-1] - tails[:, 1:], between)
    below = np.where(right[:, 0], 1.0 - tails[:, 0], tails[:, 0])
    above = np.where(right[:, -1], tails[:, -1], 1.0 - tails[:, -1])
    return _Masses(between, 4 * _UNIT * (tails[:, :-1] + tails[:, 1:]), below, above)


def _mix(rates: Array, without: _Masses, sampled: _Masses) -> _Masses:
    """Return (1−q)·without + q·sampled."""
    each = rates[:, 0]
    return _Masses(
        (1 - rates) * without.between + rates * sampled.between,
        (1 - rates) * without.hidden + rates * sampled.hidden,
        (1 - each) * without.below + each * sampled.below,
        (1 - each) * without.above + each * sampled.above,
    )


def _connect(values: Array, p: _Masses, q: _Masses) -> tuple[Array, Array]:
    """Return P's masses on the values, and the mass above them; cells are in order of increasing loss."""
    masses = connect_dots(values, p.between, q.between, p.hidden, q.hidden)
    masses[:, 0] += p.below
    return masses, p.above


def poisson(rates: ArrayLike, deviations: ArrayLike, adjacency: str, grid: Nodes) -> tuple[Losses, ...]:
    """Return the losses of R Gaussian releases on Poisson samples, for each direction between neighbours.

    "add-remove" and "zero-out" have the directions remove and add; "replace-one" is symmetric and has one. Losses above the nodes
    count as infinite.
    """
    q, sigma = (np.reshape(np.asarray(given, dtype=np.float64), (-1, 1)) for given in (rates, deviations))
    values = grid.values
    if adjacency == "replace-one":
        points = replacement_points(values, q, sigma)
        without = _normal(points, 0.0, sigma)
        p, other = (_mix(q, without, _normal(points, centre, sigma)) for centre in (1.0, -1.0))
        return (Losses(grid, *_connect(values, p, other)),)
    points = _removal_points(values, q, sigma)
    without = _normal(points, 0.0, sigma)
    sampled = _mix(q, without, _normal(points, 1.0, sigma))
    added, infinite = _connect(-values[::-1], without.reversed(), sampled.reversed())
    return Losses(grid, *_connect(values, sampled, without)), Losses(grid, added[:, ::-1], infinite, mirrored=True)


def without_replacement(rates: ArrayLike, deviations: ArrayLike, grid: Nodes) -> tuple[Losses]:
    """Return the losses of R Gaussian releases on fixed-size samples without replacement, for replace-one neighbours.

    Replacing moves the sum by up to twice the bound, and either direction may be the worse one at any step. So the profile of
    (1−q)·N(0, σ²) + q·N(2, σ²) against N(0, σ²) is used for ε ≥ 0, and its mirror image for ε < 0 (Zhu, Dong, Wang 2022). The
    range of the nodes is symmetric.
    """
    removal = poisson(rates, np.asarray(deviations) / 2, "add-remove", grid)[0]
    masses, middle = removal.masses, len(grid.values) // 2
    positive = masses[:, middle + 1 :]
    masses[:, :middle] = (positive * np.exp(-grid.values[middle + 1 :]))[:, ::-1]
    masses[:, middle] = np.maximum(0.0, 1.0 - positive.sum(axis=1) - masses[:, :middle].sum(axis=1) - removal.infinite)
    return (removal,)
