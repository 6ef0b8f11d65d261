"""Noise on a device as functions in torch: ChaCha20 → Box–Muller in float64 → public grid → sum + noise → scale.

It uses only additions, multiplications, a division and a root, which IEEE 754 rounds in one way. So every device, and the kernel,
gives the same bits.

A block of 16 words gives 8 numbers. Number j·BLOCKS + b of a tile of 8·BLOCKS is number j of the tile's block b, so neighbouring
threads of the kernel write neighbouring numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCKS = 128  # blocks per program of the kernel
TILE = 8 * BLOCKS
LONGEST = 1 << 35  # numbers per tensor: the counter of blocks has 32 bits
M32 = (1 << 32) - 1
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
_PIECE = 8  # tiles at once in torch: they stay in cache
# As in `compiled.cpp`: series in z, highest power first, for artanh(s)/s in s², and sin(x)/x and cos(x) in −x².
MANTISSA, ONE, ROOT_HALF = (1 << 52) - 1, 1023 << 52, 0x3FE6A09E667F3BCD  # bits of 1.0 and 1/√2
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
ARTANH = tuple(1 / n for n in range(21, 1, -2))
SINE = tuple(1 / math.factorial(n) for n in range(17, 1, -2))
COSINE = tuple(1 / math.factorial(n) for n in range(16, 0, -2))
TO_INTEGER = 1.5 * 2.0**52  # x + this has the integer nearest to x in its lowest bits


class NoisePart(NamedTuple):
    """A flat tensor that gets noise: `released` = (round(normals · cells) + round(total / grid)) · unit, as in `reference`."""

    place: int  # of the tensor in its release
    total: Tensor
    cells: float
    grid: float
    unit: float
    released: Tensor


def _quarter_round(s: list[Tensor], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & M32
        turned = s[z] ^ s[x]
        s[z] = ((turned << by) | (turned >> (32 - by))) & M32


def chacha20(key: Sequence[int], nonce: Sequence[int], counters: Tensor) -> Tensor:
    """Return the 16 words of each block, (16, n) int64 in [0, 2³²): RFC 8439, section 2.3."""
    start = [torch.full_like(counters, word) for word in (*CONSTANTS, *key)]
    start += [counters, *(torch.full_like(counters, word) for word in nonce)]
    state = list(start)
    for _ in range(10):
        for places in _COLUMNS + _DIAGONALS:
            _quarter_round(state, *places)
    return torch.stack([(x + y) & M32 for x, y in zip(state, start, strict=True)])


def _polynomial(coefficients: tuple[float, ...], z: Tensor) -> Tensor:
    total = torch.full_like(z, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * z + coefficient
    return total


def _uniform(high: Tensor, low: Tensor) -> Tensor:
    """Return (m + ½)·2⁻⁵² for the 52 bits m of two words: exact, never 0 or 1."""
    return ((((high & 0xFFFFF) << 32) | low) | ONE).view(torch.float64) - (1 - 2.0**-53)


def _logarithm(x: Tensor) -> Tensor:
    shifted = x.view(torch.int64) - ROOT_HALF + ONE
    k = ((shifted >> 52) - 1023).double()
    f = ((shifted & MANTISSA) + ROOT_HALF).view(torch.float64)
    s = (f - 1.0) / (f + 1.0)
    z, twice = s * s, s + s
    return k * LN2_HIGH + (k * LN2_LOW + (twice * z * _polynomial(ARTANH, z) + twice))


def normals(words: Tensor) -> Tensor:
    """Return 8 standard normals of each block, (8, n): words 0 and 1 make a radius, 2 and 3 an angle, and so on."""
    found = []
    for first in range(0, 16, 4):
        radius = (-2.0 * _logarithm(_uniform(words[first], words[first + 1]))).sqrt()
        turns = 4.0 * _uniform(words[first + 2], words[first + 3])
        nearest = turns + TO_INTEGER
        quadrant = nearest.view(torch.int64)
        x = (turns - (nearest - TO_INTEGER)) * (math.pi / 2)
        z = -x * x
        sine, cosine = x * z * _polynomial(SINE, z) + x, z * _polynomial(COSINE, z) + 1.0
        odd = (quadrant & 1) == 1
        c, s = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
        c, s = torch.where(((quadrant + 1) & 2) == 2, -c, c), torch.where((quadrant & 2) == 2, -s, s)
        found += [radius * c, radius * s]
    return torch.stack(found)


def add_noise_in_torch(key: Tensor, draw: tuple[int, int], parts: Sequence[NoisePart]) -> None:
    """Write the releases of some tensors: the definition."""
    secret = key.tolist()
    for place, total, cells, grid, unit, released in parts:
        for start in range(0, len(total), _PIECE * TILE):
            piece = total[start : start + _PIECE * TILE]
            tiles = -(-len(piece) // TILE)
            counters = torch.arange(tiles * BLOCKS, device=total.device) + start // 8
            drawn = normals(chacha20(secret, (place, *draw), counters))
            z = drawn.view(8, tiles, BLOCKS).transpose(0, 1).reshape(-1)[: len(piece)]
            found = ((z * cells).round() + (piece.double() / grid).round()) * unit
            released[start : start + len(piece)] = found.to(total.dtype)
