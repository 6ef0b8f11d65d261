"""Clipping by norms that random projections estimate (Johnson–Lindenstrauss): the noise is right only on average.

With r standard normal directions v, the estimate of ‖g‖ is ‖g‖·√(χ²_r/r), so what is clipped to the bound C by it can have norm
S·C with S = √(r/χ²_r). Given v a step is a sampled Gaussian release of sensitivity S·C. Releasing v, which does not depend on the
data, can only help an attacker; and then the losses are those for each S, averaged over its law. That bounds the case in which v
is kept, too, because an average of hockey-stick divergences is at least the divergence of averages.

The directions are shared by a step's examples, so averaging inside the densities (a mixture of Gaussians) would not be a bound.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtr, chdtri, gammaincinv

from privet.accounting.pld import sampled_gaussian
from privet.accounting.pld.discrete_loss import Array, Losses, Nodes, moved

# Bins of χ² for one standard deviation of its logarithm; they are the same for every question.
_BINS = 32
# The smallest sensitivities, which all count as the largest of them.
_LOWEST_SHARE = 0.02


def poisson(rate: float, deviation: float, projections: int, adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    """Return the losses of one release on a Poisson sample whose norms were estimated, for removing and for adding.

    Args:
        rate: q in (0, 1].
        deviation: σ > 0.
        projections: r ≥ 1.
        adjacency: "add-remove" or "zero-out".
        grid: where losses are; those above it count as infinite.
        tail: probability with which whoever was sampled counts as seen.

    Guarantee:
        χ² is cut into bins, and each counts with its lowest value, which is the largest sensitivity. Below the first, the
        sensitivity counts as infinite: whoever was sampled is seen.

    Source:
        Bu, Gopi, Kulkarni, Lee, Shen, Tantipongpipat 2021, "Fast and Memory Efficient Differentially Private-SGD via JL
        Projections" (the mechanism).
    """
    weights, edges = _law(rate, projections, tail)
    removed, added = sampled_gaussian.poisson(
        np.full(len(edges), rate), deviation * np.sqrt(edges / projections), adjacency, grid
    )
    seen = (_always_seen_removal(rate, grid), _always_seen_addition(rate, grid))
    return tuple(_averaged(weights, always, losses) for always, losses in zip(seen, (removed, added), strict=True))


def largest_sensitivity(rate: float, projections: int, tail: float) -> float:
    """Return the largest sensitivity that is not counted as infinite; arguments as for `poisson`."""
    return math.sqrt(projections / float(_law(rate, projections, tail)[1][0]))


def _law(rate: float, projections: int, tail: float) -> tuple[Array, Array]:
    """Return the lowest values of bins of χ², and the probabilities of the bins, that of what lies below all of them first."""
    spacing = math.sqrt(2 / projections) / _BINS
    first = 2 * float(gammaincinv(projections / 2, min(tail / rate, 0.01)))
    last = float(chdtri(projections, _LOWEST_SHARE))
    edges = np.exp(spacing * np.arange(math.floor(math.log(first) / spacing), math.ceil(math.log(last) / spacing)))
    return np.diff(np.concatenate([[0.0], chdtr(projections, edges), [1.0]])), edges


def _averaged(weights: Array, always: tuple[Array, float], losses: Losses) -> Losses:
    """Return the losses of a mechanism that also releases which of several it drew, at random and independently of the data."""
    masses, infinite = always
    return Losses(
        losses.nodes,
        (weights[0] * masses + weights[1:] @ losses.masses)[None],
        np.array([weights[0] * infinite + weights[1:] @ losses.infinite]),
        losses.mirrored,
    )


def _always_seen_removal(rate: float, grid: Nodes) -> tuple[Array, float]:
    """Return the losses of who is seen whenever sampled: infinite with probability q, else log(1 − q)."""
    if rate == 1.0:
        return np.zeros(len(grid.values)), 1.0
    return moved(grid.values, np.array([math.log1p(-rate)]), np.array([1 - rate])), rate


def _always_seen_addition(rate: float, grid: Nodes) -> tuple[Array, float]:
    if rate == 1.0:
        return np.zeros(len(grid.values)), 1.0
    return moved(-grid.values[::-1], np.array([-math.log1p(-rate)]), np.ones(1))[::-1], 0.0
