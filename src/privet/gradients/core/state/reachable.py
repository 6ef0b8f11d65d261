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
    "read_attributes",
]

import dis
import functools
import inspect
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from privet.gradients.core.state.restoring import MISSING

# What a function may be wrapped in without an attribute that holds it, and where it is.
_WRAPPERS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func",),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.MethodType: ("__func__",),
}
_METHODS: tuple[type, ...] = (types.FunctionType, *_WRAPPERS)
_PYTHON = Path(os.__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}
_FUNCTIONS = 500  # most functions that are followed from one root

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
                if value is MISSING:
                    continue
                found[name if found.get(name, value) is value else f"{name} of {function.__qualname__}"] = value
        return found
    return add_attributes(dict(read_attributes(root) or {}))


def add_attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, and the attributes of those that are not modules, tensors or functions."""
    found = dict(values)
    for value in values.values():
        if not isinstance(value, nn.Module | Tensor | type | types.ModuleType | types.FunctionType):
            found |= {name: inner for name, inner in (read_attributes(value) or {}).items() if name not in found}
    return found


def read_attributes(value: object) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes, None if it has none, without calling methods of the user's."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


def iter_bindings(function: types.FunctionType) -> Iterator[Binding]:
    """Yield the free and global names of a function: name, value, and where it is bound.

    Of the user's own Python modules, those names are yielded that occur in the function, such as `total` for `helpers.total`.
    The value is `MISSING` if there is none yet, and the function may bind the name.
    """
    names = _list_names(function.__code__)
    modules = [module for name in names.imports for module in _find_imported(name, function)] if names.imports else []
    if function.__closure__:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
            value = MISSING if is_empty(cell) else cell.cell_contents
            if isinstance(value, types.ModuleType):
                modules.append(value)
            else:
                yield name, value, cell
    tables, bound = [function.__globals__], names.globals
    for table in tables:
        for name in names.all:
            if name in table or name in bound:
                value = table.get(name, MISSING)
                if isinstance(value, types.ModuleType):
                    modules.append(value)
                else:
                    yield name, value, table
        bound = names.attributes
        for module in modules:
            if is_user_code(module.__name__) and not any(vars(module) is known for known in tables):
                tables.append(vars(module))


class _Names(NamedTuple):
    """What the code of a function names, and that of functions defined inside it.

    Args:
        all: names of globals and of attributes.
        globals, attributes: those that it binds.
        imports: modules that it imports.
    """

    all: dict[str, None]
    globals: set[str]
    attributes: set[str]
    imports: dict[str, None]


@functools.lru_cache(maxsize=4096)
def _list_names(code: types.CodeType) -> _Names:
    """Return what a function's code names."""
    found = _Names(dict.fromkeys(code.co_names), set(), set(), {})
    for step in dis.get_instructions(code):
        if step.opname == "STORE_GLOBAL":
            found.globals.add(step.argval)
        elif step.opname == "STORE_ATTR":
            found.attributes.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            found.imports[step.argval] = None
    for inner in (_list_names(value) for value in code.co_consts if isinstance(value, types.CodeType)):
        found.all.update(inner.all)
        found.globals.update(inner.globals)
        found.attributes.update(inner.attributes)
        found.imports.update(inner.imports)
    return found


def _find_imported(name: str, function: types.FunctionType) -> Iterator[types.ModuleType]:
    """Yield the modules that a function may import by a name, absolute or relative to its package."""
    package = function.__globals__.get("__package__") or ""
    while True:
        found = sys.modules.get(f"{package}.{name}".strip("."))
        if found is not None:
            yield found
        if not package:
            return
        package = package.rpartition(".")[0]


def bind(name: str, value: Any, place: types.CellType | dict[str, Any]) -> None:
    """Bind a name that `iter_bindings` found; unbind it for `MISSING`."""
    if value is MISSING:
        if isinstance(place, dict):
            place.pop(name, None)
        elif not is_empty(place):
            del place.cell_contents
    elif isinstance(place, dict):
        place[name] = value
    else:
        place.cell_contents = value


def is_empty(cell: types.CellType) -> bool:
    """Return whether the name of a closure has no value."""
    try:
        return cell.cell_contents is MISSING
    except ValueError:
        return True


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
    """Return a class, its bases and its metaclasses that are user code: defined neither in Python nor in an installed library."""
    return tuple(each for each in (*kind.__mro__, *inspect.getmro(type(kind))) if is_user_code(each.__module__))


@functools.cache
def is_user_code(name: str) -> bool:
    """Return whether the Python module of this name belongs neither to Python nor to an installed library."""
    package, place = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None)
    if package in ("__main__", "torch", "privet"):  # a notebook's or a launcher's main module may have any file
        return package == "__main__"
    if place is None:
        return package not in sys.stdlib_module_names
    return not Path(place).is_relative_to(_PYTHON) and _INSTALLED.isdisjoint(Path(place).parts)


def iter_methods(kinds: Iterable[type]) -> Iterator[object]:
    """Yield the functions that classes define, also those of properties, static methods and the like, as they are wrapped."""
    for kind in kinds:
        yield from (value for value in vars(kind).values() if isinstance(value, _METHODS))


def find_functions(*roots: object) -> dict[types.FunctionType, list[Binding]]:
    """Find functions, and the functions of the same file or of the user's own files that they name, directly or indirectly.

    Returns:
        Function → its bindings.
    """
    found: dict[types.FunctionType, list[Binding]] = {}
    for root in roots:
        waiting: list[tuple[Any, dict[str, Any] | None]] = [(root, None)]
        limit = len(found) + _FUNCTIONS
        while waiting and len(found) < limit:
            value, file = waiting.pop()
            if isinstance(value, types.FunctionType):
                own = value.__globals__
                if value not in found and (file is None or file is own or is_user_code(value.__module__ or "")):
                    found[value] = bindings = list(iter_bindings(value))
                    waiting += [(inner, own) for _, inner, _ in bindings]
            else:
                waiting += [(inner, file) for inner in unwrap(value)]
    return found


def unwrap(value: object) -> list[Any]:
    """Return the functions that a partial, a property, a cached function or the like wraps; none for other objects."""
    return [getattr(value, name) for kind, names in _WRAPPERS.items() if isinstance(value, kind) for name in names]


@functools.lru_cache(maxsize=1024)
def find_class_functions(kind: type) -> tuple[types.FunctionType, ...]:
    """Return the functions that a class defines, and those that they use."""
    return tuple(find_functions(*iter_methods([kind])))
