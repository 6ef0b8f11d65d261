"""Mechanism of a plan's step: the clipping rule, and the noise on the mean gradient."""

from __future__ import annotations

__all__ = ["Mechanism"]

from dataclasses import dataclass

from privet.clipping import Rule
from privet.clipping.gep import refuse_anchors
from privet.errors import InvalidArgumentError, real
from privet.plan import Plan


@dataclass(frozen=True)
class Mechanism:
    """A clipping rule, and the noise on the mean of the clipped gradients.

    It acts on per-example gradients: inner momentum and masks are not included.

    Args:
        rule: any clipping rule, even one without sensitivity, which a plan refuses.
        deviation: standard deviation ≥ 0 of the noise on a coordinate of the mean gradient whose noise scale is 1. It is
            σ·sensitivity/B for training with batch size B, whatever the size of the studied batch.

    >>> from privet.clipping import Flat
    >>> Mechanism(Flat(bound=0.5), deviation=0.01).rule.bound
    0.5
    """

    rule: Rule
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise InvalidArgumentError("rule", self.rule, "a rule such as privet.clipping.Flat(bound=1.0)")
        refuse_anchors(self.rule, "a study of gradients")
        if real("deviation", self.deviation) < 0:
            raise InvalidArgumentError("deviation", self.deviation, "at least 0", "It is σ·sensitivity / batch size.")

    @classmethod
    def of(cls, plan: Plan, step: int = 1) -> Mechanism:
        """Return the mechanism of a plan at a step, counted from 1.

        Raises:
            InvalidArgumentError: the plan's rule adapts its bound during training, so the plan does not determine it.
        """
        if not 1 <= step <= plan.total_steps:
            raise InvalidArgumentError("step", step, f"from 1 to {plan.total_steps}, the steps of the plan")
        deviation = float(plan.gradient_deviations()[step - 1])
        return cls(plan.clipping.scale_bound(float(plan.bound_factors()[step - 1])), deviation)
