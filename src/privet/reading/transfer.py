"""Groups of examples on their way from a reading process: many small tensors as one.

torch hands every tensor over in a shared file of its own; a batch of many lengths would run out of file descriptors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.gradients.core.examples import Examples, stackable
from privet.reading.batches import Group

_ALIGNED = 16  # bytes: no type's numbers are larger


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies in the memory of all."""

    start: int
    dtype: torch.dtype
    shape: torch.Size

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize

    def within(self, memory: Tensor) -> Tensor:
        """Return the tensor there."""
        return memory[self.start : self.stop].view(self.dtype).view(self.shape)


@dataclass(frozen=True, eq=False)
class Packed:
    """Groups whose dense tensors lie side by side.

    Args:
        memory: uint8, of all tensors.
        groups: of each the positions, what all its examples together are, as one tree, which leaves are the examples' own, and
            how many they are; with a place for each tensor.
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
    """Return groups ready for their way; those with an object that cannot be sent are left out, as unreadable examples are."""
    places: list[tuple[_Place, Tensor]] = []

    def put(leaf: Any) -> Any:
        if not stackable(leaf) or leaf.device.type != "cpu":
            return leaf
        start = -(-places[-1][0].stop // _ALIGNED) * _ALIGNED if places else 0
        places.append((_Place(start, leaf.dtype, leaf.shape), leaf))
        return places[-1][0]

    packed = []
    for group in groups:
        examples = group.examples
        if all(map(_can_be_sent, examples.leaves)):
            content = pytree.tree_unflatten(map(put, examples.leaves), examples.tree)
            packed.append((put(group.positions), content, examples.own, examples.count))
    memory = torch.empty(places[-1][0].stop if places else 0, dtype=torch.uint8)
    for place, tensor in places:
        place.within(memory).copy_(tensor)
    return Packed(memory, packed)


def _can_be_sent(leaf: object) -> bool:
    if isinstance(leaf, str | bytes | int | float | Tensor | None):
        return True
    try:
        ForkingPickler.dumps(leaf)
    except Exception:
        return False
    return True
