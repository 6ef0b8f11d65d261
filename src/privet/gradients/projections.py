"""What random directions tell about every example's gradient, and a sum that is weighted by it: plain passes, no records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from privet.clipping import Projected
from privet.gradients.functional import Loss, plain_gradients
from privet.gradients.history import Past, holding
from privet.gradients.interception import LossFunction, checked_losses
from privet.gradients.tape import LONG, MARGIN, Tape, precise_norms
from privet.gradients.trees import examples_in


def products(
    model: nn.Module, loss_fn: LossFunction, batch: Any, values: Mapping[str, Tensor], direction: Mapping[str, Tensor]
) -> Tensor:
    """Return ⟨gᵢ, v⟩ for every example, (B,) float64, by one forward-mode pass with these values of the parameters."""
    module, examples = Loss(model, loss_fn), examples_in(batch)

    def losses(changed: dict[str, Tensor]) -> Tensor:
        return checked_losses(functional_call(module, changed, (batch,)), examples)

    point, tangent = ({f"model.{name}": tensor[name].detach() for name in values} for tensor in (values, direction))
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no forward-mode derivative
        found: Tensor = jvp(losses, (point,), (tangent,))[1]
    return found.double()


def estimates(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    parameters: Mapping[str, Tensor],
    directions: Iterable[Mapping[str, Tensor]],
    past: Past = (),
) -> Tensor:
    """Return √(1/r · Σᵣ ⟨gᵢ, vᵣ⟩²), (B,) float64, with the gradients at past parameter sets counted in."""
    squares: list[Tensor] = []
    for direction in directions:
        found = products(model, loss_fn, batch, parameters, direction)
        for coefficient, values in past:
            found += coefficient * products(model, loss_fn, batch, values, direction)
        squares.append(found.square_())
    return torch.stack(squares).mean(0).sqrt_()


def weighted_sum(
    model: nn.Module, loss_fn: LossFunction, batch: Any, parameters: Mapping[str, Tensor], weights: Tensor, past: Past = ()
) -> dict[str, Tensor]:
    """Return Σᵢ wᵢ·gᵢ by plain backward passes; not finite if one of the gradients is not, whatever its weight."""
    sums = {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in parameters.items()}
    for coefficient, values in ((1.0, {name: parameter.data for name, parameter in parameters.items()}), *past):
        with holding(parameters, values), torch.enable_grad():
            losses = checked_losses(loss_fn(model, batch), len(weights))
            total = (losses * (coefficient * weights).to(losses.dtype)).where(weights > 0, 0).sum()
            found = plain_gradients(total, parameters.values())
        for name, value in zip(parameters, found, strict=True):
            if value is not None:
                sums[name] += value
    return sums


def clip_projected(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    rule: Projected,
    parameters: Mapping[str, Tensor],
    directions: Iterable[Mapping[str, Tensor]],
    past: Past,
    tapes: Callable[[], Iterator[Tape]],
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the sum that is weighted by estimated norms, and the estimates.

    An example whose estimate or gradient is not finite, or too long for float32 to be weighted down, contributes exactly zero.
    What it would spoil of a plain sum comes from the tapes then; everybody else's contribution is the same.

    Args:
        model, loss_fn, batch, parameters, past: as for `privet.clipped_sum`.
        rule: that weights the estimates.
        directions: r of them.
        tapes: that cover the batch in order.

    Returns:
        Parameter name → Σᵢ wᵢ·gᵢ, and the estimates, (1, B) float64 (infinite where nothing is contributed).
    """
    groups = rule.groups(tuple(parameters))
    norms = estimates(model, loss_fn, batch, parameters, directions, past)[None]
    norms = norms.where(norms < LONG, torch.inf)
    weights = rule.weights(norms) * MARGIN
    sums = weighted_sum(model, loss_fn, batch, parameters, weights[0], past)
    if not all(bool(value.isfinite().all()) for value in sums.values()):
        sums, start = {}, 0
        for tape in tapes():
            own = weights[:, start : start + tape.examples]
            start += tape.examples
            sound = ((own > 0) & precise_norms(tape, groups).isfinite()).all(0).nonzero().flatten()
            for name, value in tape.rows(sound).weighted_sum(groups, own[:, sound]).items():
                sums[name] = sums[name] + value if name in sums else value
    return sums, norms
