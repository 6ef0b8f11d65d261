"""`privet report` and `privet guarantee`: the report of a run or of several, and the statement of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet._utils.documents import read_text
from privet.artifact.folder import FOLDER, how_to_finish
from privet.cli.output import Json, answer
from privet.errors import InvalidArgumentError
from privet.training.directory import LEDGER


def guarantee(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run, or folder of its model.", metavar="RUN")],
    json: Json = False,
) -> None:
    """Print the privacy statement of a finished run: the guarantee, its assumptions, and what it does not cover.

    Example: privet guarantee runs/mnist
    """
    path = next(filter(Path.is_file, (each / f"guarantee.{'json' if json else 'md'}" for each in (run, run / FOLDER))), None)
    if path is None:
        spent = f" What it has spent: privet ledger show {run}." if (run / LEDGER).is_file() else ""
        raise InvalidArgumentError("RUN", str(run), "the directory of a finished run", how_to_finish(run) + spent)
    text = read_text(path).strip()
    print(" ".join(text.split("\n")) if json else text.removeprefix("# Guarantee").strip())


def report(
    runs: Annotated[list[Path], typer.Argument(help="Directory of a run, or of several runs to compare.", metavar="RUN...")],
    out: Annotated[Path | None, typer.Option(help="Directory for a comparison of several runs; default: comparison.")] = None,
    json: Json = False,
) -> None:
    """Write report.html and figures/ of a run, or a comparison of several runs.

    The report of one run is written into its directory, from its other files; a comparison is written into --out.

    Example: privet report runs/mnist

    Compare: privet report runs/small runs/large --out runs/compared
    """
    from privet.report import comparison, write

    if len(runs) == 1:
        if out is not None:
            raise InvalidArgumentError("--out", str(out), "left out for one run", "Its report goes into its own directory.")
        path = write(runs[0])
    else:
        path = comparison.write(runs, out or Path("comparison"))
    answer(json, {"report": str(path), "directory": str(path.parent)}, f"Report: {path.resolve().as_uri()}")
