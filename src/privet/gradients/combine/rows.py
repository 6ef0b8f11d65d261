"""Several rows of one example in one call of a layer, such as the frames of a video: their gradients add up before the norm is
taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from privet.gradients.core.per_example import DenseGrad, PerExampleGrad, WrappedGrad
from privet.gradients.layers.convolution.gradient import ConvDenseGrad


@dataclass(frozen=True, eq=False)
class GroupedGrad(WrappedGrad):
    """A use by rows, of which every `size` are one unit.

    Args:
        inner: the use by B·size rows.
        size: rows of a unit.
    """

    size: int

    @property
    def examples(self) -> int:
        """B."""
        return self.inner.examples // self.size

    @property
    def numel_per_example(self) -> int:
        """Numbers that the gradients of one unit's rows take."""
        return self.size * self.inner.numel_per_example

    @property
    def summands(self) -> int:
        """Those of all rows of a unit."""
        return self.size * self.inner.summands

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the parameter)."""
        return _summed(self.inner.materialize(), self.size)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, each row having the weight of its unit."""
        return self.inner.weighted_sum(weights.repeat_interleave(self.size))

    def index_select(self, index: Tensor | slice) -> GroupedGrad:
        """Return the same use by some of the units."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(self.examples)
            return GroupedGrad(self.inner.index_select(slice(self.size * start, self.size * stop)), self.size)
        own = self.size * index[:, None] + torch.arange(self.size, device=index.device)
        return GroupedGrad(self.inner.index_select(own.flatten()), self.size)

    def double(self) -> GroupedGrad:
        """Return the same gradients in float64."""
        return GroupedGrad(self.inner.double(), self.size)

    def abs_norm_bound(self) -> Tensor:
        """Return the sum over the rows."""
        return _summed(self.inner.abs_norm_bound(), self.size)


def _summed(rows: Tensor, size: int) -> Tensor:
    """Return the sums over the rows of each unit, (B·size, …) → (B, …)."""
    return rows.reshape(-1, size, *rows.shape[1:]).sum(1)


# Kinds of gradients of rows that are of the same kind for examples; any other is a `GroupedGrad`.
_KINDS: dict[type[PerExampleGrad], Callable[[Any, int], PerExampleGrad]] = {
    DenseGrad: lambda use, size: DenseGrad(_summed(use.gradients, size)),
    ConvDenseGrad: lambda use, size: ConvDenseGrad(_summed(use.gradients, size)),
}


def grouped(use: PerExampleGrad, size: int) -> PerExampleGrad:
    """Return what the gradients of rows are for examples of `size` rows each."""
    kind = _KINDS.get(type(use), GroupedGrad)
    return use if size == 1 else kind(use, size)
