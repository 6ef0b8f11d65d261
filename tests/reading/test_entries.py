"""Repeated examples are found through torch's wrappers at any depth; different examples are never confused."""

import copy
from array import array
from collections import UserList, deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset, random_split

from privet.errors import InvalidArgumentError
from privet.reading.entries import check_distinct, check_same_entries, iter_pieces, note_entries, take_snapshot
from privet.units import Groups, Users

N = 6


def data(examples=N):
    return TensorDataset(torch.arange(examples), torch.arange(2.0 * examples).view(examples, 2))


class Listed(Dataset):
    def __init__(self, items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Noted(Subset):
    def __getitem__(self, index):
        return index, super().__getitem__(index)

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Records(list):
    def __init__(self, items):
        super().__init__(items)
        self.split = "train"


class Slotted(Dataset):
    __slots__ = ("items",)

    def __init__(self, items):
        self.items, self.split = list(items), "train"

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Tables(TensorDataset):
    pass


class Bare(Dataset):
    """Reads what is bound elsewhere."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return WIDE[index]


RECORDS = Records([1, 2])
ARRAY, LABEL = np.ones(3), torch.tensor(1)
ITEMS = [(torch.zeros(2), 1), (torch.zeros(2), 1)]
D = data()
WIDE = torch.arange(20.0).view(10, 2)
LISTED = Listed(range(N))
NUMBERS = [1.0, 2.0, 3.0, 4.0]

REPEATING = {
    "subset": Subset(D, [0, 1, 1]),
    "negative": Subset(D, [N - 1, -1]),
    "numpy": Subset(D, np.array([2, -4])),
    "tensor": Subset(D, torch.tensor([2, 2])),
    "bool": Subset(D, np.array([True, False, True])),
    "bool tensor": Subset(D, torch.tensor([False, False])),
    "inner repeats": Subset(Subset(D, [0, 0, 1, 2]), range(4)),
    "outer repeats": Subset(Subset(D, [5, 3]), [0, -2]),
    "with itself": ConcatDataset([D, D]),
    "overlap": ConcatDataset([Subset(D, range(4)), Subset(D, range(3, 6))]),
    "whole and part": ConcatDataset([Subset(Subset(D, range(4)), [1]), D]),
    "nested": ConcatDataset([ConcatDataset([data(), D]), Subset(ConcatDataset([D, data()]), [N - 1])]),
    "subset of both": Subset(ConcatDataset([D, D]), [1, N + 1]),
    "subclass": ConcatDataset([Noted(LISTED, [0, 1]), Noted(LISTED, [1, 2])]),
    "stacked": StackDataset(ConcatDataset([D, D]), Listed(range(2 * N))),
    "stacked by name": StackDataset(a=Listed(range(2)), b=Subset(D, [1, 1])),
    "stacked askew": StackDataset(D, Subset(D, [1, 2, 3, 4, 5, 0])),
    "copied": ConcatDataset([LISTED, copy.copy(LISTED)]),
    "same memory": ConcatDataset([TensorDataset(WIDE), TensorDataset(WIDE)]),
    "overlapping views": ConcatDataset([TensorDataset(WIDE[:6], WIDE[:6, 0]), TensorDataset(WIDE[5:], WIDE[5:, 0])]),
    "every second row": ConcatDataset([TensorDataset(WIDE, WIDE[:, 0]), TensorDataset(WIDE[::2], WIDE[::2, 0])]),
    "other steps": ConcatDataset([TensorDataset(WIDE[1::2]), TensorDataset(WIDE[::3])]),
    "same memory and a constant": ConcatDataset([TensorDataset(WIDE, torch.zeros(1).expand(10))] * 2),
    "other labels": ConcatDataset([TensorDataset(WIDE[::2], WIDE[:5, 0]), TensorDataset(WIDE[2::2], WIDE[5:9, 0])]),
    "one column in two tables": ConcatDataset([TensorDataset(WIDE[:, 0], WIDE[:, 0]), TensorDataset(WIDE[:, 0], WIDE[:, 1])]),
    "another shape": ConcatDataset([TensorDataset(WIDE), TensorDataset(WIDE[:3].view(3, 1, 2))]),
    "a subclass": ConcatDataset([Tables(WIDE), Tables(WIDE[4:6])]),
    "stacked tensors": ConcatDataset([StackDataset(WIDE, WIDE[:, 0]), StackDataset(WIDE[:1], WIDE[:1, 0])]),
    "plain tensors": ConcatDataset([WIDE, WIDE[9:]]),
    "plain arrays": ConcatDataset([WIDE.numpy(), WIDE.numpy()[::3]]),
    "an item in two lists": ConcatDataset([ITEMS, ITEMS[1:2]]),
    "an item in a list twice": [*ITEMS, ITEMS[0]],
    "tensors in new items with other labels": [*ITEMS, (ITEMS[0][0], 2)],
    "rows in new items": [(WIDE[0], 1), (WIDE[1], torch.tensor(1)), (WIDE[0], torch.tensor(2))],
    "arrays in new items": ConcatDataset([[{"x": ARRAY, "y": 0}], [{"x": ARRAY, "y": 1}]]),
    "a list twice": ConcatDataset([RECORDS, RECORDS]),
    "copied without attributes": ConcatDataset([Bare(), copy.copy(Bare())]),
    "two users": Users(ConcatDataset([D, D]), [0] * N + [1] * N, N),
    "two groups": Groups(ConcatDataset([D, D]), 3),
    "a list of numbers for two kinds of units": ConcatDataset([Users(NUMBERS, [0, 1, 0, 1], 2), Users(NUMBERS, [0, 0, 1, 1], 2)]),
    "subset of users": Subset(Users(D, [0, 0, 1, 1, 2, 2], 2), [0, 1, 0]),
}
DISTINCT = {
    "plain": D,
    "items of equal contents": [*ITEMS, (torch.zeros(2), 1)],
    "items that share a tensor": [(WIDE[0], WIDE[1]), (WIDE[0], WIDE[2]), (WIDE[1], WIDE[0])],
    "items that share a label": [(torch.tensor(0.5), LABEL), (torch.tensor(0.5), LABEL)],
    "windows of other steps": [WIDE[:3], WIDE[:6:2], WIDE[1:4]],
    "numbers in a list": ConcatDataset([[1, 1, 2], [2, 1]]),
    "subset": Subset(D, [5, -2, 0]),
    "concatenated": ConcatDataset([data(), data()]),
    "split": ConcatDataset(random_split(D, [4, 2])),
    "nested": Subset(ConcatDataset([Subset(D, [0, 2]), Subset(D, [1, -1])]), [3, 0, 1, 2]),
    "stacked": StackDataset(D, D, Listed(range(N))),
    "equal contents": ConcatDataset([Listed([1, 1]), Listed([1, 1])]),
    "views side by side": ConcatDataset([TensorDataset(WIDE[:5]), TensorDataset(WIDE[5:])]),
    "every second row": ConcatDataset([TensorDataset(WIDE[::2]), TensorDataset(WIDE[1::2])]),
    "lists with equal attributes": ConcatDataset([Records([1, 2]), Records([3, 4])]),
    "slots with equal attributes": ConcatDataset([Slotted([1, 2]), Slotted([3, 4])]),
    "constant": TensorDataset(torch.zeros(1).expand(5), torch.zeros(1, 3).expand(5, 3)),
    "constant twice": ConcatDataset([TensorDataset(torch.zeros(1).expand(5)), TensorDataset(torch.zeros(1).expand(5))]),
    "empty part": ConcatDataset([D, Subset(data(), [])]),
    "columns": ConcatDataset([TensorDataset(WIDE[:, 0]), TensorDataset(WIDE[:, 1])]),
    "users": Users(ConcatDataset([D, D]), [0, 1, 2, 3, 4, 5] * 2, 2),
    "short groups": Groups(D, 4),
}


@pytest.mark.parametrize("name", REPEATING)
def test_an_example_in_two_entries_is_refused(name):
    with pytest.raises(InvalidArgumentError, match=r"^dataset is .*occurs twice.*keep one entry of each"):
        check_distinct(REPEATING[name])


@pytest.mark.parametrize("name", DISTINCT)
def test_different_examples_are_accepted(name):
    try:
        check_distinct(DISTINCT[name])
    except InvalidArgumentError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize(
    ("indices", "says"),
    [([0, N], "outside a data set of 6"), ([-N - 1], "outside"), ([0.5], "not integers"), (["a"], "integer"), ([[0]], "integer")],
)
def test_indices_that_are_no_positions_are_refused(indices, says):
    with pytest.raises(InvalidArgumentError, match=says):
        check_distinct(Subset(D, indices))


@st.composite
def wrapped(draw, bases):
    """A data set of nested wrappers, and the underlying example of each entry."""
    base = draw(st.sampled_from(bases))
    dataset, found = base, [(id(base), number) for number in range(len(base))]
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()) and found:
            indices = draw(st.lists(st.integers(-len(found), len(found) - 1), max_size=4))
            dataset, found = Subset(dataset, indices), [found[index] for index in indices]
        else:
            other = draw(st.sampled_from(bases))
            dataset, found = ConcatDataset([dataset, other]), found + [(id(other), number) for number in range(len(other))]
    return dataset, found


BASES = [Listed(range(3)), Listed(range(2)), Listed(range(5))]


@given(wrapped(BASES))
@settings(deadline=None)
def test_entries_are_followed_as_indexing_does(case):
    dataset, expected = case
    found = {}
    for piece in iter_pieces(dataset):
        found |= {entry: (id(piece.base), row) for entry, row in zip(piece.entries.tolist(), piece.index.tolist(), strict=True)}
    assert [found[entry] for entry in range(len(dataset))] == expected
    if len(set(expected)) == len(expected):
        check_distinct(dataset)
    else:
        with pytest.raises(InvalidArgumentError):
            check_distinct(dataset)


def changing(indices, place=0):
    subset = Subset(LISTED, indices)
    return subset, lambda: subset.indices.__setitem__(place, 5)


def nested():
    subset = Subset(LISTED, [0, 1])
    whole = StackDataset(ConcatDataset([Noted(subset, [1, 0]), data()]))
    return whole, lambda: subset.indices.reverse()


def shuffled(wrap):
    held = [torch.tensor([float(place)]) for place in range(N)]
    return wrap(held), held.reverse


def grown():
    whole = ConcatDataset([data(), LISTED])
    return whole, lambda: whole.datasets.append(whole.datasets[0])


def exchanged(kind, name, value):
    whole = {"subset": Subset(LISTED, range(N)), "table": data(), "dict": StackDataset(x=LISTED, y=data())}[kind]
    return whole, lambda: setattr(whole, name, value)


def of_groups():
    subset = Subset(data(), [0, 1, 2, 3])
    return Groups(subset, 2), lambda: setattr(subset, "indices", [0, 0, 0, 0])


CHANGES = {
    "list": lambda: changing([0, 1]),
    "numpy": lambda: changing(np.array([0, 1])),
    "tensor": lambda: changing(torch.tensor([0, 1]), 1),
    "other list": lambda: exchanged("subset", "indices", [0] * N),
    "shorter": lambda: exchanged("subset", "indices", range(N - 1)),
    "other data set": lambda: exchanged("subset", "dataset", Listed(range(N))),
    "other tensors": lambda: exchanged("table", "tensors", (torch.arange(N), torch.arange(2.0 * N).view(N, 2))),
    "other column": lambda: exchanged("dict", "datasets", {"x": LISTED, "y": LISTED}),
    "nested": nested,
    "items": lambda: shuffled(lambda held: Subset(held, range(N))),
    "items of a part": lambda: shuffled(lambda held: ConcatDataset([data(), Subset(StackDataset(held, held), range(3))])),
    "grown": grown,
    "groups": of_groups,
}


@pytest.mark.parametrize("name", CHANGES)
def test_entries_that_became_other_examples_are_refused(name):
    dataset, change = CHANGES[name]()
    noted = note_entries(dataset)
    check_same_entries(noted)
    change()
    with pytest.raises(InvalidArgumentError, match=r"^dataset is .* changed after the training was created"):
        check_same_entries(noted)


class Own(list):
    def __getitem__(self, place):
        return -super().__getitem__(place)


@pytest.mark.parametrize("kind", [list, deque, UserList, lambda items: array("q", items), Records])
def test_a_list_that_changes_leaves_a_snapshot_as_it_was(kind):
    dataset = kind(range(N))
    if isinstance(dataset, Records):
        dataset.privacy_unit = "one user"
    taken = take_snapshot(dataset)
    dataset.reverse()
    dataset.append(7)
    assert [taken[place] for place in range(N)] == list(range(N))
    assert len(taken) == N
    assert getattr(taken, "privacy_unit", None) == getattr(dataset, "privacy_unit", None)


@pytest.mark.parametrize("dataset", [data(), Own(range(3)), (1, 2), Subset(LISTED, [0]), np.zeros(3)])
def test_other_data_sets_are_taken_as_they_are(dataset):
    assert take_snapshot(dataset) is dataset


def test_what_a_wrapper_of_the_user_keeps_in_a_list_may_change():
    held = [None] * N
    noted = note_entries(Noted(held, range(N)))
    held[0] = 1
    check_same_entries(noted)


def test_equal_positions_are_the_same_entries():
    subset = Subset(LISTED, [3, 1000 - 996])
    noted = note_entries(subset)
    subset.indices = [3, 4]
    check_same_entries(noted)
