"""Losses over several rows that are clipped as one: the examples of a unit, or the views of an example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError, choice, count
from privet.gradients.core.examples import count_examples, is_per_example
from privet.gradients.core.losses import LossFunction, check_losses

REDUCTIONS = ("mean", "sum")


def grouped(loss_fn: LossFunction, reduction: str = "mean") -> LossFunction:
    """Return the loss of units of up to k examples, such as those of `Users` and `Groups`, each clipped as one.

    Args:
        loss_fn: (model, batch) → (R,) losses, one per example, for any number R of examples.
        reduction: "mean" or "sum" over the examples of a unit.

    Returns:
        (model, (content, mask)) → (B,) losses, for content (B, k, …) and a mask (B, k) that is true where there is an example.

    Guarantee:
        A unit's loss depends on its own examples only, so clipping its gradient bounds their joint contribution. The number of
        its examples, which is private, affects only its own loss.

    >>> import torch
    >>> content, mask = torch.tensor([[1.0, 3.0], [5.0, 5.0]]), torch.tensor([[True, True], [True, False]])
    >>> grouped(lambda model, x: 10 * x)(None, (content, mask))
    tensor([20., 50.])
    >>> grouped(lambda model, x: 10 * x, reduction="sum")(None, (content, mask))
    tensor([40., 50.])
    """
    _check_callable("loss_fn", loss_fn)
    mean = choice("reduction", reduction, REDUCTIONS) == "mean"

    def loss(model: Any, batch: Any) -> Tensor:
        content, mask = batch

        def flat(leaf: object) -> object:
            return leaf.flatten(0, 1) if isinstance(leaf, Tensor) and leaf.shape[:2] == mask.shape else leaf

        losses = check_losses(loss_fn(model, pytree.tree_map(flat, content)), mask.numel())
        total = losses.view(mask.shape).masked_fill(~mask, 0.0).sum(1)
        return total / mask.sum(1).clamp(min=1) if mean else total

    return loss


def averaged(loss_fn: LossFunction, augment: Callable[[Any], Any], views: int) -> LossFunction:
    """Return the loss of an example as its mean over random views: the gradients of all views are averaged, then clipped.

    Args:
        loss_fn: (model, batch) → (B,) losses.
        augment: batch → batch of the same structure and shapes, which changes each example independently; called once per view.
            The check before training supports torch.rand, randn, randint, bernoulli and similar functions, and refuses other
            sources of randomness; augment in the data set to use those.
        views: number K ≥ 1 of views; time and memory of a step grow with it.

    Guarantee:
        An example still has one loss and one clipped gradient, so sensitivity and ε are the same as for a single view.

    Source:
        De et al. 2022, "Unlocking High-Accuracy Differentially Private Image Classification through Scale", section 3.2.

    >>> import torch
    >>> shifts = iter([1.0, 3.0])
    >>> averaged(lambda model, x: x, lambda x: x + next(shifts), views=2)(None, torch.tensor([0.0, 10.0]))
    tensor([ 2., 12.])
    """
    _check_callable("loss_fn", loss_fn), _check_callable("augment", augment), count("views", views)

    def loss(model: Any, batch: Any) -> Tensor:
        examples = count_examples(batch)
        several = [augment(batch) for _ in range(views)]
        for view in several:
            if count_examples(view) != examples:
                found = f"a function from {examples} to {count_examples(view)} examples"
                allowed = "one that returns each example once"
                fix = "It is called once per view."
                raise InvalidArgumentError("augment", found, allowed, fix)

        def joined(*leaves: Any) -> Any:
            return torch.stack(leaves, 1).flatten(0, 1) if is_per_example(leaves[0], examples) else leaves[0]

        losses = check_losses(loss_fn(model, pytree.tree_map(joined, *several)), examples * views)
        return losses.view(examples, views).mean(1)

    return loss


def _check_callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise InvalidArgumentError(name, value, "a function")
    return value
