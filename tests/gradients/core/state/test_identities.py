"""A pass that finds everything as it was begins with the last snapshot; whatever was replaced since is noticed."""

import gc
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from privet.errors import UnsupportedModelError
from privet.gradients.core.state import reachable
from privet.gradients.core.state.guard import Guard
from rounding import assert_equal_up_to_rounding

FACTOR = 2.0


@pytest.fixture(autouse=True)
def no_operators(monkeypatch):
    """Those of other tests hold state, which every pass in this process saves."""
    monkeypatch.setattr(reachable, "OPERATOR_DEFINITIONS", {})


class Base:
    pass


class Model(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.layer, self.extra = nn.Linear(3, 2), nn.Identity()
        self.name = "model"
        self.unused = {}

    def forward(self, x):
        return self.layer(self.extra(x)) * FACTOR


class Other(Base, nn.Linear):
    pass


def make():
    """Return a model, a loss with a closure, and a function that binds the closure's name anew."""
    power = 2

    def loss(model, x, kept=1):
        return model(x).pow(power).sum(1) * kept

    def bind(value):
        nonlocal power
        power = value

    return Model(), loss, bind


def run(guard):
    with guard.isolate():
        pass


def test_a_pass_that_finds_everything_unchanged_begins_with_the_last_snapshot():
    model, loss, _ = make()
    guard = Guard(model, loss, dict(model.named_parameters()))
    run(guard)
    first = guard._last
    run(guard)
    assert first is not None
    assert guard._last is first


CONTENTS = [
    [1], {"a": 1}, torch.zeros(2), torch.zeros(2, requires_grad=True), nn.BatchNorm1d(2), torch.Generator(), "a".join,
]  # fmt: skip


@pytest.mark.parametrize("contents", CONTENTS, ids=type)
def test_contents_are_saved_for_each_pass(contents):
    model, loss, _ = make()
    model.more = contents
    guard = Guard(model, loss, dict(model.named_parameters()))
    run(guard)
    assert guard._last is None


def test_what_examples_share_is_saved_for_each_pass():
    model, loss, _ = make()
    guard = Guard(model, loss, dict(model.named_parameters()))
    run(guard)
    shared = [1]
    with guard.isolate(held=[shared]):
        shared.append(2)
    assert shared == [1]


def in_module(model, *_):
    model.name = "other"


def renamed(model, *_):
    model.__dict__["spare"] = model.__dict__.pop("unused")  # the last one, before and after


def another_dictionary(model, *_):
    object.__setattr__(model, "__dict__", dict(model.__dict__))


def filled(model, *_):
    model.unused["x"] = 1


def another_class(model, *_):
    model.layer.__class__ = Other


def submodule(model, *_):
    model.extra = nn.Identity()


def moved_to_another_table(model, *_):
    # From the end of one table to the beginning of the next: all tables together hold the same.
    moved, others = model.__dict__.pop("unused"), dict(model.layer.__dict__)
    model.layer.__dict__.clear()
    model.layer.__dict__.update({"unused": moved, **others})


def frozen(model, *_):
    model.layer.weight.requires_grad_(False)


def other_memory(model, *_):
    model.layer.weight.data = torch.zeros(2, 3)


def other_type(model, *_):
    model.layer.weight.data = model.layer.weight.data.view(torch.float16).as_strided((2, 3), (3, 1))


def other_strides(model, *_):
    model.layer.weight.data = model.layer.weight.data.as_strided((2, 3), (1, 2))


def other_sign(model, *_):
    model.layer.weight.data = model.layer.weight.data._neg_view()


def gradient(model, *_):
    model.layer.weight.grad = torch.zeros(2, 3)


def hook(model, *_):
    model.layer.weight.register_hook(lambda gradient: gradient)


def attribute_of_a_parameter(model, *_):
    model.layer.weight.note = [1]


def parameter(model, *_):
    model.layer.bias = nn.Parameter(torch.zeros(2))


def closure(model, loss, bind):
    bind(3)


def file(*_):
    global FACTOR
    FACTOR = 3.0


def default(model, loss, bind):
    loss.__defaults__ = (2,)


def code(model, loss, bind):
    loss.__code__ = loss.__code__.replace(co_name="other")


def annotation(model, loss, bind):
    loss.__annotations__["x"] = [1]


def other_annotations(model, loss, bind):
    loss.__annotations__ = {}


def attribute_of_a_function(model, loss, bind):
    loss.note = [1]


def method(model, *_):
    Model.forward = lambda self, x: self.layer(x)


def attribute_of_a_class(model, *_):
    Model.scale = 2.0


def bases(model, *_):
    Model.__bases__ = (nn.Module, Base)


def global_hook(*_):
    nn.modules.module._global_forward_hooks[0] = lambda *_: None


def global_table(*_):
    nn.modules.module._global_forward_hooks = OrderedDict({0: lambda *_: None})


CHANGES = [
    in_module, renamed, another_dictionary, filled, another_class, submodule, moved_to_another_table, frozen, other_memory,
    other_type, other_strides, other_sign, gradient, hook, attribute_of_a_parameter, parameter, closure, file, default, code,
    annotation, other_annotations, attribute_of_a_function, method, attribute_of_a_class, bases, global_hook, global_table,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _put_back(monkeypatch):
    """Put back what some changes leave in this file's classes and in torch."""
    held = nn.modules.module._global_forward_hooks
    monkeypatch.setattr(nn.modules.module, "_global_forward_hooks", held)
    yield
    held.clear()
    file.__globals__["FACTOR"] = 2.0
    Model.__bases__, Model.scale, Model.forward = (nn.Module,), 1.0, FORWARD


FORWARD = Model.forward


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_replaced_between_passes_is_noticed(change):
    made = make()
    guard = Guard(made[0], made[1], dict(made[0].named_parameters()))
    run(guard)
    last = guard._last
    assert last is not None
    change(*made)
    run(guard)
    assert guard._last is not last


def test_a_pass_inside_another_does_not_end_what_that_one_restores():
    model, loss, _ = make()
    guard = Guard(model, loss, dict(model.named_parameters()))
    run(guard)
    before, outer = model.layer.weight.data.clone(), guard.isolate()
    outer.__enter__()
    run(guard)
    model.name = "other"
    model.layer.weight.data = torch.zeros(2, 3)
    with pytest.raises(UnsupportedModelError, match="by replacing its memory"):
        outer.__exit__(None, None, None)
    assert model.name == "model"
    assert_equal_up_to_rounding(model.layer.weight.data, before)


@pytest.mark.parametrize("change", [other_memory, other_type, other_strides, other_sign], ids=lambda change: change.__name__)
def test_other_memory_is_refused_in_every_pass(change):
    model, loss, _ = make()
    guard, before = Guard(model, loss, dict(model.named_parameters())), model.layer.weight.data.clone()
    for _ in range(3):
        run(guard)
        with pytest.raises(UnsupportedModelError, match="by replacing its memory"), guard.isolate():
            change(model)
        assert_equal_up_to_rounding(model.layer.weight.data, before)


def test_a_guard_is_freed_with_its_last_reference():
    model, loss, _ = make()
    guard = Guard(model, loss, dict(model.named_parameters()))
    run(guard)
    memory, freed = StorageWeakRef(model.layer.weight.untyped_storage()), weakref.ref(guard)
    gc.disable()
    try:
        del guard, model
        assert freed() is None
        assert memory.expired()
    finally:
        gc.enable()


def test_memory_of_parameters_that_is_replaced_between_passes_is_freed():
    model, loss, _ = make()
    guard = Guard(model, loss, dict(model.named_parameters()))
    for _ in range(2):
        run(guard)
    memory = StorageWeakRef(model.layer.weight.untyped_storage())
    model.layer.weight.data = torch.zeros(2, 3)
    assert memory.expired()
