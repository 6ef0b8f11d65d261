"""Augmentations: random, label-preserving changes to each image independently.

Each maps images (B, C, H, W) to as many images. They are public functions of an image and of torch's random numbers, which need
not be secret: gradients are averaged over an example's views before clipping, for any views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from privet.errors import InvalidArgumentError, choice

# Largest shift as a fraction of the side: 4 of 32 pixels is usual.
_REACH = 1 / 8


def flip(images: Tensor) -> Tensor:
    """Mirror each image left to right with probability 1/2."""
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


def shift(images: Tensor) -> Tensor:
    """Shift each image by up to an eighth of its sides, repeating edges: a random crop after padding."""
    for axis in (2, 3):
        side = images.shape[axis]
        reach = int(side * _REACH)
        by = torch.randint(-reach, reach + 1, (len(images), 1), device=images.device)
        seen = (torch.arange(side, device=images.device) + by).clamp(0, side - 1)
        images = torch.take_along_dim(images, seen.view(len(images), 1, *((side, 1) if axis == 2 else (1, side))), axis)
    return images


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {"flip": flip, "shift": shift}


def augmentation(*names: str) -> Callable[[Any], Any]:
    """Return an augmentation of batches (images, labels), for `averaged`: names of `AUGMENTATIONS`, applied in order.

    Source:
        De et al. 2022, "Unlocking High-Accuracy Differentially Private Image Classification through Scale", section 3.2: random
        crops after padding and random flips.

    >>> images, labels = augmentation("flip", "shift")((torch.rand(5, 3, 32, 32), torch.arange(5)))
    >>> images.shape, labels
    (torch.Size([5, 3, 32, 32]), tensor([0, 1, 2, 3, 4]))
    """
    chosen = [AUGMENTATIONS[choice("augment", name, AUGMENTATIONS)] for name in names]

    def augment(batch: Any) -> Any:
        images, *others = batch
        if images.dim() != 4:
            shape = tuple(images.shape[1:])
            raise InvalidArgumentError("augment", names, f"left out for inputs of shape {shape}", "It needs images (C, H, W).")
        for change in chosen:
            images = change(images)
        return (images, *others)

    return augment
