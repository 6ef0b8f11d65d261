"""Data sets of plain tensors, which are sliced as a whole without running user code."""

from __future__ import annotations

__all__ = ["TensorTable", "build_table"]

from collections.abc import Sequence
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
    """Entries that are rows of tensors in one or more underlying data sets of equal shapes."""

    tables: list[tuple[Tensor, ...]]  # tensors (n, …) of each underlying data set
    place: Positions | None  # (N,) for each entry, the number of its data set; None if there is one
    row: Positions | None  # (N,) for each entry, its row there; None if entries are the rows in their order
    tree: pytree.TreeSpec  # structure of one example

    def read(self, indices: Indices) -> list[Group]:
        """Return these entries: each holds its rows `tensor[i : i + 1]`."""
        row = torch.from_numpy(indices if self.row is None else self.row[indices])
        place = None if self.place is None else torch.from_numpy(self.place[indices])
        leaves = tuple(_gather(column, place, row).unsqueeze(1) for column in zip(*self.tables, strict=True))
        examples = Examples(leaves, (True,) * len(leaves), self.tree, len(indices), owns_memory=True)
        return [Group(torch.arange(len(indices), device="cpu"), examples)]


def _gather(tensors: Sequence[Tensor], place: Tensor | None, row: Tensor) -> Tensor:
    """Return rows of the tensors at these places."""
    if place is None:
        return tensors[0].index_select(0, row)
    found = tensors[0].new_empty(len(row), *tensors[0].shape[1:])
    for one in place.unique().tolist():
        here = place == one
        found[here] = tensors[one][row[here]]
    return found


def build_table(dataset: Any) -> TensorTable | None:
    """Return the rows of a `TensorDataset`, or of torch's own subsets and concatenations of such; None for anything else."""
    if not _is_sliceable(dataset):
        return None
    try:
        found = list(iter_pieces(dataset))
    except InvalidArgumentError:
        return None  # `check_dataset` raises the error
    tables = [tuple(tensor.detach() for tensor in piece.base.tensors) for piece in found]
    if len({tuple((tensor.shape[1:], tensor.dtype, tensor.device) for tensor in tensors) for tensors in tables}) != 1:
        return None
    plain = type(dataset) is TensorDataset
    place, row = np.empty(len(dataset), dtype=np.int64), np.empty(len(dataset), dtype=np.int64)
    for number, piece in enumerate(found):
        place[piece.entries], row[piece.entries] = number, piece.index
    # default_collate turns items that are tuples into lists.
    tree = pytree.tree_structure(tables[0] if plain else list(tables[0]))
    return TensorTable(tables, None if len(tables) == 1 else place, None if plain else row, tree)


def _is_sliceable(dataset: Any) -> bool:
    if type(dataset) is Subset:
        return _is_sliceable(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(_is_sliceable, dataset.datasets))
    return type(dataset) is TensorDataset and len(dataset.tensors) > 0 and all(map(is_stackable, dataset.tensors))
