"""Standard deviations of the noise on the gradients that an optimizer receives, for noise-aware optimizers."""

from __future__ import annotations

__all__ = ["noise_deviations"]

from collections.abc import Iterable, Mapping

from privet.clipping.gep import refuse_anchors
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.schedules import Factors


def noise_deviations(plan: Plan, names: Iterable[str]) -> Mapping[str, Factors]:
    """Return name → (T,) standard deviation of the noise on every coordinate of the gradient that the optimizer receives."""
    if plan.momentum is not None and plan.momentum.accumulates:
        raise InvalidArgumentError(
            "momentum", plan.momentum, "one with outer=1 for an optimizer that needs to know the noise of a step",
            "Outer momentum carries noise over to later steps; use the optimizer's own momentum, or another optimizer.",
        )  # fmt: skip
    if plan.sparsification is not None:
        raise InvalidArgumentError(
            "sparsification", plan.sparsification, "left out for an optimizer that needs to know the noise of a step",
            "Coordinates that a mask drops have no noise; choose another optimizer.",
        )  # fmt: skip
    refuse_anchors(plan.clipping, "an optimizer that needs to know the noise of a step")
    known, common = tuple(names), plan.gradient_deviations()
    scales = plan.clipping.noise_scales(known)
    return {name: common * scales.get(name, 1.0) for name in known}
