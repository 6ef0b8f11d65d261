"""Embedding tables: rows looked up by index; and bags, whose rows are reduced to their sum, mean or maximum.

Axes: indices (B, T), gradients of the looked-up rows (B, T, d), the table (V, d); bags: indices (B, n, T), rows (B, n, T, d).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.errors import UnsupportedModelError
from privet.gradients.core.handlers import register_handler
from privet.gradients.core.per_example import OutputGrad, add_rounding_error
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.layers.embedding import reference
from privet.gradients.layers.embedding.kernels import load_kernels


@dataclass(frozen=True, eq=False)
class EmbeddingGrad(OutputGrad):
    """Gradients of a table of V rows looked up at T positions: gₜ is added to row iₜ."""

    indices: Tensor  # iₜ, (B, T)
    gradients: Tensor  # gₜ, (B, T, d), with any strides: after a sum or a mean, all positions share one gradient
    size: int  # V
    padding: int | None = None  # index in [0, V) whose row has no gradient, whatever gₜ is

    @property
    def numel_per_example(self) -> int:
        """V·d."""
        return self.size * self.gradients.shape[2]

    @property
    def summands(self) -> int:
        """T: all positions may hold one index."""
        return self.indices.shape[1]

    def materialize(self) -> Tensor:
        """Return the gradients, (B, V, d): large, so only for a few examples at a time."""
        dense = self.gradients.new_zeros(self.examples, self.size, self.gradients.shape[2])
        where = self.indices[:, :, None].expand_as(self.gradients)
        dense.scatter_add_(1, where, self.gradients)
        if self.padding is not None:
            dense[:, self.padding] = 0
        return dense

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: gradients at equal indices within an example are added before the norm is taken."""
        squares, rounding = load_kernels().measure(self.indices, self.gradients, self.padding)
        return add_rounding_error(squares, rounding, self.dtype, in_order=True)

    def abs_norm_bound(self) -> Tensor:
        """Return Σₜ |gₜ|."""
        return reference.abs_norm_bound(self.indices, self.gradients, self.padding)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, (V, d)."""
        return load_kernels().weighted_sum(self.indices, self.gradients, weights, self.size, self.padding)


@register_handler(F.embedding, always=True)
def embedding(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor | None:
    """Follow `F.embedding`; None for a per-example table. Shared indices, such as position ids, count once for every example."""
    if max_norm is not None:
        raise UnsupportedModelError(
            "an embedding with max_norm writes to its table in the forward pass, where no noise is added; remove max_norm, or "
            "normalise the looked-up rows (nn.functional.normalize)"
        )
    if scale_grad_by_freq:
        raise UntraceableError("an embedding divides gradients by frequencies (scale_grad_by_freq)")
    if not recorder.is_shared(weight):
        return None
    if recorder.is_shared(input):
        input = input.expand(recorder.examples, *input.shape)
    if not recorder.follows(weight):
        return F.embedding(input, weight)
    return look_up(recorder, input, weight, padding_idx)


def look_up(recorder: Recorder, indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return the rows of a followed table at indices (B, …), which must not be overwritten before the backward pass."""
    batch, size = recorder.examples, weight.shape[0]

    def record(indices: Tensor, grad: Tensor) -> None:
        if not grad.numel():  # no example has a gradient
            return
        g = recorder.promote(grad.reshape(batch, -1, grad.shape[-1]), weight)
        recorder.add(
            weight, EmbeddingGrad(indices.reshape(batch, -1), g, size, None if padding_idx is None else padding_idx % size)
        )

    indices = indices.clone() if indices.is_inference() else indices  # such a tensor cannot be saved for the backward pass
    return recorder.map(indices, (weight,), F.embedding, lambda grad, *_: grad, record)


@register_handler(Tensor.__getitem__)
def index(recorder: Recorder, table: Tensor, where: object) -> Tensor | None:
    """Follow `table[index]` for a per-example tensor of indices."""
    whole = isinstance(where, Tensor) and not where.is_floating_point() and where.dtype not in (torch.bool, torch.uint8)
    if not whole or table.dim() != 2 or not recorder.follows(table):
        return None
    assert isinstance(where, Tensor)
    # Not modulo the number of rows: an index out of range is an error of its example, as in torch.
    return look_up(recorder, where + len(table) * (where < 0), table)


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
    """Follow `F.embedding_bag`: bags (B, n, T), or bags (B, T) with offsets that all examples share, or with one offset each."""
    if max_norm is not None:
        raise UnsupportedModelError(
            "an embedding bag with max_norm writes to its table in the forward pass, where no noise is added; remove max_norm"
        )
    own = None if offsets is None or recorder.is_shared(offsets) else offsets
    one = own is not None and own.shape[1:] == (1,) and not include_last_offset  # which is 0, as torch requires
    if scale_grad_by_freq or not recorder.is_shared(weight) or (own is not None and not one):
        raise UntraceableError("an embedding bag has scaled gradients, or a per-example table or several offsets per example")
    if recorder.is_shared(input):
        input = input.expand(recorder.examples, *input.shape)
    if per_sample_weights is not None and recorder.is_shared(per_sample_weights):
        per_sample_weights = per_sample_weights.expand(recorder.examples, *per_sample_weights.shape)
    there = torch.ones_like(input, dtype=torch.bool)
    if one:
        input, there = input[:, None], there[:, None]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights[:, None]
    elif offsets is not None:
        input, there, per_sample_weights = _pad_bags(input, offsets, include_last_offset, per_sample_weights)
    if padding_idx is not None:
        there = there & (input != padding_idx % weight.shape[0])
    rows = look_up(recorder, input, weight) if recorder.follows(weight) else F.embedding(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    return _REDUCTIONS[mode](rows, there[..., None])
