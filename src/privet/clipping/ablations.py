"""Ablations: no clipping at all, for studies of the effect of clipping. There is no privacy, and every statement says so."""

from __future__ import annotations

__all__ = ["Unclipped", "unbounded"]

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor

from privet._utils.registry import register
from privet.clipping.base import NormRule, check_bound
from privet.errors import InvalidArgumentError


@register
@dataclass(frozen=True)
class Unclipped(NormRule):
    """No clipping: noisy SGD, in which one example can move the sum without limit.

    There is no privacy at any noise level: every statement of a plan with it says ε = ∞, and it cannot be calibrated.

    Args:
        bound: in [1e-12, 1e12]; the noise is scaled to it as if gradients were clipped to it, but they are not.
        non_private: must be set to True explicitly.

    Source:
        "Improving Differentially Private SGD via Randomly Sparsified Gradients", Algorithm 2 (noisy SGD).

    >>> Unclipped(bound=0.5, non_private=True).weight(torch.tensor([0.25, 2.0, 1e9]))
    tensor([1., 1., 1.])
    """

    non_private: bool = False

    def __post_init__(self) -> None:
        check_bound(self.bound)
        if self.non_private is not True:
            raise InvalidArgumentError(
                "clipping.non_private", self.non_private, "True", "Without clipping there is no privacy at all: ε = ∞."
            )

    @property
    def sensitivity(self) -> float:
        """The nominal bound, to which the noise is scaled. The true sensitivity is infinite."""
        return float(self.bound)

    def factor(self, norms: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(norms)


def unbounded(value: object) -> bool:
    """Return whether a rule, or any rule within it, does not clip.

    >>> unbounded((1.0, Unclipped(bound=0.5, non_private=True)))
    True
    """
    if isinstance(value, Unclipped):
        return True
    if is_dataclass(value):
        return any(unbounded(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, Iterable) and not isinstance(value, str) and any(map(unbounded, value))
