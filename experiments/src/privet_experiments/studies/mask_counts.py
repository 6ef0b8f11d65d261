"""How often random or ranked masks of a training dropped each coordinate; all of it is public."""

from __future__ import annotations

__all__ = ["MaskCounts"]

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.gradients import trainable
from privet.plan import Plan


class MaskCounts:
    """Counts, for every coordinate, the masks that dropped it.

    Masks that drop r_n of all coordinates at random, each independently, give counts with mean Σr_n and variance Σr_n(1 − r_n).
    A ranking that prefers some coordinates has more variance; one that is noise has the same.

    Args:
        plan: plan of the training.
        model: the model.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Figure 12.

    >>> from privet import clipping, sampling, sparsification
    >>> plan = Plan(
    ...     examples=100, sampling=sampling.Poisson(50), steps=8, delta=1e-3, clipping=clipping.Flat(1.0),
    ...     sparsification=sparsification.Random(0.5),
    ... )
    >>> counts, model = MaskCounts(plan, nn.Linear(1, 2)), nn.Linear(1, 2)
    >>> for step in range(1, 9):
    ...     counts.add(step, {"weight": torch.tensor([[True], [False]]), "bias": torch.tensor([False, True])})
    >>> counts.counts.tolist(), round(counts.expected_deviation, 3)
    ([0, 4, 4, 0], 1.0)
    """

    def __init__(self, plan: Plan, model: nn.Module) -> None:
        self._sizes = {name: parameter.numel() for name, parameter in trainable(model).items()}
        self._times, self._block = plan.timetable(), -1
        self.counts: NDArray[np.int64] = np.zeros(sum(self._sizes.values()), dtype=np.int64)
        self._variance = 0.0

    def add(self, step: int, masks: Mapping[str, Tensor] | None) -> None:
        """Count the masks of a step (as `privet.Training.masks` gives them), unless its block is counted already."""
        block = -1 if self._times is None else self._times.block(step)
        if block == self._block or masks is None:
            return
        self._block = block
        dropped = torch.cat([~masks[name].flatten().cpu() for name in self._sizes]).numpy()
        self.counts += dropped
        rate = float(dropped.mean())
        self._variance += rate * (1 - rate)

    @property
    def deviation(self) -> float:
        """Standard deviation of the counts over the coordinates."""
        return float(self.counts.std())

    @property
    def expected_deviation(self) -> float:
        """Standard deviation of the counts of random masks with these rates."""
        return math.sqrt(self._variance)

    @property
    def spread(self) -> float:
        """`deviation` over `expected_deviation`: about 1 for random masks, more for masks that prefer some coordinates."""
        return self.deviation / self.expected_deviation if self._variance else math.nan
