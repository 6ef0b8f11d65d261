"""Convolutional networks for images (channels, height, width)."""

from __future__ import annotations

__all__ = ["CNN_SMALLEST_SIDE", "TANH_CNN_SMALLEST_SIDE", "cnn", "tanh_cnn"]

from collections import OrderedDict

from torch import nn

from privet.errors import count
from privet.models.layers import activation_layer, count_windows, pooling_layer

CNN_SMALLEST_SIDE = 14
TANH_CNN_SMALLEST_SIDE = 8


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


def _cnn_side(side: int) -> int:
    first = count_windows(count_windows(side, size=8, stride=2, padding=3), size=2)
    return count_windows(count_windows(first, size=4, stride=2), size=2)
