"""`privet reproduce`: carry out an experiment of a paper, and compare."""

from __future__ import annotations

__all__ = ["reproduce"]

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import privet_experiments as experiments
from privet.cli.output import Json, answer
from privet.errors import InvalidArgumentError

# Where a recipe's directory is, unless the user says so.
_USUAL = Path("reproduced")


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Name in the list, or a TOML file with a recipe.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say what recipes there are, what they cost and what is there.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory of runs, table and figures; default: reproduced/NAME. With --list: where such directories are."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each arm; default: the recipe's number.")] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; may be given several times.")] = None,
    examples: Annotated[int | None, typer.Option(help="Train on the first examples only: to try, not to compare.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Train for so long: to try, not to compare.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time, each in a process of its own.")] = 1,
    folder: Annotated[Path | None, typer.Option(help="Where the data set lies, if it is not to be fetched.")] = None,
    quiet: Annotated[bool, typer.Option(help="Show no progress bar.")] = False,
    json: Json = False,
) -> None:
    """Do the runs of a recipe that are not there yet, and write table.md, table.csv and figures/ of all of them.

    Stopping loses the runs under way; the same command goes on with the others.

    Example: privet reproduce psasc-mnist --seeds 5 --jobs 2 --out reproduced/psasc-mnist
    """
    if list_:
        _list(out or _USUAL, json)
        return
    if name is None:
        raise InvalidArgumentError("NAME", None, "given", "Try: privet reproduce --list.")
    recipe = experiments.find(name)
    extent = experiments.Extent(seeds, tuple(arm or ()), examples, epochs)
    found = experiments.reproduce(recipe, out or _USUAL / recipe.name, extent, folder=folder, jobs=jobs, progress=not quiet)
    table = found.directory / "table.md"
    answer(
        json,
        {
            "recipe": recipe.name,
            "directory": str(found.directory),
            "rows": experiments.spell_nonfinite([asdict(row) for row in found.rows]),
        },
        f"{table.read_text(encoding='utf-8')}\nTable: {table.resolve().as_uri()}",
    )


def _list(place: Path, as_json: bool) -> None:
    rows = [
        {
            "name": recipe.name, "title": recipe.title, "runs": recipe.runs, "hours": recipe.hours,
            "done": len(experiments.finished_runs(recipe, experiments.Records(place / recipe.name / "runs.jsonl"))),
        }
        for recipe in experiments.RECIPES.values()
    ]  # fmt: skip
    lines = [
        f"{row['name']:26} {row['hours']:>5} h  {row['done']:>4} of {row['runs']:>3} runs done  {row['title']}" for row in rows
    ]  # fmt: skip
    answer(as_json, {"recipes": rows}, "\n".join(lines))
