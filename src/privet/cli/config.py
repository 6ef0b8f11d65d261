"""The option `--config`: read options from a file, or repeat a run from its plan.json; and `--config-schema`.

A TOML or JSON file holds options by name (`batch-size = 512`). Some can be tables instead: parts of a plan in the format of
`plan.json`, which say what no option can, such as `clipping = {kind = "Layerwise", …}`. A whole plan is under `plan`. Options on
the command line override those of the file, but cannot change a plan or a part.

`--config-schema` prints a JSON Schema of such files, with which an editor completes and checks them. It is generated from the
options of the command and the registered kinds of the parts of a plan.
"""

from __future__ import annotations

__all__ = ["PLAN_PARTS", "ConfigOptions", "describe_config", "parts_from_config", "plan_from_config"]

import json
import types
import typing
from dataclasses import MISSING, Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import typer

from privet import runs
from privet._utils.documents import DocumentError, from_json, from_toml, read_text
from privet._utils.registry import PARTS, decode, kinds_of
from privet.cli.options import option
from privet.cli.output import RUN, as_option
from privet.errors import InvalidArgumentError
from privet.noise import NoiseMechanism
from privet.plan import Plan

# Option that can be a table → the base class of its kinds.
PLAN_PARTS: dict[str, type[Any]] = {
    name: Plan.BASES.get(name, NoiseMechanism)
    for name in ("sampling", "clipping", "bound_schedule", "momentum", "sparsification", "noise")
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: dict[Any, dict[str, Any]] = {
    float: {"type": "number"}, int: {"type": "integer"}, str: {"type": "string"}, bool: {"type": "boolean"},
    type(None): {"type": "null"}, Path: {"type": "string"},
}  # fmt: skip
# Options that are no settings.
_HIDDEN = {"config", "config_schema", "resume", "adopt", "json"}

Schema = dict[str, Any]


def _read(path: Path) -> dict[str, Any]:
    parse = from_toml if path.suffix == ".toml" else from_json
    try:
        content = parse(read_text(path))
    except DocumentError as error:
        raise InvalidArgumentError("--config", str(path), "a readable file: TOML (named .toml) or JSON", f"{error}.") from None
    if not isinstance(content, dict):
        raise InvalidArgumentError("--config", str(path), "a table of options")
    return content


def _apply(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's options the defaults of the command's options, and keep its plan for `plan_from_config`."""
    if path is None:
        return None
    options = _read(path)
    if options.get("format") == Plan.FORMAT:
        context.obj = Plan.from_dict(options)
        options = asdict(runs.read_setup(path.parent)) if (path.parent / "run.json").exists() else {}
        options.pop("schema", None)  # the plan holds its content
    elif "plan" in options:
        plan = options.pop("plan")
        if not isinstance(plan, dict):
            raise InvalidArgumentError("--config", plan, "a table with the fields of a plan")
        context.obj = Plan.from_dict({"format": Plan.FORMAT, **plan})
    options = {name.replace("-", "_"): value for name, value in options.items() if name not in ("defaults", "$schema")}
    tables = {name for name in PLAN_PARTS if isinstance(options.get(name), dict)}
    if tables and isinstance(context.obj, Plan):
        raise InvalidArgumentError("--config", ", ".join(sorted(tables)), "within the plan, which the file has too")
    if tables:
        context.obj = {name: decode(name, options.pop(name), PLAN_PARTS[name]) for name in sorted(tables)}
    parameters = {str(parameter.name): parameter for parameter in context.command.params if parameter.name != "config"}
    if unknown := sorted(options.keys() - parameters.keys()):
        raise InvalidArgumentError(
            "--config", ", ".join(unknown), f"among the options of this command: {', '.join(sorted(parameters))}"
        )
    context.default_map = {name: value for name, value in options.items() if value is not None}
    for name, value in context.default_map.items():
        try:
            parameters[name].type_cast_value(context, value)
        except (TypeError, AttributeError, OverflowError):  # click expects text, or what the option takes: no list for a number
            raise InvalidArgumentError(name, value, "a value of the kind that this option takes", "Change the file.") from None
    return path


def plan_from_config(context: typer.Context, kind: type[Any]) -> Plan | None:
    """Return the plan in the configuration file, if any; refuse options of the command's dataclass that a plan determines."""
    plan = context.obj
    if not isinstance(plan, Plan):
        return None
    _check_left_out(context, {each.name for each in fields(kind) if each.metadata["part"]}, "its plan")
    return plan


def parts_from_config(context: typer.Context, kind: type[Any]) -> dict[str, Any]:
    """Return field of a plan → part, for the tables in the configuration file; refuse options that they determine."""
    parts: dict[str, Any] = context.obj if isinstance(context.obj, dict) else {}
    for name in parts:
        own = {each.name for each in fields(kind) if each.metadata["part"] == name}
        _check_left_out(context, own, f"its table {name!r}")
    return parts


def _check_left_out(context: typer.Context, options: set[str], why: str) -> None:
    """Refuse options that the file's plan, or a part of it, determines."""
    # Compared by name, because newer versions of typer bundle their own copy of click.
    sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in options}
    if both := sorted(name for name, source in sources.items() if source in ("COMMANDLINE", "DEFAULT_MAP")):
        words = ", ".join(map(as_option, both))
        raise InvalidArgumentError("--config", words, f"given without options that {why} determines", "Change the file instead.")


def describe_config(kind: type[Any], name: str) -> Schema:
    """Return the JSON Schema of a configuration file, by the dataclass of the command's options."""
    hints, properties = typing.get_type_hints(kind), {"$schema": _PLAIN[str]}
    for each in fields(kind):
        if each.name not in _HIDDEN:
            properties[each.name.replace("_", "-")] = _describe_option(each, hints[each.name])
    for part in PLAN_PARTS.keys() - properties.keys() - {"bound_schedule"}:
        properties[part] = {"description": f"The part of the plan, in place of options: {part}.", **_refer(PLAN_PARTS[part])}
    if "rounds" not in properties:  # the plan of federated learning follows from the options
        bases = {each.name: PLAN_PARTS.get(each.name) or Plan.BASES.get(each.name) for each in fields(Plan)}
        properties["plan"] = {
            "type": "object",
            "description": "A whole plan, in place of the options that it determines.",
            "properties": {each.name: _describe_field(Plan, each, bases[each.name]) for each in fields(Plan)},
            "required": ["examples", "sampling", "steps", "clipping", "delta"],
            "additionalProperties": False,
        }
    return {
        "$schema": _DIALECT,
        "title": f"Configuration of privet {name}",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": {name: _describe_kind(kind) for name, kind in sorted(PARTS.items())},
    }


def _describe_option(each: Field[Any], hint: Any) -> Schema:
    """Return the schema of an option, by its annotation; those with a parser of their own take more than text."""
    described = each.metadata["option"]
    members = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    found = [_describe_type(member) for member in members if member is not type(None)]  # which a file leaves out
    if described.parser is not None:
        found = [{"type": "object"}] if each.name == "optimizer_options" else [*found, {"type": "array"}, {"type": "integer"}]
    if each.name in PLAN_PARTS:
        found.append(_refer(PLAN_PARTS[each.name]))
    return {"description": described.help or "", **(found[0] if len(found) == 1 else {"anyOf": found})}


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
    if origin is list or (origin is tuple and inner[-1:] == (...,)):
        return {"type": "array", "items": _describe_type(inner[0])}
    return {"type": "array"} if origin is tuple else {}


def _refer(base: type[Any]) -> Schema:
    """Return the schema of any kind of a part."""
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in sorted(kinds_of(base))]}


def _show(context: typer.Context, requested: bool) -> None:
    if requested:
        kind = context.command.callback.options  # type: ignore[union-attr]
        print(json.dumps(describe_config(kind, str(context.command.name)), indent=2, ensure_ascii=False))
        raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """Options in a file."""

    config: Path | None = option(
        "TOML or JSON file of options, with an optional plan under `plan`; or plan.json of a run to repeat.", RUN,
        callback=_apply, is_eager=True,
    )  # fmt: skip
    config_schema: bool = option(
        "Print the JSON Schema of --config files, for editors, and exit.", RUN, False, "--config-schema",
        callback=_show, is_eager=True,
    )  # fmt: skip
