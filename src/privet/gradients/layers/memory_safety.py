"""Functions that are computed by others, since torch's own may read or write memory that belongs to another example.

Indices and coordinates out of range must be an error of their example, which contributes zero. Memory that nobody has written
must not hold what was computed for somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.recorder import UntraceableError


def _embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Look up rows of a table per example; torch's rule reads the table of another example, and pads that of the first only."""
    if scale_grad_by_freq:
        raise UntraceableError("an embedding divides gradients by frequencies (scale_grad_by_freq)")
    rows = weight.index_select(0, input.flatten()).reshape(*input.shape, weight.shape[1])
    if padding_idx is None:
        return rows
    return torch.where((input == padding_idx % len(weight))[..., None], rows.detach(), rows)


def _embedding_operator(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    return _embedding(indices, weight, None if padding_idx < 0 else padding_idx, scale_grad_by_freq=scale_grad_by_freq)


def _index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Fill by a mask; torch's rule fills those of other examples for an index that is negative or too large."""
    size, shape = (input.shape[dim] if input.dim() else 1), [1] * input.dim()
    if shape:
        shape[dim] = size
    places = index.flatten().long()
    places = torch.where(places < 0, places + size, places)
    mask = torch.zeros(size, dtype=torch.bool, device=input.device).scatter(0, places, value=True)
    filling = (
        value.to(input.dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=input.dtype, device=input.device)
    )
    return torch.where(mask.reshape(shape), filling, input)


def _index_fill_in_place(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return input.copy_(_index_fill(input, dim, index, value))


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, *others: Any, **options: Any
) -> Tensor:
    """Compute the loss if all classes exist; the kernel would read scores behind those of the example."""
    lengths = torch.as_tensor(target_lengths, device=targets.device)
    used = lengths.sum() if targets.dim() < 2 else lengths[:, None]
    within = torch.arange(targets.shape[-1], device=targets.device) < used
    _check_range(torch.where(within, targets, 0), log_probs.shape[-1])
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, *others, **options)


def _check_range(indices: Tensor, size: int) -> None:
    torch.zeros(size, device=indices.device).index_select(0, indices.flatten().long())


def _sample_by(sample: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def grid_sample(input: Tensor, grid: Tensor, *others: Any, **options: Any) -> Tensor:
        """Sample at coordinates that can be converted to integers; others make the kernel write anywhere. NaN results in NaN."""
        found = sample(input, grid.nan_to_num(nan=0.0).clamp(-_FAR, _FAR), *others, **options)
        return found + torch.where(grid.isnan().any(-1), torch.nan, 0.0)[:, None]  # so that gradients are NaN, too

    return grid_sample


_FAR = 1e6  # images are in [−1, 1], and padding is the same beyond


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Return the encoding if all classes exist; vmap's has zeros for others."""
    if num_classes > 0:
        _check_range(tensor, num_classes)
    return F.one_hot(tensor, num_classes)


def _fill_with_zeros(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def zeros(*arguments: Any, **options: Any) -> Tensor:
        found = allocate(*arguments, **options)
        with torch.no_grad():
            return found.zero_()

    return zeros


def _resize(input: Tensor, *size: Any, **options: Any) -> Tensor:
    before = input.numel()
    found = input.resize_(*size, **options)
    found.view(-1)[before:].zero_()
    return found


def list_spellings(*names: str) -> Sequence[Any]:
    """Return the functions, methods and operators of these names."""
    operators = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    functions = [getattr(owner, name, None) for owner in (torch, Tensor) for name in names]
    return [each for each in (*functions, *operators, *(each.default for each in operators if hasattr(each, "default"))) if each]


# What computes a function in every pass.
REPLACED: dict[Any, Callable[..., Any]] = {
    F.ctc_loss: _ctc_loss, torch.ctc_loss: _ctc_loss, F.grid_sample: _sample_by(F.grid_sample), Tensor.resize_: _resize,
    **{each: _sample_by(each) for each in list_spellings("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")},
    **{each: _fill_with_zeros(each) for each in list_spellings(
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "new"
    )},
    **{each: partial(each, check_invariants=True) for each in (
        getattr(torch, f"sparse_{layout}_tensor") for layout in ("coo", "csr", "csc", "bsr", "bsc", "compressed")
    )},
}  # fmt: skip
# What computes it for several examples, or clients, instead of torch's batching rule.
REPLACED_TOGETHER: dict[Any, Callable[..., Any]] = {
    F.embedding: _embedding,
    **dict.fromkeys(list_spellings("embedding"), _embedding_operator),
    torch.index_fill: _index_fill, Tensor.index_fill: _index_fill, Tensor.index_fill_: _index_fill_in_place, F.one_hot: _one_hot,
}  # fmt: skip
