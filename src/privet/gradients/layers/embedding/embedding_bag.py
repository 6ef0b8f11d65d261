"""Embedding bags: rows are looked up, then reduced to their sum, mean or maximum.

Axes: indices (B, n, T) of n bags with T places each, looked-up rows (B, n, T, d).
"""

from __future__ import annotations

__all__ = ["embedding_bag"]

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.errors import UnsupportedModelError
from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.layers.embedding.embedding import look_up


def _pad_bags(input: Tensor, offsets: Tensor, last: bool, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return consecutive bags (B, N) padded to (B, n, T): indices, a mask of valid places, and weights."""
    ends = offsets[1:] if last else torch.cat([offsets[1:], offsets.new_tensor([input.shape[1]])])
    starts = offsets[:-1] if last else offsets
    longest = int((ends - starts).max()) if len(starts) else 0
    places = starts[:, None] + torch.arange(longest, device=input.device)
    there = places < ends[:, None]
    places = torch.where(there, places, 0)
    return input[:, places], there.expand(len(input), *there.shape), None if weights is None else weights[:, places]


def _sum(rows: Tensor, there: Tensor) -> Tensor:
    return (rows * there).sum(-2)


def _mean(rows: Tensor, there: Tensor) -> Tensor:
    return _sum(rows, there) / there.sum(-2).clamp(min=1)


def _max(rows: Tensor, there: Tensor) -> Tensor:
    """Return the largest entries, or zero for an empty bag; ties go to the first, as in torch."""
    if rows.shape[-2] == 0:
        return rows.sum(-2)
    return torch.where(there.any(-2), rows.masked_fill(~there, -torch.inf).max(-2).values, 0)


_REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": _sum, "mean": _mean, "max": _max}


@register_handler(F.embedding_bag, always=True)
def embedding_bag(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor | None:
    """Follow `F.embedding_bag`: bags (B, n, T), or bags (B, T) with offsets shared by all examples."""
    if max_norm is not None:
        raise UnsupportedModelError(
            "an embedding bag with max_norm writes to its table in the forward pass, where no noise is added; remove max_norm"
        )
    if scale_grad_by_freq or not recorder.is_shared(weight) or (offsets is not None and not recorder.is_shared(offsets)):
        raise UntraceableError("an embedding bag has scaled gradients, or a per-example table or offsets")
    if recorder.is_shared(input):
        input = input.expand(recorder.examples, *input.shape)
    if per_sample_weights is not None and recorder.is_shared(per_sample_weights):
        per_sample_weights = per_sample_weights.expand(recorder.examples, *per_sample_weights.shape)
    there = torch.ones_like(input, dtype=torch.bool)
    if offsets is not None:
        input, there, per_sample_weights = _pad_bags(input, offsets, include_last_offset, per_sample_weights)
    if padding_idx is not None:
        there = there & (input != padding_idx % weight.shape[0])
    rows = look_up(recorder, input, weight) if recorder.follows(weight) else F.embedding(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    return _REDUCTIONS[mode](rows, there[..., None])
