"""Products with a mask that skip what is left out, compiled where that is possible and checked against torch's first."""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from privet.native import trusted
from privet.values import places

_SOURCE = Path(__file__).with_suffix(".cpp")
_NAMES = {torch.float32: "float32", torch.float64: "float64"}
# Multiplications that are worth another thread.
_WORTH = 1 << 23


@dataclass(frozen=True)
class Products:
    """Two products with a mask (p, d) as a sparse matrix of ones, in one of two forms that agree up to rounding, on a CPU.

    Args:
        product: mask, columns (d, B) → m x, (p, B).
        outer: mask, columns (p, B) and (d, B) → the kept entries of their product, (K,), row by row.
        product_pays: up to this part of kept entries, `product` is faster than a dense one.
        outer_pays: the same for `outer`.
        description: which form it is, and why.
    """

    product: Callable[[Tensor, Tensor], Tensor]
    outer: Callable[[Tensor, Tensor, Tensor], Tensor]
    product_pays: float
    outer_pays: float
    description: str


def _product(mask: Tensor, x: Tensor) -> Tensor:
    return mask @ x


def _outer(mask: Tensor, left: Tensor, right: Tensor) -> Tensor:
    kept: Tensor = torch.sparse.sampled_addmm(mask, left, right.t(), beta=0).values()
    return kept


# Without MKL, torch's sparse products are no faster than dense ones.
_PAYS = 0.15 if torch.backends.mkl.is_available() else 0.0  # type: ignore[no-untyped-call]
IN_TORCH = Products(_product, _outer, _PAYS, _PAYS, "torch")


@functools.cache
def products() -> Products:
    """Return the compiled form, or the one in torch where there is none; decided once in a process.

    >>> products().description.split(":")[0] in ("compiled", "torch")
    True
    """
    return trusted(IN_TORCH, _SOURCE, _bound, agree)


def agree(form: Products) -> bool:
    """Return whether a form computes both products, up to rounding, for whole vectors and remainders of all kinds."""
    generator = torch.Generator().manual_seed(0)
    return all(
        _alike(form, torch.rand(11, 17, generator=generator) < density, examples, dtype, generator)
        for density in (0.0, 0.4, 1.0)
        for examples in (0, 1, 37, 211)
        for dtype in _NAMES
    )


def _alike(form: Products, kept: Tensor, examples: int, dtype: torch.dtype, generator: torch.Generator) -> bool:
    left, right = (torch.randn(size, examples, dtype=torch.float64, generator=generator) for size in kept.shape)
    if examples > 2:
        right[3, 1], right[5, 0], left[2, 2] = torch.nan, torch.inf, -torch.inf
    left, right, mask = left.to(dtype), right.to(dtype), rows(kept, dtype)
    expected = (
        torch.stack([right[row].sum(0) for row in kept]),
        torch.cat([(left[j] * right[row]).sum(1) for j, row in enumerate(kept)]),
    )
    tolerance = 512 * torch.finfo(dtype).eps
    return all(
        one.dtype == other.dtype and torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        for one, other in zip((form.product(mask, right), form.outer(mask, left, right)), expected, strict=True)
    )


def rows(kept: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask (p, d) as a sparse matrix of ones, row by row."""
    starts = torch.zeros(len(kept) + 1, dtype=torch.int64)
    torch.cumsum(kept.sum(1), 0, out=starts[1:])
    columns = places(kept) % kept.shape[1]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        ones = torch.ones(len(columns), dtype=dtype)
        return torch.sparse_csr_tensor(starts, columns, ones, kept.shape, check_invariants=False)


class _Rows(ctypes.Structure):
    """The struct of that name in the source."""

    _fields_ = (
        ("starts", ctypes.c_void_p), ("columns", ctypes.c_void_p), ("rows", ctypes.c_int64), ("examples", ctypes.c_int64),
    )  # fmt: skip


def _bound(code: ctypes.CDLL) -> Products:
    """Return the functions of a library as functions of tensors. Calls let other threads run."""
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
        multiply[x.dtype](_described(starts, columns, x), x.data_ptr(), out.data_ptr(), _threads(columns, x))
        return out

    def outer(mask: Tensor, left: Tensor, right: Tensor) -> Tensor:
        if left.dtype not in _NAMES:
            return _outer(mask, left, right)
        left, right = left.contiguous(), right.contiguous()
        starts, columns = mask.crow_indices(), mask.col_indices()
        values = left.new_empty(len(columns))
        shape, threads = _described(starts, columns, left), _threads(columns, left)
        sample[left.dtype](shape, left.data_ptr(), right.data_ptr(), values.data_ptr(), threads)
        return values

    return Products(product, outer, 0.5, 0.35, f"compiled: {code._name}")


def _described(starts: Tensor, columns: Tensor, x: Tensor) -> _Rows:
    return _Rows(starts.data_ptr(), columns.data_ptr(), len(starts) - 1, x.shape[1])


def _threads(columns: Tensor, x: Tensor) -> int:
    return min(torch.get_num_threads(), 1 + len(columns) * x.shape[1] // _WORTH)
