"""Tensors computed from parameters alone: views, slices, weight normalisation, merged adapters.

Such a tensor D = f(p) is followed like a parameter. As every gᵢ of p is the vector-Jacobian product of f with the gradient of
D, norms and sums of p follow from the use of D: the sum by one product, as it is linear, and the norms for free where f only
moves entries around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from privet.gradients.core.derivation import Derivation
from privet.gradients.core.per_example import PerExampleGrad, WrappedGrad
from privet.gradients.layers.linear import LinearGrad


@dataclass(frozen=True, eq=False)
class DerivedGrad(WrappedGrad):
    """A parameter that is used through a tensor derived from it.

    Args:
        inner: the use of the derived tensor.
        derivation: where that tensor comes from.
        precision: of the gradients.
    """

    derivation: Derivation
    precision: torch.dtype

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""
        return self.precision

    @property
    def numel_per_example(self) -> int:
        """Numbers that one example's gradients of both tensors take."""
        return self.inner.numel_per_example + self.derivation.parameter.numel()

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the parameter)."""
        return self.derivation.back(self.inner.materialize(), batched=True).to(self.precision)

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: those of the derived tensor's gradients where each of its entries is an entry of the parameter."""
        return super().squared_norms() if self.derivation.span is None else self.inner.squared_norms()

    def abs_norm_bound(self) -> Tensor:
        """Return ‖gᵢ‖ of the derived tensor: what rounding in a product with its Jacobian is relative to."""
        return self.inner.abs_norm_bound()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ by one product with the Jacobian."""
        return self.derivation.back(self.inner.weighted_sum(weights)).to(self.precision)

    def index_select(self, index: Tensor | slice) -> DerivedGrad:
        """Return the gradients of some of the examples."""
        return DerivedGrad(self.inner.index_select(index), self.derivation, self.precision)

    def double(self) -> DerivedGrad:
        """Return the same gradients in float64."""
        return DerivedGrad(self.inner.double(), self.derivation, torch.float64)


def through(inner: PerExampleGrad, derivation: Derivation) -> PerExampleGrad:
    """Return the use of the parameter that a use of a tensor derived from it amounts to."""
    if isinstance(inner, LinearGrad) and derivation.transposes:
        return LinearGrad(inner.gradients, inner.inputs)
    return DerivedGrad(inner, derivation, derivation.parameter.dtype)


def disjoint(uses: Sequence[DerivedGrad]) -> bool:
    """Return whether no two uses share an entry of their parameter."""
    spans = [use.derivation.span for use in uses]
    known = sorted(span for span in spans if span is not None)
    return len(known) == len(spans) and all(end <= start for (_, end), (start, _) in pairwise(known))
