"""Reference for all gradient methods: one example at a time, by plain autograd, with sums in float64."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privet.clipping import Rule
from privet.gradients.core.losses import LossFunction, check_losses

Gradients = Mapping[str, Tensor]

# The engine shrinks each contribution by this factor, so that rounding cannot exceed the bound.
SHRINK = 1 - 2**-20


def gradients_of_each(model: nn.Module, loss_fn: LossFunction, batches: Sequence[Any]) -> tuple[dict[str, Tensor], int]:
    """Return gradients of batches of one, name → (B, *shape) float64, and the number of batches that raise an exception.

    Each is computed on a copy of the model, so that no state is carried over, in the model's precision. A batch that raises an
    exception or has a non-finite gradient contributes zero.
    """
    names = [name for name, value in model.named_parameters() if value.requires_grad]
    found, failed = [], 0
    for batch in batches:
        twin = copy.deepcopy(model)
        parameters = [twin.get_parameter(name) for name in names]
        grads: Sequence[Tensor | None] = [None] * len(names)
        try:
            loss = check_losses(loss_fn(twin, batch), 1).sum()
            if loss.requires_grad:
                grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        except Exception:
            failed += 1
        dense = [torch.zeros_like(p) if g is None else g.to_dense() for p, g in zip(parameters, grads, strict=True)]
        sound = all(bool(value.isfinite().all()) for value in dense)
        found.append([value.detach().double() if sound else torch.zeros_like(value).double() for value in dense])
    return {name: torch.stack(values) for name, values in zip(names, zip(*found, strict=True), strict=True)}, failed


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
    return float(torch.cat([value.double().flatten() for value in tensors.values()]).norm())


def distance(one: Gradients, other: Gradients) -> float:
    assert {name: value.shape for name, value in one.items()} == {name: value.shape for name, value in other.items()}
    return size({name: one[name].double() - other[name].double() for name in one})
