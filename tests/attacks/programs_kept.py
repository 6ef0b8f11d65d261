"""Attacks by a number that one unusual example leaves: in names of other files, in caches, in arrays and in hooks."""

from __future__ import annotations

import functools
import sys
import types

import numpy as np
import torch
from harness import Task, Verdict, attack, bounded
from materials import Body, classify
from programs_writes import FAR, UNUSUAL

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


@attack("state", fast=True)
def number_kept_in_another_file():
    """A function of another file keeps it in a global there."""
    return scaled(lambda model, number: OTHER.largest(number))


@attack("state")
def number_kept_in_a_global_that_was_not_there():
    """The first unusual example creates the global."""

    def factor(model, number):
        global created
        try:
            return created
        except NameError:
            if number > UNUSUAL:
                created = number
            return 0.0

    return scaled(factor)


@attack("state")
def number_kept_by_a_function_within():
    """Only the code of a local function names the global."""

    def factor(model, number):
        def inner():
            return largest(number)

        return inner()

    return scaled(factor)


@attack("state")
def number_kept_by_a_decorated_method():
    """The function belongs to torch, and has the user's in its closure."""

    class Memory:
        @torch.enable_grad()
        def top(self, number):
            return largest(number)

    return scaled(lambda model, number: model.held.top(number), Memory)


@attack("state")
def number_kept_in_a_cache():
    """The cache of a function holds a list that grows."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held().append(number)
        return model.held()[-1]

    return scaled(factor, lambda: functools.lru_cache(lambda: [0.0]))


@attack("state")
def number_kept_in_an_array_too_large_to_copy():
    """A memory bank of 70,000 numbers is written to for the unusual example."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held[0] = number
        return float(model.held[0])

    return scaled(factor, lambda: np.zeros(70_000))


@attack("state", fast=True)
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
