"""`privet report`: write the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet.cli.output import Json, answer


def report(run: Annotated[Path, typer.Argument(help="Directory of the run.")], json: Json = False) -> None:
    """Write report.html and figures/ of a run from its other files.

    Example: privet report runs/mnist
    """
    from privet.report import write

    path = write(run)
    answer(json, {"report": str(path), "directory": str(run)}, f"Report: {path.resolve().as_uri()}")
