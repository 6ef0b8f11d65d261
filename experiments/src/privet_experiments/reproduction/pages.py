"""The folder of a reproduction: page, table and figures, written from the runs alone."""

from __future__ import annotations

__all__ = ["rebuild", "write"]

from collections.abc import Iterable, Sequence
from pathlib import Path

from privet._utils.files import write_text
from privet_experiments.recipe import Arm, Chart, Recipe
from privet_experiments.reproduction.charts import draw
from privet_experiments.reproduction.claims_table import claims_section, published_section
from privet_experiments.reproduction.selection import finished_runs
from privet_experiments.reproduction.table import Row, as_csv, results_section, studies_section, summary, wrap
from privet_experiments.tasks.run_record import Records, RunRecord


def write(
    recipe: Recipe, arms: Sequence[Arm], records: Sequence[RunRecord], directory: Path, *, reduced: bool = False
) -> tuple[Row, ...]:
    """Write table.md, table.csv and figures/ of runs, without those of the search, and return the table's rows.

    Args:
        reduced: whether the runs are smaller than the recipe's; the page then has no verdicts.
    """
    rows = summary(recipe, arms, records)
    missing = draw(recipe, arms, records, directory / "figures")
    lines = (
        *results_section(recipe, rows, records, reduced=reduced),
        *(() if reduced else (*claims_section(recipe, records), *published_section(recipe, records))),
        *_remark(recipe),
        *_missing(missing),
        *studies_section(recipe, rows, records),
    )
    write_text(directory / "table.md", "\n".join(lines) + "\n")
    write_text(directory / "table.csv", as_csv(rows))
    return rows


def rebuild(recipe: Recipe, directory: Path) -> tuple[Row, ...]:
    """Write a recipe's page and figures from the finished runs in its runs.jsonl, without training or loading data."""
    return write(recipe, recipe.arms, finished_runs(recipe, Records(directory / "runs.jsonl")), directory)


def _remark(recipe: Recipe) -> Iterable[str]:
    if recipe.remark:
        yield from ("", "## Remarks", "", *wrap(recipe.remark.strip()))


def _missing(charts: Sequence[Chart]) -> Iterable[str]:
    if charts:
        names = ", ".join(f"`{chart.name}.svg`" for chart in charts)
        yield from (
            "", "## Missing figures", "",
            *wrap(
                f"{names}: these runs did not record the data that the figures need. New runs of the recipe record it and draw "
                "the figures."
            ),
        )  # fmt: skip
