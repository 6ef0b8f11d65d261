"""Per-example gradients of one parameter, as dense tensors or as the factors that the backward pass leaves.

Every kind implements norms, weighted sum, materialisation and selection. Norms and weighted sums are computed from the factors,
so per-example gradients are formed only where that is cheaper, and then in blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Self

import torch
from torch import Tensor

from privet.gradients.core.norms import as_matrix, blocks, full_precision, squared_norms

# Most elements of one parameter's per-example gradients that are stored rather than recomputed.
KEEP = 1 << 23


def delegate(path: str) -> Any:
    """Return a property that reads an attribute of a field, such as "gradients.dtype": in C, because passes read so many."""
    return property(attrgetter(path))


class PerExampleGrad(ABC):
    """Gradients of one parameter for B examples; they are not materialised unless the subclass stores them.

    Subclasses are dataclasses. Tensors and gradients in their fields have the B examples first; other fields are shared.
    """

    examples: int  # B
    dtype: torch.dtype  # of the gradients
    device: torch.device

    @property
    @abstractmethod
    def numel_per_example(self) -> int:
        """Number of elements of one example's materialised gradient, including what forming it needs."""

    @abstractmethod
    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the parameter)."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, shaped like the parameter, for weights (B,)."""

    def index_select(self, index: Tensor | slice) -> Self:
        """Return the gradients of a subset of the examples."""
        return self._map(lambda x: x[index], lambda grad: grad.index_select(index))

    def double(self) -> Self:
        """Return the same gradients in float64."""
        return self._map(_to_double, lambda grad: grad.double())

    def scale(self, factor: float) -> Self:
        """Return the gradients multiplied by a number."""
        return self._map(lambda x: x, lambda grad: grad.scale(factor))

    def _map(self, of_tensor: Callable[[Tensor], Tensor], of_grad: Callable[[PerExampleGrad], PerExampleGrad]) -> Self:
        def convert(value: Any) -> Any:
            if isinstance(value, Tensor):
                return of_tensor(value)
            if isinstance(value, PerExampleGrad):
                return of_grad(value)
            return tuple(map(convert, value)) if isinstance(value, tuple) else value

        own: Any = self
        return replace(own, **{each.name: convert(getattr(self, each.name)) for each in fields(own)})  # type: ignore[no-any-return]

    @abstractmethod
    def abs_norm_bound(self) -> Tensor:
        """Return the sum of the norms of each gradient's terms, (B,) float64: at least ‖gᵢ‖, with equality if none cancel."""

    @property
    def summands(self) -> int:
        """Number of terms that a weighted sum adds up per entry of a gradient; 1 for stored gradients."""
        return 1

    @property
    def norm_factors(self) -> tuple[Tensor, ...]:
        """The gradients x, (B, …), or factors a and g of gradients g aᵀ, whose norms give ‖gᵢ‖; empty for other gradients."""
        return ()

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², (B,) float64; by default from gradients that are formed in blocks and discarded."""
        return round_up(norms_of_formed(self), self)


def _to_double(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float64)) if x.is_floating_point() or x.is_complex() else x


@dataclass(frozen=True, eq=False)
class WrappedGrad(PerExampleGrad):
    """Gradients that wrap others; what a subclass does not define is delegated."""

    inner: PerExampleGrad

    examples, dtype, device = delegate("inner.examples"), delegate("inner.dtype"), delegate("inner.device")
    numel_per_example, summands = delegate("inner.numel_per_example"), delegate("inner.summands")

    def abs_norm_bound(self) -> Tensor:
        """As for the inner gradients."""
        return self.inner.abs_norm_bound()


def round_up(squares: Tensor, grad: PerExampleGrad) -> Tensor:
    """Return squared norms with a bound on rounding errors added to the norms.

    A norm and a weighted sum that add the same terms in different orders differ by one unit in the last place of their sizes,
    plus half a unit for every further term; equal terms come close to this. Terms of other examples that are added before
    large terms have cancelled are rounded by as much: a constant bounds their number, as a norm must not depend on how many
    examples there are. Norms may be too large; if they were too small, clipping would exceed its bound.
    Source:
        Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2.
    """
    return add_rounding_error(squares, grad.abs_norm_bound(), grad.dtype, grad.summands)


def add_rounding_error(squares: Tensor, bound: Tensor, dtype: torch.dtype, terms: int = 1, *, in_order: bool = False) -> Tensor:
    """Compute `round_up`; `in_order` if sums add all terms of one example before those of the next, which then round no more."""
    norms, unit = squares.sqrt(), torch.finfo(dtype).eps / 2
    cancelled = None if in_order else torch.sub(bound, norms, alpha=_USUAL).clamp_(min=0)
    norms.add_(bound, alpha=(1 + terms) * unit)
    if cancelled is not None:
        norms.add_(cancelled, alpha=_OTHERS * (1 + terms / _PANEL) * unit)
    return norms.square_()


# Where the terms are longer than the gradient by no more than this factor, rounding of other examples does not matter.
_USUAL = 16
# Other examples whose terms round while the terms of one have not cancelled, and terms of one example that a product adds up
# before it adds the result to the others.
_OTHERS, _PANEL = 512, 256


def recompute_cancelled(squares: Tensor, grad: PerExampleGrad) -> Tensor:
    """Recompute squared norms that are NaN because terms cancelled, from materialised float64 gradients; keep NaN in float32."""
    # The type is asked first: the host waits for a device to count what is lost.
    if grad.dtype == torch.float64 and len(lost := squares.isnan().nonzero().flatten()):
        squares[lost] = PerExampleGrad.squared_norms(grad.index_select(lost))
    return squares


def norms_of_formed(grad: PerExampleGrad) -> Tensor:
    """Return ‖gᵢ‖², (B,) float64, of what `sum_formed` adds up: gradients formed in blocks, without a bound for rounding."""
    cut = blocks(grad.examples, grad.numel_per_example, grad.device)
    return torch.cat([squared_norms(grad.index_select(block).materialize()) for block in cut])


def sum_formed(grad: PerExampleGrad, weights: Tensor) -> Tensor:
    """Return Σᵢ wᵢ·gᵢ of gradients that are formed in blocks and discarded.

    Terms that are combined after a sum over the examples cancel only then, and other examples' rounding stays.
    """
    total: Tensor | None = None
    for block in blocks(grad.examples, grad.numel_per_example, grad.device):
        part = DenseGrad(grad.index_select(block).materialize()).weighted_sum(weights[block])
        total = part if total is None else total.add_(part)
    assert total is not None, "there are examples"
    return total


class OutputGrad(PerExampleGrad):
    """Gradients that hold a tensor `gradients`, (B, …): their own, or those of an output, in which they are linear."""

    gradients: Tensor

    dtype, device = delegate("gradients.dtype"), delegate("gradients.device")

    @property
    def examples(self) -> int:  # type: ignore[override]
        """B."""
        return self.gradients.shape[0]

    def scale(self, factor: float) -> Self:
        """Return the gradients multiplied by a number."""
        whole = self.gradients
        # What all positions share is multiplied once, and stays shared.
        shared = whole[tuple(slice(1) if step == 0 else slice(None) for step in whole.stride())]
        return replace(self, gradients=(factor * shared).expand_as(whole))  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class StoredGrad(OutputGrad):
    """Gradients stored element by element, (B, …) in any order, without those that are known to be zero."""

    gradients: Tensor

    @property
    def numel_per_example(self) -> int:
        """Size of the parameter."""
        return self.gradients[:1].numel()

    @property
    def norm_factors(self) -> tuple[Tensor, ...]:
        """The gradients."""
        return (self.gradients,)

    def abs_norm_bound(self) -> Tensor:
        """Return ‖gᵢ‖: the stored elements themselves are summed."""
        return squared_norms(self.gradients).sqrt_()

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², (B,) float64."""
        return squared_norms(self.gradients)


class DenseGrad(StoredGrad):
    """Gradients stored in the shape of the parameter, (B, *shape): of small parameters, or where forming them is cheapest."""

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape)."""
        return self.gradients

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        x = self.gradients
        found = weights.to(x.dtype) @ (x if x.dim() == 2 else as_matrix(x))
        return found if x.dim() == 2 else found.view(x.shape[1:])


def store_small(grad: PerExampleGrad) -> PerExampleGrad:
    """Return gradients that norm and weighted sum both have to form: formed once, if they are small."""
    if grad.examples * grad.numel_per_example > KEEP:
        return grad
    with full_precision(grad.device):
        return DenseGrad(grad.materialize())
