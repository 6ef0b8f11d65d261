"""Squared norms per example that neither overflow, nor under-estimate long rows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
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


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which autocast does not round products."""
    return torch.autocast(device.type, enabled=False)


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Let norms and sums be measured in the precision of their factors: no autocast, no TF32, no bfloat16 inside of products.

    Norms and sums multiply in different orders. Products that round their factors would then disagree by more than a norm
    allows for.
    """
    rounding = [(backend, kept) for backend in _backends(device) if (kept := backend.fp32_precision) not in _IEEE[device.type]]
    return _unrounded(device, rounding) if rounding else without_autocast(device)


@contextlib.contextmanager
def _unrounded(device: torch.device, rounding: list[tuple[Any, str]]) -> Iterator[None]:
    for backend, _ in rounding:
        backend.fp32_precision = "ieee"
    try:
        with without_autocast(device):
            yield
    finally:
        for backend, kept in rounding:
            backend.fp32_precision = kept


# "none" is what a parent says; on a CPU that is nothing unless somebody set it, while cuDNN's own default is TF32.
_IEEE = {"cpu": ("ieee", "none"), "cuda": ("ieee",)}


def _backends(device: torch.device) -> list[Any]:
    """Return the parts of torch that may round the factors of products on a device; none where this torch has no such switch."""
    found: list[Any] = []
    if device.type == "cpu":
        found = [getattr(torch.backends.mkldnn, "matmul", None), getattr(torch.backends.mkldnn, "conv", None)]
    elif device.type == "cuda":
        found = [torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)]
    return [backend for backend in found if hasattr(backend, "fp32_precision")]


def squared_norms(x: Tensor) -> Tensor:
    """Return ‖xᵢ‖² for each row i of the first dimension, (B, …) → (B,) float64.

    Pieces of a row are measured in the tensor's own precision and added in float64. A result of infinity or NaN means that
    the row cannot be measured in this precision.
    """
    length = math.prod(x.shape[1:])
    rows = x.reshape(len(x), length)
    whole = length // _PIECE * _PIECE
    if not whole:
        return _squares(rows)
    total = _squares(rows[:, :whole].view(len(rows), -1, _PIECE)).sum(1)
    if whole < length:
        total += _squares(rows[:, whole:])
    return total


def _squares(x: Tensor) -> Tensor:
    """Return the squared norms over the last dimension, measured in the tensor's precision, in float64."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norms.double().square_()


def factor_norms(x: Tensor) -> Tensor:
    """Return ‖xᵢ‖ of a factor of a gradient, (B, …) → (B,) float64, never too small.

    The other factor may be as large as numbers get, so what the squares of small numbers lose to underflow would count.
    """
    length = math.prod(x.shape[1:])
    if length < _PIECE:
        norms: Tensor = torch.linalg.vector_norm(x.reshape(len(x), length), dim=1).double()
    else:
        norms = squared_norms(x).sqrt_()
    return norms.add_(underflow(length, x.dtype))


def underflow(length: int, dtype: torch.dtype) -> float:
    """Return how much of the norm of a vector of this length may be lost because squares underflow."""
    return math.sqrt(length * torch.finfo(dtype).tiny)


def blocks(examples: int, numbers_per_example: int, device: torch.device) -> list[slice]:
    """Return slices over the examples, each of a working set that stays in a CPU's cache, or that fills another device."""
    working_set = CACHE if device.type == "cpu" else _ACCELERATOR * CACHE
    size = max(1, working_set // max(1, numbers_per_example))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]
