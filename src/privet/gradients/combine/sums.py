"""Sums of per-example gradients of one parameter that is used several times: added *before* the norm is taken.

‖Σᵤ gᵤ‖² is not Σᵤ ‖gᵤ‖² (tied weights, modules called twice, recurrences). Norm and weighted sum are computed in the cheapest
way that the kinds of gradients allow.

A tensor D = f(p) computed from parameters alone, such as a view, a weight-normalised or a merged weight, is followed like a
parameter. Every gᵢ of p is the vector-Jacobian product of f with the gradient of D. Where f only rearranges entries, the norms
are those for D, and the weighted sum takes one product with the Jacobian. Elsewhere both take one for each example: by one
product of the sum, gradients that the Jacobian cancels would be rounded before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from privet._utils.tensors import gradient_dtype
from privet.gradients.core.derivation import Derivation
from privet.gradients.core.norms import CANCELLED, blocks
from privet.gradients.core.per_example import (
    DenseGrad,
    PerExampleGrad,
    StoredGrad,
    WrappedGrad,
    add_rounding_error,
    delegate,
    norms_of_formed,
    recompute_cancelled,
    store_small,
    sum_formed,
)
from privet.gradients.layers.convolution.gradient import ConvDenseGrad
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.layers.experts import GroupedLinearGrad, concatenate_rows
from privet.gradients.layers.linear import LinearGrad, is_smaller


@dataclass(frozen=True, eq=False)
class DerivedGrad(WrappedGrad):
    """Per-example gradients of a parameter that is used through a derived tensor, whose own gradients are `inner`."""

    derivation: Derivation
    precision: torch.dtype

    dtype = delegate("precision")

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


@dataclass(frozen=True, eq=False)
class SummedGrads(PerExampleGrad):
    """A sum of gradients of any kinds of one parameter, materialised in blocks for norms and weighted sums."""

    grads: tuple[PerExampleGrad, ...]

    examples, dtype, device = delegate("_first.examples"), delegate("_first.dtype"), delegate("_first.device")

    @property
    def _first(self) -> PerExampleGrad:
        return self.grads[0]

    @property
    def numel_per_example(self) -> int:
        """Largest number among the terms."""
        return max(grad.numel_per_example for grad in self.grads)

    @property
    def summands(self) -> int:
        """Sum over the terms."""
        return sum(grad.summands for grad in self.grads)

    def abs_norm_bound(self) -> Tensor:
        """Return the sum over the terms."""
        return torch.stack([grad.abs_norm_bound() for grad in self.grads]).sum(0)

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape)."""
        total = self.grads[0].materialize()
        for grad in self.grads[1:]:
            total = total + grad.materialize()
        return total

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²."""
        return norms_of_formed(self)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        return sum_formed(self, weights)


class SeparateGrads(SummedGrads):
    """A sum of gradients whose weighted sum is that of the terms: rounding is bounded by the norm, or terms do not meet."""

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        total = self.grads[0].weighted_sum(weights)
        for grad in self.grads[1:]:
            total = total + grad.weighted_sum(weights)
        return total


class DisjointGrads(SeparateGrads):
    """A sum of gradients of disjoint parts of a parameter, such as the projections packed into one attention weight."""

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: the terms are orthogonal, so their squared norms add up."""
        return torch.stack([grad.squared_norms() for grad in self.grads]).sum(0)


class ConcatenatedLinearGrads(SummedGrads):
    """A sum of gradients of one weight of linear maps: one `LinearGrad` over the positions of all terms, block by block.

    Sums over all examples that are added use after use would round an example's term to the precision of the sum of all.
    """

    grads: tuple[LinearGrad, ...]

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²."""
        return torch.cat([part.squared_norms() for _, part in self._concatenate_blocks()])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        sums = (part.weighted_sum(weights[block]) for block, part in self._concatenate_blocks())
        return functools.reduce(Tensor.add_, sums)

    def _concatenate_blocks(self) -> Iterator[tuple[slice, LinearGrad]]:
        size = sum(grad.inputs[:1].numel() + grad.gradients[:1].numel() for grad in self.grads)
        return ((block, self.concatenate(block)) for block in blocks(self.examples, size, self.device))

    def concatenate(self, block: slice) -> LinearGrad:
        """Return the sum for a block of examples as one `LinearGrad` over the concatenated positions."""
        inputs, gradients = ([getattr(grad, side)[block] for grad in self.grads] for side in ("inputs", "gradients"))
        return LinearGrad(torch.cat(inputs, 1), torch.cat(gradients, 1))

    @classmethod
    def choose(cls, grads: tuple[LinearGrad, ...]) -> PerExampleGrad:
        """Return the sum, or the materialised gradients where those are smaller than the factors."""
        whole = cls(grads)
        if not is_smaller(whole.summands, grads[0]):
            return whole
        return DenseGrad(torch.cat([part.materialize() for _, part in whole._concatenate_blocks()]))


class TiedEmbeddingGrads(SeparateGrads):
    """Gradients of an embedding table tied to a linear map, as in the head of a language model.

    ‖E + L‖² = ‖E‖² + ‖L‖² + 2⟨E, L⟩, and ⟨E, L⟩ = Σₜₛ Gₛ[iₜ]·⟨gₜ, aₛ⟩ for rows gₜ that are added at index iₜ and a linear map of
    inputs aₛ with output gradients Gₛ: no gradient of the size of the table is formed.
    """

    grads: tuple[EmbeddingGrad, LinearGrad | ConcatenatedLinearGrads]

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², (B,) float64; in float32, NaN where the two terms nearly cancel."""
        looked_up, linear = self.grads
        squares = looked_up.squared_norms(), linear.squared_norms()
        positions, read, written = looked_up.indices.shape[1], 0, 0
        for grad in linear.grads if isinstance(linear, ConcatenatedLinearGrads) else (linear,):
            read, written = read + grad.inputs.shape[1], written + grad.gradients[:1].numel()
        cut = blocks(self.examples, positions * read + written, self.device)
        total = squares[0] + squares[1] + 2 * torch.cat([self._cross(block) for block in cut])
        bound = self.abs_norm_bound()
        total = total.where(total >= CANCELLED * bound.square(), torch.nan)
        error = 2 * torch.finfo(self.dtype).eps / math.sqrt(positions + read)
        return recompute_cancelled(add_rounding_error(total + error * bound.square(), bound, self.dtype, self.summands), self)

    def _cross(self, block: slice) -> Tensor:
        looked_up, both = self.grads[0].index_select(block), self.grads[1]
        linear = both.concatenate(block) if isinstance(both, ConcatenatedLinearGrads) else both.index_select(block)
        products = torch.bmm(linear.inputs, looked_up.gradients.transpose(1, 2))
        where = looked_up.indices[:, None, :].expand_as(products)
        products.mul_(linear.gradients.gather(2, where))
        if looked_up.padding is not None:
            products.masked_fill_((looked_up.indices == looked_up.padding)[:, None, :], 0)
        return products.flatten(1).sum(1, dtype=torch.float64)


def _add_stored(grads: Sequence[StoredGrad]) -> PerExampleGrad:
    total = grads[0].gradients + grads[1].gradients
    for grad in grads[2:]:
        total += grad.gradients
    return type(grads[0])(total)


def _merge_lookups(grads: Sequence[EmbeddingGrad]) -> PerExampleGrad:
    """Merge lookups in one table: add those with the same tensor of indices, concatenate the others."""
    found: list[EmbeddingGrad] = []
    for grad in grads:
        alike = (i for i, known in enumerate(found) if _is_same(known.indices, grad.indices))
        place = next(alike, None)
        if place is None:
            found.append(grad)
        else:
            found[place] = replace(grad, gradients=_add_lookups(found[place].gradients, grad.gradients))
    if len(found) == 1:
        return found[0]
    indices, gradients = (torch.cat([getattr(grad, side) for grad in found], 1) for side in ("indices", "gradients"))
    return replace(found[0], indices=indices, gradients=gradients)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same memory. Equal values would not do: one example would decide for all others."""
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride() and one.shape == other.shape


def _add_lookups(one: Tensor, other: Tensor) -> Tensor:
    """Return the sum of two gradients of lookups; if both share one gradient over all positions, so does the sum."""
    if one.stride(1) == other.stride(1) == 0:
        return (one[:, :1] + other[:, :1]).expand_as(one)
    return one + other


def _view_key(grad: DerivedGrad) -> Hashable:
    """Return a key that is equal for equal views of a parameter; a tensor that is no view gets a unique key."""
    tensor, span = grad.derivation.tensor, grad.derivation.span
    return object() if span is None else (span, tensor.shape, tensor.stride())


# Kind → key that gradients of that kind must share to be merged, and the function that merges them.
_MERGERS: dict[type[PerExampleGrad], tuple[Callable[[Any], Hashable], Callable[[Any], PerExampleGrad]]] = {
    DenseGrad: (lambda grad: None, _add_stored),
    ConvDenseGrad: (lambda grad: None, _add_stored),
    EmbeddingGrad: (lambda grad: (grad.size, grad.padding), _merge_lookups),
    GroupedLinearGrad: (lambda grad: grad.size, concatenate_rows),
    DerivedGrad: (_view_key, lambda grads: replace(grads[0], inner=sum_grads([grad.inner for grad in grads]))),
}


def _flatten(grads: Iterable[PerExampleGrad]) -> Iterator[PerExampleGrad]:
    for grad in grads:
        if isinstance(grad, SummedGrads):
            yield from _flatten(grad.grads)
        else:
            yield grad


def _merge_same_kind(grads: Iterable[PerExampleGrad]) -> list[PerExampleGrad]:
    found: dict[Hashable, list[PerExampleGrad]] = {}
    for grad in _flatten(grads):
        key = (type(grad), _MERGERS[type(grad)][0](grad)) if type(grad) in _MERGERS else object()
        found.setdefault(key, []).append(grad)
    return [same[0] if len(same) == 1 else _MERGERS[type(same[0])][1](same) for same in found.values()]


def sum_grads(grads: Sequence[PerExampleGrad]) -> PerExampleGrad:
    """Return the sum of all gradients of one parameter, in the form whose norm is cheapest to compute."""
    if len(grads) == 1:
        return grads[0]
    merged = _merge_same_kind(grads)
    linear = tuple(grad for grad in merged if isinstance(grad, LinearGrad))
    other = tuple(grad for grad in merged if not isinstance(grad, LinearGrad))
    derived = [grad for grad in other if isinstance(grad, DerivedGrad)]
    if len(merged) == 1:
        return merged[0]
    if not other:
        return ConcatenatedLinearGrads.choose(linear)
    if len(derived) == len(merged) and is_disjoint(derived):
        return DisjointGrads(tuple(merged))
    if len(other) == 1 and isinstance(other[0], EmbeddingGrad):
        return TiedEmbeddingGrads((other[0], linear[0] if len(linear) == 1 else ConcatenatedLinearGrads(linear)))
    return store_small(SummedGrads(tuple(merged)))


@dataclass(frozen=True, eq=False)
class GroupedGrad(WrappedGrad):
    """Gradients of B·size rows, of which every `size` consecutive ones form one unit."""

    size: int

    @property
    def examples(self) -> int:  # type: ignore[override]
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
    return rows.reshape(-1, size, *rows.shape[1:]).sum(1)


# Kinds whose sum over rows is of the same kind; all others become a `GroupedGrad`.
_KINDS: dict[type[PerExampleGrad], Callable[[Any, int], PerExampleGrad]] = {
    DenseGrad: lambda grad, size: DenseGrad(_sum_rows(grad.gradients, size)),
    ConvDenseGrad: lambda grad, size: ConvDenseGrad(_sum_rows(grad.gradients, size)),
}


def group_rows(grad: PerExampleGrad, size: int) -> PerExampleGrad:
    """Return the gradients of units of `size` rows each, such as the frames of a video, given those of the rows."""
    if size == 1:
        return grad
    kind = _KINDS.get(type(grad), GroupedGrad)
    return kind(grad, size)
