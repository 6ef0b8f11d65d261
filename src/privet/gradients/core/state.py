"""What a pass may change outlives it nowhere: modules, buffers, attributes and containers are as before afterwards.

Buffers and plain tensors that modules hold go in as copies; bindings are put back. A tensor of one pass that was kept on a
module would otherwise be taken for an example's in the next pass, which numbers its vmap alike.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.errors import UnsupportedModelError

_TABLES = ("_parameters", "_buffers", "_modules")
_DEPTH = 5  # of containers and objects within each other
_ITEMS, _LOOKED_INTO = 100_000, 1_000  # of a container whose items are put back; whose items are looked into
_SMALL, _COPIED = 1 << 16, 1 << 22  # numbers of a tensor in a closure whose values are put back; of a held one that is copied
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
        return {**_objects(values), **reachable(root.func)}
    if isinstance(root, types.MethodType):
        return {**_objects({"self": root.__self__}), **reachable(root.__func__)}
    if isinstance(root, types.FunctionType):
        return {name: value for function in _functions(root) for name, (value, _) in _bindings(function).items()}
    own = getattr(root, "__dict__", None)
    return _objects(dict(own)) if isinstance(own, dict) else {}


def _objects(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, and the attributes of those that are neither modules nor tensors nor functions."""
    found = dict(values)
    for value in values.values():
        own = getattr(value, "__dict__", None)
        plain = not isinstance(value, nn.Module | Tensor | type | types.ModuleType | types.FunctionType)
        if isinstance(own, dict) and plain:
            found |= {name: inner for name, inner in own.items() if name not in found}
    return found


def _bindings(function: types.FunctionType) -> dict[str, tuple[Any, Callable[[Any], None]]]:
    """Return the free and global names of a function, each with its value and what binds it again."""
    found: dict[str, tuple[Any, Callable[[Any], None]]] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            found[name] = cell.cell_contents, functools.partial(setattr, cell, "cell_contents")
    for name in function.__code__.co_names:
        if name in function.__globals__ and not isinstance(function.__globals__[name], types.ModuleType):
            found[name] = function.__globals__[name], functools.partial(function.__globals__.__setitem__, name)
    return found


def _own_classes(kind: type) -> tuple[type, ...]:
    """Return a class and its bases as far as they are a user's: defined neither in Python nor in an installed library."""
    return tuple(each for each in kind.__mro__ if _is_users(each.__module__))


@functools.cache
def _is_users(name: str) -> bool:
    if name.partition(".")[0] in ("builtins", "torch", "privet"):
        return False
    place = getattr(sys.modules.get(name), "__file__", None)
    return place is None or not ("site-packages" in place or place.startswith(sys.base_prefix))


def _methods_of(kinds: Iterable[type]) -> Iterator[types.FunctionType]:
    for kind in kinds:
        for value in vars(kind).values():
            function = getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType):
                yield function


def _by_identity(roots: Iterable[object]) -> dict[int, types.FunctionType]:
    """Return functions, and those of the same files or closures that they name, each once."""
    return {id(function): function for root in roots for function in _functions(root)}


def _is_data(name: str, value: object) -> bool:
    kinds: Any = (types.FunctionType, property, classmethod, staticmethod, types.MemberDescriptorType, types.GetSetDescriptorType)
    return not name.startswith("__") and not isinstance(value, kinds)


class Guard:
    """Keeps what a model and a loss function can be seen to hold as it was.

    Args:
        model, loss_fn: what is run.
        parameters: that are trained: their bindings are put back, their values are never written to.

    Attributes:
        made: names of parameters and submodules that were seen to be bound inside; they were gone afterwards.
    """

    def __init__(self, model: nn.Module, loss_fn: object, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = parameters
        classes = {kind for module in model.modules() for kind in _own_classes(type(module))} | set(_own_classes(type(loss_fn)))
        holders = [loss_fn, getattr(loss_fn, "__self__", None), *(getattr(loss_fn, "args", None) or ())]
        classes |= {kind for holder in holders for kind in _own_classes(type(holder))}
        functions = [loss_fn, *_methods_of(classes)]
        known = _by_identity(functions)
        named = [value for function in known.values() for value, _ in _bindings(function).values() if isinstance(value, type)]
        used = dict.fromkeys(kind for value in named for kind in _own_classes(value))
        known |= _by_identity(_methods_of(used))  # of autograd functions, say, whose backward pass is user code too
        self._functions = list(known.values())
        self._classes = list(dict.fromkeys([*classes, *used]))
        self._holders = [holder for holder in holders if holder is not None and not isinstance(holder, nn.Module)]
        self._model, self._others = model, list[nn.Module]()
        if others := modules_of(loss_fn):
            own = set(model.modules())
            self._others = [module for module in others.values() if module not in own]
        self.made: set[str] = set()

    @contextlib.contextmanager
    def fresh(self, batched: Callable[[Tensor], Tensor] | None = None) -> Iterator[None]:
        """Hand out copies of buffers and held tensors inside; put everything back outside, whatever happens.

        Args:
            batched: what makes a copy of a buffer, if each example is to have its own to write into.
        """
        modes, snapshot = _modes(), _Snapshot(batched or torch.clone)
        for module in self._modules():
            snapshot.open_module(module)
        for function in self._functions:
            snapshot.open_function(function)
        for kind in self._classes:
            snapshot.open_class(kind)
        for holder in self._holders:
            snapshot.open_object(holder)
        try:
            yield
        finally:
            self.made |= snapshot.restore()
            modes()
        if snapshot.moved:
            raise UnsupportedModelError(
                "the model or loss writes to a parameter, by giving it other memory, while it runs on an example; change "
                "parameters by the optimizer only"
            )

    def _modules(self) -> list[nn.Module]:
        """Return the modules in sight now: one may have been added since the last pass."""
        return [*self._model.modules(), *self._others]

    def forbids_writing_to(self, x: Tensor) -> bool:
        """Return whether a tensor lies in the memory of a parameter of the modules, trained or frozen, or of a large buffer."""
        place = _place(x)
        return place is not None and place in self._places()

    def held_parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of all modules in sight, trained or not."""
        for module in self._modules():
            yield from (parameter for parameter in module._parameters.values() if parameter is not None)

    def _places(self) -> set[int | None]:
        large = (
            x
            for module in self._modules()
            for x in (*module._buffers.values(), *module.__dict__.values())
            if isinstance(x, Tensor) and x.numel() > _COPIED
        )
        return {_place(x) for x in (*self.held_parameters(), *large)}


def _place(x: Tensor) -> int | None:
    try:
        return x.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # batched, or without memory
        return None


def _functions(root: object) -> list[types.FunctionType]:
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
            waiting += [inner for inner, _ in _bindings(value).values() if getattr(inner, "__globals__", own) is own]
    return list(found.values())


def _modes() -> Callable[[], None]:
    """Return what puts torch's modes back: a model may leave one switched off."""
    gradients, number = torch.is_grad_enabled(), torch.get_default_dtype()
    kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    autocast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]

    def restore() -> None:
        torch.set_grad_enabled(gradients)
        torch.set_default_dtype(number)
        for kind, enabled, precision in autocast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, precision)

    return restore


# What holds nothing that could be changed; hooks and the like, which are nearly always empty.
_CONSTANT = {
    type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.device, torch.Size, types.FunctionType,
    types.MethodType, types.BuiltinFunctionType, types.ModuleType,
}  # fmt: skip
_CONTAINERS = (list, dict, set, deque)
_EMPTIED = {dict, OrderedDict, set, list}


class _Snapshot:
    """What modules, functions and the objects that they hold were before a pass.

    Args:
        copied: what makes the copy of a buffer that is handed out.

    Attributes:
        moved: whether a parameter had got other memory when everything was put back.
    """

    def __init__(self, copied: Callable[[Tensor], Tensor]) -> None:
        self._copied = copied
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._tables: list[tuple[dict[str, Any], dict[str, Any], str]] = []
        self.moved = False
        self._empty: list[Any] = []
        self._parameters: list[tuple[Tensor, bool, Tensor]] = []
        self._undo: list[Callable[[], None]] = []
        self._known: set[int] = set()

    def open_module(self, module: nn.Module) -> None:
        """Give a module copies of its buffers, and note all that it holds."""
        own = module.__dict__
        before = own.copy()
        self._attributes.append((own, before))
        for name in _TABLES:
            self._tables.append((own[name], own[name].copy(), f"{type(module).__name__}.{name}"))
        self._parameters += [(p, p.requires_grad, p.detach()) for p in before["_parameters"].values() if p is not None]
        for name, buffer in before["_buffers"].items():
            if buffer is not None and buffer.numel() <= _COPIED:
                own["_buffers"][name] = self._copied(buffer)
        for name, value in before.items():
            kind = type(value)
            if kind in _CONSTANT or name in _TABLES:
                continue
            if kind in _EMPTIED and not value:
                self._empty.append(value)
            elif isinstance(value, Tensor):
                own[name] = value if value.requires_grad or value.numel() > _COPIED else self._copied(value)
            else:
                self._open(value, _DEPTH)

    def open_function(self, function: types.FunctionType) -> None:
        """Note the names that a function binds, and what they hold."""
        for value, bind in _bindings(function).values():
            self._open(value, _DEPTH)
            self._undo.append(functools.partial(bind, value))
        for held in (function.__defaults__, function.__kwdefaults__, function.__dict__):
            if held:
                self._open(held, _DEPTH)

    def open_class(self, kind: type) -> None:
        """Note the attributes of a user's class."""
        before = {name: value for name, value in vars(kind).items() if _is_data(name, value)}
        for value in before.values():
            self._open(value, _DEPTH)

        def restore() -> None:
            now = {name: value for name, value in vars(kind).items() if _is_data(name, value)}
            for name in now.keys() - before.keys():
                delattr(kind, name)
            for name, value in before.items():
                if now.get(name, self) is not value:
                    setattr(kind, name, value)

        self._undo.append(restore)

    def open_object(self, value: Any) -> None:
        """Note what an object holds."""
        self._open(value, _DEPTH)

    def restore(self) -> set[str]:
        """Put everything back; return the names of parameters and submodules that were bound since."""
        for own, before in self._attributes:
            own.clear()
            own.update(before)
        made = set()
        for inner, table, name in self._tables:
            if not (inner or table):
                continue
            if len(inner) != len(table) or any(inner.get(each, self) is not value for each, value in table.items()):
                if not name.endswith("_buffers"):
                    made |= {f"{name.partition('.')[0]}.{each}" for each, value in inner.items() if value is not table.get(each)}
                inner.clear()
                inner.update(table)
        for parameter, asked, memory in self._parameters:
            if parameter.data_ptr() != memory.data_ptr() or parameter.shape != memory.shape:
                parameter.data, self.moved = memory, True
            if parameter.requires_grad != asked:
                parameter.requires_grad_(asked)
        for container in self._empty:
            if container:
                container.clear()
        for undo in self._undo:
            undo()
        return made

    def _open(self, value: Any, depth: int) -> None:
        """Note the contents of a tensor, a container or an object, each once."""
        if type(value) in _CONSTANT or id(value) in self._known or not depth:
            return
        self._known.add(id(value))
        if isinstance(value, Tensor):
            if not value.requires_grad and value.layout == torch.strided and not value.is_nested and value.numel() <= _SMALL:
                self._undo.append(_values(value))
        elif isinstance(value, np.ndarray):
            if value.size <= _SMALL:
                self._undo.append(_numbers(value))
        elif isinstance(value, (tuple, *_CONTAINERS)):
            if not isinstance(value, tuple) and len(value) <= _ITEMS:
                self._undo.append(_contents(value))
            if len(value) <= _LOOKED_INTO:
                for item in list(value.values() if isinstance(value, dict) else value):
                    self._open(item, depth - 1)
        elif _has_attributes(value):
            self._undo.append(_contents(value.__dict__))
            for item in list(value.__dict__.values()):
                self._open(item, depth - 1)


def _has_attributes(value: Any) -> bool:
    """Return whether an object of a user's or a library's holds attributes that may be put back."""
    plain = not isinstance(value, nn.Module | functools.partial | type)
    return plain and isinstance(getattr(value, "__dict__", None), dict) and not type(value).__module__.startswith("privet.")


def _values(x: Tensor) -> Callable[[], None]:
    version, kept = x._version, x.clone()

    def restore() -> None:
        if x._version != version:
            x.detach().copy_(kept)

    return restore


def _numbers(array: np.ndarray[Any, Any]) -> Callable[[], None]:
    kept = array.copy()

    def restore() -> None:
        if array.flags.writeable:
            array[...] = kept

    return restore


def _contents(container: Any) -> Callable[[], None]:
    """Return what puts the items of a container back; one that is as it was is left alone."""
    if isinstance(container, dict):
        table = dict(container)

        def restore() -> None:
            if list(map(id, container.values())) != list(map(id, table.values())) or list(container) != list(table):
                container.clear()
                container.update(table)
    else:
        items = list(container)

        def restore() -> None:
            if list(map(id, container)) != list(map(id, items)):
                container.clear()
                (container.update if isinstance(container, set) else container.extend)(items)

    return restore
