"""Batch clipping: one factor for a whole batch, to study the effects of clipping; it gives no privacy."""

from __future__ import annotations

__all__ = ["BatchClipping"]

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privet.clipping.base import Rule, check_bound
from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class BatchClipping(Rule):
    """Give all examples of a batch the same weight c = min(1, C/maxᵢ‖gᵢ‖).

    A common factor keeps the tangent kernel symmetric and positive, unlike separate weights; this rule is the baseline for them.

    Args:
        bound: C, in [1e-12, 1e12].

    Guarantee:
        None. Every contribution is bounded, but the factor depends on the whole batch: one large gradient shrinks all others,
        which moves the sum by up to the number of examples times C. It has no sensitivity, and plans refuse it.

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
        """Raise: there is none.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(
            "clipping", self, "a rule that bounds the effect of one example",
            "Its factor depends on the whole batch, so one example changes all contributions.",
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
