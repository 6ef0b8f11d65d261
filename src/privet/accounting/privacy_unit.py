"""The privacy unit: the part of the data in which neighbouring data sets differ, and which is clipped as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privet._utils.registry import Part, register
from privet.errors import InvalidArgumentError, count


@register
@dataclass(frozen=True)
class Unit(Part):
    """A privacy unit, such as one household; for `Plan(unit=...)` and a data set's `privacy_unit`.

    Args:
        name: its name in statements, such as "one household".
        counted: the entity that is sampled, clipped and counted, such as "household": one entry of the data set.
        size: number of separately protected examples in one such entity; 1 unless entries are groups.

    Guarantee:
        The user who names a unit states that all data of one such unit are in one entry of the data set. Privet cannot check it.

    >>> Unit("one household", counted="household")
    Unit(name='one household', counted='household', size=1)
    """

    name: str
    counted: str
    size: int = 1
    # Adjacency → why clipping what is counted does not bound the change between such neighbours.
    refused: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for field, text in {"name": self.name, "counted": self.counted}.items():
            if not isinstance(text, str) or not text.strip():
                raise InvalidArgumentError(f"unit.{field}", text, "words, such as 'one household' for the name")
        count("unit.size", self.size)

    def __str__(self) -> str:
        return self.name

    def check_adjacency(self, adjacency: str) -> None:
        """Refuse adjacencies that this unit does not support.

        Raises:
            InvalidArgumentError: the adjacency is not supported; names the fix.
        """
        if adjacency in self.refused:
            fix = self.refused[adjacency]
            raise InvalidArgumentError("adjacency", adjacency, f"'replace-one' for the unit {self.name!r}", fix)


@register
@dataclass(frozen=True)
class GroupUnit(Unit):
    """One example of a group that is clipped as one; made by `group_unit`."""

    refused: ClassVar[Mapping[str, str]] = {
        "zero-out": "The other examples of the group stay, so the group's contribution is replaced, not zeroed; the ε of "
        "'replace-one' holds for a placeholder too.",
        "add-remove": "Groups are fixed by position: with one example more or less, others would change groups.",
    }


_UNITS = {unit.name: unit for unit in (Unit("one example", "example"), Unit("one user", "user"))}
# The unit of groups in plans of version 0.1.0, which had its name only.
_GROUP = re.compile(r"one example \(in a group of ([1-9]\d*); groups fixed in advance\)")


def group_unit(size: int) -> GroupUnit:
    """Return the unit for groups of `size` examples, each group clipped as one."""
    count("unit.size", size)
    return GroupUnit(f"one example (in a group of {size}; groups fixed in advance)", "group", size)


def find_unit(named: object) -> Unit:
    """Return the unit with this name, or the unit itself where one is given.

    Groups only support "replace-one". Replacing an example replaces its group's contribution, so the sum moves by up to twice
    the bound, as "replace-one" accounts for. So does zeroing out an example: the rest of its group stays, and its clipped
    contribution can be quite different. Adding or removing an example would move others to other groups.
    """
    if isinstance(named, Unit):
        if _known(named.name) not in (None, named):
            fix = "Plan and data set are compared by it."
            raise InvalidArgumentError("unit.name", named.name, "a name that no other unit has", fix)
        return named
    found = _known(named) if isinstance(named, str) else None
    if found is None:
        fix = "privet.units makes the data sets."
        raise InvalidArgumentError("unit", named, "'one example', 'one user', or a privet.units.Unit", fix)
    return found


def _known(name: str) -> Unit | None:
    """Return the unit that a text stands for, if it stands for one."""
    if name in _UNITS:
        return _UNITS[name]
    group = _GROUP.fullmatch(name)
    return None if group is None else group_unit(int(group[1]))
