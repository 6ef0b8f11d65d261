"""Attributes that Python keeps outside of dictionaries: the class of an object, the code of a function, the bases of a class.

They are read and written without calling methods of the user's.
"""

from __future__ import annotations

__all__ = [
    "HELD_BY_DESCRIPTORS",
    "read_annotations",
    "read_class",
    "read_function",
    "read_kind",
    "restore_class",
    "restore_object",
    "save_builtin",
    "save_function_attributes",
    "save_kind_attributes",
    "save_partial",
]

import functools
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from privet.errors import USER_ERRORS
from privet.gradients.core.private import raise_interrupt
from privet.gradients.core.state.contents import is_same_table, restore_table
from privet.gradients.core.state.reachable import read_attributes
from privet.gradients.core.state.restoring import Restore

_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__dict__", "__name__", "__qualname__", "__doc__", "__module__")
_OF_CLASSES = ("__bases__", "__name__", "__qualname__", "__class__")
read_function: Callable[[Any], tuple[Any, ...]] = operator.attrgetter(*_OF_FUNCTIONS)
_set_class: Callable[[Any, type], None] = vars(object)["__class__"].__set__
_type: Any = type


def restore_object(value: Any, kind: type, own: dict[str, Any] | None) -> None:
    """Give an object the class and the dictionary of attributes that it had."""
    if type(value) is not kind:
        _set_class(value, kind)
    if own is not None and read_attributes(value) is not own:
        object.__setattr__(value, "__dict__", own)


def save_function_attributes(function: types.FunctionType) -> Restore:
    """Save a function's code, its defaults, its names, its documentation and its annotations."""
    before, annotations = read_function(function), read_annotations(function)
    kept = dict(annotations or {})

    def restore() -> None:
        if not all(map(operator.is_, read_function(function), before)):
            for name, old in zip(_OF_FUNCTIONS, before, strict=True):
                setattr(function, name, old)
        if annotations is None:
            return
        if read_annotations(function) is not annotations:
            function.__annotations__ = annotations
        if (annotations or kept) and not is_same_table(annotations, kept):
            restore_table(annotations, kept)

    return restore


def read_annotations(function: types.FunctionType) -> dict[str, Any] | None:
    """Return a function's annotations, which some versions of Python evaluate here; None if that fails."""
    try:
        return function.__annotations__
    except USER_ERRORS as error:
        raise_interrupt(error)
        return None


# Attributes of a class, also where its metaclass says otherwise.
read_class: Callable[[type], Mapping[str, Any]] = vars(type)["__dict__"].__get__


def read_kind(kind: type) -> list[Any]:
    """Return the bases, the names and the metaclass of a class."""
    return [_type.__getattribute__(kind, name) for name in _OF_CLASSES]


def save_kind_attributes(kind: type) -> Restore:
    """Save what `read_kind` returns."""
    before = read_kind(kind)

    def restore() -> None:
        for name, old in zip(_OF_CLASSES, before, strict=True):
            if _type.__getattribute__(kind, name) is not old:
                _type.__setattr__(kind, name, old)

    return restore


def restore_class(kind: type, before: Mapping[str, Any]) -> None:
    """Give a class the attributes that it had."""
    own = read_class(kind)
    if is_same_table(own, before):
        return
    for name in own.keys() - before.keys():
        _type.__delattr__(kind, name)
    for name, value in before.items():
        if name not in own or own[name] is not value:
            _type.__setattr__(kind, name, value)


def save_builtin(method: types.BuiltinMethodType) -> Restore:
    """Save the only attribute of a method written in C that can be set."""
    before: Any = method.__module__

    def restore() -> None:
        method.__module__ = before

    return restore


def save_partial(value: functools.partial[Any]) -> Restore:
    """Save what a partial function calls, and with which arguments."""
    before, named = (value.func, value.args, value.keywords), dict(value.keywords)

    def restore() -> None:
        if not all(map(operator.is_, (value.func, value.args, value.keywords), before)):
            value.__setstate__((*before, value.__dict__))  # type: ignore[attr-defined]
        restore_table(value.keywords, named)

    return restore


def _save_by_initialiser(kind: Any, names: Sequence[str]) -> Callable[[Any], Restore]:
    """Return a function that saves a descriptor of this kind, which its own initialiser can change."""
    members = [vars(kind)[name] for name in names]

    def read(value: Any) -> list[Any]:
        return [member.__get__(value) for member in members]

    def save(value: Any) -> Restore:
        before = read(value)

        def restore() -> None:
            if not all(map(operator.is_, read(value), before)):
                kind.__init__(value, *before)

        return restore

    return save


# Kinds of descriptors, and what saves the functions that they hold.
HELD_BY_DESCRIPTORS: dict[type, Callable[[Any], Restore]] = {
    property: _save_by_initialiser(property, ("fget", "fset", "fdel", "__doc__")),
    staticmethod: _save_by_initialiser(staticmethod, ("__func__",)),
    classmethod: _save_by_initialiser(classmethod, ("__func__",)),
}
