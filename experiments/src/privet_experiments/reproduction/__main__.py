"""Rebuild pages and figures of results from their runs: `python -m privet_experiments.reproduction docs/results`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet_experiments.registry import RECIPES
from privet_experiments.reproduction.index import write_index
from privet_experiments.reproduction.pages import rebuild


def main(
    root: Annotated[Path, typer.Argument(help="Folder with a subfolder for each recipe, which contains runs.jsonl.")],
) -> None:
    """Write table.md, table.csv, figures/ and the index README.md from the existing runs, without training or loading data."""
    for recipe in RECIPES.values():
        if (root / recipe.name / "runs.jsonl").exists():
            rebuild(recipe, root / recipe.name)
    write_index(RECIPES.values(), root)


if __name__ == "__main__":
    typer.run(main)
