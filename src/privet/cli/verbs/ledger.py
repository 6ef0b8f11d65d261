"""`privet ledger`: what a run has spent, and whether its files fit together."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from privet.cli.output import Json, answer
from privet.ledger import read
from privet.ledger.history import WHAT
from privet.training.directory import LEDGER
from privet.training.verification import verify as verify_run

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="What a run has spent, and whether its files fit together.",
    no_args_is_help=True,
)
Run = Annotated[Path, typer.Argument(help="Directory of the run.")]


@app.command("verify")
def verify(run: Run, json: Json = False) -> None:
    """Check every line of a run's ledger, and its plan, checkpoint, anchor and budget against it; exit with 2 on damage.

    Note the tip somewhere else: nothing inside a directory shows that it is a copy, or was rolled back.

    Example: privet ledger verify runs/mnist
    """
    found = verify_run(run)
    answer(json, asdict(found), str(found))


@app.command("show")
def show(run: Run, json: Json = False) -> None:
    """List the records of a run's ledger.

    Example: privet ledger show runs/mnist
    """
    records = read(run / LEDGER, WHAT).records
    lines = (f"{number:>5}  {_described(record)}" for number, record in enumerate(records, start=1))
    answer(json, {"records": records}, "\n".join(lines))


def _described(record: dict[str, object]) -> str:
    """Return a record in a line: its kind, then what says most about it."""
    told = ("first", "count", "run", "at", "machine", "process", "adopted", "versions")
    return f"{record.get('record')!s:<8}" + "  ".join(f"{name} {record[name]}" for name in told if name in record)
