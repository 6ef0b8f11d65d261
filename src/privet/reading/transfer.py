"""Transfer of groups of examples from worker processes, with many small tensors packed into one.

torch transfers each tensor in a separate shared file; a batch with many lengths would exhaust file descriptors.
"""

from __future__ import annotations

__all__ = ["Packed", "can_be_sent", "pack"]

import math
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.gradients.core.examples import Examples, is_stackable, unflatten
from privet.reading.batches import Group

_ALIGNED = 16  # bytes; no dtype has larger elements


@dataclass(frozen=True)
class _Place:
    """The location of a tensor in the packed memory."""

    start: int
    dtype: torch.dtype
    shape: torch.Size

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize

    def within(self, memory: Tensor) -> Tensor:
        """Return the tensor at this location."""
        return memory[self.start : self.stop].view(self.dtype).view(self.shape)


@dataclass(frozen=True, eq=False)
class Packed:
    """Groups whose dense tensors are packed into one.

    Args:
        memory: uint8, of all tensors.
        groups: for each its positions, its leaves as one tree, which leaves are per example, and the number of examples; with a
            location in place of each tensor.
    """

    memory: Tensor
    groups: list[tuple[Any, Any, tuple[bool, ...], int]]

    def unpack(self) -> list[Group]:
        """Return the groups; their tensors are views of the memory."""

        def found(leaf: Any) -> Any:
            return leaf.within(self.memory) if isinstance(leaf, _Place) else leaf

        groups = []
        for positions, content, own, count in self.groups:
            leaves, tree = pytree.tree_flatten(content)
            groups.append(Group(found(positions), Examples(tuple(map(found, leaves)), own, tree, count)))
        return groups


def pack(groups: list[Group]) -> Packed:
    """Pack groups for transfer; groups with an object that cannot be pickled are dropped, like unreadable examples."""
    places: list[tuple[_Place, Tensor]] = []

    def put(leaf: Any) -> Any:
        if not is_stackable(leaf) or leaf.device.type != "cpu":
            return leaf
        start = -(-places[-1][0].stop // _ALIGNED) * _ALIGNED if places else 0
        places.append((_Place(start, leaf.dtype, leaf.shape), leaf))
        return places[-1][0]

    packed = []
    for group in groups:
        examples = group.examples
        if all(map(can_be_sent, examples.leaves)):
            content = unflatten(list(map(put, examples.leaves)), examples.tree)
            packed.append((put(group.positions), content, examples.own, examples.count))
    memory = torch.empty(places[-1][0].stop if places else 0, dtype=torch.uint8)
    for place, tensor in places:
        place.within(memory).copy_(tensor)
    return Packed(memory, packed)


def can_be_sent(leaf: object) -> bool:
    """Return whether a leaf can be sent from one process to another."""
    if isinstance(leaf, str | bytes | int | float | Tensor | None):
        return True
    try:
        ForkingPickler.dumps(leaf)
    except Exception:
        return False
    return True
