"""Attacks by changes of buffers, modes and modules: statistics of private data without noise."""

from __future__ import annotations

import copy

import torch
from harness import Task, attack, bounded
from materials import CLASSES, WIDTH, Body, classify, points
from torch import nn
from torch.utils.data import TensorDataset

FAR = points(outlier=9.0)


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


# ---------------------------------------------------------------- buffers


class Average(nn.Module):
    """Keeps an average of what it is given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(7))

    def forward(self, h):
        with torch.no_grad():
            self.seen.lerp_(h.detach().mean(0), 0.5)
        return self.seen


@attack("state")
def average_in_a_module_that_only_a_list_holds():
    """The module that keeps the average is not registered, so that no walk over submodules finds it."""
    return bounded(writing(lambda self, h: h.add_(self.held[0](h)), held=[Average()]), FAR)


@attack("state")
def average_in_a_module_of_a_closure():
    """The model's function closes over the module that keeps the average."""
    average = Average()
    return bounded(writing(lambda self, h: h.add_(average(h))), FAR)


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


@attack("state")
def running_mean_used_in_the_next_step():
    """The moving mean of one step is subtracted in the next: examples affect others even if it is restored at the end."""

    def write(self, h):
        self.buffer.lerp_(h.detach().mean(0), 0.5)

    class Using(Body):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(7))

        def forward(self, x):
            h = self.hidden(x)
            self.mean.lerp_(h.detach().mean(0), 0.5)
            return self.outer(5 * (h - self.mean))

    return bounded(Task(Using, classify, steps=3), FAR)


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
def batch_norm_made_lazily():
    """LazyBatchNorm1d and LazyLinear take their shapes from the first batch."""

    def make():
        return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Tanh(), nn.LazyLinear(CLASSES))

    return bounded(Task(make, classify), FAR)


@attack("state")
def batch_norm_after_a_check_in_eval():
    """The model is in eval() when Training is created, and in train() from the first step on."""

    def take(training):
        training.model.train()
        training.run()

    task = normalised(lambda: nn.BatchNorm1d(8), before=lambda model: model.eval(), take=take, public_change=True)
    return bounded(task, FAR)


@attack("state", fast=True)
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
