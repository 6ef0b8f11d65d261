"""Correlated noise of binary trees, the classic of private online learning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from privet._utils.registry import add
from privet.accounting import Event
from privet.errors import InvalidArgumentError
from privet.noise.base import Participation
from privet.noise.correlated.correlated import Correlated
from privet.noise.correlated.strategies import Array
from privet.noise.past import Draw, PastNoise, Piece, cells_log2
from privet.schedules import Factors


def node_variance(level: int) -> float:
    """Return 2ˡ/(2ˡ⁺¹ − 1): the variance of a node's best estimate from noisy sums, and the weight of its own noise in it."""
    return 2.0**level / (2.0 ** (level + 1) - 1)


def prefix_variance(steps: int) -> float:
    """Return the variance of a prefix of n steps: that of one node for every bit of n."""
    return sum(node_variance(level) for level in range(steps.bit_length()) if steps >> level & 1)


def step_variance(step: int) -> float:
    """Return the variance of the difference of two prefixes: of n steps, and of n − 1."""
    top = (step & -step).bit_length() - 1
    # The new node is wₗz + (1 − wₗ)(left + right); right is made in the same way, and every left one is taken off once.
    share, found = 1.0, 0.0
    for level in range(top, -1, -1):
        own = node_variance(level) if level else 1.0
        found += (share * own) ** 2
        share *= 1 - own
        if level:
            found += (share - 1) ** 2 * node_variance(level - 1)
    return found


def differences(steps: int) -> Array:
    """Return the noise of every step of a tree in terms of that of its nodes, in the order of their completion, (T, nodes)."""
    tops = [(step & -step).bit_length() - 1 for step in range(1, steps + 1)]
    own = iter(np.eye(sum(top + 1 for top in tops)))
    found: list[Array] = []
    kept: dict[int, Array] = {}
    for top in tops:
        node = next(own)
        for level in range(1, top + 1):
            weight = node_variance(level)
            node = weight * next(own) + (1 - weight) * (kept[level - 1] + node)
        found.append(node - np.sum([kept[level] for level in range(top)], axis=0))
        kept[top] = node
    return np.stack(found)


@add
@dataclass(frozen=True)
class Tree(Correlated):
    """Tree aggregation with a new tree for every epoch: DP-FTRL without momentum, as SGD on releases with correlated noise.

    For schemes in which an example takes part once per epoch: `BallsInBins`, `FixedOrder` and `Shuffle`. There is no
    amplification by sampling; ε is that of one Gaussian release per epoch.

    Args:
        multiplier: as for `Gaussian`, of one epoch: standard deviation of a node's noise over √(⌊log₂ n⌋ + 1) times the bound,
            for epochs of n steps.
        source, non_private: as for `Gaussian`.
        epoch: number of steps of an epoch; the plan's scheme sets it.

    Guarantee:
        An example takes part in one step of an epoch, which is in at most one node of each level of its tree. Releases are
        computed from the noisy sums of all nodes. Every epoch starts a tree with noise of its own, and each counts.

    Source:
        Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or Shuffling" (tree restarts); Honaker 2015
        (estimates with less variance).

    >>> Tree(multiplier=2.0).multiplier
    2.0
    """

    by_epoch = True

    multiplier: float | None = None
    epoch: int | None = None

    def fitted(self, planned: Participation, sampling: str) -> Self:
        """Return the noise with the length of an epoch; refuse sampling in which an example may take part twice in one."""
        if planned.epoch is None or planned.rate < 1:
            allowed = "privet.sampling.BallsInBins, FixedOrder or Shuffle with noise.Tree"
            raise InvalidArgumentError("sampling", sampling, allowed, "An example must take part once per tree.")
        return self if self.epoch == planned.epoch else replace(self, epoch=planned.epoch)

    def gain(self, planned: Participation) -> float:
        """Return the root of the largest number of nodes that contain one step: ⌊log₂ n⌋ + 1, for n steps."""
        return math.sqrt(min(self._length, planned.steps).bit_length())

    def event(self, planned: Participation, taken: Participation) -> Event:
        """Return the event: one Gaussian release for every epoch that has begun."""
        assert self.multiplier is not None
        return Event(1.0, self.multiplier, taken.times)

    def spread(self, steps: int) -> Factors:
        """Return the deviations of differences of prefixes, (T,)."""
        one = np.sqrt([step_variance(step) for step in range(1, min(self._length, steps) + 1)])
        return np.resize(one, steps)

    def error(self, steps: int) -> float:
        """Return the error of the sum of all steps: that of all trees."""
        whole, rest = divmod(steps, self._length)
        return math.sqrt(whole * prefix_variance(self._length) + prefix_variance(rest))

    def whitening(self, steps: int) -> Array:
        """Return the inverse of the Cholesky factor of the noise's covariance, (T, T)."""
        found, length = np.zeros((steps, steps)), min(self._length, steps)
        rows = differences(length)
        whole = np.linalg.inv(np.linalg.cholesky(rows @ rows.T))
        for start in range(0, steps, length):
            size = min(length, steps - start)
            found[start : start + size, start : start + size] = whole[:size, :size]
        return found

    def begin(self, planned: Participation) -> PastTree:
        """Return the state of a run's noise."""
        return PastTree(self._length, planned.steps)

    def describe(self) -> str:
        """Return how noise is correlated, in words."""
        return "over the steps of an epoch (a binary tree)"

    @property
    def _length(self) -> int:
        return self.epoch or 1


class PastTree(PastNoise):
    """Noise of a binary tree over the steps of an epoch: a prefix has the noise of one node for every bit of its length.

    Step n completes a node of every level up to the number of zeros at the end of n. The estimate of a node's sum combines its
    own noisy sum with those of its children, which halves its variance at high levels (Honaker 2015).

    Memory: ⌊log₂ n⌋ + 1 numbers of 32 bits per coordinate, for epochs of n steps.

    Guarantee:
        Noisy sums of all nodes are Gaussian mechanisms, each example is in one node of every level, and prefixes are computed
        from them: with weights that are whole numbers, so that rounding depends on noisy sums only.
    """

    def __init__(self, epoch: int, steps: int) -> None:
        self._epoch, self._levels = epoch, min(epoch, steps).bit_length()
        # A node's noise is at most that of its own and of both children, with their weights.
        super().__init__(cells_log2(1.0 + self._levels))
        self._nodes: list[Tensor] = []
        self._taken = 0

    def _restarts(self, step: int) -> bool:
        return (step - 1) % self._epoch == 0

    def _start(self, totals: Sequence[Tensor]) -> None:
        self._taken = 0
        self._nodes = [torch.zeros(self._levels, len(total), dtype=torch.int32, device=total.device) for total in totals]

    def _step(self, draw: Draw, cells: Sequence[float]) -> Iterator[Piece]:
        taken = self._taken + 1
        top = (taken & -taken).bit_length() - 1
        below = [torch.zeros_like(nodes[0]) for nodes in self._nodes] if top else []
        for level in range(top + 1):
            for which, part, normals in draw():
                nodes = self._nodes[which]
                node = normals.to(nodes.device, copy=True).mul_(cells[which]).round_().to(torch.int64)
                if level:
                    node = _combine(level, node, nodes[level - 1, part].to(torch.int64) + below[which][part])
                if level < top:
                    below[which][part] = node.to(torch.int32)
                    continue
                noise = node - nodes[:top, part].to(torch.int64).sum(0)
                nodes[top, part] = node.to(torch.int32)
                yield which, part, noise.to(torch.float64)
        self._taken = taken


def _combine(level: int, own: Tensor, children: Tensor) -> Tensor:
    """Return w·own + (1 − w)·children with w = 2ˡ/(2ˡ⁺¹ − 1), rounded down."""
    whole = (1 << level) * own + ((1 << level) - 1) * children
    return torch.div(whole, (1 << (level + 1)) - 1, rounding_mode="floor")
