"""Squared norms per example that do not overflow and do not underestimate long rows."""

from __future__ import annotations

__all__ = [
    "CACHE",
    "CANCELLED",
    "blocks",
    "factor_norms",
    "full_precision",
    "join_few",
    "squared_norms",
    "underflow",
    "without_autocast",
]

import contextlib
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

# float32 vector norms lose up to 1 % over rows of 10⁸ numbers; over pieces of this length they are exact to 1e-7.
_PIECE = 1024
# So few numbers are converted to float64 in less time than further calls take.
_FEW = 1 << 13
# Size of a working set that stays in a core's cache, in numbers.
CACHE = 1 << 19
# Factor by which working sets are larger on accelerators: few kernel launches, and a quarter of a gigabyte in float32.
_ACCELERATOR = 1 << 7
# A squared norm below this fraction of (the sum of its terms' norms)² is a remainder of cancellation, too small to be computed
# from squares of the terms.
CANCELLED = 1e-4


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which autocast does not round products."""
    enabled = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else contextlib.nullcontext()


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which norms and sums use the precision of their factors: no autocast, no TF32, no bfloat16 products.

    Norms and sums multiply in different orders. If products rounded their factors, the two would disagree by more than the
    margin that is added to norms.
    """
    kind = device.type
    rounding = [(backend, kept) for backend in _backends(kind) if (kept := backend.fp32_precision) not in _IEEE[kind]]
    return _disable_rounding(device, rounding) if rounding else without_autocast(device)


@contextlib.contextmanager
def _disable_rounding(device: torch.device, rounding: list[tuple[Any, str]]) -> Iterator[None]:
    for backend, _ in rounding:
        backend.fp32_precision = "ieee"
    try:
        with without_autocast(device):
            yield
    finally:
        for backend, kept in rounding:
            backend.fp32_precision = kept


# "none" defers to the parent setting: on a CPU nothing is rounded unless it was set there, while cuDNN's own default is TF32.
_IEEE = {"cpu": ("ieee", "none"), "cuda": ("ieee",)}


@functools.cache
def _backends(kind: str) -> list[Any]:
    """Return the torch backends that may round the factors of products on a kind of device; none without such a switch."""
    found: list[Any] = []
    if kind == "cpu":
        found = [getattr(torch.backends.mkldnn, "matmul", None), getattr(torch.backends.mkldnn, "conv", None)]
    elif kind == "cuda":
        found = [torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)]
    return [backend for backend in found if hasattr(backend, "fp32_precision")]


def squared_norms(x: Tensor) -> Tensor:
    """Return ‖xᵢ‖² for each row i of the first dimension, (B, …) → (B,) float64.

    The norms of pieces of a row are computed in the tensor's own precision and added in float64. A result of infinity or NaN
    means that the norm cannot be computed in this precision.
    """
    if _is_few(x):
        return _precise_norms(x).square_()
    examples, length = x.shape[0], math.prod(x.shape[1:])
    rows = x.reshape(examples, length)
    if length <= _PIECE:
        return _squares(rows)
    whole = length // _PIECE * _PIECE
    total = _squares(rows[:, :whole].view(examples, -1, _PIECE)).sum(1)
    if whole < length:
        total += _squares(rows[:, whole:])
    return total


def join_few(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return tensors (B, …) of the same rows, with small ones joined into larger ones that are still small.

    Their squared norms have the same sum, and a model has many small parameters: a call takes longer than their numbers.
    """
    found: list[Tensor] = []
    waiting: list[Tensor] = []
    room = _FEW
    for x in tensors:
        if not _is_few(x):
            found.append(x)
            continue
        if x.numel() > room and waiting:
            found.append(_join(waiting))
            waiting, room = [], _FEW
        waiting.append(x)
        room -= x.numel()
    return [*found, _join(waiting)] if waiting else found


def _join(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat([x.reshape(x.shape[0], math.prod(x.shape[1:])) for x in tensors], 1)


def _is_few(x: Tensor) -> bool:
    return x.numel() <= _FEW and not x.is_complex()


def _precise_norms(x: Tensor) -> Tensor:
    """Return the norm of each row of the first dimension, computed in float64, in which squares of float32 do not underflow."""
    rows = x if x.dim() > 1 else x[:, None]
    norms: Tensor = torch.linalg.vector_norm(rows, dim=tuple(range(1, rows.dim())), dtype=torch.float64)
    return norms


def _squares(x: Tensor) -> Tensor:
    """Return the squared norms over the last dimension, computed in the tensor's precision, as float64."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norms.double().square_()


def factor_norms(x: Tensor) -> Tensor:
    """Return an upper bound of ‖xᵢ‖ for a factor of a gradient, (B, …) → (B,) float64, tight up to underflow.

    The other factor may be arbitrarily large, so what squares of small numbers lose to underflow matters.
    """
    if _is_few(x):
        return _precise_norms(x)
    length = math.prod(x.shape[1:])
    if length <= _PIECE:
        norms: Tensor = torch.linalg.vector_norm(x.reshape(x.shape[0], length), dim=1).double()
    else:
        norms = squared_norms(x).sqrt_()
    return norms.add_(underflow(length, x.dtype))


@functools.cache
def underflow(length: int, dtype: torch.dtype) -> float:
    """Return a bound on the part of a norm that is lost when squares of a vector of this length underflow."""
    return math.sqrt(length * torch.finfo(dtype).tiny)


def blocks(examples: int, numbers_per_example: int, device: torch.device) -> list[slice]:
    """Return slices over the examples whose working sets each fit a CPU's cache, or fill an accelerator."""
    working_set = CACHE if device.type == "cpu" else _ACCELERATOR * CACHE
    size = max(1, working_set // max(1, numbers_per_example))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]
