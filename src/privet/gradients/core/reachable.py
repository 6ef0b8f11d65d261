"""Discovery of the modules, functions and classes that a model and a loss function use."""

from __future__ import annotations

__all__ = [
    "add_attributes",
    "collect_functions",
    "find_bindings",
    "find_functions",
    "find_modules",
    "find_reachable",
    "find_user_classes",
    "iter_methods",
]

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

_FUNCTIONS = 50  # most functions that are followed from one root


def find_modules(*roots: object) -> dict[str, nn.Module]:
    """Find the modules of a model, and those that a loss function reaches: itself, its closure, its globals.

    Args:
        roots: modules and functions.

    Returns:
        Name in the user's code → module, each module once.
    """
    found: dict[int, tuple[str, nn.Module]] = {}
    for root in roots:
        for name, value in find_reachable(root).items():
            if isinstance(value, nn.Module):
                for inner, module in value.named_modules():
                    found.setdefault(id(module), (".".join(filter(None, (name, inner))), module))
    return {f"{name}#{number}" if number else name: module for number, (name, module) in enumerate(found.values())}


def find_reachable(root: object) -> dict[str, Any]:
    """Find the objects that a function uses besides its arguments, by name; a module yields only itself."""
    if isinstance(root, nn.Module):
        return {"": root}
    if isinstance(root, functools.partial):
        values = {f"argument {number}": value for number, value in enumerate(root.args)} | dict(root.keywords)
        return {**add_attributes(values), **find_reachable(root.func)}
    if isinstance(root, types.MethodType):
        return {**add_attributes({"self": root.__self__}), **find_reachable(root.__func__)}
    if isinstance(root, types.FunctionType):
        return {name: value for function in find_functions(root) for name, (value, _) in find_bindings(function).items()}
    own = getattr(root, "__dict__", None)
    return add_attributes(dict(own)) if isinstance(own, dict) else {}


def add_attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, and the attributes of those that are not modules, tensors or functions."""
    found = dict(values)
    for value in values.values():
        own = getattr(value, "__dict__", None)
        plain = not isinstance(value, nn.Module | Tensor | type | types.ModuleType | types.FunctionType)
        if isinstance(own, dict) and plain:
            found |= {name: inner for name, inner in own.items() if name not in found}
    return found


def find_bindings(function: types.FunctionType) -> dict[str, tuple[Any, Callable[[Any], None]]]:
    """Return the free and global names of a function, each with its value and a function that rebinds it."""
    found: dict[str, tuple[Any, Callable[[Any], None]]] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            found[name] = cell.cell_contents, functools.partial(setattr, cell, "cell_contents")
    for name in function.__code__.co_names:
        if name in function.__globals__ and not isinstance(function.__globals__[name], types.ModuleType):
            found[name] = function.__globals__[name], functools.partial(function.__globals__.__setitem__, name)
    return found


def find_user_classes(kind: type) -> tuple[type, ...]:
    """Return a class and its bases that are user code: defined neither in Python nor in an installed library."""
    return tuple(each for each in kind.__mro__ if _is_user_code(each.__module__))


@functools.cache
def _is_user_code(name: str) -> bool:
    if name.partition(".")[0] in ("builtins", "torch", "privet"):
        return False
    place = getattr(sys.modules.get(name), "__file__", None)
    return place is None or not ("site-packages" in place or place.startswith(sys.base_prefix))


def iter_methods(kinds: Iterable[type]) -> Iterator[types.FunctionType]:
    """Yield the functions that classes define, including static methods and class methods."""
    for kind in kinds:
        for value in vars(kind).values():
            function = getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType):
                yield function


def collect_functions(roots: Iterable[object]) -> dict[int, types.FunctionType]:
    """Collect functions, and the functions of the same file or closure that they name, each once."""
    return {id(function): function for root in roots for function in find_functions(root)}


def find_functions(root: object) -> list[types.FunctionType]:
    """Find a function, and the functions of the same file or closure that it names, directly or indirectly."""
    found: dict[int, types.FunctionType] = {}
    waiting = [root]
    while waiting and len(found) < _FUNCTIONS:
        value = waiting.pop()
        while isinstance(value, functools.partial | types.MethodType):
            value = value.func if isinstance(value, functools.partial) else value.__func__
        if isinstance(value, types.FunctionType) and id(value) not in found:
            found[id(value)] = value
            own = value.__globals__
            waiting += [inner for inner, _ in find_bindings(value).values() if getattr(inner, "__globals__", own) is own]
    return list(found.values())
