"""Convolutional networks for images (channels, height, width)."""

from __future__ import annotations

__all__ = [
    "CNN_SMALLEST_SIDE",
    "RELU_CNN_SMALLEST_SIDE",
    "SCATTERING_CNN_SMALLEST_SIDE",
    "STRIDED_CNN_SMALLEST_SIDE",
    "TANH_CNN_SMALLEST_SIDE",
    "cnn",
    "relu_cnn",
    "scattering_cnn",
    "strided_cnn",
    "tanh_cnn",
]

import math
from collections import OrderedDict

from torch import nn

from privet.errors import count
from privet.models.layers import activation_layer, count_windows, pooling_layer

CNN_SMALLEST_SIDE = 14
TANH_CNN_SMALLEST_SIDE = 8
STRIDED_CNN_SMALLEST_SIDE = 5
RELU_CNN_SMALLEST_SIDE = 16
SCATTERING_CNN_SMALLEST_SIDE = 2


def cnn(input_shape: tuple[int, ...], classes: int, *, activation: str = "tanh") -> nn.Sequential:
    """Return the standard small network for MNIST: two convolutional and two fully connected layers.

    It has 26,010 parameters for (1, 28, 28) and 10 classes.

    Args:
        input_shape: (channels, height, width), height and width at least 14.
        classes: number of outputs.
        activation: "tanh" or "relu".
    Source: Papernot et al. 2021, "Tempered sigmoid activations for deep learning with differential privacy", network
        for MNIST and Fashion-MNIST; DP-CNN/S (26K) in Table 2 of "Improving differentially private SGD via randomly
        sparsified gradients"; with "relu", the MNIST tutorial of DP libraries used in §5 of Bu et al., "On the
        convergence and calibration of deep learning with differential privacy".
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

    It has 70,762 parameters for (1, 28, 28) and 10 classes, and 19,258 with half the width.

    Args:
        input_shape: (channels, height, width), height and width at least 8.
        classes: number of outputs.
        pooling: "average" or "max", over 2×2 after the first pair of convolutions and 4×4 after the second.
        width: channels of the first pair; the second has twice as many.
    Source: four convolutions and one fully connected layer as in the experiments (Table III) of Huang et al.,
        "Enhancing DP-SGD through non-monotonous adaptive scaling gradient weight"; widths, tanh and pooling after each
        pair from the first two blocks of Papernot et al. 2021's network for CIFAR-10, the DP-CNN (550K) in Table 2 of
        "Improving differentially private SGD via randomly sparsified gradients". The wider second pooling keeps the
        fully connected layer, and with it the noise, small.
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


def strided_cnn(input_shape: tuple[int, ...], classes: int, *, width: int = 16) -> nn.Sequential:
    """Return four convolutional layers with tanh, two of them with stride 2, and one fully connected layer.

    It has 19,514 parameters for (1, 28, 28) and 10 classes. The early stride makes its clipped sum four times as fast as that of
    `tanh_cnn` of the same width (batches of 512, one core).

    Args:
        input_shape: (channels, height, width), height and width at least 5.
        classes: number of outputs.
        width: channels of the first pair; the second has twice as many.
    Source: four convolutions and one fully connected layer as in the experiments (Table III) of Huang et al., "Enhancing DP-SGD
        through non-monotonous adaptive scaling gradient weight"; all other choices are ours.
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

    It has 21,840 parameters for (1, 28, 28) and 10 classes.

    Args:
        input_shape: (channels, height, width), height and width at least 16.
        classes: number of outputs.
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

    Args:
        input_shape: (channels, height, width), height and width at least 2.
        classes: number of outputs.
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


def _cnn_side(side: int) -> int:
    first = count_windows(count_windows(side, size=8, stride=2, padding=3), size=2)
    return count_windows(count_windows(first, size=4, stride=2), size=2)
