"""Attacks by copies that spend twice, by several loops over one training, and by examples that are in the data set twice."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Task, Verdict, attack, compared, training_of
from materials import Listed, classify, listed, perceptron, points, without
from torch.utils.data import ConcatDataset, Subset

import privet
from privet.errors import PrivetError
from privet.ledger import Ledger
from privet.noise import SecureSource, Token

STEPS = 3
PLAN = {"noise": privet.noise.Gaussian(2.0), "sampling": privet.sampling.Poisson(batch_size=6)}


def training(**options: Any) -> privet.Training:
    """Return a training with noise."""
    return training_of(Task(perceptron, classify, steps=STEPS, plan=PLAN, options={"scheduler": None, **options}), points())


def counted(spend: Callable[[], int], allowed: int = STEPS) -> Verdict:
    """Return the verdict on a program that spends as often as it can and returns the count; a clear error passes."""
    try:
        spent = spend()
    except (PrivetError, TypeError) as error:
        return Verdict(len(str(error)) >= 30, f"refused: {str(error)[:120]}")
    return Verdict(spent <= allowed, f"{spent} of {allowed} spent")


def both_train(make_copy: Callable[[privet.Training], Any]) -> Verdict:
    """Return the verdict on a training and its copy that each take all steps."""

    def spend() -> int:
        one = training()
        other = make_copy(one)
        return sum(1 for _ in other) + sum(1 for _ in one)

    return counted(spend)


@attack("copies")
def deep_copy_of_a_training():
    """Original and copy would each take all steps, but state the ε of one."""
    return both_train(copy.deepcopy)


@attack("copies")
def pickled_training():
    """A pickled training."""
    return both_train(lambda one: pickle.loads(pickle.dumps(one)))


def ledger_of_steps(path: Path | None = None) -> Ledger:
    """Return a new ledger."""
    return Ledger.create({}, [1.0] * STEPS, path)


def token_twice(make_copy: Callable[[Token], Token]) -> Verdict:
    """Return the verdict on a token and its copy that are both spent."""

    def spend() -> int:
        token = ledger_of_steps().reserve()
        other = make_copy(token)
        token.spend()
        other.spend()
        return 2

    return counted(spend, allowed=1)


@attack("copies")
def copy_of_a_token():
    """One reservation, two releases."""
    return token_twice(copy.copy)


@attack("copies")
def token_spent_twice():
    """The same token twice."""
    return token_twice(lambda token: token)


def same_numbers(source: Any, make_copy: Callable[[Any], Any]) -> Verdict:
    """Return the verdict on a copied source of noise: it must not repeat the numbers of the original."""
    try:
        other = make_copy(source)
    except (PrivetError, TypeError) as error:
        return Verdict(len(str(error)) >= 30, f"refused: {str(error)[:120]}")
    repeats = bool(np.array_equal(source.words(8), other.words(8)))
    return Verdict(not repeats, "the copy repeats the noise" if repeats else "the copy has numbers of its own")


@attack("copies")
def deep_copy_of_a_noise_source():
    """Equal noise on two releases cancels in their difference."""
    return same_numbers(SecureSource(), copy.deepcopy)


@attack("copies")
def two_loops_in_turns():
    """Two iterators over one training are advanced alternately: together they have the plan's steps."""

    def spend() -> int:
        one = training()
        loops, taken = [iter(one), iter(one)], 0
        while loops:
            for loop in list(loops):
                if next(loop, None) is None:
                    loops.remove(loop)
                else:
                    taken += 1
        return taken

    return counted(spend)


class Noting(Listed):
    """A list that counts how often each item is read."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.read: Counter[int] = Counter()

    def __getitem__(self, index: int) -> Any:
        self.read[index] += 1
        return super().__getitem__(index)


@attack("copies")
def two_loops_over_one_epoch():
    """Each loop would partition the epoch by itself, and an example could be drawn by both."""
    data = Noting((x, int(y)) for x, y in points())
    plan = {**PLAN, "sampling": privet.sampling.Shuffle(batch_size=6), "adjacency": "zero-out"}

    def spend() -> int:
        one = training_of(Task(perceptron, classify, steps=STEPS, plan=plan, options={"scheduler": None}), data)
        data.read.clear()
        loops = [iter(one), iter(one)]
        while loops:
            loops = [loop for loop in loops if next(loop, None) is not None]
        return max(data.read.values(), default=0)

    return counted(spend, allowed=1)


TEN = points(10, outlier=20.0)
TASK = Task(perceptron, classify)


def doubled(make, data=TEN) -> Verdict:
    """Compare training on ten examples with nine: the first is removed everywhere."""
    return compared(TASK, make(data), make(without(data, 0)))


@attack("duplicates")
def joined_with_itself():
    """`ConcatDataset` of a data set and itself."""
    return doubled(lambda data: ConcatDataset([data, data]))


@attack("duplicates")
def repetition_in_an_inner_subset():
    """Only the inner one of two subsets repeats."""
    return doubled(lambda data: Subset(Subset(data, [0, *range(len(data))]), list(range(len(data) + 1))))


@attack("duplicates")
def negative_index_of_a_subset():
    """Index −N is index 0."""
    return doubled(lambda data: Subset(data, [*range(len(data)), -len(data)]), listed(TEN))


@attack("duplicates")
def overlapping_subsets_joined():
    """Overlapping training and validation parts are trained on together."""
    return doubled(lambda data: ConcatDataset([Subset(data, range(6)), Subset(data, [0, *range(6, len(data))])]))


@attack("duplicates")
def joined_subsets_of_a_joined_set():
    """Overlap across two levels of `ConcatDataset`."""

    def make(data):
        both = ConcatDataset([data, Subset(data, [0])])
        return Subset(both, range(len(both)))

    return doubled(make)
