"""Means whose backward pass hands one gradient to all positions instead of a copy to each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder


@register_handler(torch.mean, Tensor.mean, always=True, direct=True)
def mean(_recorder: Recorder, input: Tensor, *arguments: Any, **options: Any) -> Tensor | None:
    """Return what `torch.mean` does, to the last bit, with gradients that are views; None where torch goes another way.

    Torch's own backward pass expands the gradient before it divides, which writes a gradient as large as the input. Here it is
    divided first, so that all positions share one gradient, with a stride of zero.
    """
    if options.keys() & {"dtype", "out"} or input.dtype not in (torch.float32, torch.float64) or input.numel() == 0:
        return None
    total = torch.sum(input, *arguments, **options)
    return total.div_(input.numel() // total.numel())
