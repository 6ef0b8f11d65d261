"""Saving the contents of one object: each function returns a function that restores them, if they changed."""

from __future__ import annotations

__all__ = [
    "MISSING",
    "Restore",
    "data_pointer",
    "list_slots",
    "read_slot",
    "save_array",
    "save_items",
    "save_numbers",
    "save_slots",
    "save_tensor",
]

import array
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Restore = Callable[[], None]
MISSING = object()


def data_pointer(x: Tensor) -> int | None:
    """Return where a tensor's memory begins; None for a tensor batched by vmap, or without memory."""
    try:
        return x.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


def save_tensor(x: Tensor) -> Restore:
    """Save a tensor's memory and its numbers."""
    version, memory = x._version, x.detach()
    kept = memory.clone()
    if x.layout != torch.strided:

        def replace() -> None:
            x.data = kept

        return replace
    place, plain = _place(x), type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu"

    def restore() -> None:
        if _place(x) != place:  # resized, or given other memory
            x.data = memory.as_strided(*place[:3])
        # An array that shares a tensor's memory is written to without a new version.
        if x._version != version or (plain and not torch.equal(memory, kept)):
            x.detach().copy_(kept)

    return restore


def _place(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.storage_offset(), data_pointer(x)


def save_array(x: np.ndarray[Any, Any]) -> Restore:
    """Save the numbers and the shape of an array."""
    kept = x.copy()

    def restore() -> None:
        if x.shape != kept.shape:
            x.resize(kept.shape, refcheck=False)
        if x.flags.writeable:
            x[...] = kept

    return restore


def save_items(container: Any) -> Restore:
    """Save the items of a container."""
    if isinstance(container, dict):
        table = dict(container)

        def restore() -> None:
            if list(map(id, container.values())) != list(map(id, table.values())) or list(container) != list(table):
                container.clear()
                container.update(table)
    else:
        items = list(container)

        def restore() -> None:
            if list(map(id, container)) != list(map(id, items)):
                container.clear()
                (container.update if isinstance(container, set) else container.extend)(items)

    return restore


def save_numbers(numbers: bytearray | array.array[Any]) -> Restore:
    """Save the numbers of a bytearray or of an array of Python's."""
    kept = numbers[:]

    def restore() -> None:
        if numbers != kept:
            numbers[:] = kept  # type: ignore[assignment]

    return restore


@functools.lru_cache(maxsize=1024)
def list_slots(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """Return the slots that a class and its bases declare in Python."""
    own = (vars(each) for each in kind.__mro__)
    return tuple(x for names in own if "__slots__" in names for x in names.values() if type(x) is types.MemberDescriptorType)


def read_slot(holder: Any, slot: types.MemberDescriptorType) -> Any:
    """Return what an object holds in a slot; `MISSING` for nothing."""
    try:
        return slot.__get__(holder)
    except AttributeError:
        return MISSING


def save_slots(holder: Any, slots: Sequence[types.MemberDescriptorType]) -> Restore:
    """Save what an object holds in its slots."""
    before = [read_slot(holder, slot) for slot in slots]

    def restore() -> None:
        for slot, kept in zip(slots, before, strict=True):
            if read_slot(holder, slot) is kept:
                continue
            if kept is MISSING:
                slot.__delete__(holder)
            else:
                slot.__set__(holder, kept)

    return restore
