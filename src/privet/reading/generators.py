"""Generators of random numbers that a data set or `collate` uses: each example gets numbers of its own from them, too."""

from __future__ import annotations

__all__ = ["OwnGenerators"]

import contextlib
import functools
import itertools
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from privet.gradients.core.state.bindings import read_bindings
from privet.gradients.core.state.opaque import read_cell
from privet.gradients.core.state.reachable import read_attributes
from privet.gradients.core.state.user_code import find_user_classes, is_user_function

# Among how many objects generators are looked for, the nearest first, and in how many items of a container: longer ones hold
# data, whose items are alike.
_SEEN, _HELD = 10_000, 64
_ODD = 0x9E37_79B9_7F4A_7C15  # so that no two generators of one kind begin alike


def _seed_bits(bits: np.random.BitGenerator, seed: int) -> None:
    bits.state = type(bits)(seed).state


def _write_bits(bits: np.random.BitGenerator, state: Any) -> None:
    bits.state = state


# Kind of a generator → how to seed it, to read its state, and to write it. Those of subclasses are their own methods.
_KINDS: dict[type, tuple[Callable[[Any, int], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    torch.Generator: (
        lambda generator, seed: generator.manual_seed(seed), lambda generator: generator.get_state(),
        lambda generator, state: generator.set_state(state),
    ),
    np.random.BitGenerator: (_seed_bits, lambda bits: bits.state, _write_bits),
    np.random.RandomState: (
        lambda generator, seed: generator.seed(seed % 2**32), lambda generator: generator.get_state(),
        lambda generator, state: generator.set_state(state),
    ),
    random.Random: (
        lambda generator, seed: generator.seed(seed), lambda generator: generator.getstate(),
        lambda generator, state: generator.setstate(state),
    ),
}  # fmt: skip
# The global ones, which Privet seeds anyway.
_GLOBAL = {id(generator) for generator in (torch.default_generator, np.random.mtrand._rand, random._inst)}

# What holds no generators, and would be most of what is looked at: data. Of modules, functions name what they use.
_OPAQUE = (
    Tensor, np.ndarray, np.generic, str, bytes, bytearray, int, float, complex, range, type(None), types.ModuleType,
    types.CodeType,
)  # fmt: skip
_ITEMS = (dict, list, tuple, set, frozenset, deque)
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


class OwnGenerators:
    """The generators that user code uses.

    They are looked for in attributes and slots, in containers, in what functions hold, in the user's own classes, and in the
    globals that the user's functions name; the global ones are not among them. Everywhere in the first, second, fourth, eighth, …
    read, because it takes about as long as a few examples; in all others where some were, as a program may replace them.

    Args:
        owners: user code that reads, such as a data set and `collate`.

    Attributes:
        owners: the same.
    """

    def __init__(self, *owners: object) -> None:
        self.owners, self._reads, self._barren = owners, 0, dict[int, object]()

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return OwnGenerators, self.owners

    def keep(self) -> _Kept:
        """Return a context for one read of several examples."""
        self._reads += 1
        everywhere = self._reads & (self._reads - 1) == 0
        return _Kept(lambda: self._find(everywhere=everywhere))

    def _find(self, *, everywhere: bool) -> list[tuple[Any, type]]:
        found, barren = _find(self.owners, {} if everywhere else self._barren)
        if everywhere:
            self._barren = barren
        return found


class _Kept:
    """A context in which each example's numbers begin anew, and after which the generators are as before.

    Args:
        find: function that returns generators, with their kinds.
    """

    def __init__(self, find: Callable[[], list[tuple[Any, type]]]) -> None:
        self._find, self._found = find, dict[int, tuple[Any, Any, type]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for generator, state, kind in self._found.values():
            _KINDS[kind][2](generator, state)

    def seed(self, number: int, *, look_again: bool) -> None:
        """Let all begin anew from a 64-bit number, after looking for further ones if `look_again`: a first call creates some."""
        for generator, kind in self._find() if look_again else ():
            if id(generator) not in self._found:
                with contextlib.suppress(NotImplementedError):  # of those that ask the operating system and have no state
                    self._found[id(generator)] = (generator, _KINDS[kind][1](generator), kind)
        for place, (generator, _, kind) in enumerate(self._found.values(), start=1):
            _KINDS[kind][0](generator, (number + place * _ODD) % 2**64)


def _find(roots: tuple[object, ...], barren: dict[int, object]) -> tuple[list[tuple[Any, type]], dict[int, object]]:
    """Return the generators that can be reached, with their kinds, and the objects through which none is, by identity.

    Args:
        roots: where to start.
        barren: objects that are left out.
    """
    waiting = deque[tuple[Any, Any]]([(roots, None)])
    seen, found, holders = dict[int, tuple[Any, Any]](), list[tuple[Any, type]](), dict[int, object]()
    while waiting and len(seen) < _SEEN:
        value, holder = waiting.popleft()
        if id(value) in seen or id(value) in barren:
            continue
        seen[id(value)] = value, holder
        inside, others = _split(_held_by(value))
        waiting.extend((other, value) for other in others)
        found += inside
        each = value if inside else None
        while each is not None and id(each) not in holders:
            holders[id(each)], each = seen[id(each)]
    return found, {key: value for key, (value, _) in seen.items() if key not in holders}


def _split(values: Iterable[object]) -> tuple[list[tuple[Any, type]], list[object]]:
    """Return the generators among values, with their kinds, and those that may hold some."""
    found: list[tuple[Any, type]] = []
    others: list[object] = []
    for value in values:
        layout = _lay_out(_type(value))
        if layout is None or (type(value) in _ITEMS and not value):
            continue
        if layout.generator is None:
            others.append(value)
        elif id(value) not in _GLOBAL:
            found.append((value.bit_generator if type(value) is np.random.Generator else value, layout.generator))
    return found, others


_type: Callable[[object], Any] = type


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
        np.random.BitGenerator if kind is np.random.Generator
        else next((known for known in _KINDS if issubclass(kind, known)), None),
        next((known for known in _ITEMS if issubclass(kind, known)), None),
        next((names for known, names in _HOLDERS.items() if issubclass(kind, known)), ()),
        tuple(member for member in slots if type(member) is types.MemberDescriptorType),
        find_user_classes(kind),
    )  # fmt: skip


def _held_by(value: Any) -> Iterator[object]:
    """Yield what an object holds, without calling methods of the user's."""
    if (layout := _lay_out(_type(value))) is None:
        return
    if layout.items is dict:
        yield from itertools.islice(dict.values(value), _HELD)
    elif layout.items is not None:
        yield from itertools.islice(layout.items.__iter__(value), _HELD)
    elif type(value) is types.FunctionType:
        yield from map(read_cell, value.__closure__ or ())
        if is_user_function(value):
            yield from (inner for _, inner, _ in read_bindings(value).found)
    elif isinstance(value, type):
        yield from vars(value).values() if any(value is each for each in find_user_classes(value)) else ()
        return
    yield from (getattr(value, name) for name in layout.names)
    yield from (read_attributes(value) or {}).values()
    yield from layout.classes
    for slot in layout.slots:
        with contextlib.suppress(AttributeError):  # an empty one
            yield slot.__get__(value)
