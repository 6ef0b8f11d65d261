"""What random directions tell about every example's gradient, and a sum that is weighted by it: plain passes, no records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from privet.clipping import Projected
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import Loss, checked_losses, uncompiled
from privet.gradients.methods.ghost import Subject
from privet.gradients.methods.past_iterates import Past
from privet.gradients.methods.physical import no_user_code_on_the_physical_batch
from privet.gradients.methods.tape import LONG, MARGIN, Tape, precise_norms

Vector = Mapping[str, Tensor]


def products(subject: Subject, examples: Examples, values: Vector, direction: Vector, *, forgiving: bool = False) -> Tensor:
    """Return ⟨gᵢ, v⟩ for every example, (B,) float64, by one forward-mode pass for each with these values of the parameters."""
    module = Loss(subject.model, subject.loss_fn)
    point, tangent = ({f"model.{name}": tensor[name].detach() for name in values} for tensor in (values, direction))

    def one(example: object) -> Tensor:
        def loss(changed: dict[str, Tensor]) -> Tensor:
            return checked_losses(functional_call(module, changed, (example,)), 1)[0]

        found: Tensor = jvp(loss, (point,), (tangent,))[1]
        return found

    # The fused kernels of attention have no forward-mode derivative.
    with sdpa_kernel(SDPBackend.MATH), subject.guard.fresh(), uncompiled():
        return _over(one, examples, forgiving).double()


def _over(one: Callable[[object], Tensor], examples: Examples, forgiving: bool) -> Tensor:
    """Return a number for every example, (B,): by vmap, or one at a time for what that cannot do."""

    def flat(_: Tensor, *leaves: object) -> Tensor:
        return one(pytree.tree_unflatten(list(leaves), examples.tree))

    mapped = tuple(0 if own else None for own in examples.own)
    try:
        with no_user_code_on_the_physical_batch():
            vectorised = torch.func.vmap(flat, in_dims=(0, *mapped), randomness="different")
            found: Tensor = vectorised(torch.zeros(examples.count), *examples.leaves)
        return found
    except Exception:  # torch raises many kinds for what it cannot vectorise
        return torch.stack([_alone(one, examples.one(position), forgiving) for position in range(examples.count)])


def _alone(one: Callable[[object], Tensor], example: object, forgiving: bool) -> Tensor:
    try:
        return one(example)
    except Exception:
        if not forgiving:
            raise
        return torch.tensor(torch.nan)


def estimates(
    subject: Subject, examples: Examples, directions: Iterable[Vector], past: Past = (), *, forgiving: bool = False
) -> Tensor:
    """Return √(1/r · Σᵣ ⟨gᵢ, vᵣ⟩²), (B,) float64, with the gradients at past parameter sets counted in.

    An example whose own computation raises has an estimate of NaN, if that is to be forgiven.
    """
    squares: list[Tensor] = []
    for direction in directions:
        found = products(subject, examples, subject.parameters, direction, forgiving=forgiving)
        for coefficient, values in past:
            found += coefficient * products(subject, examples, values, direction, forgiving=forgiving)
        squares.append(found.square_())
    return torch.stack(squares).mean(0).sqrt_()


def clip_projected(
    rule: Projected, parameters: Mapping[str, Tensor], estimated: Tensor, covering: Iterable[tuple[Tensor, Tape]]
) -> Iterator[tuple[Tensor, dict[str, Tensor], Tensor]]:
    """Yield positions of examples, their sum weighted by estimated norms, and the estimates, until all are covered.

    An example whose estimate or gradient is not finite, or too long for float32 to be weighted down, contributes exactly zero.

    Args:
        rule: that weights the estimates.
        parameters: name → trainable parameter.
        estimated: norms of all examples, (B,) float64.
        covering: positions and tapes; these are spent.

    Returns:
        Positions (b,), parameter name → Σᵢ wᵢ·gᵢ, and the estimates, (1, b) float64 (infinite where nothing is contributed).
    """
    groups = rule.groups(tuple(parameters))
    for index, tape in covering:
        norms = estimated[index.to(estimated.device)][None]
        norms = norms.where(norms < LONG, torch.inf)
        weights = rule.weights(norms) * MARGIN
        sums = tape.weighted_sum(groups, weights)
        if not all(bool(value.isfinite().all()) for value in sums.values()):
            sound = ((weights > 0) & precise_norms(tape, groups).isfinite()).all(0).nonzero().flatten()
            sums = tape.index_select(sound).weighted_sum(groups, weights[:, sound])
        yield index, sums, norms
