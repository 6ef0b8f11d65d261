"""The option `--config`: read options from a file, or repeat a run from its plan.json.

A TOML or JSON file holds options by name (`batch-size = 512`). Some can be tables instead: parts of a plan in the format of
`plan.json`, which say what no option can, such as `clipping = {kind = "Layerwise", …}`. A whole plan is under `plan`. Options on
the command line override those of the file, but cannot change a plan or a part.
"""

from __future__ import annotations

__all__ = ["PLAN_PARTS", "ConfigOptions", "parts_from_config", "plan_from_config"]

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import typer

from privet import runs
from privet._utils.documents import DocumentError, from_json, from_toml, read_text
from privet._utils.registry import decode
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


@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """Options in a file."""

    config: Path | None = option(
        "TOML or JSON file of options, with an optional plan under `plan`; or plan.json of a run to repeat.", RUN,
        callback=_apply, is_eager=True,
    )  # fmt: skip
