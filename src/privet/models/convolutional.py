"""Convolutional networks for images (channels, height, width)."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from privet.errors import count
from privet.models.dense import activation_layer, count_windows, pooling_layer

CNN_SMALLEST_SIDE = 14
TANH_CNN_SMALLEST_SIDE = 8
EDGES_SMALLEST_SIDE = 11
_ANGLES = 8
_SIZE, _SIGMA, _STRIDE = 5, 1.0, 2
_POOL_SIZE, _POOL_STRIDE, _POOL_PADDING = 4, 2, 1


def cnn(input_shape: tuple[int, ...], classes: int, *, activation: str = "tanh") -> nn.Sequential:
    """Return the standard small network for MNIST: two convolutional and two fully connected layers.

    It has 26,010 parameters for (1, 28, 28) and 10 classes. Sides are at least 14; the activation is "tanh" or "relu".

    Source: Papernot et al. 2021, "Tempered sigmoid activations for deep learning with differential privacy"; DP-CNN/S (26K) in
        Table 2 of "Improving differentially private SGD via randomly sparsified gradients"; with "relu", the tutorial network in
        §5 of Bu et al., "On the convergence and calibration of deep learning with differential privacy".
    """
    channels, *sides = input_shape
    height, width = (_cnn_side(side) for side in sides)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 16, kernel_size=8, stride=2, padding=3),
            activation1=activation_layer(activation),
            pool1=nn.MaxPool2d(kernel_size=2, stride=1),
            conv2=nn.Conv2d(16, 32, kernel_size=4, stride=2),
            activation2=activation_layer(activation),
            pool2=nn.MaxPool2d(kernel_size=2, stride=1),
            flatten=nn.Flatten(),
            hidden=nn.Linear(32 * height * width, 32),
            activation3=activation_layer(activation),
            output=nn.Linear(32, classes),
        )
    )


def tanh_cnn(input_shape: tuple[int, ...], classes: int, *, pooling: str = "average", width: int = 32) -> nn.Sequential:
    """Return a stronger network: four convolutional layers with tanh and one fully connected layer.

    It has 70,762 parameters for (1, 28, 28) and 10 classes, and 19,258 with half the width. Sides are at least 8. Pooling is
    "average" or "max", over 2×2 after the first pair of convolutions and 4×4 after the second, which has twice the channels.

    Source: the layers of Table III of Huang et al., "Enhancing DP-SGD through non-monotonous adaptive scaling gradient weight";
        widths, tanh and pooling from Papernot et al. 2021's network for CIFAR-10. The wider second pooling keeps the fully
        connected layer, and with it the noise, small.
    """
    channels, *sides = input_shape
    few, many = count("width", width), 2 * width
    rows, columns = (side // 2 // 4 for side in sides)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, few, kernel_size=3, padding=1),
            activation1=nn.Tanh(),
            conv2=nn.Conv2d(few, few, kernel_size=3, padding=1),
            activation2=nn.Tanh(),
            pool1=pooling_layer(pooling, 2),
            conv3=nn.Conv2d(few, many, kernel_size=3, padding=1),
            activation3=nn.Tanh(),
            conv4=nn.Conv2d(many, many, kernel_size=3, padding=1),
            activation4=nn.Tanh(),
            pool2=pooling_layer(pooling, 4),
            flatten=nn.Flatten(),
            output=nn.Linear(many * rows * columns, classes),
        )
    )


def _cnn_side(side: int) -> int:
    first = count_windows(count_windows(side, size=8, stride=2, padding=3), size=2)
    return count_windows(count_windows(first, size=4, stride=2), size=2)


def edge_cnn(input_shape: tuple[int, ...], classes: int, *, width: int = 32) -> nn.Sequential:
    """Return a network that sees edges: fixed filters, normalisation, one convolutional layer with tanh and one linear layer.

    It trains 12,650 parameters for (1, 28, 28) and 10 classes; sides are at least 11. A step costs less than half of one of
    `cnn`, as nothing is differentiated before the convolution, and it is more accurate at the same ε (docs/results/defaults.md).

    Source: pooled oriented edges as in Dalal, Triggs 2005, "Histograms of oriented gradients for human detection"; that fixed
        features help private training, Tramèr, Boneh 2021, "Differentially private learning needs better features (or much more
        data)". The sizes are ours.
    """
    channels, *sides = input_shape
    rows, columns = (count_windows(OrientedEdges.count_positions(side), size=3) for side in sides)
    wide = count("width", width)
    return nn.Sequential(
        OrderedDict(
            edges=OrientedEdges(channels),
            normalisation=nn.GroupNorm(1, channels * 2 * _ANGLES, affine=False),
            conv=nn.Conv2d(channels * 2 * _ANGLES, wide, kernel_size=3),
            activation=nn.Tanh(),
            flatten=nn.Flatten(),
            output=nn.Linear(wide * rows * columns, classes),
        )
    )


class OrientedEdges(nn.Module):
    """Maps images to the strength of their edges in 16 directions, averaged over windows of about 8×8 pixels, 4 apart.

    (B, c, height, width) becomes (B, 16·c, height/4, width/4).
    """

    filters: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("filters", _gaussian_derivatives().repeat(channels, 1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Return (B, 16·c, height/4, width/4) strengths, at least 0."""
        slopes = functional.conv2d(images, self.filters, stride=_STRIDE, padding=_SIZE // 2, groups=images.shape[-3])
        # A dark edge left of a bright one and the reverse are two directions.
        return functional.avg_pool2d(torch.cat((slopes, -slopes), dim=-3).relu(), _POOL_SIZE, _POOL_STRIDE, _POOL_PADDING)

    @staticmethod
    def count_positions(side: int) -> int:
        """Return the number of windows along a side of the image."""
        filtered = count_windows(side, size=_SIZE, stride=_STRIDE, padding=_SIZE // 2)
        return count_windows(filtered, size=_POOL_SIZE, stride=_POOL_STRIDE, padding=_POOL_PADDING)


def _gaussian_derivatives() -> Tensor:
    """Return (angles, 1, size, size): first derivatives of a Gaussian in directions that divide the half circle evenly."""
    along = torch.arange(_SIZE) - (_SIZE - 1) / 2
    y, x = torch.meshgrid(along, along, indexing="ij")
    weight = torch.exp(-(x.square() + y.square()) / (2 * _SIGMA**2))
    angles = torch.arange(_ANGLES) * math.pi / _ANGLES
    slopes = (x * angles.cos()[:, None, None] + y * angles.sin()[:, None, None]) * weight
    return (slopes / slopes.abs().sum(dim=(1, 2), keepdim=True))[:, None]
