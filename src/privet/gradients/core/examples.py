"""Examples that are kept apart: a physical batch of which user code is handed one example at a time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class Examples:
    """B examples of equal structure and shapes, each as the batch of one that user code is handed.

    Args:
        leaves: of the tree that one example is. An own leaf is (B, *shape), where `shape` is what one example alone has, its
            batch dimension of 1 included; a leaf that is not is the same for all examples.
        own: for every leaf, whether it holds the examples along its first dimension.
        tree: structure of one example.
        count: B.
    """

    leaves: tuple[Any, ...]
    own: tuple[bool, ...]
    tree: pytree.TreeSpec
    count: int

    def one(self, position: int) -> Any:
        """Return one example, as user code sees it."""
        return pytree.tree_unflatten(
            [leaf[position] if own else leaf for leaf, own in zip(self.leaves, self.own, strict=True)], self.tree
        )

    def select(self, index: slice | Tensor) -> Examples:
        """Return some of the examples."""
        leaves = tuple(
            (leaf[index] if isinstance(index, slice) else leaf.index_select(0, index.to(leaf.device))) if own else leaf
            for leaf, own in zip(self.leaves, self.own, strict=True)
        )
        count = len(range(*index.indices(self.count))) if isinstance(index, slice) else len(index)
        return replace(self, leaves=leaves, count=count)

    def to(self, device: torch.device) -> Examples:
        """Return the examples with their tensors on a device."""
        return replace(self, leaves=tuple(leaf.to(device) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves))

    def beside(self, *more: Tensor) -> Examples:
        """Return examples that are tuples: what each was, then its own entries of some tensors, (B, 1, …) each."""
        tree = pytree.tree_structure((pytree.tree_unflatten(self.leaves, self.tree), *more))
        return Examples((*self.leaves, *more), (*self.own, *(True for _ in more)), tree, self.count)


def stackable(leaf: object) -> bool:
    """Return whether a leaf is a dense tensor, which can stand beside others of its shape.

    Nested, sparse and quantised tensors cannot, nor can subclasses that see every operation: that would be user code on several
    examples.
    """
    return type(leaf) is Tensor and not leaf.is_nested and leaf.layout is torch.strided and not leaf.is_quantized


def signature(example: Any) -> Hashable:
    """Return what examples must have in common to be stacked: structure, shapes, types, and all that is no dense tensor.

    It depends on this example alone. Texts and numbers are alike if they are equal, other objects only if they are the same.
    """
    return flat_signature(flatten(example))


Flat = tuple[list[Any], pytree.TreeSpec]


def flatten(example: Any) -> Flat:
    """Return the leaves and the structure of an example."""
    return pytree.tree_flatten(example)


def flat_signature(flat: Flat) -> Hashable:
    """Return the signature of an example that is flattened already."""
    leaves, tree = flat
    return tree, tuple((leaf.shape, leaf.dtype, leaf.device) if stackable(leaf) else _constant(leaf) for leaf in leaves)


class _Same:
    """An object that equals itself only. Objects' own equality is user code, and could call different ones equal."""

    __slots__ = ("_held",)

    def __init__(self, held: object) -> None:
        self._held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._held is other._held

    def __hash__(self) -> int:
        return id(self._held)


_VALUES = (str, bytes, int, bool, type(None), torch.dtype, torch.device)


def _constant(leaf: object) -> Hashable:
    if type(leaf) in _VALUES:
        return type(leaf), leaf
    # 0.0 and -0.0 are equal, but not the same.
    return (float, leaf.hex()) if type(leaf) is float else _Same(leaf)


def stack(examples: Sequence[Any]) -> Examples:
    """Return examples of one signature side by side.

    Args:
        examples: at least one; each is the batch of one that user code would be handed.
    """
    return stack_flat([flatten(example) for example in examples])


def stack_flat(examples: Sequence[Flat]) -> Examples:
    """Return examples of one signature, flattened already, side by side."""
    columns, trees = zip(*examples, strict=True)
    own = tuple(stackable(leaf) for leaf in columns[0])
    leaves = tuple(torch.stack(leaf) if held else leaf[0] for leaf, held in zip(zip(*columns, strict=True), own, strict=True))
    return Examples(leaves, own, trees[0], len(examples))


def split_batch(batch: Any) -> Examples:
    """Return the examples of a batch that has them along the first dimension of its tensors.

    Every tensor whose first dimension is as long as that of the first tensor holds one entry per example, by the contract of
    whoever calls this; each example sees its own entry with a first dimension of 1. Everything else is shared.

    Raises:
        InvalidArgumentError: the batch holds no tensor with a dimension.
    """
    leaves, tree = pytree.tree_flatten(batch)
    count = examples_in(batch)
    own = tuple(isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == count for leaf in leaves)
    return Examples(tuple(leaf.unsqueeze(1) if held else leaf for leaf, held in zip(leaves, own, strict=True)), own, tree, count)


def examples_in(batch: Any) -> int:
    """Return the number of examples of a plain batch: the first dimension of its first tensor.

    Raises:
        InvalidArgumentError: the batch holds no tensor with a dimension.
    """
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Tensor) and leaf.dim() > 0:
            return leaf.shape[0]
    raise InvalidArgumentError("batch", type(batch).__name__, "a tensor, or a tuple, list or dict that holds one")


def rows(batch: Any, index: slice | Tensor) -> Any:
    """Return some of the examples of a plain batch; what does not have them along its first dimension is kept as it is."""
    examples = examples_in(batch)
    return pytree.tree_map(lambda leaf: leaf[index] if belongs(leaf, examples) else leaf, batch)


def belongs(leaf: object, examples: int) -> bool:
    """Return whether a leaf of a plain batch has one entry per example."""
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == examples


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a plain batch with its tensors on the device."""
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch)
