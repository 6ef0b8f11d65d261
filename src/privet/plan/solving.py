"""Solving for whatever a plan left open, noise or steps, so that it meets a target ε."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from privet import accounting
from privet.accounting.root_finding import MOST_STEPS, largest_count
from privet.clipping import unbounded
from privet.errors import InvalidArgumentError, choice, positive

if TYPE_CHECKING:
    from privet.plan.plan import Plan

# Where every step has its own multiplier, every step is a line in a table.
_MOST_SCHEDULED_STEPS = 2**20


def solved(plan: Plan, epsilon: float, accountant: str | None) -> Plan:
    """Return the plan with what it left open; arguments, errors and guarantee as for `Plan.calibrate`."""
    target = positive("epsilon", epsilon)
    if unbounded(plan.clipping):
        raise InvalidArgumentError(
            "clipping", plan.clipping, "a rule that bounds what an example contributes", "Without one no noise meets a target."
        )
    accountant = accounting.DEFAULT_ACCOUNTANT if accountant is None else accountant
    bounds = tuple(name for name, direction in accounting.DIRECTIONS.items() if direction == "upper bound")
    choice("accountant", accountant, bounds, "Only an upper bound can be a target.")
    open_noise, open_steps = plan.noise.multiplier is None, plan.steps is None
    if open_noise and open_steps:
        raise InvalidArgumentError(
            "steps", None, "given when the noise is not", "One of noise and steps is solved for, not both."
        )
    if not open_noise and not open_steps:
        raise InvalidArgumentError(
            "epsilon", epsilon, "left out when noise and steps are both given",
            "Leave out the noise (or its multiplier), or set steps=None; exactly one is solved for.",
        )  # fmt: skip
    return _steps(plan, target, accountant) if open_steps else _noise(plan, target, accountant)


def _steps(plan: Plan, target: float, accountant: str) -> Plan:
    positive("noise.multiplier", plan.noise_multiplier, "Without noise no number of steps meets a target.")

    def spent(number: int) -> float:
        events = replace(plan, steps=number).events()
        return accounting.composed_epsilon(events, delta=plan.delta, adjacency=plan.adjacency, accountant=accountant)

    most = _MOST_SCHEDULED_STEPS if plan.multiplier_moves else MOST_STEPS
    return replace(plan, steps=largest_count(spent, target, most))


def _noise(plan: Plan, target: float, accountant: str) -> Plan:
    def with_multiplier(multiplier: float) -> Plan:
        return replace(plan, noise=replace(plan.noise, multiplier=multiplier))

    multiplier = accounting.composed_multiplier(
        lambda multiplier: with_multiplier(multiplier).events(),
        epsilon=target, delta=plan.delta, adjacency=plan.adjacency, accountant=accountant,
    )  # fmt: skip
    return with_multiplier(multiplier)
