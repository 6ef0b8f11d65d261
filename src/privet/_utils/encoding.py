"""Conversion of frozen values to plain JSON values and back; a dataclass becomes an object with its name as `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from privet.errors import InvalidArgumentError, choice


def encode(value: object) -> Any:
    """Encode a frozen value of dataclasses, tuples, numbers and text as a plain JSON value."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{field.name: encode(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def decode(name: str, value: object, kinds: Mapping[str, type]) -> Any:
    """Decode a value from `encode`.

    Args:
        name: its name in errors.
        value: plain JSON value.
        kinds: name → dataclass.

    Raises:
        InvalidArgumentError: a kind or field is unknown, or a value is out of range.
    """
    if isinstance(value, list):
        return tuple(decode(name, item, kinds) for item in value)
    if not isinstance(value, Mapping):
        return value
    kind = kinds[choice(f"{name}.kind", value.get("kind"), kinds)]
    return construct(kind, name, {key: item for key, item in value.items() if key != "kind"}, kinds)


def construct(kind: type, name: str, values: Mapping[str, object], kinds: Mapping[str, type]) -> Any:
    """Construct a dataclass from the plain JSON values of its fields; errors as for `decode`."""
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidArgumentError(name, unknown, f"made of the fields {', '.join(sorted(known))}")
    try:
        return kind(**{key: decode(f"{name}.{key}", value, kinds) for key, value in values.items()})
    except TypeError as error:
        raise InvalidArgumentError(name, sorted(values), "complete", str(error)) from None
