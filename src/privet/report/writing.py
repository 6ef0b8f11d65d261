"""Write a run's report and figures into its directory."""

from __future__ import annotations

import os
from pathlib import Path

from privet.report import run_files
from privet.report.figures import draw
from privet.report.page import page


def write(directory: Path | str) -> Path:
    """Write `report.html` and `figures/*.svg` into a run directory from the files that training left there.

    Only `plan.json` is required; sections whose files are missing are left out. Writing again replaces the report, and
    the same files give the same report, byte for byte.

    Args:
        directory: the run directory, as `privet train --out` wrote it.

    Returns:
        The path of `report.html`.

    Raises:
        InvalidArgumentError: `directory` holds no `plan.json`, or one of its files is damaged.
    """
    run = run_files.read(Path(directory))
    figures = draw(run)
    for figure in figures:
        _replace(run.directory / "figures" / f"{figure.name}.svg", figure.svg)
    return _replace(run.directory / "report.html", page(run, figures))


def _replace(path: Path, text: str) -> Path:
    """Put `text` at `path` so that a reader sees the old file or the new one, never half of one."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
