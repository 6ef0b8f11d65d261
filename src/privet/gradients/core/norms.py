"""Squared norms per example that do not overflow and do not underestimate long rows."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# float32 vector norms lose up to 1 % over rows of 10⁸ numbers; over pieces of this length they are exact to 1e-7. Shorter rows
# are measured in float64. How, must never depend on the number of rows: another example would change the norms of all.
_PIECE = 1024
# Most numbers of a product that is measured together with others, as further calls would take longer than to copy them, and of
# all of these.
_FEW, _ROOM = 1 << 14, 1 << 15
_LARGEST_SQUARE = torch.finfo(torch.float32).max
# Most numbers that are converted to float64 to measure them, and the shortest row for which float32 would do as well: what its
# squares lose to underflow is less than their rounding.
_CONVERTED, _RESOLVED = 1 << 13, 1e-12
# Most products that are measured together: the matrix that chooses their columns stays small.
_TOGETHER = 16
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

    They multiply in different orders: rounded factors would make them differ by more than the margin that is added to norms.
    """
    backends = _backends(device.type)
    exact = _IEEE.get(device.type, frozenset()).issuperset(map(_read_precision, backends))
    return without_autocast(device) if exact else _disable_rounding(device, backends)


_read_precision = operator.attrgetter("fp32_precision")


@contextlib.contextmanager
def _disable_rounding(device: torch.device, backends: list[Any]) -> Iterator[None]:
    before = list(map(_read_precision, backends))
    for backend in backends:
        backend.fp32_precision = "ieee"
    try:
        with without_autocast(device):
            yield
    finally:
        for backend, kept in zip(backends, before, strict=True):
            backend.fp32_precision = kept


# "none" defers to the parent setting: on a CPU nothing is rounded unless it was set there, while cuDNN's own default is TF32.
_IEEE: dict[str, frozenset[str]] = {"cpu": frozenset(("ieee", "none")), "cuda": frozenset(("ieee",))}


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
    """Return ‖xᵢ‖² for each row i, (B, …) → (B,) float64; infinity or NaN if it cannot be computed in this precision."""
    examples, length = x.shape[0], math.prod(x.shape[1:])
    if length <= _PIECE or not examples:
        return _precise_norms(x).square_()
    rows = x.reshape(examples, length)
    whole = length // _PIECE * _PIECE
    total = _squares(rows[:, :whole].view(examples, -1, _PIECE)).sum(1)
    if whole < length:
        total += _squares(rows[:, whole:])
    return total


def _precise_norms(x: Tensor) -> Tensor:
    """Return the norm of each row as float64, in which squares of float32 neither underflow nor overflow.

    On a CPU, where torch converts into a copy, many numbers are measured in float32, and rows out of its range again.
    """
    rows = x if x.dim() > 1 else x[:, None]
    wide, dims = torch.complex128 if x.is_complex() else torch.float64, tuple(range(1, rows.dim()))
    if x.dtype != torch.float32 or x.numel() <= _CONVERTED or x.device.type != "cpu":
        norms: Tensor = torch.linalg.vector_norm(rows, dim=dims, dtype=wide)
        return norms
    norms = torch.linalg.vector_norm(rows, dim=dims).double()
    low, high = torch.aminmax(norms)
    if not (float(low) > _RESOLVED and float(high) < 1 / _RESOLVED):  # or one of them is NaN
        odd = (~((norms > _RESOLVED) & (norms < 1 / _RESOLVED))).nonzero().flatten()
        norms[odd] = torch.linalg.vector_norm(rows[odd], dim=dims, dtype=wide)
    return norms


def _squares(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norms.double().square_()


def as_matrix(x: Tensor) -> Tensor:
    """Return numbers (B, …) as (B, n)."""
    return x if x.dim() == 2 else x.flatten(1) if x.dim() > 2 else x[:, None]


def factor_norms(x: Tensor) -> Tensor:
    """Return an upper bound of ‖xᵢ‖ of a factor, (B, …) → (B,) float64: the other factor may be large, so underflow matters."""
    length = math.prod(x.shape[1:])
    if length > _PIECE:
        return squared_norms(x).sqrt_().add_(underflow(length, x.dtype))
    norms = _precise_norms(x)
    return norms.add_(underflow(length, x.dtype)) if x.dtype == torch.float64 else norms


def product_norms(inputs: Tensor, gradients: Tensor) -> Tensor:
    """Return ‖g aᵀ‖² from the norms of the factors, (B,) float64; NaN where one times a weight may leave the range of numbers."""
    a, g = factor_norms(inputs), factor_norms(gradients)
    unsafe = torch.maximum(a, g) >= math.sqrt(torch.finfo(inputs.dtype).max)
    return a.mul_(g).square_().masked_fill_(unsafe, torch.nan)


def sum_product_norms(products: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """Return squared norms, each (B,) float64, whose sum is that of ‖x‖² or ‖g aᵀ‖² over all given factors (x,) or (a, g).

    Small products are measured together: a model has many, and the calls take longer than their numbers.
    """
    found: list[Tensor] = []
    waiting: list[Sequence[Tensor]] = []
    room = _ROOM
    for factors in products:
        numbers, short = 0, True
        for x in factors:
            numbers += x.numel()
            short = short and x.dtype == torch.float32 and math.prod(x.shape[1:]) <= _PIECE
        if numbers > _FEW or not short:
            found.append(_measure(factors))
            continue
        if waiting and (numbers > room or len(waiting) == _TOGETHER):
            found.append(_measure_few(waiting))
            waiting, room = [], _ROOM
        waiting.append(factors)
        room -= numbers
    return [*found, _measure_few(waiting)] if waiting else found


def _measure(factors: Sequence[Tensor]) -> Tensor:
    return product_norms(*factors) if len(factors) == 2 else squared_norms(*factors)


def _measure_few(products: list[Sequence[Tensor]]) -> Tensor:
    """Return Σ‖x‖² + Σ‖a‖²‖g‖² over products of few float32 numbers, in float64, in which no square underflows."""
    if len(products) == 1:
        return _measure(products[0])
    # Sides of the pairs, and the others but those that are the g of a pair: ‖x‖² of a bias is ‖g‖² of its weight.
    left: list[Tensor] = []
    right: list[Tensor] = []
    single: list[Tensor] = []
    again: list[int] = []  # the places of these pairs
    places: dict[object, int] = {}
    for factors in sorted(products, key=len, reverse=True):
        x = factors[-1]
        memory = x.data_ptr(), x.numel(), x.dtype, x.is_contiguous() or id(x)
        x = x if x.dim() == 2 else as_matrix(x)
        if len(factors) == 2:
            places[memory] = len(left)
            left.append(factors[0] if factors[0].dim() == 2 else as_matrix(factors[0]))
            right.append(x)
        elif memory in places:
            again.append(places[memory])
        else:
            single.append(x)
    columns = [*left, *right, *single]
    joined = torch.cat(columns, 1)
    if not left:
        return _precise_norms(joined).square_()
    choice, one = _choose_columns(tuple([x.shape[1] for x in columns]), len(left), tuple(again), joined.device)
    squares = torch.addmm(one, joined.double().square_(), choice)
    squares.masked_fill_(squares >= _LARGEST_SQUARE, torch.nan)
    of_a, of_g = squares.chunk(2, dim=1)
    return (of_a * of_g).sum(1)


@functools.lru_cache(maxsize=32)
def _choose_columns(lengths: tuple[int, ...], pairs: int, again: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a matrix and a row: squares times the one plus the other are ‖a‖² + [again] and 1, ‖g‖² for each pair and Σ‖x‖²."""
    of = [*range(pairs), *range(pairs + 1, 2 * pairs + 1), *[2 * pairs + 1] * (len(lengths) - 2 * pairs)]
    columns = torch.eye(2 * pairs + 2, dtype=torch.float64, device="cpu")
    choice = columns[of].repeat_interleave(torch.tensor(lengths, device="cpu"), dim=0)
    return choice.to(device), columns[[pairs, *again]].sum(0).to(device)


@functools.cache
def underflow(length: int, dtype: torch.dtype) -> float:
    """Return a bound on the part of a norm that is lost when squares of a vector of this length underflow."""
    return math.sqrt(length * torch.finfo(dtype).tiny)


def blocks(examples: int, numbers_per_example: int, device: torch.device) -> list[slice]:
    """Return slices over the examples whose working sets each fit a CPU's cache, or fill an accelerator."""
    working_set = CACHE if device.type == "cpu" else _ACCELERATOR * CACHE
    size = max(1, working_set // max(1, numbers_per_example))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]
