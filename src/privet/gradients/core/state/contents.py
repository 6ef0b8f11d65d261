"""What a module's dictionary holds, sorted once: between passes most modules keep the same objects."""

from __future__ import annotations

__all__ = ["CONSTANT", "Contents", "is_same_table", "read_contents", "restore_table"]

import operator
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_TABLES = ("_parameters", "_buffers", "_modules")
CONSTANT = {
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size,
    weakref.ProxyType, weakref.CallableProxyType,
}  # fmt: skip
_EMPTIED = {dict, set, list}
# Of its own, torch's modules have empty ones, of a kind that may have attributes; nobody gives them any.
_TABLES_OF_MODULES = frozenset(vars(nn.Module()))


@dataclass(frozen=True, eq=False, slots=True)
class Contents:
    """What the dictionary of a module held when it was read.

    Args:
        own: the dictionary.
        held: a copy of it.
        empty: containers without items, such as nearly all of the hooks'.
        others: name and value of what else may change, except the tables of parameters, buffers and submodules.
    """

    own: dict[str, Any]
    held: dict[str, Any]
    empty: list[Any]
    others: list[tuple[str, Any]]


def read_contents(own: dict[str, Any], earlier: Contents | None) -> Contents:
    """Return the contents of a module's dictionary: the earlier ones if it holds the same objects, and the empty are empty."""
    if earlier is not None and earlier.own is own and is_same_table(own, earlier.held) and not any(earlier.empty):
        return earlier
    empty: list[Any] = []
    others: list[tuple[str, Any]] = []
    for name, value in own.items():
        kind = type(value)
        if kind in CONSTANT:
            continue
        if (kind in _EMPTIED or (kind is OrderedDict and name in _TABLES_OF_MODULES)) and not value:
            empty.append(value)
        elif name not in _TABLES:
            others.append((name, value))
    return Contents(own, own.copy(), empty, others)


def restore_table(table: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Give a table its items back, in their order.

    It is never empty meanwhile, and another call completes what an exception has interrupted.
    """
    if is_same_table(table, before):
        return
    table.update(before)
    for name in table.keys() - before.keys():
        del table[name]
    if list(table) != list(before):
        for name, value in before.items():
            table.pop(name, None)
            table[name] = value  # at the end


def is_same_table(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two tables hold the same objects under the same names, in the same order."""
    return list(one) == list(other) and all(map(operator.is_, one.values(), other.values()))
