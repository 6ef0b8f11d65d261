"""Learning-rate schedules: independent ones, and ones coupled to the schedules of bound and noise."""

from __future__ import annotations

import torch

from privet.errors import InvalidArgumentError, count
from privet.plan import Plan
from privet.schedules import Schedule


def coupled_learning_rate(optimizer: torch.optim.Optimizer, plan: Plan) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a learning-rate scheduler that keeps η·σ·R, the noise that a step adds to the parameters, constant.

    Where the plan's schedules increase the noise on the gradient (a bound raised late, for example), the learning rate decreases
    by the same factor, and vice versa. After the plan's last step it stays constant.

    Args:
        optimizer: the optimizer, with the learning rate of the first step.
        plan: plan with noise and steps.

    Raises:
        InvalidArgumentError: the plan has no noise, or the optimizer no learning rate.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", §5: bound and learning
        rate change together such that ησR is fixed.
    """
    deviations = plan.gradient_deviations()
    if not deviations.all():
        raise InvalidArgumentError("noise.multiplier", plan.noise_multiplier, "greater than 0", "η·σ·R is 0 for any η.")
    return _follow(optimizer, (deviations[0] / deviations).tolist())


def scheduled_learning_rate(
    optimizer: torch.optim.Optimizer, schedule: Schedule, steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a learning-rate scheduler that multiplies the optimizer's rate by a schedule's factors.

    Rates are public and applied after the noise, so they do not affect the guarantee. After the last step the rate is constant.

    Args:
        optimizer: the optimizer, with the learning rate for a factor of 1.
        schedule: such as `privet.schedules.ToZero()`.
        steps: number of steps of the training, ≥ 1.

    Raises:
        InvalidArgumentError: the number of steps is invalid, or the optimizer has no learning rate.

    >>> import torch, privet
    >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=8.0)
    >>> scheduled_learning_rate(optimizer, privet.schedules.Table((0.5, 0.25)), steps=2).get_last_lr()
    [4.0]
    """
    return _follow(optimizer, schedule.factors(count("steps", steps)).tolist())


def _follow(optimizer: torch.optim.Optimizer, factors: list[float]) -> torch.optim.lr_scheduler.LambdaLR:
    if any(group.get("lr") is None for group in optimizer.param_groups):
        fix = "A schedule multiplies it; an optimizer that chooses its own rate is used without one."
        raise InvalidArgumentError("optimizer.lr", None, "a number", fix)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factors[min(step, len(factors) - 1)])
