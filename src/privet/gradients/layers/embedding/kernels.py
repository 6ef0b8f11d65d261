"""Norms and sums of embedding gradients: compiled where possible, and verified against a torch implementation before use."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from privet._utils.native import trusted
from privet.gradients.layers.embedding import reference

_SOURCE = Path(__file__).with_suffix(".cpp")
_NAMES = {torch.float32: "float32", torch.float64: "float64"}
_NO_PADDING = -(2**63)


@dataclass(frozen=True)
class Sums:
    """The two functions of `reference`, in one of two implementations that are equal up to rounding."""

    measure: Callable[[Tensor, Tensor, int | None], tuple[Tensor, Tensor]]
    weighted_sum: Callable[[Tensor, Tensor, Tensor, int, int | None], Tensor]
    description: str


IN_TORCH = Sums(reference.measure, reference.weighted_sum, "torch")


@functools.cache
def load_kernels() -> Sums:
    """Return the compiled implementation, or the one in torch if there is none; decided once per process."""
    return trusted(IN_TORCH, _SOURCE, _bind, is_consistent)


def is_consistent(form: Sums) -> bool:
    """Return whether an implementation equals `reference` up to rounding, for all kinds of input that it distinguishes."""
    generator = torch.Generator().manual_seed(0)
    examples, positions, width, size = 5, 23, 37, 71  # several vectors of any width, and a remainder
    indices = torch.randint(13, (examples, positions), generator=generator, device="cpu")
    indices[:, ::5] += 40  # with many rows between them and after them that no example looks up
    own = torch.randn(examples, positions, width, dtype=torch.float64, generator=generator, device="cpu")
    weights = torch.rand(examples, dtype=torch.float64, generator=generator, device="cpu")
    odd = own.clone()
    odd[0, 3, 5], odd[1, 2, 0], odd[2, 7, 36] = torch.nan, torch.inf, -torch.inf
    return all(
        _is_close(form, indices, gradients.to(dtype), weights.to(dtype), size, padding)
        for dtype in _NAMES
        for gradients in (own, odd, own.transpose(1, 2).contiguous().transpose(1, 2), own[:, :1].expand_as(own))
        for padding in (None, 3)
    )


def _is_close(form: Sums, indices: Tensor, gradients: Tensor, weights: Tensor, size: int, padding: int | None) -> bool:
    tolerance = 16 * torch.finfo(gradients.dtype).eps
    found = *form.measure(indices, gradients, padding), form.weighted_sum(indices, gradients, weights, size, padding)
    expected = (
        *reference.measure(indices, gradients, padding),
        reference.weighted_sum(indices, gradients, weights, size, padding),
    )
    return all(
        one.dtype == other.dtype and torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        for one, other in zip(found, expected, strict=True)
    )


class _Lookups(ctypes.Structure):
    _fields_ = (
        ("indices", ctypes.c_void_p), ("index_example", ctypes.c_int64), ("index_position", ctypes.c_int64),
        ("gradients", ctypes.c_void_p), ("gradient_example", ctypes.c_int64), ("gradient_position", ctypes.c_int64),
        ("examples", ctypes.c_int64), ("positions", ctypes.c_int64), ("width", ctypes.c_int64), ("padding", ctypes.c_int64),
    )  # fmt: skip


_read_base: Callable[[Tensor], int] | None = getattr(torch._C, "_data_address", None)


def _address(x: Tensor) -> int:
    """Return where a tensor is that is read only; `data_ptr` would first copy memory that it shares until it is written to."""
    return x.data_ptr() if _read_base is None else _read_base(x) + int(x.storage_offset()) * x.element_size()


def _lookups(indices: Tensor, gradients: Tensor, padding: int | None) -> _Lookups:
    return _Lookups(
        _address(indices), *indices.stride(), gradients.data_ptr(), *gradients.stride()[:2], *gradients.shape,
        _NO_PADDING if padding is None else padding,
    )  # fmt: skip


def _to_kernel_layout(indices: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the layout that the kernels read: int64 indices, and contiguous gradients of each position."""
    return indices.long(), gradients if gradients.stride(2) == 1 else gradients.contiguous()


def _bind(code: ctypes.CDLL) -> Sums:
    """Wrap the functions of a compiled library as functions of tensors. Calls release the GIL."""
    measures = {dtype: getattr(code, f"measure_{name}") for dtype, name in _NAMES.items()}
    adders = {dtype: getattr(code, f"add_up_{name}") for dtype, name in _NAMES.items()}
    pointer = ctypes.POINTER(_Lookups)
    for function in measures.values():
        function.argtypes, function.restype = [pointer, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_bool
    for function in adders.values():
        function.argtypes, function.restype = [pointer, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p], ctypes.c_bool

    def is_supported(gradients: Tensor) -> bool:
        return gradients.device.type == "cpu" and gradients.dtype in _NAMES

    def measure(indices: Tensor, gradients: Tensor, padding: int | None) -> tuple[Tensor, Tensor]:
        if is_supported(gradients):
            there, read = _to_kernel_layout(indices, gradients)
            squares, rounding = torch.empty(2, read.shape[0], dtype=torch.float64, device="cpu").unbind()
            if measures[read.dtype](_lookups(there, read, padding), squares.data_ptr(), rounding.data_ptr()):
                return squares, rounding
        return reference.measure(indices, gradients, padding)

    def weighted_sum(indices: Tensor, gradients: Tensor, weights: Tensor, size: int, padding: int | None) -> Tensor:
        if is_supported(gradients):
            there, read = _to_kernel_layout(indices, gradients)
            factors = weights.to(read.dtype).contiguous()
            total = read.new_empty(size, read.shape[2])
            if adders[read.dtype](_lookups(there, read, padding), factors.data_ptr(), size, total.data_ptr()):
                return total
        return reference.weighted_sum(indices, gradients, weights, size, padding)

    return Sums(measure, weighted_sum, f"compiled: {code._name}")
