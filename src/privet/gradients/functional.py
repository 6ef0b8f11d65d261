"""Per-example gradients for models that the tape cannot follow: by `torch.func`, or one example at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils import _pytree as pytree

from privet.gradients.interception import LossFunction, checked_losses
from privet.gradients.tape import Tape
from privet.gradients.trees import belongs, examples_in, rows
from privet.gradients.uses import DirectUse

# Numbers of per-example gradients held at a time.
_HELD = 1 << 24


class Loss(nn.Module):
    """The loss as a module, so that its parameters can be swapped by name."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, batch: Any) -> Tensor:
        """Return the losses."""
        return self.loss_fn(self.model, batch)


def plain_gradients(total: Tensor, parameters: Iterable[Tensor]) -> list[Tensor | None]:
    """Return the gradients of a number by autograd, dense also where an embedding makes them sparse; None for unused ones."""
    wanted = list(parameters)
    if not total.requires_grad:
        return [None] * len(wanted)
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return [gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient for gradient in found]


def vectorised(model: nn.Module, loss_fn: LossFunction, batch: Any, parameters: Mapping[str, Tensor]) -> Iterator[Tape]:
    """Yield tapes over the batch by `vmap(grad)`, a bounded number of gradients at a time.

    Raises:
        Exception: whatever torch raises for a model that it cannot vectorise.
    """
    examples = examples_in(batch)
    leaves, tree = pytree.tree_flatten(batch)
    mapped = [0 if belongs(leaf, examples) else None for leaf in leaves]
    module = Loss(model, loss_fn)

    def loss(values: dict[str, Tensor], *example: Any) -> Tensor:
        single = [leaf if where is None else leaf[None] for leaf, where in zip(example, mapped, strict=True)]
        named = {f"model.{name}": value for name, value in values.items()}
        return checked_losses(functional_call(module, named, (pytree.tree_unflatten(single, tree),)), 1)[0]

    values = {name: parameter.detach() for name, parameter in parameters.items()}
    size = max(1, _HELD // max(1, sum(value.numel() for value in values.values())))
    for start in range(0, examples, size):
        part = [leaf if where is None else leaf[start : start + size] for leaf, where in zip(leaves, mapped, strict=True)]
        grads = vmap(grad(loss), in_dims=(None, *mapped), randomness="different")(values, *part)
        held = min(size, examples - start)
        yield Tape(held, parameters, {name: DirectUse(value.detach()) for name, value in grads.items()})


def one_by_one(model: nn.Module, loss_fn: LossFunction, batch: Any, parameters: Mapping[str, Tensor]) -> Iterator[Tape]:
    """Yield a tape per example by plain autograd: slow, and right for every model whose examples are independent."""
    for position in range(examples_in(batch)):
        with torch.enable_grad():
            loss = checked_losses(loss_fn(model, rows(batch, slice(position, position + 1))), 1).sum()
            found = plain_gradients(loss, parameters.values())
        pairs = zip(parameters, found, strict=True)
        yield Tape(1, parameters, {name: DirectUse(value[None]) for name, value in pairs if value is not None})
