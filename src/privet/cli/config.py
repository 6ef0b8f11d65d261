"""The option `--config`: read options from a file, or repeat a run from its plan.json.

A TOML or JSON file holds options by name (`batch-size = 512`) and, under `plan`, a plan in the format of `plan.json`, which can
say what no option can. Options on the command line override those of the file, but they cannot change a plan.
"""

from __future__ import annotations

__all__ = ["Config", "plan_from_config"]

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from privet import runs
from privet._utils.documents import DocumentError, from_json, from_toml, read_text
from privet.cli.topics import RUN
from privet.errors import InvalidArgumentError
from privet.plan import FORMAT, Plan


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
    if options.get("format") == FORMAT:
        context.obj = Plan.from_dict(options)
        options = asdict(runs.read_setup(path.parent)) if (path.parent / "run.json").exists() else {}
        options.pop("schema", None)  # the plan holds its content
    elif "plan" in options:
        plan = options.pop("plan")
        if not isinstance(plan, dict):
            raise InvalidArgumentError("--config", plan, "a table with the fields of a plan")
        context.obj = Plan.from_dict({"format": FORMAT, **plan})
    options = {name.replace("-", "_"): value for name, value in options.items() if name != "defaults"}
    known = {str(parameter.name) for parameter in context.command.params} - {"config"}
    if unknown := sorted(options.keys() - known):
        raise InvalidArgumentError(
            "--config", ", ".join(unknown), f"among the options of this command: {', '.join(sorted(known))}"
        )
    context.default_map = {name: value for name, value in options.items() if value is not None}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", callback=_apply, is_eager=True,
        help="TOML or JSON file of options, with an optional plan under `plan`; or plan.json of a run to repeat.",
        rich_help_panel=RUN,
    ),
]  # fmt: skip


def plan_from_config(context: typer.Context, options: set[str]) -> Plan | None:
    """Return the plan in the configuration file, if any.

    Args:
        context: context of the command.
        options: parameters that a plan determines; none of them may be given in addition to a plan.

    Raises:
        InvalidArgumentError: one of these options is given in addition to a plan.
    """
    plan = context.obj
    if not isinstance(plan, Plan):
        return None
    # Compared by name, because newer versions of typer bundle their own copy of click.
    sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in options}
    both = sorted(name for name, source in sources.items() if source in ("COMMANDLINE", "DEFAULT_MAP"))
    if both:
        words = ", ".join("--" + name.replace("_", "-") for name in both)
        raise InvalidArgumentError(
            "--config", words, "given without options that its plan determines", "Change the plan in the file instead."
        )
    return plan
