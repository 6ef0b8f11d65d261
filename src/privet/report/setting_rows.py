"""Flattening of nested settings into the rows of a table."""

from __future__ import annotations

__all__ = ["flatten"]

from collections.abc import Iterator, Mapping
from typing import Any

from privet.report import numbers


def flatten(settings: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each setting, depth first.

    Args:
        settings: a JSON object. The `kind` of a nested object becomes the value of the object itself.
        path: names of the enclosing objects.
    """
    for key, value in settings.items():
        here = path if key == "kind" and path else (*path, key)
        for place, part in _number_parts(here, value):
            if isinstance(part, Mapping):
                yield from flatten(part, place)
            else:
                yield " · ".join(place).replace("_", " "), numbers.format_value(part)


def _number_parts(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the elements of a list of objects, numbered from 1, or any other value unchanged."""
    if isinstance(value, list) and any(isinstance(part, Mapping | list) for part in value):
        for number, part in enumerate(value, start=1):
            yield from _number_parts((*path, str(number)), part)
    else:
        yield path, value
