"""Derivatives of every example's loss along a direction, in forward mode."""

from __future__ import annotations

__all__ = ["Vector", "directional_derivatives"]

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from privet.errors import USER_ERRORS
from privet.gradients.core.examples import Examples, unflatten
from privet.gradients.core.losses import Loss, check_losses, force_eager
from privet.gradients.core.private import hold_signals, raise_interrupt
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.physical import forbid_user_code_on_physical_batch

Vector = Mapping[str, Tensor]


@hold_signals()
def directional_derivatives(program: Program, examples: Examples, values: Vector, direction: Vector) -> Tensor:
    """Return ⟨gᵢ, v⟩ for every example, (B,) float64, by one forward-mode pass at these values of the parameters.

    Not for clipping: a forward-mode derivative need not be that of the gradient that a backward pass finds. They differ where a
    value is computed without gradients (`torch.no_grad`), at ties, by rounding, and for random models.
    """
    module = Loss(program.model, program.loss_fn)
    point, tangent = ({f"model.{name}": tensor[name].detach() for name in values} for tensor in (values, direction))

    def one(example: object) -> Tensor:
        def loss(changed: dict[str, Tensor]) -> Tensor:
            return check_losses(functional_call(module, changed, (example,)), 1)[0]

        found: Tensor = jvp(loss, (point,), (tangent,))[1]
        return found

    # Fused attention kernels have no forward-mode derivative.
    with sdpa_kernel(SDPBackend.MATH), program.guard.isolate(), force_eager():
        return _map_examples(one, examples).double()


def _map_examples(one: Callable[[object], Tensor], examples: Examples) -> Tensor:
    """Return a number for every example, (B,): by vmap, or one at a time if vmap fails."""

    def flat(_: Tensor, *leaves: object) -> Tensor:
        return one(unflatten(leaves, examples.tree))

    mapped = tuple(0 if own else None for own in examples.own)
    try:
        with forbid_user_code_on_physical_batch():
            vectorised = torch.func.vmap(flat, in_dims=(0, *mapped), randomness="different")
            found: Tensor = vectorised(torch.zeros(examples.count, device="cpu"), *examples.leaves)
        return found
    except USER_ERRORS as error:  # and torch raises many kinds for what it cannot vectorise
        raise_interrupt(error)
        return torch.stack([one(examples.get(position)) for position in range(examples.count)])
