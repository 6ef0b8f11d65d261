"""What every method is measured against: one example at a time, in float64, by plain autograd."""

from __future__ import annotations

import copy

import torch
from torch.utils import _pytree as pytree

# The engine shrinks every contribution by this factor, so that rounding cannot carry it over the bound.
SHRINK = 1 - 2**-20


def cast(batch, dtype):
    """The batch with its real numbers in this precision."""
    return pytree.tree_map(lambda leaf: leaf.to(dtype) if leaf.is_floating_point() else leaf, batch)


def examples(batch):
    return len(pytree.tree_leaves(batch)[0])


def select(batch, index):
    return pytree.tree_map(lambda leaf: leaf[index], batch)


def without(batch, position):
    """The neighbouring batch: everything but one example."""
    return select(batch, [i for i in range(examples(batch)) if i != position])


def plain_gradients(model, loss_fn, batch):
    """Name → (B, *shape) float64, by a loop that shares nothing with the library."""
    model, batch = copy.deepcopy(model).double(), cast(batch, torch.float64)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = {name: [] for name in named}
    for position in range(examples(batch)):
        loss = loss_fn(model, select(batch, slice(position, position + 1))).sum()
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        for (name, parameter), value in zip(named.items(), grads, strict=True):
            found[name].append(torch.zeros_like(parameter) if value is None else value)
    return {name: torch.stack(values).detach() for name, values in found.items()}


def norms_of(gradients):
    """(B,) norms over all parameters together."""
    return torch.stack([value.reshape(len(value), -1).square().sum(1) for value in gradients.values()]).sum(0).sqrt()


def clip_weights(kind, bound, norms):
    """The two rules, written down a second time."""
    return torch.clamp(bound / norms, max=1.0) if kind == "Flat" else bound / (norms + 0.01)


def plain_clipped_sum(gradients, kind, bound):
    weights = clip_weights(kind, bound, norms_of(gradients))
    return {name: SHRINK * torch.einsum("b,b...->...", weights, value) for name, value in gradients.items()}


def size(tensors):
    """L2 norm over all tensors together, in float64."""
    return torch.cat([value.double().flatten() for value in tensors.values()]).norm().item()


def distance(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].shape == other[name].shape, name
    return size({name: one[name].double() - other[name].double() for name in one})


def relative_error(found, expected):
    """Distance relative to the whole of what is expected, so that parameters whose gradient is zero do not divide by it."""
    return distance(found, expected) / (size(expected) or 1.0)


def relative_error_per_example(found, expected):
    return max(relative_error(select(found, i), select(expected, i)) for i in range(examples(expected)))
