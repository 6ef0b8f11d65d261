"""Made-up examples with the structure, shapes and types of real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.gradients.core.examples import Examples


def make_up(examples: Examples, count: int, seed: int = 0) -> Examples:
    """Return made-up examples of the structure of others.

    Numbers with a fraction become standard normal; whole numbers become 0 or 1, which nearly every vocabulary and label set
    has; masks are true. What examples share is kept.

    Args:
        examples: of which structure, shapes and types are used.
        count: how many to make up.
        seed: of their content.
    """
    generator = torch.Generator().manual_seed(seed)
    leaves = tuple(
        _invent(leaf, (count, *leaf.shape[1:]), generator) if own else leaf
        for leaf, own in zip(examples.leaves, examples.own, strict=True)
    )
    return Examples(leaves, examples.own, examples.tree, count)


def make_up_items(item: Any, count: int) -> list[Any]:
    """Return made-up items of a data set, each of the structure of a real one; what is no number is kept."""
    generator = torch.Generator().manual_seed(1)

    def invent(leaf: object) -> object:
        if isinstance(leaf, Tensor):
            return _invent(leaf, tuple(leaf.shape), generator)
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub":
            return _invent(torch.from_numpy(leaf), leaf.shape, generator).numpy()
        if isinstance(leaf, bool) or not isinstance(leaf, int | float):
            return leaf
        made = _invent(torch.tensor(leaf), (), generator)
        return type(leaf)(made.item())

    return [pytree.tree_map(invent, item) for _ in range(count)]


def _invent(like: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if like.is_floating_point():
        return torch.randn(shape, generator=generator).to(like)
    if like.is_complex():
        return torch.randn(shape, generator=generator, dtype=torch.complex64).to(like)
    if like.dtype == torch.bool:
        return torch.ones(shape, dtype=torch.bool, device=like.device)
    return torch.randint(0, 2, shape, generator=generator).to(like)


def joinable(examples: Examples) -> bool:
    """Return whether each example's tensors are a batch of one, so that a batch of several means something."""
    return all(not own or leaf.shape[1:2] == (1,) for leaf, own in zip(examples.leaves, examples.own, strict=True))


def join(examples: Examples) -> Any:
    """Return a plain batch of all examples, as user code would see them together: tensors along their first dimension."""
    leaves = [leaf.flatten(0, 1) if own else leaf for leaf, own in zip(examples.leaves, examples.own, strict=True)]
    return pytree.tree_unflatten(leaves, examples.tree)
