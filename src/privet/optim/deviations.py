"""How much noise the gradients have that an optimizer is handed: public numbers, for those that must know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.schedules import Factors


def handed_deviations(plan: Plan, names: Iterable[str]) -> Mapping[str, Factors]:
    """Return name → standard deviation of the noise on every coordinate that the optimizer is handed, at every step, (T,).

    Args:
        plan: with noise and steps.
        names: of the model's trainable parameters; groups that are noised by themselves have their own deviations.

    Raises:
        InvalidArgumentError: there is no such number: the rule adapts its bound, outer momentum carries the noise of a step on to
            the next ones, or masks leave some coordinates without noise.
    """
    if plan.momentum is not None and plan.momentum.accumulates:
        raise InvalidArgumentError(
            "momentum", plan.momentum, "one with outer=1 for an optimizer that has to know the noise of a step",
            "Noise is carried over from step to step; use a momentum of the optimizer's own, or another optimizer.",
        )  # fmt: skip
    if plan.sparsification is not None and not plan.sparsification.ranks:
        raise InvalidArgumentError(
            "sparsification", plan.sparsification, "left out, or ranked, for an optimizer that has to know the noise of a step",
            "Coordinates that a mask leaves out have none; choose another optimizer.",
        )  # fmt: skip
    known, common = tuple(names), plan.gradient_deviations()
    scales = plan.clipping.noise_scales(known)
    return {name: common * scales.get(name, 1.0) for name in known}
