"""Data sets of plain tensors are sliced as a whole, with the same result as reading row by row."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from privet.reading.rows import ExampleReader, build_table


def numbered(start, examples, width=2):
    numbers = torch.arange(1.0 * start * width, (start + examples) * width).view(-1, width)
    return TensorDataset(torch.arange(start, start + examples), numbers)


PARTS = [numbered(0, 5), numbered(5, 3), Subset(numbered(0, 9), [4, -1, 2])]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_slices_are_the_rows(parts, data):
    dataset = ConcatDataset(parts)
    for _ in range(data.draw(st.integers(0, 2))):
        dataset = Subset(dataset, data.draw(st.lists(st.integers(-len(dataset), len(dataset) - 1), min_size=1, max_size=6)))
    assert build_table(dataset) is not None
    indices = np.array(data.draw(st.lists(st.integers(0, len(dataset) - 1), min_size=1, max_size=8)))
    (one,) = ExampleReader(dataset).read(indices)
    (other,) = ExampleReader(dataset, collate=torch.utils.data.default_collate).read(indices)
    assert one.positions.tolist() == other.positions.tolist()
    assert (one.examples.tree, one.examples.count) == (other.examples.tree, other.examples.count)
    assert one.examples.own == other.examples.own == (True, True)
    assert all(map(torch.equal, one.examples.leaves, other.examples.leaves))


def test_a_plain_data_set_keeps_its_tuple():
    (group,) = ExampleReader(numbered(0, 9)).read(np.array([3, 1]))
    one = group.examples.get(0)
    assert isinstance(one, tuple)
    assert [leaf.tolist() for leaf in one] == [[3], [[6.0, 7.0]]]


def test_slices_are_copies_without_gradients():
    x = torch.zeros(4, 2, requires_grad=True)
    (group,) = ExampleReader(TensorDataset(x)).read(np.arange(4))
    (leaf,) = group.examples.leaves
    assert not leaf.requires_grad
    leaf.add_(1)
    assert not x.any()


class Own(TensorDataset):
    def __getitem__(self, index):
        return tuple(tensor[index] + 1 for tensor in self.tensors)


class OwnSubset(Subset):
    def __getitem__(self, index):
        return super().__getitem__(index)[0] + 1

    def __getitems__(self, indices):
        raise AssertionError("several at once")


class Plain(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor(index)


@pytest.mark.parametrize(
    "dataset",
    [
        Own(torch.arange(4)),
        OwnSubset(TensorDataset(torch.arange(4)), range(4)),
        Subset(Own(torch.arange(4)), range(4)),
        ConcatDataset([numbered(0, 4), Plain()]),
        TensorDataset(torch.eye(4).to_sparse()),
        TensorDataset(torch.ones(4).as_subclass(type("Named", (torch.Tensor,), {}))),
        Subset(numbered(0, 4), ["a", "b"]),
        ConcatDataset([TensorDataset(torch.arange(2)), numbered(0, 4)]),
        ConcatDataset([numbered(0, 4), numbered(0, 4, width=3)]),
        list(range(4)),
    ],
)
def test_data_sets_that_override_reading_are_read_one_by_one(dataset):
    assert build_table(dataset) is None


def test_overridden_reads_are_used():
    (group,) = ExampleReader(OwnSubset(TensorDataset(torch.arange(4)), [3, 1])).read(np.array([0, 1]))
    assert group.examples.leaves[0].tolist() == [[4], [2]]
