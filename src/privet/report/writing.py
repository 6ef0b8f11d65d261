"""Write the report and figures of a run into its directory."""

from __future__ import annotations

__all__ = ["write"]

from pathlib import Path

from privet._utils.files import write_text
from privet.report import run_files
from privet.report.figures.single_run import draw
from privet.report.page import render_page


def write(directory: Path | str) -> Path:
    """Write `report.html` and `figures/*.svg` into a run directory, from the other files in it.

    Only `plan.json` is required; sections whose files are missing are left out. Writing again replaces the report, and the same
    files give the same report, byte for byte.

    Args:
        directory: the run directory, as `privet train --out` writes it.

    Returns:
        The path of `report.html`.

    Raises:
        InvalidArgumentError: `directory` contains no `plan.json`, or one of its files is damaged.
    """
    run = run_files.read(Path(directory))
    figures = draw(run)
    for figure in figures:
        write_text(run.directory / "figures" / f"{figure.name}.svg", figure.svg)
    return write_text(run.directory / "report.html", render_page(run, figures))
