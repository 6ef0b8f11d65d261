"""Settings of runs as rows of tables, and which of them differ between runs."""

from __future__ import annotations

__all__ = ["ComparedSetting", "compare", "flatten", "list_defaults"]

import hashlib
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privet.report import numbers

# Not chosen for the training: the version of the file format, and what the run itself wrote down.
_ADMINISTRATIVE = frozenset({"format", "seconds", "versions", "provenance", "gradients", "parameters", "test_data", "defaults"})


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
# Settings that are also one of the five numbers.
_NUMBERS = {"ε": "epsilon", "noise multiplier": "noise", "steps": "steps"}


@dataclass(frozen=True, slots=True)
class ComparedSetting:
    """A setting of several runs.

    Args:
        name: its name.
        values: its JSON value in each run, in the order of the runs; None where it is not set.
    """

    name: str
    values: tuple[Any, ...]

    @property
    def number(self) -> str | None:
        """Key of the headline number that shows it; None if no number does."""
        return _NUMBERS.get(self.name)

    @property
    def differs(self) -> bool:
        """Whether at least two runs have different values; not set, off and empty are the same."""
        known = [None if _is_unset(value) else value for value in self.values]
        return any(value != known[0] for value in known)

    @property
    def shown(self) -> tuple[str, ...]:
        """The values for display."""
        return tuple(map(numbers.format_value, self.values))


def flatten(settings: Mapping[str, Any], defaults: Container[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each setting that is set, depth first. The version of the file format is left out.

    Args:
        settings: a JSON object. The `kind` of a nested object becomes the value of the object itself.
        defaults: names of the settings that nobody gave; their values say so.
    """
    for path, value in _leaves(settings, ()):
        name = _NAMES.get(path, path)
        if name != "format" and not _is_unset(value):
            yield name, numbers.format_value(value) + (" (default)" if name in defaults else "")


def list_defaults(setup: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the settings that nobody gave, and that a rule chose from public facts.

    Args:
        setup: content of `run.json`.
    """
    keys = setup.get("defaults")
    if not isinstance(keys, Mapping):  # of an earlier version, or of a damaged file
        return frozenset()
    return frozenset(_DEFAULT_NAMES.get(key, key.replace("_", " ")) for key in keys)


def compare(runs: Sequence[Mapping[str, Any]]) -> tuple[ComparedSetting, ...]:
    """Return the settings of several runs, in the order in which they first occur.

    Args:
        runs: the settings of each run, as for `flatten`. What a run wrote down but nobody chose, such as its seconds, is left
            out, as is what no run has set.
    """
    chosen = [{key: _shorten(key, value) for key, value in run.items() if key not in _ADMINISTRATIVE} for run in runs]
    found = [dict(_leaves(run, ())) for run in chosen]
    names = dict.fromkeys(name for run in found for name in run)
    settings = (ComparedSetting(_NAMES.get(name, name), tuple(run.get(name) for run in found)) for name in names)
    return tuple(setting for setting in settings if not all(map(_is_unset, setting.values)))


def _shorten(key: str, value: Any) -> Any:
    """Return a table's schema as the first digits of its fingerprint, and any other value unchanged."""
    if key != "schema" or not isinstance(value, Mapping):
        return value
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _leaves(settings: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        here = path if key == "kind" and path else (*path, key)
        for place, part in _number_parts(here, value):
            if isinstance(part, Mapping):
                yield from _leaves(part, place)
            else:
                yield " · ".join(place).replace("_", " "), part


def _is_unset(value: Any) -> bool:
    return value is None or value is False or value in ("", [])


def _number_parts(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the elements of a list of objects, numbered from 1, or any other value unchanged."""
    if isinstance(value, list) and any(isinstance(part, Mapping | list) for part in value):
        for number, part in enumerate(value, start=1):
            yield from _number_parts((*path, str(number)), part)
    else:
        yield path, value
