"""What Python keeps outside of dictionaries is as before after every pass: classes, codes, defaults, names, bases, slots."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from privet.gradients import per_example_norms
from privet.gradients.core.state.guard import Guard


class Model(nn.Module):
    """Multiplies by a factor, which a program makes 2 for all examples but the first."""

    def __init__(self, factor):
        super().__init__()
        self.layer, self.factor = nn.Linear(3, 2), factor
        self.inner, self.held, self.partial = Inner(), Held(), functools.partial(text)

    def forward(self, x):
        return self.layer(x) * self.factor(self)


class Inner(nn.Module):
    __slots__ = ("slot",)

    def __init__(self):
        super().__init__()
        self.slot, self.plain = 1.0, 1.0

    def get(self):
        return 1.0


class OtherInner(Inner):
    def get(self):
        return 2.0


class Memory(nn.Module, list):
    """A module that is a list, too."""

    __hash__ = nn.Module.__hash__


class Held:
    number: float
    __memory__ = [1.0]  # named as Python's own attributes are

    def __init__(self):
        self.number = 1.0

    def __len__(self):
        return 1

    def get(self):
        return self.number

    @property
    def top(self):
        return 1.0

    @staticmethod
    def static():
        return 1.0

    @classmethod
    def of_class(cls):
        return 1.0


class OtherHeld(Held):
    def get(self):
        return 2.0


class Meta(type):
    number = 1.0


class OtherMeta(Meta):
    number = 2.0


class Derived(Inner, metaclass=Meta):
    pass


class Weight(nn.Parameter):
    pass


def text(value: float = 1.0, *, named: float = 1.0):
    return value * named


def two(value: float = 1.0, *, named: float = 1.0):
    return 2.0


def class_of_the_model(model):
    old = 1.0 if type(model) is Model else 2.0
    model.__class__ = Another
    return old


class Another(Model):
    pass


def dictionary_of_the_model(model):
    old = model.__dict__.get("number", 1.0)
    model.__dict__ = {**model.__dict__, "number": 2.0}
    return old


def class_of_a_submodule(model):
    old = model.inner.get()
    model.inner.__class__ = OtherInner
    return old


def slot_of_a_submodule(model):
    old, model.inner.slot = model.inner.slot, 2.0
    return old


def class_of_an_object(model):
    old = model.held.get()
    model.held.__class__ = OtherHeld
    return old


def dictionary_of_an_object(model):
    old = model.held.get()
    model.held.__dict__ = {"number": 2.0}
    return old


def class_of_a_parameter(model):
    old = 1.0 if type(model.layer.weight) is nn.Parameter else 2.0
    model.layer.weight.__class__ = Weight
    return old


def dictionary_of_a_parameter(model):
    old = model.layer.weight.__dict__.get("number", 1.0)
    model.layer.weight.__dict__ = {"number": 2.0}
    return old


def code(_):
    old = text()
    text.__code__ = two.__code__
    return old


def code_of_a_held_function(model):
    old = model.partial()
    model.partial.func.__code__ = two.__code__
    return old


def defaults(_):
    old = text()
    text.__defaults__ = (2.0,)
    return old


def named_defaults(_):
    old = text()
    text.__kwdefaults__ = {"named": 2.0}
    return old


def dictionary_of_a_function(_):
    old = text.__dict__.get("number", 1.0)
    text.__dict__ = {"number": 2.0}
    return old


def documentation(_):
    old = float(text.__doc__ or 1.0)
    text.__doc__ = "2.0"
    return old


def annotation(_):
    old = text.__annotations__.get("more", 1.0)
    text.__annotations__["more"] = 2.0
    return old


def annotations(_):
    old = text.__annotations__.get("more", 1.0)
    text.__annotations__ = {"more": 2.0}
    return old


def annotation_of_a_class(_):
    old = Held.__annotations__.get("more", 1.0)
    Held.__annotations__["more"] = 2.0
    return old


def list_named_like_pythons_own(model):
    model.held.__memory__.append(2.0)
    return model.held.__memory__[-2]


def method_named_like_pythons_own(model):
    old = float(len(model.held))
    Held.__len__ = lambda _: 2
    return old


def method_added(model):
    old = float(getattr(model.held, "__abs__", lambda: 1)())
    Held.__abs__ = lambda _: 2
    return old


def bases(_):
    old = Derived().get()
    Derived.__bases__ = (OtherInner,)
    return old


def name_of_a_class(_):
    old = 1.0 if Derived.__name__ == "Derived" else 2.0
    Derived.__name__ = "Other"
    return old


def metaclass(_):
    old = type(Derived).number
    Derived.__class__ = OtherMeta
    return old


def partial(model):
    old = model.partial()
    model.partial.__setstate__((two, (), {}, {}))
    return old


def getter(model):
    old = model.held.top
    vars(Held)["top"].__init__(lambda _: 2.0)
    return old


def static_method(model):
    old = model.held.static()
    vars(Held)["static"].__init__(two)
    return old


def class_method(model):
    old = model.held.of_class()
    vars(Held)["of_class"].__init__(lambda _: 2.0)
    return old


PROGRAMS = [
    annotation, annotation_of_a_class, annotations, bases, class_method, class_of_a_parameter, class_of_a_submodule,
    class_of_an_object, class_of_the_model, code, code_of_a_held_function, defaults, dictionary_of_a_function,
    dictionary_of_a_parameter, dictionary_of_an_object, dictionary_of_the_model, documentation, getter,
    list_named_like_pythons_own, metaclass, method_added, method_named_like_pythons_own, name_of_a_class, named_defaults, partial,
    slot_of_a_submodule, static_method,
]  # fmt: skip


def loss(model, x):
    return model(x).square().sum(1)


def norms(model, method):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    return per_example_norms(model, loss, x, method=method).tolist()


@pytest.mark.parametrize("method", ["loop", "ghost"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_an_example_does_not_meet_what_another_has_left(program, method):
    model = Model(lambda _: 1.0)
    expected = norms(model, method)
    model.factor = program
    assert norms(model, method) == pytest.approx(expected)
    assert type(model) is Model
    assert text.__annotations__ == {"value": float, "named": float}
    assert program(model) == 1.0  # the first use, so nothing was left
    assert program(model) == 2.0
    restore()


def restore():
    """Undo what the last two calls did to functions and classes of this file."""
    text.__code__, text.__defaults__, text.__kwdefaults__ = CODE, (1.0,), {"named": 1.0}
    text.__dict__, text.__doc__, text.__annotations__ = {}, None, {"value": float, "named": float}
    Derived.__bases__, Derived.__name__, Derived.__class__ = (Inner,), "Derived", Meta
    Held.__len__, Held.__memory__, Held.__annotations__ = LENGTH, [1.0], {"number": float}
    for name, value in DESCRIPTORS.items():
        setattr(Held, name, value())
    if "__abs__" in vars(Held):
        del Held.__abs__


CODE, LENGTH = text.__code__, Held.__len__
DESCRIPTORS = {
    "top": lambda: property(lambda _: 1.0),
    "static": lambda: staticmethod(lambda: 1.0),
    "of_class": lambda: classmethod(lambda _: 1.0),
}


@pytest.mark.parametrize("method", ["loop", "ghost"])
def test_items_of_a_module_that_is_a_list_are_restored(method):
    def factor(model):
        model.memory.append(2.0)
        return model.memory[-2]

    model = Model(lambda _: 1.0)
    expected = norms(model, method)
    model.memory, model.factor = Memory(), factor
    model.memory.append(1.0)
    assert norms(model, method) == pytest.approx(expected)
    assert list(model.memory) == [1.0]


KEPT = [1.0]


def test_code_that_is_replaced_between_passes_is_followed():
    """A function's names are those of the code that it has now."""

    def remembers(model, x):
        return KEPT[-1]

    def plain(model, x):
        return 1.0

    guard = Guard(Model(text), plain, {})
    for code in (plain.__code__, remembers.__code__):
        plain.__code__ = code
        with guard.isolate():
            KEPT.append(2.0)
    assert KEPT == [1.0, 2.0]  # named by the second code only


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_arguments_of_a_partial_function_and_flags_of_an_array_are_restored(method):
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    model.partial, model.array, model.fixed = functools.partial(dict, factor=1.0), np.ones(2), np.ones(2)
    model.fixed.flags.writeable = False

    def loss(m, x):
        y = m(x).sum(1) * m.partial()["factor"] * (1.0 if m.array.flags.writeable else 2.0)
        m.partial.keywords["factor"] = 2.0
        if m.array.flags.writeable:
            m.array[0] = 2.0
        m.array.flags.writeable = False
        m.fixed.flags.writeable = True
        m.fixed[0] = 2.0
        return y

    norms = per_example_norms(model, loss, x, method=method)
    alone = [per_example_norms(model, loss, x[i : i + 1], method=method).item() for i in range(4)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert model.partial() == {"factor": 1.0}
    assert model.array.flags.writeable
    assert model.array.tolist() == [1.0, 1.0]
    assert not model.fixed.flags.writeable
    assert model.fixed.tolist() == [1.0, 1.0]
