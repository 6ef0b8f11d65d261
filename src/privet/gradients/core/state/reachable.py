"""Discovery of the modules, functions and classes that a model and a loss function use."""

from __future__ import annotations

__all__ = [
    "Binding",
    "add_attributes",
    "bind",
    "find_class_functions",
    "find_functions",
    "find_modules",
    "find_reachable",
    "find_user_classes",
    "is_user_code",
    "iter_bindings",
    "iter_methods",
    "list_modules",
]

import functools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

_WRAPPERS = (functools.partial, types.MethodType)
_FUNCTIONS = 50  # most functions that are followed from one root

# A name, its value, and where it is bound: the cell of a closure, or the globals of a file.
Binding = tuple[str, Any, types.CellType | dict[str, Any]]


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
        found: dict[str, Any] = {}
        for function, bindings in find_functions(root).items():
            for name, value, _ in bindings:
                found[name if found.get(name, value) is value else f"{name} of {function.__qualname__}"] = value
        return found
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


def iter_bindings(function: types.FunctionType) -> Iterator[Binding]:
    """Yield the free and global names of a function, except those of modules: name, value, and where it is bound."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, cell
        except ValueError:  # an empty cell
            continue
    own = function.__globals__
    for name in function.__code__.co_names:
        if name in own and not isinstance(own[name], types.ModuleType):
            yield name, own[name], own


def bind(name: str, value: Any, place: types.CellType | dict[str, Any]) -> None:
    """Bind a name that `iter_bindings` found."""
    if isinstance(place, dict):
        place[name] = value
    else:
        place.cell_contents = value


def list_modules(root: nn.Module) -> list[nn.Module]:
    """Return a module and all modules inside it, each once; `modules()` takes four times as long, because it builds names."""
    found = [root]
    known = {root}
    for module in found:
        for child in module._modules.values():
            if child is not None and child not in known:
                known.add(child)
                found.append(child)
    return found


@functools.lru_cache(maxsize=1024)
def find_user_classes(kind: type) -> tuple[type, ...]:
    """Return a class and its bases that are user code: defined neither in Python nor in an installed library."""
    return tuple(each for each in kind.__mro__ if is_user_code(each.__module__))


@functools.cache
def is_user_code(name: str) -> bool:
    """Return whether the Python module of this name belongs neither to Python nor to an installed library."""
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


def find_functions(*roots: object) -> dict[types.FunctionType, list[Binding]]:
    """Find functions, and the functions of the same file or closure that they name, directly or indirectly.

    Returns:
        Function → its bindings.
    """
    found: dict[types.FunctionType, list[Binding]] = {}
    for root in roots:
        waiting, limit = [root], len(found) + _FUNCTIONS
        while waiting and len(found) < limit:
            value = waiting.pop()
            while isinstance(value, _WRAPPERS):
                value = value.func if isinstance(value, functools.partial) else value.__func__
            if isinstance(value, types.FunctionType) and value not in found:
                found[value] = bindings = list(iter_bindings(value))
                own = value.__globals__
                waiting += [inner for _, inner, _ in bindings if getattr(inner, "__globals__", own) is own]
    return found


@functools.lru_cache(maxsize=1024)
def find_class_functions(kind: type) -> tuple[types.FunctionType, ...]:
    """Return the functions that a class defines, and those that they use."""
    return tuple(find_functions(*iter_methods([kind])))
