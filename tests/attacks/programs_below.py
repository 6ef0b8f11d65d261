"""Attacks by what shows the memory behind one example's tensor: copies, texts, `out=` and observers."""

from __future__ import annotations

import copy

import torch
from harness import Task, Verdict, attack, bounded, exact
from materials import CLASSES, WIDTH, Body, classify, points
from torch import nn

FAR = points(outlier=9.0)


def shown(look) -> Verdict:
    """Return the verdict on a model that scales its hidden units by what `look(x)` returns."""

    class Looking(Body):
        def forward(self, x):
            return self.outer(self.hidden(x) * (1 + look(x.detach())))

    return exact(Task(Looking, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def deep_copy_of_an_example():
    """`copy.deepcopy` copies the memory of a tensor, where the first example is."""
    return shown(lambda x: copy.deepcopy(x).mean(1, keepdim=True))


@attack("coupling", fast=True)
def text_of_an_example():
    """The text of a tensor shows all examples."""
    return shown(lambda x: str(x).count("1") / 5)


@attack("coupling", fast=True)
def results_written_into_one_tensor():
    """`out=` names a tensor that the pass makes, which all examples would share."""

    def look(x):
        numbers, places = torch.empty(1, x.shape[1]), torch.empty(1, x.shape[1], dtype=torch.long)
        torch.sort(x, 1, out=(numbers, places))
        return numbers[:, :1].tanh()

    return shown(look)


@attack("coupling")
def observers_of_quantisation():
    """Observers of activations write to ranges that all examples would share."""

    def make():
        model = nn.Sequential(nn.Linear(WIDTH, 7), nn.ReLU(), nn.Linear(7, CLASSES))
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        return torch.ao.quantization.prepare_qat(model.train())

    return bounded(Task(make, classify), FAR, remove=(0, 7))
