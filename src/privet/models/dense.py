"""Fully connected networks for inputs of any shape."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError, choice, count, positive, real

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
_POOLINGS: dict[str, type[nn.AvgPool2d] | type[nn.MaxPool2d]] = {"average": nn.AvgPool2d, "max": nn.MaxPool2d}


def activation_layer(activation: str) -> nn.Module:
    """Return a new layer for "tanh" or "relu". Bounded ones keep gradients small, so that clipping distorts them less."""
    return _ACTIVATIONS[choice("activation", activation, _ACTIVATIONS)]()


def pooling_layer(pooling: str, size: int) -> nn.Module:
    """Return a new layer for "average" or "max" pooling over disjoint windows of `size`×`size`."""
    return _POOLINGS[choice("pooling", pooling, _POOLINGS)](size)


def count_windows(side: int, size: int, stride: int = 1, padding: int = 0) -> int:
    """Return the number of windows of `size` pixels in `side` pixels with padding on both ends."""
    return (side + 2 * padding - size) // stride + 1


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with weights and bias zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def logistic(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return multinomial logistic regression, or linear regression with one output: one linear layer, with a convex loss.

    Its weights start from zero: random ones would have to be unlearned under noise.

    Source: the convex model of Yu et al. 2020, "Improve the gradient perturbation approach for differentially private
        optimization" (784×10 on MNIST).
    """
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=zero_linear(math.prod(input_shape), classes)))


def mlp(input_shape: tuple[int, ...], classes: int, *, width: int = 256, activation: str = "tanh") -> nn.Sequential:
    """Return a network with two hidden layers; the activation is "tanh" or "relu".

    Source: with width 100, the network for covertype in Yu et al. 2020, "Improve the gradient perturbation approach for
        differentially private optimization".
    """
    return _hidden_layers(input_shape, [count("width", width)] * 2, classes, activation)


class BoundedLinear(nn.Module):
    """A linear model of rows (x, c)/R, scaled down to a norm of 1 where they are longer; the model of `privet.convex`."""

    def __init__(self, features: int, outputs: int, radius: float, intercept: float) -> None:
        super().__init__()
        self.radius, self.intercept = radius, intercept
        self.output = nn.Linear(features + 1, outputs, bias=False)
        nn.init.zeros_(self.output.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, outputs) of inputs (B, …)."""
        features = inputs.flatten(1)
        rows = torch.cat((features, torch.full_like(features[:, :1], self.intercept)), dim=1) / self.radius
        outputs: Tensor = self.output(rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0))
        return outputs


def bounded_linear(input_shape: tuple[int, ...], classes: int, *, radius: float = 1.0, intercept: float = 1.0) -> BoundedLinear:
    """Return a linear model of rows (x, c) with norms of at most R = `radius` > 0, with c = `intercept` ≥ 0."""
    if real("intercept", intercept) < 0:
        raise InvalidArgumentError("intercept", intercept, "at least 0", "0 leaves the intercept out.")
    return BoundedLinear(math.prod(input_shape), classes, positive("radius", radius), intercept)


def regression_mlp(input_shape: tuple[int, ...], classes: int, *, activation: str = "relu") -> nn.Sequential:
    """Return a regression network with three hidden layers of 64, 64 and 32 units; the activation is "tanh" or "relu".

    Source: the network for Wine Quality and California Housing in App. C.4 of Bu et al., "On the convergence and calibration of
        deep learning with differential privacy".
    """
    return _hidden_layers(input_shape, [64, 64, 32], classes, activation)


def _hidden_layers(input_shape: tuple[int, ...], widths: list[int], classes: int, activation: str) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for number, (inputs, outputs) in enumerate(pairwise([math.prod(input_shape), *widths]), start=1):
        layers[f"hidden{number}"] = nn.Linear(inputs, outputs)
        layers[f"activation{number}"] = activation_layer(activation)
    layers["output"] = nn.Linear(widths[-1], classes)
    return nn.Sequential(layers)
