"""Squared norms per example that neither overflow, nor under-estimate long rows."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch import Tensor

# float32 vector norms lose up to 1 % over rows of 10⁸ numbers; over pieces of this length they are exact to 1e-7.
_PIECE = 1024
# Size of a working set that stays in a core's cache, in numbers.
CACHE = 1 << 19
# How many times larger the working sets of accelerators are: few launches, and a quarter of a gigabyte in float32.
_ACCELERATOR = 1 << 7
# A squared norm below this part of the square of the sum of its terms' sizes is what cancellation left over, too little to be
# measured by squares of the terms.
CANCELLED = 1e-4


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which autocast does not round products: norms and sums are measured in the parameters' precision."""
    return torch.autocast(device.type, enabled=False)


def squared_norms(x: Tensor) -> Tensor:
    """Return ‖xᵢ‖² for each row i of the first dimension, (B, …) → (B,) float64.

    Pieces of a row are measured in the tensor's own precision and added in float64. A result of infinity or NaN means that
    the row cannot be measured in this precision.
    """
    length = math.prod(x.shape[1:])
    rows = x.reshape(len(x), length)
    if length == 0:
        return torch.zeros(len(rows), dtype=torch.float64, device=x.device)
    whole = length // _PIECE * _PIECE
    total = torch.zeros(len(rows), dtype=torch.float64, device=x.device)
    if whole:
        pieces = torch.linalg.vector_norm(rows[:, :whole].view(len(rows), -1, _PIECE), dim=2)
        total += pieces.double().square_().sum(1)
    if whole < length:
        total += torch.linalg.vector_norm(rows[:, whole:], dim=1).double().square_()
    return total


def factor_norms(x: Tensor) -> Tensor:
    """Return ‖xᵢ‖ of a factor of a gradient, (B, …) → (B,) float64, never too small.

    The other factor may be as large as numbers get, so what the squares of small numbers lose to underflow would count.
    """
    return squared_norms(x).sqrt_() + underflow(math.prod(x.shape[1:]), x.dtype)


def underflow(length: int, dtype: torch.dtype) -> float:
    """Return how much of the norm of a vector of this length may be lost because squares underflow."""
    return math.sqrt(length * torch.finfo(dtype).tiny)


def blocks(examples: int, numbers_per_example: int, device: torch.device) -> list[slice]:
    """Return slices over the examples, each of a working set that stays in a CPU's cache, or that fills another device."""
    working_set = CACHE if device.type == "cpu" else _ACCELERATOR * CACHE
    size = max(1, working_set // max(1, numbers_per_example))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]
