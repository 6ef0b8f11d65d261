"""Whose code a module or a class is: the user's, Python's, or that of an installed library."""

from __future__ import annotations

__all__ = ["find_user_classes", "is_of_library", "is_user_code", "is_user_function"]

import functools
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PYTHON = Path(os.__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}


@functools.cache
def is_user_code(name: str) -> bool:
    """Return whether the Python module of this name belongs neither to Python nor to an installed library."""
    package, place = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None)
    if package in ("__main__", "torch", "privet"):  # a notebook's or a launcher's main module may have any file
        return package == "__main__"
    if place is None:
        return package not in sys.stdlib_module_names
    return not Path(place).is_relative_to(_PYTHON) and _INSTALLED.isdisjoint(Path(place).parts)


def is_library_module(value: object) -> bool:
    """Return whether an object is a Python module that is not the user's."""
    return issubclass(type(value), types.ModuleType) and not is_user_code(str(vars(value).get("__name__", "")))


def is_user_function(function: types.FunctionType) -> bool:
    """Return whether a function is from user code, or wraps a function that is: `functools.wraps` copies the module's name."""
    return is_user_code(function.__globals__.get("__name__") or "") or is_user_code(function.__module__ or "")


def is_of_library(hook: Any) -> bool:
    """Return whether a hook is a function, or a method, of an installed library: what it records is the library's business."""
    while isinstance(hook, functools.partial | types.MethodType):
        hook = hook.func if isinstance(hook, functools.partial) else hook.__func__
    return isinstance(hook, types.FunctionType) and not is_user_function(hook)


def find_user_classes(kind: type) -> tuple[type, ...]:
    """Return a class, its bases and its metaclasses that are user code: defined neither in Python nor in an installed library."""
    bases = _read_bases(kind)
    found = _known.get(id(kind))
    if found is None or found[0] is not kind or found[1] is not bases:  # the bases can be changed
        if len(_known) >= _KNOWN:
            _known.clear()
        found = _known[id(kind)] = kind, bases, tuple(filter(_is_user_class, (*bases, *_read_bases(type(kind)))))
    return found[2]


_read_bases: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
_KNOWN = 1024  # most classes that are remembered
# By the class's id, as classes may be equal without being the same: the class, its bases, and what was found.
_known: dict[int, tuple[type, tuple[type, ...], tuple[type, ...]]] = {}


def _is_user_class(kind: type) -> bool:
    """Return whether a class, or a function in it, is from user code; generated functions are from no module."""
    functions = (value for value in vars(kind).values() if isinstance(value, types.FunctionType))
    written = (function for function in functions if function.__globals__.get("__name__") in sys.modules)
    place = str(kind.__module__)  # a descriptor, in a metaclass of Cython's
    return is_user_code(place) or any(map(is_user_function, written))
