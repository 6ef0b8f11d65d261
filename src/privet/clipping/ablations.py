"""What is not a rule: no clipping at all, for studies of what clipping does. Whatever uses it promises nothing, and says so."""

from __future__ import annotations

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
    """Leave every gradient as long as it is: noisy SGD, in which one example can move the sum without limit.

    There is no privacy at any noise: every statement of a plan with it says ε = ∞, and it cannot be calibrated.

    Args:
        bound: in [1e-12, 1e12]; what the noise is scaled to, as if gradients were clipped to it. They are not.
        non_private: has to be said: True.

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
        """The bound in name only: what noise is scaled to. The true one is infinite."""
        return float(self.bound)

    def factor(self, norms: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(norms)


def unbounded(value: object) -> bool:
    """Return whether a rule, or any that it is made of, does not clip.

    >>> unbounded((1.0, Unclipped(bound=0.5, non_private=True)))
    True
    """
    if isinstance(value, Unclipped):
        return True
    if is_dataclass(value):
        return any(unbounded(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, Iterable) and not isinstance(value, str) and any(map(unbounded, value))
