"""What a pass may change outlives it nowhere: modules, buffers, attributes and containers are as before afterwards.

Buffers and plain tensors that modules hold go in as copies; bindings are put back. A tensor of one pass that was kept on a
module would otherwise be taken for an example's in the next pass, which numbers its vmap alike.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.errors import UnsupportedModelError
from privet.gradients.core.reachable import bindings_of, functions_behind, methods_of, modules_of, own_classes

_TABLES = ("_parameters", "_buffers", "_modules")
_DEPTH = 5  # of containers and objects within each other
_ITEMS, _LOOKED_INTO = 100_000, 1_000  # of a container whose items are put back; whose items are looked into
_SMALL, _COPIED = 1 << 16, 1 << 22  # numbers of a tensor in a closure whose values are put back; of a held one that is copied


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
        classes = {kind for module in model.modules() for kind in own_classes(type(module))} | set(own_classes(type(loss_fn)))
        holders = [loss_fn, getattr(loss_fn, "__self__", None), *(getattr(loss_fn, "args", None) or ())]
        classes |= {kind for holder in holders for kind in own_classes(type(holder))}
        functions = [loss_fn, *methods_of(classes)]
        known = functions_behind(functions)
        named = [value for function in known.values() for value, _ in bindings_of(function).values() if isinstance(value, type)]
        used = dict.fromkeys(kind for value in named for kind in own_classes(value))
        known |= functions_behind(methods_of(used))  # of autograd functions, say, whose backward pass is user code too
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
        for value, bind in bindings_of(function).values():
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
