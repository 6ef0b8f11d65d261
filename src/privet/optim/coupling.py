"""Learning rates that follow a schedule: one of their own, or those of bound and noise."""

from __future__ import annotations

import torch

from privet.errors import InvalidArgumentError, count
from privet.plan import Plan
from privet.schedules import Schedule


def coupled_learning_rate(optimizer: torch.optim.Optimizer, plan: Plan) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a learning-rate scheduler that keeps η·σ·R, the noise that a step brings to the parameters, what it is at first.

    Where the plan's schedules make the noise on the gradient grow (a bound that is raised late, say), the learning rate shrinks
    by as much, and the other way round.

    Args:
        optimizer: whose learning rate is that of the first step.
        plan: with noise and steps.

    Returns:
        For `Training(..., scheduler=...)`; past the plan's last step it changes nothing more.

    Raises:
        InvalidArgumentError: the plan has no noise, so that there is nothing to keep.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", §5: bound and learning
        rate are changed together, so that ησR is fixed.
    """
    deviations = plan.gradient_deviations()
    if not deviations.all():
        raise InvalidArgumentError("noise.multiplier", plan.noise_multiplier, "greater than 0", "η·σ·R is 0 whatever η is.")
    return _following(optimizer, (deviations[0] / deviations).tolist())


def scheduled_learning_rate(
    optimizer: torch.optim.Optimizer, schedule: Schedule, steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a learning-rate scheduler that multiplies the optimizer's rate by a schedule's factors.

    Args:
        optimizer: whose learning rate is what a factor of 1 stands for.
        schedule: such as `privet.schedules.ToZero()`.
        steps: of the training, ≥ 1.

    Returns:
        For `Training(..., scheduler=...)`; past the last step it changes nothing more. Learning rates are public and come after
        the noise, so no schedule of them changes a guarantee.

    Raises:
        InvalidArgumentError: the number of steps is none.

    >>> import torch, privet
    >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=8.0)
    >>> scheduled_learning_rate(optimizer, privet.schedules.Table((0.5, 0.25)), steps=2).get_last_lr()
    [4.0]
    """
    return _following(optimizer, schedule.factors(count("steps", steps)).tolist())


def _following(optimizer: torch.optim.Optimizer, factors: list[float]) -> torch.optim.lr_scheduler.LambdaLR:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factors[min(step, len(factors) - 1)])
