"""What user code holds, as far as generators of random numbers may be in it, and whether it holds something new."""

from __future__ import annotations

__all__ = ["Explored", "Unsearched", "Watch", "explore"]

import contextlib
import contextvars
import functools
import gc
import itertools
import operator
import random
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from privet.gradients.core.state.bindings import read_bindings
from privet.gradients.core.state.opaque import read_cell
from privet.gradients.core.state.reachable import read_attributes
from privet.gradients.core.state.user_code import find_user_classes, is_user_function

# Among how many objects generators are looked for, the nearest first. Of how many items of one class in a container all are
# followed, and else how many, if none of them leads to a generator: they are alike, and most are data. And how many items of a
# container are looked at.
_SEEN, _ALL, _SOME, _LONG = 10_000, 1000, 64, 1_000_000
# Of how many values it is noticed that each has been replaced, and of how many containers that they have grown.
_VALUES, _SIZES = 1000, 500

_KINDS = (torch.Generator, np.random.BitGenerator, np.random.SeedSequence, np.random.RandomState, random.Random)
# The global ones, which Privet seeds anyway.
_GLOBAL = {id(generator) for generator in (torch.default_generator, np.random.mtrand._rand, random._inst)}


class Unsearched:
    """Base of objects into which nobody looks, such as what is noted about others."""


# What holds no generators, and would be most of what is looked at: data. Of modules, functions name what they use.
_OPAQUE = (
    Tensor, np.generic, str, bytes, bytearray, int, float, complex, range, type(None), types.ModuleType,
    types.CodeType, Unsearched,
)  # fmt: skip
_ITEMS = (dict, list, tuple, set, frozenset, deque, np.ndarray, contextvars.ContextVar)
# They hold what they iterate over or call, and the local variables of the function that they are of.
_ITERATORS: tuple[type, ...] = (
    types.GeneratorType, type(iter(int, 0)), type(iter([])), type(iter(())), map, filter, zip, enumerate, itertools.chain,
    itertools.cycle, itertools.islice, itertools.repeat, itertools.starmap,
)  # fmt: skip
# What objects without a table of attributes hold, and where.
_HOLDERS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    types.FunctionType: ("__defaults__", "__kwdefaults__"),
    types.MethodType: ("__self__", "__func__"),
    types.BuiltinMethodType: ("__self__",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
}

_type: Callable[[object], Any] = type
# Attributes as NumPy defines them, whatever a subclass does.
_DTYPE: Callable[[Any], np.dtype[Any]] = np.ndarray.dtype.__get__
_FLAT: Callable[[Any], Iterable[object]] = np.ndarray.flat.__get__
_BITS, _ORIGIN = np.random.Generator.bit_generator.__get__, np.random.BitGenerator.seed_seq.__get__


@dataclass
class Explored(Unsearched):
    """What was found.

    Args:
        generators: id → generator and its kind.
        seen: id → object that may hold generators.
    """

    generators: dict[int, tuple[Any, type]] = field(default_factory=dict)
    seen: dict[int, Any] = field(default_factory=dict)


def explore(roots: Iterable[object], known: Collection[int] = ()) -> Explored:
    """Return the generators that can be reached, and what was looked at.

    Of containers whose items lead to generators, every item is followed.

    Args:
        roots: where to start.
        known: ids of objects that are left out.
    """
    found, parents, leads, spare, counted = Explored(), dict[int, Any](), set[int](), dict[int, list[Any]](), 0
    inside, others, rest = _sort(roots)
    found.generators.update((id(generator), (generator, kind)) for generator, kind in inside)
    waiting = deque[tuple[Any, Any]]((other, None) for other in others + rest)
    while waiting and counted < _SEEN:
        value, parent = waiting.popleft()
        if id(value) in found.seen or id(value) in known:
            continue
        found.seen[id(value)], parents[id(value)] = value, parent
        counted += id(parent) not in leads
        inside, others, rest = _sort(_held_by(value))
        found.generators.update((id(generator), (generator, kind)) for generator, kind in inside)
        waiting.extend((other, value) for other in others)
        if rest:
            spare[id(value)] = rest
        each = value if inside else None
        while each is not None and id(each) not in leads:
            leads.add(id(each))
            waiting.extend((other, each) for other in spare.pop(id(each), ()))
            each = parents[id(each)]
    return found


def _sort(values: Iterable[object]) -> tuple[list[tuple[Any, type]], list[object], list[object]]:
    """Return the generators among values, with their kinds, some that may hold others, and the rest of these."""
    listed = list(values)
    layouts = {kind: layout for kind in set(map(_type, listed)) if (layout := _lay_out(kind)) is not None}
    if not layouts:
        return [], [], []
    found, by_class = list[tuple[Any, type]](), dict[type, list[object]]()
    for value in listed:
        if (layout := layouts.get(_type(value))) is None or (layout.items is np.ndarray and not _DTYPE(value).hasobject):
            continue
        if layout.generator is not None and id(value) not in _GLOBAL:
            found += _take_apart(value, layout.generator)
        if layout.generator is None or layout.classes:
            by_class.setdefault(_type(value), []).append(value)
    some, rest = list[object](), list[object]()
    for same in by_class.values():
        step = 1 if len(same) <= _ALL else -(-len(same) // _SOME)
        some += same[::step]
        if step > 1:
            rest += (value for number, value in enumerate(same) if number % step)
    return found, some, rest


def _take_apart(generator: Any, kind: type) -> Iterator[tuple[Any, type]]:
    """Yield what a generator draws from, and what its children are seeded from, with their kinds."""
    if kind is np.random.Generator:
        generator, kind = _BITS(generator), np.random.BitGenerator
    yield generator, kind
    if kind is np.random.RandomState:
        generator = generator._bit_generator
    if isinstance(generator, np.random.BitGenerator) and isinstance(origin := _ORIGIN(generator), np.random.SeedSequence):
        yield origin, np.random.SeedSequence


class _Layout(NamedTuple):
    """Where the objects of a class hold others, besides their table of attributes.

    Args:
        generator: the kind of generator that they are, or None.
        items: the container that they are, or None.
        names: of attributes that are in no table.
        slots: which read attributes without calling methods of the user's.
        classes: their own ones that are the user's, which may hold others.
    """

    generator: type | None
    items: Any
    names: tuple[str, ...]
    slots: tuple[Any, ...]
    classes: tuple[type, ...]


@functools.lru_cache(maxsize=4096)
def _lay_out(kind: Any) -> _Layout | None:
    """Return the layout of a class; None if its objects hold no generators."""
    if issubclass(kind, _OPAQUE):
        return None
    slots = (member for each in kind.__mro__ if "__slots__" in vars(each) for member in vars(each).values())
    return _Layout(
        next((known for known in (np.random.Generator, *_KINDS) if issubclass(kind, known)), None),
        next((known for known in _ITEMS if issubclass(kind, known)), None),
        next((names for known, names in _HOLDERS.items() if issubclass(kind, known)), ()),
        tuple(member for member in slots if type(member) is types.MemberDescriptorType),
        find_user_classes(kind),
    )  # fmt: skip


def _held_by(value: Any) -> Iterator[object]:
    """Yield what an object holds, without calling methods of the user's."""
    if (layout := _lay_out(_type(value))) is None:
        return
    if layout.items is not None:
        read = _READERS.get(layout.items) or layout.items.__iter__
        yield from itertools.islice(read(value), _LONG)
    elif type(value) is types.FunctionType:
        yield from map(read_cell, value.__closure__ or ())
        if is_user_function(value):
            yield from (inner for _, inner, _ in read_bindings(value).found)
    elif isinstance(value, type):
        yield from vars(value).values() if _is_own_class(value) else ()
        return
    elif isinstance(value, _ITERATORS):
        yield from gc.get_referents(value)
        return
    yield from (getattr(value, name) for name in layout.names)
    yield from (read_attributes(value) or {}).values()
    yield from layout.classes
    yield from _read_slots(value)
    if isinstance(value, functools._lru_cache_wrapper):
        yield from _read_cache(value)


def _read_cache(function: Any, newest: int | None = None) -> Iterator[object]:
    """Yield what a cached function has returned, which Python code reaches in no other way.

    Args:
        function: of `functools.cache` or `lru_cache`.
        newest: how many of the newest values suffice, if the cache is not limited; None for all.
    """
    for each in gc.get_referents(function):
        if type(each) is dict and each is not function.__dict__:
            yield from itertools.islice(reversed(each.values()), newest)
        else:
            yield each


def _is_own_class(kind: type) -> bool:
    return any(kind is each for each in find_user_classes(kind))


def _read_slots(value: Any) -> Iterator[object]:
    layout = _lay_out(_type(value))
    for slot in () if layout is None else layout.slots:
        with contextlib.suppress(AttributeError):  # an empty one
            yield slot.__get__(value)


def _read_cells(cells: Iterable[types.CellType]) -> Iterator[object]:
    return map(read_cell, cells)


def _read_array(array: Any) -> Iterable[object]:
    """Return the objects in an array."""
    names = _DTYPE(array).names
    if names is None:
        return _FLAT(array) if _DTYPE(array).hasobject else ()
    return chain.from_iterable(_read_array(np.ndarray.__getitem__(array, name)) for name in names)


def _read_variable(variable: contextvars.ContextVar[Any]) -> Iterator[object]:
    with contextlib.suppress(LookupError):  # it has no value here
        yield variable.get()


# How to read what may change, by the class of what holds it.
_READERS: dict[Any, Callable[[Any], Iterable[object]]] = {
    dict: dict.values,
    list: list.__iter__,
    set: set.__iter__,
    deque: deque.__iter__,
    np.ndarray: _read_array,
    contextvars.ContextVar: _read_variable,
    types.MappingProxyType: types.MappingProxyType.values,
}


_SHORT = (_read_slots, _read_variable)


def _list_tables(value: Any) -> Iterator[tuple[Callable[[Any], Iterable[object]], Any]]:
    """Yield what an object holds that code may replace: how to read it, and where."""
    layout = _lay_out(_type(value))
    assert layout is not None
    if layout.items in _READERS:
        yield _READERS[layout.items], value
    elif type(value) is types.FunctionType:
        if value.__closure__:
            yield _read_cells, value.__closure__
        if is_user_function(value):
            yield dict.values, value.__globals__
    elif isinstance(value, type):
        if _is_own_class(value):
            yield types.MappingProxyType.values, vars(value)
        return
    if (attributes := read_attributes(value)) is not None:
        yield dict.values, attributes
    if layout.slots:
        yield _read_slots, value


class Watch(Unsearched):
    """Notices that objects hold something else than before, in a few microseconds.

    Of the first thousand values, the nearest first, it notices each that is replaced; of the others, only that a container grows.

    Args:
        seen: id → object that may hold generators.
    """

    def __init__(self, seen: dict[int, Any]) -> None:
        self.seen = dict[int, Any]()
        self._known, self._room = set[int](), _VALUES
        self._each = dict[Callable[[Any], Iterable[object]], list[Any]]()
        self._long, self._readers = list[Any](), list[Callable[[Any], Iterable[object]]]()
        self._cached = list[Any]()
        self.extend(seen)

    def extend(self, seen: dict[int, Any]) -> None:
        """Watch further objects, what they hold having been looked at."""
        self.seen.update(seen)
        for value in seen.values():
            for read, table in _list_tables(value):
                self._add(read, table)
            if isinstance(value, functools._lru_cache_wrapper) and len(self._cached) < _SOME:
                self._cached.append(value)
        self._values, self._sizes, self._misses = self._read()

    def _add(self, read: Callable[[Any], Iterable[object]], table: Any) -> None:
        if id(table) in self._known:
            return
        self._known.add(id(table))
        size = 4 if read in _SHORT else table.size if read is _read_array else len(table)
        if size <= self._room:
            self._room -= size
            self._each.setdefault(read, []).append(table)
        elif len(self._long) < _SIZES and read not in (*_SHORT, _read_array):  # these do not grow
            self._long.append(table)
            self._readers.append(read)

    def _read(self) -> tuple[list[object], list[int], list[int]]:
        misses = [function.cache_info().misses for function in self._cached]
        while True:
            with contextlib.suppress(RuntimeError):  # another thread is writing
                parts = (map(read, tables) for read, tables in self._each.items())
                return list(chain.from_iterable(chain.from_iterable(parts))), list(map(len, self._long)), misses

    def find_new(self) -> list[object]:
        """Return what has not been there at the last call, or at the start."""
        values, sizes, misses = self._read()
        if len(values) == len(self._values):
            new = list(itertools.compress(values, map(operator.is_not, values, self._values)))
        else:
            old = set(map(id, self._values))
            new = [value for value in values if id(value) not in old]
        if sizes != self._sizes:
            for read, table, size in zip(self._readers, self._long, self._sizes, strict=True):
                new += _read_end(read, table, size)
        if misses != self._misses:
            for function, number, before in zip(self._cached, misses, self._misses, strict=True):
                new += _read_cache(function, None if number < before else number - before) if number != before else ()
        if new or len(values) != len(self._values):
            self._values = values
        self._sizes, self._misses = sizes, misses
        return new


def _read_end(read: Callable[[Any], Iterable[object]], table: Any, before: int) -> list[object]:
    """Return the values that a container has besides its first ones; those of others than dicts and lists, all."""
    grown = max(len(table) - before, 0)
    if grown and isinstance(table, dict):
        return list(itertools.islice(reversed(dict.values(table)), grown))
    if grown and isinstance(table, list):
        return list.__getitem__(table, slice(before, None))
    return list(read(table)) if len(table) != before else []
