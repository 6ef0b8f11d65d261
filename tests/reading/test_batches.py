import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.gradients.core.consensus import SplitError
from privet.noise import FixedSource, Keystream
from privet.reading.batches import UNREADABLE, BatchDataset, check_dataset, group_examples, read_each, split


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
    assert {part.seeds for part in parts} == {None}


def test_seeds_come_from_the_source_and_are_not_shown():
    one, other = (list(split(np.arange(6), 0, 2, FixedSource().words)) for _ in range(2))
    assert [part.seeds for part in one] == [part.seeds for part in other]
    assert [part.seeds.start for part in one] == [0, 2, 4]
    assert [number for part in one for number in part.seeds.numbers(2)] == one[0].seeds.numbers(6)
    assert repr(one[0].seeds) == "Seeds(start=0)"
    assert pickle.loads(pickle.dumps(one[0])).seeds == one[0].seeds
    secret = Keystream().words
    assert len({next(split(np.arange(6), 0, 2, secret)).seeds.key for _ in range(3)}) == 3


def test_the_structure_and_the_shapes_of_an_example_are_its_group():
    def example(length, note="a", kind=torch.float32):
        return {"x": torch.arange(length, dtype=kind)[None], "note": [note]}

    examples = [example(3), example(2), UNREADABLE, example(3), example(3, "b"), example(3, kind=torch.int64), example(2)]
    groups = group_examples(examples)
    assert [group.positions.tolist() for group in groups] == [[0, 3, 4], [1, 6], [5]]
    for group in groups:
        assert group.positions.dtype == torch.int64
        for number, position in enumerate(group.positions.tolist()):
            seen = group.examples.get(number)
            assert torch.equal(seen["x"], examples[position]["x"])
            assert seen["note"] == examples[position]["note"]


class Deceiving:
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


@pytest.mark.parametrize("leaves", [
    (Deceiving(), Deceiving()), (0.0, -0.0), (1, True), (np.zeros(2), np.zeros(2)), ("a", "b"), (float("nan"), 1.0),
], ids=lambda leaves: " and ".join(type(leaf).__name__ for leaf in leaves))  # fmt: skip
def test_what_is_no_tensor_is_never_taken_from_another_example(leaves):
    found = [group.examples for group in group_examples([(torch.zeros(1, 2), leaf) for leaf in leaves])]
    if len(found) == 1:  # of one type
        (examples,) = found
        assert [examples.get(place)[1] is leaf for place, leaf in enumerate(leaves)] == [True, True]
        with pytest.raises(SplitError) as split:
            examples.constants[0].split()
        assert split.value.groups == [[0], [1]]
        found = [examples.select(torch.tensor(group)) for group in split.value.groups]
    assert [examples.get(0)[1] is leaf for examples, leaf in zip(found, leaves, strict=True)] == [True, True]
    assert not any(examples.constants for examples in found)


@pytest.mark.filterwarnings("ignore::UserWarning")  # from torch: these kinds of tensors are experimental or deprecated
@pytest.mark.parametrize("make", [
    lambda: torch.eye(3)[None].to_sparse(), lambda: torch.eye(3).to_sparse_csr(),
    lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
    lambda: torch.quantize_per_tensor(torch.ones(1, 2), 0.1, 0, torch.qint8),
])  # fmt: skip
def test_tensors_that_are_not_dense_stand_alone_and_are_refused_on_public_indices(make):
    examples = read_each(lambda index: (make(), torch.tensor([index])), [4, 5], None, strict=False)
    groups = group_examples(examples)
    assert [group.positions.tolist() for group in groups] == [[0], [1]]
    assert groups[1].examples.get(0)[0] is examples[1][0]
    with pytest.raises(UnsupportedModelError, match="it must hold dense tensors"):
        read_each(lambda index: (make(), torch.tensor([index])), [4, 5], None, strict=True)


@pytest.mark.parametrize("error", [ValueError, TypeError, MemoryError, StopIteration, AssertionError, InvalidArgumentError])
def test_an_unreadable_example_is_dropped_silently(error, capfd, recwarn):
    def read(index):
        if index == 7:
            raise error("x", 1, "2") if error is InvalidArgumentError else error("private")
        return torch.tensor([index])

    found = read_each(read, [3, 7, 5], None, strict=False)
    assert found[1] is UNREADABLE
    (group,) = group_examples(found)
    assert group.positions.tolist() == [0, 2]
    assert group.examples.leaves[0].tolist() == [[3], [5]]
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
    with pytest.raises(error):
        read_each(read, [3, 7, 5], None, strict=True)


def test_interrupts_propagate():
    def read(index):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_each(read, [1], None, strict=False)


class Centred(BatchDataset):
    def __len__(self):
        return 4

    def read(self, indices):
        x = torch.from_numpy(indices).double()
        return x - x.mean()


def test_only_privets_own_data_sets_are_given_several_indices_at_once():
    (group,) = Centred().groups(np.arange(4))
    assert group.examples.leaves[0].tolist() == [[0.0]] * 4
    Centred.row_wise = True
    try:
        (group,) = Centred().groups(np.arange(4))
        assert group.examples.leaves[0].tolist() == [[-1.5], [-0.5], [0.5], [1.5]]
    finally:
        Centred.row_wise = False


class Endless(IterableDataset):
    def __iter__(self):
        return iter(int, 1)


class Splits(dict):
    """Like the `DatasetDict` of datasets."""


Splits.__module__ = "datasets.dataset_dict"


@pytest.mark.parametrize(("dataset", "says"), [
    (DataLoader(Pairs()), "the data set itself"), (Endless(), r"a stream \(Endless\).*list\(dataset\)"),
    (Splits(train=1, test=2), r"a Splits of train, test.*dataset\['train'\]"), (iter([1]), "map-style"),
    (TensorDataset(torch.zeros(9)), "exactly the plan's size, 10"),
])  # fmt: skip
def test_data_sets_that_the_plan_cannot_own_are_refused(dataset, says):
    with pytest.raises(InvalidArgumentError, match=says):
        check_dataset(dataset, 10)
