"""Gradient flow of optimizers with clipping and noise, in small steps on a copy of the model."""

from __future__ import annotations

__all__ = ["Flow", "gradient_flow"]

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privet.clipping import Rule
from privet.errors import InvalidArgumentError, count, positive, real
from privet.gradients import trainable
from privet_experiments.studies.gradients import compute_clipped_gradients
from privet_experiments.studies.marking import NonPrivate
from privet_experiments.tangent_kernel.dynamics import GRADIENT_DESCENT, Dynamics, Motion
from privet_experiments.tangent_kernel.kernel import UNCLIPPED, Criterion, TangentKernel, loss_of, mean_loss, tangent_kernel


@dataclass(frozen=True, eq=False, repr=False)
class Flow(NonPrivate):
    """The path of gradient flow, with or without noise.

    Args:
        losses: mean loss before each step and after the last.
        kernels: the requested tangent kernels along the path, the first before the first step.
        model: the copy of the model, with its final parameters.
    """

    losses: tuple[float, ...]
    kernels: tuple[TangentKernel, ...]
    model: nn.Module

    def summary(self) -> str:
        """Return a summary of the loss."""
        return f"{len(self.losses) - 1} steps, loss from {self.losses[0]:.4g} to {self.losses[-1]:.4g}, monotone: {self.monotone}"

    @property
    def monotone(self) -> bool:
        """Whether no step raised the loss, up to rounding."""
        first = max(abs(self.losses[0]), 1e-300)
        return all(after <= before + 1e-12 * first for before, after in zip(self.losses, self.losses[1:], strict=False))

    def parameters(self) -> Tensor:
        """Return all final trainable parameters as one float64 vector."""
        return torch.cat([value.detach().double().flatten() for value in trainable(self.model).values()])


def gradient_flow(
    model: nn.Module,
    criterion: Criterion,
    inputs: Any,
    targets: Tensor,
    rule: Rule | None = None,
    *,
    learning_rate: float,
    steps: int,
    noise_multiplier: float = 0.0,
    seed: int = 0,
    looks: int = 0,
    dynamics: Dynamics = GRADIENT_DESCENT,
) -> Flow:
    """Take full-batch steps w ← w − η/n·(Σ wᵢgᵢ + σ·sensitivity·z) on a copy of the model, or those of another optimizer's flow.

    For public or synthetic data only: the noise comes from a seed and the losses are recorded, so this is not private training.

    Args:
        model, criterion, inputs, targets, rule: as for `tangent_kernel`; the tape must support the model.
        learning_rate: η > 0; smaller values follow the flow more closely.
        steps: number of steps, ≥ 1.
        noise_multiplier: σ ≥ 0.
        seed: seed of the noise.
        looks: number of tangent kernels to record, evenly spaced over the steps.
        dynamics: the dynamical system of the optimizer; a step advances its time by η.

    Raises:
        InvalidArgumentError: an argument is out of range, or there is noise and the rule has no sensitivity.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Eq. 4.1.
    """
    positive("learning_rate", learning_rate)
    count("steps", steps)
    count("looks", looks, minimum=0)
    if real("noise_multiplier", noise_multiplier) < 0:
        raise InvalidArgumentError("noise_multiplier", noise_multiplier, "at least 0")
    moved, chosen = deepcopy(model), rule or UNCLIPPED
    deviation = noise_multiplier * chosen.sensitivity / len(targets) if noise_multiplier else 0.0
    generator, motion = torch.Generator().manual_seed(seed), Motion(dynamics, learning_rate)
    seen = {look * steps // looks for look in range(looks)}
    losses, kernels = [], []
    for step in range(steps):
        losses.append(mean_loss(moved, criterion, inputs, targets))
        if step in seen:
            kernels.append(tangent_kernel(moved, criterion, inputs, targets, rule))
        mean = compute_clipped_gradients(moved, loss_of(criterion), (inputs, targets), chosen, method="ghost").clipped
        noised = {name: value + deviation * _normals(value, generator) for name, value in mean.items()}
        with torch.no_grad():
            for name, direction in motion.step(noised).items():
                trainable(moved)[name].sub_(learning_rate * direction)
    losses.append(mean_loss(moved, criterion, inputs, targets))
    return Flow(tuple(losses), tuple(kernels), moved)


def _normals(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)
