"""Adam for noised gradients, with the known noise variance subtracted from the second moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.clipping.gep import refuse_anchors
from privet.errors import InvalidArgumentError, positive, real
from privet.optim.published import check_betas
from privet.plan import Plan
from privet.schedules import Factors

# Tolerance for deviations that went through JSON or another order of summation; rounding to the grid adds at most 1e-4.
_PRECISION = 1e-6


def refuse_partial_noise(plan: Plan, what: str) -> None:
    """Refuse a plan whose steps leave coordinates without noise, or whose noise lies in subspaces."""
    for name in ("sparsification", "embeddings"):
        if (part := getattr(plan, name)) is not None:
            fix = "Coordinates that are not released have no noise; choose another optimizer."
            raise InvalidArgumentError(name, part, f"left out for {what}", fix)
    refuse_anchors(plan.clipping, what)


def noise_deviations(plan: Plan, names: Iterable[str]) -> Mapping[str, Factors]:
    """Return name → (T,) standard deviation of the noise on every coordinate of the gradient that the optimizer receives."""
    if plan.momentum is not None and plan.momentum.accumulates:
        allowed = "one with outer=1 for an optimizer that needs to know the noise of a step"
        fix = "Outer momentum carries noise over to later steps; use the optimizer's own momentum, or another optimizer."
        raise InvalidArgumentError("momentum", plan.momentum, allowed, fix)
    refuse_partial_noise(plan, "an optimizer that needs to know the noise of a step")
    known, common = tuple(names), plan.gradient_deviations()
    scales = plan.clipping.noise_scales(known)
    return {name: common * scales.get(name, 1.0) for name in known}


class AdamBC(torch.optim.Optimizer):
    """Adam whose second moment is corrected for the noise of the Gaussian mechanism.

    Squared noised gradients are too large by the noise variance, which dominates if the noise is strong: plain Adam then divides
    all coordinates by the same number and reduces to momentum SGD. The variance is known, so it is averaged like the squares and
    subtracted:

        m̂, v̂, φ̂ = bias-corrected moving averages of g, g², s²          w ← w − η·m̂/√max(v̂ − φ̂, γ′)

    Args:
        params: parameters, or groups of them.
        lr: learning rate η > 0.
        noise_deviation: standard deviation s ≥ 0 of the noise on every coordinate of the divided gradient: a number, or one per
            step (the last one applies to all later steps), such as `plan.gradient_deviations()`. Groups may have their own, for
            rules with different noise levels.
        betas: decay rates of the moving averages of the gradient and of its square, in [0, 1).
        floor: γ′ > 0, smallest second moment. The difference fluctuates around the true value, and would be negative half of the
            time where that is small. Worth tuning together with the learning rate.

    `AdamBC.of(plan, model)` takes the deviations of every parameter from the plan. `privet.Training` refuses an optimizer whose
    deviations differ from the plan's, because it would silently subtract the wrong variance.

    Guarantee:
        The moments are computed from released gradients and public numbers, so this is post-processing.

    Raises:
        InvalidArgumentError: an argument is out of range.

    Source:
        Tang, Shpilevskiy, Lécuyer 2024, "DP-AdamBC: Your DP-Adam Is Actually DP-SGD (Unless You Apply Bias Correction)",
        Algorithm 1; for a variance that changes between steps, its moving average replaces the constant.

    >>> weight = torch.nn.Parameter(torch.tensor([0.0]))
    >>> optimizer = AdamBC([weight], lr=0.1, noise_deviation=4.0)
    >>> weight.grad = torch.tensor([5.0])
    >>> optimizer.step()  # 5/√(25 − 16) instead of 5/√25
    >>> round(weight.item(), 4)
    -0.1667
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        *,
        noise_deviation: float | Sequence[float],
        betas: tuple[float, float] = (0.9, 0.999),
        floor: float = 5e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "noise_deviation": noise_deviation, "betas": betas, "floor": floor})
        for group in self.param_groups:
            positive("lr", group["lr"])
            positive("floor", group["floor"])
            group["noise_deviation"] = _check_deviations(group["noise_deviation"])
            check_betas(group["betas"])

    @classmethod
    def of(cls, plan: Plan, model: nn.Module, lr: float = 1e-3, **options: Any) -> AdamBC:
        """Create the optimizer of a model's trainable parameters, each with the plan's noise on it.

        Args:
            plan: plan with noise and steps.
            lr, options: further arguments of the class.

        Raises:
            InvalidArgumentError: an argument is out of range, or the noise on the gradients has no known standard deviation.
        """
        parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        alike: dict[tuple[float, ...], list[nn.Parameter]] = {}
        for name, deviations in noise_deviations(plan, parameters).items():
            # A single number if all steps have the same.
            several = deviations if np.ptp(deviations) else deviations[:1]
            alike.setdefault(tuple(several.tolist()), []).append(parameters[name])
        groups = [{"params": members, "noise_deviation": deviations} for deviations, members in alike.items()]
        return cls(groups, lr, noise_deviation=0.0, **options)

    def check(self, plan: Plan, parameters: Mapping[str, nn.Parameter]) -> None:
        """Refuse a plan whose noise differs from the subtracted noise on the named parameters.

        Raises:
            InvalidArgumentError: names the first parameter and step with a difference, or why the noise is unknown.
        """
        given = {id(member): group["noise_deviation"] for group in self.param_groups for member in group["params"]}
        for name, due in noise_deviations(plan, parameters).items():
            if id(parameters[name]) not in given:
                continue
            held = np.asarray(given[id(parameters[name])])  # the last holds for all later steps
            subtracted = held[np.minimum(np.arange(len(due)), len(held) - 1)]
            wrong = np.flatnonzero(np.abs(subtracted - due) > _PRECISION * due)
            if len(wrong):
                step = int(wrong[0])
                allowed = f"{due[step]:.6g}, the standard deviation of the plan's noise on {name} at step {step + 1}"
                fix = "AdamBC.of(plan, model) takes it from the plan."
                raise InvalidArgumentError("noise_deviation", float(subtracted[step]), allowed, fix)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with the released gradients."""
        for group in self.param_groups:
            (decay, square_decay), deviations = group["betas"], group["noise_deviation"]
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter), noise=0.0)
                state["step"] += 1
                mean, square, step = state["mean"], state["square"], state["step"]
                variance = deviations[min(step, len(deviations)) - 1] ** 2
                mean.lerp_(gradient, 1 - decay)
                square.mul_(square_decay).addcmul_(gradient, gradient, value=1 - square_decay)
                state["noise"] = square_decay * state["noise"] + (1 - square_decay) * variance
                unbiased = (square - state["noise"]).div_(1 - square_decay**step)
                parameter.addcdiv_(mean, unbiased.clamp_(min=group["floor"]).sqrt_(), value=-group["lr"] / (1 - decay**step))


def _check_deviations(deviation: Any) -> tuple[float, ...]:
    """Check deviations and return them as a tuple, which a checkpoint can store."""
    values = (deviation,) if isinstance(deviation, int | float) else tuple(float(value) for value in deviation)
    if not values or any(real("noise_deviation", value) < 0 for value in values):
        fix = "AdamBC.of(plan, model) takes them from the plan."
        raise InvalidArgumentError("noise_deviation", deviation, "a number ≥ 0, or one per step", fix)
    return values
