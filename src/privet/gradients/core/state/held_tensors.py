"""Saving the memory of one tensor or storage, and the gradient of a tensor."""

from __future__ import annotations

__all__ = ["SAVERS_OF_STORAGES", "count_numbers", "data_pointer", "list_parts", "save_gradient", "save_tensor"]

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privet.gradients.core.state.contents import is_same_table, restore_table
from privet.gradients.core.state.restoring import LARGE, Restore, too_large

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def data_pointer(x: Tensor) -> int | None:
    """Return where a tensor's memory begins; None for a tensor batched by vmap, or without memory."""
    try:
        return x.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


def count_numbers(x: Tensor) -> int:
    """Return how many numbers a tensor keeps in memory."""
    return sum(part.numel() for part in list_parts(x))


def save_gradient(x: Tensor) -> Restore:
    """Take a leaf's `.grad` away, which would carry values from example to example, until it is restored."""
    gradient, x.grad = x.grad, None

    def restore() -> None:
        if x.grad is not gradient:
            x.grad = gradient

    return restore


def save_layout(x: Tensor) -> Restore:
    """Save where the memory of a tensor is, how it is laid out, and whether it requires a gradient, but not its numbers."""
    if x.is_nested or x.layout != torch.strided:
        return _save_all(list_parts(x)) if x.layout in _PARTS else _do_nothing
    place, whole, history = _place(x), x.detach(), _save_history(x)

    def restore() -> None:
        if _place(x) != place:
            _return_memory(x, whole, place)
        history()

    return restore


def _do_nothing() -> None:
    """For nested tensors and others that cannot be given other memory."""


def save_tensor(x: Tensor) -> Restore:
    """Save a tensor's memory and its numbers."""
    if x.is_nested or (x.layout in _PARTS and x.layout != torch.sparse_coo):  # it cannot be given other memory
        return _save_all(list_parts(x))
    version, history = None if x.is_inference() else x._version, _save_history(x)
    if x.layout != torch.strided:
        kept = x.detach().clone()

        def replace() -> None:
            x.data = kept
            history()

        return replace
    place, plain = _place(x), type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu"
    whole = x.detach()
    memory = whole.as_strided((_reach(x),), (1,)) if _overlaps(x) else whole
    numbers = memory.clone()

    def restore() -> None:
        if _place(x) != place:  # resized, or given other memory
            _return_memory(x, whole, place)
        history()
        # An array that shares a tensor's memory is written to without a new version, and an inference tensor has none.
        if version is None or x._version != version or (plain and not torch.equal(_bits(memory), _bits(numbers))):
            with torch.inference_mode(version is None):
                memory.copy_(numbers)

    return restore


_swap = torch._C._swap_tensor_impl  # which user code may not call, and which is wrapped while a pass runs


def _save_history(x: Tensor) -> Restore:
    """Save what autograd knows of a tensor: whether it was computed, whether it requires a gradient, and its hooks."""
    asked, leaf = x.requires_grad, x.is_leaf
    tables: list[tuple[str, Any]] = [(name, getattr(x, name)) for name in _HOOKS if hasattr(x, name)]
    hooks = [(name, table, dict(table or {})) for name, table in tables]

    def restore() -> None:
        if leaf and not x.is_leaf:
            _forget_graph(x)
        if x.requires_grad != asked and x.is_leaf:
            x.requires_grad = asked  # not by the method, which torch refuses inside vmap
        for name, table, items in hooks:
            if getattr(x, name) is not table:
                setattr(x, name, table)
            if table is not None and not is_same_table(table, items):
                restore_table(table, items)

    return restore


_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _forget_graph(x: Tensor) -> None:
    """Make a tensor a leaf again that an operation in place has made part of a graph."""
    base = x._base
    if base is None:
        x.detach_()
        return
    if not base.is_leaf:
        base.detach_()
    with torch.enable_grad():  # a view that was made without could not be written to in a graph
        view = base.as_strided(x.shape, x.stride(), x.storage_offset())
    _swap(x, view)  # torch cannot detach a view


def list_parts(x: Tensor) -> Sequence[Tensor]:
    """Return the tensors with memory that hold a tensor's numbers: itself, or what a sparse or a nested one consists of."""
    if x.is_nested:
        return x.detach().unbind()
    return [getattr(x.detach(), name)() for name in _PARTS[x.layout]] if x.layout in _PARTS else [x]


_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _ROWS, torch.sparse_bsr: _ROWS, torch.sparse_csc: _COLUMNS, torch.sparse_bsc: _COLUMNS,
}  # fmt: skip


def _save_all(tensors: Iterable[Tensor]) -> Restore:
    undo = [save_tensor(each) for each in tensors]

    def restore() -> None:
        for each in undo:
            each()

    return restore


def _save_storage(storage: torch.UntypedStorage | torch.TypedStorage) -> Restore:
    """Save the bytes of a storage, whose methods torch does not let anybody intercept.

    Raises:
        UnsupportedModelError: there are too many to copy them for every pass.
    """
    untyped = storage if isinstance(storage, torch.UntypedStorage) else storage.untyped()
    size = untyped.nbytes()
    if size > LARGE:
        raise too_large(type(storage).__name__, size)
    kept = _bytes(untyped).clone()

    def restore() -> None:
        if untyped.nbytes() != size:
            untyped.resize_(size)
        if not torch.equal(_bytes(untyped), kept):
            _bytes(untyped).copy_(kept)

    return restore


SAVERS_OF_STORAGES: dict[type, Callable[[Any], Restore]] = {
    torch.UntypedStorage: _save_storage,
    torch.TypedStorage: _save_storage,
}


def _bytes(untyped: torch.UntypedStorage) -> Tensor:
    """Return a storage as a tensor of bytes in the same memory."""
    return torch.empty(0, dtype=torch.uint8, device=untyped.device).set_(untyped)


def _bits(x: Tensor) -> Tensor:
    """Return a tensor's numbers as integers of the same size: −0.0 is not 0.0, and NaN is NaN."""
    if x.is_quantized:
        return x.int_repr()
    plain = x.resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.view(_INTEGERS[plain.itemsize])


def _place(x: Tensor) -> tuple[Any, ...]:
    """Return how a tensor is laid out in memory, where that is and how large, and whether its numbers are to be negated."""
    pointer = data_pointer(x)
    size = None if pointer is None else x.untyped_storage().nbytes()
    return x.shape, x.stride(), x.storage_offset(), pointer, size, x.is_conj(), x.is_neg()


def _return_memory(x: Tensor, whole: Tensor, place: tuple[Any, ...]) -> None:
    """Give a tensor the memory of another one, as large as it was, in its own former layout."""
    size = place[4]
    if size is not None and whole.untyped_storage().nbytes() != size:
        whole.untyped_storage().resize_(size)
    if _place(x) != place:
        x.data = whole.as_strided(*place[:3])


def _reach(x: Tensor) -> int:
    """Return how many numbers of memory lie between a tensor's first and last, both included."""
    return 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))


def _overlaps(x: Tensor) -> bool:
    """Return whether a tensor holds a number of its memory twice, so that it cannot be written to as a whole."""
    reach = 1
    for step, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and step < reach:
            return True
        reach += step * (size - 1)
    return False
