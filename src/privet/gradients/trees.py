"""Batches as trees of tensors: how many examples they hold, and parts of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError


def examples_in(batch: Any) -> int:
    """Return the number of examples: the first dimension of the first tensor in the batch.

    Raises:
        InvalidArgumentError: the batch holds no tensor with a dimension.
    """
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Tensor) and leaf.dim() > 0:
            return leaf.shape[0]
    raise InvalidArgumentError("batch", type(batch).__name__, "a tensor, or a tuple, list or dict that holds one")


def rows(batch: Any, index: slice | Tensor) -> Any:
    """Return some of the examples; what does not have them along its first dimension is kept as it is."""
    examples = examples_in(batch)
    return pytree.tree_map(lambda leaf: leaf[index] if belongs(leaf, examples) else leaf, batch)


def belongs(leaf: object, examples: int) -> bool:
    """Return whether this leaf has one entry per example."""
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == examples


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on the device."""
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch)


def tensors_in(arguments: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among the arguments of a torch function, one level of lists and tuples deep."""
    found = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            found.append(argument)
        elif isinstance(argument, list | tuple):
            found += [item for item in argument if isinstance(item, Tensor)]
    return found
