"""Attacks by what modules and objects keep of one example until the next, in attributes and containers."""

from __future__ import annotations

import numpy as np
import torch
from harness import Task, attack, bounded
from materials import Body, classify
from programs_writes import FAR, writing
from torch import nn


@attack("state", fast=True)
def list_of_encodings():
    """A list on the module stores encodings."""
    return bounded(writing(lambda self, h: self.seen.append(h.detach().clone()), seen=[]), FAR)


@attack("state")
def dict_of_sums():
    """A dict on the module, written by key."""

    def write(self, h):
        self.seen["sum"] = self.seen.get("sum", 0.0) + float(h.detach().sum())

    return bounded(writing(write, seen={}), FAR)


@attack("state")
def plain_tensor_written_in_place():
    """A tensor attribute that is not a buffer."""
    return bounded(writing(lambda self, h: self.seen.add_(h.detach().sum(0)), seen=torch.zeros(7)), FAR)


@attack("state")
def array_written_in_place():
    """A NumPy array on the module."""

    def write(self, h):
        self.seen[:] += h.detach().sum(0).numpy()

    return bounded(writing(write, seen=np.zeros(7)), FAR)


@attack("state")
def count_of_rows():
    """A plain counter reveals the number of rows."""

    def write(self, h):
        self.rows += len(h)

    return bounded(writing(write, rows=0, steps=3), FAR)


@attack("state")
def last_step_kept_for_the_next():
    """The model adds values of the previous step: examples affect the release of another step."""

    class Keeping(Body):
        def __init__(self):
            super().__init__()
            self.last = [torch.zeros(7)]

        def forward(self, x):
            h = self.hidden(x)
            last, self.last[0] = self.last[0], h.detach().sum(0)
            return self.outer(5 * (h + last))

    return bounded(Task(Keeping, classify, steps=3), FAR)


@attack("state")
def spectral_norm_of_the_old_kind():
    """`nn.utils.spectral_norm` updates its vectors in every pass: unless prevented, once per example."""

    def make():
        model = Body()
        nn.utils.spectral_norm(model.inner)
        return model

    return bounded(Task(make, classify, steps=2), FAR)


@attack("state")
def layer_made_in_the_first_pass():
    """A layer is created on first use, with weights computed from the data."""

    class Late(Body):
        def forward(self, x):
            h = self.hidden(x)
            if not hasattr(self, "late"):
                self.late = nn.Linear(7, 7)
                self.late.weight.data.copy_(h.detach().mean(0).expand(7, 7))
            return self.outer(self.late(h))

    return bounded(Task(Late, classify, public_change=True), FAR)


@attack("state")
def mode_written_in_the_pass():
    """Depending on the data, the pass switches a part of the model to evaluation mode permanently."""

    class Switching(Body):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.0)

        def forward(self, x):
            if float(x.detach().abs().max()) > 20:
                self.drop.eval()
            return self.outer(self.drop(self.hidden(x)) * (1.0 if self.drop.training else 5.0))

    return bounded(Task(Switching, classify, steps=2), FAR)


@attack("state")
def gradients_switched_off_for_a_layer():
    """The pass freezes a layer on a large input: later examples would have no gradient there."""

    class Freezing(Body):
        def forward(self, x):
            if float(x.detach().abs().max()) > 20:
                self.inner.requires_grad_(False)
            return super().forward(x)

    return bounded(Task(Freezing, classify, steps=2, public_change=True), FAR)


def remembering(memory) -> Task:
    """Return the task of a model that adds values of the previous pass, stored in an object.

    Args:
        memory: creates the object, which has an attribute `value`.
    """

    class Remembering(Body):
        def __init__(self):
            super().__init__()
            self.memory = memory()

        def forward(self, x):
            h = self.hidden(x)
            out = self.outer(h + 5 * self.memory.value)
            self.memory.value = h.detach().sum(0)
            return out

    return Task(Remembering, classify, steps=2)


@attack("state")
def object_that_remembers():
    """State in an attribute of an object that is not a module, as in caches of language models."""

    class Memory:
        def __init__(self):
            self.value = torch.zeros(7)

    return bounded(remembering(Memory), FAR)


@attack("state")
def object_with_slots_that_remembers():
    """The same with an object without `__dict__`."""

    class Memory:
        __slots__ = ("value",)

        def __init__(self):
            self.value = torch.zeros(7)

    return bounded(remembering(Memory), FAR)
