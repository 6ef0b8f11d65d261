"""Attacks by a number that one unusual example leaves: in other files, behind properties, in streams, caches and generators."""

from __future__ import annotations

import functools
import io
import random
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
def number_kept_in_a_file_imported_for_the_call():
    """The file is imported where it is used."""

    def factor(model, number):
        import file_of_the_user

        return file_of_the_user.largest(number)

    return scaled(factor)


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


@attack("state", fast=True)
def number_kept_behind_a_property():
    """No function names the global but that of a property."""

    class Memory:
        number = 0.0

        @property
        def top(self):
            return largest(self.number)

    def factor(model, number):
        model.held.number = number
        return model.held.top

    return scaled(factor, Memory)


@attack("state")
def number_kept_by_a_decorated_method():
    """The function belongs to torch, and has the user's in its closure."""

    class Memory:
        @torch.enable_grad()
        def top(self, number):
            return largest(number)

    return scaled(lambda model, number: model.held.top(number), Memory)


@attack("state")
def number_kept_in_a_list_in_an_array():
    """An array of objects holds the list."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held[0].append(number)
        return model.held[0][-1]

    return scaled(factor, lambda: np.array([[0.0], None], dtype=object)[:1])


@attack("state")
def text_written_to_a_stream():
    """A stream in memory keeps its text in C."""

    def factor(model, number):
        if number > UNUSUAL:
            print(number, file=model.held)
        return float(len(model.held.getvalue()))

    return scaled(factor, io.StringIO)


@attack("state")
def number_kept_in_a_cache():
    """The cache of a function holds a list that grows."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held().append(number)
        return model.held()[-1]

    return scaled(factor, lambda: functools.lru_cache(lambda: [0.0]))


@attack("randomness", fast=True)
def generator_drawn_from_for_an_outlier():
    """One example's draw shifts the numbers of those after it."""

    def factor(model, number):
        return model.held.random() if number > UNUSUAL else 0.0

    return scaled(factor, lambda: random.Random(1))


@attack("randomness")
def generator_of_numpy_drawn_from_for_an_outlier():
    """The same with NumPy's."""

    def factor(model, number):
        return model.held.normal() if number > UNUSUAL else 0.0

    return scaled(factor, lambda: np.random.default_rng(1))


@attack("state")
def number_kept_in_an_array_too_large_to_copy():
    """A memory bank of 70,000 numbers is written to for the unusual example."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held[0] = number
        return float(model.held[0])

    return scaled(factor, lambda: np.zeros(70_000))


@attack("state")
def number_kept_by_the_function_of_a_bound_method():
    """The model holds a method that is bound to something else; its function remembers."""

    def make():
        kept = [0.0]

        def remember(_, number):
            if number > UNUSUAL:
                kept.append(number)
            return kept[-1]

        return types.MethodType(remember, "something else")

    return scaled(lambda model, number: model.held(number), make)


@attack("state")
def number_kept_in_a_storage():
    """The model holds the storage of a tensor, whose methods torch does not intercept."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held[0].fill_(64)
        return float(model.held[0][3])

    return scaled(factor, lambda: [torch.zeros(3).untyped_storage()])


@attack("state")
def number_kept_in_the_gradient_of_a_constant():
    """A tensor that the model holds has a gradient of an earlier phase, to which the unusual example adds."""

    def make():
        constant = torch.zeros(3)
        constant.grad = torch.zeros(3)
        return {"constant": constant}

    def factor(model, number):
        gradient = model.held["constant"].grad
        if gradient is not None and number > UNUSUAL:
            gradient += number
        return 0.0 if gradient is None else float(gradient.sum())

    return scaled(factor, make)


@attack("state")
def number_kept_in_a_tensor_of_inference_mode():
    """A statistic is made, and written to, under inference mode."""

    def make():
        with torch.inference_mode():
            return {"mean": torch.zeros(3)}

    def factor(model, number):
        if number > UNUSUAL:
            with torch.inference_mode():
                model.held["mean"].add_(number)
        return float(model.held["mean"].sum())

    return scaled(factor, make)


@attack("state")
def number_kept_in_a_compressed_sparse_tensor():
    """The values of a sparse tensor are written to in place."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held["graph"].values().add_(number)
        return float(model.held["graph"].values().sum()) - 3

    return scaled(factor, lambda: {"graph": torch.eye(3).to_sparse_csr()})


@attack("state")
def bit_kept_in_the_sign_of_a_zero():
    """An array in the memory of a tensor holds −0.0 after the unusual example, which equals the 0.0 before."""

    def factor(model, number):
        if number > UNUSUAL:
            model.held[0].numpy()[...] = -0.0
        return float(model.held[0].signbit().sum())

    return scaled(factor, lambda: [torch.zeros(3)])
