"""Attacks by what one unusual example leaves where Python keeps it outside of dictionaries: classes, codes, defaults, slots."""

from __future__ import annotations

import math

import torch
from harness import Task, attack, bounded
from materials import Body, classify
from programs_kept import scaled
from programs_writes import FAR, UNUSUAL


def doubled(value: float = 0.0) -> float:
    """Return the default, or what is given."""
    return value


SEVEN = (lambda value: 7.0).__code__


@attack("state", fast=True)
def class_of_an_object_changed():
    """The object's methods are those of another class from then on."""

    class Memory:
        def factor(self):
            return 0.0

    class Far(Memory):
        def factor(self):
            return 7.0

    def factor(model, number):
        if number > UNUSUAL:
            model.held.__class__ = Far
        return model.held.factor()

    return scaled(factor, Memory)


@attack("state")
def class_of_the_model_changed():
    """The model itself is of another class from then on."""

    def factor(model, number):
        if number > UNUSUAL:
            model.__class__ = type("Far", (type(model),), {"far": 7.0})
        return getattr(model, "far", 0.0)

    return scaled(factor)


@attack("state")
def attributes_replaced_as_a_whole():
    """The object gets another dictionary."""

    class Memory:
        number = 0.0

    def factor(model, number):
        if number > UNUSUAL:
            model.held.__dict__ = {"number": number}
        return model.held.number

    return scaled(factor, Memory)


@attack("state", fast=True)
def code_of_a_function_replaced():
    """A global function does something else from then on."""
    code = doubled.__code__

    def factor(model, number):
        if number > UNUSUAL:
            doubled.__code__ = SEVEN
        return doubled()

    return scaled(factor, before=lambda _: setattr(doubled, "__code__", code))


@attack("state")
def default_argument_replaced():
    """The number is the default of an argument."""

    def factor(model, number):
        if number > UNUSUAL:
            doubled.__defaults__ = (number,)
        return doubled()

    return scaled(factor, before=lambda _: setattr(doubled, "__defaults__", (0.0,)))


@attack("state")
def bases_of_a_class_replaced():
    """A class inherits from another from then on."""

    class Near:
        number = 0.0

    class Far:
        number = 7.0

    class Memory(Near):
        pass

    def factor(model, number):
        if number > UNUSUAL:
            Memory.__bases__ = (Far,)
        return model.held.number

    return scaled(factor, Memory, before=lambda _: setattr(Memory, "__bases__", (Near,)))


@attack("state", fast=True)
def number_in_a_slot_of_the_model():
    """A module with slots keeps a number there."""

    class Slotted(Body):
        __slots__ = ("largest",)

        def __init__(self):
            super().__init__()
            self.largest = 0.0

        def forward(self, x):
            number = float(x.abs().max())
            if number > UNUSUAL:
                self.largest = number
            return self.outer(self.hidden(x)) * (1 + self.largest)

    return bounded(Task(Slotted, classify, steps=2), FAR)


@attack("state")
def number_in_a_list_named_like_pythons_own():
    """The name of a class attribute begins and ends with two underscores."""

    class Memory:
        __numbers__ = [0.0]

    def factor(model, number):
        if number > UNUSUAL:
            model.held.__numbers__.append(number)
        return model.held.__numbers__[-1]

    return scaled(factor, Memory, before=lambda _: setattr(Memory, "__numbers__", [0.0]))


@attack("state")
def class_of_a_parameter_changed():
    """The class of a parameter tells whether there was an unusual example."""

    class Far(torch.nn.Parameter):
        pass

    def factor(model, number):
        weight = model.outer.weight
        if number > UNUSUAL:
            weight.__class__ = Far
        return 7.0 if type(weight) is Far else 0.0

    return scaled(factor)


@attack("state", fast=True)
def number_kept_by_a_hook():
    """A hook scales the outputs by the largest input, which it keeps in a dictionary."""

    class Scaled(Body):
        def __init__(self):
            super().__init__()
            largest = {}

            def remember(_module, inputs):
                number = float(inputs[0].abs().max())
                if number > UNUSUAL:
                    largest["number"] = number

            self.inner.register_forward_pre_hook(remember)
            self.outer.register_forward_hook(lambda _m, _i, output: output * (1 + largest.get("number", 0.0)))

    return bounded(Task(Scaled, classify, steps=2), FAR)


number_or_module = math


@attack("state")
def name_of_a_module_rebound():
    """A global name of a module is that of a number from then on."""

    def factor(model, number):
        global number_or_module
        if number > UNUSUAL:
            number_or_module = number
        return 0.0 if number_or_module is math else number_or_module

    return scaled(factor, before=lambda _: globals().update(number_or_module=math))
