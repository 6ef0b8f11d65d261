"""Clients as they are read: plain tensors, of which each client's containers are made where no code sees another client."""

from __future__ import annotations

__all__ = ["ClientBatch", "unpack"]

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from privet.gradients.core.examples import Examples, list_children, unflatten


@dataclass(frozen=True, eq=False)
class ClientBatch:
    """K clients as plain tensors: making or mapping a container of a user's class runs code of that class.

    Args:
        leaves: (K, k, …) of the content.
        tree: structure of one client's content.
        mask: (K, k).
    """

    leaves: tuple[Tensor, ...]
    tree: pytree.TreeSpec
    mask: Tensor

    def __len__(self) -> int:
        return len(self.mask)

    def select(self, index: slice) -> ClientBatch:
        """Return some of the clients."""
        return ClientBatch(tuple(leaf[index] for leaf in self.leaves), self.tree, self.mask[index])

    def copy_content(self, client: int) -> Any:
        """Return a copy of one client's content (k, …)."""
        return unflatten([leaf[client].clone() for leaf in self.leaves], self.tree)


def unpack(examples: Examples) -> ClientBatch | None:
    """Return clients as they are read, a pair of content (K, 1, k, …) and mask (K, 1, k); None if they are anything else."""
    if not all(own and leaf.dim() > 2 and leaf.shape[1] == 1 for leaf, own in zip(examples.leaves, examples.own, strict=True)):
        return None
    parts = list_children(examples.tree)
    if len(parts) != 2 or not parts[1].is_leaf():
        return None
    *leaves, mask = (leaf.squeeze(1) for leaf in examples.leaves)
    return ClientBatch(tuple(leaves), parts[0], mask)
