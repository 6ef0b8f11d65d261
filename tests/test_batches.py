"""Physical batches cover a draw exactly once, whatever their size, and data sets are read as they are."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from privet.batches import Rows, check_dataset, physical_batches, split
from privet.errors import InvalidArgumentError


class Pairs(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {"x": torch.tensor([float(index)] * 3), "y": index}


@given(st.integers(0, 50), st.integers(1, 60))
def test_parts_are_neighbours_that_cover_the_draw(number, size):
    draw = np.arange(100, 100 + number)
    parts = list(split(draw, 7, size))
    assert np.concatenate([part.indices for part in parts]).tolist() == draw.tolist()
    assert all(len(part.indices) <= size for part in parts)
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    edges = [0, *(part.part.stop for part in parts)]
    assert [part.part.start for part in parts] == edges[:-1]


def test_an_empty_draw_is_one_empty_part():
    (only,) = split(np.arange(0), 1, 4)
    assert only.last
    assert Rows(Pairs())[only] == (only, None)


def test_tensor_data_sets_are_indexed_whole():
    x, y = torch.randn(10, 2), torch.arange(10)
    rows = Rows(TensorDataset(x, y))
    got = rows.read(np.array([3, 5]))
    assert torch.equal(got[0], x[[3, 5]])
    assert got[1].tolist() == [3, 5]


def test_map_style_data_sets_are_collated():
    got = Rows(Pairs()).read(np.array([1, 4]))
    assert got["y"].tolist() == [1, 4]
    assert got["x"].shape == (2, 3)


def test_own_collate_is_used_also_for_tensor_data_sets():
    rows = Rows(TensorDataset(torch.arange(10)), collate=lambda examples: len(examples))
    assert rows.read(np.array([1, 2, 3])) == 3


def test_worker_processes_read_the_same_in_the_same_order():
    def wanted():
        for number, draw in enumerate([np.arange(5), np.arange(0), np.array([7, 9])]):
            yield from split(draw, number, 2)

    here = [(part.part, None if c is None else c["y"].tolist()) for part, c in physical_batches(Rows(Pairs()), wanted())]
    there = [
        (part.part, None if c is None else c["y"].tolist()) for part, c in physical_batches(Rows(Pairs()), wanted(), workers=2)
    ]
    assert here == there
    assert [content for _, content in here] == [[0, 1], [2, 3], [4], None, [7, 9]]


class Endless(IterableDataset):
    def __iter__(self):
        return iter(int, 1)


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (DataLoader(Pairs()), "the data set itself"),
        (Endless(), "map-style"),
        (iter([1]), "map-style"),
        (TensorDataset(torch.zeros(9)), "exactly the plan's size, 10"),
    ],
)
def test_data_sets_that_the_plan_cannot_own_are_refused(dataset, says):
    with pytest.raises(InvalidArgumentError, match=says):
        check_dataset(dataset, 10)
