"""ResNet-18 for images of 32×32 pixels, with group normalisation in place of batch normalisation: 11.2 million parameters."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

WIDTHS = (64, 64, 128, 256, 512)
GROUPS = 32


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A padded convolution with group normalisation."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(layer, nn.GroupNorm(GROUPS, outputs))


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.shortcut(x) + self.second(F.relu(self.first(x))))


def resnet18(classes: int = 10, widths: tuple[int, ...] = WIDTHS) -> nn.Module:
    """Return a stem of 3×3, four stages of two blocks, and a linear layer on the mean over the positions.

    Widths are those of the stem and of the stages, multiples of `GROUPS`.
    """
    stages: list[nn.Module] = []
    for stage, (inputs, outputs) in enumerate(pairwise(widths)):
        stages += [Block(inputs, outputs, stride=2 if stage else 1), Block(outputs, outputs, stride=1)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    return nn.Sequential(convolution(3, widths[0], 3), nn.ReLU(), *stages, *head)
