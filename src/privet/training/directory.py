"""The directory of a run: what stands there before the first step, and how far it says the run came."""

from __future__ import annotations

__all__ = ["claim", "forget", "prepare", "read_plan", "write_status"]

import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from privet._utils.documents import DocumentError, read_text
from privet._utils.files import make_folder, write_text
from privet.errors import InvalidArgumentError, LedgerError
from privet.plan import Plan
from privet.training import checkpoint

LEDGER, PLAN, STATUS = "ledger", "plan.json", "status.json"


def claim(directory: Path) -> None:
    """Make the directory of a new run.

    Raises:
        LedgerError: it holds a run.
        InvalidArgumentError: it cannot be made.
    """
    try:
        make_folder(directory)
    except OSError as error:
        raise InvalidArgumentError("directory", str(directory), "a folder that can be made", f"{error.strerror}.") from None
    saved = directory / checkpoint.NAME
    if _began(directory / LEDGER) or (saved.exists() and saved.stat().st_size):
        raise LedgerError(f"{directory} holds a run already; resume it (Training.resume) or choose another directory")


def _began(ledger: Path) -> bool:
    """Return whether a ledger holds a whole record: a process that is killed in the first leaves part of a line, and no run."""
    if not ledger.exists():
        return False
    with ledger.open("rb") as file:
        return file.readline().endswith(b"\n")


def prepare(directory: Path, plan: Plan, files: Mapping[str, str]) -> None:
    """Write what resuming needs beside ledger and checkpoint, and that the run is not finished.

    Args:
        directory: of the run.
        plan: of the run.
        files: name → text of what else is to stand there from the beginning.
    """
    for name, text in {PLAN: plan.to_json(indent=2) + "\n", **files}.items():
        write_text(directory / name, text)
    write_status(directory, done=0, spent=0, planned=plan.total_steps)


def forget(directory: Path, files: Iterable[str]) -> None:
    """Remove a run that was refused before its first step, so that its directory has room for another.

    Args:
        directory: of the run, whose ledger is locked by this process.
        files: names of what else `prepare` wrote.
    """
    for name in (checkpoint.NAME, STATUS, PLAN, *files, LEDGER):
        (directory / name).unlink(missing_ok=True)


def read_plan(directory: Path) -> Plan:
    """Return the plan of the run in a directory.

    Raises:
        LedgerError: there is none, or it cannot be read.
        InvalidArgumentError: it is no plan.
    """
    path = directory / PLAN
    if not path.exists():
        raise LedgerError(f"{directory} holds no run to resume: there is no {PLAN}")
    try:
        return Plan.from_json(read_text(path))
    except DocumentError as error:
        raise LedgerError(f"the plan {path} cannot be read: {error}") from None


def write_status(directory: Path, *, done: int, spent: int, planned: int) -> None:
    """Say how far the run came, for people and for the report; nothing is decided by it.

    Args:
        directory: of the run.
        done: steps whose release is in the parameters.
        spent: steps that count.
        planned: steps of the plan.
    """
    status = {
        "state": "trained" if spent >= planned else "unfinished", "steps_done": done, "steps_spent": spent,
        "steps_planned": planned, "written": math.floor(time.time()),
    }  # fmt: skip
    write_text(directory / STATUS, json.dumps(status) + "\n")
