"""Images of strokes made upright: each sheared by itself, so that slanted handwriting looks like any other."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_STEEPEST = 1.0  # shear, in widths by height
_NEGLIGIBLE = 1e-6


def upright(images: Tensor) -> Tensor:
    """Return images whose ink does not lean to either side.

    Ink is whatever exceeds an image's darkest value. Rows are shifted against each other about the ink's centre, by as much as
    takes the covariance of its height and breadth to zero.

    Args:
        images: (N, C, H, W).

    Returns:
        (N, C, H, W); what was outside has the darkest value.

    Guarantee:
        Each is a function of one image alone.

    Source:
        Deskewing, as in LeCun, Bottou, Bengio, Haffner 1998, "Gradient-based learning applied to document recognition", §III.

    >>> bar = torch.zeros(1, 1, 9, 9)
    >>> bar[0, 0, range(2, 7), range(2, 7)] = 1.0
    >>> int((upright(bar)[0, 0].sum(0) > 0.9).sum())  # columns with ink
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
