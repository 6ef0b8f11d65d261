"""Calibration: solve for the open parameter of a plan, noise or steps, so that it meets a target ε."""

from __future__ import annotations

__all__ = ["calibrate"]

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from privet.accounting.events import Release, round_multipliers_down
from privet.accounting.queries import DEFAULT_ACCOUNTANT, DIRECTIONS, composed_epsilon, composed_multiplier
from privet.accounting.root_finding import MOST_STEPS, largest_count
from privet.clipping.ablations import unbounded
from privet.errors import InvalidArgumentError, choice, positive
from privet.noise import Correlated
from privet.plan.declaration import Declaration
from privet.plan.mechanism import PrivacyMechanism
from privet.schedules import Constant

_Mechanism = TypeVar("_Mechanism", bound=PrivacyMechanism)

_GUESSED_PER_OCTAVE = 16
# If every step has its own multiplier, every step is an entry of a table.
_MOST_SCHEDULED_STEPS = 2**20


def calibrate(plan: _Mechanism, epsilon: float, accountant: str | None = None) -> _Mechanism:
    """Return the calibrated plan or mechanism; arguments and errors as for `Plan.calibrate`."""
    target = positive("epsilon", epsilon)
    plan.sampling.check_adjacency(plan.adjacency)
    if isinstance(plan, Declaration) and unbounded(plan.clipping):
        raise InvalidArgumentError(
            "clipping", plan.clipping, "a rule that bounds what an example contributes", "Without one no noise meets a target."
        )
    accountant = DEFAULT_ACCOUNTANT if accountant is None else accountant
    bounds = tuple(name for name, direction in DIRECTIONS.items() if direction == "upper bound")
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
    solved = _solve_for_steps(plan, target, accountant) if open_steps else _solve_for_noise(plan, target, accountant)
    held_out = solved.holdout_epsilon(accountant) if isinstance(solved, Declaration) else 0.0
    if held_out > target:
        raise InvalidArgumentError(
            "the ε of plan.holdout", held_out, f"at most the target, {epsilon:g}", "The larger of the two is the total."
        )
    return solved


def _solve_for_steps(plan: _Mechanism, target: float, accountant: str) -> _Mechanism:
    positive("noise.multiplier", plan.noise_multiplier, "Without noise no number of steps meets a target.")
    asked = replace(plan, noise=plan.noise.draft) if isinstance(plan.noise, Correlated) else plan
    if isinstance(asked, Declaration) and not asked.multiplier_moves:  # a table of the bounds of 10⁹ steps says nothing of ε
        asked = replace(asked, bound_schedule=Constant())

    def spent(number: int, change: Callable[[Iterable[Release]], Iterable[Release]] = tuple) -> float:
        events = change(replace(asked, steps=number).events())
        return composed_epsilon(events, delta=plan.delta, adjacency=plan.adjacency, accountant=accountant)

    most = _MOST_SCHEDULED_STEPS if plan.multiplier_moves or isinstance(plan.noise, Correlated) else MOST_STEPS
    start = _guess_steps(spent, target, most) if plan.multiplier_moves else 1
    return replace(plan, steps=largest_count(spent, target, most, start))


def _guess_steps(spent: Callable[..., float], target: float, most: int) -> int:
    """Return a number of steps near the solution, at most a few per cent below: with few distinct multipliers, rounded down."""
    coarsely = partial(round_multipliers_down, per_octave=_GUESSED_PER_OCTAVE)
    try:
        return min(largest_count(lambda number: spent(number, coarsely), target, most), most - 1)
    except InvalidArgumentError:  # rounding alone may exceed the target
        return 1


def _solve_for_noise(plan: _Mechanism, target: float, accountant: str) -> _Mechanism:
    multiplier = composed_multiplier(
        lambda multiplier: plan.with_multiplier(multiplier).events(),
        epsilon=target, delta=plan.delta, adjacency=plan.adjacency, accountant=accountant,
    )  # fmt: skip
    return plan.with_multiplier(multiplier)
