"""The state of modules, functions and objects before a pass, and its restoration."""

from __future__ import annotations

__all__ = ["COPIED", "Snapshot"]

import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from privet.gradients.core.state.bindings import read_bindings
from privet.gradients.core.state.contents import CONSTANT, is_same_table, read_contents, restore_table
from privet.gradients.core.state.held_tensors import SAVERS_OF_STORAGES, count_numbers, save_gradient, save_layout, save_tensor
from privet.gradients.core.state.identities import Found, Identities, read_global_hooks, read_memory
from privet.gradients.core.state.opaque import SAVERS_OF_OPAQUE, list_held
from privet.gradients.core.state.reachable import (
    FUNCTIONS,
    find_reachable,
    list_modules,
    read_attributes,
    refuse_scripts,
    unwrap,
)
from privet.gradients.core.state.restoring import (
    CACHED,
    CONTAINERS,
    GENERATORS,
    SAVERS,
    SMALL,
    Restore,
    count_items,
    freeze_array,
    list_cached,
    list_items,
    list_slots,
    read_slot,
    save_array,
    save_generator,
    save_items,
    save_slots,
)
from privet.gradients.core.state.special import (
    HELD_BY_DESCRIPTORS,
    read_class,
    restore_class,
    restore_object,
    save_builtin,
    save_function_attributes,
    save_kind_attributes,
    save_partial,
)
from privet.gradients.core.state.user_code import find_user_classes, is_library_module, is_of_library, is_user_function

_DEPTH = 5  # nesting of containers and objects that is followed
_ITEMS, _LOOKED_INTO = 1 << 20, 10_000  # most items of a container that is restored; of one whose items are saved too
COPIED = 1 << 22  # most elements of a module's tensor that is copied
_FIXED = {types.MemberDescriptorType, types.GetSetDescriptorType}
_SAVERS = SAVERS | SAVERS_OF_OPAQUE | SAVERS_OF_STORAGES
_DESCRIPTORS = tuple(HELD_BY_DESCRIPTORS)
_ON_HEAP = 1 << 9  # of the flags of a class: one defined in Python, or like one, to which an object can change
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)  # the append of a list is a builtin one
_HOOKS = {name for name in vars(nn.Module()) if name.endswith("_hooks")}


class _Parameter(NamedTuple):
    """A parameter, its class, its attributes, whether it requires a gradient, and a view of its memory, if that is plain."""

    parameter: Tensor
    kind: type
    attributes: dict[str, Any]
    asked: bool
    memory: Tensor | None


class Snapshot:
    """State of modules, functions and their objects before a pass.

    Args:
        copied: copies a buffer for use during the pass.
        protected: yields the parameters, which are never written to.
        earlier: what the last snapshot found.

    Attributes:
        modules: those saved, with the ones that are not registered but held by a container, an object or a function.
        found: what the next snapshot need not look at again.
        large: tensors that are neither parameters nor saved: the large ones, and those of modules that require a gradient.
        created: names of parameters and submodules that were bound by the time of `restore`.
        moved: whether the memory of a parameter had been replaced by the time of `restore`.
        drawn: whether numbers had been drawn by then from a generator of Python or NumPy that is not a global one.
    """

    def __init__(self, copied: Callable[[Tensor], Tensor], protected: Callable[[], Iterator[Tensor]], earlier: Found) -> None:
        self._copy, self._protected, self._earlier, self.found = copied, protected, earlier, Found()
        self._copies: dict[int, Tensor] = {}  # by id of the original: modules that share a tensor share its copy
        self._tables: list[tuple[type, str, dict[str, Any], dict[str, Any]]] = []
        self.modules: list[nn.Module] = []
        self.large: list[Tensor] = []
        self.moved = self.drawn = False
        self.created: set[str] = set()
        self._empty: list[Any] = []
        self._kinds: list[type] = []  # of the modules
        self._parameters: list[_Parameter] = []
        self._bound: list[Restore] = []  # of functions and classes
        self._undo: list[Restore] = []  # of contents
        self._identities: Identities | None = None
        self._has_contents = False
        self._known: set[int] = set()

    def save_module(self, module: nn.Module) -> None:
        """Save the contents of a module, once, and replace its buffers by copies."""
        own = module.__dict__
        if id(own) in self._known:  # saved already, perhaps through a proxy
            return
        self.modules.append(module)
        self._kinds.append(type(module))
        contents = self.found.modules[id(own)] = read_contents(own, self._earlier.modules.get(id(own)))
        before = contents.held
        kind: Any = type(module)
        parameters, buffers, inner = before["_parameters"], before["_buffers"], before["_modules"]
        self._known.update(map(id, (module, own, parameters, buffers, inner)))  # also where containers hold its tables
        self._tables += (
            (kind, "_parameters", parameters, parameters.copy()),
            (kind, "_buffers", buffers, buffers.copy()),
            (kind, "_modules", inner, inner.copy()),
        )
        for parameter in parameters.values():
            if parameter is not None:
                attributes = parameter.__dict__  # where quantised parameters keep their scales
                memory = parameter.data if parameter.layout is torch.strided and not parameter.is_nested else None
                self._parameters.append(_Parameter(parameter, type(parameter), attributes, parameter.requires_grad, memory))
                if attributes:
                    self.save(attributes)
                else:
                    self._empty.append(attributes)
                if parameter.grad is not None:
                    self._undo.append(save_gradient(parameter))
                if parameter._backward_hooks:
                    self._save_hooks(parameter._backward_hooks)
                if type(parameter) is not nn.Parameter:
                    self._save_slots(parameter, type(parameter), _DEPTH)
        for name, buffer in buffers.items():
            if buffer is not None:
                buffers[name] = self._copied(buffer)
        self._empty += contents.empty
        for name, value in contents.others:
            if isinstance(value, Tensor):
                own[name] = self._copied(value)
            elif name in _HOOKS:
                self._save_hooks(value)
            else:
                self.save(value)
        if _holds_more(kind):
            self._save_contents(module, _DEPTH)
            self._save_slots(module, kind, _DEPTH)

    def save_global_hooks(self) -> None:
        """Save the hooks that are called for every module."""
        tables = read_global_hooks()
        for hooks in filter(None, tables):
            self._save_hooks(hooks)
        self._empty += itertools.filterfalse(None, tables)

    def _save_hooks(self, hooks: Any) -> None:
        """Save a table of hooks and what the hooks use; of functions of libraries, only the modules that they use."""
        self._undo.append(save_items(hooks))
        for hook in list(hooks.values()):
            for value in find_reachable(hook).values() if is_of_library(hook) else (hook,):
                if value is hook or isinstance(value, nn.Module):
                    self.save(value)

    def _copied(self, tensor: Tensor) -> Tensor:
        """Return the copy of a module's tensor, or the tensor itself if it is too large or requires a gradient."""
        if id(tensor) not in self._copies:
            kept = tensor.requires_grad or tensor.numel() > COPIED
            self._copies[id(tensor)] = self._save_uncopied(tensor) if kept else self._copy(tensor)
        return self._copies[id(tensor)]

    def _save_uncopied(self, tensor: Tensor) -> Tensor:
        """Save all of a tensor but its numbers, which may not be written to, and return it."""
        self.large.append(tensor)
        self._undo.append(save_layout(tensor))
        if tensor.is_leaf and tensor.grad is not None:
            self._undo.append(save_gradient(tensor))
        if tensor._backward_hooks:
            self._save_hooks(tensor._backward_hooks)
        if id(tensor) not in self._known:
            self._known.add(id(tensor))
            self._save_attributes(tensor, _DEPTH)
        return tensor

    def save_function(self, function: types.FunctionType) -> None:
        """Save the bindings of a function, once, and the objects bound; and so of the functions that it names."""
        waiting = [function]
        for number, function in enumerate(waiting):
            if function not in self.found.functions and number < FUNCTIONS:
                waiting += self._save_bindings(function)

    def _save_bindings(self, function: types.FunctionType) -> list[types.FunctionType]:
        """Save what a function uses, and return the functions among that."""
        bindings = self.found.functions[function] = read_bindings(function, self._earlier.functions.get(function))
        functions = [value for value in bindings.objects if type(value) is types.FunctionType]
        for value in bindings.objects if len(functions) < len(bindings.objects) else ():
            if type(value) is not types.FunctionType:
                self.save(value)
        self._bound.append(save_function_attributes(function))
        for held in (function.__defaults__, function.__kwdefaults__):
            if held:
                self.save(held)
        if function.__dict__:
            self.save(function.__dict__)
        else:
            self._empty.append(function.__dict__)
        return functions

    def save_class(self, kind: type) -> None:
        """Save the attributes of a user's class, once."""
        if id(kind) in self.found.classes:
            return
        _, before, objects = self.found.classes[id(kind)] = self._read_class(kind)
        for value in objects:
            if type(value) is types.FunctionType:
                self.save_function(value)
            else:
                self.save(value)
        self._bound += (functools.partial(restore_class, kind, before), save_kind_attributes(kind))

    def _read_class(self, kind: type) -> tuple[type, dict[str, Any], list[Any]]:
        """Return a class, a copy of its attributes, and those that have contents, its methods among them."""
        earlier = self._earlier.classes.get(id(kind))
        if earlier is not None and earlier[0] is kind and is_same_table(read_class(kind), earlier[1]):
            return earlier
        before = dict(read_class(kind))
        return kind, before, [value for value in before.values() if type(value) not in _FIXED and type(value) not in CONSTANT]

    def _save_kind(self, kind: type) -> None:
        """Save the user's classes that a class is or inherits from, and what their methods use."""
        for each in find_user_classes(kind):
            self.save_class(each)

    def note_identities(self) -> None:
        """Note what was found, if that is no more than which objects are where, for `restore` and for the next pass."""
        if self._has_contents or self._undo or self._copies or any(memory is None for *_, memory in self._parameters):
            return
        parameters, tables = [each.parameter for each in self._parameters], (table for _, _, table, _ in self._tables)
        self._identities = Identities(self.found, self.modules, parameters, tables, self._empty)

    def keep(self) -> Snapshot | None:
        """Return this snapshot, once it is restored, if a pass that finds everything unchanged may begin with it.

        Meanwhile it holds neither its guard, which holds it, nor the memory of parameters, which the user may replace.
        """
        if self._identities is None or self.created or self.moved:
            return None
        self._protected = lambda: iter(())
        self._parameters = [each._replace(memory=None) for each in self._parameters]
        return self

    def begin_again(self) -> bool:
        """Return whether everything is as it was found, and this snapshot serves another pass."""
        if self._identities is None or not self._identities.are_current():
            return False
        self._parameters = [each._replace(memory=each.parameter.data) for each in self._parameters]
        return True

    def restore(self) -> None:
        """Restore everything. It can be called again after an exception, such as an interrupt, at any line of it."""
        if self._identities is not None and self._identities.are_current():
            return
        for module, owner, contents in zip(self.modules, self._kinds, self.found.modules.values(), strict=False):
            restore_object(module, owner, contents.own)
            restore_table(contents.own, contents.held)
        for kind, name, table, before in self._tables:
            if (table or before) and not is_same_table(table, before):
                if name != "_buffers":
                    self.created |= {f"{kind.__name__}.{each}" for each, value in table.items() if value is not before.get(each)}
                restore_table(table, before)
        for parameter, its_kind, attributes, asked, memory in self._parameters:
            restore_object(parameter, its_kind, attributes)
            if memory is not None and read_memory(parameter) != read_memory(memory):
                self.moved = True
                parameter.data = memory
            if parameter.requires_grad != asked:
                parameter.requires_grad = asked  # not by the method, which torch refuses inside vmap
        for container in filter(None, self._empty):
            container.clear()
        for bindings in self.found.functions.values():
            bindings.restore()
        failed: BaseException | None = None
        for undo in (*self._bound, *self._undo):
            try:
                undo()
            except BaseException as error:  # the others must be undone nevertheless
                failed = error
        if failed is not None:
            raise failed

    def save(self, value: Any, depth: int = _DEPTH) -> None:
        """Save the contents of a module, of torch or Python, a function, a tensor, a container or an object, each once."""
        if type(value) in CONSTANT or id(value) in self._known or not depth or is_library_module(value):
            return
        if isinstance(value, nn.Module):
            for module in list_modules(value):
                refuse_scripts(module)
                self.save_module(module)
                self._save_kind(type(module))
            return
        self._known.add(id(value))
        if isinstance(value, types.FunctionType):
            if is_user_function(value):
                self.save_function(value)
        elif issubclass(type(value), type):  # `isinstance` believes what an object says of its class
            self._save_kind(value)
        else:
            self._has_contents |= type(value) is not tuple and not isinstance(value, _METHODS)
            self._save_contents(value, depth)
            self._save_attributes(value, depth - 1)

    def _save_contents(self, value: Any, depth: int) -> None:
        """Save what an object holds that is not in attributes."""
        if isinstance(value, Tensor):
            if count_numbers(value) > SMALL:
                self.large.append(value)
            elif not self._is_parameter(value):
                self._undo.append(save_tensor(value))
            if value.is_leaf and value.grad is not None:
                self._undo.append(save_gradient(value))
        elif isinstance(value, np.ndarray):
            self._undo.append((save_array if value.size <= SMALL else freeze_array)(value))
            if value.dtype.hasobject and value.size <= _LOOKED_INTO:
                for item in value.ravel().tolist():
                    self.save(item, depth - 1)
        elif isinstance(value, CONTAINERS):
            size = count_items(value)
            if not isinstance(value, tuple) and size <= _ITEMS:
                self._undo.append(save_items(value))
            items = list_items(value) if size <= _LOOKED_INTO else []
            if not CONSTANT.issuperset(map(type, items)):  # as they are in a vocabulary, which is large
                for item in items:
                    self.save(item, depth - 1)
        elif isinstance(value, _METHODS):
            if isinstance(value, types.BuiltinMethodType) and not isinstance(value.__self__, type | types.ModuleType):
                self._undo.append(save_builtin(value))
            self.save(value.__self__, depth)
            self.save(getattr(value, "__func__", None), depth)
        elif isinstance(value, functools.partial):
            self._undo.append(save_partial(value))
            for item in (value.func, *value.args, *value.keywords.values()):
                self.save(item, depth - 1)
        elif isinstance(value, _DESCRIPTORS):
            self._undo += [save(value) for kind, save in HELD_BY_DESCRIPTORS.items() if isinstance(value, kind)]
            for function in unwrap(value):
                self.save(function, depth)
        elif isinstance(value, GENERATORS):
            self._undo.append(save_generator(value, self._note_draw))
        else:
            self._undo += [save(value) for kind, save in _SAVERS.items() if isinstance(value, kind)]
            held = list_cached(value) if isinstance(value, CACHED) and value.cache_info().currsize else list_held(value)
            for item in held if len(held) <= _LOOKED_INTO else ():
                self.save(item, depth - 1)

    def _save_attributes(self, value: Any, depth: int) -> None:
        """Save what an object of user or library code holds in its dictionary and in its slots; any kind of object may."""
        kind: type = type(value)
        if str(kind.__module__).startswith("privet."):
            return
        self._save_kind(kind)
        own = read_attributes(value)
        if own is not None:
            self._undo += (functools.partial(restore_object, value, kind, own), save_items(own))
            for item in list(own.values()):
                self.save(item, depth)
        elif kind.__flags__ & _ON_HEAP:
            self._undo.append(functools.partial(restore_object, value, kind, None))
        self._save_slots(value, kind, depth)

    def _save_slots(self, value: Any, kind: type, depth: int) -> None:
        slots = list_slots(kind)
        if slots:
            self._undo.append(save_slots(value, slots))
            for slot in slots:
                self.save(read_slot(value, slot), depth)

    def _note_draw(self) -> None:
        self.drawn = True

    def _is_parameter(self, value: Tensor) -> bool:
        return value.requires_grad and any(value is parameter for parameter in self._protected())


@functools.lru_cache(maxsize=1024)
def _holds_more(kind: type) -> bool:
    """Return whether modules of a class hold more than attributes in a dictionary."""
    return bool(list_slots(kind)) or issubclass(kind, (*CONTAINERS, *_SAVERS))
