"""Depthwise convolutions: each kernel sees one channel, so its gradient is computed tap by tap, without patches."""

from __future__ import annotations

__all__ = ["count_numbers", "form_gradients", "is_cheaper"]

import itertools
import math

import torch
from torch import Tensor

from privet.gradients.layers.convolution.geometry import Geometry

# Rows of at most this many positions are too short to be copied into patches efficiently.
_SHORT = 8


def is_cheaper(geometry: Geometry, x: Tensor) -> bool:
    """Return whether products tap by tap cost less than patches for an input (B, C, *space): channels last, or short rows."""
    depthwise = geometry.groups > 1 and geometry.inputs == math.prod(geometry.kernel) and geometry.outputs == 1
    return depthwise and (x.stride(1) == 1 or geometry.positions(tuple(x.shape[2:]))[-1] <= _SHORT)


def count_numbers(geometry: Geometry, x: Tensor) -> int:
    """Return the number of elements of one example's inputs, gradients and products."""
    space = tuple(x.shape[2:])
    return x.shape[1] * (math.prod(geometry.padded_space(space)) + 2 * math.prod(geometry.positions(space)))


def form_gradients(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    """Return the gradients of a block, (b, C, *space) and (b, C, *positions) → (b, C, taps), over all channels at once."""
    padded, grad = geometry.pad_channels_last(x), grad.movedim(1, -1).contiguous()
    taps = list(itertools.product(*map(range, geometry.kernel)))
    gradients, products = x.new_empty(len(taps), len(x), x.shape[1]), torch.empty_like(grad)
    for tap, into in zip(taps, gradients, strict=True):
        torch.mul(geometry.tap_view(tap, padded), grad, out=products)
        torch.sum(products.flatten(1, -2), dim=1, out=into)
    return gradients.permute(1, 2, 0)
