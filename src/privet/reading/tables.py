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
        tables: tensors (n, …) of each underlying data set.
        kinds: for each of them, the number of the first one with equal shapes.
        place: (N,) for each entry, the number of its data set; None if there is one.
        row: (N,) for each entry, its row in that data set; None if entries are the rows in their order.
        tree: structure of one example.
    """

    tables: list[tuple[Tensor, ...]]
    kinds: Positions
    place: Positions | None
    row: Positions | None
    tree: pytree.TreeSpec

    def read(self, indices: Indices) -> list[Group]:
        """Return these entries: each holds its rows `tensor[i : i + 1]`."""
        row = torch.from_numpy(indices if self.row is None else self.row[indices])
        if self.place is None:
            leaves = [tensor.index_select(0, row) for tensor in self.tables[0]]
            return [self._group(torch.arange(len(indices), device="cpu"), leaves)]
        place, groups = torch.from_numpy(self.place[indices]), []
        kind = torch.from_numpy(self.kinds)[place]
        for one in kind.unique():
            where = (kind == one).nonzero().squeeze(1)
            columns = range(len(self.tables[int(one)]))
            groups.append(self._group(where, [self._gather(column, place[where], row[where]) for column in columns]))
        return groups

    def _group(self, positions: Tensor, leaves: list[Tensor]) -> Group:
        rows = tuple(leaf.unsqueeze(1) for leaf in leaves)
        return Group(positions, Examples(rows, (True,) * len(rows), self.tree, len(positions), owns_memory=True))

    def _gather(self, column: int, place: Tensor, row: Tensor) -> Tensor:
        used: list[int] = place.unique().tolist()
        first = self.tables[used[0]][column]
        found = first.new_empty(len(row), *first.shape[1:])
        for one in used:
            here = place == one
            found[here] = self.tables[one][column][row[here]]
        return found


def build_table(dataset: Any) -> TensorTable | None:
    """Return the rows of a `TensorDataset`, or of torch's subsets and concatenations of such; None for anything else.

    Subclasses may override reading, so they give None too.
    """
    if not _is_sliceable(dataset):
        return None
    try:
        found = list(iter_pieces(dataset))
    except InvalidArgumentError:
        return None  # `check_dataset` raises the error
    tables = [tuple(tensor.detach() for tensor in piece.base.tensors) for piece in found]
    if len(set(map(len, tables))) != 1:
        return None
    plain = type(dataset) is TensorDataset
    place, row = np.empty(len(dataset), dtype=np.int64), np.empty(len(dataset), dtype=np.int64)
    for number, piece in enumerate(found):
        place[piece.entries], row[piece.entries] = number, piece.index
    seen: dict[Hashable, int] = {}
    kinds = [
        seen.setdefault(tuple((tensor.shape[1:], tensor.dtype, tensor.device) for tensor in tensors), number)
        for number, tensors in enumerate(tables)
    ]
    # default_collate turns items that are tuples into lists.
    tree = pytree.tree_structure(tables[0] if plain else list(tables[0]))
    return TensorTable(tables, np.array(kinds), None if len(tables) == 1 else place, None if plain else row, tree)


def _is_sliceable(dataset: Any) -> bool:
    if type(dataset) is Subset:
        return _is_sliceable(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(_is_sliceable, dataset.datasets))
    return type(dataset) is TensorDataset and len(dataset.tensors) > 0 and all(map(is_stackable, dataset.tensors))
