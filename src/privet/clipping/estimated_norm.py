"""Clipping by norms that are estimated from random projections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privet._utils.registry import register
from privet.clipping.base import Rule
from privet.errors import InvalidArgumentError, count, positive


@register
@dataclass(frozen=True)
class Projected(Rule):
    """Weight by norms that are estimated from random directions, in the memory of a plain step and of one direction.

    Args:
        rule: what weight a norm gets; with one group, as an estimate is of the whole gradient.
        projections: r ≥ 10; each costs about two forward passes. The guarantee of few is hardly worth its name: 30 or more.

    Guarantee:
        Only with an accountant that knows r. The estimate is ‖g‖·√(χ²ᵣ/r), so an example contributes up to its rule's sensitivity
        S times √(r/χ²ᵣ), which is beyond any bound with a small probability. `sensitivity` is the nominal S; it is what the
        noise is scaled to, and ε is to be averaged over the law of the directions (which all examples share).

    Source:
        Bu et al. 2021, "Fast and Memory Efficient Differentially Private-SGD via JL Projections".

    >>> from privet.clipping import Flat
    >>> Projected(Flat(bound=0.5), projections=30).sensitivity
    0.5
    """

    rule: Rule
    projections: int

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule) or isinstance(self.rule, Projected):
            raise InvalidArgumentError("clipping.rule", self.rule, "another rule such as privet.clipping.Flat(bound=1.0)")
        positive("clipping.rule.sensitivity", self.rule.sensitivity)
        fix = "With fewer an estimate is too small so often that no useful ε follows; 30 or more is sensible."
        count("clipping.projections", self.projections, minimum=10, fix=fix)

    @property
    def sensitivity(self) -> float:
        """The rule's, which holds where the norms are exact."""
        return self.rule.sensitivity

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the rule's one group.

        Raises:
            InvalidArgumentError: it has several, or releases more than gradients, whose share does not follow the estimate's law.
        """
        groups = self.rule.groups(names)
        if len(groups) != 1:
            raise InvalidArgumentError(
                "clipping.rule", self.rule, "a rule with one group: projections estimate the norm of the whole gradient",
                "Clip layers by exact norms, or all parameters together.",
            )  # fmt: skip
        if self.rule.noise_scales(names) or self.rule.statistics(torch.zeros(1, 0, dtype=torch.float64)):
            raise InvalidArgumentError(
                "clipping.rule", self.rule, "a rule that releases gradients alone: only their sensitivity follows the law of the "
                "estimate", "Adapt bounds by exact norms.",
            )  # fmt: skip
        return groups

    def weight(self, norms: Tensor) -> Tensor:
        """Return the rule's weights for estimated norms."""
        return self.rule.weight(norms)

    def weights(self, norms: Tensor) -> Tensor:
        """Return the rule's weights for estimated norms, (1, B)."""
        return self.rule.weights(norms)

    def scaled(self, factor: float) -> Projected:
        """Return the rule with its bound multiplied by a factor."""
        return replace(self, rule=self.rule.scaled(factor))
