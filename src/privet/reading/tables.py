"""Data sets of plain tensors, which are sliced as a whole without running user code."""

from __future__ import annotations

__all__ = ["TensorTable", "build_table"]

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from privet.errors import InvalidArgumentError
from privet.gradients.core.examples import Examples, is_stackable
from privet.reading.batches import Group
from privet.reading.entries import Positions, iter_pieces
from privet.sampling import Indices


@dataclass(frozen=True, eq=False)
class TensorTable:
    """Entries that are rows of tensors in one or more underlying data sets.

    Args:
        places: tensors (n, …) of each underlying data set.
        kinds: (P,) for each data set, the number of the first one with equal shapes.
        place: (N,) for each entry, the number of its data set; None for a single one in the order of the entries.
        row: (N,) for each entry, its row in that data set; None likewise.
        tree: structure of one example.
    """

    places: list[tuple[Tensor, ...]]
    kinds: Positions
    place: Positions | None
    row: Positions | None
    tree: pytree.TreeSpec

    def read(self, indices: Indices) -> list[Group]:
        """Return these entries: each holds its rows `tensor[i : i + 1]`."""
        if self.place is None or self.row is None:
            rows = torch.from_numpy(indices)
            leaves = tuple(tensor.index_select(0, rows).unsqueeze(1) for tensor in self.places[0])
            return [Group(torch.arange(len(indices), device="cpu"), self._examples(leaves, len(indices)))]
        place, row = self.place[indices], self.row[indices]
        kind = self.kinds[place]
        return [
            self._group(where, place[where], row[where]) for where in (np.flatnonzero(kind == one) for one in np.unique(kind))
        ]

    def _group(self, positions: Positions, place: Positions, row: Positions) -> Group:
        leaves = tuple(self._rows(column, place, row).unsqueeze(1) for column in range(len(self.places[0])))
        return Group(torch.from_numpy(positions), self._examples(leaves, len(positions)))

    def _examples(self, leaves: tuple[Tensor, ...], count: int) -> Examples:
        return Examples(leaves, (True,) * len(leaves), self.tree, count, owns_memory=True)

    def _rows(self, column: int, place: Positions, row: Positions) -> Tensor:
        used: list[int] = np.unique(place).tolist()
        first = self.places[used[0]][column]
        if len(used) == 1:
            return first[torch.from_numpy(row)]
        found = first.new_empty(len(row), *first.shape[1:])
        for one in used:
            here = place == one
            found[torch.from_numpy(here)] = self.places[one][column][torch.from_numpy(row[here])]
        return found


def build_table(dataset: Any) -> TensorTable | None:
    """Return the rows of a `TensorDataset`, or of torch's subsets and concatenations of such; None for anything else.

    Subclasses may override reading, so they give None too.
    """
    if not _is_sliceable(dataset):
        return None
    if type(dataset) is TensorDataset:
        tensors = _tensors(dataset)
        return TensorTable([tensors], np.zeros(1, dtype=np.int64), None, None, pytree.tree_structure(tensors))
    try:
        found = list(iter_pieces(dataset))
    except InvalidArgumentError:
        return None  # `check_dataset` raises the error
    place, row = np.empty(len(dataset), dtype=np.int64), np.empty(len(dataset), dtype=np.int64)
    for number, piece in enumerate(found):
        place[piece.entries], row[piece.entries] = number, piece.index
    places = [_tensors(piece.base) for piece in found]
    if len({len(tensors) for tensors in places}) != 1:
        return None
    seen: dict[Hashable, int] = {}
    kinds = [
        seen.setdefault(tuple((tensor.shape[1:], tensor.dtype, tensor.device) for tensor in tensors), number)
        for number, tensors in enumerate(places)
    ]
    # default_collate turns items that are tuples into lists.
    return TensorTable(places, np.array(kinds), place, row, pytree.tree_structure(list(places[0])))


def _is_sliceable(dataset: Any) -> bool:
    if type(dataset) is Subset:
        return _is_sliceable(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(_is_sliceable, dataset.datasets))
    return type(dataset) is TensorDataset and len(dataset.tensors) > 0 and all(map(is_stackable, dataset.tensors))


def _tensors(dataset: TensorDataset) -> tuple[Tensor, ...]:
    return tuple(tensor.detach() for tensor in dataset.tensors)
