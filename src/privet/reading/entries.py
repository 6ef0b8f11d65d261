"""The underlying examples of a data set's entries, through torch's own wrappers, and that none occurs twice."""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False)
class Piece:
    """Entries of a data set that come from one underlying data set."""

    entries: Positions  # (n,) their positions in the outer data set
    base: Any  # the underlying data set, not one of torch's wrappers
    index: Positions  # (n,) their positions in `base`, in [0, len(base))


def iter_pieces(dataset: Any, index: Positions | None = None, entries: Positions | None = None) -> Iterator[Piece]:
    """Yield the underlying data sets and positions of entries, through `Subset`, `ConcatDataset` and `StackDataset` at any depth.

    Subclasses of these have the same entries, however they transform them. A data set of units lists the examples of its entries
    by `rows_of_entries()`.
    Args:
        index: (n,) positions in the data set; all of them if None.
        entries: (n,) positions in the outermost data set that these belong to; `index` if None.
    """
    index = np.arange(len(dataset)) if index is None else index
    entries = index if entries is None else entries
    if isinstance(dataset, Subset) and len(dataset.indices) == len(dataset):
        yield from iter_pieces(dataset.dataset, _to_positions(dataset)[index], entries)
    elif isinstance(dataset, ConcatDataset) and dataset.cumulative_sizes[-1] == len(dataset):
        ends = np.cumsum([0, *map(len, dataset.datasets)])  # type: ignore[arg-type]
        which = np.searchsorted(ends[1:], index, side="right")
        for number, part in enumerate(dataset.datasets):
            here = which == number
            yield from iter_pieces(part, index[here] - ends[number], entries[here])
    elif isinstance(dataset, StackDataset):
        parts = dataset.datasets
        for part in parts.values() if isinstance(parts, dict) else parts:
            yield from iter_pieces(part, index, entries)
    elif callable(members := getattr(dataset, "rows_of_entries", None)):
        inner, rows = members()
        inside = rows[index]
        yield from iter_pieces(inner, inside.ravel(), entries.repeat(inside.shape[1]))
    else:
        yield Piece(entries, dataset, index)


def check_distinct(dataset: Any) -> None:
    """Refuse a data set in which one example belongs to two entries, such as `ConcatDataset([data, data])` or `rows * 2`.

    Two entries with the same position of one underlying data set are found at any depth, and so are rows of tensors or arrays
    that begin at one place in memory, and an item that is in lists twice. Two data sets that read the same files are not
    detected, nor are equal contents: that no person has two entries is an assumption of the statement.
    """
    found: dict[Hashable, list[tuple[Positions, Positions]]] = {}
    parts = list(iter_pieces(dataset))
    if len(parts) == 1 and parts[0].base is dataset and not isinstance(dataset, list | tuple):
        return
    for piece in parts:
        base, places = _locate(piece.base, piece.index)
        found.setdefault(base, []).append((places, piece.entries))
    for columns in found.values():
        places, entries = map(np.concatenate, zip(*columns, strict=True))
        order = np.lexsort((entries, places))  # of equal examples, those of one entry stay together
        places, entries = places[order], entries[order]
        if ((places[1:] == places[:-1]) & (entries[1:] != entries[:-1])).any():
            allowed = "one whose entries are different examples"
            fix = "An example that occurs twice would contribute twice: keep one entry of each."
            raise InvalidArgumentError("dataset", f"a {type(dataset).__name__} in which an example occurs twice", allowed, fix)


def _locate(base: Any, index: Positions) -> tuple[Hashable, Positions]:
    """Return a key of an underlying data set, and (n,) the places of its rows: equal ones under equal keys are the same rows.

    Places are addresses of rows of the first tensor or array, since data sets may share memory; identities of items of lists.
    """
    columns = base.tensors if isinstance(base, TensorDataset) else (base,)
    for column in columns:
        if isinstance(column, np.ndarray) and column.ndim and column.strides[0]:
            return "cpu", column.ctypes.data + index * column.strides[0]
        if type(column) is Tensor and column.layout is torch.strided and column.numel() and column.stride(0):
            return str(column.device), column.data_ptr() + index * (column.stride(0) * column.element_size())
    if type(base) in (list, tuple) and len(base) and all(map(_has_identity, base)):
        return "items", np.array([id(base[place]) for place in index.tolist()], np.int64)
    return id(base), index


def _has_identity(item: Any) -> bool:
    """Return whether an item is one example's own, unlike numbers and texts, of which Python keeps one for all uses."""
    fields = item if isinstance(item, tuple) else (item,)
    return any(isinstance(field, Tensor | np.ndarray | dict | list) for field in fields)


def _to_positions(subset: Subset[Any]) -> Positions:
    """Return the positions of a subset's entries, interpreted as by `dataset[index]`."""
    given = subset.indices.numpy(force=True) if isinstance(subset.indices, Tensor) else np.asarray(subset.indices)
    if given.ndim != 1 or (len(given) and given.dtype.kind not in "iub"):
        allowed = "one with an integer position for every entry"
        fix = "Convert a mask with numpy.flatnonzero(mask)."
        raise InvalidArgumentError("dataset", "a Subset whose indices are not integers", allowed, fix)
    index = given.astype(np.int64)
    if not len(index) or not isinstance(subset.dataset, Sized):
        return index
    length = len(subset.dataset)
    if not (-length <= index.min() and index.max() < length):
        allowed = f"one with indices in [{-length}, {length - 1}]"
        raise InvalidArgumentError("dataset", f"a Subset with an index outside a data set of {length}", allowed)
    return np.where(index < 0, index + length, index)
