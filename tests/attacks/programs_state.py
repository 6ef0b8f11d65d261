"""Attacks by what a pass writes without noise: parameters, buffers, modes and modules, hooks, and the loss."""

from __future__ import annotations

import copy

import torch
from harness import Task, Verdict, attack, bounded, compared, train
from materials import CLASSES, WIDTH, Body, classify, perceptron, points, sentences, without
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

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
@attack("state")
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


# ---------------------------------------------------------------- buffers


@attack("state")
def largest_value_in_a_buffer():
    """A running maximum, as in quantisation observers, in training mode only."""

    def write(self, h):
        if self.training:
            self.buffer.copy_(torch.maximum(self.buffer, h.detach().abs().max()))

    return bounded(writing(write, buffer=torch.zeros(())), FAR)


@attack("state")
def buffer_replaced_by_assignment():
    """The buffer is replaced instead of written to."""

    def write(self, h):
        self.buffer = self.buffer + h.detach().sum(0)

    return bounded(writing(write, buffer=torch.zeros(7)), FAR)


@attack("state")
def memory_bank_in_a_buffer():
    """A queue of encodings with a pointer, as in momentum contrast."""

    def write(self, h):
        start = int(self.buffer_pointer)
        places = (torch.arange(len(h)) + start) % len(self.buffer_queue)
        self.buffer_queue[places] = h.detach()
        self.buffer_pointer.fill_(int(places[-1] + 1) % len(self.buffer_queue))

    return bounded(writing(write, buffer_queue=torch.zeros(32, 7), buffer_pointer=torch.zeros((), dtype=torch.long)), FAR)


def normalised(make_norm, data=None, *, wrap=None, steps=1, **options) -> Task:
    """Return the task of two layers with a norm between them."""

    def make():
        model = nn.Sequential(nn.Linear(WIDTH, 8), make_norm(), nn.Tanh(), nn.Linear(8, CLASSES))
        return model if wrap is None else wrap(model)

    return Task(make, classify, steps=steps, **options)


@attack("state")
def batch_norm_of_features():
    """BatchNorm1d with running statistics."""
    return bounded(normalised(lambda: nn.BatchNorm1d(8)), FAR)


@attack("state")
def batch_norm_written_by_hand():
    """Mean and variance of the batch in plain operations, with plain tensor attributes as statistics."""

    class Own(Body):
        def __init__(self):
            super().__init__()
            self.mean = torch.zeros(7)

        def forward(self, x):
            h = self.hidden(x)
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            return self.outer((h - h.mean(0)) / (h.var(0, correction=0) + 1e-3).sqrt())

    return bounded(Task(Own, classify), FAR)


@attack("state")
def instance_norm_with_statistics():
    """InstanceNorm2d normalises each image alone, but `track_running_stats` averages over the batch."""
    x = torch.randn(9, 2, 4, 4)
    x[0] *= 30
    make = lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(12, CLASSES)
    )
    return bounded(Task(make, classify), TensorDataset(x, torch.randint(CLASSES, (9,))))


@attack("state")
def mode_changes_between_steps():
    """The loop evaluates after the first step and goes back to train(); in train() a buffer is written."""

    class Moving(Body):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(7))

        def forward(self, x):
            h = self.hidden(x)
            if self.training:
                self.mean.lerp_(h.detach().mean(0), 0.3)
            return self.outer(h - self.mean)

    def take(training):
        for _ in training:
            training.model.train(not training.model.training)

    return bounded(Task(Moving, classify, steps=4, before=lambda model: model.eval(), take=take, public_change=True), FAR)


@attack("state")
def forward_replaced_between_steps():
    """After the first step, the instance's forward is replaced by one that couples examples."""

    def take(training):
        model = training.model
        for _ in training:
            model.forward = lambda x: model.outer(model.hidden(x) - model.hidden(x).mean(0))

    return bounded(Task(Body, classify, steps=2, take=take, public_change=True), FAR)


@attack("state")
def parameter_frozen_between_steps():
    """A trainable parameter is frozen after the first step: the release would differ from the plan."""

    def take(training):
        for _ in training:
            training.model.inner.weight.requires_grad_(False)

    return bounded(Task(Body, classify, steps=3, take=take, public_change=True), FAR)


# ---------------------------------------------------------------- hooks
@attack("state")
def forward_hook_that_keeps():
    """A forward hook stores the output of a layer on it."""

    def make():
        model = Body()
        model.inner.register_forward_hook(lambda module, inputs, output: setattr(module, "output", output.detach().sum(0)))
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def pre_hook_that_centres():
    """A hook before a layer subtracts the mean of the batch."""

    def make():
        model = Body()
        model.inner.register_forward_pre_hook(lambda module, inputs: (inputs[0] - inputs[0].mean(0),))
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def hook_after_accumulation():
    """`register_post_accumulate_grad_hook` takes a step with the raw `.grad`."""

    def make():
        model = Body()

        def step(parameter):
            parameter.data.sub_(parameter.grad)

        model.outer.weight.register_post_accumulate_grad_hook(step)
        return model

    return bounded(Task(make, classify, public_change=True), FAR)


@attack("state")
def backward_hook_that_mixes():
    """A full backward hook gives every row the mean gradient of the batch."""

    def make():
        model = Body()
        model.outer.register_full_backward_hook(lambda module, ins, outs: (ins[0].mean(0, keepdim=True).expand_as(ins[0]),))
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def loss_that_writes_to_the_model():
    """The loss stores statistics on the model."""

    def loss(model, batch):
        losses = classify(model, batch)
        model.total = getattr(model, "total", 0.0) + float(losses.detach().sum())
        return losses

    return bounded(Task(perceptron, loss), FAR)


def prepared(make_optimizer) -> Verdict:
    """Return the verdict on an optimizer that received the raw gradients of its data set before the first step.

    Args:
        make_optimizer: (parameters, their raw gradients) → optimizer.
    """

    def task(data):
        def optimizer(parameters):
            model = Body()
            with torch.no_grad():
                for own, given in zip(model.parameters(), parameters, strict=True):
                    own.copy_(given)
            loss = classify(model, data.tensors).sum()
            return make_optimizer(parameters, torch.autograd.grad(loss, list(model.parameters())))

        return Task(Body, classify, optimizer=optimizer)

    ends = [train(task(data), data) for data in (FAR, without(FAR, 0))]
    return compared(task(FAR), None, None, ends=ends)


@attack("state")
def momentum_from_raw_gradients():
    """SGD's momentum is set to the sum of raw gradients: the first step would apply it."""

    def make(parameters, gradients):
        optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=0.9)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            optimizer.state[parameter]["momentum_buffer"] = gradient.clone()
        return optimizer

    return prepared(make)
