"""The option `--config`: read options from a file, or repeat a run from its plan.json; and `--config-schema`.

A TOML or JSON file holds options by name (`batch-size = 512`). Some can be tables instead: parts of a plan in the format of
`plan.json`, which say what no option can, such as `clipping = {kind = "Layerwise", …}`. A whole plan is under `plan`. Options on
the command line override those of the file, but cannot change a plan or a part.

`--config-schema` prints a JSON Schema of such files, with which an editor completes and checks them. It is generated from the
options of the command and the registered kinds of the parts of a plan.
"""

from __future__ import annotations

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
    for name in ("sampling", "clipping", "bound_schedule", "momentum", "sparsification", "embeddings", "noise")
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
        raise InvalidArgumentError("--config", str(path), "readable TOML (named .toml) or JSON", cause=f"{error}") from None
    if not isinstance(content, dict):
        raise InvalidArgumentError("--config", str(path), "a table of options")
    return content


def _apply(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's options the defaults of the command's options, and keep its plan for `read_parts`."""
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
    if tables := sorted(name for name in PLAN_PARTS if isinstance(options.get(name), dict)):
        if isinstance(context.obj, Plan):
            raise InvalidArgumentError("--config", ", ".join(tables), "within the plan, which the file has too")
        context.obj = {name: decode(name, options.pop(name), PLAN_PARTS[name]) for name in tables}
    parameters = {str(parameter.name): parameter for parameter in context.command.params if parameter.name != "config"}
    if unknown := sorted(options.keys() - parameters.keys()):
        allowed = f"among the options of this command: {', '.join(sorted(parameters))}"
        raise InvalidArgumentError("--config", ", ".join(unknown), allowed)
    context.default_map = {name: value for name, value in options.items() if value is not None}
    for name, value in context.default_map.items():
        try:
            parameters[name].type_cast_value(context, value)
        except (TypeError, AttributeError, OverflowError):  # click expects text, or what the option takes: no list for a number
            raise InvalidArgumentError(name, value, "a value of the kind that this option takes", "Change the file.") from None
    return path


def read_parts(context: typer.Context, kind: type[Any]) -> tuple[Plan | None, dict[str, Any]]:
    """Return the plan in the configuration file, if any, and name → part for its tables.

    Options of the command's dataclass that the plan or a part determines are refused, in the file and on the command line.
    """
    whole = context.obj if isinstance(context.obj, Plan) else None
    tables: dict[str, Any] = context.obj if isinstance(context.obj, dict) else {}
    for each in fields(kind):
        part = each.metadata.get("part")
        # Compared by name, because newer versions of typer bundle their own copy of click.
        source = getattr(context.get_parameter_source(each.name), "name", "")
        if (part in tables or (part and whole)) and source in ("COMMANDLINE", "DEFAULT_MAP"):
            allowed = f"given without options that {f'its table {part!r}' if whole is None else 'its plan'} determines"
            raise InvalidArgumentError("--config", as_option(each.name), allowed, "Change the file instead.")
    return whole, tables


def describe_config(kind: type[Any], name: str) -> Schema:
    """Return the JSON Schema of a configuration file, by the dataclass of the command's options."""
    hints, properties = typing.get_type_hints(kind), {"$schema": _PLAIN[str]}
    for each in fields(kind):
        if each.name not in _HIDDEN:
            properties[each.name.replace("_", "-")] = _describe_option(each, hints[each.name])
    for part in PLAN_PARTS.keys() - properties.keys() - {"bound_schedule"}:
        properties[part] = {"description": f"The part of the plan, in place of options: {part}.", **_refer(PLAN_PARTS[part])}
    if "rounds" not in properties:  # the plan of federated learning follows from the options
        properties["plan"] = _describe_table(Plan, "A whole plan, in place of the options that it determines.", {})
    kinds = {
        part: _describe_table(base, (base.__doc__ or "").partition("\n")[0], {"kind": {"const": part}})
        for part, base in sorted(PARTS.items())
    }
    return {
        "$schema": _DIALECT, "title": f"Configuration of privet {name}", "type": "object", "properties": properties,
        "additionalProperties": False, "$defs": kinds,
    }  # fmt: skip


def _describe_option(each: Field[Any], hint: Any) -> Schema:
    described = each.metadata["option"]
    members = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    found = [_describe_type(member) for member in members if member is not type(None)]  # which a file leaves out
    if described.parser is not None:
        found = [{"type": "object"}] if each.name == "optimizer_options" else [*found, {"type": "array"}, {"type": "integer"}]
    if each.name in PLAN_PARTS:
        found.append(_refer(PLAN_PARTS[each.name]))
    return {"description": described.help or "", **(found[0] if len(found) == 1 else {"anyOf": found})}


def _describe_table(owner: type[Any], description: str, properties: Schema) -> Schema:
    hints, required = typing.get_type_hints(owner), [*properties]
    for each in fields(owner):
        found = _describe_type(hints.get(each.name, Any))
        plain = isinstance(each.default, bool | int | float | str)
        properties = {**properties, each.name: {**found, "default": each.default} if plain else found}
        if each.default is MISSING and each.default_factory is MISSING:
            required.append(each.name)
    return {
        "type": "object", "description": description, "properties": properties, "required": required,
        "additionalProperties": False,
    }  # fmt: skip


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
        "TOML or JSON file of options, which may have a `plan`; or the plan.json of a run to repeat.", RUN,
        callback=_apply, is_eager=True,
    )  # fmt: skip
    config_schema: bool = option(
        "Print the JSON Schema of --config files and exit; editors read it.", RUN, False, "--config-schema",
        callback=_show, is_eager=True,
    )  # fmt: skip
