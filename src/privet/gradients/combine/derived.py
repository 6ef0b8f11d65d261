"""Per-example gradients through tensors computed from parameters alone: views, slices, weight normalisation, merged adapters.

Such a tensor D = f(p) is followed like a parameter. Every gᵢ of p is the vector-Jacobian product of f with the gradient of D.
Where f only rearranges entries, the norms are those for D, and the weighted sum takes one product with the Jacobian. Elsewhere
both take one for each example: by one product of the sum, gradients that the Jacobian cancels would be rounded before.
"""

from __future__ import annotations

__all__ = ["DerivedGrad", "is_disjoint", "pull_back"]

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from privet._utils.tensors import gradient_dtype
from privet.gradients.core.derivation import Derivation
from privet.gradients.core.per_example import PerExampleGrad, WrappedGrad, norms_of_formed, store_small, sum_formed
from privet.gradients.layers.linear import LinearGrad


@dataclass(frozen=True, eq=False)
class DerivedGrad(WrappedGrad):
    """Per-example gradients of a parameter that is used through a derived tensor, whose own gradients are `inner`."""

    derivation: Derivation
    precision: torch.dtype

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""
        return self.precision

    @property
    def numel_per_example(self) -> int:
        """Number of elements of one example's gradients of both tensors."""
        return self.inner.numel_per_example + self.derivation.parameter.numel()

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the parameter)."""
        return self.derivation.vjp(self.inner.materialize(), batched=True).to(self.precision)

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: those for the derived tensor if it is a view of the parameter without repeated entries."""
        return norms_of_formed(self) if self.derivation.span is None else self.inner.squared_norms()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        if self.derivation.span is None:
            return sum_formed(self, weights)
        return self.derivation.vjp(self.inner.weighted_sum(weights)).to(self.precision)

    def double(self) -> DerivedGrad:
        """Return the same gradients in float64."""
        return replace(super().double(), precision=torch.float64)


def pull_back(inner: PerExampleGrad, derivation: Derivation) -> PerExampleGrad:
    """Return the per-example gradients of a parameter, given those of a tensor derived from it."""
    if isinstance(inner, LinearGrad) and derivation.is_transpose:
        return LinearGrad(inner.gradients, inner.inputs)
    grad = DerivedGrad(inner, derivation, gradient_dtype(derivation.parameter))
    return store_small(grad) if derivation.span is None else grad


def is_disjoint(grads: Sequence[DerivedGrad]) -> bool:
    """Return whether no two of the gradients share an entry of their parameter."""
    spans = [grad.derivation.span for grad in grads]
    known = sorted(span for span in spans if span is not None)
    return len(known) == len(spans) and all(end <= start for (_, end), (start, _) in pairwise(known))
