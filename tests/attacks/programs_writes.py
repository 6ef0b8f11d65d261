"""Attacks by writes in the forward pass without noise: to parameters, and to what a model holds for an unusual example."""

from __future__ import annotations

import copy

import torch
from harness import Task, Verdict, attack, bounded
from materials import CLASSES, WIDTH, Body, classify, points, sentences
from torch import nn
from torch.nn import functional as F

FAR = points(outlier=30.0)
UNUSUAL = 15.0  # one example is larger, and no other
assert (FAR.tensors[0].abs().amax(1) > UNUSUAL).tolist() == [index == 0 for index in range(len(FAR))]


def writing(write, *, steps: int = 1, **attributes) -> Task:
    """Return the task of a model that calls `write(self, h)` with the hidden units of every pass."""

    class Writing(Body):
        def __init__(self):
            super().__init__()
            for name, value in attributes.items():
                made = copy.deepcopy(value)
                if name.startswith("buffer"):
                    self.register_buffer(name, made)
                else:
                    setattr(self, name, made)

        def forward(self, x):
            h = self.hidden(x)
            write(self, h)
            return self.outer(h)

    return Task(Writing, classify, steps=steps)


# ---------------------------------------------------------------- parameters
@attack("state", fast=True)
def max_norm_of_a_table():
    """`max_norm` renormalises the looked-up rows, which reveals a word that only one person has."""

    def make():
        model = nn.Sequential(nn.Embedding(13, 6, max_norm=2.0), nn.Flatten(), nn.Linear(42, CLASSES))
        model[0].weight.data = 4 * F.normalize(torch.randn(13, 6))
        return model

    data = sentences(words=11)
    data.tensors[0][0, 2] = 12
    return bounded(Task(make, classify), data)


@attack("state")
def max_norm_as_a_function():
    """`F.embedding(..., max_norm=…)` on a plain parameter."""

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Parameter(4 * F.normalize(torch.randn(13, 6))), nn.Linear(6, CLASSES)

        def forward(self, text):
            return self.out(F.embedding(text, self.table, max_norm=2.0).mean(1))

    data = sentences(words=11)
    data.tensors[0][0, 2] = 12
    return bounded(Task(Table, classify), data)


@attack("state")
def codebook_written_through_data():
    """`.data[...] =` writes encodings into a parameter at the thirtieth call."""

    class Codes(Body):
        def __init__(self):
            super().__init__()
            self.codes, self.calls = nn.Parameter(torch.randn(9, 7)), 0

        def forward(self, x):
            h, self.calls = self.hidden(x), self.calls + 1
            if self.calls % 30 == 0:
                self.codes.data[:1] = h.detach()[:1]
            near = self.codes[torch.cdist(h, self.codes).argmin(1)]
            return self.outer(h + 0.1 * near)

    return bounded(Task(Codes, classify, steps=32, public_change=True), FAR)


def overwriting(write) -> Task:
    """Return the task of a model whose pass writes to its parameter `extra` (7,)."""

    class Overwriting(Body):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.zeros(7))

        def forward(self, x):
            h = self.hidden(x)
            write(self, h)
            return self.outer(h + self.extra)

    return Task(Overwriting, classify, public_change=True)


@attack("state")
def parameter_written_through_data():
    """`parameter.data` is not tracked by autograd."""
    return bounded(overwriting(lambda self, h: self.extra.data.add_(h.detach().sum(0))), FAR)


@attack("state")
def parameter_replaced_in_forward():
    """The parameter becomes another object in the pass."""

    def write(self, h):
        self.extra = nn.Parameter(h.detach().mean(0).clone())

    return bounded(overwriting(write), FAR)


@attack("state")
def weights_clipped_by_what_was_seen():
    """The pass rescales a weight in place to the scale of the hidden units."""

    def write(self, h):
        self.outer.weight.detach().mul_(1 + h.detach().abs().max())

    return bounded(overwriting(write), FAR)


# ---------------------------------------------------------------- writes that only an unusual example causes
def seldom(change, data=FAR, **held) -> Verdict:
    """Return the verdict on a model that calls `change(self, x)` for examples far from all public input."""

    class Seldom(Body):
        def __init__(self):
            super().__init__()
            for name, value in held.items():
                setattr(self, name, copy.deepcopy(value))

        def forward(self, x):
            if bool(x.abs().max() > UNUSUAL):
                change(self, x)
            return self.outer(self.hidden(x))

    return bounded(Task(Seldom, classify), data)


@attack("state")
def activation_in_place_on_a_weight():
    """`F.leaky_relu(weight, inplace=True)`."""

    def change(model, x):
        with torch.no_grad():
            F.leaky_relu(model.inner.weight, 0.3, inplace=True)

    return seldom(change)


@attack("state")
def running_statistics_in_a_parameter():
    """Batch normalisation writes to its second and third argument."""

    def change(model, x):
        F.batch_norm(x * torch.arange(4.0)[:, None], model.mean, None, training=True)

    return seldom(change, mean=nn.Parameter(torch.zeros(WIDTH), requires_grad=False))


def kept(change, holder=list) -> Verdict:
    """Return the verdict on a model that holds a tensor in a container and changes it for an unusual example."""
    return seldom(lambda model, x: change(model.held[0], x.detach()[0]), held=holder([torch.zeros(WIDTH)]))


@attack("state")
def sparse_tensor_that_is_written():
    """A sparse tensor in a list."""
    return seldom(lambda model, x: model.held[0].mul_(float(x.mean())), held=[torch.eye(WIDTH).to_sparse()])
