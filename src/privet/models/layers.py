"""Layers that the networks share, and the arithmetic of sliding windows."""

from __future__ import annotations

__all__ = ["activation_layer", "count_windows", "pooling_layer"]

from torch import nn

from privet.errors import choice

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
