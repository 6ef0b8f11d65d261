"""The privacy unit: the part of the data in which neighbouring data sets differ, and which is clipped as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class Unit:
    """A privacy unit.

    Args:
        name: its name in statements.
        counted: the entity that is sampled, clipped and counted: "example", "user" or "group".
        size: number of separately protected examples in one such entity.
        refused: unsupported adjacency → why clipping does not bound the change between such neighbours.
    """

    name: str
    counted: str
    size: int = 1
    refused: Mapping[str, str] = field(default_factory=dict)

    def check_adjacency(self, adjacency: str) -> None:
        """Refuse adjacencies that this unit does not support.

        Raises:
            InvalidArgumentError: the adjacency is not supported; names the fix.
        """
        if adjacency in self.refused:
            raise InvalidArgumentError(
                "adjacency", adjacency, f"'replace-one' for the unit {self.name!r}", self.refused[adjacency]
            )


_UNITS = {unit.name: unit for unit in (Unit("one example", "example"), Unit("one user", "user"))}
_GROUP = re.compile(r"one example \(in a group of ([1-9]\d*); groups fixed in advance\)")


def group_unit(size: int) -> str:
    """Return the name of the unit for groups of `size` examples, each group clipped as one.

    >>> group_unit(4)
    'one example (in a group of 4; groups fixed in advance)'
    """
    return f"one example (in a group of {size}; groups fixed in advance)"


def unit(name: object) -> Unit:
    """Return the unit with this name.

    Groups only support "replace-one". Replacing an example replaces its group's contribution, so the sum moves by up to twice
    the bound, as "replace-one" accounts for. So does zeroing out an example: the rest of its group stays, and its clipped
    contribution can be quite different. Adding or removing an example would move others to other groups.

    Raises:
        InvalidArgumentError: there is no such unit.
    """
    if isinstance(name, str) and name in _UNITS:
        return _UNITS[name]
    group = _GROUP.fullmatch(name) if isinstance(name, str) else None
    if group is not None:
        return Unit(group[0], "group", int(group[1]), {
            "zero-out": "The other examples of the group stay, so the group's contribution is replaced, not zeroed; the ε of "
            "'replace-one' also holds for placeholders.",
            "add-remove": "Groups are fixed by position: adding or removing an example would move others to other groups.",
        })  # fmt: skip
    raise InvalidArgumentError(
        "unit",
        name,
        f"'one example', 'one user', or for groups a name such as {group_unit(4)!r}",
        "privet.units builds the matching data sets.",
    )
