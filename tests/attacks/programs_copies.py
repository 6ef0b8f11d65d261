"""Attacks by copies that spend twice, by several loops over one training, and by examples that are in the data set twice."""

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Task, Verdict, attack, compared, train, training_of
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


@attack("copies", both_train)
def deep_copy_of_a_training(one):
    """Original and copy would each take all steps, but state the ε of one."""
    return copy.deepcopy(one)


@attack("copies", both_train)
def pickled_training(one):
    """A pickled training."""
    return pickle.loads(pickle.dumps(one))


def token_twice(make_copy: Callable[[Token], Token]) -> Verdict:
    """Return the verdict on a token and its copy that are both spent."""

    def spend() -> int:
        token = Ledger.create({}, [1.0] * STEPS, None).reserve()
        other = make_copy(token)
        token.spend()
        other.spend()
        return 2

    return counted(spend, allowed=1)


@attack("copies", token_twice)
def copy_of_a_token(token):
    """One reservation, two releases."""
    return copy.copy(token)


@attack("copies", token_twice)
def token_spent_twice(token):
    """The same token twice."""
    return token


@attack("copies")
def deep_copy_of_a_noise_source():
    """Equal noise on two releases cancels in their difference."""
    source = SecureSource()
    return counted(lambda: 1 + bool(np.array_equal(copy.deepcopy(source).words(8), source.words(8))), allowed=1)


@attack("copies", counted)
def two_loops_in_turns():
    """Two iterators over one training are advanced alternately: together they have the plan's steps."""
    one = training()
    loops, taken = [iter(one), iter(one)], 0
    while loops:
        for loop in list(loops):
            if next(loop, None) is None:
                loops.remove(loop)
            else:
                taken += 1
    return taken


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
    return compared(TASK, *(train(TASK, make(each)) for each in (data, without(data, 0))))


@attack("duplicates", doubled)
def joined_with_itself(data):
    """`ConcatDataset` of a data set and itself."""
    return ConcatDataset([data, data])


@attack("duplicates", doubled)
def repetition_in_an_inner_subset(data):
    """Only the inner one of two subsets repeats."""
    return Subset(Subset(data, [0, *range(len(data))]), list(range(len(data) + 1)))


@attack("duplicates", lambda make: doubled(make, listed(TEN)))
def negative_index_of_a_subset(data):
    """Index −N is index 0."""
    return Subset(data, [*range(len(data)), -len(data)])


@attack("duplicates", doubled)
def overlapping_subsets_joined(data):
    """Overlapping training and validation parts are trained on together."""
    return ConcatDataset([Subset(data, range(6)), Subset(data, [0, *range(6, len(data))])])


@attack("duplicates", doubled)
def joined_subsets_of_a_joined_set(data):
    """Overlap across two levels of `ConcatDataset`."""
    both = ConcatDataset([data, Subset(data, [0])])
    return Subset(both, range(len(both)))
