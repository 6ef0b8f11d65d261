"""Transfer of groups of examples from worker processes, with many small tensors packed into one.

torch transfers each tensor in a separate shared file; a batch with many lengths would exhaust file descriptors.
"""

from __future__ import annotations

__all__ = ["Packed", "find_unsendable", "pack"]

import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import USER_ERRORS
from privet.gradients.core.examples import Examples, is_stackable, list_children
from privet.gradients.core.private import hide_warnings, raise_interrupt
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
        groups: for each the pickled positions, leaves, marks of those that are per example, structure, and number of examples;
            with a location in place of each dense tensor. Leaves are apart from their structure, because containers such as
            `PackedSequence` look at their parts when they are made.
    """

    memory: Tensor
    groups: list[bytes]

    def unpack(self) -> list[Group]:
        """Return the groups; their tensors are views of the memory. Those that cannot be unpickled are left out."""

        def found(leaf: Any) -> Any:
            return leaf.within(self.memory) if isinstance(leaf, _Place) else leaf

        groups = []
        for content in self.groups:
            if (read := _attempt(pickle.loads, content)) is not None:
                positions, leaves, own, structure, count = read
                groups.append(Group(found(positions), Examples(tuple(map(found, leaves)), own, _to_tree(structure), count)))
        return groups


def pack(groups: list[Group]) -> Packed:
    """Pack groups for transfer; those with an object that cannot be pickled and unpickled are dropped, like unreadable examples.

    Pickled here and not by the queue, whose thread would drop the whole batch, for which the training would wait forever. Whether
    a group is dropped depends on what its examples have in common: objects that are shared, and the structure.
    """
    places: list[tuple[_Place, Tensor]] = []

    def put(leaf: Any) -> Any:
        if not is_stackable(leaf) or leaf.device.type != "cpu":
            return leaf
        start = -(-places[-1][0].stop // _ALIGNED) * _ALIGNED if places else 0
        places.append((_Place(start, leaf.dtype, leaf.shape), leaf))
        return places[-1][0]

    packed = []
    for group in groups:
        examples, used = group.examples, len(places)
        leaves, structure = list(map(put, examples.leaves)), _to_plain(examples.tree)
        content = _send((put(group.positions), leaves, examples.own, structure, examples.count))
        if content is None:
            del places[used:]
        else:
            packed.append(content)
    memory = torch.empty(places[-1][0].stop if places else 0, dtype=torch.uint8, device="cpu")
    for place, tensor in places:
        place.within(memory).copy_(tensor)
    return Packed(memory, packed)


def find_unsendable(examples: Examples) -> type | None:
    """Return the type of an object or container in examples that cannot be sent from one process to another; None if all can."""
    return next((kind for kind, part in (*_list_leaves(examples), *_list_containers(examples.tree)) if _send(part) is None), None)


def _list_leaves(examples: Examples) -> Iterator[tuple[type, Any]]:
    return ((type(leaf), leaf) for leaf in examples.leaves if not is_stackable(leaf))


def _list_containers(tree: pytree.TreeSpec) -> Iterator[tuple[type, Any]]:
    """Yield the class and the content of each container, the innermost first, because an outer one holds the inner ones."""
    for child in list_children(tree):
        yield from _list_containers(child)
    if tree.type is not None:  # of a named tuple, the context is its class
        yield tree.context if isinstance(tree.context, type) else tree.type, _to_plain(tree)


# Structures are sent as plain tuples: torch warns of its own class of leaves when it unpickles them.
_LEAF = pytree.tree_structure(0)


def _to_plain(tree: pytree.TreeSpec) -> Any:
    return None if tree.type is None else (tree.type, tree.context, tuple(map(_to_plain, list_children(tree))))


def _to_tree(plain: Any) -> pytree.TreeSpec:
    return _LEAF if plain is None else pytree.TreeSpec(plain[0], plain[1], list(map(_to_tree, plain[2])))


def _send(content: object) -> bytes | None:
    """Return an object pickled, if it can be unpickled as well; else None.

    Tensors are copied: as multiprocessing pickles them, they could be unpickled once only.
    """
    pickled = _attempt(pickle.dumps, content)
    return None if pickled is None or _attempt(_is_readable, pickled) is None else pickled


def _is_readable(pickled: bytes) -> bool:
    pickle.loads(pickled)
    return True


def _attempt(function: Any, argument: Any) -> Any:
    """Return what a function that runs methods of the user's objects returns, or None if it fails."""
    try:
        with hide_warnings():
            return function(argument)
    except USER_ERRORS as error:
        raise_interrupt(error)
        return None
