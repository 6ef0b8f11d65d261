"""A use of a parameter, seen from the backward pass: what its per-example gradients are made of.

Each kind of use answers the same four questions. Norms and weighted sums come from the factors, so that per-example
gradients are formed only where that is cheaper, and in blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks, squared_norms


class PerExampleGrad(ABC):
    """One use of one parameter by B examples; its per-example gradients are never stored unless the kind says so."""

    @property
    @abstractmethod
    def examples(self) -> int:
        """B."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the gradients are."""

    @property
    @abstractmethod
    def numel_per_example(self) -> int:
        """Numbers that one example's materialised gradient (and what forming it needs) takes."""

    @abstractmethod
    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the parameter)."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, shaped like the parameter, for weights (B,)."""

    @abstractmethod
    def index_select(self, index: Tensor | slice) -> PerExampleGrad:
        """Return the gradients of some of the examples."""

    @abstractmethod
    def double(self) -> PerExampleGrad:
        """Return the same gradients in float64."""

    @abstractmethod
    def abs_norm_bound(self) -> Tensor:
        """Return the sum of the norms of the terms that add up to each gradient, (B,) float64: ‖gᵢ‖ if none cancelled."""

    @property
    def summands(self) -> int:
        """How many terms add up to an entry of a gradient, one after another, in a weighted sum; 1 for gradients at hand."""
        return 1

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², (B,) float64; by default from gradients that are formed in blocks and dropped."""
        parts = [
            squared_norms(self.index_select(block).materialize())
            for block in blocks(self.examples, self.numel_per_example, self.device)
        ]
        return rounded_up(torch.cat(parts), self)


@dataclass(frozen=True, eq=False)
class WrappedGrad(PerExampleGrad):
    """Gradients made of others: what a kind does not define itself is theirs.

    Args:
        inner: the other gradients.
    """

    inner: PerExampleGrad

    @property
    def examples(self) -> int:
        """That of the inner gradients."""
        return self.inner.examples

    @property
    def dtype(self) -> torch.dtype:
        """That of the inner gradients."""
        return self.inner.dtype

    @property
    def device(self) -> torch.device:
        """That of the inner gradients."""
        return self.inner.device

    @property
    def numel_per_example(self) -> int:
        """That of the inner gradients."""
        return self.inner.numel_per_example

    @property
    def summands(self) -> int:
        """That of the inner gradients."""
        return self.inner.summands

    def abs_norm_bound(self) -> Tensor:
        """Return that of the inner gradients."""
        return self.inner.abs_norm_bound()


def rounded_up(squares: Tensor, use: PerExampleGrad) -> Tensor:
    """Return squared norms with what rounding may have hidden added to the norms.

    A norm and a weighted sum that add the same terms in another order differ by units in the last place of the terms' sizes:
    one, and half of one for every further term, which equal terms come close to, as all are rounded in the same direction.
    That is much of a gradient whose terms nearly cancel. Norms may be too large; too small would break the bound.

    Source:
        Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2.
    """
    return with_rounding(squares, use.abs_norm_bound(), use.dtype, use.summands)


def with_rounding(squares: Tensor, reach: Tensor, dtype: torch.dtype, terms: int = 1) -> Tensor:
    """Return `rounded_up` for a known reach and number of terms."""
    return (squares.sqrt() + (1 + terms) / 2 * torch.finfo(dtype).eps * reach).square_()


def resolved(squares: Tensor, use: PerExampleGrad) -> Tensor:
    """Return squared norms with those that are NaN in float64, as terms cancelled, measured from gradients that are formed.

    Those in float32 are left to be measured in float64.
    """
    lost = squares.isnan().nonzero().flatten()
    if use.dtype == torch.float64 and len(lost):
        squares[lost] = PerExampleGrad.squared_norms(use.index_select(lost))
    return squares


class OutputGrad(PerExampleGrad):
    """Gradients that are held, or made of gradients of an output that are: (B, …)."""

    gradients: Tensor

    @property
    def examples(self) -> int:
        """B."""
        return self.gradients.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""
        return self.gradients.dtype

    @property
    def device(self) -> torch.device:
        """Where the gradients are."""
        return self.gradients.device


@dataclass(frozen=True, eq=False)
class StoredGrad(OutputGrad):
    """Gradients that are at hand, in some order of their numbers.

    Args:
        gradients: (B, …), all the numbers of an example's gradient that are not known to be zero.
    """

    gradients: Tensor

    @property
    def numel_per_example(self) -> int:
        """Size of the parameter."""
        return self.gradients[:1].numel()

    def abs_norm_bound(self) -> Tensor:
        """Return ‖gᵢ‖: these very numbers are summed."""
        return squared_norms(self.gradients).sqrt_()

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², (B,) float64."""
        return squared_norms(self.gradients)

    def index_select(self, index: Tensor | slice) -> Self:
        """Return the gradients of some of the examples."""
        return replace(self, gradients=self.gradients[index])

    def double(self) -> Self:
        """Return the same gradients in float64."""
        return replace(self, gradients=self.gradients.double())


class DenseGrad(StoredGrad):
    """Gradients as the parameter is: small parameters, and whatever was cheaper to form at once, (B, *shape)."""

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape)."""
        return self.gradients

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        flat = self.gradients.flatten(1) if self.gradients.dim() > 1 else self.gradients[:, None]
        return (weights.to(flat.dtype) @ flat).view(self.gradients.shape[1:])


@dataclass(frozen=True)
class Factors:
    """What every example's gradient Σₜ gₜ aₜᵀ of a convolution is made of, laid out for products with masks: examples last.

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
