"""What user code reaches: the names that a function uses, the functions and modules behind them, and whose code it is."""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import nn

from privet.errors import UnsupportedModelError

MISSING = object()
# A name, its value, and where it is bound: the cell of a closure, or the globals of a file.
Binding = tuple[str, Any, types.CellType | dict[str, Any]]
# Objects that wrap functions without attributes of their own, and where they hold them.
_WRAPPERS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    types.MethodType: ("__self__", "__func__"),
    types.BuiltinMethodType: ("__self__",),
    property: ("fget", "fset"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}
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


def is_user_function(function: types.FunctionType) -> bool:
    """Return whether a function is from user code, or wraps a function that is: `functools.wraps` copies the module's name."""
    return is_user_code(function.__globals__.get("__name__") or "") or is_user_code(function.__module__ or "")


def find_user_classes(kind: type) -> tuple[type, ...]:
    """Return a class and its bases that are user code: defined neither in Python nor in an installed library."""
    return tuple(each for each in kind.__mro__ if is_user_code(str(each.__module__)))


def read_cell(cell: types.CellType) -> Any:
    """Return the value of a name of a closure, `MISSING` if it has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def read_bindings(function: types.FunctionType) -> list[Binding]:
    """Return the bindings of a function's names: in its closure, in its file, and in the user's modules that it names.

    The value is `MISSING` for a name that is not bound there: the function may bind it.
    """
    own, names = _list_names(function.__code__)
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found: list[Binding] = [(name, read_cell(cell), cell) for name, cell in pairs]
    found += [(name, function.__globals__.get(name, MISSING), function.__globals__) for name in own]
    modules = [value for _, value, _ in found] + [sys.modules.get(name) for name in own]
    known = {id(function.__globals__)}
    for module in modules:  # which grows: a module may name another
        if isinstance(module, types.ModuleType) and is_user_code(module.__name__) and id(vars(module)) not in known:
            known.add(id(vars(module)))
            found += [(name, vars(module).get(name, MISSING), vars(module)) for name in names]
            modules += [vars(module).get(name) for name in names]
    return found


@functools.lru_cache(maxsize=4096)
def _list_names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of globals in a function's code, with those in functions inside it, and all names, attributes included."""
    own = [step.argval for step in dis.get_instructions(code) if step.opname in _GLOBAL_NAMES]
    names = list(code.co_names)
    for inner in (_list_names(value) for value in code.co_consts if isinstance(value, types.CodeType)):
        own += inner[0]
        names += inner[1]
    return tuple(dict.fromkeys(own)), tuple(dict.fromkeys(names))


_GLOBAL_NAMES = {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "IMPORT_NAME"}


def list_parts(value: object) -> list[Any]:
    """Return what a partial, a method, a property or another wrapper of functions holds; nothing for other objects."""
    names = _WRAPPERS.get(type(value), ())
    return [getattr(value, name) for name in names]


def read_attributes(value: object) -> dict[str, Any]:
    """Return the dictionary of an object's attributes, an empty one if it has none."""
    own = getattr(value, "__dict__", None)
    return own if isinstance(own, dict) else {}


def refuse_scripts(module: nn.Module) -> None:
    """Refuse a module whose calls and state Python does not see."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            "the model or loss holds a TorchScript module, which hides its calls and its state, so that examples could not be "
            "kept apart; pass the module that it was made from"
        )
