"""What user code can be seen to use: modules, functions and classes behind a model and a loss function."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

_FUNCTIONS = 50  # that a loss function may name


def modules_of(*roots: object) -> dict[str, nn.Module]:
    """Return the modules of a model, and those that a loss function can be seen to reach: itself, its closure, its globals.

    Args:
        roots: modules and functions.

    Returns:
        Names as the user knows them → modules, each once.
    """
    found: dict[int, tuple[str, nn.Module]] = {}
    for root in roots:
        for name, value in reachable(root).items():
            if isinstance(value, nn.Module):
                for inner, module in value.named_modules():
                    found.setdefault(id(module), (".".join(filter(None, (name, inner))), module))
    return {f"{name}#{number}" if number else name: module for number, (name, module) in enumerate(found.values())}


def reachable(root: object) -> dict[str, Any]:
    """Return what a function can be seen to use besides its arguments, by name; a module is just itself."""
    if isinstance(root, nn.Module):
        return {"": root}
    if isinstance(root, functools.partial):
        values = {f"argument {number}": value for number, value in enumerate(root.args)} | dict(root.keywords)
        return {**objects_of(values), **reachable(root.func)}
    if isinstance(root, types.MethodType):
        return {**objects_of({"self": root.__self__}), **reachable(root.__func__)}
    if isinstance(root, types.FunctionType):
        return {name: value for function in functions_of(root) for name, (value, _) in bindings_of(function).items()}
    own = getattr(root, "__dict__", None)
    return objects_of(dict(own)) if isinstance(own, dict) else {}


def objects_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, and the attributes of those that are neither modules nor tensors nor functions."""
    found = dict(values)
    for value in values.values():
        own = getattr(value, "__dict__", None)
        plain = not isinstance(value, nn.Module | Tensor | type | types.ModuleType | types.FunctionType)
        if isinstance(own, dict) and plain:
            found |= {name: inner for name, inner in own.items() if name not in found}
    return found


def bindings_of(function: types.FunctionType) -> dict[str, tuple[Any, Callable[[Any], None]]]:
    """Return the free and global names of a function, each with its value and what binds it again."""
    found: dict[str, tuple[Any, Callable[[Any], None]]] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            found[name] = cell.cell_contents, functools.partial(setattr, cell, "cell_contents")
    for name in function.__code__.co_names:
        if name in function.__globals__ and not isinstance(function.__globals__[name], types.ModuleType):
            found[name] = function.__globals__[name], functools.partial(function.__globals__.__setitem__, name)
    return found


def own_classes(kind: type) -> tuple[type, ...]:
    """Return a class and its bases as far as they are a user's: defined neither in Python nor in an installed library."""
    return tuple(each for each in kind.__mro__ if _is_users(each.__module__))


@functools.cache
def _is_users(name: str) -> bool:
    if name.partition(".")[0] in ("builtins", "torch", "privet"):
        return False
    place = getattr(sys.modules.get(name), "__file__", None)
    return place is None or not ("site-packages" in place or place.startswith(sys.base_prefix))


def methods_of(kinds: Iterable[type]) -> Iterator[types.FunctionType]:
    """Yield the functions that classes define, static ones and those of classes among them."""
    for kind in kinds:
        for value in vars(kind).values():
            function = getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType):
                yield function


def functions_behind(roots: Iterable[object]) -> dict[int, types.FunctionType]:
    """Return functions, and those of the same files or closures that they name, each once."""
    return {id(function): function for root in roots for function in functions_of(root)}


def functions_of(root: object) -> list[types.FunctionType]:
    """Return a function, and those of the same file or its closures that it names."""
    found: dict[int, types.FunctionType] = {}
    waiting = [root]
    while waiting and len(found) < _FUNCTIONS:
        value = waiting.pop()
        while isinstance(value, functools.partial | types.MethodType):
            value = value.func if isinstance(value, functools.partial) else value.__func__
        if isinstance(value, types.FunctionType) and id(value) not in found:
            found[id(value)] = value
            own = value.__globals__
            waiting += [inner for inner, _ in bindings_of(value).values() if getattr(inner, "__globals__", own) is own]
    return list(found.values())
