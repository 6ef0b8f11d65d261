"""Per-example gradients over several rows of one example, such as the frames of a video: summed before the norm is taken."""

from __future__ import annotations

__all__ = ["GroupedGrad", "group_rows"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from privet.gradients.core.per_example import DenseGrad, PerExampleGrad, WrappedGrad
from privet.gradients.layers.convolution.gradient import ConvDenseGrad


@dataclass(frozen=True, eq=False)
class GroupedGrad(WrappedGrad):
    """Gradients of rows, of which every `size` consecutive ones form one unit.

    Args:
        inner: gradients of B·size rows.
        size: number of rows per unit.
    """

    size: int

    @property
    def examples(self) -> int:
        """B."""
        return self.inner.examples // self.size

    @property
    def numel_per_example(self) -> int:
        """Number of elements of the gradients of one unit's rows."""
        return self.size * self.inner.numel_per_example

    @property
    def summands(self) -> int:
        """Sum over the rows of a unit."""
        return self.size * self.inner.summands

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the parameter)."""
        return _sum_rows(self.inner.materialize(), self.size)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, with every row weighted like its unit."""
        return self.inner.weighted_sum(weights.repeat_interleave(self.size))

    def index_select(self, index: Tensor | slice) -> GroupedGrad:
        """Return the gradients of a subset of the units."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(self.examples)
            return GroupedGrad(self.inner.index_select(slice(self.size * start, self.size * stop)), self.size)
        own = self.size * index[:, None] + torch.arange(self.size, device=index.device)
        return GroupedGrad(self.inner.index_select(own.flatten()), self.size)

    def abs_norm_bound(self) -> Tensor:
        """Return the sum over the rows."""
        return _sum_rows(self.inner.abs_norm_bound(), self.size)


def _sum_rows(rows: Tensor, size: int) -> Tensor:
    """Return the sums over the rows of each unit, (B·size, …) → (B, …)."""
    return rows.reshape(-1, size, *rows.shape[1:]).sum(1)


# Kinds whose sum over rows is of the same kind; all others become a `GroupedGrad`.
_KINDS: dict[type[PerExampleGrad], Callable[[Any, int], PerExampleGrad]] = {
    DenseGrad: lambda grad, size: DenseGrad(_sum_rows(grad.gradients, size)),
    ConvDenseGrad: lambda grad, size: ConvDenseGrad(_sum_rows(grad.gradients, size)),
}


def group_rows(grad: PerExampleGrad, size: int) -> PerExampleGrad:
    """Return the gradients of units of `size` rows each, given those of the rows."""
    kind = _KINDS.get(type(grad), GroupedGrad)
    return grad if size == 1 else kind(grad, size)
