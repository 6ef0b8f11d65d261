"""Embedding tables: rows looked up by index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients import embedding_sums
from privet.gradients.embedding_kernels import sums
from privet.gradients.layout import Layout
from privet.gradients.uses import Use, with_rounding

if TYPE_CHECKING:
    from privet.gradients.recorder import Recorder


@dataclass(frozen=True, eq=False)
class EmbeddingUse(Use):
    """A table of V rows looked up at T positions: the gradient has gₜ added to row iₜ.

    Norms and sums come from `embedding_kernels`, in C++ where there is a compiler.

    Args:
        indices: iₜ, (B, T).
        gradients: gₜ, (B, T, d), of any stride: a sum or a mean gives all positions one gradient.
        size: V.
        padding: index in [0, V) whose row has no gradient, whatever gₜ is there; None for none.
    """

    indices: Tensor
    gradients: Tensor
    size: int
    padding: int | None = None

    @property
    def examples(self) -> int:
        """B."""
        return self.indices.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""
        return self.gradients.dtype

    @property
    def device(self) -> torch.device:
        """Where the gradients are."""
        return self.gradients.device

    @property
    def cost(self) -> int:
        """V·d."""
        return self.size * self.gradients.shape[2]

    @property
    def terms(self) -> int:
        """T: all positions may hold one index."""
        return self.indices.shape[1]

    def per_example(self) -> Tensor:
        """Return the gradients, (B, V, d): dense, so only for a few examples at a time."""
        dense = self.gradients.new_zeros(self.examples, self.size, self.gradients.shape[2])
        where = self.indices[:, :, None].expand_as(self.gradients)
        dense.scatter_add_(1, where, self.gradients)
        if self.padding is not None:
            dense[:, self.padding] = 0
        return dense

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: gradients of equal indices within an example are added up before they are measured."""
        return with_rounding(*sums().measured(self.indices, self.gradients, self.padding), self.dtype)

    def reach(self) -> Tensor:
        """Return Σₜ |gₜ|."""
        return embedding_sums.reach(self.indices, self.gradients, self.padding)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, (V, d)."""
        return sums().weighted_sum(self.indices, self.gradients, weights, self.size, self.padding)

    def rows(self, index: Tensor | slice) -> EmbeddingUse:
        """Return the same use by some of the examples."""
        return EmbeddingUse(self.indices[index], self.gradients[index], self.size, self.padding)

    def double(self) -> EmbeddingUse:
        """Return the same use in float64."""
        return EmbeddingUse(self.indices, self.gradients.double(), self.size, self.padding)


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
        recorder.add(weight, EmbeddingUse(flat, g, size, None if padding_idx is None else padding_idx % size))

    return _Embedding.apply(recorder.anchor, indices, weight.detach(), record)  # type: ignore[no-any-return,no-untyped-call]


def _indexed(recorder: Recorder, table: Tensor, index: object) -> Tensor | None:
    """Follow `table[index]` for a tensor of indices."""
    whole = isinstance(index, Tensor) and not index.is_floating_point() and index.dtype not in (torch.bool, torch.uint8)
    if not whole or table.dim() != 2 or not recorder.follows(table):
        return None
    assert isinstance(index, Tensor)
    return embedding(recorder, index % len(table), table)


HANDLERS: dict[Any, Callable[..., Any]] = {F.embedding: embedding, Tensor.__getitem__: _indexed}
