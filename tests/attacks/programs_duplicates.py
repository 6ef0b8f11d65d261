"""Attacks by an example that is in the data set twice, so that it is clipped and contributes twice."""

from __future__ import annotations

from harness import Task, Verdict, attack, compared
from materials import classify, listed, perceptron, points, without
from torch.utils.data import ConcatDataset, Subset

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
