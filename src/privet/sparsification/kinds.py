"""Kinds of sparsification: how many coordinates each mask drops, and whether they still get noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from privet._utils.registry import Part, register
from privet.clipping import Projected
from privet.errors import InvalidArgumentError, between, count
from privet.sparsification.drawing import Selection, Shapes, keep_largest, split, total


@dataclass(frozen=True)
class Sparsification(Part, ABC):
    """A kind of sparsification. The rate grows from 0 at the first mask to `final_rate` at the last (gradual cooling)."""

    # Whether masks depend on earlier releases. If so, all coordinates are released with noise, dropped ones included, which could
    # never return otherwise, and the mask is applied to the release: dropped coordinates do not move.
    ranks: ClassVar[bool] = False

    final_rate: float
    refresh: int = 1

    def __post_init__(self) -> None:
        between(
            "sparsification.final_rate", self.final_rate, 0.0, 1.0, "It is the fraction of coordinates that the last mask drops."
        )
        count("sparsification.refresh", self.refresh, fix="It is the number of masks per epoch; 1 is usual.")

    def check_combination(self, plan: Any) -> None:
        """Refuse norms that are estimated."""
        if isinstance(plan.clipping, Projected):
            raise InvalidArgumentError(
                "sparsification", self, "left out with clipping.Projected", "Its estimates are of whole norms."
            )

    @abstractmethod
    def masks(self, block: int, blocks: int, shapes: Shapes, released: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the masks of a block: name → bool tensor on the CPU, True where a coordinate is kept; None to keep all.

        Args:
            block: index of the block, from 0.
            blocks: number of blocks in the training.
            shapes: name → shape of the parameter.
            released: name → sum of the releases of the last block; empty if there were none. Only ranking kinds use it.
        """

    def rate(self, block: int, blocks: int) -> float:
        """Return the fraction r_n = r*·n/(blocks − 1) of coordinates that mask n drops; 0 if there is only one block.

        Source:
            "Improving Differentially Private SGD via Randomly Sparsified Gradients", section 4.1, with kE masks in E epochs.
        """
        return self.final_rate * block / (blocks - 1) if blocks > 1 else 0.0

    def zeros(self, block: int, blocks: int, size: int) -> int:
        """Return the number of dropped coordinates out of `size`, rounded."""
        return round(self.rate(block, blocks) * size)


@register
@dataclass(frozen=True)
class Random(Sparsification):
    """Drop random coordinates, drawn afresh for every block of steps: they get neither data nor noise.

    Masks are public and independent of the data. They do not improve privacy: the guarantee is the same as without masks. The
    benefit is less noise, and fewer numbers to send.

    Args:
        final_rate: fraction r* of all coordinates that the last mask drops, in (0, 1).
        refresh: number of masks per epoch, k ≥ 1; all examples of a step share its mask.
        seed: public, in [0, 2³¹).

    Guarantee:
        With the mask m fixed independently of the data, m∘(Σ w(‖m∘gᵢ‖)·m∘gᵢ + noise) is the Gaussian mechanism on the kept
        coordinates, with the same sensitivity, plus constants.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Algorithm 1 and Theorem 3.1.

    >>> [Random(final_rate=0.9).rate(block, 4) for block in range(4)]
    [0.0, 0.3, 0.6, 0.9]
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        count("sparsification.seed", self.seed, minimum=0)

    def masks(self, block: int, blocks: int, shapes: Shapes, released: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the masks of the block's selection."""
        selection = self.selection(block, blocks, total(shapes))
        return selection.masks(shapes) if selection.zeros else None

    def selection(self, block: int, blocks: int, size: int) -> Selection:
        """Return the public parameters of a block's mask over `size` coordinates."""
        return Selection(self.seed, block, self.zeros(block, blocks, size))


@register
@dataclass(frozen=True)
class Ranked(Sparsification):
    """Drop the coordinates whose released gradients were smallest on average over the last block of steps.

    Gradients are masked before they are clipped, as for `Random`. All coordinates are released with noise, including dropped
    ones, which would otherwise rank last forever, and ranked by this release; the optimizer gets m∘release, so dropped
    coordinates get neither data nor noise. The paper finds that noise dominates the ranking: with one mask per epoch, coordinates
    are dropped about as often as by `Random`.

    Args:
        final_rate: fraction r* of all coordinates that the last mask drops, in (0, 1).
        refresh: number of masks per epoch, k ≥ 1.

    Guarantee:
        A mask is computed only from releases of earlier steps, which is post-processing; given the mask, a step is the Gaussian
        mechanism with unchanged sensitivity. Applying the mask to the release is post-processing, too.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Algorithm 4 and Appendix I.
    """

    ranks: ClassVar[bool] = True

    def masks(self, block: int, blocks: int, shapes: Shapes, released: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the masks that drop the smallest absolute sums, which are also the smallest absolute means."""
        zeros = self.zeros(block, blocks, total(shapes))
        if zeros == 0 or not released:
            return None
        sizes = torch.cat([released[name].abs().flatten().double().cpu() for name in shapes])
        return split(keep_largest(np.nan_to_num(sizes.numpy(), nan=np.inf), zeros), shapes)


@dataclass(frozen=True)
class Timetable:
    """The steps that share a mask: each epoch of `epoch` steps is split into `refresh` blocks, up to rounding to whole steps.

    >>> times = Timetable(refresh=2, epoch=Fraction(5, 1), steps=10)
    >>> [times.block(step) for step in range(1, 11)], times.blocks
    ([0, 0, 0, 1, 1, 2, 2, 2, 3, 3], 4)
    """

    refresh: int
    epoch: Fraction
    steps: int

    def block(self, step: int) -> int:
        """Return the block of a step; steps count from 1, blocks from 0."""
        return (step - 1) * self.refresh // self.epoch

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.block(self.steps) + 1
