"""Objects of Python's own kinds that hold others, or a state, without attributes: cells, exceptions, locks, views, iterators."""

from __future__ import annotations

__all__ = ["SAVERS_OF_OPAQUE", "list_held", "read_cell"]

import functools
import gc
import threading
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from privet.gradients.core.state.restoring import MISSING, Restore, save_slots

_LOCK: Any = type(threading.Lock())
_RECURSIVE: Any = type(threading.RLock())
_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_TABLES: tuple[dict[Any, Any], ...] = ({}, OrderedDict())
_HOLDERS: tuple[type, ...] = (
    types.MappingProxyType, types.CellType, slice, frozenset, BaseException,
    *(type(view) for table in _TABLES for view in (table.keys(), table.values(), table.items())),
    *(type(iter(kind())) for kind in (list, tuple, dict, set)), type(reversed([])), enumerate, map, filter, zip,
)  # fmt: skip


def list_held(value: Any) -> list[Any]:
    """Return what an object of these kinds holds; nothing for objects of other kinds."""
    return gc.get_referents(value) if isinstance(value, _HOLDERS) else []


def read_cell(cell: types.CellType) -> Any:
    """Return the value of a name of a closure, `MISSING` if it has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _save_cell(cell: types.CellType) -> Restore:
    """Save the value of a name of a closure."""
    before = read_cell(cell)

    def restore() -> None:
        if read_cell(cell) is before:
            return
        if before is MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = before

    return restore


@functools.lru_cache(maxsize=1024)
def _list_fields(kind: Any) -> list[Any]:
    """Return the fields of an exception that Python keeps outside of its attributes, such as `args`, `value` and `errno`."""
    own = (vars(each) for each in kind.__mro__ if each is not object)
    return [x for names in own for name, x in names.items() if type(x) in _FIELDS and name not in ("__dict__", "__weakref__")]


def _save_exception(error: BaseException) -> Restore:
    """Save an exception's fields."""
    kind: Any = type(error)
    return save_slots(error, _list_fields(kind))


def _save_lock(lock: Any) -> Restore:
    """Save whether a lock is locked."""
    before = lock.locked()

    def restore() -> None:
        if lock.locked() != before:
            lock.acquire(blocking=False) if before else lock.release()

    return restore


def _save_recursive_lock(lock: Any) -> Restore:
    """Save how often this thread has locked a lock."""
    before = lock._recursion_count()

    def restore() -> None:
        while lock._recursion_count() > before:
            lock.release()
        while lock._recursion_count() < before and lock.acquire(blocking=False):
            pass

    return restore


def _save_record(record: np.void) -> Restore:
    """Save the fields of a record of an array."""
    before = record.copy()

    def restore() -> None:
        for name in record.dtype.names or ():
            record[name] = before[name]

    return restore


SAVERS_OF_OPAQUE: dict[type, Callable[[Any], Restore]] = {
    types.CellType: _save_cell,
    BaseException: _save_exception,
    np.void: _save_record,
    _LOCK: _save_lock,
    **({_RECURSIVE: _save_recursive_lock} if hasattr(_RECURSIVE, "_recursion_count") else {}),
}
