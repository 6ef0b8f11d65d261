"""Settings of runs as rows of tables."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from privet.report import numbers

# Where the parts of a setting's path are not the usual name.
_NAMES = {
    "noise · multiplier": "noise multiplier",
    "sampling": "sampling scheme",
    "sampling · batch size": "batch size",
    "clipping": "clipping rule",
    "clipping · bound": "clipping bound",
    "steps · epochs": "epochs",
}
# Keys of run.json's defaults whose settings have other names.
_DEFAULT_NAMES = {"bound": "clipping bound"}


def flatten(settings: Mapping[str, Any], defaults: Container[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each setting that is set, depth first, without the version of the file format.

    The `kind` of a nested object becomes the value of the object itself. Values of `defaults`, which nobody gave, say so.
    """
    for path, value in _leaves(settings, ()):
        name = _NAMES.get(path, path)
        if name != "format" and value is not None and value is not False and value not in ("", []):
            yield name, numbers.format_value(value) + (" (default)" if name in defaults else "")


def list_defaults(setup: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the settings in `run.json` that nobody gave, and that a rule chose from public facts."""
    keys = setup.get("defaults")
    if not isinstance(keys, Mapping):  # of an earlier version, or of a damaged file
        return frozenset()
    return frozenset(_DEFAULT_NAMES.get(key, key.replace("_", " ")) for key in keys)


def _leaves(settings: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        here = path if key == "kind" and path else (*path, key)
        for place, part in _number_parts(here, value):
            if isinstance(part, Mapping):
                yield from _leaves(part, place)
            else:
                yield " · ".join(place).replace("_", " "), part


def _number_parts(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the elements of a list of objects, numbered from 1, or any other value unchanged."""
    if isinstance(value, list) and any(isinstance(part, Mapping | list) for part in value):
        for number, part in enumerate(value, start=1):
            yield from _number_parts((*path, str(number)), part)
    else:
        yield path, value
