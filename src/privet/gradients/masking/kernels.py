"""Sparse products with a mask: compiled where possible, and verified against a torch implementation before use."""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from privet._utils.native import trusted
from privet._utils.tensors import places

_SOURCE = Path(__file__).with_suffix(".cpp")
_NAMES = {torch.float32: "float32", torch.float64: "float64"}
# Multiplications per additional thread.
_WORTH = 1 << 23


@dataclass(frozen=True)
class Products:
    """Products with a mask (p, d), a sparse matrix of ones on a CPU: one of two implementations, equal up to rounding."""

    product: Callable[[Tensor, Tensor], Tensor]  # mask, columns (d, B) → m x, (p, B)
    outer: Callable[[Tensor, Tensor, Tensor], Tensor]  # mask, (p, B), (d, B) → kept entries of their product, (K,)
    product_pays: float  # largest fraction of kept entries for which it is faster than a dense product
    outer_pays: float
    description: str


def _product(mask: Tensor, x: Tensor) -> Tensor:
    return mask @ x


def _outer(mask: Tensor, left: Tensor, right: Tensor) -> Tensor:
    kept: Tensor = torch.sparse.sampled_addmm(mask, left, right.t(), beta=0).values()
    return kept


# Without MKL, torch's sparse products are no faster than dense ones.
_PAYS = 0.15 if torch.backends.mkl.is_available() else 0.0
IN_TORCH = Products(_product, _outer, _PAYS, _PAYS, "torch")


@functools.cache
def load_kernels() -> Products:
    """Return the compiled implementation, or the one in torch if there is none; decided once per process."""
    return trusted(IN_TORCH, _SOURCE, _bind, is_consistent)


def is_consistent(form: Products) -> bool:
    """Return whether an implementation computes all products correctly up to rounding, for full vectors and remainders."""
    generator = torch.Generator().manual_seed(0)
    return all(
        _is_close(form, torch.rand(11, 17, generator=generator, device="cpu") < density, examples, dtype, generator)
        for density in (0.0, 0.4, 1.0)
        for examples in (0, 1, 37, 48, 211)
        for dtype in _NAMES
    )


def _is_close(form: Products, kept: Tensor, examples: int, dtype: torch.dtype, generator: torch.Generator) -> bool:
    left, right = (torch.randn(size, examples, dtype=torch.float64, generator=generator, device="cpu") for size in kept.shape)
    if examples > 2:
        right[3, 1], right[5, 0], left[2, 2] = torch.nan, torch.inf, -torch.inf
    left, right, mask = left.to(dtype), right.to(dtype), rows(kept, dtype)
    found = form.product(mask, right), form.outer(mask, left, right)
    expected = (
        torch.stack([right[row].sum(0) for row in kept]),
        torch.cat([(left[j] * right[row]).sum(1) for j, row in enumerate(kept)]),
    )
    tolerance = 512 * torch.finfo(dtype).eps
    return all(
        one.dtype == other.dtype and torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        for one, other in zip(found, expected, strict=True)
    )


def rows(kept: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask (p, d) as a sparse CSR matrix of ones."""
    starts = torch.zeros(len(kept) + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(kept.sum(1), 0, out=starts[1:])
    columns = places(kept) % kept.shape[1]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        ones = torch.ones(len(columns), dtype=dtype, device="cpu")
        return torch.sparse_csr_tensor(starts, columns, ones, kept.shape, check_invariants=False)


class _Rows(ctypes.Structure):
    _fields_ = (
        ("starts", ctypes.c_void_p), ("columns", ctypes.c_void_p), ("rows", ctypes.c_int64), ("examples", ctypes.c_int64),
    )  # fmt: skip


def _bind(code: ctypes.CDLL) -> Products:
    """Wrap the functions of a compiled library as functions of tensors. Calls release the GIL."""
    multiply = {dtype: getattr(code, f"product_{name}") for dtype, name in _NAMES.items()}
    sample = {dtype: getattr(code, f"outer_{name}") for dtype, name in _NAMES.items()}
    for function in (*multiply.values(), *sample.values()):
        function.restype = None
    pointer, matrix = ctypes.POINTER(_Rows), ctypes.c_void_p
    for function in multiply.values():
        function.argtypes = [pointer, matrix, matrix, ctypes.c_int64]
    for function in sample.values():
        function.argtypes = [pointer, matrix, matrix, matrix, ctypes.c_int64]

    def product(mask: Tensor, x: Tensor) -> Tensor:
        if x.dtype not in _NAMES:
            return _product(mask, x)
        x, out = x.contiguous(), x.new_empty(mask.shape[0], x.shape[1])
        starts, columns = mask.crow_indices(), mask.col_indices()
        multiply[x.dtype](_describe(starts, columns, x), x.data_ptr(), out.data_ptr(), _threads(len(columns) * x.shape[1]))
        return out

    def outer(mask: Tensor, left: Tensor, right: Tensor) -> Tensor:
        if left.dtype not in _NAMES:
            return _outer(mask, left, right)
        left, right = left.contiguous(), right.contiguous()
        starts, columns = mask.crow_indices(), mask.col_indices()
        values = left.new_empty(len(columns))
        shape, threads = _describe(starts, columns, left), _threads(len(columns) * left.shape[1])
        sample[left.dtype](shape, left.data_ptr(), right.data_ptr(), values.data_ptr(), threads)
        return values

    return Products(product, outer, 0.5, 0.35, f"compiled: {code._name}")


def _describe(starts: Tensor, columns: Tensor, x: Tensor) -> _Rows:
    return _Rows(starts.data_ptr(), columns.data_ptr(), len(starts) - 1, x.shape[1])


def _threads(multiplications: int) -> int:
    return min(torch.get_num_threads(), 1 + multiplications // _WORTH)
