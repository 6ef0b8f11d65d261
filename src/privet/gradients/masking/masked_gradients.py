"""Per-example gradients m∘gᵢ of a parameter under a mask m.

The mask is public and the same for all examples. The norm of m∘gᵢ does not follow from that of gᵢ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks, factor_norms, squared_norms
from privet.gradients.core.per_example import StoredGrad, WrappedGrad, add_rounding_error
from privet.gradients.layers.convolution.gradient import ConvGrad
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.masking.masks import Mask

# Shorter vectors are not made longer: in float32, the reciprocal of their length would be infinite.
_SHORT = 1e-37
# Gradients longer than this can overflow in a sum, even if their kept part is short.
_LONG = 1e18


@dataclass(frozen=True, eq=False)
class MaskedGrad(WrappedGrad):
    """Masked gradients of any kind: the norm comes from gradients formed in blocks, the sum from masking the unmasked sum."""

    mask: Mask

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape), zero outside the mask."""
        return self.mask.times(self.inner.materialize())

    def squared_norms(self) -> Tensor:
        """Return ‖m∘gᵢ‖²; NaN where a sum of entries outside the mask might overflow float32."""
        parts = [
            squared_norms(self.index_select(block).materialize())
            for block in blocks(self.examples, self.numel_per_example, self.device)
        ]
        return _round_up_or_nan(torch.cat(parts), self.abs_norm_bound(), self.dtype, self.summands)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·m∘gᵢ."""
        return self.mask.only(self.inner.weighted_sum(weights))


class MaskedLinearGrad(MaskedGrad):
    """Masked gradients of a linear map of one position: m∘(g aᵀ)."""

    inner: LinearGrad

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor]:
        """a, (d, B), and g, (p, B): transposed once, for the norm and for the sum."""
        return self.mask.columns(self.inner.inputs[:, 0]), self.mask.columns(self.inner.gradients[:, 0])

    def squared_norms(self) -> Tensor:
        """Return ‖m∘(g aᵀ)‖² = Σⱼ gⱼ² (m a²)ⱼ, one product with the mask, of vectors of length 1, whose squares do not underflow.

        No term is negative, so a sum of d terms errs by at most d/2 units in the last place in any order; this bound is added.
        """
        # A vector of zeros has a length, too, by which it can be divided.
        lengths = [factor_norms(x).clamp_(min=_SHORT) for x in (self.inner.inputs, self.inner.gradients)]
        a, g = ((x * length.reciprocal().to(x.dtype)).square_() for x, length in zip(self._columns, lengths, strict=True))
        parts = g.mul_(self.mask.product(a)).sum(0, dtype=torch.float64)
        error = (a.shape[0] + 8) * torch.finfo(self.dtype).eps / 2
        product = lengths[0] * lengths[1]
        return _round_up_or_nan(parts * product.square() * (1 + error), product, self.dtype)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·m∘(g aᵀ)."""
        a, g = self._columns
        return self.mask.outer_product(g * weights.to(self.dtype), a)


class MaskedConvGrad(MaskedGrad):
    """Masked gradients of a convolution kernel, whose norms are computed block by block, channels last."""

    inner: ConvGrad

    def squared_norms(self) -> Tensor:
        """Return ‖m∘gᵢ‖²."""
        numbers = self.mask.channels_last.numbers(self.dtype)
        parts = [squared_norms(gradients.mul_(numbers)) for _, gradients in self.inner.form_blocks()]
        return _round_up_or_nan(torch.cat(parts), self.abs_norm_bound(), self.dtype, self.summands)


@dataclass(frozen=True, eq=False)
class EntriesGrad(StoredGrad):
    """Only the kept entries of materialised gradients, (B, K) in the order of `mask.places`."""

    mask: Mask

    @property
    def numel_per_example(self) -> int:
        """Size of the parameter."""
        return self.mask.kept.numel()

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape), zero outside the mask."""
        return self.mask.put(self.gradients)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·m∘gᵢ."""
        return self.mask.put(weights.to(self.dtype) @ self.gradients)


def _round_up_or_nan(squares: Tensor, bound: Tensor, dtype: torch.dtype, terms: int = 1) -> Tensor:
    """Return ‖m∘gᵢ‖² rounded up; NaN in float32 where a sum of entries outside the mask may overflow."""
    squares = add_rounding_error(squares, bound, dtype, terms)
    return squares if dtype == torch.float64 else squares.where(bound < _LONG, torch.nan)
