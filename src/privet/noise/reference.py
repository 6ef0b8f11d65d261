"""Arithmetic of noise in torch: random words to standard normals, and a sum and normals to a release.

`kernels` has compiled versions of the same two functions; this is their specification.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MANTISSA = (1 << 52) - 1
_ONE = 1023 << 52  # the bits of 1.0


def box_muller(block: Tensor) -> None:
    """Turn random words into standard normals in place; radii come from the first half, angles from the second.

    A 52-bit uniform u = (m + ½)·2⁻⁵² is exact in float64 and never 0, so radii reach √(2·53·ln 2) = 8.57, and the tails are
    symmetric because the angle is. The missing mass beyond is 1e-17.

    The block is float64, of even length, with 64 random bits in each element.
    """
    radius, angle = map(_uniform, block.chunk(2))
    radius.log_().mul_(-2.0).sqrt_()
    cosine = angle.mul_(2 * math.pi).cos()
    angle.sin_().mul_(radius)
    radius.mul_(cosine)


def _uniform(words: Tensor) -> Tensor:
    """Turn words into uniforms, in place. With the exponent of 1.0, the bits of m are those of 1 + m·2⁻⁵²."""
    words.view(torch.int64).bitwise_and_(_MANTISSA).bitwise_or_(_ONE)
    return words.sub_(1.0 - 2.0**-53)


def add_noise(total: Tensor, normals: Tensor, cells: float, grid: float, unit: float, released: Tensor) -> None:
    """Round sum and noise to the grid separately, and write their sum in other units.

    `released` = (round(normals · cells) + round(total / grid)) · unit, computed in float64. The sum is of any dtype and device,
    the normals are float64 on the CPU and stay. The grid is a power of two, and the unit the grid over a number.
    """
    noise = normals.to(total.device, copy=True).mul_(cells).round_()
    released.copy_(total.to(torch.float64, copy=True).div_(grid).round_().add_(noise).mul_(unit))
