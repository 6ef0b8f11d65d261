"""Correlated noise of binary trees, the classic of private online learning."""

from __future__ import annotations

__all__ = ["Tree"]

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from privet._utils.registry import add
from privet.accounting import Event
from privet.errors import InvalidArgumentError
from privet.noise.base import Participation
from privet.noise.correlated.correlated import Correlated
from privet.noise.correlated.past_tree import PastTree, differences, levels, prefix_variance, step_variance
from privet.noise.correlated.strategies import Array
from privet.schedules import Factors


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

    def check_participation(self, planned: Participation, sampling: str) -> None:
        """Refuse sampling in which an example may take part several times before the tree ends."""
        if planned.epoch is None or planned.rate < 1:
            raise InvalidArgumentError(
                "sampling", sampling, "privet.sampling.BallsInBins, FixedOrder or Shuffle with noise.Tree",
                "An example must take part once per tree.",
            )  # fmt: skip

    def fit(self, planned: Participation | None, sampling: str) -> Self:
        """Return the noise with the length of an epoch."""
        super().fit(planned, sampling)
        assert planned is not None
        return self if self.epoch == planned.epoch else replace(self, epoch=planned.epoch)

    def gain(self, planned: Participation) -> float:
        """Return the root of the number of levels of a tree."""
        return math.sqrt(levels(min(self._length, planned.steps)))

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
