"""Convolutional networks of papers, for images (channels, height, width) and their scattering coefficients."""

from __future__ import annotations

__all__ = ["RELU_CNN", "SCATTERING_CNN", "STRIDED_CNN"]

import math
from collections import OrderedDict

from torch import nn

from privet.errors import count
from privet.models.dense import count_windows
from privet.models.networks import Network


def strided_cnn(input_shape: tuple[int, ...], classes: int, *, width: int = 16) -> nn.Sequential:
    """Return four convolutional layers with tanh, two of them with stride 2, and one fully connected layer.

    It has 19,514 parameters for (1, 28, 28) and 10 classes. The early stride makes its clipped sum four times as fast as that of
    `tanh_cnn` of the same width (batches of 512, one core).

    Args:
        input_shape: (channels, height, width), height and width at least 5.
        width: channels of the first pair; the second has twice as many.
    Source: the layers of Table III of Huang et al., "Enhancing DP-SGD through non-monotonous adaptive scaling gradient
        weight"; other choices are ours.
    """
    channels, *sides = input_shape
    few, many = count("width", width), 2 * width
    rows, columns = (
        count_windows(count_windows(side, size=5, stride=2, padding=2), size=3, stride=2, padding=1) // 2 for side in sides
    )
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, few, kernel_size=5, stride=2, padding=2),
            activation1=nn.Tanh(),
            conv2=nn.Conv2d(few, few, kernel_size=3, padding=1),
            activation2=nn.Tanh(),
            conv3=nn.Conv2d(few, many, kernel_size=3, stride=2, padding=1),
            activation3=nn.Tanh(),
            conv4=nn.Conv2d(many, many, kernel_size=3, padding=1),
            activation4=nn.Tanh(),
            pool=nn.AvgPool2d(2),
            flatten=nn.Flatten(),
            output=nn.Linear(many * rows * columns, classes),
        )
    )


def relu_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return the classic MNIST network: 5×5 convolutions with 10 and 20 channels, each with pooling, and 50 hidden units.

    It has 21,840 parameters for (1, 28, 28) and 10 classes; height and width must be at least 16.

    Source: the non-convex model in Yu et al. 2020, "Improve the gradient perturbation approach for differentially private
        optimization"; pooling and the input of the 50 hidden units as in PyTorch's MNIST example.
    """
    channels, *sides = input_shape
    rows, columns = (count_windows(count_windows(side, size=5) // 2, size=5) // 2 for side in sides)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 10, kernel_size=5),
            pool1=nn.MaxPool2d(2),
            activation1=nn.ReLU(),
            conv2=nn.Conv2d(10, 20, kernel_size=5),
            pool2=nn.MaxPool2d(2),
            activation2=nn.ReLU(),
            flatten=nn.Flatten(),
            hidden=nn.Linear(20 * rows * columns, 50),
            activation3=nn.ReLU(),
            output=nn.Linear(50, classes),
        )
    )


def scattering_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return a small network for scattering coefficients: group normalisation, two convolutional and two linear layers.

    It has 33,066 parameters for the (81, 7, 7) coefficients of a 28×28 greyscale image and 10 classes.

    Source: Tramèr, Boneh 2021, "Differentially private learning needs better features (or much more data)", the network for
        ScatterNet features of MNIST and Fashion-MNIST; H-CNN/S (33K) in Table 2 of "Improving differentially private SGD via
        randomly sparsified gradients".
    """
    channels, *sides = input_shape
    rows, columns = (count_windows(side, size=3, stride=2, padding=1) for side in sides)
    return nn.Sequential(
        OrderedDict(
            normalisation=nn.GroupNorm(math.gcd(27, channels), channels, affine=False),
            conv1=nn.Conv2d(channels, 16, kernel_size=3, stride=2, padding=1),
            activation1=nn.Tanh(),
            conv2=nn.Conv2d(16, 32, kernel_size=3, padding=1),
            activation2=nn.Tanh(),
            flatten=nn.Flatten(),
            hidden=nn.Linear(32 * rows * columns, 32),
            activation3=nn.Tanh(),
            output=nn.Linear(32, classes),
        )
    )


# Entry points `privet.networks`.
STRIDED_CNN = Network(strided_cnn, smallest_side=5)
RELU_CNN = Network(relu_cnn, smallest_side=16)
SCATTERING_CNN = Network(scattering_cnn, smallest_side=2)
