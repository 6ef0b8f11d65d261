"""Underlying examples of a data set's entries, through torch's own wrappers; that none occurs twice, and that they stay."""

from __future__ import annotations

__all__ = ["Noted", "Piece", "Positions", "check_distinct", "check_same_entries", "iter_pieces", "note_entries", "take_snapshot"]

import copy
import operator
import types
from array import array
from collections import UserList, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence, Sized
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
        Entries that refer to the same position of the same underlying data set are found at any depth, and so are rows of tensors
        that begin at one place in memory, and items of lists with the same tensors or arrays, whatever labels they have, an
        object that is in lists twice, and shallow copies of a data set. Equal contents, overlapping memory, and wrappers other
        than torch's, are not detected: that they contain no example twice is an assumption of the statement.

    Raises:
        InvalidArgumentError: an example belongs to two entries, or a wrapper's indices are invalid.
    """
    found: dict[Hashable, list[tuple[Positions, Positions]]] = {}
    numbers: dict[Hashable, int] = {}
    parts = list(iter_pieces(dataset))
    if len(parts) == 1 and parts[0].base is dataset and not isinstance(dataset, list | tuple):
        return
    for piece in parts:
        base, places = _locate(piece.base, piece.index, numbers)
        found.setdefault(base, []).append((places, piece.entries))
    for columns in found.values():
        places, entries = map(np.concatenate, zip(*columns, strict=True))
        order = np.lexsort((entries, places))  # of equal examples, those of one entry stay together
        places, entries = places[order], entries[order]
        again = (places[1:] == places[:-1]) & (entries[1:] != entries[:-1])
        if again.any():
            raise InvalidArgumentError(
                "dataset", f"a {type(dataset).__name__} in which an example occurs twice",
                "one whose entries are different examples", _FIX,
            )  # fmt: skip


_SEQUENCES = (list, deque, UserList, array)


class _Snapshot(tuple[Any, ...]):
    """The items that a sequence held.

    Attributes:
        source: the sequence, by which two snapshots are known to be of the same examples.
    """

    source: Any

    def __new__(cls, source: Any) -> _Snapshot:
        made = super().__new__(cls, source)
        made.source = source
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)  # a process that reads does not need the sequence


def take_snapshot(dataset: Any) -> Any:
    """Return a data set whose entries do not follow a list when it is sorted or grows; anything else as it is.

    Lists are shuffled between the epochs of ordinary loops, which would give an entry to another person in the midst of a run.
    A subclass that reads items in its own way is the user's code.
    """
    if type(dataset) in _SEQUENCES:
        return _Snapshot(dataset)
    # A subclass may have other attributes, such as `privacy_unit`.
    return copy.copy(dataset) if _is_sequence(dataset) else dataset


def _is_sequence(dataset: Any) -> bool:
    """Return whether a data set is a list, or reads its items as one does."""
    return getattr(type(dataset), "__getitem__", None) in [kind.__getitem__ for kind in _SEQUENCES]


# A wrapper, the name of an attribute that decides which examples its entries are, and what it held: positions, or data sets.
Noted = tuple[Any, str, Any]

_POSITIONS = {Subset: "indices", ConcatDataset: "cumulative_sizes"}
_ITEMS = "items"  # of a list, not an attribute
_PARTS = {Subset: "dataset", ConcatDataset: "datasets", StackDataset: "datasets", TensorDataset: "tensors"}


def note_entries(dataset: Any) -> list[Noted]:
    """Return what decides which examples the entries of torch's wrappers are, at any depth, to compare with it later."""
    noted: list[Noted] = []
    inside: list[Any] = []
    for kind, name in _POSITIONS.items():
        if isinstance(dataset, kind):
            noted.append((dataset, name, _copy(getattr(dataset, name))))
    for kind, name in _PARTS.items():
        if isinstance(dataset, kind):
            noted.append((dataset, name, parts := _list_parts(getattr(dataset, name), name)))
            inside += parts
    members = getattr(dataset, "rows_of_entries", None)
    if not noted and callable(members):
        inside.append(members()[0])
    if type(dataset) in _PARTS:  # a subclass may keep in a list what it has read
        noted += [(part, _ITEMS, list(part)) for part in inside if _is_sequence(part)]
    return noted + [each for part in inside if not isinstance(part, Tensor) for each in note_entries(part)]


def check_same_entries(noted: Sequence[Noted]) -> None:
    """Refuse a data set whose entries are other examples than when they were noted.

    That no example occurs twice was checked then, and a copy of the positions may be in use. Positions are compared by their
    values, in about 1 ns each, or by identity if they are not in a list, tuple, range, array or tensor; items of lists inside of
    the wrappers by identity, in about 30 ns each.

    Raises:
        InvalidArgumentError: names the wrapper and its attribute.
    """
    for wrapper, name, held in noted:
        now = wrapper if name == _ITEMS else getattr(wrapper, name, None)
        same = _is_same(now, held) if name in _POSITIONS.values() else _have_same_items(_list_parts(now, name), held)
        if not same:
            raise InvalidArgumentError(
                "dataset", f"a {type(wrapper).__name__} whose {name} changed after the training was created", "left as it was",
                "The plan draws from the entries that it was made for: put them back, or train on others in a new Training.",
            )  # fmt: skip


def _list_parts(held: Any, name: str) -> list[Any]:
    if name == "dataset":
        return [held]
    return list(held.values() if isinstance(held, dict) else held or ())


def _have_same_items(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _copy(positions: Any) -> Any:
    if isinstance(positions, Tensor):
        return positions.detach().clone()
    return positions.copy() if isinstance(positions, list | np.ndarray) else positions


def _is_same(now: Any, held: Any) -> bool:
    if type(now) is not type(held):
        return False
    if isinstance(held, Tensor):
        now, held = now.numpy(force=True), held.numpy(force=True)
    if isinstance(held, np.ndarray):
        return np.array_equal(now, held)
    return now is held or (isinstance(held, list | tuple | range) and now == held)


def _locate(base: Any, index: Positions, numbers: dict[Hashable, int]) -> tuple[Hashable, Positions]:
    """Return a key of an underlying data set, and (n,) the places of its rows: equal ones under equal keys are the same rows.

    Of tensors, places are the addresses of the rows, because views of one memory may have other shapes and steps; of several,
    those of the first whose rows are apart, as the same inputs with other labels are the same examples. Of a list, places are
    the numbers of its items.

    Args:
        base: the underlying data set.
        index: (n,) positions in it.
        numbers: of the items of lists that were found so far, which is extended.
    """
    columns = base.tensors if isinstance(base, TensorDataset) else (base,) if isinstance(base, Tensor) else ()
    if columns and all(_is_plain(column) and column.numel() and len(column) == len(base) for column in columns):
        steps = [column.stride(0) * column.element_size() for column in columns]
        first = next((k for k, step in enumerate(steps) if step), None)  # rows that are all in one place are not one example
        if first is not None:
            return columns[first].device, columns[first].data_ptr() + index * steps[first]
    if isinstance(base, np.ndarray) and base.ndim and base.strides[0]:
        return torch.device("cpu"), base.ctypes.data + index * base.strides[0]
    if type(base).__getitem__ in (list.__getitem__, tuple.__getitem__) and len(base) and all(map(_is_own, base)):
        return "items", np.array([numbers.setdefault(_identify(base[n]), len(numbers)) for n in index.tolist()], np.int64)
    held = getattr(base, "__dict__", None)
    if held is not None and _holds_attributes_only(type(base)):
        return (type(base), tuple((name, id(value)) for name, value in held.items())), index
    return id(getattr(base, "source", base) if type(base) is _Snapshot else base), index


def _is_own(item: Any) -> bool:
    """Return whether an object is one example's own, unlike numbers and texts, of which Python keeps one for all uses."""
    return any(isinstance(part, Tensor | np.ndarray) for part in _list_fields(item))


def _identify(item: Any) -> Hashable:
    """Return what is equal for items with the same tensors and arrays: the places of those with several numbers.

    One number is a label, or an object that many examples share; an item of nothing else is identified by itself.
    """
    found: list[Hashable] = []
    for part in _list_fields(item):
        if isinstance(part, np.ndarray) and part.size > 1:
            found.append((torch.device("cpu"), part.ctypes.data, part.shape, part.strides))
        elif isinstance(part, Tensor) and part.numel() > 1:
            place = (part.device, part.data_ptr(), part.shape, part.stride()) if _is_plain(part) else id(part)
            found.append(place)
    return tuple(found) or id(item)


def _list_fields(item: Any) -> Iterable[Any]:
    return item if isinstance(item, list | tuple) else item.values() if isinstance(item, dict) else (item,)


class _Plain:
    """A class whose objects hold what is in their table of attributes, and nothing else."""


def _holds_attributes_only(kind: type) -> bool:
    """Return whether objects of a class hold nothing besides their attributes: neither items, nor slots, nor state in C."""
    members = (member for each in kind.__mro__ for member in vars(each).values())
    slots = any(type(member) is types.MemberDescriptorType for member in members)
    return not slots and kind.__itemsize__ == 0 and kind.__basicsize__ <= _Plain.__basicsize__


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
