"""Means whose backward pass shares one gradient over all positions instead of copying it."""

from __future__ import annotations

__all__ = ["mean"]

from typing import Any

import torch
from torch import Tensor

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder


@register_handler(torch.mean, Tensor.mean, always=True, direct=True)
def mean(_recorder: Recorder, input: Tensor, *arguments: Any, **options: Any) -> Tensor | None:
    """Compute `torch.mean`, bit for bit, with gradients that are views; None for arguments that torch computes differently.

    It divides first, so that all positions share one gradient, with a stride of zero: torch's own backward pass expands it first.
    """
    if options.keys() & {"dtype", "out"} or input.dtype not in (torch.float32, torch.float64) or input.numel() == 0:
        return None
    total = torch.sum(input, *arguments, **options)
    return total.div_(input.numel() // total.numel())
