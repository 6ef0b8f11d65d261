"""Underlying examples of a data set's entries, through torch's own wrappers, and the check that none occurs twice."""

from __future__ import annotations

__all__ = ["Piece", "Positions", "check_distinct", "iter_pieces"]

from collections.abc import Hashable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from privet.errors import InvalidArgumentError

Positions = NDArray[np.int64]
_FIX = "An example that occurs twice would contribute twice: keep one entry of each."


@dataclass(frozen=True, eq=False)
class Piece:
    """Entries of a data set that come from one underlying data set.

    Args:
        entries: (n,) their positions in the outer data set.
        base: the underlying data set, not one of torch's wrappers.
        index: (n,) their positions in `base`, in [0, len(base)).
    """

    entries: Positions
    base: Any
    index: Positions


def iter_pieces(dataset: Any, index: Positions | None = None, entries: Positions | None = None) -> Iterator[Piece]:
    """Yield the underlying data sets and positions of entries, through `Subset`, `ConcatDataset` and `StackDataset` at any depth.

    Subclasses of these have the same entries, however they transform them. A data set of units lists the examples of its entries
    by `rows_of_entries()`.

    Args:
        dataset: map-style, with a length.
        index: (n,) positions in it; all of them if None.
        entries: (n,) positions in the outermost data set that these belong to; `index` if None.

    Raises:
        InvalidArgumentError: a wrapper has indices that are not integers, or out of range.
    """
    length = len(dataset) if isinstance(dataset, Sized) else None
    if length is not None:
        index = np.arange(length) if index is None else _wrap_negative(index, length)
    assert index is not None, "the outermost data set has a length"
    entries = index if entries is None else entries
    members = getattr(dataset, "rows_of_entries", None)
    if isinstance(dataset, Subset) and len(dataset.indices) == length:
        yield from iter_pieces(dataset.dataset, _to_positions(dataset.indices)[index], entries)
    elif isinstance(dataset, ConcatDataset) and sum(map(len, dataset.datasets)) == length:  # type: ignore[arg-type]
        ends = np.cumsum([len(part) for part in dataset.datasets])  # type: ignore[arg-type]
        which = np.searchsorted(ends, index, side="right")
        for number, part in enumerate(dataset.datasets):
            here = which == number
            yield from iter_pieces(part, index[here] - (ends[number - 1] if number else 0), entries[here])
    elif isinstance(dataset, StackDataset):
        parts = dataset.datasets
        for part in parts.values() if isinstance(parts, dict) else parts:
            yield from iter_pieces(part, index, entries)
    elif callable(members):
        inner, rows = members()
        inside = rows[index]
        yield from iter_pieces(inner, inside.ravel(), entries.repeat(inside.shape[1]))
    else:
        yield Piece(entries, dataset, index)


def check_distinct(dataset: Any) -> None:
    """Refuse a data set in which one example belongs to two entries.

    Guarantee:
        Entries that refer to the same position of the same underlying data set are found at any depth, and so are two
        `TensorDataset`s over the same memory and shallow copies of a data set. Equal contents, and wrappers other than torch's,
        are not detected: that they contain no example twice is an assumption of the statement.

    Raises:
        InvalidArgumentError: an example belongs to two entries, or a wrapper's indices are invalid.
    """
    found: dict[Hashable, list[tuple[Positions, Positions]]] = {}
    parts = list(iter_pieces(dataset))
    if len(parts) == 1 and parts[0].base is dataset:
        return
    for piece in parts:
        base, shift = _identity(piece.base)
        found.setdefault(base, []).append((piece.index + shift, piece.entries))
    for columns in found.values():
        index, entries = (np.concatenate(column) for column in zip(*columns, strict=True))
        # Stable: of equal examples, those of one entry stay together.
        order = np.lexsort((entries, index))
        index, entries = index[order], entries[order]
        again = (index[1:] == index[:-1]) & (entries[1:] != entries[:-1])
        if again.any():
            raise InvalidArgumentError(
                "dataset", f"a {type(dataset).__name__} in which an example occurs twice",
                "one whose entries are different examples", _FIX,
            )  # fmt: skip


def _identity(base: Any) -> tuple[Hashable, int]:
    """Return a key that is equal for data sets of the same examples, and the shift of this one's positions."""
    if type(base) is TensorDataset:
        moving = [tensor for tensor in base.tensors if _is_plain(tensor) and tensor.numel() and tensor.stride(0)]
        if moving and len(moving) == len(base.tensors):
            shift = moving[0].storage_offset() // moving[0].stride(0)
            return tuple(_locate(tensor, shift) for tensor in moving), shift
    held = getattr(base, "__dict__", None)
    if held:
        return (type(base), tuple((name, id(value)) for name, value in held.items())), 0
    return id(base), 0


def _locate(tensor: Tensor, shift: int) -> Hashable:
    """Return the memory location that row −shift of a tensor has or would have, and the layout of its rows."""
    start = tensor.storage_offset() - shift * tensor.stride(0)
    return tensor.untyped_storage().data_ptr(), start, tensor.dtype, tensor.shape[1:], tensor.stride()


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.layout is torch.strided and tensor.dim() > 0


def _to_positions(indices: Any) -> Positions:
    """Return indices as int64, interpreted like `dataset[index]`, so that True is 1."""
    numbers = indices.numpy(force=True) if isinstance(indices, Tensor) else np.asarray(indices)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iub"):
        raise InvalidArgumentError(
            "dataset", "a Subset whose indices are not integers", "one with an integer position for every entry",
            "Convert a mask with numpy.flatnonzero(mask).",
        )  # fmt: skip
    return numbers.astype(np.int64)


def _wrap_negative(index: Positions, length: int) -> Positions:
    """Return positions with negative ones counted from the end, as in sequences."""
    if len(index) and not (-length <= index.min() and index.max() < length):
        raise InvalidArgumentError(
            "dataset", f"a Subset with an index outside a data set of {length}", f"one with indices in [{-length}, {length - 1}]"
        )
    return np.where(index < 0, index + length, index)
