"""Deep copies of objects that `copy.deepcopy` refuses, such as one that holds a lock or a tensor with a history."""

from __future__ import annotations

__all__ = ["UncopyableError", "deep_copy", "is_bare", "list_attributes"]

import copy
import threading
import types
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from privet.errors import UnsupportedModelError

_MISSING = object()
_VIEWS = {type({}.keys()): dict.keys, type({}.values()): dict.values, type({}.items()): dict.items}
# Modules of Python whose own classes stand for something that is no data: a lock, an open file, a generator, a connection.
_HANDLES = ("builtins", "_thread", "_io", "sqlite3")
_IMMUTABLE = 1 << 8  # flag of classes in C, which no class statement sets
_IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)


class UncopyableError(UnsupportedModelError):
    """An object has contents that cannot be copied."""


def deep_copy(value: Any) -> Any:
    """Return a deep copy, in which only parts that hold nothing visible are shared: locks, files, generators, modules.

    Tensors that were computed with gradients are copied without their history.

    Raises:
        UncopyableError: a part has contents that cannot be copied.
    """
    try:
        return copy.deepcopy(value)
    except Exception:
        return _Copier().copy(value)


def is_bare(value: Any) -> bool:
    """Return whether an object has no attributes, elements or memory, such as a lock; so do modules, classes and open files."""
    kind = type(value)
    if issubclass(kind, types.ModuleType | type):
        return True
    if hasattr(kind, "__len__") or _has_memory(value):
        return False
    if kind.__module__ in _HANDLES and kind.__flags__ & _IMMUTABLE and kind is not threading.local:
        return True
    return next(list_attributes(value), None) is None and not any(map(_has_fields, kind.__mro__))


def list_attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, those in slots included, without its own code being asked for them."""
    for kind in type(value).__mro__:
        own = vars(kind)
        names = own.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            mangled = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            slot = own.get(mangled)
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    yield mangled, slot.__get__(value)
                except AttributeError:  # not set
                    continue
    try:
        held = _base(type(value)).__getattribute__(value, "__dict__")
    except AttributeError:
        return
    yield from list(held.items())


def _base(kind: type) -> Any:
    """Return the class whose methods make objects of a class, and read and write their attributes, without the class's own."""
    return threading.local if issubclass(kind, threading.local) else object


def _has_fields(kind: type) -> bool:
    """Return whether a class keeps attributes in C."""
    return any(isinstance(part, _IN_C) and not name.startswith("__") for name, part in vars(kind).items())


def _has_memory(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    except Exception:  # of memory that is closed already, for one
        return True
    return True


class _Copier:
    """Copies one object part by part.

    Attributes:
        memo: id → copy, of parts that were met; as for `copy.deepcopy`.
        alive: what the ids in `memo` belong to.
    """

    def __init__(self) -> None:
        self.memo: dict[int, Any] = {}
        self.alive: list[Any] = []

    def copy(self, value: Any) -> Any:
        """Return the copy of a part: by `copy.deepcopy` if that works."""
        known = self.memo.get(id(value), _MISSING)
        if known is not _MISSING:
            return known
        trial = dict(self.memo)  # of its own: a copy that fails leaves unfinished objects there
        self.alive += value, trial
        try:
            made = copy.deepcopy(value, trial)
        except Exception:
            made = self._rebuild(value)
        else:
            self.memo.update(trial)
        self.memo[id(value)] = made
        return made

    def _rebuild(self, value: Any) -> Any:
        kind = type(value)
        if issubclass(kind, Tensor):
            return value.detach().clone()
        if kind is tuple:
            return tuple(map(self.copy, value))
        if kind is memoryview:
            return _copy_memory(value)
        if kind is types.CellType:
            return types.CellType(self.copy(value.cell_contents))
        if kind is types.MappingProxyType:
            return types.MappingProxyType(self.copy(dict(value)))
        if kind in _VIEWS:
            return _VIEWS[kind](self.copy(dict(value.mapping)))
        if is_bare(value):
            return value
        if hasattr(kind, "__del__"):  # which would release what the copy shares with the object
            raise _uncopyable(value)
        for way in (self._by_reduction, self._by_attributes):
            before = dict(self.memo)
            try:
                return way(value)
            except UncopyableError:
                raise
            except Exception:
                self.memo = before
        raise _uncopyable(value)

    def _by_reduction(self, value: Any) -> Any:
        """Return a copy made as `copy.deepcopy` makes it, but of parts that this copier has copied."""
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):  # the name of a global object
            return value
        self.alive.append(reduced)
        make, args, state, items, pairs = (*reduced, None, None, None)[: max(5, len(reduced))]
        made = self.memo[id(value)] = make(*map(self.copy, args))
        if state is not None:
            _set_state(made, self.copy(state))
        for item in items or ():
            made.append(self.copy(item))
        for key, part in pairs or ():
            made[self.copy(key)] = self.copy(part)
        return made

    def _by_attributes(self, value: Any) -> Any:
        """Return a copy with copies of the attributes, for a class that does not say how to copy it."""
        base = _base(type(value))
        made = self.memo[id(value)] = base.__new__(type(value))  # a TypeError if the class has other contents than attributes
        for name, part in list_attributes(value):
            base.__setattr__(made, name, self.copy(part))
        return made


def _set_state(made: Any, state: Any) -> None:
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        made.__dict__.update(attributes)
    for name, part in (slots or {}).items():
        object.__setattr__(made, name, part)


def _copy_memory(view: memoryview) -> memoryview:
    copied = memoryview(bytearray(view.tobytes())).cast("B")
    copied = copied if view.format == "B" and view.ndim == 1 else copied.cast(view.format, view.shape)  # type: ignore[call-overload]
    return copied.toreadonly() if view.readonly else copied


def _uncopyable(value: object) -> UncopyableError:
    return UncopyableError(
        f"an object of type {type(value).__name__!r} cannot be copied, and reading the next example may change it: leave it out "
        "of what the data set and collate return, or put there copies of the tensors and numbers that are needed of it"
    )
