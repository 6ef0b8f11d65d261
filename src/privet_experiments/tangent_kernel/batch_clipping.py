"""Batch clipping: one factor for a whole batch, to study what clipping does to training; it gives no privacy."""

from __future__ import annotations

__all__ = ["BatchClipping"]

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privet.clipping.base import Rule, check_bound
from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class BatchClipping(Rule):
    """Weigh all examples alike, by one factor of the batch: c = min(1, C/maxᵢ‖gᵢ‖).

    A factor that is the same for all leaves the tangent kernel symmetric and positive, which weights of each example's own do
    not: this is what they are compared with.

    Args:
        bound: C, in [1e-12, 1e12].

    Guarantee:
        None. Every contribution is bounded, but the factor depends on the whole batch: one long gradient shrinks everybody
        else's, which moves the sum by up to the number of examples times C. It has no sensitivity, and plans refuse it.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Table 1.

    >>> import torch
    >>> BatchClipping(bound=1.0).weight(torch.tensor([0.5, 4.0]))
    tensor([0.2500, 0.2500])
    """

    bound: float

    def __post_init__(self) -> None:
        check_bound(self.bound)

    @property
    def sensitivity(self) -> float:
        """There is none.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(
            "clipping", self, "a rule that bounds what one example changes",
            "Its factor depends on the whole batch, so one example changes everybody's contribution.",
        )  # fmt: skip

    def scale_bound(self, factor: float) -> BatchClipping:
        """Return the rule with bound factor·C."""
        return replace(self, bound=factor * self.bound)

    def weight(self, norms: Tensor) -> Tensor:
        """Return min(1, C/max‖g‖) for every finite norm of the last dimension, 0 for the others."""
        finite = norms.isfinite()
        longest = norms.where(finite, 0.0).amax(-1, keepdim=True) if norms.shape[-1] else norms
        factor = (self.bound / longest).clamp(max=1.0)
        return torch.where(finite, factor, 0.0)
