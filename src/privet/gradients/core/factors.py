"""The factors of a convolution's per-example gradients, laid out for products with masks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Factors:
    """What every example's gradient Σₜ gₜ aₜᵀ is made of, examples last.

    Args:
        left: gₜ, (p, T, B).
        right: any tensor that holds aₜ, which may overlap itself, as patches of an image do; contiguous.
        columns: where in `right` the B numbers of each of the d inputs begin, (d,) int64.
        positions: what is to be added to that for position t, (T,) int64.
    """

    left: Tensor
    right: Tensor
    columns: Tensor
    positions: Tensor
