"""Uses of a parameter of which a mask keeps some entries only.

The mask is public and the same for all examples: what counts of gᵢ is m∘gᵢ, whose norm does not follow from that of gᵢ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks, factor_norms, squared_norms
from privet.gradients.core.per_example import PerExampleGrad, StoredGrad, WrappedGrad, with_rounding
from privet.gradients.layers.convolution.gradient import ConvGrad
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.masking.masks import Mask

# Longer gradients can overflow in a sum, even if what is kept of them is short.
_LONG = 1e18


@dataclass(frozen=True, eq=False)
class MaskedGrad(WrappedGrad):
    """Any use with a mask: gradients are formed in blocks for the norm, and the sum is that of the use, masked.

    Args:
        inner: the use of all entries.
        mask: which of them count.
    """

    mask: Mask

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape), zero where nothing is kept."""
        return self.mask.times(self.inner.materialize())

    def squared_norms(self) -> Tensor:
        """Return ‖m∘gᵢ‖²; NaN where float32 might not hold a sum of what is not kept."""
        parts = [
            squared_norms(self.index_select(block).materialize())
            for block in blocks(self.examples, self.numel_per_example, self.device)
        ]
        return _measurable(torch.cat(parts), self.abs_norm_bound(), self.dtype, self.summands)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·m∘gᵢ."""
        return self.mask.only(self.inner.weighted_sum(weights))

    def index_select(self, index: Tensor | slice) -> PerExampleGrad:
        """Return the gradients of some of the examples."""
        return type(self)(self.inner.index_select(index), self.mask)

    def double(self) -> PerExampleGrad:
        """Return the same gradients in float64."""
        return type(self)(self.inner.double(), self.mask)


class MaskedLinearGrad(MaskedGrad):
    """A masked linear map of one position: m∘(g aᵀ)."""

    inner: LinearGrad

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor]:
        """a, (d, B), and g, (p, B): turned once, for the norm and for the sum."""
        return self.mask.columns(self.inner.inputs[:, 0]), self.mask.columns(self.inner.gradients[:, 0])

    def squared_norms(self) -> Tensor:
        """Return ‖m∘(g aᵀ)‖² = Σⱼ gⱼ² (m a²)ⱼ, one product with the mask.

        Squares are taken of vectors of length 1, as those of small numbers underflow. No term is negative, so summing d of them
        is off by at most d/2 units in the last place in any order; that is added. What underflows all the same is less than
        the unit in the last place of |g||a| that every norm gets.
        """
        lengths = [factor_norms(x) for x in (self.inner.inputs, self.inner.gradients)]
        a, g = ((x * length.reciprocal().to(x.dtype)).square_() for x, length in zip(self._columns, lengths, strict=True))
        parts = g.mul_(self.mask.product(a)).sum(0, dtype=torch.float64)
        off = (a.shape[0] + 8) * torch.finfo(self.dtype).eps / 2
        product = lengths[0] * lengths[1]
        return _measurable(parts * product.square() * (1 + off), product, self.dtype)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·m∘(g aᵀ)."""
        a, g = self._columns
        return self.mask.outer_product(g * weights.to(self.dtype), a)


class MaskedConvGrad(MaskedGrad):
    """A masked kernel whose gradients are measured as they are formed, channels last."""

    inner: ConvGrad

    def squared_norms(self) -> Tensor:
        """Return ‖m∘gᵢ‖²."""
        numbers = self.mask.channels_last.numbers(self.dtype)
        parts = [squared_norms(gradients.mul_(numbers)) for _, gradients in self.inner.formed()]
        return _measurable(torch.cat(parts), self.abs_norm_bound(), self.dtype, self.summands)


@dataclass(frozen=True, eq=False)
class EntriesGrad(StoredGrad):
    """The kept entries of gradients that were formed, (B, K) in the order of the mask's places: the others cost nothing any more.

    Args:
        mask: where they belong.
    """

    mask: Mask

    @property
    def numel_per_example(self) -> int:
        """Size of the parameter."""
        return self.mask.kept.numel()

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape), zero where nothing is kept."""
        return self.mask.put(self.gradients)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·m∘gᵢ."""
        return self.mask.put(weights.to(self.dtype) @ self.gradients)


@dataclass(frozen=True, eq=False)
class SampledGrad(EntriesGrad):
    """Kept entries that were measured when they were computed.

    Args:
        squares: the sums of their squares, (B,) float64.
    """

    squares: Tensor

    def squared_norms(self) -> Tensor:
        """Return ‖m∘gᵢ‖²."""
        return self.squares

    def abs_norm_bound(self) -> Tensor:
        """Return ‖m∘gᵢ‖."""
        return self.squares.sqrt()

    def index_select(self, index: Tensor | slice) -> SampledGrad:
        """Return the gradients of some of the examples."""
        return replace(self, gradients=self.gradients[index], squares=self.squares[index])


def _measurable(squares: Tensor, reach: Tensor, dtype: torch.dtype, terms: int = 1) -> Tensor:
    """Return ‖m∘gᵢ‖² rounded up; NaN in float32 where a sum of entries that are not kept may overflow.

    Args:
        squares: as they were measured.
        reach: of the gradients, without the mask.
        dtype: of the gradients.
        terms: that add up to an entry.
    """
    squares = with_rounding(squares, reach, dtype, terms)
    return squares if dtype == torch.float64 else squares.where(reach < _LONG, torch.nan)
