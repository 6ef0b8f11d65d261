"""Attacks that couple examples during reading: by collate, padding or the data set."""

from __future__ import annotations

import torch
from harness import Task, attack, bounded
from materials import CLASSES, WIDTH, Listed, classify, listed, model_of, perceptron, points
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

FAR = points(outlier=40.0)


def averaging():
    """A scalar weight on the mean over time, which longer padding reduces."""

    def forward(self, x):
        return self.scale(x.mean(1))

    model = model_of(forward, scale=nn.Linear(1, 1, bias=False))
    nn.init.constant_(model.scale.weight, 1.5)
    return model


def far_from_target(model, batch):
    return 8 * (model(*batch[:-1])[:, 0] - batch[-1]).square()


@attack("coupling", fast=True)
def collate_pads_to_the_longest():
    """One long sequence reduces the mean over time of all others, and flips the sign of their gradients."""
    items = [(torch.full((60, 1), 0.02), 1.0)] + [(torch.full((3, 1), 2.0), 1.0)] * 40
    collate = lambda few: (pad_sequence([x for x, _ in few], batch_first=True), torch.tensor([y for _, y in few]))
    return bounded(Task(averaging, far_from_target, collate=collate), Listed(items), remove=(0, 1))


@attack("coupling")
def collate_standardises_over_the_batch():
    """Inputs are standardised by the mean and deviation of the batch."""

    def collate(items):
        x, y = default_collate(items)
        return (x - x.mean(0)) / (x.std(0, correction=0) + 1e-6), y

    return bounded(Task(perceptron, classify, collate=collate), listed(FAR), remove=(0, 7))


@attack("coupling")
def collate_appends_the_others_as_context():
    """Every example has the mean of the batch as a second input."""

    def collate(items):
        x, y = default_collate(items)
        return x, x.mean(0, keepdim=True).expand_as(x), y

    make = lambda: model_of(
        lambda self, x, c: self.out(self.a(x).tanh() + self.a(c)), a=nn.Linear(WIDTH, 6), out=nn.Linear(6, CLASSES)
    )
    return bounded(Task(make, classify, collate=collate), listed(FAR), remove=(0, 7))


@attack("coupling", fast=True)
def getitems_returns_neighbours():
    """`__getitems__` receives all indices at once, and subtracts the mean of the requested examples."""

    class Centred(Listed):
        def __getitems__(self, indices):
            chosen = [self.items[index] for index in indices]
            mean = torch.stack([x for x, _ in chosen]).mean(0)
            return [(x - mean, y) for x, y in chosen]

    return bounded(Task(perceptron, classify), Centred((x, int(y)) for x, y in FAR), remove=(0, 7))


@attack("coupling")
def reading_returns_what_collate_writes_to():
    """Collate centres in place: the data set changes, and the next step reads it."""

    def collate(items):
        for x, _ in items:
            x.sub_(items[0][0].mean())
        return default_collate(items)

    class Fresh(Listed):
        def __getitem__(self, index):
            x, y = self.items[index]
            return x.clone(), y

    return bounded(Task(perceptron, classify, collate=collate, steps=2), Fresh((x, int(y)) for x, y in FAR), remove=(0, 7))


@attack("coupling")
def padding_grows_with_the_physical_batch():
    """The result must not depend on the physical batch size."""
    items = [(torch.randn(2 + k % 5, 1), 1.0) for k in range(12)]
    collate = lambda few: (pad_sequence([x for x, _ in few], batch_first=True), torch.tensor([y for _, y in few]))
    return bounded(
        Task(averaging, far_from_target, collate=collate, options={"physical_batch_size": 5}), Listed(items), remove=(0, 4)
    )
