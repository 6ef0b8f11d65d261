"""Views of images: random changes that leave the label, made of every image by itself.

Each takes images (B, C, H, W) and returns as many. They are public functions of an image and of fresh random numbers of torch,
which need not be secret: an example's views are averaged before they are clipped, whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from privet.errors import InvalidArgumentError, choice

# Part of a side by which images are shifted at most: 4 of 32 pixels is usual.
_REACH = 1 / 8


def flip(images: Tensor) -> Tensor:
    """Return each image as it is or mirrored left to right, with equal chances."""
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


def shift(images: Tensor) -> Tensor:
    """Return each image moved by up to an eighth of its sides, edges repeated: a random crop of the image after padding."""
    for axis in (2, 3):
        side = images.shape[axis]
        reach = int(side * _REACH)
        by = torch.randint(-reach, reach + 1, (len(images), 1), device=images.device)
        seen = (torch.arange(side, device=images.device) + by).clamp(0, side - 1)
        images = torch.take_along_dim(images, seen.view(len(images), 1, *((side, 1) if axis == 2 else (1, side))), axis)
    return images


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {"flip": flip, "shift": shift}


def augmentation(*names: str) -> Callable[[Any], Any]:
    """Return an augmentation of batches (images, labels), for `averaged`.

    Args:
        names: of `AUGMENTATIONS`, one after another: "flip" (left to right) and "shift" (up to an eighth of each side).

    Raises:
        InvalidArgumentError: a name is not known, or the inputs of a batch are no images (B, C, H, W).

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
            raise InvalidArgumentError("augment", names, f"left out for inputs of shape {shape}", "It is for images (C, H, W).")
        for change in chosen:
            images = change(images)
        return (images, *others)

    return augment
