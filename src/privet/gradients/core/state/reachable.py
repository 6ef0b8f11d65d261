"""Discovery of the modules, functions and classes that a model and a loss function use."""

from __future__ import annotations

__all__ = [
    "FUNCTIONS",
    "OPERATOR_DEFINITIONS",
    "SCRIPTED",
    "add_attributes",
    "find_functions",
    "find_modules",
    "find_operator_functions",
    "find_reachable",
    "list_modules",
    "read_attributes",
    "refuse_scripts",
    "unwrap",
    "unwrap_all",
]

import functools
import sys
import threading
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import UnsupportedModelError
from privet.gradients.core.state.bindings import Binding, read_bindings
from privet.gradients.core.state.opaque import read_cell
from privet.gradients.core.state.restoring import MISSING
from privet.gradients.core.state.user_code import is_user_function

# What a function may be wrapped in without an attribute that holds it, and where it is.
_WRAPPERS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func",),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.MethodType: ("__func__",),
}
SCRIPTED = (
    "the model or loss holds a TorchScript module, which hides its calls and its state, so that examples could not be kept "
    "apart; pass the module that it was made from"
)
FUNCTIONS = 500  # most functions that are followed from one root


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
        own = (threading.local if isinstance(value, threading.local) else object).__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


def list_modules(root: nn.Module) -> list[nn.Module]:
    """Return a module and all modules inside it, each once; `modules()` takes four times as long, because it builds names."""
    found = [root]
    known = {id(root)}  # not the modules, which may be equal without being the same
    for module in found:
        for child in module._modules.values():
            if child is not None and id(child) not in known:
                known.add(id(child))
                found.append(child)
    return found


def find_functions(*roots: object) -> dict[types.FunctionType, list[Binding]]:
    """Find functions, and the functions of the same file or of the user's own files that they name, directly or indirectly.

    Returns:
        Function → its bindings.
    """
    found: dict[types.FunctionType, list[Binding]] = {}
    for root in roots:
        waiting: list[tuple[Any, dict[str, Any] | None]] = [(root, None)]
        limit = len(found) + FUNCTIONS
        while waiting and len(found) < limit:
            value, file = waiting.pop()
            if isinstance(value, types.FunctionType):
                own = value.__globals__
                if value not in found and (file is None or file is own or is_user_function(value)):
                    found[value] = bindings = read_bindings(value).found
                    waiting += [(inner, own) for _, inner, _ in bindings]
            else:
                waiting += [(inner, file) for inner in unwrap(value)]
    return found


def unwrap(value: object) -> list[Any]:
    """Return the functions that a partial, a property, a cached function or the like wraps; none for other objects."""
    return [getattr(value, name) for kind, names in _WRAPPERS.items() if isinstance(value, kind) for name in names]


def unwrap_all(value: object) -> list[types.FunctionType]:
    """Return the functions that a value is or wraps, however often it is wrapped."""
    waiting = [value]
    for each in waiting:
        waiting += unwrap(each)
    return [each for each in waiting if isinstance(each, types.FunctionType)]


def find_operator_functions() -> list[types.FunctionType]:
    """Return the user's functions that compute operators made by torch's `custom_op`, which no code need name."""
    found: dict[types.FunctionType, None] = {}
    for definition in list(OPERATOR_DEFINITIONS.values()):
        known = [getattr(definition, name, None) for name in ("_init_fn", "_setup_context_fn", "_backward_fn")]
        for each in (*known, *getattr(definition, "_backend_fns", {}).values()):
            inner = getattr(each, "__wrapped__", each)  # behind what watches it in passes
            held = (read_cell(cell) for cell in getattr(inner, "__closure__", None) or ())
            found |= {x: None for x in (inner, *held) if isinstance(x, types.FunctionType) and is_user_function(x)}
    return list(found)


# Qualified name → definition, of the operators whose functions are Python's.
OPERATOR_DEFINITIONS: Any = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})


def refuse_scripts(module: nn.Module) -> None:
    """Refuse a module whose calls and state Python does not see."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedModelError(SCRIPTED)
