"""Dispatch from a kind of per-example gradient to the cheapest way to mask it.

There are three: mask the factors where that is equivalent (embeddings); compute norms with an additional product with the mask
(linear maps of one position); or form gradients in blocks and store only their kept entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from privet.gradients.combine.sums import ConcatenatedLinearGrads, DerivedGrad, DisjointGrads
from privet.gradients.core.norms import blocks
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad
from privet.gradients.layers.convolution.gradient import ConvDenseGrad, ConvGrad
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.masking.masked_gradients import EntriesGrad, MaskedConvGrad, MaskedGrad, MaskedLinearGrad
from privet.gradients.masking.masks import Mask

# Most kept entries that are stored rather than recomputed, in multiples of what the gradients' factors hold. Memory stays
# proportional to theirs, and the choice does not depend on the number of examples: it changes the bound of rounding in norms.
KEEP = 3
# Up to this fraction of kept entries, extracting them from stored gradients is cheaper than keeping all.
_FEW = 0.35


def mask_grad(grad: PerExampleGrad, mask: Mask) -> PerExampleGrad:
    """Return per-example gradients restricted to the kept entries of a mask of the parameter's shape."""
    return _MASKERS.get(type(grad), _mask_formed)(grad, mask)


def _fits(grad: PerExampleGrad, mask: Mask) -> bool:
    return len(mask.places) <= KEEP * _count_held(grad)


def _count_held(grad: Any) -> int:
    total = 0
    for held in (getattr(grad, each.name) for each in fields(grad)):
        for part in held if isinstance(held, tuple) else (held,):
            if isinstance(part, Tensor):
                total += part[:1].numel()
            elif isinstance(part, PerExampleGrad):
                total += _count_held(part)
    return total


def _take_entries(grad: PerExampleGrad, mask: Mask, places: Tensor, formed: Iterator[tuple[slice, Tensor]]) -> EntriesGrad:
    values = torch.empty(grad.examples, len(places), dtype=grad.dtype, device=grad.device)
    for block, gradients in formed:
        torch.index_select(gradients.reshape(len(gradients), -1), 1, places, out=values[block])
    return EntriesGrad(values, mask)


def _mask_formed(grad: PerExampleGrad, mask: Mask) -> PerExampleGrad:
    if not _fits(grad, mask):
        return MaskedGrad(grad, mask)
    cut = blocks(grad.examples, grad.numel_per_example, grad.device)
    return _take_entries(grad, mask, mask.places, ((block, grad.index_select(block).materialize()) for block in cut))


def _mask_linear(grad: LinearGrad, mask: Mask) -> PerExampleGrad:
    return MaskedLinearGrad(grad, mask) if grad.inputs.shape[1] == 1 else _mask_formed(grad, mask)


def _mask_embedding(grad: EmbeddingGrad, mask: Mask) -> PerExampleGrad:
    rows = mask.numbers(grad.dtype).index_select(0, grad.indices.flatten()).view(grad.gradients.shape)
    return replace(grad, gradients=rows.mul_(grad.gradients))


def _mask_derived(grad: DerivedGrad, mask: Mask) -> PerExampleGrad:
    """Apply the corresponding view of the mask to a derived tensor that is a view; materialise for any other."""
    tensor, parameter = grad.derivation.tensor, grad.derivation.parameter
    if grad.derivation.span is None:
        return _mask_formed(grad, mask)
    offset = int(tensor.storage_offset()) - int(parameter.storage_offset())
    seen = mask.view_as(tensor.shape, tensor.stride(), offset, parameter.stride())
    return DerivedGrad(mask_grad(grad.inner, seen), grad.derivation, grad.precision)


_MASKERS: dict[type[PerExampleGrad], Callable[[Any, Mask], PerExampleGrad]] = {
    ConvGrad: lambda grad, mask: (
        _take_entries(grad, mask, mask.places_channels_last, grad.form_blocks())
        if _fits(grad, mask)
        else MaskedConvGrad(grad, mask)
    ),
    DerivedGrad: _mask_derived,
    DenseGrad: lambda grad, mask: (
        MaskedGrad(grad, mask)
        if mask.density > _FEW
        else _take_entries(grad, mask, mask.places, iter([(slice(None), grad.gradients)]))
    ),
    DisjointGrads: lambda grad, mask: DisjointGrads(tuple(mask_grad(part, mask) for part in grad.grads)),
    EmbeddingGrad: _mask_embedding,
    ConvDenseGrad: lambda grad, mask: _take_entries(grad, mask, mask.places_channels_last, iter([(slice(None), grad.gradients)])),
    LinearGrad: _mask_linear,
    # As one linear map over the positions of all of them.
    ConcatenatedLinearGrads: lambda grad, mask: _mask_linear(grad.concatenate(slice(None)), mask),
}
