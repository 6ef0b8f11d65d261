"""Synthetic examples with the structure, shapes and types of real ones."""

from __future__ import annotations

__all__ = ["is_joinable", "join_examples", "make_synthetic", "make_synthetic_items"]

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.gradients.core.examples import Examples, unflatten


def make_synthetic(examples: Examples, count: int, seed: int = 0) -> Examples:
    """Return synthetic examples with the structure of given ones.

    Floating-point entries become standard normal, integers become 0 or 1, which are valid in nearly every vocabulary and label
    set, and booleans become true. Leaves that the examples share are kept.

    Args:
        examples: give structure, shapes and types.
        count: number of synthetic examples.
        seed: of their content.
    """
    generator = torch.Generator().manual_seed(seed)
    leaves = tuple(
        _invent(leaf, (count, *leaf.shape[1:]), generator) if own else leaf
        for leaf, own in zip(examples.leaves, examples.own, strict=True)
    )
    return Examples(leaves, examples.own, examples.tree, count)


def make_synthetic_items(item: Any, count: int) -> list[Any]:
    """Return synthetic items of a data set with the structure of a real one; non-numeric leaves are kept."""
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


def is_joinable(examples: Examples) -> bool:
    """Return whether each example's tensors are a batch of one, so that examples can be joined to a larger batch."""
    return all(not own or leaf.shape[1:2] == (1,) for leaf, own in zip(examples.leaves, examples.own, strict=True))


def join_examples(examples: Examples) -> Any:
    """Return a plain batch of all examples, joined along the first dimension of their tensors."""
    leaves = [leaf.flatten(0, 1) if own else leaf for leaf, own in zip(examples.leaves, examples.own, strict=True)]
    return unflatten(leaves, examples.tree)
