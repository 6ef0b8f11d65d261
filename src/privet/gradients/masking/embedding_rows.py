"""Gradients of embedding tables in the form of their sums: of public rows, or of the rows that a step's examples look up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from privet.gradients.combine.sums import GroupedGrad
from privet.gradients.core.per_example import PerExampleGrad
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.noise.row_selection import sparse_rows
from privet.sparsification.selected_rows import SelectedRows


class SparseSumGrad(EmbeddingGrad):
    """Gradients of a table whose weighted sum is sparse."""

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, (V, d), which stores the rows that are looked up."""
        rows, places = self.indices.unique(return_inverse=True)
        own = rows != (-1 if self.padding is None else self.padding)
        kept = own.nonzero().flatten()  # once: the host waits for a device to count them
        padding = None if len(kept) == len(rows) else int((~own).nonzero())
        total = EmbeddingGrad(places, self.gradients, len(rows), padding).weighted_sum(weights)
        return sparse_rows(rows[kept], total[kept], self.size)


def split_tables(rows: SelectedRows, grads: Mapping[str, PerExampleGrad]) -> tuple[dict[str, PerExampleGrad], dict[str, Tensor]]:
    """Return gradients with those of the tables in the form of their sums, and the counts that are summed with them."""
    lookups = {name: _as_lookups(grads[name]) for name in rows.summed if name in grads}
    found: dict[str, PerExampleGrad] = {**grads}
    for name, grad in lookups.items():
        found[name] = SparseSumGrad(**vars(grad))
        if (listed := rows.listed.get(name)) is not None:
            places = rows.place(name, grad.indices, grad.padding)
            found[name] = EmbeddingGrad(places, grad.gradients, len(listed) + 1, padding=len(listed))
    return found, rows.count({name: (grad.indices, grad.padding) for name, grad in lookups.items()})


def _as_lookups(grad: PerExampleGrad) -> EmbeddingGrad:
    """Return gradients of a table as lookups: as they are, or of every row whose materialised gradient is not zero."""
    if isinstance(grad, EmbeddingGrad):
        return grad
    if isinstance(grad, GroupedGrad) and isinstance(inner := grad.inner, EmbeddingGrad):
        indices, gradients = (each.reshape(grad.examples, -1, *each.shape[2:]) for each in (inner.indices, inner.gradients))
        return replace(inner, indices=indices, gradients=gradients)
    dense = grad.materialize()
    size = dense.shape[1]
    rows = torch.arange(size, device=dense.device).masked_fill((dense == 0).all(2), size)
    return EmbeddingGrad(rows, dense, size, padding=size)
