"""Losses without parameters, computed on the physical batch, since vmap would decompose them; and means.

Axes: inputs (B, n, C, *places) and targets (B, n, *places), viewed as (R, C, *places) with R = B·n rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder


@register_handler(F.cross_entropy, always=True)
def cross_entropy(
    recorder: Recorder, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor | None:  # fmt: skip
    """Compute a loss for every row; None if it is reduced over an example's rows, or has rare options."""
    plain = reduction == "none" and size_average is None and reduce is None and recorder.is_shared(weight)
    if not plain or recorder.is_shared(input) or recorder.is_shared(target) or input.dim() < 3 or target.dim() < 2:
        return None
    rows = F.cross_entropy(
        input.flatten(0, 1), target.flatten(0, 1), None if weight is None else weight.detach(), ignore_index=ignore_index,
        reduction="none", label_smoothing=label_smoothing,
    )  # fmt: skip
    return rows.reshape(*input.shape[:2], *rows.shape[1:])


@register_handler(torch.mean, Tensor.mean, always=True, direct=True)
def mean(_recorder: Recorder, input: Tensor, *arguments: Any, **options: Any) -> Tensor | None:
    """Compute `torch.mean`, bit for bit, with gradients that are views; None for arguments that torch computes differently.

    It divides first, so that all positions share one gradient, with a stride of zero: torch's own backward pass expands it first.
    """
    if options.keys() & {"dtype", "out"} or input.dtype not in (torch.float32, torch.float64) or input.numel() == 0:
        return None
    total = torch.sum(input, *arguments, **options)
    return total.div_(input.numel() // total.numel())
