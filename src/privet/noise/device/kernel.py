"""The Triton kernel of noise on a device: one read and one write per number, with the bits of the definition."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from privet.noise.device import definition
from privet.noise.device.definition import CONSTANTS, TILE, NoisePart

_WIDTH = tl.constexpr(definition.BLOCKS)
_ARTANH, _SINE, _COSINE = map(tl.constexpr, (definition.ARTANH, definition.SINE, definition.COSINE))
_LN2_HIGH, _LN2_LOW, _HALF_PI = map(tl.constexpr, (definition.LN2_HIGH, definition.LN2_LOW, math.pi / 2))
_TO_INTEGER, _BELOW_ONE, _WHOLE = map(tl.constexpr, (definition.TO_INTEGER, 1 - 2.0**-53, 2.0**52))
_MANTISSA, _ONE, _ROOT_HALF = map(tl.constexpr, (definition.MANTISSA, definition.ONE, definition.ROOT_HALF))


@triton.jit
def _quarter(a, b, c, d):
    a += b
    d = ((d ^ a) << 16) | ((d ^ a) >> 16)
    c += d
    b = ((b ^ c) << 12) | ((b ^ c) >> 20)
    a += b
    d = ((d ^ a) << 8) | ((d ^ a) >> 24)
    c += d
    b = ((b ^ c) << 7) | ((b ^ c) >> 25)
    return a, b, c, d


@triton.jit
def _four(at):
    zero = tl.zeros((_WIDTH,), tl.uint32)
    return (
        zero + tl.load(at).to(tl.uint32), zero + tl.load(at + 1).to(tl.uint32),
        zero + tl.load(at + 2).to(tl.uint32), zero + tl.load(at + 3).to(tl.uint32),
    )  # fmt: skip


@triton.jit
def _series(coefficients: tl.constexpr, size: tl.constexpr, z):
    total = tl.full((_WIDTH,), coefficients[0], tl.float64)
    for i in tl.static_range(1, size):
        total = total * z + coefficients[i]
    return total


@triton.jit
def _unit_interval(high, low):
    bits = ((high & 0xFFFFF).to(tl.int64) << 32) | low.to(tl.int64) | _ONE
    return bits.to(tl.float64, bitcast=True) - _BELOW_ONE


@triton.jit
def _pair(w0, w1, w2, w3):
    shifted = _unit_interval(w0, w1).to(tl.int64, bitcast=True) - _ROOT_HALF + _ONE
    k = ((shifted >> 52) - 1023).to(tl.float64)
    f = ((shifted & _MANTISSA) + _ROOT_HALF).to(tl.float64, bitcast=True)
    s = (f - 1.0) / (f + 1.0)
    z = s * s
    twice = s + s
    radius = tl.sqrt(-2.0 * (k * _LN2_HIGH + (k * _LN2_LOW + (twice * z * _series(_ARTANH, 10, z) + twice))))
    turns = 4.0 * _unit_interval(w2, w3)
    nearest = turns + _TO_INTEGER
    quadrant = nearest.to(tl.int64, bitcast=True)
    x = (turns - (nearest - _TO_INTEGER)) * _HALF_PI
    z = -x * x
    sine = x * z * _series(_SINE, 8, z) + x
    cosine = z * _series(_COSINE, 8, z) + 1.0
    c = tl.where((quadrant & 1) == 1, sine, cosine)
    s = tl.where((quadrant & 1) == 1, cosine, sine)
    return radius * tl.where(((quadrant + 1) & 2) == 2, -c, c), radius * tl.where((quadrant & 2) == 2, -s, s)


@triton.jit
def _round(x):
    shift = tl.where(x < 0, -_WHOLE, _WHOLE)  # from there on, every number is whole
    return tl.where(tl.abs(x) < _WHOLE, (x + shift) - shift, x)


@triton.jit
def _put(total, released, at, row, z):
    inside = at < tl.load(row)
    cells = tl.load(row + 4).to(tl.float64, bitcast=True)
    inverse = tl.load(row + 5).to(tl.float64, bitcast=True)
    unit = tl.load(row + 6).to(tl.float64, bitcast=True)
    found = (_round(z * cells) + _round(tl.load(total + at, mask=inside, other=0.0).to(tl.float64) * inverse)) * unit
    tl.store(released + at, found.to(released.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["total", "released"])
def _release(total, released, key, row):
    tile = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, _WIDTH)
    c0, c1, c2, c3 = _four(row + 8)
    k0, k1, k2, k3 = _four(key)
    k4, k5, k6, k7 = _four(key + 4)
    _, n0, n1, n2 = _four(row)
    block = (tile * _WIDTH + lane).to(tl.uint32)
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11 = c0, c1, c2, c3, k0, k1, k2, k3, k4, k5, k6, k7
    x12, x13, x14, x15 = block, n0, n1, n2
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    at = tile * (8 * _WIDTH) + lane
    y, z = _pair(x0 + c0, x1 + c1, x2 + c2, x3 + c3)
    _put(total, released, at, row, y)
    _put(total, released, at + _WIDTH, row, z)
    y, z = _pair(x4 + k0, x5 + k1, x6 + k2, x7 + k3)
    _put(total, released, at + 2 * _WIDTH, row, y)
    _put(total, released, at + 3 * _WIDTH, row, z)
    y, z = _pair(x8 + k4, x9 + k5, x10 + k6, x11 + k7)
    _put(total, released, at + 4 * _WIDTH, row, y)
    _put(total, released, at + 5 * _WIDTH, row, z)
    y, z = _pair(x12 + block, x13 + n0, x14 + n1, x15 + n2)
    _put(total, released, at + 6 * _WIDTH, row, y)
    _put(total, released, at + 7 * _WIDTH, row, z)


def add_noise_by_kernel(key: Tensor, draw: tuple[int, int], parts: Sequence[NoisePart]) -> None:
    """Write the releases of some tensors of one device, to the bits of the definition, in one pass over each."""
    rows = [
        [len(total), place, *draw, *_bits(cells, 1 / grid, unit), 0, *CONSTANTS, 0, 0, 0, 0]
        for place, total, cells, grid, unit, _ in parts
    ]
    # In a tensor: Triton compiles anew for some integers, and passes floats in float32.
    table = torch.tensor(rows, dtype=torch.int64, device=key.device)
    with torch.cuda.device_of(key):
        for part, row in zip(parts, table, strict=True):
            total = part.total.contiguous()
            released = part.released if part.released.is_contiguous() else torch.empty_like(total)
            if len(total):
                _release[(-(-len(total) // TILE),)](total, released, key, row, enable_fp_fusion=False)
            if released is not part.released:
                part.released.copy_(released)


def _bits(*numbers: float) -> list[int]:
    found: list[int] = torch.tensor(numbers, dtype=torch.float64, device="cpu").view(torch.int64).tolist()
    return found
