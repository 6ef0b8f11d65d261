"""`--config`: a file in place of options, and a run's plan.json as the plan of another run.

A TOML or JSON file holds options by their names (`batch-size = 512`) and, under `plan`, a whole plan as `plan.json` has it, for
what no option says. What stands on the command line wins over the file, except that a plan cannot be changed by options.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from privet import runs
from privet._utils.documents import DocumentError, from_json, from_toml, read_text
from privet.errors import InvalidArgumentError
from privet.plan import FORMAT, Plan


def _read(path: Path) -> dict[str, Any]:
    parse = from_toml if path.suffix == ".toml" else from_json
    try:
        content = parse(read_text(path))
    except DocumentError as error:
        raise InvalidArgumentError(
            "--config", str(path), "a file that can be read: TOML (named .toml) or JSON", f"{error}."
        ) from None
    if not isinstance(content, dict):
        raise InvalidArgumentError("--config", str(path), "a table of options")
    return content


def _apply(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's options the defaults of the others, and keep its plan for `plan_of`."""
    if path is None:
        return None
    options = _read(path)
    if options.get("format") == FORMAT:
        context.obj = Plan.from_dict(options)
        options = asdict(runs.read_setup(path.parent)) if (path.parent / "run.json").exists() else {}
    elif "plan" in options:
        plan = options.pop("plan")
        if not isinstance(plan, dict):
            raise InvalidArgumentError("--config", plan, "a table of a plan's fields under plan")
        context.obj = Plan.from_dict({"format": FORMAT, **plan})
    options = {name.replace("-", "_"): value for name, value in options.items()}
    known = {str(parameter.name) for parameter in context.command.params} - {"config"}
    if unknown := sorted(options.keys() - known):
        raise InvalidArgumentError("--config", ", ".join(unknown), f"options of this verb: {', '.join(sorted(known))}")
    context.default_map = {name: value for name, value in options.items() if value is not None}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", callback=_apply, is_eager=True,
        help="TOML or JSON file with options and, under `plan`, a plan; or a run's plan.json, to repeat it.",
    ),
]  # fmt: skip


def plan_of(context: typer.Context, options: set[str]) -> Plan | None:
    """Return the configuration's plan, if it has one.

    Args:
        context: of the verb.
        options: parameters that would be part of a plan, which therefore may not be given as well.
    """
    plan = context.obj
    if not isinstance(plan, Plan):
        return None
    # By name, as typer brings a click of its own from some version on.
    sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in options}
    both = sorted(name for name, source in sources.items() if source in ("COMMANDLINE", "DEFAULT_MAP"))
    if both:
        words = ", ".join("--" + name.replace("_", "-") for name in both)
        raise InvalidArgumentError("--config", words, "without options that its plan decides", "Change the plan in the file.")
    return plan
