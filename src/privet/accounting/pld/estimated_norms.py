"""Privacy losses under clipping by norms estimated from random projections (Johnson–Lindenstrauss).

With r standard normal directions v, the estimate of ‖g‖ is ‖g‖·√(χ²_r/r), so a gradient clipped by it to the bound C can have
norm S·C with S = √(r/χ²_r). Given v, a step is a sampled Gaussian release of sensitivity S·C. Releasing v, which does not depend
on the data, can only help an attacker, and then the loss distribution is the average over S. That also bounds the case of secret
v, because an average of hockey-stick divergences is at least the divergence of the averages.

The examples of a step share the directions, so averaging the densities (a mixture of Gaussians) would not be a bound.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtr, chdtri, gammaincinv

from privet.accounting.pld import sampled_gaussian
from privet.accounting.pld.discrete_loss import Array, Losses, Nodes, redistribute

# Number of bins of χ² per standard deviation of its logarithm.
_BINS = 32
# Probability of the smallest sensitivities, which all count as the largest of them.
_LOWEST_SHARE = 0.02


def poisson(rate: float, deviation: float, projections: int, adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    """Return the losses of one release on a Poisson sample with estimated norms, for removing and for adding.

    Guarantee:
        χ² is split into bins, and each bin counts as its lowest value, which gives the largest sensitivity. Below the first bin
        the sensitivity counts as infinite, which has probability `tail`: a sampled example is revealed.

    Source:
        Bu, Gopi, Kulkarni, Lee, Shen, Tantipongpipat 2021, "Fast and Memory Efficient Differentially Private-SGD via JL
        Projections" (the mechanism).
    """
    weights, edges = _chi_square_bins(rate, projections, tail)
    removed, added = sampled_gaussian.poisson(
        np.full(len(edges), rate), deviation * np.sqrt(edges / projections), adjacency, grid
    )
    seen = _always_seen(rate, grid)
    return tuple(_average(weights, always, losses) for always, losses in zip(seen, (removed, added), strict=True))


def largest_sensitivity(rate: float, projections: int, tail: float) -> float:
    """Return the largest sensitivity that does not count as infinite."""
    return math.sqrt(projections / float(_chi_square_bins(rate, projections, tail)[1][0]))


def _chi_square_bins(rate: float, projections: int, tail: float) -> tuple[Array, Array]:
    """Return the probabilities of the bins of χ², preceded by that of values below all bins, and the bins' lower edges."""
    spacing = math.sqrt(2 / projections) / _BINS
    first = 2 * float(gammaincinv(projections / 2, min(tail / rate, 0.01)))
    last = float(chdtri(projections, _LOWEST_SHARE))
    edges = np.exp(spacing * np.arange(math.floor(math.log(first) / spacing), math.ceil(math.log(last) / spacing)))
    return np.diff(np.concatenate([[0.0], chdtr(projections, edges), [1.0]])), edges


def _average(weights: Array, always: tuple[Array, float], losses: Losses) -> Losses:
    """Return the losses of a mechanism that draws one of several at random, independently of the data, and releases which."""
    masses = weights[0] * always[0] + weights[1:] @ losses.masses
    infinite = weights[0] * always[1] + weights[1:] @ losses.infinite
    return Losses(losses.nodes, masses[None], np.array([infinite]), losses.mirrored)


def _always_seen(rate: float, grid: Nodes) -> tuple[tuple[Array, float], tuple[Array, float]]:
    """Return the losses, for removing and adding, of an example that is revealed if sampled: log(1 − q), or infinite."""
    if rate == 1.0:
        return (np.zeros(len(grid.values)), 1.0), (np.zeros(len(grid.values)), 1.0)
    removed = redistribute(grid.values, np.array([math.log1p(-rate)]), np.array([1 - rate]))
    added = redistribute(-grid.values[::-1], np.array([-math.log1p(-rate)]), np.ones(1))[::-1]
    return (removed, rate), (added, 0.0)
