"""Named tensors: scaling, counting, the precision of gradients, the kept positions of a mask; and devices that torch can use."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, MutableMapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from privet.errors import InvalidArgumentError

Tensors = Mapping[str, Tensor]


def scale_tensors(tensors: Tensors, factor: float) -> dict[str, Tensor]:
    return {name: tensor * factor for name, tensor in tensors.items()}


def gradient_dtype(parameter: Tensor) -> torch.dtype:
    """Return the precision of a parameter's gradients and of their sums: its own, and at least float32."""
    return _promoted(parameter.dtype)


@functools.cache
def _promoted(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def zero_sum(parameter: Tensor) -> Tensor:
    """Return the sum of no gradients of a parameter."""
    return torch.zeros_like(parameter, dtype=gradient_dtype(parameter), requires_grad=False)


def places(mask: Tensor) -> Tensor:
    """Return the positions where a mask is True, row by row; cached, because masks are used for many steps."""
    version, found = _PLACES.get(mask, (-1, None))
    if found is None or version != mask._version:
        found = mask.flatten().nonzero().squeeze(1)
        _PLACES[mask] = (mask._version, found)
    return found


_PLACES: MutableMapping[Tensor, tuple[int, Tensor]] = WeakTensorKeyDictionary()


def total_size(tensors: Iterable[Tensor]) -> int:
    """Return the number of coordinates of all tensors together."""
    return sum(tensor.numel() for tensor in tensors)


# Size of sketches, and of tensors that need none.
_WIDTH, _ROWS = 1 << 10, 8
_LARGE = 1 << 14


def sketch(large: Tensor) -> Tensor:
    """Return a linear function of a tensor that has about its norm: itself if it is small, else sums with random signs.

    Source:
        Achlioptas 2003, "Database-friendly random projections", theorem 1.1.
    """
    flat = large.flatten()
    if flat.numel() <= _LARGE:
        return flat
    rows = flat.numel() // _WIDTH
    signs = torch.randint(2, (_ROWS, rows), generator=torch.Generator().manual_seed(0), device="cpu").mul_(2).sub_(1)
    head, tail = flat[: rows * _WIDTH], flat[rows * _WIDTH :]
    return torch.cat([(signs.to(flat) @ head.view(rows, _WIDTH)).flatten() / _ROWS**0.5, tail])


def check_device(argument: str, name: str) -> None:
    """Check that torch can use a device on this machine."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        usable = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        allowed = f"one of {', '.join(map(repr, usable))}, which torch can use on this machine"
        raise InvalidArgumentError(argument, name, allowed, _why_unusable(name)) from None


def _why_unusable(device: str) -> str:
    """Return why torch has no CUDA device, if one was named."""
    if not device.startswith("cuda") or torch.cuda.is_available():
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"The installed torch {torch.__version__} is built without CUDA."
    return "Torch finds no CUDA device; nvidia-smi shows whether the driver finds one."
