"""What objects hold, and whether it has changed: replaced values, grown containers, results of cached functions."""

import contextvars
import functools
import itertools
import operator
import random
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from privet.reading.holders import Watch, explore


class Slotted:
    __slots__ = ("value",)


def generators(*roots):
    return {id(generator) for generator, _ in explore(roots).generators.values()}


def parts(generator):
    bits = generator.bit_generator
    return {id(bits), id(bits.seed_seq)}


def test_of_a_numpy_generator_its_bits_and_their_origin_are_found_and_global_ones_are_not():
    own = np.random.default_rng(0)
    assert generators({"own": own, "global": random._inst, "torch": torch.default_generator}) == parts(own)


def test_a_subclass_of_numpys_generator_is_found_with_what_it_holds():
    class Labelled(np.random.Generator):
        @property
        def bit_generator(self):
            raise AssertionError("a method of the user's is called")

    own, inner = Labelled(np.random.PCG64(0)), random.Random(0)
    own.held = inner
    bits = np.random.Generator.bit_generator.__get__(own)
    assert generators(own) == {id(bits), id(bits.seed_seq), id(inner)}


RECORD = np.dtype([("x", float), ("inner", [("held", object, (2,))])])


def _in_an_array(value):
    return np.array([["text", value], [None, 1]], dtype=object)


def _in_a_scalar_array(value):
    return np.array(value, dtype=object)


def _in_a_record(value):
    table = np.zeros(3, RECORD)
    table["inner"]["held"][2, 1] = value
    return table


@pytest.mark.parametrize("hold", [_in_an_array, _in_a_scalar_array, _in_a_record])
def test_generators_in_arrays_of_objects_are_found(hold):
    own = random.Random(0)
    assert generators([np.zeros(3), hold(own)]) == {id(own)}


def _context(value):
    variable = contextvars.ContextVar("variable")
    variable.set(value)
    return variable


def _draw(value):
    while True:
        yield value.random()


ITERATORS = {
    "context": _context,
    "default of a context": lambda value: contextvars.ContextVar("variable", default=value),
    "generator function": _draw,
    "call": lambda value: iter(value.random, None),
    "map": lambda value: map(operator.methodcaller("random"), itertools.repeat(value)),
    "chain": lambda value: itertools.chain([0], [value]),
}


@pytest.mark.parametrize("hold", ITERATORS.values(), ids=list(ITERATORS))
def test_generators_in_variables_of_a_context_and_in_iterators_are_found(hold):
    own = random.Random(0)
    held = hold(own)
    assert generators([held, contextvars.ContextVar("empty")]) == {id(own)}


@pytest.mark.parametrize("size", [10, 1000, 5000, 20_000])
@pytest.mark.parametrize("kind", [list, tuple, deque, lambda items: dict(enumerate(items))])
def test_every_generator_of_a_container_is_found_however_long_it_is(kind, size):
    own = [random.Random(0) for _ in range(size)]
    assert generators(kind(own)) == set(map(id, own))


def test_generators_inside_of_many_objects_are_found_if_any_is():
    own = [SimpleNamespace(rng=random.Random(0)) for _ in range(3000)]
    assert generators(own) == {id(each.rng) for each in own}


def test_data_is_not_followed():
    explored = explore([{"x": torch.zeros(3), "y": np.zeros(3), "name": "text", "count": 3}])
    assert len(explored.seen) == 1


def _replace_attribute(root, value):
    root.inner.value = value


def _replace_slot(root, value):
    root.slotted.value = value


def _replace_item(root, value):
    root.items[1] = value


def _set_variable(root, value):
    root.variable.set(value)


def _put_in_array(root, value):
    root.array[1] = value


def _append(root, value):
    root.many.append(value)


def _call_cached(root, value):
    root.waiting.append(value)
    root.cached()


@pytest.mark.parametrize(
    "change", [_replace_attribute, _replace_slot, _replace_item, _set_variable, _put_in_array, _append, _call_cached]
)
def test_what_is_replaced_or_added_is_noticed_once(change):
    waiting = []
    slotted = Slotted()
    slotted.value = None
    root = SimpleNamespace(
        inner=SimpleNamespace(value=0), slotted=slotted, items=[1, 2, 3], many=[object() for _ in range(2000)],
        variable=contextvars.ContextVar("variable"), array=np.array([None, 1], dtype=object), waiting=waiting,
        cached=functools.cache(lambda: waiting.pop()),
    )  # fmt: skip
    watch = Watch(explore([root]).seen)
    assert watch.find_new() == []
    made = random.Random(0)
    change(root, made)
    assert made in watch.find_new()
    assert watch.find_new() == []
