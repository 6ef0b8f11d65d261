"""Clipping by norms that are estimated from random projections in forward mode."""

from __future__ import annotations

__all__ = ["Vector", "clip_projected", "directional_derivatives", "estimate_norms"]

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from privet.clipping import Projected
from privet.clipping.weighing import split_groups, weigh
from privet.errors import USER_ERRORS
from privet.gradients.core.examples import Examples, unflatten
from privet.gradients.core.losses import Loss, check_losses, force_eager
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.past_iterates import Past
from privet.gradients.methods.physical import forbid_user_code_on_physical_batch
from privet.gradients.methods.tape import LONG, MARGIN, Tape, precise_norms

Vector = Mapping[str, Tensor]


def directional_derivatives(
    program: Program, examples: Examples, values: Vector, direction: Vector, *, skip_errors: bool = False
) -> Tensor:
    """Return ⟨gᵢ, v⟩ for every example, (B,) float64, by one forward-mode pass at these values of the parameters."""
    module = Loss(program.model, program.loss_fn)
    point, tangent = ({f"model.{name}": tensor[name].detach() for name in values} for tensor in (values, direction))

    def one(example: object) -> Tensor:
        def loss(changed: dict[str, Tensor]) -> Tensor:
            return check_losses(functional_call(module, changed, (example,)), 1)[0]

        found: Tensor = jvp(loss, (point,), (tangent,))[1]
        return found

    # Fused attention kernels have no forward-mode derivative.
    with sdpa_kernel(SDPBackend.MATH), program.guard.isolate(), force_eager():
        return _map_examples(one, examples, skip_errors).double()


def _map_examples(one: Callable[[object], Tensor], examples: Examples, skip_errors: bool) -> Tensor:
    """Return a number for every example, (B,): by vmap, or one at a time if vmap fails."""

    def flat(_: Tensor, *leaves: object) -> Tensor:
        return one(unflatten(leaves, examples.tree))

    mapped = tuple(0 if own else None for own in examples.own)
    try:
        with forbid_user_code_on_physical_batch():
            vectorised = torch.func.vmap(flat, in_dims=(0, *mapped), randomness="different")
            found: Tensor = vectorised(torch.zeros(examples.count), *examples.leaves)
        return found
    except KeyboardInterrupt:
        raise
    except USER_ERRORS:  # and torch raises many kinds for what it cannot vectorise
        return torch.stack([_run_one(one, examples.get(position), skip_errors) for position in range(examples.count)])


def _run_one(one: Callable[[object], Tensor], example: object, skip_errors: bool) -> Tensor:
    try:
        return one(example)
    except KeyboardInterrupt:
        raise
    except USER_ERRORS:
        if not skip_errors:
            raise
        return torch.tensor(torch.nan)


def estimate_norms(
    program: Program, examples: Examples, directions: Iterable[Vector], past: Past = (), *, skip_errors: bool = False
) -> Tensor:
    """Return √(1/r · Σᵣ ⟨gᵢ, vᵣ⟩²), (B,) float64, where gᵢ includes the gradients at past parameter sets.

    With `skip_errors`, an example whose own computation raises has an estimate of NaN.
    """
    squares: list[Tensor] = []
    for direction in directions:
        found = directional_derivatives(program, examples, program.parameters, direction, skip_errors=skip_errors)
        for coefficient, values in past:
            found += coefficient * directional_derivatives(program, examples, values, direction, skip_errors=skip_errors)
        squares.append(found.square_())
    return torch.stack(squares).mean(0).sqrt_()


def clip_projected(
    rule: Projected, parameters: Mapping[str, Tensor], estimated: Tensor, covering: Iterable[tuple[Tensor, Tape]]
) -> Iterator[tuple[Tensor, dict[str, Tensor], Tensor]]:
    """Yield positions of examples, their sum weighted by estimated norms, and the estimates, until all are covered.

    An example whose estimate or gradient is not finite, or too long to be weighted in float32, contributes exactly zero.

    Args:
        rule: computes weights from the estimates.
        parameters: name → trainable parameter.
        estimated: norms of all examples, (B,) float64.
        covering: positions and tapes; the tapes are consumed.

    Returns:
        Positions (b,), parameter name → Σᵢ wᵢ·gᵢ, and the estimates, (1, b) float64 (infinite for a zero contribution).
    """
    groups = split_groups(rule, tuple(parameters))
    for index, tape in covering:
        norms = estimated[index.to(estimated.device)][None]
        norms = norms.where(norms < LONG, torch.inf)
        weights = weigh(rule, norms, groups)[0] * MARGIN
        sums = tape.weighted_sum(groups, weights)
        if not all(bool(value.isfinite().all()) for value in sums.values()):
            sound = ((weights > 0) & precise_norms(tape, groups).isfinite()).all(0).nonzero().flatten()
            sums = tape.index_select(sound).weighted_sum(groups, weights[:, sound])
        yield index, sums, norms
