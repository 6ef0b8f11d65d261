"""Clipping by norms estimated from random projections."""

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
    """Clip by norms estimated from random directions.

    Args:
        rule: the rule to apply to the estimates; with one group, because an estimate is of the whole gradient.
        projections: r ≥ 10. Use 30 or more: few projections give a very weak guarantee.

    Guarantee:
        Only with an accountant that knows r. The estimate is ‖g‖·√(χ²ᵣ/r), so an example contributes up to the rule's sensitivity
        S times √(r/χ²ᵣ), which exceeds any bound with a small probability. `sensitivity` is the nominal S; the noise is scaled to
        it, and the accountant averages over the distribution of the directions (which all examples share). The gradients that are
        projected are those that are summed.

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
        fix = "With fewer, estimates are too often far too small for any useful ε; use 30 or more."
        count("clipping.projections", self.projections, minimum=10, fix=fix)

    @property
    def sensitivity(self) -> float:
        """The sensitivity of the rule under exact norms."""
        return self.rule.sensitivity

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of the rule."""
        return self.rule.assumptions

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the rule's one group; a rule with several, or one that releases more than gradients, is refused."""
        groups = self.rule.groups(names)
        if len(groups) != 1:
            allowed = "a rule with one group: projections estimate the norm of the whole gradient"
            fix = "Use exact norms for layerwise clipping, or clip all parameters together."
            raise InvalidArgumentError("clipping.rule", self.rule, allowed, fix)
        if self.rule.noise_scales(names) or self.rule.statistics(torch.zeros(1, 0, dtype=torch.float64, device="cpu")):
            raise InvalidArgumentError(
                "clipping.rule", self.rule, "a rule that releases only gradients, whose sensitivity follows the distribution of "
                "the estimate", "Use exact norms for adaptive bounds.",
            )  # fmt: skip
        return groups

    def weight(self, norms: Tensor) -> Tensor:
        """Return the rule's weights for estimated norms."""
        return self.rule.weight(norms)

    def weights(self, norms: Tensor) -> Tensor:
        """Return the rule's weights for estimated norms, (1, B)."""
        return self.rule.weights(norms)

    def scale_bound(self, factor: float) -> Projected:
        """Return the rule with its bound multiplied by a factor."""
        return replace(self, rule=self.rule.scale_bound(factor))
