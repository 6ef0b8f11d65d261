"""`privet report`: write the report of a run again, or compare several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet.cli.output import Json, answer
from privet.errors import InvalidArgumentError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Directory of a run, or of several to compare.", metavar="RUN...")],
    out: Annotated[Path | None, typer.Option(help="Directory of a comparison; default: comparison.")] = None,
    json: Json = False,
) -> None:
    """Write report.html and figures/: of one run from its other files into its directory, of several into --out.

    Example: privet report runs/mnist

    Several: privet report runs/small runs/large --out runs/compared
    """
    from privet.report import side_by_side, write

    if len(runs) == 1:
        if out is not None:
            raise InvalidArgumentError("--out", str(out), "left out for one run", "Its report goes into its own directory.")
        path = write(runs[0])
    else:
        path = side_by_side.write(runs, out or Path("comparison"))
    answer(json, {"report": str(path), "directory": str(path.parent)}, f"Report: {path.resolve().as_uri()}")
