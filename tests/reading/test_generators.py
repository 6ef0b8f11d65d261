"""Generators that a data set or `collate` holds give each example numbers of its own, and are as before afterwards."""

import contextvars
import copy
import dataclasses
import functools
import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import privet
from privet._utils.randomness import Seeds
from privet.reading import generators
from privet.reading.batches import UNREADABLE, BatchDataset
from privet.reading.holders import explore
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


@dataclasses.dataclass(slots=True)
class Slotted:
    held: object


class Held:
    """Wraps, as a transform of a pipeline does."""

    def __init__(self, *held):
        self.held = held


class ByClass:
    held = None


class Seedless(random.Random):
    pass


OF_THE_FILE = None


def _set_global():
    global OF_THE_FILE
    OF_THE_FILE = _torch()
    return lambda: _uniform(OF_THE_FILE)


def _set_attribute():
    ByClass.held = np.random.default_rng(42)
    return ByClass()


def _nest(generator):
    for _ in range(9):
        generator = Held(None, generator)
    return generator


def _dig(held):
    while isinstance(held, Held):
        held = held.held[-1]
    return _uniform(held)


def _cache():
    cached = functools.cache(lambda _: _torch())
    cached(0)
    return cached


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = _torch()

    def forward(self):
        return _uniform(self.generator)


class Labelled(np.random.Generator):
    pass


def _set_variable():
    variable = contextvars.ContextVar("variable")
    variable.set(_torch())
    return variable


def _spawn(held):
    return np.random.default_rng(held.spawn(1)[0]).random()


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
    "in a slot": (lambda: Slotted(_torch()), lambda held: _uniform(held.held)),
    "deep inside": (lambda: _nest(_torch()), _dig),
    "in a class": (_set_attribute, lambda held: held.held.random()),
    "in a file": (_set_global, lambda held: held()),
    "in a default": (lambda: lambda g=_torch(): _uniform(g), lambda held: held()),  # noqa: B008
    "in a module": (lambda: nn.Sequential(nn.Identity(), Shift()), lambda held: held[1]()),
    "a method of one": (lambda: np.random.default_rng(42).random, lambda held: held()),
    "of a subclass": (lambda: Seedless(42), lambda held: held.random()),
    "the bits of one": (lambda: np.random.PCG64(42), lambda held: np.random.Generator(held).random()),
    "in a long list": (lambda: [_torch(), *range(2000)], lambda held: _uniform(held[0])),
    "the last of many": (lambda: [np.random.default_rng(c) for c in range(100)], lambda held: held[99].random()),
    "in the last of many": (lambda: [Held(_torch()) for _ in range(1500)], lambda held: _dig(held[1499])),
    "in a table": (lambda: {c: (Slotted(_torch()), c) for c in range(100)}, lambda held: _uniform(held[99][0].held)),
    "of a cached function": (_cache, lambda held: _uniform(held(0))),
    "numpy's old with new bits": (lambda: np.random.RandomState(np.random.PCG64(42)), lambda g: g.normal()),
    "in an array": (lambda: np.array([None, _torch()], dtype=object), lambda held: _uniform(held[1])),
    "in a context": (_set_variable, lambda held: _uniform(held.get())),
    "of numpy's subclass": (lambda: Labelled(np.random.PCG64(42)), lambda held: held.random()),
    "children of numpy's": (lambda: np.random.default_rng(42), lambda held: held.spawn(1)[0].random()),
    "children of a sequence": (lambda: np.random.SeedSequence(42), _spawn),
    "children of a child": (lambda: np.random.SeedSequence([4, 2], pool_size=8).spawn(2)[1], _spawn),
    "children of old bits": (
        lambda: np.random.RandomState(np.random.PCG64(42)),
        lambda held: _spawn(held._bit_generator.seed_seq),
    ),
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


# Those of a class or a file are one, whoever reads.
APART = {name: each for name, each in HELD.items() if name not in ("in a class", "in a file")}


@pytest.mark.parametrize(("make", "draw"), APART.values(), ids=list(APART))
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
    assert [float(x) for x in reader.examples(np.arange(5), KEY)] == found
    assert float(_uniform(_torch())) != found[0]


def test_two_generators_of_a_kind_do_not_draw_the_same():
    reader = ExampleReader(Augmented([_torch(), _torch()], lambda held: _uniform(held[0]) - _uniform(held[1])), None)
    assert all(float(x) for x in reader.examples(np.arange(5)))


def test_generators_that_share_a_sequence_leave_it_as_it_was():
    shared = np.random.SeedSequence(42)
    data = Augmented([np.random.Generator(kind(shared)) for kind in (np.random.PCG64, np.random.Philox)], lambda held: 0.0)
    before, state = str(shared), shared.generate_state(4).tolist()
    ExampleReader(data, None).examples(np.arange(4))
    assert str(shared) == before
    assert shared.generate_state(4).tolist() == state


def test_what_is_derived_from_the_entropy_of_a_sequence_stays_the_users():
    def draw(held):
        return np.random.default_rng(np.random.SeedSequence(held.entropy, spawn_key=(3,))).random()

    held = np.random.SeedSequence(42)
    found = ExampleReader(Augmented(held, draw), None).examples(np.arange(4))
    assert {float(x) for x in found} == {float(torch.tensor(draw(held)))}


def test_an_unreadable_example_shifts_no_children():
    class Failing(Augmented):
        def __getitem__(self, index):
            if index == 1 and self.fails:
                raise ValueError("unreadable")
            return super().__getitem__(index)

    found = []
    for fails in (False, True):
        data = Failing(np.random.default_rng(42), lambda held: held.spawn(1)[0].random())
        data.fails = fails
        found.append(ExampleReader(data, None).examples(np.arange(4), KEY))
    assert found[1][1] is UNREADABLE
    assert [float(x) for x in found[0][2:]] == [float(x) for x in found[1][2:]]


def test_units_of_several_examples_are_read_so_too():
    data = Augmented(_torch(), _uniform)
    users = privet.units.Users(data, ids=torch.arange(9) // 3, cap=3)
    reader = ExampleReader(users, None)
    one, other = (reader.read(np.arange(2), KEY) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a.examples.leaves, b.examples.leaves, strict=True):
            assert torch.equal(torch.as_tensor(x), torch.as_tensor(y))


@pytest.mark.parametrize("hold", [lambda g: g, lambda g: Held(Held(g)), lambda g: [0, g]], ids=["bare", "inside", "listed"])
def test_a_generator_that_is_replaced_between_batches_is_found(hold):
    def draw(held):
        while isinstance(held, Held | list):
            held = held.held[-1] if isinstance(held, Held) else held[-1]
        return held.random()

    data = Augmented(hold(np.random.default_rng(0)), draw)
    reader = ExampleReader(data, None)
    before = [reader.examples(np.arange(4), KEY) for _ in range(5)][-1]
    inner = data
    while isinstance(inner.held, Held):
        inner = inner.held
    new = np.random.default_rng(1)
    if isinstance(inner.held, list):
        inner.held[-1] = new
    else:
        inner.held = (new,) if isinstance(inner, Held) else new
    assert [float(x) for x in reader.examples(np.arange(4), KEY)] == [float(x) for x in before]
    assert new.random() == np.random.default_rng(1).random()


def test_generators_are_looked_for_everywhere_in_few_reads(monkeypatch):
    looked = []
    monkeypatch.setattr(generators, "explore", lambda *roots: looked.append(roots) or explore(*roots))
    reader = ExampleReader(Augmented(None, lambda held: 0.0), None)
    for _ in range(100):
        reader.examples(np.arange(4))
    assert len(looked) == 7


def test_the_systems_numbers_and_the_global_generators_are_left_alone():
    held = [random.SystemRandom(), random._inst, random.random, torch.default_generator, np.random.mtrand._rand]
    reader = ExampleReader(Augmented(held, lambda held: held[0].random()), None)
    found = {float(x) for _ in range(2) for x in reader.examples(np.arange(4), KEY)}
    assert len(found) == 8


class Told(BatchDataset):
    """Reads by itself, with a generator of its own."""

    def __init__(self):
        self.held = _torch()

    def __len__(self):
        return 9

    def read(self, indices):
        return torch.rand(len(indices), generator=self.held)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_copy_of_a_data_set_has_generators_of_its_own(duplicate):
    data = Told()
    first = [float(x) for x in ExampleReader(data, None).examples(np.arange(4), KEY)]
    other = duplicate(data)
    other.held = _torch()
    assert [float(x) for x in ExampleReader(other, None).examples(np.arange(4), KEY)] == first
    assert float(_uniform(other.held)) == float(_uniform(_torch()))


def _in_a_dict():
    held = {}
    return held, lambda: held.setdefault(99, _torch()) if 99 not in held else held[99]


def _in_a_list():
    held = [None] * 100

    def get():
        held[99] = held[99] or _torch()
        return held[99]

    return held, get


def _in_one_of_many():
    held = [Slotted(None) for _ in range(100)]

    def get():
        held[99].held = held[99].held or _torch()
        return held[99].held

    return held, get


def _in_a_new_object():
    held = Held()

    def get():
        if not hasattr(held, "inner"):
            held.inner = {"deep": [Held(_torch())]}
        return held.inner["deep"][0].held[0]

    return held, get


def _in_a_closure():
    generator = None

    def get():
        nonlocal generator
        generator = generator or _torch()
        return generator

    return get, get


def _in_a_cache(size):
    @functools.lru_cache(size)
    def make(number):
        return _torch()

    return make, lambda: make(99)


def _at_the_end_of_a_long_list():
    held = list(range(5000))

    def get():
        if len(held) == 5000:
            held.append(_torch())
        return held[-1]

    return held, get


def _in_a_long_table():
    held = dict.fromkeys(range(5000))
    return held, lambda: held.setdefault("it", _torch()) if "it" not in held else held["it"]


LATER = {
    "in a dict": _in_a_dict,
    "in a list": _in_a_list,
    "in one of many objects": _in_one_of_many,
    "in a new object": _in_a_new_object,
    "in a closure": _in_a_closure,
    "in a cache": lambda: _in_a_cache(None),
    "in a cache of limited size": lambda: _in_a_cache(9),
    "at the end of a long list": _at_the_end_of_a_long_list,
    "in a long table": _in_a_long_table,
}


class Later(Augmented):
    """Examples from the fourth on use a generator that the first of these creates."""

    def __init__(self, make):
        self.held, self.get = make()

    def __getitem__(self, index):
        return torch.tensor(0.0) if index < 3 else _uniform(self.get())


@pytest.mark.parametrize("make", LATER.values(), ids=list(LATER))
def test_it_does_not_matter_which_example_creates_a_generator(make):
    whole = [float(x) for x in ExampleReader(Later(make), None).examples(np.arange(9), KEY)]
    assert len(set(whole[3:])) == 6
    later = [float(x) for x in ExampleReader(Later(make), None).examples(np.arange(5, 9), KEY.after(5))]
    assert later == whole[5:]


def test_an_example_that_creates_a_generator_and_fails_is_read_again():
    class Failing(Later):
        def __getitem__(self, index):
            drawn = super().__getitem__(index)
            if index == 3:
                raise ValueError("unreadable")
            return drawn

    whole = ExampleReader(Failing(_in_a_dict), None).examples(np.arange(9), KEY)
    assert whole[3] is UNREADABLE
    later = [float(x) for x in ExampleReader(Later(_in_a_dict), None).examples(np.arange(5, 9), KEY.after(5))]
    assert [float(x) for x in whole[5:]] == later


def test_generators_that_each_example_replaces_do_not_accumulate():
    class Replacing(Augmented):
        def __getitem__(self, index):
            self.reads = (*self.reads, index)
            self.held = np.random.default_rng(index)
            return torch.tensor(self.held.random())

    data = Replacing(None, None)
    data.reads = ()
    reader = ExampleReader(data, None)
    found = [float(x) for x in reader.examples(np.arange(9), KEY)]
    assert found == [float(torch.tensor(np.random.default_rng(index).random())) for index in range(9)]
    assert len(data.reads) <= 18
    assert len(reader._own.found) <= 2


def test_a_data_set_that_counts_is_not_searched_for_each_example(monkeypatch):
    class Counting(Augmented):
        def __getitem__(self, index):
            self.held += 1
            self.cache[index] = torch.zeros(()), index
            return torch.tensor(0.0)

    looked, plain = [], generators.OwnGenerators._look_everywhere
    monkeypatch.setattr(generators.OwnGenerators, "_look_everywhere", lambda own: looked.append(own) or plain(own))
    data = Counting(1000, None)
    data.cache = {}
    ExampleReader(data, None).examples(np.arange(9))
    assert len(looked) == 1
