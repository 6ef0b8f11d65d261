"""Reference for all gradient methods: one example at a time, in float64, by plain autograd."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet.clipping import Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.gradients.core.examples import count_examples, select_examples
from privet.gradients.core.losses import LossFunction, check_losses

Gradients = Mapping[str, Tensor]

# The engine shrinks each contribution by this factor, so that rounding cannot exceed the bound.
SHRINK = 1 - 2**-20


def cast(batch: Any, dtype: torch.dtype) -> Any:
    """Return the batch with its floating-point tensors cast to this type."""
    return pytree.tree_map(lambda leaf: leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf, batch)


def without(batch: Any, position: int) -> Any:
    """Return the neighbouring batch without one example."""
    return select_examples(
        batch, torch.tensor([i for i in range(count_examples(batch)) if i != position], dtype=torch.int64, device="cpu")
    )


def plain_gradients(model: nn.Module, loss_fn: LossFunction, batch: Any) -> dict[str, Tensor]:
    """Return per-example gradients, name → (B, *shape) float64, by a loop that shares no code with the tested methods."""
    model, batch = copy.deepcopy(model).double(), cast(batch, torch.float64)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found: dict[str, list[Tensor]] = {name: [] for name in named}
    for position in range(count_examples(batch)):
        loss = check_losses(loss_fn(model, select_examples(batch, slice(position, position + 1))), 1).sum()
        unused = [None] * len(named)
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True) if loss.requires_grad else unused
        for (name, parameter), value in zip(named.items(), grads, strict=True):
            found[name].append(torch.zeros_like(parameter) if value is None else value)
    return {name: torch.stack(values).detach() for name, values in found.items()}


def gradients_of_each(model: nn.Module, loss_fn: LossFunction, batches: Sequence[Any]) -> tuple[dict[str, Tensor], int]:
    """Return gradients of batches of one, name → (B, *shape) float64, and the number of batches that raise an exception.

    They are computed by plain autograd in the model's precision, each on a copy of the model, so that no state is carried over. A
    batch that raises an exception or has a non-finite gradient contributes zero.
    """
    found: dict[str, list[Tensor]] = {name: [] for name, value in model.named_parameters() if value.requires_grad}
    failed = 0
    for batch in batches:
        twin = copy.deepcopy(model)
        named = {name: value for name, value in twin.named_parameters() if value.requires_grad}
        grads: Sequence[Tensor | None] = [None] * len(named)
        try:
            loss = check_losses(loss_fn(twin, batch), 1).sum()
            if loss.requires_grad:
                grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        except Exception:
            failed += 1
        dense = [torch.zeros_like(p) if g is None else g.detach() for p, g in zip(named.values(), grads, strict=True)]
        sound = all(bool(value.isfinite().all()) for value in dense)
        for name, value in zip(named, dense, strict=True):
            found[name].append(value.double().to_dense() if sound else torch.zeros_like(value, dtype=torch.float64))
    return {name: torch.stack(values).detach() for name, values in found.items()}, failed


def norms_of(gradients: Gradients) -> Tensor:
    """Return the norms over all parameters, (B,)."""
    return torch.stack([value.reshape(len(value), -1).square().sum(1) for value in gradients.values()]).sum(0).sqrt()


def weighted_sum(gradients: Gradients, rule: Rule) -> dict[str, Tensor]:
    """Return the sum of gradients, with each group weighted by the rule according to its norm."""
    groups = rule.groups(tuple(gradients))
    norms = torch.stack([norms_of({name: gradients[name] for name in group}) for group in groups])
    return {
        name: SHRINK * torch.einsum("b,b...->...", weights, gradients[name])
        for group, weights in zip(groups, rule.weights(norms), strict=True)
        for name in group
    }


def size(tensors: Gradients) -> float:
    """Return the L2 norm over all tensors, in float64."""
    return float(torch.cat([value.double().flatten() for value in tensors.values()]).norm())


def distance(one: Gradients, other: Gradients) -> float:
    """Return the L2 distance, in float64."""
    assert {name: value.shape for name, value in one.items()} == {name: value.shape for name, value in other.items()}
    return size({name: one[name].double() - other[name].double() for name in one})


def moved(one: ClippedSum, other: ClippedSum) -> float:
    """Return the distance of two sums, with each tensor and statistic divided by its noise scale."""
    assert one.noise_scales == other.noise_scales
    scaled = [{name: t.double() / made.noise_scales.get(name, 1.0) for name, t in made.tensors.items()} for made in (one, other)]
    return distance(*scaled)


def relative_error(found: Gradients, expected: Gradients) -> float:
    """Return the distance relative to the norm over all parameters, which also works for parameters with zero gradient."""
    return distance(found, expected) / (size(expected) or 1.0)


def relative_error_per_example(found: Gradients, expected: Gradients) -> float:
    """Return the largest relative error of an example's gradient."""
    examples = len(next(iter(expected.values())))
    return max(relative_error(_one(found, i), _one(expected, i)) for i in range(examples))


def _one(gradients: Gradients, position: int) -> dict[str, Tensor]:
    return {name: value[position] for name, value in gradients.items()}
