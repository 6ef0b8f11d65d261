"""Attacks by changes of buffers, modes and modules: statistics of private data without noise."""

from __future__ import annotations

import copy

import torch
from harness import Task, attack, bounded
from materials import CLASSES, WIDTH, Body, classify, points, sentences
from torch import nn
from torch.nn import functional as F
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
@attack("state")
def deviation_in_a_buffer():
    """A buffer tracks the standard deviation of hidden units over the batch, undefined for a single example."""

    def write(self, h):
        if len(h) > 1:
            self.buffer.lerp_(h.detach().std(0), 0.2)

    return bounded(writing(write, buffer=torch.ones(7)), FAR)


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
def average_in_the_module_of_a_method():
    """Only a bound method leads to the module that keeps the average."""
    return bounded(writing(lambda self, h: h.add_(self.held(h)), held=Average().forward), FAR)


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
def count_of_examples_in_a_buffer():
    """A buffer counts examples; with sampling, their number is secret."""
    return bounded(writing(lambda self, h: self.buffer.add_(len(h)), buffer=torch.zeros(())), FAR)


@attack("state")
def buffer_that_does_not_persist():
    """The buffer is not in the state_dict, but still visible."""

    class Hidden(Body):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(7), persistent=False)

        def forward(self, x):
            h = self.hidden(x)
            self.seen += h.detach().sum(0)
            return self.outer(h)

    return bounded(Task(Hidden, classify), FAR)


@attack("state")
def histogram_of_words_in_a_buffer():
    """`index_add_` counts the words of all texts in a buffer."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(13, 6), nn.Linear(6, CLASSES)
            self.register_buffer("counts", torch.zeros(13))

        def forward(self, text):
            self.counts.index_add_(0, text.flatten(), torch.ones(text.numel()))
            return self.out(self.table(text).mean(1))

    return bounded(Task(Counting, classify), sentences())


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
def batch_norm_without_statistics():
    """BatchNorm1d without running statistics still normalises over the batch."""
    return bounded(normalised(lambda: nn.BatchNorm1d(8, track_running_stats=False)), FAR)


@attack("state")
def batch_norm_without_parameters():
    """It has no trainable parameters; its buffers still change."""
    return bounded(normalised(lambda: nn.BatchNorm1d(8, affine=False)), FAR)


@attack("state")
def batch_norm_with_a_cumulative_average():
    """`momentum=None`, and several steps."""
    return bounded(normalised(lambda: nn.BatchNorm1d(8, momentum=None), steps=3), FAR)


@attack("state")
def batch_norm_that_is_frozen_and_in_training_mode():
    """Its parameters are frozen, but it is in training mode."""

    def make_norm():
        return nn.BatchNorm1d(8).requires_grad_(False)

    return bounded(normalised(make_norm), FAR)


@attack("state")
def batch_norm_as_a_function():
    """`F.batch_norm` with user-defined buffers."""

    class Own(Body):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(7))
            self.register_buffer("variance", torch.ones(7))

        def forward(self, x):
            return self.outer(F.batch_norm(self.hidden(x), self.mean, self.variance, training=True, momentum=0.3))

    return bounded(Task(Own, classify), FAR)


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
def batch_norm_of_pictures():
    """BatchNorm2d has statistics for a single image too, over its pixels."""
    x = torch.randn(9, 2, 4, 4)
    x[0] *= 30
    make = lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, CLASSES))
    return bounded(Task(make, classify), TensorDataset(x, torch.randint(CLASSES, (9,))))


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
def one_module_goes_to_train_mode():
    """Only one submodule is switched between steps."""

    def take(training):
        for _ in training:
            training.model[1].train()

    task = normalised(lambda: nn.BatchNorm1d(8), steps=3, before=lambda model: model.eval(), take=take, public_change=True)
    return bounded(task, FAR)


@attack("state")
def norm_put_in_between_steps():
    """A batch norm without parameters is inserted after the first step."""

    def take(training):
        for step in training:
            if step.number == 1:
                training.model[1] = nn.BatchNorm1d(8, affine=False)

    return bounded(normalised(nn.Identity, steps=3, take=take, public_change=True), FAR)


@attack("state")
def forward_replaced_between_steps():
    """After the first step, the instance's forward is replaced by one that couples examples."""

    def take(training):
        model = training.model
        for _ in training:
            model.forward = lambda x: model.outer(model.hidden(x) - model.hidden(x).mean(0))

    return bounded(Task(Body, classify, steps=2, take=take, public_change=True), FAR)


@attack("state")
def hook_added_between_steps():
    """A forward hook that writes its input to the parameter is added after the first step."""

    def take(training):
        model = training.model

        def hook(module, inputs, output):
            model.outer.bias.data.copy_(output.detach().flatten()[:CLASSES])

        for step in training:
            if step.number == 1:
                model.inner.register_forward_hook(hook)

    return bounded(Task(Body, classify, steps=3, take=take, public_change=True), FAR)


@attack("state")
def parameter_frozen_between_steps():
    """A trainable parameter is frozen after the first step: the release would differ from the plan."""

    def take(training):
        for _ in training:
            training.model.inner.weight.requires_grad_(False)

    return bounded(Task(Body, classify, steps=3, take=take, public_change=True), FAR)
