"""The neural tangent kernel of a batch, with clipping."""

from __future__ import annotations

__all__ = ["UNCLIPPED", "Criterion", "LossSlope", "TangentKernel", "loss_of", "loss_slope", "mean_loss", "tangent_kernel"]

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from privet.clipping import Rule, Unclipped
from privet.gradients import per_example_gradients, trainable
from privet_experiments.studies.gradients import compute_clipped_gradients, preserve_random_state
from privet_experiments.studies.marking import NonPrivate

Criterion = Callable[[Tensor, Tensor], Tensor]

# The rule without clipping: every weight is 1.
UNCLIPPED = Unclipped(1.0, non_private=True)
# Tolerance for float64 rounding, relative to the kernel's largest entry.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class TangentKernel(NonPrivate):
    """The matrix K that governs a batch's outputs and loss under gradient flow: ḟ = −K(∂L/∂f)ᵀ, L̇ = −(∂L/∂f)K(∂L/∂f)ᵀ.

    Without clipping it is H = (∂f/∂w)(∂f/∂w)ᵀ, symmetric and positive semi-definite. With a rule of one group it is H·C, where C
    is the diagonal matrix of the examples' weights; with several groups it is ΣᵣHᵣCᵣ.

    Args:
        matrix: (B·K, B·K) float64 for B examples with K outputs each, those of an example adjacent.
    """

    matrix: Tensor

    def summary(self) -> str:
        """Return its size and spectrum."""
        return (
            f"{len(self.matrix)} outputs, asymmetry {self.asymmetry:.3g}, smallest eigenvalue of the symmetric part "
            f"{self.smallest_quadratic:.4g}, smallest real part {self.smallest_real:.4g}"
        )

    @property
    def asymmetry(self) -> float:
        """Largest entry of K − Kᵀ relative to that of K; 0 for a symmetric kernel."""
        size = float(self.matrix.abs().max())
        return float((self.matrix - self.matrix.T).abs().max()) / size if size else 0.0

    @cached_property
    def smallest_quadratic(self) -> float:
        """Smallest eigenvalue of the symmetric part: the minimum of xᵀKx over unit vectors x."""
        return float(torch.linalg.eigvalsh((self.matrix + self.matrix.T) / 2)[0])

    @cached_property
    def smallest_real(self) -> float:
        """Smallest real part of the eigenvalues."""
        return float(torch.linalg.eigvals(self.matrix).real.min())

    @property
    def symmetric(self) -> bool:
        """Whether it is symmetric, up to rounding."""
        return self.asymmetry <= _ROUNDING

    @property
    def positive_in_quadratic_form(self) -> bool:
        """Whether xᵀKx ≥ 0 for every x, up to rounding, so that the flow cannot raise the loss.

        Source: Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Definition 4.2.
        """
        return self.smallest_quadratic >= -_ROUNDING * float(self.matrix.abs().max())

    @property
    def positive_in_eigenvalues(self) -> bool:
        """Whether no eigenvalue has a negative real part, up to rounding; same source."""
        return self.smallest_real >= -_ROUNDING * float(self.matrix.abs().max())


@dataclass(frozen=True, repr=False)
class LossSlope(NonPrivate):
    """Rate of change of the mean loss of a batch under gradient flow.

    Args:
        predicted: −(∂L/∂f)K(∂L/∂f)ᵀ.
        measured: central difference of the loss along the flow's path.
    """

    predicted: float
    measured: float


def tangent_kernel(
    model: nn.Module, criterion: Criterion, inputs: Any, targets: Tensor, rule: Rule | None = None
) -> TangentKernel:
    """Return the tangent kernel of a batch. The result is NOT PRIVATE.

    Args:
        model: maps B inputs to B outputs of any shape, in its current mode; in float64 if eigenvalues near 0 matter. It is not
            modified.
        criterion: (outputs, targets) → (B,) losses, such as `nn.CrossEntropyLoss(reduction="none")`.
        inputs: B examples.
        targets: (B, …).
        rule: any clipping rule, including those that a plan refuses; None for no clipping.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Eq. 3.1, 4.3 and 4.4.

    >>> from privet.clipping import Flat
    >>> model, x = nn.Linear(2, 1, bias=False).double(), torch.tensor([[1.0, 0.0], [1.0, 1.0]]).double()
    >>> def squared(outputs, targets):
    ...     return (outputs[:, 0] - targets).square()
    >>> tangent_kernel(model, squared, x, torch.zeros(2)).matrix
    tensor([[1., 1.],
            [1., 2.]], dtype=torch.float64)
    >>> tangent_kernel(model, squared, x, torch.tensor([50.0, 0.1]), Flat(1.0)).symmetric
    False
    """
    jacobian, examples = _jacobian(model, inputs)
    groups, weights = _weights(model, criterion, inputs, targets, rule)
    repeat = next(iter(jacobian.values())).shape[0] // max(1, examples)
    total = torch.zeros(())
    for names, row in zip(groups, weights, strict=True):
        kernel = sum((jacobian[name] @ jacobian[name].T for name in names), torch.zeros(()))
        total = total + kernel * row.repeat_interleave(repeat)
    return TangentKernel(total)


def loss_slope(
    model: nn.Module, criterion: Criterion, inputs: Any, targets: Tensor, rule: Rule | None = None, *, distance: float = 1e-5
) -> LossSlope:
    """Return the rate of change of the mean loss under gradient flow; `distance` is the step of the central difference."""
    kernel = tangent_kernel(model, criterion, inputs, targets, rule)
    with preserve_random_state(model):
        outputs = model(inputs)
    loss = criterion(outputs, targets).mean()
    misfit = torch.autograd.grad(loss, outputs)[0].double().reshape(-1)
    velocity = compute_clipped_gradients(model, loss_of(criterion), (inputs, targets), rule or UNCLIPPED).clipped
    speed = math.sqrt(sum(float(value.square().sum()) for value in velocity.values()))
    time = distance / speed if speed else 1.0
    ahead, behind = (_loss_at(model, criterion, inputs, targets, velocity, -sign * time) for sign in (1, -1))
    return LossSlope(-float(misfit @ kernel.matrix @ misfit), (ahead - behind) / (2 * time))


def loss_of(criterion: Criterion) -> Callable[[Any, Any], Tensor]:
    """Return the loss function of a criterion: (model, (inputs, targets)) → (B,)."""
    return lambda model, batch: criterion(model(batch[0]), batch[1])


def mean_loss(model: nn.Module, criterion: Criterion, inputs: Any, targets: Tensor) -> float:
    """Return the mean loss of a batch."""
    with torch.no_grad(), preserve_random_state(model):
        return float(criterion(model(inputs), targets).double().mean())


def _jacobian(model: nn.Module, inputs: Any) -> tuple[dict[str, Tensor], int]:
    """Return name → (B·K, d) of the outputs, and B."""
    with torch.no_grad(), preserve_random_state(model):
        outputs = model(inputs)
    examples, width = len(outputs), outputs[0].numel()
    columns = []
    for column in range(width):
        with preserve_random_state(model):
            columns.append(per_example_gradients(model, partial(_column, column), inputs))
    jacobian = {name: torch.stack([found[name] for found in columns], dim=1) for name in columns[0]}
    return {name: value.double().flatten(2).flatten(0, 1) for name, value in jacobian.items()}, examples


def _column(column: int, model: Any, inputs: Any) -> Tensor:
    """Return one output of every example, (B,)."""
    outputs: Tensor = model(inputs)
    return outputs if outputs.ndim == 1 else outputs.flatten(1)[:, column]


def _weights(
    model: nn.Module, criterion: Criterion, inputs: Any, targets: Tensor, rule: Rule | None
) -> tuple[tuple[tuple[str, ...], ...], Tensor]:
    """Return the rule's groups of parameters and the examples' weights in each, (G, B)."""
    chosen = rule or UNCLIPPED
    weights = compute_clipped_gradients(model, loss_of(criterion), (inputs, targets), chosen).weights
    return chosen.groups(tuple(trainable(model))), weights.double()


def _loss_at(
    model: nn.Module, criterion: Criterion, inputs: Any, targets: Tensor, direction: Mapping[str, Tensor], time: float
) -> float:
    moved = deepcopy(model)
    with torch.no_grad():
        for name, parameter in trainable(moved).items():
            parameter.add_(time * direction[name])
    return mean_loss(moved, criterion, inputs, targets)
