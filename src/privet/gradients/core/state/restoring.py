"""Saving the contents of one object: each function returns a function that restores them, if they changed."""

from __future__ import annotations

__all__ = [
    "CACHED",
    "CONTAINERS",
    "GENERATORS",
    "LARGE",
    "MISSING",
    "SAVERS",
    "SMALL",
    "Restore",
    "count_items",
    "freeze_array",
    "list_cached",
    "list_items",
    "list_slots",
    "read_slot",
    "save_array",
    "save_generator",
    "save_items",
    "save_slots",
    "too_large",
]

import array
import functools
import gc
import io
import pickle
import random
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from privet.errors import UnsupportedModelError

Restore = Callable[[], None]
MISSING = object()
CACHED = type(functools.lru_cache(len))  # functions with a cache
CONTAINERS: tuple[type, ...] = (OrderedDict, dict, list, set, deque, tuple)  # a subclass before its base
SMALL = 1 << 16  # most numbers of what is restored, except buffers and tensors of modules
LARGE = 1 << 22  # most numbers of bytearrays and of Python's arrays, which are copied in no time
# Generators of random numbers that keep a state, and how it is read and written.
_STATES: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
    random.Random: (random.Random.getstate, random.Random.setstate),
    np.random.RandomState: (np.random.RandomState.get_state, np.random.RandomState.set_state),
    np.random.Generator: (
        lambda made: _read_bits(made.bit_generator),
        lambda made, state: _write_bits(made.bit_generator, state),
    ),
    np.random.BitGenerator: (lambda made: _read_bits(made), lambda made, state: _write_bits(made, state)),
    np.random.SeedSequence: (lambda made: made.state, lambda made, state: made.__init__(**state)),
}
GENERATORS = tuple(_STATES)


def _read_bits(bits: np.random.BitGenerator) -> tuple[Any, Any]:
    """Return the state of a bit generator, and that of the sequence that it spawns others from."""
    seeds = getattr(bits, "seed_seq", None)
    return bits.state, seeds.state if isinstance(seeds, np.random.SeedSequence) else None


def _write_bits(bits: np.random.BitGenerator, state: tuple[Any, Any]) -> None:
    bits.state, seeds = state
    if seeds is not None:
        bits.seed_seq.__init__(**seeds)  # type: ignore[misc]


# Their draws are watched, and they are restored after each step.
_GLOBAL = (random._inst, np.random.mtrand._rand, torch.default_generator)


def save_array(x: np.ndarray[Any, Any]) -> Restore:
    """Save the numbers, the type and the shape of an array."""
    kept, writeable, kind, names = x.view(np.ndarray).copy(), x.flags.writeable, x.dtype, x.dtype.names

    def restore() -> None:
        if x.flags.writeable != writeable:
            x.flags.writeable = True
        if kind.names != names:
            kind.names = names
        if x.dtype is not kind and x.dtype != kind:
            x.dtype = kind  # type: ignore[misc]
        if x.shape != kept.shape:
            x.resize(kept.shape, refcheck=False)
        if x.flags.writeable:
            x.view(np.ndarray)[...] = kept  # a masked array would keep what is hidden
        if x.flags.writeable != writeable:
            x.flags.writeable = writeable

    return restore


def _is_owner(x: np.ndarray[Any, Any]) -> bool:
    """Return whether an array owns its memory, or has it from a buffer that can be written to."""
    try:
        return x.base is None or not memoryview(x.base).readonly  # type: ignore[arg-type]
    except TypeError:  # no buffer
        return False


def freeze_array(x: np.ndarray[Any, Any]) -> Restore:
    """Make an array read-only that is too large to be copied for every pass, with the arrays that it is a view of.

    Raises:
        UnsupportedModelError: its memory is that of a tensor, such as a parameter, or of another object that NumPy could not
            make writable again.
    """
    if not x.flags.writeable:
        return lambda: None
    chain = [x]
    while isinstance(chain[-1].base, np.ndarray):
        chain.append(chain[-1].base)
    owner = chain[-1]
    if not _is_owner(owner):
        raise UnsupportedModelError(
            f"the model or loss holds a NumPy array of {x.size:,} numbers in the memory of a {type(owner.base).__name__}: what "
            "is written to it would outlive the pass; hold a copy of it"
        )
    frozen = [each for each in reversed(chain) if each.flags.writeable]  # the one that owns the memory first
    for each in frozen:
        each.flags.writeable = False

    def restore() -> None:
        for each in frozen:
            each.flags.writeable = True

    return restore


def list_items(container: Any) -> list[Any]:
    """Return the items of a container, of a dict keys and values, without calling methods of the user's."""
    kind = _kind(container)
    return [*kind.keys(container), *kind.values(container)] if issubclass(kind, dict) else list(kind.__iter__(container))


def count_items(container: Any) -> int:
    """Return how many items a container has, without calling methods of the user's."""
    return int(_kind(container).__len__(container))


def save_items(container: Any) -> Restore:
    """Save the items of a container, without calling methods of the user's."""
    kind = _kind(container)
    if issubclass(kind, dict):
        table, factory = dict(kind.items(container)), _read_factory(container)

        def restore() -> None:
            if _read_factory(container) is not factory:
                _FACTORY.__set__(container, factory)
            now = dict(kind.items(container))
            if [*map(id, now), *map(id, now.values())] != [*map(id, table), *map(id, table.values())]:
                kind.clear(container)
                kind.update(container, table)
    else:
        items = list(kind.__iter__(container))

        def restore() -> None:
            if list(map(id, kind.__iter__(container))) == list(map(id, items)):
                return
            if kind is list:
                kind.__setitem__(container, slice(None), items)
            else:
                kind.clear(container)
                (kind.update if kind is set else kind.extend)(container, items)

    return restore


_FACTORY: Any = vars(defaultdict)["default_factory"]


def _read_factory(container: Any) -> Any:
    return _FACTORY.__get__(container) if isinstance(container, defaultdict) else None


def _kind(container: Any) -> Any:
    """Return Python's own kind of a container, whose methods are called: a subclass may load or create items in its own."""
    own = type(container)
    return own if own in CONTAINERS else next(kind for kind in CONTAINERS if issubclass(own, kind))


def _save_numbers(numbers: bytearray | array.array[Any]) -> Restore:
    """Save the numbers of a bytearray or of an array of Python's.

    Raises:
        UnsupportedModelError: there are too many to copy them for every pass.
    """
    if len(numbers) > LARGE:
        raise too_large(type(numbers).__name__, len(numbers))
    kept = numbers[:]

    def restore() -> None:
        if bytes(numbers) != bytes(kept):  # equal numbers may differ in their sign
            numbers[:] = kept  # type: ignore[assignment]

    return restore


def too_large(kind: str, size: int) -> UnsupportedModelError:
    """Return the refusal of an object with more numbers than can be copied for every pass."""
    return UnsupportedModelError(
        f"the model or loss holds a {kind} of {size:,} numbers, which is too large to be restored after each example; hold a "
        "tensor in a buffer, or bytes, which cannot be written to"
    )


def _save_view(view: memoryview) -> Restore:
    """Save what a view shows, as it can be written to although its owner, a large array, is read-only; nobody can release it.

    Raises:
        UnsupportedModelError: it can be written to, and is too large to be copied for every pass.
    """
    try:
        held, shown = pickle.PickleBuffer(view), np.asarray(view)
    except ValueError:  # it was released
        return lambda: None
    if not shown.flags.writeable:
        return held.release
    if shown.nbytes > SMALL:
        raise too_large("memoryview", shown.nbytes)
    undo = save_array(shown)

    def restore() -> None:
        held.release()
        undo()

    return restore


def _save_stream(stream: io.StringIO | io.BytesIO) -> Restore:
    """Save the contents and the position of a file in memory; a closed one is opened again."""
    if stream.closed:
        return lambda: None
    kept, position = stream.getvalue(), stream.tell()
    open_again: Any = (io.StringIO if isinstance(stream, io.StringIO) else io.BytesIO).__init__

    def restore() -> None:
        if stream.closed:
            open_again(stream, kept)
        if (stream.getvalue(), stream.tell()) != (kept, position):
            stream.seek(0), stream.truncate()
            stream.write(kept)  # type: ignore[arg-type]
            stream.seek(position)

    return restore


def _save_cache(function: Any) -> Restore:
    """Save whether a function's cache has grown, as its entries cannot be saved: it is emptied then."""
    before = function.cache_info().misses

    def restore() -> None:
        if function.cache_info().misses != before:
            function.cache_clear()

    return restore


def list_cached(function: Any) -> list[Any]:
    """Return what a cache that is not empty refers to: arguments, results and the function, but not its own tables."""
    endless, found = function.cache_parameters()["maxsize"] is None, list[Any]()
    for held in gc.get_referents(function):
        if held is function.__dict__:
            continue
        if type(held) is dict and (endless or any(type(x).__name__ == "_lru_list_elem" for x in held.values())):
            found += held.values()
        else:
            found.append(held)
    return found


def save_generator(generator: Any, drawn: Callable[[], None]) -> Restore:
    """Save the state of a generator of random numbers that is not a global one.

    Args:
        drawn: is called on restoring if it was drawn from. Draws from torch's generators are intercepted, and do not count.
    """
    if isinstance(generator, random.SystemRandom) or any(generator is each for each in _GLOBAL):
        return lambda: None
    read, write = next(pair for kind, pair in _STATES.items() if isinstance(generator, kind))
    before = read(generator)
    kept = None if isinstance(generator, torch.Generator) else pickle.dumps(before)

    def restore() -> None:
        if kept is None or pickle.dumps(read(generator)) != kept:
            if kept is not None:
                drawn()
            write(generator, before)

    return restore


@functools.lru_cache(maxsize=1024)
def list_slots(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """Return the slots that a class and its bases declare in Python."""
    own = (vars(each) for each in kind.__mro__)
    return tuple(x for names in own if "__slots__" in names for x in names.values() if type(x) is types.MemberDescriptorType)


def read_slot(holder: Any, slot: types.MemberDescriptorType) -> Any:
    """Return what an object holds in a slot; `MISSING` for nothing."""
    try:
        return slot.__get__(holder)
    except AttributeError:
        return MISSING


def save_slots(holder: Any, slots: Sequence[types.MemberDescriptorType]) -> Restore:
    """Save what an object holds in its slots."""
    before = [read_slot(holder, slot) for slot in slots]

    def restore() -> None:
        for slot, kept in zip(slots, before, strict=True):
            if read_slot(holder, slot) is kept:
                continue
            if kept is MISSING:
                slot.__delete__(holder)
            else:
                slot.__set__(holder, kept)

    return restore


# Objects whose state is not in attributes, and what saves it.
SAVERS: dict[type, Callable[[Any], Restore]] = {
    bytearray: _save_numbers,
    memoryview: _save_view,
    array.array: _save_numbers,
    io.StringIO: _save_stream,
    io.BytesIO: _save_stream,
    CACHED: _save_cache,
}
