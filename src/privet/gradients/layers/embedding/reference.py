"""Norms and sums of embedding gradients in torch: each looked-up position adds a gradient to the row of its index.

Indices are (B, T) and gradients (B, T, d), which may be one gradient expanded over the positions. Positions with the padding
index add nothing, whatever their gradient is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks, squared_norms


def is_shared(gradients: Tensor) -> bool:
    """Return whether all positions of an example share one gradient, with a stride of zero, as after a sum or a mean."""
    return gradients.shape[1] > 1 and gradients.stride(1) == 0


def measure(indices: Tensor, gradients: Tensor, padding: int | None) -> tuple[Tensor, Tensor]:
    """Return ‖gᵢ‖², with gradients at equal indices added, and a bound on the rounding of gᵢ, both (B,) float64.

    The bound is Σₜ |gₜ|·(1 + cₜ/2) units in the last place, where cₜ positions have the index of t. Adding c terms to a row
    sequentially has an error of up to c/2 units of the sum of their sizes, and comes close to it for equal terms: with one token
    at 4000 positions under a mean, a float32 sum exceeded the clipping bound by 6·10⁻⁵ (Higham 2002, section 4.2).
    """
    if is_shared(gradients):
        return _measure_shared(indices, gradients[:, 0], padding)
    parts = [
        _measure_by_scatter(indices[block], gradients[block], padding)
        for block in blocks(len(indices), 2 * gradients[:1].numel(), indices.device)
    ]
    squares, rounding = zip(*parts, strict=True) if parts else ((), ())
    empty = gradients.new_zeros(0, dtype=torch.float64)
    return torch.cat([empty, *squares]), torch.cat([empty, *rounding])


def abs_norm_bound(indices: Tensor, gradients: Tensor, padding: int | None) -> Tensor:
    """Return Σₜ |gₜ|, (B,) float64."""
    lengths: Tensor = torch.linalg.vector_norm(gradients[:, :1] if is_shared(gradients) else gradients, dim=2)
    lengths = lengths.expand(indices.shape)
    return (lengths if padding is None else lengths.masked_fill(indices == padding, 0)).sum(1, dtype=torch.float64)


def weighted_sum(indices: Tensor, gradients: Tensor, weights: Tensor, size: int, padding: int | None) -> Tensor:
    """Return Σᵢ wᵢ·gᵢ, (V, d), with the terms of one example added before those of others.

    Each would else be rounded to the precision of the sum so far, which is larger than the example's own: with one token at
    3639 positions of 600 examples, one example moved a float32 sum by 1.11 bounds.
    """
    total = gradients.new_zeros(size, gradients.shape[2])
    factors = weights.to(gradients.dtype)[:, None, None]
    for block in blocks(len(indices), 2 * gradients[:1].numel(), gradients.device):
        ordered, in_order, slots = _find_slots(indices[block])
        rows = torch.zeros_like(ordered).scatter_(1, in_order, ordered)  # row 0 for empty slots, which hold zeros
        scaled = gradients[block, : 1 if is_shared(gradients) else None] * factors[block]
        total.index_add_(0, rows.flatten(), _add_up(slots, scaled.expand_as(gradients[block])))
    if padding is not None:
        total[padding] = 0
    return total


def _sort_indices(indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each example's sorted indices, the permutation that sorts them, and where a new index starts."""
    ordered, order = indices.sort(dim=1)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[:, 1:], ordered[:, :-1], out=starts[:, 1:])
    return ordered, order, starts


def _measure_shared(indices: Tensor, gradients: Tensor, padding: int | None) -> tuple[Tensor, Tensor]:
    """Compute `measure` for one gradient g per example, (B, d): ‖g‖²·Σ c² and ‖g‖·Σ (c + c²/2) over indices with count c."""
    ordered, _, starts = _sort_indices(indices)
    places = torch.arange(indices.shape[1], device=indices.device)
    # The r-th occurrence of an index, from 0, raises c² from r² to (r + 1)².
    rank = places - torch.where(starts, places, 0).cummax(1).values
    counts = torch.ones_like(ordered, dtype=torch.bool) if padding is None else ordered != padding
    squares = squared_norms(gradients)
    many, square_of_counts = counts.sum(1), ((2 * rank + 1) * counts).sum(1)
    squares = torch.where(many > 0, squares, 0)  # the gradient at padding positions is zero even if it is not finite
    return squares * square_of_counts, squares.sqrt() * (many + square_of_counts / 2)


def _find_slots(indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each example's sorted indices and, in their order and that of positions, a slot 0 … T − 1 per index, (B, T)."""
    ordered, order, starts = _sort_indices(indices)
    slots = starts.cumsum(1) - 1
    return ordered, slots, torch.empty_like(slots).scatter_(1, order, slots)


def _add_up(slots: Tensor, gradients: Tensor) -> Tensor:
    """Return the sums of gradients (B, T, d) over each slot, in the order of positions, (B·T, d); zeros for empty ones."""
    batch, positions, width = gradients.shape
    into = slots + positions * torch.arange(batch, device=gradients.device)[:, None]
    rows = gradients.reshape(batch * positions, width)
    return torch.zeros_like(rows).index_add_(0, into.flatten(), rows)


def _measure_by_scatter(indices: Tensor, gradients: Tensor, padding: int | None) -> tuple[Tensor, Tensor]:
    """Compute `measure` by scattering every gradient: the same operations whatever the indices are."""
    batch, positions, _ = gradients.shape
    if padding is not None:
        gradients = gradients.masked_fill((indices == padding)[:, :, None], 0)
    slots = _find_slots(indices)[2]
    counts = torch.zeros_like(slots).scatter_add_(1, slots, torch.ones_like(slots))
    lengths = torch.linalg.vector_norm(gradients, dim=2).double() * (1 + counts.gather(1, slots) / 2)
    return squared_norms(_add_up(slots, gradients)).view(batch, positions).sum(1), lengths.sum(1)
