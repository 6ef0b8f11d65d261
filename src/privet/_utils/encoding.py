"""Frozen values as plain JSON values and back: a dataclass is an object whose `kind` names it in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from privet.errors import InvalidArgumentError, choice


def encode(value: object) -> Any:
    """Return the plain JSON value of a frozen value made of dataclasses, tuples, numbers and text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{field.name: encode(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def decode(name: str, value: object, kinds: Mapping[str, type]) -> Any:
    """Return the value that `encode` was given.

    Args:
        name: what errors call it.
        value: plain JSON value.
        kinds: name → dataclass.

    Raises:
        InvalidArgumentError: a kind, or a field of one, is not known, or a value is out of its range.
    """
    if isinstance(value, list):
        return tuple(decode(name, item, kinds) for item in value)
    if not isinstance(value, Mapping):
        return value
    kind = kinds[choice(f"{name}.kind", value.get("kind"), kinds)]
    return construct(kind, name, {key: item for key, item in value.items() if key != "kind"}, kinds)


def construct(kind: type, name: str, values: Mapping[str, object], kinds: Mapping[str, type]) -> Any:
    """Return a dataclass from the plain JSON values of its fields; errors as for `decode`."""
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidArgumentError(name, unknown, f"made of the fields {', '.join(sorted(known))}")
    try:
        return kind(**{key: decode(f"{name}.{key}", value, kinds) for key, value in values.items()})
    except TypeError as error:
        raise InvalidArgumentError(name, sorted(values), "complete", str(error)) from None
