"""Whose privacy is promised: the unit in which neighbouring data sets differ, and what is clipped as one because of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class Unit:
    """Whose data may differ between neighbours.

    Args:
        name: as statements say it.
        counted: what is sampled, clipped and counted: "example", "user" or "group".
        size: most examples whose privacy is promised in one of those.
        refused: adjacency → why clipping what is counted does not bound the change between such neighbours.
    """

    name: str
    counted: str
    size: int = 1
    refused: Mapping[str, str] = field(default_factory=dict)

    def check_adjacency(self, adjacency: str) -> None:
        """Refuse neighbours that this unit does not suit.

        Raises:
            InvalidArgumentError: naming the fix.
        """
        if adjacency in self.refused:
            raise InvalidArgumentError(
                "adjacency", adjacency, f"'replace-one' for the unit {self.name!r}", self.refused[adjacency]
            )


_UNITS = {unit.name: unit for unit in (Unit("one example", "example"), Unit("one user", "user"))}
_GROUP = re.compile(r"one example \(in a group of ([1-9]\d*); groups fixed in advance\)")


def group_unit(size: int) -> str:
    """Return the name of the unit for groups of so many examples, each clipped as one.

    >>> group_unit(4)
    'one example (in a group of 4; groups fixed in advance)'
    """
    return f"one example (in a group of {size}; groups fixed in advance)"


def unit(name: object) -> Unit:
    """Return the unit with this name.

    An example that is replaced replaces its group by another one, so the sum moves by up to twice the bound, which is what
    "replace-one" accounts for. An example that becomes a placeholder does the same: the rest of its group stays and can be
    clipped to something quite different. An example that is added or removed would move others to other groups.

    Raises:
        InvalidArgumentError: there is no such unit.
    """
    if isinstance(name, str) and name in _UNITS:
        return _UNITS[name]
    group = _GROUP.fullmatch(name) if isinstance(name, str) else None
    if group is not None:
        return Unit(group[0], "group", int(group[1]), {
            "zero-out": "The other examples of the group stay, so the group's contribution is replaced, not zeroed; the ε of "
            "'replace-one' holds for a placeholder too.",
            "add-remove": "Groups are fixed by position: with one example more or less, others would change groups.",
        })  # fmt: skip
    raise InvalidArgumentError(
        "unit",
        name,
        f"'one example', 'one user', or for groups a name such as {group_unit(4)!r}",
        "privet.units makes the data sets.",
    )
