"""Attacks by writes in the forward pass without noise: to parameters, and to what a model holds for an unusual example."""

from __future__ import annotations

import copy
import threading

import numpy as np
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
def max_norm_of_a_bag():
    """The same in an EmbeddingBag."""

    def make():
        model = nn.Sequential(nn.EmbeddingBag(13, 6, max_norm=2.0, mode="sum"), nn.Linear(6, CLASSES))
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
def parameter_written_through_detach():
    """`detach()` shares memory."""
    return bounded(overwriting(lambda self, h: self.extra.detach().add_(h.detach().mean(0))), FAR)


@attack("state")
def parameter_written_under_no_grad():
    """`copy_` under `no_grad`."""

    def write(self, h):
        with torch.no_grad():
            self.extra.copy_(h.mean(0))

    return bounded(overwriting(write), FAR)


@attack("state")
def parameter_initialised_from_data():
    """Data-dependent initialisation, as in actnorm, by `nn.init` in the first pass."""

    def write(self, h):
        if not getattr(self, "ready", False):
            nn.init.constant_(self.extra, float(h.detach().mean()))
            self.ready = True

    return bounded(overwriting(write), FAR)


@attack("state")
def parameter_set_by_storage():
    """`set_` gives the parameter other memory."""
    return bounded(overwriting(lambda self, h: self.extra.data.set_(h.detach().mean(0).clone())), FAR)


@attack("state")
def parameter_replaced_in_forward():
    """The parameter becomes another object in the pass."""

    def write(self, h):
        self.extra = nn.Parameter(h.detach().mean(0).clone())

    return bounded(overwriting(write), FAR)


@attack("state")
def parameter_written_through_numpy():
    """NumPy shares the parameter's memory."""

    def write(self, h):
        self.extra.detach().numpy()[:] += h.detach().mean(0).tolist()

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


@attack("state", fast=True)
def layer_reset_for_an_outlier():
    """`reset_parameters()`, whose initialisers pass their arguments on by name."""
    return seldom(lambda model, x: model.inner.reset_parameters())


@attack("state")
def weights_set_to_the_mean_of_an_outlier():
    """`nn.init.constant_` with a number of the example."""
    return seldom(lambda model, x: nn.init.constant_(model.inner.bias, float(x.mean())))


@attack("state")
def activation_in_place_on_a_weight():
    """`F.leaky_relu(weight, inplace=True)`."""

    def change(model, x):
        with torch.no_grad():
            F.leaky_relu(model.inner.weight, 0.3, inplace=True)

    return seldom(change)


@attack("state")
def dropout_in_place_on_a_weight():
    """Dropout has a rule of its own, which writes."""
    return seldom(lambda model, x: F.dropout(model.inner.weight.data, 0.5, True, True))


@attack("state")
def operator_on_a_weight():
    """An overload of an operator, whose name does not tell that it writes."""
    return seldom(lambda model, x: torch.ops.aten.add_.Tensor(model.inner.weight.data, x.mean()))


@attack("state")
def running_statistics_in_a_parameter():
    """Batch normalisation writes to its second and third argument."""

    def change(model, x):
        F.batch_norm(x * torch.arange(4.0)[:, None], model.mean, None, training=True)

    return seldom(change, mean=nn.Parameter(torch.zeros(WIDTH), requires_grad=False))


def kept(change, holder=list) -> Verdict:
    """Return the verdict on a model that holds a tensor in a container and changes it for an unusual example."""
    return seldom(lambda model, x: change(model.held[0], x.detach()[0]), held=holder([torch.zeros(WIDTH)]))


@attack("state", fast=True)
def tensor_written_through_its_array():
    """Arrays write without a new version of the tensor."""
    return kept(lambda held, x: held.numpy().__iadd__(x.numpy()))


@attack("state")
def tensor_given_the_memory_of_an_example():
    """`.data =` changes neither binding nor version."""

    def change(held, x):
        held.data = x.clone()

    return kept(change)


@attack("state")
def tensor_that_grows():
    """`resize_` changes the shape."""
    return kept(lambda held, x: held.resize_(9).fill_(float(x.mean())))


@attack("state")
def array_that_grows():
    """So does `resize` of an array."""

    def change(model, x):
        model.held[0].resize(9, refcheck=False)
        model.held[0][:] = float(x.mean())

    return seldom(change, held=[np.zeros(WIDTH)])


@attack("state")
def tensor_with_a_gradient_that_is_written():
    """A tensor of a list that requires a gradient, as a parameter that was never registered."""

    def change(model, x):
        with torch.no_grad():
            model.held[0] += x[0]

    return seldom(change, held=[nn.Parameter(torch.zeros(WIDTH))])


@attack("state")
def sparse_tensor_that_is_written():
    """A sparse tensor in a list."""
    return seldom(lambda model, x: model.held[0].mul_(float(x.mean())), held=[torch.eye(WIDTH).to_sparse()])


@attack("state", fast=True)
def parameter_written_in_a_thread():
    """Torch's calls in another thread are not intercepted."""

    def change(model, x):
        def write():
            with torch.no_grad():
                model.inner.weight.add_(3.0)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    return seldom(change)


@attack("state", fast=True)
def parameter_swapped_for_an_outlier():
    """`swap_tensors` gives a parameter the contents of another tensor and keeps its identity."""
    return seldom(
        lambda model, x: torch.utils.swap_tensors(model.inner.weight, nn.Parameter(torch.ones_like(model.inner.weight)))
    )
