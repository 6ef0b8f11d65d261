from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from privet._utils.randomness import Seeds
from privet.errors import InvalidArgumentError
from privet.noise import FixedSource, Keystream
from privet.reading.rows import ExampleReader, ungroup
from privet.units import Groups, Users


def numbered(examples):
    return TensorDataset(torch.arange(examples), torch.arange(examples * 6.0).view(examples, 2, 3))


def held(dataset):
    """Return for each unit the examples that count, and all that it holds."""
    (numbers, pictures), mask = dataset.read(np.arange(len(dataset)))
    assert torch.equal(pictures[..., 0, 0], 6.0 * numbers)
    assert numbers.shape == mask.shape == pictures.shape[:2]
    assert mask.dtype == torch.bool
    return [(row[kept].tolist(), row.tolist()) for row, kept in zip(numbers, mask, strict=True)]


@given(st.lists(st.integers(-3, 6), min_size=1, max_size=40), st.integers(1, 9))
def test_every_user_is_one_entry_with_up_to_cap_of_their_own_examples(ids, cap):
    users = Users(numbered(len(ids)), ids, cap)
    assert len(users) == len(set(ids))
    for user, (own, all_there) in zip(sorted(set(ids)), held(users), strict=True):
        theirs = [position for position, owner in enumerate(ids) if owner == user]
        assert len(own) == min(cap, len(theirs)) == len(set(own))
        assert set(all_there) <= set(theirs)
        assert len(all_there) == cap


def test_which_examples_are_kept_is_uniform_and_independent_of_other_users(holds_twice):
    ids, stream = ["b", "a", "b", "b", "c", "b", "a", "b", "a"], Keystream()
    subsets = [frozenset(each) for each in combinations([0, 2, 3, 5, 7], 2)]
    others = [frozenset(each) for each in combinations([1, 6, 8], 2)]

    def experiment():
        draws = []
        for _ in range(1500):
            a, b, c = (frozenset(own) for own, _ in held(Users(numbered(9), ids, 2, words=stream.words)))
            assert c == {4}
            draws.append((a, b))
        both = Counter(draws)
        return {"pairs": stats.chisquare([both[a, b] for a in others for b in subsets]).pvalue}

    holds_twice(experiment)


@pytest.mark.parametrize(
    "ids",
    [
        [2**63, 2**63 + 1, -1, 0], np.array([2**53, 2**53 + 1, 0, 1]),
        torch.tensor([2**24, 2**24 + 1, 0, 1], dtype=torch.int32), ["a", "A", "a ", ""],
        np.array(["x", "y", "xx", "yy"], dtype=object), list(np.array([4, 5, 6, 7])),
    ],
    ids=str,
)  # fmt: skip
def test_different_ids_are_different_users(ids):
    assert len(Users(numbered(4), ids, 2)) == 4


def test_the_choice_is_made_once():
    users = Users(numbered(40), [0] * 20 + [1] * 20, 3)
    assert held(users) == held(users)
    assert held(users) != held(Users(numbered(40), [0] * 20 + [1] * 20, 3))


DICTIONARIES = [{"x": torch.full((3,), float(number)), "y": number} for number in range(7)]


@pytest.mark.parametrize("make", [lambda data: Users(data, torch.tensor([5, 5, 5, 5, 5, 9, 9]), 4), lambda data: Groups(data, 4)])
def test_any_map_style_data_set_is_read(make):
    content, mask = make(DICTIONARIES).read(np.array([1, 0]))
    assert content["x"].shape == (2, 4, 3)
    assert torch.equal(content["x"][..., 0], content["y"].float())
    assert mask.sum(1).tolist() in ([2, 4], [3, 4])


@pytest.mark.parametrize("make", [lambda items: Users(items, [0, 0, 1, 1], cap=2), lambda items: Groups(items, 2)])
def test_units_stay_those_of_the_list_as_it_was(make):
    items = [torch.tensor([float(place)]) for place in range(4)]
    units = make(items)
    items.reverse()
    (found,) = ExampleReader(units).read(np.arange(2))
    assert sorted(found.examples.leaves[0][0].ravel().tolist()) == [0.0, 1.0]
    assert sorted(found.examples.leaves[0][1].ravel().tolist()) == [2.0, 3.0]


def test_an_own_collate_is_the_data_sets():
    users = Users(DICTIONARIES, [0, 0, 0, 1, 1, 1, 1], 2, collate=lambda items: torch.tensor([item["y"] for item in items]))
    assert users.read(np.array([0, 1]))[0].shape == (2, 2)
    with pytest.raises(InvalidArgumentError, match=r"^collate is .*Pass it to the data set"):
        ExampleReader(users, collate=len)


class Recorded(Dataset):
    def __init__(self, long=(), broken=()):
        self.long, self.broken, self.asked = long, broken, []

    def __len__(self):
        return 7

    def __getitem__(self, index):
        self.asked.append(index)
        if index in self.broken:
            raise ValueError("private")
        return {"x": torch.full((4 if index in self.long else 3,), float(index)) + torch.rand(1), "y": index}


def test_the_examples_of_a_unit_are_read_and_collated_one_by_one():
    data, sizes = Recorded(), []

    def collate(items):
        sizes.append(len(items))
        return torch.stack([item["x"] for item in items]), torch.tensor([item["y"] for item in items])

    (group,) = Groups(data, 4, collate=collate).groups(np.array([1, 0]), Seeds(bytes(32)))
    assert data.asked == [4, 5, 6, 4, 0, 1, 2, 3]
    assert sizes == [1] * 8
    (x, y), mask = group.examples.get(0)
    assert x.shape == (1, 4, 3)
    assert y.tolist() == [[4, 5, 6, 4]]
    assert mask.tolist() == [[True, True, True, False]]
    assert len({float(row[0]) - float(label) for row, label in zip(x[0], y[0], strict=True)}) == 4


@pytest.mark.parametrize("data", [lambda: Recorded(broken=(5,)), lambda: Recorded(long=(5,))])
def test_only_the_unreadable_unit_is_dropped(data):
    users = Users(data(), [0, 0, 1, 1, 2, 2, 1], 3, words=FixedSource().words)
    whole = Users(Recorded(), [0, 0, 1, 1, 2, 2, 1], 3, words=FixedSource().words)
    (group,), (expected,) = users.groups(np.arange(3), Seeds(bytes(32))), whole.groups(np.arange(3), Seeds(bytes(32)))
    assert group.positions.tolist() == [0, 1]
    for leaf, other in zip(group.examples.leaves, expected.examples.leaves, strict=True):
        assert torch.equal(leaf, other[:2])
    with pytest.raises((ValueError, InvalidArgumentError)):
        users.groups(np.arange(3), Seeds(bytes(32)), strict=True)


def test_units_of_different_shapes_are_in_groups_of_their_own():
    groups = Groups(Recorded(long=(2, 3)), 2).groups(np.arange(4))
    assert [group.positions.tolist() for group in groups] == [[0, 2, 3], [1]]
    with pytest.raises(InvalidArgumentError, match="several shapes"):
        Groups(Recorded(long=(2, 3)), 2).read(np.arange(4))


def test_what_collate_adds_for_all_is_added_once_to_a_unit():
    table = torch.arange(6.0).view(2, 3)
    groups = Groups(DICTIONARIES, 2, collate=lambda items: (torch.tensor([items[0]["y"]]), table, "a")).groups(np.arange(3))
    for unit in ungroup(groups, 3):
        (y, shared, note), mask = unit
        assert (y.shape, mask.shape, note) == ((1, 2), (1, 2), "a")
        assert torch.equal(shared, table)


def test_units_of_plain_tensors_are_sliced_whole():
    users = Users(Subset(numbered(9), [8, 7, 6, 5, 4, 3]), [0, 0, 1, 1, 1, 2], 2)
    (group,) = ExampleReader(users).read(np.array([2, 0]))
    (numbers, pictures), mask = group.examples.get(0)
    assert (numbers.tolist(), mask.tolist()) == ([[3, 3]], [[True, False]])
    assert pictures.shape == (1, 2, 2, 3)
    assert group.examples.own == (True, True, True)


@pytest.mark.parametrize(("examples", "size"), [(12, 4), (13, 4), (3, 4), (5, 1), (1, 1)])
def test_groups_are_neighbours_by_position_whatever_the_examples_contain(examples, size):
    groups = Groups(numbered(examples), size)
    found = [own for own, _ in held(groups)]
    assert found == [list(range(start, min(start + size, examples))) for start in range(0, examples, size)]
    assert str(groups.privacy_unit) == f"one example (in a group of {size}; groups fixed in advance)"


BAD = {
    "cap": [0, 2.0],
    "ids": [
        [], [0] * 3, [[0]] * 4, [[0, 1]] * 4, np.zeros((4, 1), int), [1, "1", 2, "2"], [1, 1.0, 2, 2],
        torch.tensor([1.0, 2.0, 3.0, float("nan")]), [None, "a", "b", "c"],
    ],
    "dataset": [DataLoader(numbered(4)), iter([1])],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_arguments_are_refused_by_name(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is"):
        Users(**{"dataset": numbered(4), "ids": [0] * 4, "cap": 2, name: value})


@pytest.mark.parametrize(("name", "value"), [("size", 0), ("dataset", iter([1]))])
def test_bad_arguments_of_groups_are_refused_by_name(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is"):
        Groups(**{"dataset": numbered(4), "size": 2, name: value})
