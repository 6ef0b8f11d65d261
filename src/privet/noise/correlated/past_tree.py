"""The state of tree noise: the noise of the nodes that make up the current prefix, one per level at most."""

from __future__ import annotations

__all__ = ["PastTree", "differences", "levels", "node_variance", "prefix_variance", "step_variance"]

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from privet.noise.correlated.strategies import Array
from privet.noise.past import Draw, PastNoise, Piece, cells_log2


def levels(steps: int) -> int:
    """Return the largest number of nodes that contain one step: ⌊log₂ n⌋ + 1, for n steps.

    >>> [levels(steps) for steps in (1, 2, 3, 4, 1000)]
    [1, 2, 2, 3, 10]
    """
    return steps.bit_length()


def node_variance(level: int) -> float:
    """Return the variance of the best estimate of a node's sum from its own noisy sum and those below: 2ˡ/(2ˡ⁺¹ − 1).

    It is also the weight of the node's own noise in it.
    """
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


class PastTree(PastNoise):
    """Noise of a binary tree over the steps of an epoch: a prefix has the noise of one node for every bit of its length.

    Step n completes a node of every level up to the number of zeros at the end of n. The estimate of a node's sum combines its
    own noisy sum with those of its children, which halves its variance at high levels.

    Memory: ⌊log₂ n⌋ + 1 numbers of 32 bits per coordinate, for epochs of n steps.

    Args:
        epoch: number of steps of an epoch; every epoch has its own tree.
        steps: number of steps of the plan.

    Guarantee:
        Noisy sums of all nodes are Gaussian mechanisms, each example is in one node of every level, and prefixes are computed
        from them: with weights that are whole numbers, so that rounding depends on noisy sums only.

    Source:
        Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or Shuffling"; Honaker 2015, "Efficient Use
        of Differentially Private Binary Trees" (the estimate from below).
    """

    def __init__(self, epoch: int, steps: int) -> None:
        self._epoch, self._levels = epoch, levels(min(epoch, steps))
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
