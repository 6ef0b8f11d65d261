"""Mixtures of experts: grouped matrix products, which multiply each row by its expert's weight, and counts of rows per expert.

Axes: rows (B, n, d) sorted by expert within an example, weights of E experts (E, d, p), results (B, n, p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.batching import is_batched
from privet.gradients.core.consensus import agree
from privet.gradients.core.handlers import register_handler
from privet.gradients.core.norms import blocks, without_autocast
from privet.gradients.core.per_example import DenseGrad, OutputGrad, PerExampleGrad, recompute_cancelled
from privet.gradients.core.recorder import Recorder
from privet.gradients.layers.linear import KEEP, LinearGrad, gram_sums


@dataclass(frozen=True, eq=False)
class GroupedLinearGrad(OutputGrad):
    """Gradients of the weights of E experts: that of weight e is Σ aₜ gₜᵀ over the rows t assigned to it, eₜ = e."""

    inputs: Tensor  # aₜ, (B, n, d)
    gradients: Tensor  # gₜ, (B, n, p)
    experts: Tensor  # eₜ, (B, n) int64; E for rows without an expert, whose factors are both zero
    size: int  # E

    @property
    def numel_per_example(self) -> int:
        """E·d·p."""
        return self.size * self.inputs.shape[2] * self.gradients.shape[2]

    @property
    def summands(self) -> int:
        """n: one expert may have all rows."""
        return self.inputs.shape[1]

    def materialize(self) -> Tensor:
        """Return the gradients, (B, E, d, p): large, so only for a few examples at a time."""
        examples = torch.arange(self.examples, device=self.device)[:, None]
        groups = (self.size + 1) * examples + self.experts
        total = _sums(self.inputs, self.gradients, groups, self.examples * (self.size + 1))
        return total.view(self.examples, self.size + 1, *total.shape[1:])[:, :-1]

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖² = Σₛₜ ⟨aₛ, aₜ⟩⟨gₛ, gₜ⟩ over pairs of rows of an expert: n²(d + p) products, not n·d·p, if fewer."""
        _, n, d = self.inputs.shape
        p = self.gradients.shape[2]
        if n * (d + p) >= d * p:
            return super().squared_norms()
        parts = []
        for block in blocks(self.examples, n * (d + p + 3 * n), self.device):
            a, g, e = self.inputs[block], self.gradients[block], self.experts[block]
            different = e[:, :, None] != e[:, None, :]
            of_inputs = torch.bmm(a, a.transpose(1, 2)).masked_fill_(different, 0)
            parts.append(gram_sums(of_inputs, torch.bmm(g, g.transpose(1, 2)), (d, p)))
        return recompute_cancelled(torch.cat(parts), self)

    def abs_norm_bound(self) -> Tensor:
        """Return Σₜ |gₜ||aₜ|."""
        return LinearGrad(self.inputs, self.gradients).abs_norm_bound()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ, (E, d, p), by one product for each expert over its rows of all examples."""
        a, g, w = self.inputs, self.gradients, weights.to(self.dtype)[:, None, None]
        a, g = (a * w, g) if a.shape[2] <= g.shape[2] else (a, g * w)
        return _sums(a, g, self.experts, self.size + 1)[:-1]


def _sums(inputs: Tensor, gradients: Tensor, groups: Tensor, number: int) -> Tensor:
    """Return Σ aₜ gₜᵀ over the rows of each group, (number, d, p), for rows (B, n, …) and their groups (B, n)."""
    a, g = inputs.flatten(0, 1), gradients.flatten(0, 1)
    total = g.new_zeros(number, a.shape[1], g.shape[1])
    for group, index in zip(*_split(groups), strict=True):
        torch.mm(a[index].t(), g[index], out=total[group])
    return total


def _split(groups: Tensor) -> tuple[list[int], Sequence[Tensor]]:
    """Return the non-empty groups, and for each the positions of its rows in the flattened tensor."""
    ordered, order = groups.flatten().sort(stable=True)
    found, counts = ordered.unique_consecutive(return_counts=True)
    return found.tolist(), order.split(counts.tolist())


def concatenate_rows(grads: Sequence[GroupedLinearGrad]) -> GroupedLinearGrad:
    """Concatenate the rows of several gradients of the same weights."""
    inputs, gradients, experts = (torch.cat([getattr(grad, x) for grad in grads], 1) for x in ("inputs", "gradients", "experts"))
    return GroupedLinearGrad(inputs, gradients, experts, grads[0].size)


def _products(x: Tensor, weights: Tensor, split: tuple[list[int], Sequence[Tensor]]) -> Tensor:
    """Return rows (N, d) times the weights of their experts, (N, p): one product per expert; zeros for rows without one."""
    found = x.new_zeros(x.shape[0], weights.shape[2])
    with without_autocast(x.device):  # like torch's own kernel
        for expert, index in zip(*split, strict=True):
            if expert < len(weights):
                found[index] = x[index] @ weights[expert]
    return found


def grouped_mm(
    recorder: Recorder,
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor | None:
    """Follow `F.grouped_mm` of per-example rows and shared weights; None for other layouts, and for what torch refuses.

    Rows beyond the last offset belong to no expert. Torch leaves their results uninitialised; here they are zeros.
    """
    if offs is None or bias is not None or not recorder.is_shared(mat_b):
        return None
    if recorder.is_shared(mat_a) and recorder.is_shared(offs):
        return None
    if mat_a.dtype != mat_b.dtype or out_dtype not in (None, mat_a.dtype) or offs.dtype != torch.int32:
        return None
    x, ends = recorder.to_batched(mat_a), recorder.to_batched(offs)
    if x.dim() != 3 or mat_b.dim() != 3 or ends.shape[1:] != mat_b.shape[:1] or x.shape[2] != mat_b.shape[1]:
        return None
    examples, n, width = x.shape[0], x.shape[1], mat_b.shape[2]
    places = torch.arange(n, dtype=torch.int32, device=x.device).expand(examples, n).contiguous()
    # A row's expert is the number of offsets up to its position.
    experts = torch.searchsorted(ends.contiguous(), places, right=True)
    size = mat_b.shape[0]
    split = _split(experts)
    complete = size not in split[0]

    def record(inputs: Tensor, grad: Tensor) -> None:
        if not n or not recorder.follows(mat_b):
            return
        a, g = (recorder.promote(rows.reshape(examples, n, -1), mat_b) for rows in (inputs, grad))
        if not complete:
            nowhere = (experts == size)[:, :, None]
            a, g = a.masked_fill(nowhere, 0), g.masked_fill(nowhere, 0)
        recorder.add(mat_b, _choose_grad(GroupedLinearGrad(a, g, experts, size)))

    # Return a matrix: for more dimensions torch returns a view, and views created by a custom function must not be written to.
    rows = x.reshape(examples * n, x.shape[2])
    result = recorder.map(
        rows, (mat_b,), lambda x, weights: _products(x, weights, split),
        lambda grad, x, weights: _products(grad, weights.to(grad.dtype).transpose(1, 2), split), record,
    )  # fmt: skip
    return result.view(examples, n, width)


# Older versions of torch lack one of the names.
for _function in (getattr(place, name, None) for place, name in ((torch, "_grouped_mm"), (F, "grouped_mm"))):
    if _function is not None:
        register_handler(_function, always=True)(grouped_mm)


def _choose_grad(grad: GroupedLinearGrad) -> PerExampleGrad:
    factors = grad.inputs[:1].numel() + grad.gradients[:1].numel()
    if grad.numel_per_example <= KEEP * factors:
        return DenseGrad(grad.materialize())
    return grad


def _count(places: Tensor, bins: int, dtype: torch.dtype) -> Tensor:
    """Return how often each of 0 … bins − 1 occurs in each row of places (B, N), (B, bins); `bins` marks other places."""
    counts = torch.zeros(len(places), bins + 1, dtype=dtype, device=places.device)
    return counts.scatter_add_(1, places, torch.ones_like(places, dtype=dtype))[:, :-1].contiguous()


@register_handler(torch.histc, Tensor.histc, always=True)
def histc(
    recorder: Recorder, input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None
) -> Tensor | None:
    """Compute `torch.histc` for each example, in torch's order of operations; None for bins that depend on the data."""
    plain = isinstance(bins, int) and isinstance(min, int | float) and isinstance(max, int | float) and out is None
    fixed = plain and bins > 0 and min < max
    integers = input.dtype in (torch.int32, torch.int64) and input.device.type == "cuda"
    if not fixed or recorder.is_shared(input) or input.requires_grad or not (integers or input.dtype in _MEASURED):
        return None
    low, high = torch.tensor([min, max], dtype=input.dtype, device=input.device)
    x = input.flatten(1)
    inside = (x >= low) & (x <= high)
    steps = torch.div((x.where(inside, low) - low) * bins, high - low, rounding_mode="trunc" if integers else None)
    return _count(steps.long().clamp_(max=bins - 1).masked_fill_(~inside, bins), bins, input.dtype)


_MEASURED = (torch.float32, torch.float64)


@register_handler(torch.bincount, Tensor.bincount, always=True, direct=True)
def bincount(recorder: Recorder, input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor | None:
    """Compute `torch.bincount` for each example, with a length that all examples share; None with weights."""
    if weights is not None or not is_batched(input) or input.dim() != 1 or not input.numel() or input.dtype not in _WHOLE:
        return None
    bins = int(agree(recorder.token, (input.max().long() + 1).clamp(min=minlength)))
    found: Tensor = recorder.run_on_physical_batch(lambda x: _count(x.long(), bins, torch.int64), input)
    return found


_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
