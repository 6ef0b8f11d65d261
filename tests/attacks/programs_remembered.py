"""Attacks by what one example leaves until the next: in attributes, containers, caches, names of other files and hooks."""

from __future__ import annotations

import sys
import types

import torch
from harness import Task, Verdict, attack, bounded
from materials import Body, classify
from programs_state import FAR, UNUSUAL, writing
from torch import nn


@attack("state")
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


KEPT = [0.0]
OTHER = types.ModuleType("file_of_the_user")  # another file of the user's
OTHER_TEXT = """
kept = [0.0]

def largest(number):
    if number > 15:
        kept.append(number)
    return kept[-1]
"""
exec(OTHER_TEXT, vars(OTHER))
sys.modules[OTHER.__name__] = OTHER


def forget(_: object) -> None:
    """Forget the numbers, before each training."""
    KEPT[:], OTHER.kept[:] = [0.0], [0.0]
    globals().pop("created", None)


def scaled(factor, make=list, before=forget) -> Verdict:
    """Return the verdict on a model whose outputs grow with what it remembers of an unusual example.

    Args:
        factor: called with the model and the largest number of each example; returns what is remembered.
        make: creates what the model holds.
        before: called before each training, to forget.
    """

    class Scaled(Body):
        def __init__(self):
            super().__init__()
            self.held = make()

        def forward(self, x):
            return self.outer(self.hidden(x)) * (1 + factor(self, float(x.abs().max())))

    return bounded(Task(Scaled, classify, steps=2, before=before), FAR)


def largest(number: float) -> float:
    """Return the number that was remembered last, in a global."""
    if number > UNUSUAL:
        KEPT.append(number)
    return KEPT[-1]


@attack("state")
def number_kept_in_another_file():
    """A function of another file keeps it in a global there."""
    return scaled(lambda model, number: OTHER.largest(number))


@attack("state")
def number_kept_by_a_hook():
    """A hook scales the outputs by the largest input, which it keeps in a dictionary."""

    class Scaled(Body):
        def __init__(self):
            super().__init__()
            largest = {}

            def remember(_module, inputs):
                number = float(inputs[0].abs().max())
                if number > UNUSUAL:
                    largest["number"] = number

            self.inner.register_forward_pre_hook(remember)
            self.outer.register_forward_hook(lambda _m, _i, output: output * (1 + largest.get("number", 0.0)))

    return bounded(Task(Scaled, classify, steps=2), FAR)
