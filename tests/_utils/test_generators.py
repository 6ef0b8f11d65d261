"""A generator that a data set, a transform or `collate` holds gives each example numbers of its own."""

import functools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

import privet
from plans import plan
from privet._utils.generators import find_generators, preserve_held, seed_held
from privet._utils.randomness import Seeds
from privet.reading.batches import UNREADABLE, BatchDataset
from privet.reading.rows import ExampleReader
from privet.training import training
from privet.units import Users

KEY = Seeds(bytes(range(32)))
RNG = np.random.default_rng(42)


class Augmented(Dataset):
    """Adds numbers drawn from what it holds."""

    def __init__(self, held, draw):
        self.held, self._draw = held, draw

    def __len__(self):
        return 9

    def __getitem__(self, index):
        return torch.tensor(float(self._draw(self.held)))


class OfTheFile(Augmented):
    def __init__(self):
        pass

    def __getitem__(self, index):
        return torch.tensor(RNG.random())


def made():
    return torch.Generator().manual_seed(42)


def uniform(generator):
    return torch.rand((), generator=generator)


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = made()

    def forward(self):
        return uniform(self.generator)


# Data sets of people who fix a seed.
HOLDING = {
    "torch": lambda: Augmented(made(), uniform),
    "numpy": lambda: Augmented(np.random.default_rng(42), lambda rng: rng.random()),
    "another kind of numpy's": lambda: Augmented(np.random.Generator(np.random.MT19937(42)), lambda rng: rng.random()),
    "numpy's old": lambda: Augmented(np.random.RandomState(42), lambda rng: rng.uniform()),
    "python": lambda: Augmented(random.Random(42), lambda rng: rng.random()),
    "a method": lambda: Augmented(np.random.default_rng(42).random, lambda draw: draw()),
    "in a list": lambda: Augmented([None, made()], lambda held: uniform(held[1])),
    "in a dict": lambda: Augmented({"flip": made()}, lambda held: uniform(held["flip"])),
    "in a partial": lambda: Augmented(functools.partial(uniform, generator=made()), lambda draw: draw()),
    "in a closure": lambda: Augmented((lambda rng: lambda: uniform(rng))(made()), lambda draw: draw()),
    "in a default": lambda: Augmented(lambda rng=made(): uniform(rng), lambda draw: draw()),  # noqa: B008
    "in a module": lambda: Augmented(nn.Sequential(nn.Identity(), Shift()), lambda held: held[1]()),
    "in a subset": lambda: Subset(Augmented(made(), uniform), range(9)),
    "in a file": OfTheFile,
}


@pytest.mark.parametrize("make", HOLDING.values(), ids=list(HOLDING))
def test_an_examples_numbers_depend_on_its_seed_alone(make):
    dataset = make()
    first = float(dataset[0])
    reader = ExampleReader(dataset)
    whole = [float(x) for x in reader.examples(np.arange(6), KEY)]
    assert len(set(whole)) == 6
    assert [float(x) for x in reader.examples(np.arange(2, 5), KEY.after(2))] == whole[2:5]
    assert first not in whole


def test_a_collate_that_holds_one_is_seeded_too():
    rng = np.random.default_rng(0)
    reader = ExampleReader(list(range(9)), lambda items: torch.tensor(items) + rng.random())
    whole = [float(x) for x in reader.examples(np.arange(6), KEY)]
    assert [float(x) for x in reader.examples(np.arange(2, 5), KEY.after(2))] == whole[2:5]


class Lazy(Augmented):
    """Creates its generator when it is first asked, as collators do."""

    def __init__(self):
        self.held = None

    def __getitem__(self, index):
        self.held = self.held or made()
        return uniform(self.held)


def test_a_generator_that_an_earlier_read_created_is_found():
    """The check before training reads the first examples."""
    reader = ExampleReader(Lazy())
    reader.examples(np.arange(1))
    found = [float(x) for x in reader.examples(np.arange(5), KEY)]
    assert [float(x) for x in reader.examples(np.arange(2, 5), KEY.after(2))] == found[2:]


def test_two_generators_of_a_kind_do_not_draw_the_same():
    reader = ExampleReader(Augmented([made(), made()], lambda held: uniform(held[0]) - uniform(held[1])))
    assert all(float(x) for x in reader.examples(np.arange(5)))


def test_an_unreadable_example_shifts_no_numbers():
    def failing(rng):
        if rng.random() < 0.5:
            raise ValueError("unreadable")
        return rng.random()

    whole, other = (
        ExampleReader(Augmented(np.random.default_rng(42), draw)).examples(np.arange(9), KEY)
        for draw in (lambda rng: (rng.random(), rng.random())[1], failing)
    )
    assert 0 < sum(x is UNREADABLE for x in other) < 9
    assert all(x is UNREADABLE or torch.equal(x, y) for x, y in zip(other, whole, strict=True))


class Told(BatchDataset):
    """Reads by itself, with a generator of its own."""

    def __init__(self):
        self.held = made()

    def __len__(self):
        return 9

    def read(self, indices):
        return torch.rand(len(indices), generator=self.held)


@pytest.mark.parametrize("dataset", [Told(), Users(Augmented(made(), uniform), torch.arange(9) // 3, 3)], ids=["own", "users"])
def test_data_sets_that_make_batches_are_seeded_too(dataset):
    one, other = (ExampleReader(dataset).read(np.arange(2), KEY) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one[0].examples.leaves, other[0].examples.leaves, strict=True))


def test_nothing_is_looked_for_among_the_examples():
    assert find_generators(Augmented([made() for _ in range(100)], None)) == []


def test_a_generator_on_a_module_is_seeded_for_every_step(monkeypatch):
    """Its own seed is public, and so would its numbers be."""
    model = nn.Sequential(nn.Linear(3, 1), Shift())
    model[1].forward = lambda x: x
    made = plan(examples=9, sampling=privet.sampling.FullBatch(), steps=2, delta=1e-3)
    optimizer, data = torch.optim.SGD(model.parameters(), lr=0.1), TensorDataset(torch.randn(9, 3))
    seen, compute = {model[1].generator.initial_seed()}, training.sum_gradients

    def sum_gradients(*arguments):
        seen.add(model[1].generator.initial_seed())
        return compute(*arguments)

    monkeypatch.setattr(training, "sum_gradients", sum_gradients)
    privet.Training(made, model, lambda m, b: m(b[0])[:, 0], optimizer, data).run()
    assert len(seen) == 3


@pytest.mark.parametrize(("make", "draw"), [
    (lambda: np.random.default_rng(0), lambda rng: float(rng.random())),
    (lambda: np.random.RandomState(0), lambda rng: float(rng.random_sample())),
    (lambda: random.Random(0), lambda rng: rng.random()),
    (lambda: torch.Generator().manual_seed(0), lambda rng: float(torch.rand((), generator=rng))),
])  # fmt: skip
def test_generators_are_as_before_after_they_were_lent(make, draw):
    rng = make()
    with preserve_held([rng]):
        seed_held([rng], 5)
        lent = draw(rng)
    assert draw(rng) == draw(make()) != lent
