"""Random allocation: every example takes part in one step per epoch, drawn uniformly and independently of all others.

One example's step is i ∈ {1, …, t} with probability 1/t each. Let g_i be its contribution at step i divided by the bound,
‖g_i‖ ≤ 1, which may depend on all previous steps. The density ratio of an epoch with and without the example is then the average
R = (R₁ + … + R_t)/t of R_i = exp((y_i − ½‖g_i‖²)/σ²), where without the example y_i is N(0, σ²‖g_i‖²) given the past.

With independent noise w_i of variance σ²(1 − ‖g_i‖²), the y_i + w_i are independent N(0, σ²), regardless of the past. Let R*
be the average of R*_i = exp((y_i + w_i − ½)/σ²). R is its expectation given the epoch, so E[φ(R)] ≤ E[φ(R*)] for every convex φ,
by Jensen's inequality. Both hockey-stick divergences are of this form: φ(R) = (R − e^ε)₊ and φ(R) = (1 − e^ε·R)₊. So the two
directions of R* dominate the epoch, as does anything larger than R* in the convex order; more noise at some steps, or an
unfinished epoch, gives a smaller ratio in that order.

Connecting the dots makes a ratio larger in the convex order, and averages of larger independent ratios are larger. So averages
are built up by doubling, and redistributed onto nodes after every addition.

Source:
    Chua, Ghazi, Harrison, Kamath, Kumar, Leeman, Manurangsi, Sinha, Zhang 2025, "Balls-and-Bins Sampling for DP-SGD" (the pair
    that dominates); Feldman, Shenfeld 2026, "Efficient Privacy Loss Accounting for Subsampling and Random Allocation",
    arXiv:2602.17284 (another bound on its losses).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privet.accounting.pld import sampled_gaussian
from privet.accounting.pld.discrete_loss import Array, Losses, nodes, redistribute

# Largest loss whose exponential is finite, with a margin.
_LARGEST = 600.0
# Averages use denser nodes than the final losses, because they are redistributed repeatedly.
_NEAR = 512


@dataclass(frozen=True)
class _Average:
    """Distribution of the average density ratio over some steps without the example, made larger in the convex order."""

    steps: int
    values: Array  # (K,) logarithms of the ratio, increasing
    masses: Array  # (K,) probabilities with the example: those without it times the ratio
    infinite: float  # probability with the example that is missing from `masses`
    zero: float  # probability without the example of ratios that were raised to the lowest node

    @property
    def without(self) -> Array:
        """(K,) probabilities without the example."""
        return np.asarray(self.masses * np.exp(-self.values))


def spread(noise_multiplier: float, steps: int) -> float:
    """Return the approximate standard deviation of the privacy loss of `steps` steps: an average of log-normal variables."""
    return math.sqrt(math.log1p(math.expm1(min(noise_multiplier**-2, _LARGEST)) / steps))


@lru_cache(maxsize=16)
def losses(noise_multiplier: float, steps: int, width: float, tail: float) -> tuple[Losses, Losses]:
    """Return the losses of one epoch of t steps, for removing and for adding an example.

    σ is the smallest of the epoch, and `tail` the probability per step that may count as an infinite loss, a few times per
    doubling.
    """
    single = _single(noise_multiplier, _stage_width(noise_multiplier, steps, 1, width), tail)
    whole = single
    for bit in bin(steps)[3:]:
        whole = _combine(whole, whole, _stage_width(noise_multiplier, steps, 2 * whole.steps, width), tail)
        if bit == "1":
            whole = _combine(whole, single, _stage_width(noise_multiplier, steps, whole.steps + 1, width), tail)
    grid = nodes(width, float(whole.values[0]), float(whole.values[-1]))
    removed = redistribute(grid.values, whole.values, whole.masses)
    added = removed * np.exp(-grid.values)
    return Losses(grid, removed[None], np.array([whole.infinite])), Losses(
        grid, added[None], np.array([whole.zero]), mirrored=True
    )


def _stage_width(noise_multiplier: float, steps: int, some: int, width: float) -> float:
    """Return the node width for averages over some of the steps; it may be larger, because their variation averages out."""
    return float(width * 2.0 ** max(0, round(math.log2(spread(noise_multiplier, some) / spread(noise_multiplier, steps)))))


def _single(noise_multiplier: float, width: float, tail: float) -> _Average:
    low, high = sampled_gaussian.span(1.0, noise_multiplier, "add-remove", tail)
    grid = nodes(width, low, min(high, _LARGEST), _NEAR)
    removed, added = sampled_gaussian.poisson(1.0, noise_multiplier, "add-remove", grid)
    return _Average(1, grid.values, removed.masses[0], float(removed.infinite[0]), float(added.infinite[0]))


def _combine(one: _Average, other: _Average, width: float, tail: float) -> _Average:
    one, other = _trim(one, tail), _trim(other, tail)
    steps = one.steps + other.steps
    shares = one.steps / steps, other.steps / steps
    ratios = np.add.outer(shares[0] * np.exp(one.values), shares[1] * np.exp(other.values)).ravel()
    logs = np.log(ratios)
    grid = nodes(width, float(logs.min()), float(logs.max()), _NEAR)
    masses = redistribute(grid.values, logs, np.outer(one.without, other.without).ravel() * ratios)
    infinite = shares[0] * one.infinite + shares[1] * other.infinite
    return _Average(steps, grid.values, masses, infinite, one.zero + other.zero)


def _trim(average: _Average, tail: float) -> _Average:
    """Return the average without its rarest values: low ones are raised, high ones lowered, and both counted."""
    values, without = average.values, average.without
    first = int(np.searchsorted(np.cumsum(without), tail, side="right"))
    last = len(values) - 1 - int(np.searchsorted(np.cumsum(average.masses[::-1]), tail, side="right"))
    masses = average.masses[first : last + 1].copy()
    too_low, too_high = float(without[:first].sum()), float(without[last + 1 :].sum())
    masses[0] += too_low * math.exp(values[first])
    masses[-1] += too_high * math.exp(values[last])
    lost = max(0.0, float(average.masses[last + 1 :].sum()) - too_high * math.exp(values[last]))
    return _Average(average.steps, values[first : last + 1], masses, average.infinite + lost, average.zero + too_low)
