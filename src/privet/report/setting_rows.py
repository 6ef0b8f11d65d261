"""Nested settings as rows of a table, whatever they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from privet.report import numbers


def rows(settings: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for every setting, depth first.

    Args:
        settings: a JSON object. The `kind` of a nested object is the value of the object itself.
        path: names of the objects around it.
    """
    for key, value in settings.items():
        here = path if key == "kind" and path else (*path, key)
        for place, part in _parts(here, value):
            if isinstance(part, Mapping):
                yield from rows(part, place)
            else:
                yield " · ".join(place).replace("_", " "), numbers.plain(part)


def _parts(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a list of objects one by one, numbered, and anything else as it is."""
    if isinstance(value, list) and any(isinstance(part, Mapping | list) for part in value):
        for number, part in enumerate(value, start=1):
            yield from _parts((*path, str(number)), part)
    else:
        yield path, value
