import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset, random_split

from privet.errors import InvalidArgumentError
from privet.reading.entries import check_distinct, iter_pieces
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


class Transformed(Subset):
    def __getitem__(self, index):
        return index, super().__getitem__(index)

    def __getitems__(self, indices):
        return [self[index] for index in indices]


ITEMS = [(torch.zeros(2), 1), (torch.zeros(2), 1)]
TEXTS = [{"text": "a"}, {"text": "b"}]
D = data()
WIDE = torch.arange(20.0).view(10, 2)
LISTED = Listed(range(N))

REPEATING = {
    "negative": Subset(D, [N - 1, -1]),
    "numpy": Subset(D, np.array([2, -4])),
    "tensor": Subset(D, torch.tensor([2, 2])),
    "a mask": Subset(D, np.array([True, False, True])),
    "with itself": ConcatDataset([D, D]),
    "nested": ConcatDataset([ConcatDataset([data(), D]), Subset(ConcatDataset([D, data()]), [N - 1])]),
    "subclass": ConcatDataset([Transformed(LISTED, [0, 1]), Transformed(LISTED, [1, 2])]),
    "stacked": StackDataset(ConcatDataset([D, D]), Listed(range(2 * N))),
    "stacked by name": StackDataset(a=Listed(range(2)), b=Subset(D, [1, 1])),
    "same memory": ConcatDataset([TensorDataset(WIDE), TensorDataset(WIDE)]),
    "same memory after a constant": ConcatDataset([TensorDataset(torch.zeros(1).expand(10), WIDE)] * 2),
    "overlapping slices": ConcatDataset([TensorDataset(WIDE[:6], WIDE[:6, 0]), TensorDataset(WIDE[5:], WIDE[5:, 0])]),
    "other steps": ConcatDataset([TensorDataset(WIDE[1::2]), TensorDataset(WIDE[::3])]),
    "arrays": ConcatDataset([WIDE.numpy(), WIDE.numpy()[::3]]),
    "oversampled": ITEMS * 2,
    "oversampled records": [*TEXTS, TEXTS[0]],
    "an item in two lists": ConcatDataset([ITEMS, ITEMS[1:2]]),
    "two users": Users(ConcatDataset([D, D]), [0] * N + [1] * N, N),
    "two groups": Groups(ConcatDataset([D, D]), 3),
    "subset of users": Subset(Users(D, [0, 0, 1, 1, 2, 2], 2), [0, 1, 0]),
}
DISTINCT = {
    "items of equal contents": [*ITEMS, (torch.zeros(2), 1)],
    "numbers in a list": ConcatDataset([[1, 1, 2], [2, 1]]),
    "texts in a list": ["a", "a"],
    "split": ConcatDataset(random_split(D, [4, 2])),
    "nested": Subset(ConcatDataset([Subset(D, [0, 2]), Subset(D, [1, -1])]), [3, 0, 1, 2]),
    "stacked": StackDataset(D, D, Listed(range(N))),
    "slices side by side": ConcatDataset([TensorDataset(WIDE[:5]), TensorDataset(WIDE[5:])]),
    "every second row": ConcatDataset([TensorDataset(WIDE[::2]), TensorDataset(WIDE[1::2])]),
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


@pytest.mark.parametrize(("indices", "says"), [
    ([0, N], "outside a data set of 6"), ([-N - 1], "outside"), ([0.5], "not integers"), ([[0]], "integer"),
])  # fmt: skip
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
