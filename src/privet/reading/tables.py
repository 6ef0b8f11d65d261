"""Data sets of plain tensors, sliced as a whole: reading them runs no user code."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from privet.errors import InvalidArgumentError
from privet.gradients.core.examples import Examples, stackable
from privet.reading.batches import Group
from privet.reading.entries import Positions, pieces
from privet.sampling import Indices


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of tensors that lie in one or more places.

    Args:
        places: tensors (n, …) of each underlying data set, row by row.
        kinds: (P,) which places have equal shapes: the number of the first such place.
        place: (N,) for each entry where it is; None if there is one place, in the entries' order.
        row: (N,) for each entry its row there; None likewise.
        tree: of one example.
    """

    places: list[tuple[Tensor, ...]]
    kinds: Positions
    place: Positions | None
    row: Positions | None
    tree: pytree.TreeSpec

    def read(self, indices: Indices) -> list[Group]:
        """Return these entries: each sees its rows `tensor[i : i + 1]`."""
        if self.place is None or self.row is None:
            return [self._group(np.arange(len(indices)), np.zeros_like(indices), indices)]
        place, row = self.place[indices], self.row[indices]
        kind = self.kinds[place]
        return [
            self._group(where, place[where], row[where]) for where in (np.flatnonzero(kind == one) for one in np.unique(kind))
        ]

    def _group(self, positions: Positions, place: Positions, row: Positions) -> Group:
        leaves = tuple(self._rows(column, place, row).unsqueeze(1) for column in range(len(self.places[0])))
        return Group(torch.from_numpy(positions), Examples(leaves, (True,) * len(leaves), self.tree, len(positions)))

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


def table_of(dataset: Any) -> Table | None:
    """Return the rows of a `TensorDataset`, or of torch's own subsets and concatenations of some; None for anything else.

    Subclasses may read otherwise, and so are anything else.
    """
    if not _sliceable(dataset):
        return None
    if type(dataset) is TensorDataset:
        tensors = _tensors(dataset)
        return Table([tensors], np.zeros(1, dtype=np.int64), None, None, pytree.tree_structure(tensors))
    try:
        found = list(pieces(dataset))
    except InvalidArgumentError:
        return None  # said when the data set is checked
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
    # default_collate makes a list of the items, which are tuples.
    return Table(places, np.array(kinds), place, row, pytree.tree_structure(list(places[0])))


def _sliceable(dataset: Any) -> bool:
    if type(dataset) is Subset:
        return _sliceable(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(_sliceable, dataset.datasets))
    return type(dataset) is TensorDataset and len(dataset.tensors) > 0 and all(map(stackable, dataset.tensors))


def _tensors(dataset: TensorDataset) -> tuple[Tensor, ...]:
    return tuple(tensor.detach() for tensor in dataset.tensors)
