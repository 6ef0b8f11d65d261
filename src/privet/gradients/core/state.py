"""Isolation of state: after a pass, modules, buffers, attributes and containers are restored.

During a pass, modules hold copies of their buffers and plain tensors; bindings are restored afterwards. A tensor of one pass
that stayed on a module would otherwise be mistaken for an example's in the next pass, whose vmap has the same level.
"""

from __future__ import annotations

__all__ = ["Guard"]

import contextlib
import functools
import operator
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.errors import UnsupportedModelError
from privet.gradients.core.forbidden_calls import forbid_calls
from privet.gradients.core.reachable import (
    Binding,
    bind,
    find_functions,
    find_modules,
    find_reachable,
    find_user_classes,
    is_user_code,
    iter_bindings,
    iter_methods,
    list_modules,
)

_TABLES = ("_parameters", "_buffers", "_modules")
_DEPTH = 5  # nesting of containers and objects that is followed
_ITEMS, _LOOKED_INTO = 100_000, 1_000  # most items of a container that is restored; of one whose items are saved too
_SMALL, _COPIED = 1 << 16, 1 << 22  # most elements of a closure's tensor that is restored; of a module's tensor that is copied


_CODE = {types.FunctionType, property, classmethod, staticmethod, types.MemberDescriptorType, types.GetSetDescriptorType}


class Guard:
    """Restores the state that is reachable from a model and a loss function.

    Args:
        model, loss_fn: user code that is run.
        parameters: the trained parameters: their bindings are restored; their values are never written to.

    Attributes:
        created: names of parameters and submodules that user code bound during a pass, and that were removed after it.
    """

    def __init__(self, model: nn.Module, loss_fn: object, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = parameters
        modules = list_modules(model)
        bound = (*(getattr(loss_fn, "args", None) or ()), *(getattr(loss_fn, "keywords", None) or {}).values())
        holders = [loss_fn, getattr(loss_fn, "__self__", None), *bound]
        kinds: list[type] = [type(owner) for owner in (*modules, *holders)]
        classes = {each for kind in kinds for each in find_user_classes(kind)}
        known = find_functions(loss_fn, *iter_methods(classes))
        named = [value for bindings in known.values() for _, value, _ in bindings if isinstance(value, type)]
        used = dict.fromkeys(kind for value in named for kind in find_user_classes(value))
        known |= find_functions(*iter_methods(used))  # of autograd functions, say, whose backward pass is user code too
        self._functions = list(known)
        self._classes = list(dict.fromkeys([*classes, *used]))
        others = list(find_modules(loss_fn).values())
        self._holders, self._model, self._reached = [*holders, *others], model, [*modules, *others]
        self.created: set[str] = set()
        for module in self._reached:
            _refuse_scripts(module)

    @contextlib.contextmanager
    def isolate(self, batched: Callable[[Tensor], Tensor] | None = None) -> Iterator[None]:
        """Return a context in which modules hold copies of buffers and tensors; on exit, also after errors, restore everything.

        Args:
            batched: copies a buffer, if each example gets its own copy to write into.
        """
        modes, snapshot = _save_modes(), _Snapshot(batched or torch.clone, self.iter_parameters)
        try:
            for module in list_modules(self._model):  # one may have been added since the last pass
                snapshot.save_module(module)
            for function in self._functions:
                snapshot.save_function(function)
            for kind in self._classes:
                snapshot.save_class(kind)
            for holder in self._holders:
                snapshot.save(holder)
            self._reached = snapshot.modules
            with forbid_calls():
                yield
        finally:
            self.created |= snapshot.restore()
            modes()
        if snapshot.moved:
            raise UnsupportedModelError(
                "the model or loss writes to a parameter, by replacing its memory, while it runs on an example; change "
                "parameters through the optimizer only"
            )

    def is_protected(self, x: Tensor) -> bool:
        """Return whether a tensor shares memory with a parameter, trained or frozen, or with a tensor that is not copied."""
        place = _data_ptr(x)
        return place is not None and place in self._protected_pointers()

    def iter_parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of all reachable modules, trained or not."""
        for module in self._reached:
            yield from (parameter for parameter in module._parameters.values() if parameter is not None)

    def _protected_pointers(self) -> set[int | None]:
        buffers = (x for module in self._reached for x in module._buffers.values() if x is not None and x.numel() > _COPIED)
        held = (x for module in self._reached for x in module.__dict__.values() if isinstance(x, Tensor))
        uncopied = (x for x in held if x.requires_grad or x.numel() > _COPIED)
        return {_data_ptr(x) for x in (*self.iter_parameters(), *buffers, *uncopied)}


def _refuse_scripts(module: nn.Module) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            "the model or loss holds a TorchScript module, which hides its calls and its state, so that examples could not "
            "be kept apart; pass the module that it was made from"
        )


def _data_ptr(x: Tensor) -> int | None:
    try:
        return x.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # batched, or without memory
        return None


def _save_modes() -> Callable[[], None]:
    """Return a function that restores torch's global modes, which a model may leave changed."""
    kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    before = _read_modes(kinds)

    def restore() -> None:
        if _read_modes(kinds) == before:
            return
        gradients, number, *autocast = before
        torch.set_grad_enabled(gradients)
        torch.set_default_dtype(number)
        for kind, (enabled, precision) in zip(kinds, autocast, strict=True):
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, precision)

    return restore


def _read_modes(kinds: Sequence[str]) -> list[Any]:
    autocast = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    return [torch.is_grad_enabled(), torch.get_default_dtype(), *autocast]


# Types without mutable contents; and containers such as those of hooks, which are nearly always empty.
_CONSTANT = {
    type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.device, torch.Size, types.ModuleType,
    weakref.ProxyType, weakref.CallableProxyType,
}  # fmt: skip
_CONTAINERS = (list, dict, set, deque)
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)  # the append of a list is a builtin one
_EMPTIED = {dict, OrderedDict, set, list}
_HOOKS = {name for name in vars(nn.Module()) if name.endswith("_hooks")}


class _Snapshot:
    """State of modules, functions and their objects before a pass.

    Args:
        copied: copies a buffer for use during the pass.
        protected: yields the parameters, which are never written to.

    Attributes:
        modules: those saved, with the ones that are not registered but held by a container, an object or a function.
        moved: whether the memory of a parameter had been replaced by the time of `restore`.
    """

    def __init__(self, copied: Callable[[Tensor], Tensor], protected: Callable[[], Iterator[Tensor]]) -> None:
        self._copy, self._protected = copied, protected
        self._copies: dict[int, Tensor] = {}  # by id of the original: modules that share a tensor share its copy
        self._tables: list[tuple[type, dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = []
        self.modules: list[nn.Module] = []
        self.moved = False
        self._empty: list[Any] = []
        self._parameters: list[tuple[Tensor, bool, Tensor]] = []
        self._bindings: list[Binding] = []
        self._undo: list[Callable[[], None]] = []
        self._known: set[int] = set()

    def save_module(self, module: nn.Module) -> None:
        """Save the contents of a module, once, and replace its buffers by copies."""
        own = module.__dict__
        if id(own) in self._known:  # saved already, perhaps through a proxy
            return
        self.modules.append(module)
        before = own.copy()
        self._known.update(map(id, (module, own, *(before[name] for name in _TABLES))))  # also where containers hold its tables
        self._tables.append((type(module), own, before, [before[name].copy() for name in _TABLES]))
        for parameter in before["_parameters"].values():
            if parameter is not None:
                self._parameters.append((parameter, parameter.requires_grad, parameter.detach()))
                attributes = parameter.__dict__  # where quantised parameters keep their scales
                if attributes:
                    self.save(attributes)
                else:
                    self._empty.append(attributes)
        for name, buffer in before["_buffers"].items():
            if buffer is not None and buffer.numel() <= _COPIED:
                own["_buffers"][name] = self._copied(buffer)
        for name, value in before.items():
            kind = type(value)
            if kind in _CONSTANT:
                continue
            if kind in _EMPTIED and not value:
                self._empty.append(value)
            elif name in _TABLES:
                continue
            elif isinstance(value, Tensor):
                own[name] = value if value.requires_grad or value.numel() > _COPIED else self._copied(value)
            elif name in _HOOKS:
                self._save_hooks(value)
            else:
                self.save(value)

    def _save_hooks(self, hooks: Any) -> None:
        """Save a table of hooks, hooks that are objects, and of those that are functions the modules that they use.

        What else a function stores, such as a list of shapes, is a record of the user's.
        """
        self._undo.append(_save_items(hooks))
        for hook in list(hooks.values()):
            functional = isinstance(hook, types.FunctionType | types.MethodType | functools.partial)
            for value in find_reachable(hook).values() if functional else (hook,):
                if isinstance(value, nn.Module) or not functional:
                    self.save(value)

    def _copied(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._copies:
            self._copies[id(tensor)] = self._copy(tensor)
        return self._copies[id(tensor)]

    def save_function(self, function: types.FunctionType) -> None:
        """Save the bindings of a function, and the objects bound."""
        for binding in iter_bindings(function):
            if type(binding[1]) is not types.FunctionType:  # `find_functions` has found those of the same file
                self.save(binding[1])
            self._bindings.append(binding)
        for held in (function.__defaults__, function.__kwdefaults__):
            if held:
                self.save(held)
        if function.__dict__:
            self.save(function.__dict__)
        else:
            self._empty.append(function.__dict__)

    def save_class(self, kind: type) -> None:
        """Save the attributes of a user's class, except Python's own."""
        before = dict(vars(kind))
        for name, value in before.items():
            if type(value) not in _CODE and not name.startswith("__"):
                self.save(value)

        def restore() -> None:
            if _is_same_table(vars(kind), before):
                return
            names = {name for name in (*vars(kind), *before) if not name.startswith("__")}
            for name in names - before.keys():
                delattr(kind, name)
            for name in names & before.keys():
                if name not in vars(kind) or vars(kind)[name] is not before[name]:
                    setattr(kind, name, before[name])

        self._undo.append(restore)

    def restore(self) -> set[str]:
        """Restore everything; return the names of parameters and submodules that were bound since."""
        created = set()
        for owner, own, before, tables in self._tables:
            own.clear()
            own.update(before)
            for name, table in zip(_TABLES, tables, strict=True):
                inner = before[name]
                if not (inner or table) or _is_same_table(inner, table):
                    continue
                if name != "_buffers":
                    created |= {f"{owner.__name__}.{each}" for each, value in inner.items() if value is not table.get(each)}
                inner.clear()
                inner.update(table)
        for parameter, asked, memory in self._parameters:
            if parameter.data_ptr() != memory.data_ptr() or parameter.shape != memory.shape:
                parameter.data, self.moved = memory, True
            if parameter.requires_grad != asked:
                parameter.requires_grad_(asked)
        for container in filter(None, self._empty):
            container.clear()
        for binding in self._bindings:
            bind(*binding)
        for undo in self._undo:
            undo()
        return created

    def save(self, value: Any, depth: int = _DEPTH) -> None:
        """Save the contents of a module, a function, a tensor, a container or an object, each once."""
        if type(value) in _CONSTANT or id(value) in self._known or not depth:
            return
        if isinstance(value, nn.Module):
            for module in list_modules(value):
                _refuse_scripts(module)
                self.save_module(module)
            return
        self._known.add(id(value))
        if isinstance(value, Tensor):
            if value.numel() <= _SMALL and not (value.is_nested or value.is_inference() or self._is_parameter(value)):
                self._undo.append(_save_tensor(value))
        elif isinstance(value, np.ndarray):
            if value.size <= _SMALL:
                self._undo.append(_save_array(value))
        elif isinstance(value, (tuple, *_CONTAINERS)):
            if not isinstance(value, tuple) and len(value) <= _ITEMS:
                self._undo.append(_save_items(value))
            if len(value) <= _LOOKED_INTO:
                for item in list(value.values() if isinstance(value, dict) else value):
                    self.save(item, depth - 1)
        elif isinstance(value, _METHODS):
            self.save(value.__self__, depth)
        elif isinstance(value, types.FunctionType):
            if is_user_code(value.__module__ or ""):
                self.save_function(value)
        elif isinstance(value, functools.partial):
            for item in (value.func, *value.args, *value.keywords.values()):
                self.save(item, depth - 1)
        elif _has_attributes(value):
            self._undo.append(_save_items(value.__dict__))
            for item in list(value.__dict__.values()):
                self.save(item, depth - 1)

    def _is_parameter(self, value: Tensor) -> bool:
        return value.requires_grad and any(value is parameter for parameter in self._protected())


def _is_same_table(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return list(one) == list(other) and all(map(operator.is_, one.values(), other.values()))


def _has_attributes(value: Any) -> bool:
    """Return whether an object of user or library code has attributes that can be restored."""
    own = getattr(value, "__dict__", None)
    return isinstance(own, dict) and not isinstance(value, type) and not type(value).__module__.startswith("privet.")


def _save_tensor(x: Tensor) -> Callable[[], None]:
    """Return a function that restores a tensor's memory and its numbers, if they changed."""
    version, memory = x._version, x.detach()
    kept = memory.clone()
    if x.layout != torch.strided:

        def replace() -> None:
            x.data = kept

        return replace
    place, plain = _place(x), type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu"

    def restore() -> None:
        if _place(x) != place:  # resized, or given other memory
            x.data = memory.as_strided(*place[:3])
        # An array that shares a tensor's memory is written to without a new version.
        if x._version != version or (plain and not torch.equal(memory, kept)):
            x.detach().copy_(kept)

    return restore


def _place(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.storage_offset(), _data_ptr(x)


def _save_array(array: np.ndarray[Any, Any]) -> Callable[[], None]:
    kept = array.copy()

    def restore() -> None:
        if array.shape != kept.shape:
            array.resize(kept.shape, refcheck=False)
        if array.flags.writeable:
            array[...] = kept

    return restore


def _save_items(container: Any) -> Callable[[], None]:
    """Return a function that restores the items of a container, if they changed."""
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
