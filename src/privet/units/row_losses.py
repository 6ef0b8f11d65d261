"""Losses over several rows that are clipped as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError, choice, count
from privet.gradients.core.examples import belongs, examples_in
from privet.gradients.core.losses import LossFunction, checked_losses

REDUCTIONS = ("mean", "sum")


def grouped(loss_fn: LossFunction, reduction: str = "mean") -> LossFunction:
    """Return the loss of units with up to k examples each, such as those of `Users` and `Groups`: a unit is clipped as one.

    Args:
        loss_fn: (model, batch) → (R,) losses, one per example, for any number R of examples.
        reduction: "mean" or "sum" over a unit's own examples.

    Returns:
        (model, (content, mask)) → (B,) losses, for content (B, k, …) and a mask (B, k) that is true where there is an example.

    Guarantee:
        A unit's loss depends on its own examples only, so its clipped gradient bounds all that they do together. The number
        of its examples, which is private, divides its own loss and nothing else.

    >>> import torch
    >>> content, mask = torch.tensor([[1.0, 3.0], [5.0, 5.0]]), torch.tensor([[True, True], [True, False]])
    >>> grouped(lambda model, x: 10 * x)(None, (content, mask))
    tensor([20., 50.])
    >>> grouped(lambda model, x: 10 * x, reduction="sum")(None, (content, mask))
    tensor([40., 50.])
    """
    _callable("loss_fn", loss_fn)
    mean = choice("reduction", reduction, REDUCTIONS) == "mean"

    def loss(model: Any, batch: Any) -> Tensor:
        content, mask = batch

        def flat(leaf: object) -> object:
            return leaf.flatten(0, 1) if isinstance(leaf, Tensor) and leaf.shape[:2] == mask.shape else leaf

        losses = checked_losses(loss_fn(model, pytree.tree_map(flat, content)), mask.numel())
        total = losses.view(mask.shape).masked_fill(~mask, 0.0).sum(1)
        return total / mask.sum(1).clamp(min=1) if mean else total

    return loss


def averaged(loss_fn: LossFunction, augment: Callable[[Any], Any], views: int) -> LossFunction:
    """Return the loss of an example as its mean over random views: the gradients of all views are averaged, then clipped.

    Args:
        loss_fn: (model, batch) → (B,) losses.
        augment: batch → batch of the same structure and shapes, each example changed by itself; called once for each view. The
            check before training follows torch.rand, randn, randint, bernoulli and their kin; a view that is made with other
            random numbers is refused there, and belongs into the data set.
        views: number K ≥ 1 of views; time and memory of a step grow with it.

    Guarantee:
        An example still has one loss and one clipped gradient, so sensitivity and ε are those of a single view.

    Source:
        De et al. 2022, "Unlocking High-Accuracy Differentially Private Image Classification through Scale", section 3.2.

    >>> import torch
    >>> shifts = iter([1.0, 3.0])
    >>> averaged(lambda model, x: x, lambda x: x + next(shifts), views=2)(None, torch.tensor([0.0, 10.0]))
    tensor([ 2., 12.])
    """
    _callable("loss_fn", loss_fn), _callable("augment", augment), count("views", views)

    def loss(model: Any, batch: Any) -> Tensor:
        examples = examples_in(batch)
        several = [augment(batch) for _ in range(views)]
        for view in several:
            if examples_in(view) != examples:
                raise InvalidArgumentError(
                    "augment", f"a function from {examples} to {examples_in(view)} examples",
                    "one that returns each example once", "It is called once for every view.",
                )  # fmt: skip

        def joined(*leaves: Any) -> Any:
            return torch.stack(leaves, 1).flatten(0, 1) if belongs(leaves[0], examples) else leaves[0]

        losses = checked_losses(loss_fn(model, pytree.tree_map(joined, *several)), examples * views)
        return losses.view(examples, views).mean(1)

    return loss


def _callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise InvalidArgumentError(name, value, "a function")
    return value
