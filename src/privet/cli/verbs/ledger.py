"""`privet ledger`: show what a run has spent, and verify its files."""

from __future__ import annotations

__all__ = ["Run", "app", "show", "verify"]

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from privet.cli.output import Json, answer
from privet.convex.convex_verification import read_convex_plan, verify_fit
from privet.ledger import read
from privet.ledger.history import WHAT
from privet.training.directory import LEDGER
from privet.training.verification import verify as verify_run

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Show what a run has spent, and verify its files.",
    no_args_is_help=True,
)
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of the run.")]


@app.command("verify")
def verify(run: Run, json: Json = False) -> None:
    """Verify a run's ledger and the files that refer to it.

    Checks every line of the ledger, and the plan, checkpoint, anchor and budget against it; exit status 2 on damage. Keep the
    printed tip in another place: a directory alone cannot show that it is a copy or was rolled back.

    Example: privet ledger verify runs/mnist
    """
    plan = read_convex_plan(run)
    found = verify_run(run) if plan is None else verify_fit(run, plan)
    answer(json, asdict(found), str(found))


@app.command("show")
def show(run: Run, json: Json = False) -> None:
    """List the records of a run's ledger.

    Example: privet ledger show runs/mnist
    """
    records = read(run / LEDGER, WHAT).records
    lines = (f"{number:>5}  {_format_record(record)}" for number, record in enumerate(records, start=1))
    answer(json, {"records": records}, "\n".join(lines))


def _format_record(record: dict[str, object]) -> str:
    """Return a record in one line: its kind, then its main fields."""
    shown = ("first", "count", "query", "run", "at", "machine", "process", "adopted", "versions")
    return f"{record.get('record')!s:<8}" + "  ".join(f"{name} {record[name]}" for name in shown if name in record)
