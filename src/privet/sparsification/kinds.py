"""Kinds of sparsification: how many coordinates are left out when, and whether the noise leaves them out too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privet._utils.registry import Part, register
from privet.clipping import Projected
from privet.errors import InvalidArgumentError, between, count
from privet.sparsification.drawing import Selection, Shapes, kept_of_largest, split, total


@dataclass(frozen=True)
class Sparsification(Part, ABC):
    """What every kind answers. The rate grows from 0 at the first mask to `final_rate` at the last (gradual cooling)."""

    final_rate: float
    refresh: int = 1

    def __post_init__(self) -> None:
        between("sparsification.final_rate", self.final_rate, 0.0, 1.0, "It is the part of the coordinates left out at the end.")
        count("sparsification.refresh", self.refresh, fix="It is the number of masks in an epoch; 1 is usual.")

    def check_beside(self, plan: Any) -> None:
        """Refuse norms that are estimated."""
        if isinstance(plan.clipping, Projected):
            raise InvalidArgumentError(
                "sparsification", self, "left out with clipping.Projected", "Its estimates are of whole norms."
            )

    @property
    @abstractmethod
    def ranks(self) -> bool:
        """Whether masks follow from earlier releases. Then all coordinates get noise, or what is left out once never returns."""

    @abstractmethod
    def masks(self, block: int, blocks: int, shapes: Shapes, released: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the masks of a block: name → bool tensor on the CPU, True where a coordinate is kept; None to keep all.

        Args:
            block: counted from 0.
            blocks: how many there are in the training.
            shapes: name → shape of the parameter.
            released: name → sum of the releases of the last block; empty if there were none. What does not rank ignores it.
        """

    def rate(self, block: int, blocks: int) -> float:
        """Return the part r_n = r*·n/(blocks − 1) of the coordinates that mask n of so many leaves out; 0 if there is one.

        Source:
            "Improving Differentially Private SGD via Randomly Sparsified Gradients", section 4.1, with kE masks in E epochs.
        """
        return self.final_rate * block / (blocks - 1) if blocks > 1 else 0.0

    def zeros(self, block: int, blocks: int, size: int) -> int:
        """Return how many of `size` coordinates that is, rounded."""
        return round(self.rate(block, blocks) * size)


@register
@dataclass(frozen=True)
class Random(Sparsification):
    """Leave out random coordinates, drawn anew for every block of steps: they get neither data nor noise.

    Masks are public and independent of the data. They are no protection: who knows the mask loses nothing by it, so what is
    promised is what is promised without them. What is gained is less noise, and fewer numbers to send.

    Args:
        final_rate: part r* of all coordinates that the last mask leaves out, in (0, 1).
        refresh: number of masks in an epoch, k ≥ 1; the mask of a step is that of all its examples.
        seed: public, in [0, 2³¹).

    Guarantee:
        With the mask m fixed before the data is looked at, m∘(Σ w(‖m∘gᵢ‖)·m∘gᵢ + noise) is the Gaussian mechanism on the
        coordinates that are kept, with the same sensitivity, plus constants.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Algorithm 1 and Theorem 3.1.

    >>> [Random(final_rate=0.9).rate(block, 4) for block in range(4)]
    [0.0, 0.3, 0.6, 0.9]
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        count("sparsification.seed", self.seed, minimum=0)

    @property
    def ranks(self) -> bool:
        """False: masks are drawn, and what gets no data gets no noise."""
        return False

    def masks(self, block: int, blocks: int, shapes: Shapes, released: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the masks that the block's selection says."""
        selection = self.selection(block, blocks, total(shapes))
        return selection.masks(shapes) if selection.zeros else None

    def selection(self, block: int, blocks: int, size: int) -> Selection:
        """Return the public parameters of a block's mask over `size` coordinates."""
        return Selection(self.seed, block, self.zeros(block, blocks, size))


@register
@dataclass(frozen=True)
class Ranked(Sparsification):
    """Leave out the coordinates whose released gradients were smallest on average over the last block of steps.

    All coordinates are released with noise, also those left out: without it they would rank last forever. The paper finds
    that noise dominates the ranking, which makes this no better than `Random`.

    Args:
        final_rate: part r* of all coordinates that the last mask leaves out, in (0, 1).
        refresh: number of masks in an epoch, k ≥ 1.

    Guarantee:
        A mask is computed from releases of earlier steps alone, which is post-processing; given it, a step is the Gaussian
        mechanism with an unchanged sensitivity.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Algorithm 4 and Appendix I.
    """

    @property
    def ranks(self) -> bool:
        """True."""
        return True

    def masks(self, block: int, blocks: int, shapes: Shapes, released: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the masks that leave out the smallest |sum|, which are also the smallest means."""
        zeros = self.zeros(block, blocks, total(shapes))
        if zeros == 0 or not released:
            return None
        sizes = torch.cat([released[name].abs().flatten().double().cpu() for name in shapes])
        return split(kept_of_largest(np.nan_to_num(sizes.numpy(), nan=np.inf), zeros), shapes)


@dataclass(frozen=True)
class Timetable:
    """Which steps share a mask: the epoch is cut into `refresh` blocks of equal length, as far as whole steps allow.

    Args:
        refresh: blocks in an epoch.
        epoch: number of steps in an epoch, examples / batch size.
        steps: of the training.

    >>> times = Timetable(refresh=2, epoch=Fraction(5, 1), steps=10)
    >>> [times.block(step) for step in range(1, 11)], times.blocks
    ([0, 0, 0, 1, 1, 2, 2, 2, 3, 3], 4)
    """

    refresh: int
    epoch: Fraction
    steps: int

    def block(self, step: int) -> int:
        """Return the block of a step, both as the plan counts: steps from 1, blocks from 0."""
        return (step - 1) * self.refresh // self.epoch

    @property
    def blocks(self) -> int:
        """Number of blocks: one more than the last step's."""
        return self.block(self.steps) + 1
