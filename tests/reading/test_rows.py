import os
import random
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate

from privet._utils.randomness import Seeds
from privet.collate import Padded
from privet.errors import InvalidArgumentError
from privet.noise import FixedSource
from privet.reading.batches import UNREADABLE, split
from privet.reading.rows import ExampleReader, build_table, join_rows, physical_batches, ungroup
from privet.units import Groups

SEED = Seeds(bytes(range(100, 132)), start=3)


class Listed(Dataset):
    """Items with a record of calls; requests for several at once are refused."""

    def __init__(self, items):
        self.items = list(items)
        self.asked = []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        assert type(index) is int
        self.asked.append(index)
        return self.items[index]

    def __getitems__(self, indices):
        raise AssertionError("several at once")


class Noisy(Listed):
    def __getitem__(self, index):
        return super().__getitem__(index), torch.rand(2), random.random(), np.random.rand()


def same(one, other):
    leaves, others = torch.utils._pytree.tree_leaves(one), torch.utils._pytree.tree_leaves(other)
    assert torch.utils._pytree.tree_structure(one) == torch.utils._pytree.tree_structure(other)
    for mine, theirs in zip(leaves, others, strict=True):
        assert torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else mine == theirs


def test_items_are_asked_for_and_collated_one_at_a_time():
    data, sizes = Listed([(torch.full((1 + i % 3,), float(i)), i) for i in range(12)]), []

    def collate(items):
        sizes.append(len(items))
        return {"x": pad_sequence([x for x, _ in items], batch_first=True), "y": torch.tensor([y for _, y in items])}

    indices = np.array([5, 0, 7, 2, 3])
    groups = ExampleReader(data, collate).read(indices)
    assert data.asked == indices.tolist()
    assert sizes == [1] * 5
    assert [group.positions.tolist() for group in groups] == [[0, 3], [1, 4], [2]]
    for position, example in enumerate(ungroup(groups, 5)):
        same(example, collate([data.items[indices[position]]]))


FOUR = TensorDataset(torch.arange(4))


@pytest.mark.parametrize(("dataset", "collate", "runs"), [
    (FOUR, None, False), (FOUR, default_collate, True), (Subset(FOUR, [1]), None, False), (Listed([1]), None, True),
    (Groups(FOUR, 2), None, False), (Groups(Listed([1]), 2), None, True),
])  # fmt: skip
def test_seeds_are_needed_where_user_code_runs(dataset, collate, runs):
    assert ExampleReader(dataset, collate).runs_user_code == runs


def test_without_collate_an_example_is_what_default_collate_makes_of_it():
    data = Listed([{"x": np.full(3, i), "y": i, "z": (float(i), "a")} for i in range(4)])
    (group,) = ExampleReader(data).read(np.array([3, 1]))
    for position, index in enumerate([3, 1]):
        same(group.examples.get(position), default_collate([data.items[index]]))


def test_an_own_collate_is_used_also_for_tensor_data_sets():
    (group,) = ExampleReader(FOUR, lambda items: torch.tensor([[len(items)]])).read(np.array([1, 2, 3]))
    assert group.examples.leaves[0].tolist() == [[[1]]] * 3


def test_no_indices_give_no_groups():
    for data in (Listed([1]), FOUR):
        assert ExampleReader(data).read(np.arange(0)) == []
        (empty,) = split(np.arange(0), 1, 4)
        assert ExampleReader(data)[empty] == (empty, [])


def pads(items):
    return pad_sequence(items, batch_first=True)


def mixes(items):
    x = torch.stack([item[:1] for item in items])
    return (x + x.roll(1, 0)) / 2


def augments(items):
    return pads(items) + torch.rand(1) + random.random() + np.random.rand()


def writes_over(items):
    for item in items:
        item.sub_(items[-1].mean())
    return pads(items)


class Fresh(Listed):
    def __getitem__(self, index):
        return super().__getitem__(index).clone()


class Overwriting(Listed):
    """Returns the same tensor for all indices, with new content each time."""

    def __init__(self, items):
        super().__init__(items)
        self.held = torch.zeros(1)

    def __getitem__(self, index):
        return self.held.fill_(float(super().__getitem__(index).sum()))


def lengths():
    return st.lists(st.integers(1, 5), min_size=1, max_size=8)


COLLATES = [pads, mixes, augments, writes_over, Padded(4)]


@given(lengths(), lengths(), st.sampled_from(COLLATES), st.data())
@settings(max_examples=60)
def test_the_view_of_an_example_does_not_depend_on_other_examples(mine, others, collate, data):
    """Whatever collate does to its list, an example at a position is the same next to any others."""
    items = [torch.arange(1.0, length + 1) + number for number, length in enumerate(mine + others)]
    kind = data.draw(st.sampled_from([Fresh, Overwriting]))
    beside = data.draw(st.permutations(range(len(items))))[: len(items) - 1] or [0]
    index, position = data.draw(st.integers(0, len(items) - 1)), data.draw(st.integers(0, len(beside)))
    drawn = [*beside[:position], index, *beside[position:]]
    alone = [data.draw(st.integers(0, len(items) - 1))] * position + [index]
    found, expected = (ExampleReader(kind(items), collate).examples(np.array(some), SEED)[position] for some in (drawn, alone))
    assert (found is UNREADABLE) == (expected is UNREADABLE)
    if found is not UNREADABLE:
        same(found, expected)


def test_failing_examples_are_dropped_and_positions_stay():
    data = Listed([(torch.ones(2), -1 if i in (1, 4) else i) for i in range(6)])

    def collate(items):
        return default_collate([item for item in items if item[1] >= 0])

    (group,) = ExampleReader(data, collate).read(np.arange(6))
    assert group.positions.tolist() == [0, 2, 3, 5]
    assert group.examples.leaves[1][:, 0].tolist() == [0, 2, 3, 5]
    assert ExampleReader(data, collate).read(np.array([1, 4])) == []
    with pytest.raises(IndexError):
        ExampleReader(data, collate).read(np.arange(6), strict=True)


def test_randomness_is_of_the_seed_and_the_position_alone():
    rows = ExampleReader(Noisy(range(9)))
    one, other = rows.examples(np.array([3, 5, 7]), SEED), rows.examples(np.array([1, 5]), SEED)
    same(one[1], other[1])
    values = [leaf.sum().item() for example in one for leaf in example[1:]]
    assert len(set(values)) == len(values)
    broken = Noisy(range(9))
    broken.items[3] = object()  # default_collate refuses it after random numbers were drawn
    rest = ExampleReader(broken).examples(np.array([3, 5, 7]), SEED)
    assert rest[0] is UNREADABLE
    same(rest[1:], one[1:])
    again = rows.examples(np.array([3, 5, 7]))
    assert not {leaf.sum().item() for example in again for leaf in example[1:]} & set(values)


def test_random_numbers_do_not_depend_on_the_size_of_the_physical_batches():
    draw, data = np.array([3, 1, 4, 5, 2]), Noisy(range(9))

    def read(size):
        parts = split(draw, 0, size, FixedSource().words)
        return [example for part in parts for example in ExampleReader(data).examples(part.indices, part.seeds)]

    for one, *others in zip(read(5), read(1), read(2), strict=True):
        for other in others:
            same(one, other)


class Seeding(Noisy):
    def __getitem__(self, index):
        if index % 2:
            torch.manual_seed(0), random.seed(0), np.random.seed(0)
        return super().__getitem__(index)


def test_a_users_seeds_repeat_and_shift_nothing():
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    one = ExampleReader(Seeding(range(4))).examples(np.arange(4), SEED)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    assert torch.equal(state[0], torch.get_rng_state())
    assert state[1:] == (random.getstate(), np.random.get_state()[1].tolist())
    torch.manual_seed(9), random.seed(9), np.random.seed(9)
    other = ExampleReader(Noisy(range(4))).examples(np.arange(4), SEED)
    for number in (0, 2):
        same(one[number], other[number])
    first, second = (ExampleReader(Noisy(range(4))).examples(np.arange(4)) for _ in range(2))
    assert not torch.equal(first[0][1], second[0][1])


def content(reading):
    return [(batch.part, batch.seeds, [(g.positions.tolist(), g.examples) for g in groups]) for batch, groups in reading]


@pytest.mark.parametrize("collate", [None, Padded(2)])
def test_worker_processes_read_the_same_in_the_same_order(collate):
    data = Noisy([torch.arange(1.0 + number % 4) for number in range(10)])
    data.items[7] = object()
    words = FixedSource().words
    draws = [np.arange(5), np.arange(0), np.array([7, 9, 1])]
    wanted = [part for number, draw in enumerate(draws) for part in split(draw, number, 2, words)]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    here, there = (content(physical_batches(ExampleReader(data, collate), wanted, workers)) for workers in (0, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert [entry[:2] for entry in here] == [entry[:2] for entry in there]
    for (*_, mine), (*_, theirs) in zip(here, there, strict=True):
        assert [positions for positions, _ in mine] == [positions for positions, _ in theirs]
        for (_, one), (_, other) in zip(mine, theirs, strict=True):
            assert (one.tree, one.own, one.count) == (other.tree, other.own, other.count)
            assert all(map(torch.equal, one.leaves, other.leaves))
    assert here[3][2] == []


def test_many_shapes_from_a_worker_need_few_files():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    data = Listed([torch.zeros(number + 1) for number in range(400)])
    highest = max(map(int, os.listdir("/dev/fd")))  # other tests of this process may have files open
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 100, hard))
    try:
        ((_, groups),) = physical_batches(ExampleReader(data), list(split(np.arange(400), 0, 400)), workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(groups) == 400


def test_a_plain_batch_is_made_of_examples_of_one_shape():
    data = Listed([(torch.full((1 + i // 3,), float(i)), i) for i in range(6)])
    x, y = ExampleReader(data).batch(np.array([2, 0]))
    assert (x.tolist(), y.tolist()) == ([[2.0], [0.0]], [2, 0])
    with pytest.raises(InvalidArgumentError, match=r"several shapes.*Padded"):
        ExampleReader(data).batch(np.array([2, 4]))
    table = torch.eye(3)
    x, shared, note = join_rows([(torch.ones(1, 2), table, "a"), (torch.ones(1, 2), table.clone(), "a")])
    assert (x.shape, shared.shape, note) == ((2, 2), (3, 3), "a")
    with pytest.raises(InvalidArgumentError, match="same for every example"):
        join_rows([torch.eye(3), 2 * torch.eye(3)])


class Reusing(Listed):
    """Returns one object for all examples, refilled each time."""

    holder = types.SimpleNamespace(x=None)

    def __getitem__(self, index):
        self.holder.x = super().__getitem__(index)
        return self.holder


def test_an_object_that_is_filled_anew_is_each_examples_own():
    examples = ExampleReader(Reusing([1.0, 2.0, 3.0]), lambda items: (torch.zeros(1), items[0])).examples(np.arange(3))
    assert [holder.x for _, holder in examples] == [1.0, 2.0, 3.0]


def test_a_list_that_a_loop_shuffles_keeps_its_examples():
    items = [torch.tensor(float(number)) for number in range(6)]
    reader = ExampleReader(items)
    items.reverse()
    items.append(torch.tensor(7.0))
    assert [float(x) for x in reader.examples(np.arange(6))] == [0, 1, 2, 3, 4, 5]


# ---- data sets of plain tensors, which are sliced as a whole


def numbered(start, examples, width=2):
    numbers = torch.arange(1.0 * start * width, (start + examples) * width).view(-1, width)
    return TensorDataset(torch.arange(start, start + examples), numbers)


PARTS = [numbered(0, 5), numbered(5, 3), Subset(numbered(0, 9), [4, -1, 2])]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4), st.data())
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


def test_slices_are_copies_without_gradients_and_a_plain_data_set_keeps_its_tuple():
    (group,) = ExampleReader(numbered(0, 9)).read(np.array([3, 1]))
    one = group.examples.get(0)
    assert isinstance(one, tuple)
    assert [leaf.tolist() for leaf in one] == [[3], [[6.0, 7.0]]]
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


OWN_READS = [
    Own(torch.arange(4)), OwnSubset(FOUR, range(4)), Subset(Own(torch.arange(4)), range(4)),
    ConcatDataset([numbered(0, 4), Listed(range(4))]), TensorDataset(torch.eye(4).to_sparse()),
    TensorDataset(torch.ones(4).as_subclass(type("Named", (torch.Tensor,), {}))), Subset(numbered(0, 4), ["a", "b"]),
    ConcatDataset([TensorDataset(torch.arange(2)), numbered(0, 4)]), ConcatDataset([numbered(0, 4), numbered(0, 4, width=3)]),
    list(range(4)),
]  # fmt: skip


def test_data_sets_that_override_reading_are_read_one_by_one():
    assert not [dataset for dataset in OWN_READS if build_table(dataset) is not None]
    (group,) = ExampleReader(OwnSubset(FOUR, [3, 1])).read(np.array([0, 1]))
    assert group.examples.leaves[0].tolist() == [[4], [2]]
