"""Layers and operations that must be accepted and trained correctly."""

from __future__ import annotations

import torch
from harness import Task, trained_right, valid
from materials import CLASSES, WIDTH, Body, classify, model_of, perceptron, pictures, points, public, sentences
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.data import TensorDataset


def right(forward, data, *, tolerance=1e-3, **parts):
    """Return the verdict on a forward pass with an output layer of seven inputs, `out`, and other new modules."""
    make = lambda: model_of(forward, out=nn.Linear(7, CLASSES), **{name: part() for name, part in parts.items()})
    return trained_right(Task(make, classify, options=public(data)), data, remove=(0, 5), tolerance=tolerance)


def sequential(*layers):
    return lambda: nn.Sequential(*(layer() for layer in layers))


@valid(fast=True)
def two_linear_layers():
    """A minimal network."""
    return trained_right(Task(perceptron, classify), points(), remove=(0, 5))


@valid()
def spectral_norm_as_a_hook():
    """The old API."""

    def make():
        model = Body()
        nn.utils.spectral_norm(model.inner)
        return model

    return trained_right(Task(make, classify), points())


@valid()
def weight_norm_as_a_parametrisation():
    """Directions and lengths."""

    def make():
        model = Body()
        parametrizations.weight_norm(model.inner)
        return model

    return trained_right(Task(make, classify), points())


@valid()
def table_tied_to_the_head():
    """One parameter is both table and output layer."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.middle, self.head = nn.Embedding(13, 6), nn.Linear(6, 6), nn.Linear(6, 13, bias=False)
            self.head.weight = self.table.weight

        def forward(self, text):
            return self.head(self.middle(self.table(text)).tanh())

    def loss(model, batch):
        return F.cross_entropy(model(batch[0][:, :-1]).transpose(1, 2), batch[0][:, 1:], reduction="none").mean(1)

    return trained_right(Task(Tied, loss), sentences(), remove=(0, 5))


@valid()
def layer_used_three_times():
    """One module at several places."""

    def forward(self, x):
        h = self.first(x)
        for _ in range(3):
            h = self.again(h).tanh()
        return self.out(h)

    return right(forward, points(), first=lambda: nn.Linear(WIDTH, 7), again=lambda: nn.Linear(7, 7))


@valid()
def convolutions_and_norms():
    """Strides, groups, dilation, group norm and pooling."""
    make = sequential(
        lambda: nn.Conv2d(2, 4, 3, padding=1), lambda: nn.GroupNorm(2, 4), nn.ReLU,
        lambda: nn.Conv2d(4, 4, 3, groups=4, dilation=2, padding=2),
        lambda: nn.MaxPool2d(2), lambda: nn.Conv2d(4, 6, 2, stride=2), nn.Flatten, lambda: nn.LazyLinear(CLASSES),
    )  # fmt: skip
    task = Task(make, classify, before=lambda model: model(torch.zeros(1, 2, 6, 6)))
    return trained_right(task, pictures(), remove=(0, 5))


@valid()
def frames_through_one_convolution():
    """(B, T, C, H, W): time is folded into the batch for a convolution, then unfolded."""

    def forward(self, x):
        h = self.conv(x.flatten(0, 1)).relu().mean((2, 3))
        return self.out(h.view(*x.shape[:2], -1).sum(1))

    x = torch.randn(6, 4, 2, 5, 5)
    return right(forward, TensorDataset(x, torch.arange(6) % CLASSES), conv=lambda: nn.Conv2d(2, 7, 3))
