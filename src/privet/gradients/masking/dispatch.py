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

from privet.gradients.combine.derived import DerivedGrad
from privet.gradients.combine.sums import ConcatenatedLinearGrads, DisjointGrads
from privet.gradients.core.norms import blocks
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad
from privet.gradients.layers.convolution.gradient import ConvDenseGrad, ConvGrad
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.masking.kernels import whole_vectors
from privet.gradients.masking.masked_gradients import EntriesGrad, MaskedConvGrad, MaskedGrad, MaskedLinearGrad, SampledGrad
from privet.gradients.masking.masks import Mask

# Kept entries are held, rather than formed again, while those of one parameter take no more numbers than this.
KEEP = 1 << 23
# Entries are computed by themselves while the output gradients of one channel, in numbers, stay in a core's own cache.
_POSITIONS = 1 << 13
# Up to this part of kept entries, taking them out of gradients that are at hand costs less than carrying the others along.
_FEW = 0.35


def masked(use: PerExampleGrad, mask: Mask) -> PerExampleGrad:
    """Return the use of the kept entries only.

    Args:
        use: of a parameter.
        mask: shaped like the parameter.
    """
    return _HOW.get(type(use), _formed)(use, mask)


def _held(use: PerExampleGrad, mask: Mask) -> bool:
    """Return whether the kept entries of all examples may be held."""
    return use.examples * len(mask.places) <= KEEP


def _entries(use: PerExampleGrad, mask: Mask, places: Tensor, formed: Iterator[tuple[slice, Tensor]]) -> EntriesGrad:
    """Return the entries at these places of gradients that are formed block by block."""
    values = torch.empty(use.examples, len(places), dtype=use.dtype, device=use.device)
    for block, gradients in formed:
        torch.index_select(gradients.reshape(len(gradients), -1), 1, places, out=values[block])
    return EntriesGrad(values, mask)


def _formed(use: PerExampleGrad, mask: Mask) -> PerExampleGrad:
    """Form the gradients, and hold what is kept of them if that is not too much."""
    if not _held(use, mask):
        return MaskedGrad(use, mask)
    cut = blocks(use.examples, use.numel_per_example, use.device)
    return _entries(use, mask, mask.places, ((block, use.index_select(block).materialize()) for block in cut))


def _direct(use: DenseGrad, mask: Mask) -> PerExampleGrad:
    if mask.density > _FEW:
        return MaskedGrad(use, mask)
    return _entries(use, mask, mask.places, iter([(slice(None), use.gradients)]))


def _kernel(use: ConvDenseGrad, mask: Mask) -> PerExampleGrad:
    return _entries(use, mask, mask.places_channels_last, iter([(slice(None), use.gradients)]))


def _convolution(use: ConvGrad, mask: Mask) -> PerExampleGrad:
    if _sampled(use, mask):
        values, squares = mask.entries(use.factors(whole_vectors(use.dtype)))
        return SampledGrad(values.t()[: use.examples], mask, squares[: use.examples])
    return _entries(use, mask, mask.places_channels_last, use.formed()) if _held(use, mask) else MaskedConvGrad(use, mask)


def _sampled(use: ConvGrad, mask: Mask) -> bool:
    """Return whether the kept entries are computed by themselves."""
    few_positions = use.shape.positions * use.examples <= _POSITIONS
    plain = use.geometry.groups == 1 and use.dtype in (torch.float32, torch.float64)
    return few_positions and plain and mask.samples and _held(use, mask)


def _linear(use: LinearGrad, mask: Mask) -> PerExampleGrad:
    return MaskedLinearGrad(use, mask) if use.inputs.shape[1] == 1 else _formed(use, mask)


def _side_by_side(use: ConcatenatedLinearGrads, mask: Mask) -> PerExampleGrad:
    """Take linear maps as one over the positions of all of them."""
    return _linear(use.joined(slice(None)), mask)


def _embedding(use: EmbeddingGrad, mask: Mask) -> PerExampleGrad:
    """Mask what is added to each row by that row of the mask."""
    rows = mask.numbers(use.dtype).index_select(0, use.indices.flatten()).view(use.gradients.shape)
    return replace(use, gradients=rows.mul_(use.gradients))


def _derived(use: DerivedGrad, mask: Mask) -> PerExampleGrad:
    """See the mask as the derived tensor shows the parameter, if it does no more than that."""
    tensor, parameter = use.derivation.tensor, use.derivation.parameter
    if use.derivation.span is None:
        return _formed(use, mask)
    offset = int(tensor.storage_offset()) - int(parameter.storage_offset())
    seen = mask.seen_through(tensor.shape, tensor.stride(), offset, parameter.stride())
    return DerivedGrad(masked(use.inner, seen), use.derivation, use.precision)


def _each(use: DisjointGrads, mask: Mask) -> PerExampleGrad:
    """Mask uses of different entries one by one: the squares of what is kept add up too."""
    return DisjointGrads(tuple(masked(part, mask) for part in use.uses))


_HOW: dict[type[PerExampleGrad], Callable[[Any, Mask], PerExampleGrad]] = {
    ConvGrad: _convolution,
    DerivedGrad: _derived,
    DenseGrad: _direct,
    DisjointGrads: _each,
    EmbeddingGrad: _embedding,
    ConvDenseGrad: _kernel,
    LinearGrad: _linear,
    ConcatenatedLinearGrads: _side_by_side,
}
