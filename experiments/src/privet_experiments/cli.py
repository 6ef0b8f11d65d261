"""`privet reproduce`: repeat an experiment of a paper, and compare the results."""

from __future__ import annotations

__all__ = ["reproduce"]

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import privet_experiments as experiments
from privet.cli.output import Json, answer
from privet.errors import InvalidArgumentError

# Default parent of the recipes' directories.
_USUAL = Path("reproduced")


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A name in --list, or a TOML file with a recipe.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the recipes, their duration and their finished runs.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory of runs, table and figures; default: reproduced/NAME. With --list: parent of these directories."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per arm; default: the recipe's number.")] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Run only this arm; can be repeated.")] = None,
    examples: Annotated[
        int | None, typer.Option(help="Train on the first N examples only, as a trial; not comparable with the paper.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Train for this many epochs, as a trial; not comparable with the paper.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of parallel runs, each in its own process.")] = 1,
    folder: Annotated[Path | None, typer.Option(help="Folder with the data set; default: fetch it.")] = None,
    quiet: Annotated[bool, typer.Option(help="Hide the progress bar.")] = False,
    json: Json = False,
) -> None:
    """Make the missing runs of a recipe, and write table.md, table.csv and figures/ from all its runs.

    If you stop it, the same command continues; only runs that have not finished start again.

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
