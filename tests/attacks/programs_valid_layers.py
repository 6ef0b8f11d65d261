"""Layers and operations that must be accepted and trained correctly."""

from __future__ import annotations

import torch
from harness import Task, trained_right, valid
from materials import CLASSES, WIDTH, Body, classify, model_of, perceptron, pictures, points, public, sentences, series
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
def spectral_norm_as_a_parametrisation():
    """In training mode its vectors change in every pass, depending on the weights only."""

    def make():
        model = Body()
        parametrizations.spectral_norm(model.inner)
        return model

    return trained_right(Task(make, classify), points())


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
def weight_norm_as_a_hook():
    """The old API, which sets the weight before every pass."""

    def make():
        model = Body()
        nn.utils.weight_norm(model.inner)
        return model

    return trained_right(Task(make, classify), points())


@valid()
def orthogonal_weights():
    """A parametrisation by a matrix exponential."""

    def make():
        model = Body(WIDTH, 7)
        parametrizations.orthogonal(model.inner, orthogonal_map="matrix_exp")
        return model

    return trained_right(Task(make, classify), points())


@valid()
def lazily_made_layers():
    """Shapes come from the first batch, which for the plain loop is the first example."""
    make = sequential(lambda: nn.LazyLinear(7), nn.Tanh, lambda: nn.LazyLinear(CLASSES))

    def before(model):
        model(torch.zeros(1, WIDTH))

    return trained_right(Task(make, classify, before=before), points())


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
def einsum_and_matrix_products():
    """Weights are used by `einsum`, `@`, `matmul` and `baddbmm`."""

    def forward(self, x, lengths):
        h = torch.einsum("btd,dk->btk", x, self.first) @ self.second
        h = torch.baddbmm(h, h, self.second.expand(len(x), 7, 7))
        return self.out(torch.matmul(h, self.second.t()).tanh().mean(1))

    return right(
        forward, series(), first=lambda: nn.Parameter(torch.randn(WIDTH, 7)), second=lambda: nn.Parameter(torch.randn(7, 7) / 4)
    )


@valid()
def bilinear_layers():
    """`nn.Bilinear` and `F.bilinear`."""

    def forward(self, x):
        return self.out((self.pair(x, x.flip(1)) + F.bilinear(x, x, self.weight)).tanh())

    return right(
        forward,
        points(),
        pair=lambda: nn.Bilinear(WIDTH, WIDTH, 7),
        weight=lambda: nn.Parameter(torch.randn(7, WIDTH, WIDTH) / 5),
    )


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
def convolutions_that_enlarge():
    """ConvTranspose2d, Conv1d and Conv3d."""

    def forward(self, x):
        h = self.up(x).relu()
        h = self.along(h.flatten(2)).relu().unflatten(2, (8, 8))
        return self.out(F.pad(self.deep(h[:, None]).flatten(1).unfold(1, 7, 7).mean(1), (0, 0)))

    return right(
        forward, pictures(), up=lambda: nn.ConvTranspose2d(2, 3, 3), along=lambda: nn.Conv1d(3, 3, 3, padding=1),
        deep=lambda: nn.Conv3d(1, 2, 2),
    )  # fmt: skip


@valid()
def norms_of_each_example():
    """LayerNorm, RMSNorm, InstanceNorm and LocalResponseNorm."""

    def forward(self, x):
        h = self.response(self.instance(self.first(x))).flatten(1).unfold(1, 7, 7)
        return self.out(self.root(self.layer(h)).mean(1))

    return right(
        forward, pictures(), first=lambda: nn.Conv2d(2, 4, 3), instance=lambda: nn.InstanceNorm2d(4, affine=True),
        response=lambda: nn.LocalResponseNorm(2), layer=lambda: nn.LayerNorm(7), root=lambda: nn.RMSNorm(7),
    )  # fmt: skip


@valid()
def frames_through_one_convolution():
    """(B, T, C, H, W): time is folded into the batch for a convolution, then unfolded."""

    def forward(self, x):
        h = self.conv(x.flatten(0, 1)).relu().mean((2, 3))
        return self.out(h.view(*x.shape[:2], -1).sum(1))

    x = torch.randn(6, 4, 2, 5, 5)
    return right(forward, TensorDataset(x, torch.arange(6) % CLASSES), conv=lambda: nn.Conv2d(2, 7, 3))


@valid()
def channels_last():
    """Model and images in the channels-last memory format."""

    def make():
        model = nn.Sequential(
            nn.Conv2d(2, 7, 3), nn.ReLU(), nn.Conv2d(7, 7, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(7, CLASSES)
        )
        return model.to(memory_format=torch.channels_last)

    data = pictures()
    data = TensorDataset(data.tensors[0].contiguous(memory_format=torch.channels_last), data.tensors[1])
    loss = lambda model, batch: classify(model, (batch[0].contiguous(memory_format=torch.channels_last), batch[1]))
    return trained_right(Task(make, loss), data, remove=(0, 5))


@valid()
def activations_with_parameters():
    """PReLU and a gate of parameters alone."""

    def forward(self, x):
        return self.out(self.curve(self.first(x)) * (self.gate * 2).sigmoid())

    return right(
        forward, points(), first=lambda: nn.Linear(WIDTH, 7), curve=lambda: nn.PReLU(7), gate=lambda: nn.Parameter(torch.randn(7))
    )
