"""From a use of a parameter and a mask to the cheapest use of the entries that the mask keeps.

Four ways lead there: the factors are masked where that is the same (embeddings), norms come from one more product with the mask
(linear maps of one position), the kept entries are computed by themselves (few, of convolutions with few positions), or gradients
are formed in blocks and only what is kept of them stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from privet.gradients.convolution import ConvolutionUse, KernelUse
from privet.gradients.derived import DerivedUse
from privet.gradients.embedding import EmbeddingUse
from privet.gradients.linear import LinearUse
from privet.gradients.mask_kernels import whole_vectors
from privet.gradients.masked_uses import EntriesUse, KernelProductUse, MaskedUse, ProductUse, SampledUse
from privet.gradients.masks import Mask
from privet.gradients.norms import blocks
from privet.gradients.several import DisjointUses, LinearUses
from privet.gradients.uses import DirectUse, Use

# Kept entries are held, rather than formed again, while those of one parameter take no more numbers than this.
KEEP = 1 << 23
# Entries are computed by themselves while the output gradients of one channel, in numbers, stay in a core's own cache.
_POSITIONS = 1 << 13
# Up to this part of kept entries, taking them out of gradients that are at hand costs less than carrying the others along.
_FEW = 0.35


def masked(use: Use, mask: Mask) -> Use:
    """Return the use of the kept entries only.

    Args:
        use: of a parameter.
        mask: shaped like the parameter.
    """
    return _HOW.get(type(use), _formed)(use, mask)


def _held(use: Use, mask: Mask) -> bool:
    """Return whether the kept entries of all examples may be held."""
    return use.examples * len(mask.places) <= KEEP


def _entries(use: Use, mask: Mask, places: Tensor, formed: Iterator[tuple[slice, Tensor]]) -> EntriesUse:
    """Return the entries at these places of gradients that are formed block by block."""
    values = torch.empty(use.examples, len(places), dtype=use.dtype, device=use.device)
    for block, gradients in formed:
        torch.index_select(gradients.reshape(len(gradients), -1), 1, places, out=values[block])
    return EntriesUse(values, mask)


def _formed(use: Use, mask: Mask) -> Use:
    """Form the gradients, and hold what is kept of them if that is not too much."""
    if not _held(use, mask):
        return MaskedUse(use, mask)
    cut = blocks(use.examples, use.cost, use.device)
    return _entries(use, mask, mask.places, ((block, use.rows(block).per_example()) for block in cut))


def _direct(use: DirectUse, mask: Mask) -> Use:
    if mask.density > _FEW:
        return MaskedUse(use, mask)
    return _entries(use, mask, mask.places, iter([(slice(None), use.gradients)]))


def _kernel(use: KernelUse, mask: Mask) -> Use:
    return _entries(use, mask, mask.places_channels_last, iter([(slice(None), use.gradients)]))


def _convolution(use: ConvolutionUse, mask: Mask) -> Use:
    if _sampled(use, mask):
        values, squares = mask.entries(use.factors(whole_vectors(use.dtype)))
        return SampledUse(values.t()[: use.examples], mask, squares[: use.examples])
    return _entries(use, mask, mask.places_channels_last, use.formed()) if _held(use, mask) else KernelProductUse(use, mask)


def _sampled(use: ConvolutionUse, mask: Mask) -> bool:
    """Return whether the kept entries are computed by themselves."""
    few_positions = use.shape.positions * use.examples <= _POSITIONS
    plain = use.geometry.groups == 1 and use.dtype in (torch.float32, torch.float64)
    return few_positions and plain and mask.samples and _held(use, mask)


def _linear(use: LinearUse, mask: Mask) -> Use:
    return ProductUse(use, mask) if use.inputs.shape[1] == 1 else _formed(use, mask)


def _side_by_side(use: LinearUses, mask: Mask) -> Use:
    """Take linear maps as one over the positions of all of them."""
    return _linear(use.joined(slice(None)), mask)


def _embedding(use: EmbeddingUse, mask: Mask) -> Use:
    """Mask what is added to each row by that row of the mask."""
    rows = mask.numbers(use.dtype).index_select(0, use.indices.flatten()).view(use.gradients.shape)
    return replace(use, gradients=rows.mul_(use.gradients))


def _derived(use: DerivedUse, mask: Mask) -> Use:
    """See the mask as the derived tensor shows the parameter, if it does no more than that."""
    tensor, parameter = use.derivation.tensor, use.derivation.parameter
    if use.derivation.span is None:
        return _formed(use, mask)
    offset = int(tensor.storage_offset()) - int(parameter.storage_offset())
    seen = mask.seen_through(tensor.shape, tensor.stride(), offset, parameter.stride())
    return DerivedUse(masked(use.inner, seen), use.derivation, use.precision)


def _each(use: DisjointUses, mask: Mask) -> Use:
    """Mask uses of different entries one by one: the squares of what is kept add up too."""
    return DisjointUses(tuple(masked(part, mask) for part in use.uses))


_HOW: dict[type[Use], Callable[[Any, Mask], Use]] = {
    ConvolutionUse: _convolution,
    DerivedUse: _derived,
    DirectUse: _direct,
    DisjointUses: _each,
    EmbeddingUse: _embedding,
    KernelUse: _kernel,
    LinearUse: _linear,
    LinearUses: _side_by_side,
}
