"""The TOML of a schema: short enough to write by hand, with errors that name the column and the key.

A file looks like this:

    [target]
    column = "income"
    task = "classification"
    classes = ["<=50K", ">50K"]

    [columns]
    age = { kind = "number", lower = 17, upper = 90 }
    sex = { kind = "boolean", true = "Male", false = "Female" }
    id = "ignore"
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields
from typing import Any, TypeVar

from privet._utils.documents import DocumentError, from_toml
from privet.errors import InvalidArgumentError, choice
from privet.tables.bounded import Date, Number
from privet.tables.columns import Boolean, Category, Column, Identifier, Ignore, Text, UserId
from privet.tables.targets import Classification, Regression, Target

_T = TypeVar("_T")

# Word of the file → kind.
KINDS: dict[str, type[Column]] = {
    "number": Number, "date": Date, "category": Category, "boolean": Boolean, "text": Text, "user": UserId, "id": Identifier,
    "ignore": Ignore,
}  # fmt: skip
TASKS: dict[str, type[Target]] = {"classification": Classification, "regression": Regression}
_WORDS: dict[type[Any], str] = {kind: word for word, kind in (KINDS | TASKS).items()}

# Placeholder in a draft, to be filled in.
OPEN = "?"
_FILL_IN = "Fill it in from public knowledge, not from the private rows."
_SECTIONS = ("missing_cells", "target", "columns")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def parse_schema(text: str) -> dict[str, Any]:
    """Return the arguments of a `Schema` that its TOML text declares; errors name section, column, key and fix."""
    try:
        found = from_toml(text)
    except DocumentError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = text.splitlines()[int(place[1]) - 1] if place else text.strip()
        raise InvalidArgumentError("schema", line[:80], "TOML", cause=str(error)) from None
    for key in found.keys() - set(_SECTIONS):
        raise InvalidArgumentError(key, "a section", f"left out: a schema consists of {', '.join(_SECTIONS)}")
    target = _section(found, "target")
    column = _filled("target.column", target.get("column"))
    if not isinstance(column, str):
        raise InvalidArgumentError("target.column", column, "the name of a column")
    declared = {
        "target": column,
        "task": _construct(TASKS, "task", "target", {key: value for key, value in target.items() if key != "column"}),
        "columns": tuple((name, _column(name, value)) for name, value in _section(found, "columns").items()),
    }
    return declared | ({"missing_cells": found["missing_cells"]} if "missing_cells" in found else {})


def write_schema(columns: tuple[tuple[str, Column], ...], target: str, task: Target, missing_cells: tuple[str, ...]) -> str:
    """Return the TOML of a schema; `parse_schema` gives an equal one back."""
    lines = [f"{write_key(name)} = {write_column(column)}" for name, column in columns]
    head = [f"missing_cells = {write_value(missing_cells)}", ""]
    return "\n".join([*head, "[target]", f"column = {write_value(target)}", *write_target(task), "", "[columns]", *lines, ""])


def write_target(task: Target) -> list[str]:
    """Return the lines of the section [target] that declare the task."""
    return [f"task = {write_value(kind_of(task))}", *_arguments(task)]


def kind_of(value: Column | Target) -> str:
    """Return the word for a kind of column or task."""
    return _WORDS[type(value)]


def write_column(column: Column) -> str:
    """Return the TOML value of a column: its kind, and the arguments that differ from their defaults."""
    kind, arguments = write_value(kind_of(column)), _arguments(column)
    return f"{{ {', '.join([f'kind = {kind}', *arguments])} }}" if arguments else kind


def write_value(value: object) -> str:
    """Return a string, number or sequence of them as TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(write_value, value))}]"
    return str(value)


def write_key(name: str) -> str:
    """Return the name of a column as a TOML key."""
    return name if _BARE.fullmatch(name) else write_value(name)


def _arguments(value: object) -> list[str]:
    given = ((field, getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
    return [
        f"{field.name} = {write_value(found[0] if isinstance(value, Boolean) and len(found) == 1 else found)}"
        for field, found in given
        if found != field.default
    ]


def _section(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = found.get(name)
    if not isinstance(section, Mapping):
        raise InvalidArgumentError(name, section, "a section of the schema", f"Add the line [{name}] and what belongs to it.")
    return section


def _column(name: str, value: object) -> Column:
    where = f"columns.{name}"
    given = {"kind": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(where, value, "a table", f'Such as {name} = {{ kind = "number", lower = 0, upper = 100 }}.')
    return _construct(KINDS, "kind", where, given)


def _construct(kinds: Mapping[str, type[_T]], key_of_kind: str, where: str, given: Mapping[str, Any]) -> _T:
    word = choice(f"{where}.{key_of_kind}", _filled(f"{where}.{key_of_kind}", given.get(key_of_kind)), kinds)
    kind, given = kinds[word], {key: value for key, value in given.items() if key != key_of_kind}
    known = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    for key, value in given.items():
        if key not in known:
            allowed = f"left out: {word} has {' and '.join(', '.join(known).rsplit(', ', 1)) or 'no other keys'}"
            raise InvalidArgumentError(f"{where}.{key}", value, allowed)
        _filled(f"{where}.{key}", value)
    for key, default in known.items():
        if default is NO_DEFAULT and key not in given:
            raise InvalidArgumentError(f"{where}.{key}", None, f"given, as {word} needs it", _FILL_IN)
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
    except InvalidArgumentError as error:
        raise error.under(f"{where}.{error.name}") from None


def _filled(where: str, value: object) -> Any:
    if value == OPEN or value == [OPEN]:
        raise InvalidArgumentError(where, value, "filled in", _FILL_IN)
    return value
