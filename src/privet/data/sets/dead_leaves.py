"""Synthetic images of random overlapping shapes, for image statistics that cost no privacy.

Source: the dead leaves model, as in Baradad et al. 2021, "Learning to see by looking at noise".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MOST_SHAPES = 6
_SMALLEST = 1.0  # smallest semi-axis, in pixels
_LARGEST = 0.4  # largest semi-axis above the smallest, as a fraction of a side
# Grey values are mapped to [-0.8, 2.05], as in standardised images of objects on a dark background.
MEAN = 0.28
DEVIATION = 0.35


def dead_leaves(number: int, side: int) -> Tensor:
    """Return images (number, 1, side, side) of one to six ellipses and rectangles on a dark background, equal at every call.

    They depend only on the arguments, so anything computed from them is public.
    """
    random = torch.Generator().manual_seed(0)

    def uniform() -> Tensor:
        return torch.rand(number, 1, 1, generator=random)

    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    images = torch.zeros(number, side, side)
    shapes = torch.randint(1, _MOST_SHAPES + 1, (number, 1, 1), generator=random)
    for shape in range(_MOST_SHAPES):
        across, down, angle = columns - uniform() * side, rows - uniform() * side, uniform() * math.pi
        width, height = (_SMALLEST + uniform() * side * _LARGEST for _ in range(2))
        first = (across * angle.cos() + down * angle.sin()) / width
        second = (down * angle.cos() - across * angle.sin()) / height
        rectangle = (first.abs() < 1) & (second.abs() < 1)
        ellipse = first.square() + second.square() < 1
        inside = torch.where(uniform() < 0.5, rectangle, ellipse)
        images = torch.where(inside & (shape < shapes), uniform(), images)
    return ((images - MEAN) / DEVIATION).unsqueeze(1)
