"""The rows of embedding tables of a training: which are public, how they are counted, and the form of their sums."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from privet.clipping.clipped_sum import RowCounts
from privet.errors import InvalidArgumentError
from privet.noise.row_selection import sparse_rows
from privet.sparsification.embeddings import FEST, AdaFEST, RowSelection

# Rounding in float64 cannot lift what an example adds to the counts, scaled by this, above their bound.
_MARGIN = 1 - 2.0**-40
_COUNTS = ":rows"  # ends the names of counts among the sums


class SelectedRows:
    """A selection for the parameters of a model.

    Attributes:
        summed: name of a table → tensor of the shape of its sum: sparse (V, d), or (K + 1, d) for K listed rows and all others.
        listed: name of a table → its public rows, (K,) in increasing order; empty for a selection by counts.
    """

    def __init__(self, selection: RowSelection, parameters: Mapping[str, Tensor]) -> None:
        self._selection = selection
        self.summed: dict[str, Tensor] = {}
        self.listed: dict[str, Tensor] = {}
        for name in selection.names:
            table = parameters.get(name)
            if table is None or table.dim() != 2:
                fix = "Its rows are the entries of a vocabulary, as in nn.Embedding."
                raise InvalidArgumentError("embeddings", name, "names of trainable parameters with two dimensions", fix)
            none = torch.empty(0, dtype=torch.int64, device=table.device)
            self.summed[name] = sparse_rows(none, table.new_empty(0, table.shape[1]), len(table))
        self._sizes = {name: len(table) for name, table in self.summed.items()}
        for name, rows in selection.rows if isinstance(selection, FEST) else ():
            if rows[-1] >= self._sizes[name]:
                allowed = f"below the number of rows, {self._sizes[name]}"
                raise InvalidArgumentError(f"embeddings.rows[{name!r}]", rows[-1], allowed)
            self.listed[name] = torch.tensor(rows, device=parameters[name].device)
            self.summed[name] = parameters[name].new_empty(1, 1).expand(len(rows) + 1, parameters[name].shape[1])

    @staticmethod
    def of(selection: RowSelection | None, parameters: Mapping[str, Tensor]) -> SelectedRows | None:
        """Return the rows of a plan's selection; None without one."""
        return None if selection is None else SelectedRows(selection, parameters)

    def place(self, name: str, indices: Tensor, padding: int | None) -> Tensor:
        """Return the places of indices in the list of their table, and its length for those that have no gradient."""
        rows = self.listed[name]
        places = torch.searchsorted(rows, indices).clamp_(max=len(rows) - 1)
        listed = (rows[places] == indices) & (indices != (-1 if padding is None else padding))
        return places.masked_fill_(~listed, len(rows))

    def count(self, lookups: Mapping[str, tuple[Tensor, int | None]]) -> dict[str, Tensor]:
        """Return the sums of what examples add to the rows of each table, from name → indices (B, T) and the one that is padding.

        An example adds equal numbers to all rows that it looks up, whose L2 norm over all tables is at most the bound.
        """
        if not isinstance(self._selection, AdaFEST):
            return {}
        pairs = {}  # of examples and rows, each once
        for name, (indices, padding) in lookups.items():
            first = torch.arange(len(indices), device=indices.device)[:, None] * self._sizes[name]
            pairs[name] = (first + indices)[indices != (-1 if padding is None else padding)].unique()
        examples = max((len(indices) for indices, _ in lookups.values()), default=0)
        number = [torch.bincount(each // self._sizes[name], minlength=examples) for name, each in pairs.items()]
        found = {}
        for name, table in self.summed.items():
            each = pairs.get(name, table._indices()[0])
            added = each.double()
            if len(each):
                adds = (self._selection.bound * _MARGIN / torch.stack(number).sum(0).double().sqrt()).clamp_(max=1.0)
                added = adds[each // len(table)]
            total = torch.sparse_coo_tensor((each % len(table))[None], added, (len(table),), check_invariants=False)
            found[name + _COUNTS] = total.coalesce()
        return found

    def finish(self, sums: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], RowCounts | None]:
        """Return the sums with those of the tables sparse, and counts apart from them; they are zero where there are none yet."""
        listed = {name: sparse_rows(rows, sums[name][:-1], self._sizes[name]) for name, rows in self.listed.items()}
        counts = {**self.count({}), **{name: each for name, each in sums.items() if name.endswith(_COUNTS)}}
        kept = {name: each for name, each in sums.items() if name not in counts} | listed
        if not isinstance(chosen := self._selection, AdaFEST):
            return kept, None
        tables = {name: counts[name + _COUNTS] for name in self._sizes}
        return kept, RowCounts(tables, chosen.bound, chosen.threshold, chosen.share)
