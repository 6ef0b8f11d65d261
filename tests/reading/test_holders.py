"""What objects hold, and whether it has changed: replaced values, grown containers, results of cached functions."""

import functools
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


def test_of_a_numpy_generator_its_bits_are_found_and_global_ones_are_not():
    own = np.random.default_rng(0)
    assert generators({"own": own, "global": random._inst, "torch": torch.default_generator}) == {id(own.bit_generator)}


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


def _append(root, value):
    root.many.append(value)


def _call_cached(root, value):
    root.waiting.append(value)
    root.cached()


@pytest.mark.parametrize("change", [_replace_attribute, _replace_slot, _replace_item, _append, _call_cached])
def test_what_is_replaced_or_added_is_noticed_once(change):
    waiting = []
    slotted = Slotted()
    slotted.value = None
    root = SimpleNamespace(
        inner=SimpleNamespace(value=0), slotted=slotted, items=[1, 2, 3], many=[object() for _ in range(2000)],
        waiting=waiting, cached=functools.cache(lambda: waiting.pop()),
    )  # fmt: skip
    watch = Watch(explore([root]).seen)
    assert watch.find_new() == []
    made = random.Random(0)
    change(root, made)
    assert made in watch.find_new()
    assert watch.find_new() == []
