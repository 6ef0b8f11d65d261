"""Several uses of one parameter as one: gradients add up *before* the norm is taken.

‖Σᵤ gᵤ‖² is not Σᵤ ‖gᵤ‖² (ties, modules called twice, recurrences). The weighted sum is linear, so each use gives its own; the
norm comes from the cheapest way to add up that the kinds of use allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from privet.gradients.combine.derived import DerivedGrad, disjoint
from privet.gradients.core.norms import CANCELLED, blocks
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad, StoredGrad, resolved, with_rounding
from privet.gradients.layers.convolution.gradient import ConvDenseGrad
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.layers.experts import GroupedLinearGrad, side_by_side
from privet.gradients.layers.linear import LinearGrad


@dataclass(frozen=True, eq=False)
class SummedGrads(PerExampleGrad):
    """Uses of any kinds, measured by forming the sum of their gradients in blocks.

    Args:
        uses: of the same parameter, by the same examples.
    """

    uses: tuple[PerExampleGrad, ...]

    @property
    def examples(self) -> int:
        """B."""
        return self.uses[0].examples

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""
        return self.uses[0].dtype

    @property
    def device(self) -> torch.device:
        """Where the gradients are."""
        return self.uses[0].device

    @property
    def numel_per_example(self) -> int:
        """The most that one of the uses takes."""
        return max(use.numel_per_example for use in self.uses)

    @property
    def summands(self) -> int:
        """The sum over the uses."""
        return sum(use.summands for use in self.uses)

    def abs_norm_bound(self) -> Tensor:
        """Return the sum over the uses."""
        return torch.stack([use.abs_norm_bound() for use in self.uses]).sum(0)

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape)."""
        total = self.uses[0].materialize()
        for use in self.uses[1:]:
            total = total + use.materialize()
        return total

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        total = self.uses[0].weighted_sum(weights)
        for use in self.uses[1:]:
            total = total + use.weighted_sum(weights)
        return total

    def index_select(self, index: Tensor | slice) -> PerExampleGrad:
        """Return the same uses by some of the examples."""
        return type(self)(tuple(use.index_select(index) for use in self.uses))

    def double(self) -> PerExampleGrad:
        """Return the same uses in float64."""
        return type(self)(tuple(use.double() for use in self.uses))


class DisjointGrads(SummedGrads):
    """Uses of parts of a parameter that have no entry in common, such as the projections packed into one attention weight."""

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: here the squares do add up."""
        return torch.stack([use.squared_norms() for use in self.uses]).sum(0)


class ConcatenatedLinearGrads(SummedGrads):
    """Uses of one weight as a linear map: together one use over the positions of all of them."""

    uses: tuple[LinearGrad, ...]

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², from a block of examples at a time with its positions side by side."""
        size = sum(use.inputs[:1].numel() + use.gradients[:1].numel() for use in self.uses)
        return torch.cat([self.joined(block).squared_norms() for block in blocks(self.examples, size, self.device)])

    def joined(self, block: slice) -> LinearGrad:
        """Return the uses of a block of examples as one, their positions side by side."""
        inputs, gradients = ([getattr(use, side)[block] for use in self.uses] for side in ("inputs", "gradients"))
        return LinearGrad(torch.cat(inputs, 1), torch.cat(gradients, 1))


class TiedEmbeddingGrads(SummedGrads):
    """An embedding table that is a linear map too, as of a language model's head.

    ‖E + L‖² = ‖E‖² + ‖L‖² + 2⟨E, L⟩, and ⟨E, L⟩ = Σₜₛ Gₛ[iₜ]·⟨gₜ, aₛ⟩ for rows gₜ that are added at index iₜ and a linear map of
    inputs aₛ with output gradients Gₛ: no gradient as large as the table is formed.
    """

    uses: tuple[EmbeddingGrad, LinearGrad | ConcatenatedLinearGrads]

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², (B,) float64; in float32 NaN where the two nearly cancel, which it does not resolve."""
        looked_up, linear = self.uses
        squares = looked_up.squared_norms(), linear.squared_norms()
        positions, read, written = looked_up.indices.shape[1], 0, 0
        for use in linear.uses if isinstance(linear, ConcatenatedLinearGrads) else (linear,):
            read, written = read + use.inputs.shape[1], written + use.gradients[:1].numel()
        cut = blocks(self.examples, positions * read + written, self.device)
        total = squares[0] + squares[1] + 2 * torch.cat([self._cross(block) for block in cut])
        reach = self.abs_norm_bound()
        total = total.where(total >= CANCELLED * reach.square(), torch.nan)
        off = 2 * torch.finfo(self.dtype).eps / math.sqrt(positions + read)
        return resolved(with_rounding(total + off * reach.square(), reach, self.dtype, self.summands), self)

    def _cross(self, block: slice) -> Tensor:
        looked_up, both = self.uses[0].index_select(block), self.uses[1]
        linear = both.joined(block) if isinstance(both, ConcatenatedLinearGrads) else both.index_select(block)
        products = torch.bmm(linear.inputs, looked_up.gradients.transpose(1, 2))
        where = looked_up.indices[:, None, :].expand_as(products)
        products.mul_(linear.gradients.gather(2, where))
        if looked_up.padding is not None:
            products.masked_fill_((looked_up.indices == looked_up.padding)[:, None, :], 0)
        return products.flatten(1).sum(1, dtype=torch.float64)


def _added(uses: Sequence[StoredGrad]) -> PerExampleGrad:
    """Return gradients that are at hand, added up."""
    total = uses[0].gradients + uses[1].gradients
    for use in uses[2:]:
        total += use.gradients
    return type(uses[0])(total)


def _looked_up(uses: Sequence[EmbeddingGrad]) -> PerExampleGrad:
    """Return the lookups in one table as one: those at the same indices added up, others side by side."""
    found: list[EmbeddingGrad] = []
    for use in uses:
        alike = (i for i, known in enumerate(found) if torch.equal(known.indices, use.indices))
        place = next(alike, None)
        if place is None:
            found.append(use)
        else:
            found[place] = replace(use, gradients=_add_lookups(found[place].gradients, use.gradients))
    if len(found) == 1:
        return found[0]
    indices, gradients = (torch.cat([getattr(use, side) for use in found], 1) for side in ("indices", "gradients"))
    return replace(found[0], indices=indices, gradients=gradients)


def _add_lookups(one: Tensor, other: Tensor) -> Tensor:
    """Return the sum of two gradients of lookups; if each has one gradient for all positions, so has the sum."""
    if one.stride(1) == other.stride(1) == 0:
        return (one[:, :1] + other[:, :1]).expand_as(one)
    return one + other


def _merge_views(uses: Sequence[DerivedGrad]) -> PerExampleGrad:
    """Return the uses of one view of a parameter as one."""
    return DerivedGrad(sum_grads([use.inner for use in uses]), uses[0].derivation, uses[0].precision)


def _view(use: DerivedGrad) -> Hashable:
    """Return what tells apart the views of a parameter; what is not a view is like nothing else."""
    tensor, span = use.derivation.tensor, use.derivation.span
    return object() if span is None else (span, tensor.shape, tensor.stride())


# Kind → what uses must have in common to become one use of that kind, and how they do.
_MERGERS: dict[type[PerExampleGrad], tuple[Callable[[Any], Hashable], Callable[[Any], PerExampleGrad]]] = {
    DenseGrad: (lambda use: None, _added),
    ConvDenseGrad: (lambda use: None, _added),
    EmbeddingGrad: (lambda use: (use.size, use.padding), _looked_up),
    GroupedLinearGrad: (lambda use: use.size, side_by_side),
    DerivedGrad: (_view, _merge_views),
}


def _flatten(uses: Iterable[PerExampleGrad]) -> Iterator[PerExampleGrad]:
    """Yield the uses, each of several in place of those."""
    for use in uses:
        if isinstance(use, SummedGrads):
            yield from _flatten(use.uses)
        else:
            yield use


def _merge_same_kind(uses: Iterable[PerExampleGrad]) -> list[PerExampleGrad]:
    """Return the uses with those that can be one use of their kind made one."""
    found: dict[Hashable, list[PerExampleGrad]] = {}
    for use in _flatten(uses):
        key = (type(use), _MERGERS[type(use)][0](use)) if type(use) in _MERGERS else object()
        found.setdefault(key, []).append(use)
    return [same[0] if len(same) == 1 else _MERGERS[type(same[0])][1](same) for same in found.values()]


def sum_grads(uses: Sequence[PerExampleGrad]) -> PerExampleGrad:
    """Return all uses of one parameter as one, measured in the cheapest way that their kinds allow."""
    if len(uses) == 1:
        return uses[0]
    fewest = _merge_same_kind(uses)
    linear = tuple(use for use in fewest if isinstance(use, LinearGrad))
    other = tuple(use for use in fewest if not isinstance(use, LinearGrad))
    derived = [use for use in other if isinstance(use, DerivedGrad)]
    if len(fewest) == 1:
        return fewest[0]
    if not other:
        return ConcatenatedLinearGrads(linear)
    if len(derived) == len(fewest) and disjoint(derived):
        return DisjointGrads(tuple(fewest))
    if len(other) == 1 and isinstance(other[0], EmbeddingGrad):
        return TiedEmbeddingGrads((other[0], linear[0] if len(linear) == 1 else ConcatenatedLinearGrads(linear)))
    return SummedGrads(tuple(fewest))
