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

from privet.gradients.convolution import KernelUse
from privet.gradients.derived import DerivedUse, disjoint
from privet.gradients.embedding import EmbeddingUse
from privet.gradients.linear import LinearUse
from privet.gradients.norms import CANCELLED, blocks
from privet.gradients.uses import DirectUse, HeldUse, Use, resolved, with_rounding


@dataclass(frozen=True, eq=False)
class SeveralUses(Use):
    """Uses of any kinds, measured by forming the sum of their gradients in blocks.

    Args:
        uses: of the same parameter, by the same examples.
    """

    uses: tuple[Use, ...]

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
    def cost(self) -> int:
        """The most that one of the uses takes."""
        return max(use.cost for use in self.uses)

    @property
    def terms(self) -> int:
        """The sum over the uses."""
        return sum(use.terms for use in self.uses)

    def reach(self) -> Tensor:
        """Return the sum over the uses."""
        return torch.stack([use.reach() for use in self.uses]).sum(0)

    def per_example(self) -> Tensor:
        """Return the gradients, (B, *shape)."""
        total = self.uses[0].per_example()
        for use in self.uses[1:]:
            total = total + use.per_example()
        return total

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        total = self.uses[0].weighted_sum(weights)
        for use in self.uses[1:]:
            total = total + use.weighted_sum(weights)
        return total

    def rows(self, index: Tensor | slice) -> Use:
        """Return the same uses by some of the examples."""
        return type(self)(tuple(use.rows(index) for use in self.uses))

    def double(self) -> Use:
        """Return the same uses in float64."""
        return type(self)(tuple(use.double() for use in self.uses))


class DisjointUses(SeveralUses):
    """Uses of parts of a parameter that have no entry in common, such as the projections packed into one attention weight."""

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: here the squares do add up."""
        return torch.stack([use.squared_norms() for use in self.uses]).sum(0)


class LinearUses(SeveralUses):
    """Uses of one weight as a linear map: together one use over the positions of all of them."""

    uses: tuple[LinearUse, ...]

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², from a block of examples at a time with its positions side by side."""
        size = sum(use.inputs[:1].numel() + use.gradients[:1].numel() for use in self.uses)
        return torch.cat([self.joined(block).squared_norms() for block in blocks(self.examples, size, self.device)])

    def joined(self, block: slice) -> LinearUse:
        """Return the uses of a block of examples as one, their positions side by side."""
        inputs, gradients = ([getattr(use, side)[block] for use in self.uses] for side in ("inputs", "gradients"))
        return LinearUse(torch.cat(inputs, 1), torch.cat(gradients, 1))


class TiedUses(SeveralUses):
    """An embedding table that is a linear map too, as of a language model's head.

    ‖E + L‖² = ‖E‖² + ‖L‖² + 2⟨E, L⟩, and ⟨E, L⟩ = Σₜₛ Gₛ[iₜ]·⟨gₜ, aₛ⟩ for rows gₜ that are added at index iₜ and a linear map of
    inputs aₛ with output gradients Gₛ: no gradient as large as the table is formed.
    """

    uses: tuple[EmbeddingUse, LinearUse | LinearUses]

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², (B,) float64; in float32 NaN where the two nearly cancel, which it does not resolve."""
        looked_up, linear = self.uses
        squares = looked_up.squared_norms(), linear.squared_norms()
        positions, read, written = looked_up.indices.shape[1], 0, 0
        for use in linear.uses if isinstance(linear, LinearUses) else (linear,):
            read, written = read + use.inputs.shape[1], written + use.gradients[:1].numel()
        cut = blocks(self.examples, positions * read + written, self.device)
        total = squares[0] + squares[1] + 2 * torch.cat([self._cross(block) for block in cut])
        reach = self.reach()
        total = total.where(total >= CANCELLED * reach.square(), torch.nan)
        off = 2 * torch.finfo(self.dtype).eps / math.sqrt(positions + read)
        return resolved(with_rounding(total + off * reach.square(), reach, self.dtype, self.terms), self)

    def _cross(self, block: slice) -> Tensor:
        looked_up, both = self.uses[0].rows(block), self.uses[1]
        linear = both.joined(block) if isinstance(both, LinearUses) else both.rows(block)
        products = torch.bmm(linear.inputs, looked_up.gradients.transpose(1, 2))
        where = looked_up.indices[:, None, :].expand_as(products)
        products.mul_(linear.gradients.gather(2, where))
        if looked_up.padding is not None:
            products.masked_fill_((looked_up.indices == looked_up.padding)[:, None, :], 0)
        return products.flatten(1).sum(1, dtype=torch.float64)


def _added(uses: Sequence[HeldUse]) -> Use:
    """Return gradients that are at hand, added up."""
    total = uses[0].gradients + uses[1].gradients
    for use in uses[2:]:
        total += use.gradients
    return type(uses[0])(total)


def _looked_up(uses: Sequence[EmbeddingUse]) -> Use:
    """Return the lookups in one table as one: those at the same indices added up, others side by side."""
    found: list[EmbeddingUse] = []
    for use in uses:
        alike = (i for i, known in enumerate(found) if torch.equal(known.indices, use.indices))
        place = next(alike, None)
        if place is None:
            found.append(use)
        else:
            found[place] = replace(use, gradients=_both(found[place].gradients, use.gradients))
    if len(found) == 1:
        return found[0]
    indices, gradients = (torch.cat([getattr(use, side) for use in found], 1) for side in ("indices", "gradients"))
    return replace(found[0], indices=indices, gradients=gradients)


def _both(one: Tensor, other: Tensor) -> Tensor:
    """Return the sum of two gradients of lookups; if each has one gradient for all positions, so has the sum."""
    if one.stride(1) == other.stride(1) == 0:
        return (one[:, :1] + other[:, :1]).expand_as(one)
    return one + other


def _seen(uses: Sequence[DerivedUse]) -> Use:
    """Return the uses of one view of a parameter as one."""
    return DerivedUse(together([use.inner for use in uses]), uses[0].derivation, uses[0].precision)


def _view(use: DerivedUse) -> Hashable:
    """Return what tells apart the views of a parameter; what is not a view is like nothing else."""
    tensor, span = use.derivation.tensor, use.derivation.span
    return object() if span is None else (span, tensor.shape, tensor.stride())


# Kind → what uses must have in common to become one use of that kind, and how they do.
_ONE: dict[type[Use], tuple[Callable[[Any], Hashable], Callable[[Any], Use]]] = {
    DirectUse: (lambda use: None, _added),
    KernelUse: (lambda use: None, _added),
    EmbeddingUse: (lambda use: (use.size, use.padding), _looked_up),
    DerivedUse: (_view, _seen),
}


def _opened(uses: Iterable[Use]) -> Iterator[Use]:
    """Yield the uses, each of several in place of those."""
    for use in uses:
        if isinstance(use, SeveralUses):
            yield from _opened(use.uses)
        else:
            yield use


def _fewest(uses: Iterable[Use]) -> list[Use]:
    """Return the uses with those that can be one use of their kind made one."""
    found: dict[Hashable, list[Use]] = {}
    for use in _opened(uses):
        key = (type(use), _ONE[type(use)][0](use)) if type(use) in _ONE else object()
        found.setdefault(key, []).append(use)
    return [same[0] if len(same) == 1 else _ONE[type(same[0])][1](same) for same in found.values()]


def together(uses: Sequence[Use]) -> Use:
    """Return all uses of one parameter as one, measured in the cheapest way that their kinds allow."""
    if len(uses) == 1:
        return uses[0]
    fewest = _fewest(uses)
    linear = tuple(use for use in fewest if isinstance(use, LinearUse))
    other = tuple(use for use in fewest if not isinstance(use, LinearUse))
    derived = [use for use in other if isinstance(use, DerivedUse)]
    if len(fewest) == 1:
        return fewest[0]
    if not other:
        return LinearUses(linear)
    if len(derived) == len(fewest) and disjoint(derived):
        return DisjointUses(tuple(fewest))
    if len(other) == 1 and isinstance(other[0], EmbeddingUse):
        return TiedUses((other[0], linear[0] if len(linear) == 1 else LinearUses(linear)))
    return SeveralUses(tuple(fewest))
