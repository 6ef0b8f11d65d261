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
def added_to_itself():
    """`data + data`."""
    return doubled(lambda data: data + data, listed(TEN))


@attack("duplicates")
def repetition_in_an_inner_subset():
    """Only the inner one of two subsets repeats."""
    return doubled(lambda data: Subset(Subset(data, [0, *range(len(data))]), list(range(len(data) + 1))))


@attack("duplicates")
def repetition_three_subsets_deep():
    """The innermost of three."""
    return doubled(lambda data: Subset(Subset(Subset(data, [0, *range(len(data))]), range(len(data) + 1)), range(len(data) + 1)))


@attack("duplicates")
def negative_index_of_a_subset():
    """Index −N is index 0."""
    return doubled(lambda data: Subset(data, [*range(len(data)), -len(data)]), listed(TEN))


@attack("duplicates")
def negative_index_in_an_inner_subset():
    """The same within a second subset."""
    return doubled(lambda data: Subset(Subset(data, [*range(len(data)), -len(data)]), range(len(data) + 1)), listed(TEN))


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


@attack("duplicates")
def negative_index_of_a_joined_set():
    """Negative positions of a `ConcatDataset`."""

    def make(data):
        halves = ConcatDataset([Subset(data, range(5)), Subset(data, range(5, len(data)))])
        return Subset(halves, [*range(len(halves)), -len(halves)])

    return doubled(make)


@attack("duplicates")
def subset_with_numbers_of_other_kinds():
    """Indices are tensors or NumPy integers, so that equal ones are different objects."""
    import torch

    return doubled(lambda data: Subset(data, [*torch.arange(len(data)), torch.tensor(0)]))


@attack("duplicates")
def subset_by_true_and_one():
    """`True` is index 1, and 1 is too."""

    def make(data):
        return Subset(data, [*range(len(data)), True])

    return compared(TASK, make(listed(TEN)), make(without(listed(TEN), 1)))


@attack("duplicates")
def subset_by_floats_and_arrays():
    """An index array with a repetition, in a joined set."""
    import numpy as np

    return doubled(lambda data: ConcatDataset([Subset(data, np.array([0, *range(len(data))]))]))


@attack("duplicates")
def subclass_of_subset():
    """A subclass of `Subset` that adds a transform."""

    class Changed(Subset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return 2 * x, y

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    return doubled(lambda data: Changed(data, [0, *range(len(data))]))
