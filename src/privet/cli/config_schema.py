"""The option `--config-schema`: a JSON Schema of the files of `--config`, with which an editor completes and checks them.

It is generated from what reads such files: the options of the command, and the registered kinds of the parts of a plan.
"""

from __future__ import annotations

__all__ = ["ConfigSchema", "describe_config"]

import inspect
import json
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from privet._utils.registry import PARTS, kinds_of
from privet.cli.config import PLAN_PARTS
from privet.cli.topics import RUN
from privet.plan import Plan

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: dict[Any, dict[str, Any]] = {
    float: {"type": "number"}, int: {"type": "integer"}, str: {"type": "string"}, bool: {"type": "boolean"},
    type(None): {"type": "null"}, Path: {"type": "string"},
}  # fmt: skip
# Options that are no settings.
_HIDDEN = {"config", "config_schema", "resume", "adopt", "json"}

Schema = dict[str, Any]


def describe_config(command: Callable[..., None]) -> Schema:
    """Return the JSON Schema of a configuration file.

    Args:
        command: the function of the command whose options the file may hold.
    """
    properties: dict[str, Schema] = {"$schema": {"type": "string"}}
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        if name not in _HIDDEN and typing.get_origin(hint) is Annotated:
            properties[name.replace("_", "-")] = _describe_option(name, *typing.get_args(hint)[:2])
    for name in PLAN_PARTS.keys() - properties.keys() - {"bound_schedule"}:
        properties[name] = {"description": f"The part of the plan, in place of options: {name}.", **_refer(PLAN_PARTS[name])}
    if "rounds" in properties:  # of federated learning, whose plan follows from the options
        return _describe_file(command, properties)
    bases = {name: PLAN_PARTS.get(name) or Plan.BASES.get(name) for name in (field.name for field in fields(Plan))}
    plan = {field.name: _describe_field(Plan, field, bases[field.name]) for field in fields(Plan)}
    properties["plan"] = {
        "type": "object",
        "description": "A whole plan, in place of the options that it determines.",
        "properties": plan,
        "required": ["examples", "sampling", "steps", "clipping", "delta"],
        "additionalProperties": False,
    }
    return _describe_file(command, properties)


def _describe_file(command: Callable[..., None], properties: dict[str, Schema]) -> Schema:
    return {
        "$schema": _DIALECT,
        "title": f"Configuration of privet {command.__name__}",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": {name: _describe_kind(kind) for name, kind in sorted(PARTS.items())},
    }


def _describe_option(name: str, hint: Any, option: Any) -> Schema:
    """Return the schema of an option, by its annotation; those with a parser of their own take more than text."""
    found = [_describe_type(each) for each in _alternatives(hint)]
    if option.parser is not None:
        found = [{"type": "object"}] if name == "optimizer_options" else [*found, {"type": "array"}, {"type": "integer"}]
    if name in PLAN_PARTS:
        found.append(_refer(PLAN_PARTS[name]))
    return {"description": option.help or "", **(found[0] if len(found) == 1 else {"anyOf": found})}


def _alternatives(hint: Any) -> list[Any]:
    """Return the members of a union but None, which a file leaves out."""
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    return [each for each in (typing.get_args(hint) if union else (hint,)) if each is not type(None)]


def _describe_kind(kind: type[Any]) -> Schema:
    """Return the schema of a part: a table with its kind and its fields."""
    required = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    return {
        "type": "object",
        "description": (kind.__doc__ or "").partition("\n")[0],
        "properties": {"kind": {"const": kind.__name__}, **{field.name: _describe_field(kind, field) for field in fields(kind)}},
        "required": ["kind", *required],
        "additionalProperties": False,
    }


def _describe_field(owner: type[Any], field: Field[Any], base: type[Any] | None = None) -> Schema:
    found = _describe_type(typing.get_type_hints(owner).get(field.name, Any))
    if base is not None:
        nothing = [{"type": "null"}] if field.default is None else []
        texts = [{"type": "string"}] if field.name == "unit" else []
        found = {"anyOf": [_refer(base), *texts, *nothing]} if nothing or texts else _refer(base)
    if isinstance(field.default, bool | int | float | str):
        found = {**found, "default": field.default}
    return found


def _describe_type(hint: Any) -> Schema:
    """Return the schema of an annotation; one that allows anything where the annotation has no JSON form of its own."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and kinds_of(hint):
        return _refer(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_describe_type(each) for each in inner]}
    if origin is list:
        return {"type": "array", "items": _describe_type(inner[0])}
    if origin is tuple:
        return {"type": "array", "items": _describe_type(inner[0])} if inner[-1:] == (...,) else {"type": "array"}
    return {}


def _refer(base: type[Any]) -> Schema:
    """Return the schema of any kind of a part."""
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in sorted(kinds_of(base))]}


def _show(context: typer.Context, requested: bool) -> None:
    if requested:
        assert context.command.callback is not None
        print(json.dumps(describe_config(inspect.unwrap(context.command.callback)), indent=2, ensure_ascii=False))
        raise typer.Exit


ConfigSchema = Annotated[
    bool,
    typer.Option(
        "--config-schema", callback=_show, is_eager=True,
        help="Print the JSON Schema of --config files, for editors, and exit.",
        rich_help_panel=RUN,
    ),
]  # fmt: skip
