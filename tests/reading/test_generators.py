"""Generators that a data set or `collate` holds give each example numbers of its own, and are as before afterwards."""

import functools
import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import privet
from privet._utils.randomness import Seeds
from privet.reading.rows import ExampleReader

KEY = Seeds(bytes(range(32)))


class Augmented(Dataset):
    def __init__(self, hold, draw):
        self.held, self._draw = hold, draw

    def __len__(self):
        return 9

    def __getitem__(self, index):
        return torch.tensor(float(self._draw(self.held)))


def _torch():
    return torch.Generator().manual_seed(42)


def _uniform(generator):
    return torch.rand((), generator=generator)


# How to make what a data set holds, and how to draw from it.
HELD = {
    "torch": (_torch, _uniform),
    "numpy": (lambda: np.random.default_rng(42), lambda g: g.random()),
    "numpy's mt19937": (lambda: np.random.Generator(np.random.MT19937(42)), lambda g: g.random()),
    "numpy's old": (lambda: np.random.RandomState(42), lambda g: g.uniform()),
    "python": (lambda: random.Random(42), lambda g: g.random()),
    "in a list": (lambda: [_torch()], lambda held: _uniform(held[0])),
    "in a partial": (lambda: functools.partial(_uniform, _torch()), lambda held: held()),
    "in a closure": (lambda: (lambda g: lambda: _uniform(g))(_torch()), lambda held: held()),
    "in an object": (lambda: Augmented({"a": _torch()}, None), lambda held: _uniform(held.held["a"])),
}


@pytest.mark.parametrize(("make", "draw"), HELD.values(), ids=list(HELD))
def test_an_examples_numbers_depend_on_its_seed_alone(make, draw):
    held = make()
    reader = ExampleReader(Augmented(held, draw), None)
    first = float(draw(held))
    whole = [float(x) for x in reader.examples(np.arange(6), KEY)]
    assert len(set(whole)) == 6
    later = [float(x) for x in reader.examples(np.arange(2, 5), KEY.after(2))]
    assert later == whole[2:5]
    assert first not in whole
    reader.check_repeatable([0, 1])


@pytest.mark.parametrize(("make", "draw"), HELD.values(), ids=list(HELD))
def test_the_users_generator_goes_on_as_if_nothing_had_been_read(make, draw):
    held, untouched = make(), make()
    reader = ExampleReader(Augmented(held, draw), None)
    for _ in range(3):
        reader.examples(np.arange(3))
        assert float(draw(held)) == float(draw(untouched))


class Lazy(Augmented):
    """Creates its generator when it is first asked, as collators do."""

    def __init__(self):
        super().__init__(None, None)

    def __getitem__(self, index):
        self.held = self.held or _torch()
        return _uniform(self.held)


def test_a_generator_that_the_first_example_creates_is_found():
    data = Lazy()
    reader = ExampleReader(data, None)
    found = [float(x) for x in reader.examples(np.arange(5), KEY)]
    assert [float(x) for x in reader.examples(np.arange(5), KEY)][1:] == found[1:]
    assert float(_uniform(_torch())) == found[0]  # before it was known


def test_two_generators_of_a_kind_do_not_draw_the_same():
    reader = ExampleReader(Augmented([_torch(), _torch()], lambda held: _uniform(held[0]) - _uniform(held[1])), None)
    assert all(float(x) for x in reader.examples(np.arange(5)))


def test_units_of_several_examples_are_read_so_too():
    data = Augmented(_torch(), _uniform)
    users = privet.units.Users(data, ids=torch.arange(9) // 3, cap=3)
    reader = ExampleReader(users, None)
    one, other = (reader.read(np.arange(2), KEY) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a.examples.leaves, b.examples.leaves, strict=True):
            assert torch.equal(torch.as_tensor(x), torch.as_tensor(y))
