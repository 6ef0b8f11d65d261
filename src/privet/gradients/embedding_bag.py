"""Bags of embeddings: rows that are looked up, then reduced to their sum, mean or maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.embedding import looked_up
from privet.gradients.layout import Layout
from privet.gradients.recorder import Recorder


def _padded(input: Tensor, offsets: Tensor, last: bool, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return bags that follow each other as one row each: indices, which of them are there, and their weights."""
    ends = offsets[1:] if last else torch.cat([offsets[1:], offsets.new_tensor([len(input)])])
    starts = offsets[:-1] if last else offsets
    places = starts[:, None] + torch.arange(int((ends - starts).max()), device=input.device)
    there = places < ends[:, None]
    places = torch.where(there, places, 0)
    return input[places], there, None if weights is None else weights[places]


def _sum(rows: Tensor, there: Tensor) -> Tensor:
    return (rows * there).sum(1)


def _mean(rows: Tensor, there: Tensor) -> Tensor:
    return _sum(rows, there) / there.sum(1).clamp(min=1)


def _max(rows: Tensor, there: Tensor) -> Tensor:
    """Return the largest entries, or zero for an empty bag; torch gives ties to the first, as `Tensor.max` over a dimension."""
    if rows.shape[1] == 0:
        return rows.sum(1)
    return torch.where(there.any(1), rows.masked_fill(~there, -torch.inf).max(1).values, 0)


_REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": _sum, "mean": _mean, "max": _max}


def _bag(
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
    """Follow `F.embedding_bag`, for one bag per example; None as for `F.embedding`."""
    if max_norm is not None or scale_grad_by_freq or mode not in _REDUCTIONS or not recorder.follows(weight):
        return None
    there = torch.ones_like(input, dtype=torch.bool)
    if offsets is not None and input.dim() == 1:
        if len(offsets) - include_last_offset != recorder.examples or len(input) == 0:
            return None
        input, there, per_sample_weights = _padded(input, offsets, include_last_offset, per_sample_weights)
    if input.dim() != 2 or input.shape[0] != recorder.examples:
        return None
    if padding_idx is not None:
        there = there & (input != padding_idx % weight.shape[0])
    rows = looked_up(recorder, input, weight, Layout(recorder.examples, 0))
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, :, None]
    return _REDUCTIONS[mode](rows, there[:, :, None])


HANDLERS: dict[Any, Callable[..., Any]] = {F.embedding_bag: _bag}
