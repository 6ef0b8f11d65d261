"""Fully connected networks for inputs of any shape."""

from __future__ import annotations

__all__ = ["linear", "logistic", "mlp", "regression_mlp", "zero_linear"]

import math
from collections import OrderedDict

from torch import nn

from privet.errors import count
from privet.models.layers import activation_layer


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with weights and bias zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def logistic(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return multinomial logistic regression: one linear layer, with a convex loss, whose weights start from zero.

    From random weights, training would first have to unlearn them under noise.

    Args:
        input_shape: shape of one input, which is flattened.
        classes: number of outputs.
    Source: the convex model of Yu et al. 2020, "Improve the gradient perturbation approach for differentially private
        optimization" (784×10 on MNIST).
    """
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=zero_linear(math.prod(input_shape), classes)))


def linear(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return linear regression: one linear layer, with a convex loss; arguments as for `regression_mlp`."""
    return logistic(input_shape, classes)


def mlp(input_shape: tuple[int, ...], classes: int, *, width: int = 256, activation: str = "tanh") -> nn.Sequential:
    """Return a network with two hidden layers.

    Args:
        input_shape: shape of one input, which is flattened.
        classes: number of outputs.
        width: number of units in each hidden layer, ≥ 1.
        activation: "tanh" or "relu".
    Source: with width 100, the network for covertype in Yu et al. 2020, "Improve the gradient perturbation approach for
        differentially private optimization".
    """
    width = count("width", width)
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden1=nn.Linear(math.prod(input_shape), width),
            activation1=activation_layer(activation),
            hidden2=nn.Linear(width, width),
            activation2=activation_layer(activation),
            output=nn.Linear(width, classes),
        )
    )


def regression_mlp(input_shape: tuple[int, ...], classes: int, *, activation: str = "relu") -> nn.Sequential:
    """Return a regression network with three hidden layers of 64, 64 and 32 units.

    Args:
        input_shape: shape of one input, which is flattened.
        classes: number of targets, such as 1.
        activation: "tanh" or "relu".
    Source: the four-layer network for Wine Quality and California Housing in App. C.4 of Bu et al., "On the convergence and
        calibration of deep learning with differential privacy".
    """
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden1=nn.Linear(math.prod(input_shape), 64),
            activation1=activation_layer(activation),
            hidden2=nn.Linear(64, 64),
            activation2=activation_layer(activation),
            hidden3=nn.Linear(64, 32),
            activation3=activation_layer(activation),
            output=nn.Linear(32, classes),
        )
    )
