"""Isolation of state: after each pass, what user code has changed in its own state is restored.

During a pass, modules hold copies of their buffers and plain tensors. A tensor of one pass that stayed on a module would
otherwise be mistaken for an example's in the next pass, whose vmap has the same level.

What is restored, and a line of an honest program that needs it:

    self.h = h.detach(); Net.count += 1       attributes, parameters, buffers and submodules of modules; attributes of classes
    self.weight.CB = None                     attributes of parameters that have some
    self.mean.mul_(0.9).add_(h.mean())        buffers and tensors of modules, which are copies in a pass
    self.history.append(h); seen[key] = h     items of lists, dicts, sets and deques; attributes and slots of plain objects
    self.table[:] = h.numpy()                 numbers of arrays, and of tensors that containers, objects or names hold
    global total; nonlocal best               names that the loss, hooks and the methods of user classes use
    self.layer.requires_grad_(False)          whether a parameter requires a gradient
    torch.set_grad_enabled(False)             torch's modes, and the cache of parametrizations
    @functools.lru_cache                      caches of functions: they are emptied if they have grown

What modules, hooks and the loss hold is followed through `_DEPTH` containers and objects, and functions into the user's files.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat, starmap
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privet.gradients.core.batching import is_batched
from privet.gradients.parameters import list_modules
from privet.gradients.reachable import (
    MISSING,
    find_user_classes,
    is_user_function,
    list_parts,
    read_attributes,
    read_bindings,
    read_cell,
    refuse_scripts,
)

_DEPTH = 4  # containers and objects that are followed from a module, a name or a hook
_ITEMS = 1000  # most items of a container that are followed; more are restored, too
_CLASSES = 100  # most classes of examples that are kept: a program may make one for each example
_COPIED = 1 << 22  # most numbers of a module's tensor that is copied
_SMALL = 1 << 16  # most numbers of another tensor, or of an array, that is restored
_KINDS: tuple[Any, ...] = (OrderedDict, dict, list, set, deque)  # of containers: a subclass before its base
_CACHED = type(functools.lru_cache(len))
_CONSTANT = {
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, weakref.ProxyType,
    types.MemberDescriptorType, types.GetSetDescriptorType, types.CodeType,
}  # fmt: skip
_OF_LIBRARIES = ("privet.", "torch.distributed.")  # whose objects change in a pass on purpose, such as where shards are
_TABLES = {"_parameters", "_buffers", "_modules"}
_first = operator.itemgetter(0)
_version = operator.attrgetter("_version")
_asks_gradient = operator.attrgetter("requires_grad")
_Saved = tuple[Callable[[], bool], Callable[[], None]]  # returns whether an object is as it was; restores it
# What reads and writes torch's modes.
_MODES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    *(
        (functools.partial(read, kind), functools.partial(write, kind))
        for kind in ("cpu", "cuda")
        for read, write in (
            (torch.is_autocast_enabled, torch.set_autocast_enabled),
            (torch.get_autocast_dtype, torch.set_autocast_dtype),
        )
    ),
    *(
        (functools.partial(getattr, parametrize, name), functools.partial(setattr, parametrize, name))
        for name in ("_cache", "_cache_enabled")
    ),
)
_READ_MODES = tuple(read for read, _ in _MODES)


class Snapshot:
    """The state that some modules, functions and other objects reach, without what another snapshot `beside` it has.

    Attributes:
        modules: registered in others, or held by a container, an object or a function.
        parameters: of these modules, trained or not.
        kept: tensors that are neither copied nor restored, because they are large or require a gradient.
        classes: of the user's, whose attributes are restored.
    """

    def __init__(self, *roots: object, beside: Snapshot | None = None) -> None:
        self.modules: list[nn.Module] = []
        self.parameters: list[Tensor] = []
        self.kept: list[Tensor] = []
        self._replaced: list[tuple[dict[str, Any], str, Tensor]] = []  # by copies, in a pass
        self._containers: list[Any] = []
        self._empty: list[Any] = []
        self.classes: list[type] = []
        self._names: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # of each file: its globals, and those that are used
        self._cells: list[tuple[types.CellType, Any]] = []
        self._tensors: list[Tensor] = []
        self._frozen: list[np.ndarray[Any, Any]] = []  # too large to be copied: read-only in a pass
        self._saved: list[_Saved] = []
        self._known: set[int] = set() if beside is None else set(beside._known)
        self._files = {id(getattr(root, "__globals__", None)) for root in roots}
        self._waiting: list[tuple[Any, int]] = [(root, _DEPTH) for root in roots]
        for value, depth in self._waiting:  # which grows: the nearest first
            if depth and type(value) not in _CONSTANT and id(value) not in self._known:
                self._known.add(id(value))
                self._save(value, depth)
        self._copies = [dict(each.items()) if hasattr(each, "items") else list(each) for each in self._containers]
        self._views = list(map(vars, self.classes))
        self._attributes = list(map(dict, self._views))
        self._lookups = [(table.get, names, repeat(MISSING)) for table, names in self._names.values()]
        self._asked = list(map(_asks_gradient, self.parameters))
        self._sized = (*self._containers, *self._views)
        filled = list(filter(len, self._containers))  # an empty one that stays so has the same length
        tables = [each for each in filled if isinstance(each, dict)]
        self._bound = (*filled, *map(dict.values, tables), *(each.values() for each in self._views))
        self._lengths, self._items = list(map(len, self._sized)), list(self._iterate())
        self._numbers, self._versions = [x.detach().clone() for x in self._tensors], list(map(_version, self._tensors))
        self._frozen.sort(key=lambda x: x.base is not None)  # a view is writeable only if its owner is

    def _save(self, value: Any, depth: int) -> None:
        if isinstance(value, nn.Module):
            for module in list_modules(value):
                self._save_module(module)
        elif isinstance(value, types.FunctionType):
            if id(value.__globals__) in self._files or is_user_function(value):
                self._save_function(value)
        elif isinstance(value, type):
            for kind in find_user_classes(value):
                if kind is value or id(kind) not in self._known:
                    self._known.add(id(kind))
                    self.classes.append(kind)
                    self._follow(vars(kind).values(), _DEPTH)
        elif isinstance(value, Tensor):
            self._save_tensor(value)
        elif isinstance(value, np.ndarray):
            if value.size <= _SMALL:
                self._saved.append(_save_array(value))
            elif value.flags.writeable and (value.base is None or isinstance(value.base, np.ndarray)):
                self._frozen.append(value)
        elif isinstance(value, _KINDS):
            self._save_container(value, depth)
        elif isinstance(value, tuple):
            self._follow(value, depth - 1)
        elif type(value) is _CACHED:
            self._saved.append(_save_cache(value))
            self._follow(vars(value).values(), depth)
        elif parts := list_parts(value):
            self._follow(parts, depth)
        elif not isinstance(value, types.ModuleType) and not type(value).__module__.startswith(_OF_LIBRARIES):
            self._follow((type(value),), _DEPTH)
            if own := read_attributes(value):
                self._save_container(own, depth)
            self._save_slots(value, depth)

    def _follow(self, values: Iterable[Any], depth: int) -> None:
        self._waiting += [(value, depth) for value in values if type(value) not in _CONSTANT]

    def _save_container(self, container: Any, depth: int) -> None:
        self._containers.append(container)
        if len(container) <= _ITEMS:
            self._follow(container.values() if isinstance(container, dict) else container, depth - 1)

    def _save_module(self, module: nn.Module) -> None:
        own = vars(module)
        if id(own) in self._known:
            return
        self._known.update((id(module), id(own)))
        refuse_scripts(module)
        self.modules.append(module)
        tables = [own, *(own[name] for name in _TABLES)]
        self._containers += tables
        for parameter in filter(lambda x: x is not None, own["_parameters"].values()):
            self.parameters.append(parameter)
            if attributes := vars(parameter):  # weights in 8 bits hand theirs over in the first call
                self._save_container(attributes, _DEPTH)
        for table in (own, own["_buffers"]):
            for name, value in table.items():
                if isinstance(value, Tensor):
                    if value.requires_grad or value.numel() > _COPIED:
                        self.kept.append(value)
                    else:
                        self._replaced.append((table, name, value))
                elif type(value) in (OrderedDict, dict, list, set) and not value:
                    self._empty.append(value)
                elif name not in _TABLES:
                    self._waiting.append((value, _DEPTH))
        self._waiting.append((type(module), _DEPTH))

    def _save_function(self, function: types.FunctionType) -> None:
        for name, value, place in read_bindings(function):
            if isinstance(place, dict):
                self._names.setdefault(id(place), (place, {}))[1].setdefault(name, value)
            else:
                self._cells.append((place, value))
            self._waiting.append((value, _DEPTH))
        self._follow((function.__dict__, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()), _DEPTH)

    def _save_tensor(self, x: Tensor) -> None:
        if x.requires_grad or x.numel() > _SMALL or x.is_inference() or hasattr(x, "placements"):  # the last of a shard
            self.kept.append(x)
        elif x.layout != torch.strided:
            self._saved.append(_save_sparse(x))
        elif not x.is_nested and not is_batched(x):
            self._tensors.append(x)

    def _save_slots(self, value: object, depth: int) -> None:
        slots = [
            slot
            for kind in find_user_classes(type(value))
            for slot in vars(kind).values()
            if type(slot) is types.MemberDescriptorType
        ]
        if slots:
            held = {slot.__name__: getattr(value, slot.__name__) for slot in slots if hasattr(value, slot.__name__)}
            self._saved.append(_save_attributes(value, held))
            self._follow(held.values(), depth - 1)

    def _iterate(self) -> Iterator[Any]:
        """Iterate in C over all that is bound, twice per pass: the same objects as long as nothing has changed."""
        return chain(
            chain.from_iterable(self._bound),
            chain.from_iterable(starmap(map, self._lookups)),
            map(read_cell, map(_first, self._cells)),
            map(_asks_gradient, self.parameters),
        )

    def is_current(self) -> bool:
        """Return whether everything is as it was when it was found."""
        return (
            list(map(len, self._sized)) == self._lengths
            and all(map(operator.is_, self._iterate(), self._items))
            and not any(self._empty)
            and list(map(_version, self._tensors)) == self._versions
            and (not self._saved or all(is_same() for is_same, _ in self._saved))
        )

    def begin(self, copy: Callable[[Tensor], Tensor]) -> None:
        """Replace buffers and tensors of modules by copies; modules that share a tensor share its copy."""
        copies: dict[int, Tensor] = {}
        for table, name, x in self._replaced:
            if id(x) not in copies:
                copies[id(x)] = copy(x)
            table[name] = copies[id(x)]
        for array in self._frozen:
            array.flags.writeable = False

    def restore(self) -> set[str]:
        """Restore everything; return the names of parameters and submodules that were created since, and are gone now."""
        for array in self._frozen:
            array.flags.writeable = True
        for table, name, x in self._replaced:
            table[name] = x
        if self.is_current():
            return set()
        before: dict[int, Any] = {id(each): copied for each, copied in zip(self._containers, self._copies, strict=True)}
        created = {
            f"{type(module).__name__}.{name}"
            for module in self.modules
            for table in (module._parameters, module._modules)
            for name, value in table.items()
            if value is not before[id(table)].get(name)
        }
        for container, copied in zip(self._containers, self._copies, strict=True):
            _restore_items(container, copied)
        for container in filter(None, self._empty):
            container.clear()
        for kind, attributes in zip(self.classes, self._attributes, strict=True):
            _restore_class(kind, attributes)
        for table, names in self._names.values():
            _restore_names(table, names)
        for cell, value in self._cells:
            if value is not MISSING:
                cell.cell_contents = value
            elif read_cell(cell) is not MISSING:
                del cell.cell_contents
        for parameter, asked in zip(self.parameters, self._asked, strict=True):
            if parameter.requires_grad != asked:
                parameter.requires_grad = asked  # not by the method, which torch refuses inside vmap
        for x, numbers, version in zip(self._tensors, self._numbers, self._versions, strict=True):
            if x._version != version:
                _restore_numbers(x, numbers)
        self._versions = list(map(_version, self._tensors))
        for _, restore in self._saved:
            restore()
        return created


def _restore_items(container: Any, before: Any) -> None:
    kind = next(each for each in _KINDS if isinstance(container, each))
    is_table = issubclass(kind, dict)
    now = [*container, *container.values()] if is_table else [*container]
    kept = [*before, *before.values()] if is_table else before
    if len(now) != len(kept) or not all(map(operator.is_, now, kept)):
        kind.clear(container)
        (kind.extend if kind in (list, deque) else kind.update)(container, before)


def _restore_names(table: dict[str, Any], before: Mapping[str, Any]) -> None:
    for name, value in before.items():
        if value is MISSING:
            table.pop(name, None)
        elif table.get(name, MISSING) is not value:
            table[name] = value


def _restore_class(kind: type, before: Mapping[str, Any]) -> None:
    for name in vars(kind).keys() - before.keys():
        delattr(kind, name)
    for name, value in before.items():
        if vars(kind).get(name, MISSING) is not value:
            setattr(kind, name, value)


def _restore_numbers(x: Tensor, numbers: Tensor) -> None:
    if x._base is None:
        x.detach_()  # written to with gradients, it became part of a graph; a view cannot be taken out
    with torch.no_grad():
        x.copy_(numbers)


def _save_sparse(x: Tensor) -> _Saved:
    def read() -> Tensor:
        return x.detach()._values() if x.layout is torch.sparse_coo else x.detach().values()

    kept = read().clone()
    return lambda: torch.equal(read(), kept), lambda: _restore_numbers(read(), kept)


def _save_array(x: np.ndarray[Any, Any]) -> _Saved:
    kept, numbers = x.copy(), x.tobytes()

    def restore() -> None:
        if x.tobytes() != numbers:
            x[...] = kept

    return lambda: x.tobytes() == numbers, restore


def _save_attributes(value: object, held: Mapping[str, Any]) -> _Saved:
    def restore() -> None:
        for name, before in held.items():
            object.__setattr__(value, name, before)

    return lambda: all(getattr(value, name, MISSING) is before for name, before in held.items()), restore


def _save_cache(function: Any) -> _Saved:
    """Save whether a function's cache grows, since its entries cannot be saved."""
    misses = function.cache_info().misses
    return lambda: function.cache_info().misses == misses, function.cache_clear


class Guard:
    """Restores the state that is reachable from a model and a loss function; the values of parameters are never written to.

    Attributes:
        created: names of parameters and submodules that user code bound during a pass, and that were removed after it.
    """

    def __init__(self, model: nn.Module, loss_fn: object, parameters: Mapping[str, Tensor]) -> None:
        self._roots: tuple[object, ...] = (model, loss_fn)
        self._trained = parameters
        self._current = Snapshot(model, loss_fn)
        self._last: Snapshot | None = self._current  # for a pass that finds everything as it did
        self._places: set[int | None] | None = None  # of protected tensors, in this pass
        self.created: set[str] = set()

    @contextlib.contextmanager
    def isolate(self, batched: Callable[[Tensor], Tensor] | None = None, held: Sequence[object] = ()) -> Iterator[None]:
        """Return a context in which modules hold copies of buffers and tensors; on exit, also after errors, restore everything.

        Args:
            batched: copies a buffer, if each example gets its own copy to write into.
            held: objects that examples hold, and may share with others.
        """
        last, self._last, outer = self._last, None, self._current  # a pass inside this one finds another state
        found = last if last is not None and last.is_current() else Snapshot(*self._roots)
        shared = [] if _CONSTANT.issuperset(map(type, held)) else [Snapshot(*held, beside=found)]
        classes = [kind for each in shared for kind in each.classes]
        if classes and len(self._roots) < _CLASSES:
            self._roots += tuple(classes)  # which other examples have, too: to search them takes longer than a pass
            found = Snapshot(*self._roots)
            shared = [Snapshot(*held, beside=found)]
        modes = list(map(operator.call, _READ_MODES))
        self._current, self._places = found, None
        try:
            # Examples after the one that computed a cached weight would have no gradient through it.
            parametrize._cache, parametrize._cache_enabled = {}, 0
            found.begin(batched or torch.clone)
            yield
        finally:
            for each in (found, *shared):
                self.created |= each.restore()
            for value, (_, write) in zip(modes, _MODES, strict=True):
                write(value)
            self._current, self._last, self._places = outer if last is None else found, found, None

    @property
    def modules(self) -> Sequence[nn.Module]:
        """The modules that the current pass found, or the last one before any."""
        return self._current.modules

    def iter_parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of all reachable modules, trained or not."""
        yield from self._current.parameters

    def forget_places(self) -> None:
        """Note that the memory of parameters has moved."""
        self._places = None

    def is_protected(self, x: Tensor) -> bool:
        """Return whether a tensor shares memory with a parameter, trained or frozen, or with a tensor that is not copied."""
        protected = (*self._trained.values(), *self._current.parameters, *self._current.kept)
        place = data_pointer(x)
        if place is None:  # without numbers
            return any(x is each for each in protected)
        if self._places is None:
            self._places = set(map(data_pointer, protected))
        return place in self._places


def data_pointer(x: Tensor) -> int | None:
    """Return where a tensor's memory begins; None for a tensor batched by vmap, or without memory."""
    try:
        return x.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None
