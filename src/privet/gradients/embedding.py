"""Embedding tables: rows looked up by index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.layout import Layout
from privet.gradients.norms import blocks, squared_norms
from privet.gradients.uses import Use, rounded_up

if TYPE_CHECKING:
    from privet.gradients.recorder import Recorder


@dataclass(frozen=True, eq=False)
class EmbeddingUse(Use):
    """A table of V rows looked up at T positions: the gradient has gₜ added to row iₜ.

    Args:
        indices: iₜ, (B, T).
        gradients: gₜ, (B, T, d); zero where the index is the padding index.
        size: V.
    """

    indices: Tensor
    gradients: Tensor
    size: int

    @property
    def examples(self) -> int:
        """B."""
        return self.indices.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""
        return self.gradients.dtype

    @property
    def cost(self) -> int:
        """V·d."""
        return self.size * self.gradients.shape[2]

    def per_example(self) -> Tensor:
        """Return the gradients, (B, V, d): dense, so only for a few examples at a time."""
        dense = self.gradients.new_zeros(self.examples, self.size, self.gradients.shape[2])
        where = self.indices[:, :, None].expand_as(self.gradients)
        return dense.scatter_add_(1, where, self.gradients)

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: gradients of equal indices within an example are added up before they are measured."""
        parts = [self.rows(block)._merged_squares() for block in blocks(self.examples, 4 * self.gradients[:1].numel())]
        return rounded_up(torch.cat(parts), self)

    def reach(self) -> Tensor:
        """Return Σₜ |gₜ|."""
        lengths: Tensor = torch.linalg.vector_norm(self.gradients, dim=2)
        return lengths.sum(1, dtype=torch.float64)

    def _merged_squares(self) -> Tensor:
        batch, positions, width = self.gradients.shape
        ordered, order = self.indices.sort(dim=1)
        starts = torch.ones_like(ordered)
        starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        # Slot of each position within its example: equal indices share one.
        slots = starts.cumsum(1) - 1 + positions * torch.arange(batch, device=ordered.device)[:, None]
        into = torch.empty_like(slots).scatter_(1, order, slots)
        merged = self.gradients.new_zeros(batch * positions, width).index_add_(
            0, into.flatten(), self.gradients.reshape(-1, width)
        )
        return squared_norms(merged).view(batch, positions).sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, (V, d)."""
        scaled = self.gradients * weights.to(self.gradients.dtype)[:, None, None]
        total = scaled.new_zeros(self.size, scaled.shape[2])
        return total.index_add_(0, self.indices.flatten(), scaled.flatten(0, 1))

    def rows(self, index: Tensor | slice) -> EmbeddingUse:
        """Return the same use by some of the examples."""
        return EmbeddingUse(self.indices[index], self.gradients[index], self.size)

    def double(self) -> EmbeddingUse:
        """Return the same use in float64."""
        return EmbeddingUse(self.indices, self.gradients.double(), self.size)


class _Embedding(torch.autograd.Function):
    """F.embedding whose backward only records."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, indices: Tensor, weight: Tensor, record: Any) -> Tensor:
        ctx.record = record
        return F.embedding(indices, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.record(grad)
        return None, None, None, None


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
    """Follow `F.embedding`.

    None if the first dimension of the indices is neither the batch nor 1, or for options that read the whole batch
    (`scale_grad_by_freq`) or change the table (`max_norm`).
    """
    if max_norm is not None or scale_grad_by_freq or input.dim() == 0:
        return None
    indices = input
    if indices.shape[0] == 1 and indices.dim() > 1 and recorder.examples > 1:
        # Position ids are often shared by the batch: each example uses them once.
        indices = indices.expand(recorder.examples, *indices.shape[1:])
        layout: Layout | None = Layout(recorder.examples, 0)
    else:
        layout = recorder.layout(indices, 0)
    return None if layout is None else looked_up(recorder, indices, weight, layout, padding_idx)


def looked_up(recorder: Recorder, indices: Tensor, weight: Tensor, layout: Layout, padding_idx: int | None = None) -> Tensor:
    """Return the rows of a followed table at indices that hold the examples in the given way."""
    batch, size = recorder.examples, weight.shape[0]

    def record(grad: Tensor) -> None:
        flat = layout.examples_first(indices).reshape(batch, -1)
        g = layout.examples_first(grad).reshape(batch, -1, grad.shape[-1]).to(weight.dtype)
        if padding_idx is not None:
            g = g * (flat != padding_idx % size)[:, :, None]
        recorder.add(weight, EmbeddingUse(flat, g, size))

    return _Embedding.apply(recorder.anchor, indices, weight.detach(), record)  # type: ignore[no-any-return,no-untyped-call]


def _indexed(recorder: Recorder, table: Tensor, index: object) -> Tensor | None:
    """Follow `table[index]` for a tensor of indices."""
    whole = isinstance(index, Tensor) and not index.is_floating_point() and index.dtype not in (torch.bool, torch.uint8)
    if not whole or table.dim() != 2 or not recorder.follows(table):
        return None
    assert isinstance(index, Tensor)
    return embedding(recorder, index % len(table), table)


HANDLERS: dict[Any, Callable[..., Any]] = {F.embedding: embedding, Tensor.__getitem__: _indexed}
