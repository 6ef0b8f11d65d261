"""Deskewing of images of handwriting, one by one."""

from __future__ import annotations

__all__ = ["deskew"]

import torch
from torch import Tensor
from torch.nn import functional as F

_STEEPEST = 1.0  # largest shear, width over height
_NEGLIGIBLE = 1e-6


def deskew(images: Tensor) -> Tensor:
    """Shear images so that their strokes stand upright.

    Ink is the excess over an image's darkest value. The shear about the centre of the ink removes the covariance of its vertical
    and horizontal positions.

    Args:
        images: (N, C, H, W).

    Returns:
        (N, C, H, W); pixels from outside the image have its darkest value.

    Guarantee:
        Each result is a function of one image alone.

    Source:
        Deskewing, as in LeCun, Bottou, Bengio, Haffner 1998, "Gradient-based learning applied to document recognition", §III.

    >>> bar = torch.zeros(1, 1, 9, 9)
    >>> bar[0, 0, range(2, 7), range(2, 7)] = 1.0
    >>> int((deskew(bar)[0, 0].sum(0) > 0.9).sum())  # columns with ink
    1
    """
    darkest = images.amin((1, 2, 3), keepdim=True)
    above = images - darkest
    ink = above.sum(1)
    ink = ink / ink.sum((1, 2), keepdim=True).clamp(min=_NEGLIGIBLE)
    heights, breadths = (torch.linspace(-1, 1, size, dtype=images.dtype, device=images.device) for size in ink.shape[1:])
    middle = (ink.sum(2) * heights).sum(1)
    from_middle = heights - middle[:, None]
    sideways = breadths - (ink.sum(1) * breadths).sum(1)[:, None]
    lean = torch.einsum("nyx,ny,nx->n", ink, from_middle, sideways)
    tall = torch.einsum("nyx,ny->n", ink, from_middle.square())
    shear = (lean / tall.clamp(min=_NEGLIGIBLE)).clamp(-_STEEPEST, _STEEPEST)
    taken_from = torch.zeros(len(images), 2, 3, dtype=images.dtype, device=images.device)
    taken_from[:, 0, 0] = taken_from[:, 1, 1] = 1
    taken_from[:, 0, 1], taken_from[:, 0, 2] = shear, -shear * middle
    places = F.affine_grid(taken_from, list(images.shape), align_corners=True)
    return F.grid_sample(above, places, align_corners=True) + darkest
