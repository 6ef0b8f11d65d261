"""The directory of a run: the files that it has before the first step, and the status of its progress."""

from __future__ import annotations

__all__ = ["OWN_FILES", "check_empty", "check_plan", "claim", "forget", "holds_run", "prepare", "read_plan", "write_status"]

import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from privet._utils.documents import DocumentError, read_text
from privet._utils.files import make_folder, write_private_text, write_text
from privet.errors import InvalidArgumentError, LedgerError
from privet.plan import Plan
from privet.training import checkpoint
from privet.training.manifest.description import MANIFEST
from privet.training.manifest.fingerprint import FINGERPRINT
from privet.training.observation.metrics_file import METRICS

LEDGER, PLAN, STATUS = "ledger", "plan.json", "status.json"
OWN_FILES = (LEDGER, PLAN, STATUS, MANIFEST, FINGERPRINT, METRICS, checkpoint.NAME, checkpoint.PREVIOUS)


def check_empty(directory: Path, name: str = "directory") -> None:
    """Refuse a directory that a new run cannot have for itself, without creating or changing anything.

    A directory in which a run failed before its first record is accepted, and hidden files are ignored.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise InvalidArgumentError(name, str(directory), "a new or empty directory", "There is a file of this name.")
    _check_no_run(directory)
    found = sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("."))
    if found and LEDGER not in found:
        listed = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise InvalidArgumentError(name, str(directory), "a new or empty directory", f"It contains {listed}; choose another one.")


def claim(directory: Path) -> None:
    """Make the directory of a new run."""
    try:
        make_folder(directory)
    except OSError as error:
        raise InvalidArgumentError("directory", str(directory), "a directory that can be created", f"{error.strerror}.") from None
    _check_no_run(directory)


def _check_no_run(directory: Path) -> None:
    if holds_run(directory):
        raise LedgerError(f"{directory} holds a run already; resume it (Training.resume) or choose another directory")


def holds_run(directory: str | Path) -> bool:
    """Return whether a directory holds a run, so that `Training.resume` applies and a new `Training` is refused."""
    saved = Path(directory) / checkpoint.NAME
    return _has_record(Path(directory) / LEDGER) or (saved.exists() and saved.stat().st_size > 0)


def _has_record(ledger: Path) -> bool:
    """Return whether a ledger contains a complete record: a process killed while writing the first leaves part of a line."""
    if not ledger.exists():
        return False
    with ledger.open("rb") as file:
        return file.readline().endswith(b"\n")


def prepare(directory: Path, plan: Plan, files: Mapping[str, str], private: Mapping[str, str]) -> None:
    """Write the files that resuming needs besides ledger and checkpoint, and the status; only the owner can read `private` ones."""
    for name, text in {PLAN: plan.to_json(indent=2) + "\n", **files}.items():
        write_text(directory / name, text)
    for name, text in private.items():
        write_private_text(directory / name, text)
    write_status(directory, done=0, spent=0, planned=plan.total_steps)


def forget(directory: Path, files: Iterable[str]) -> None:
    """Remove a run that was refused before its first step, with the files of `prepare`; this process holds its ledger's lock."""
    for name in (checkpoint.NAME, STATUS, PLAN, *files, LEDGER):
        (directory / name).unlink(missing_ok=True)


def read_plan(directory: Path) -> Plan:
    """Return the plan of the run in a directory.

    Raises:
        LedgerError: there is none, or it cannot be read.
        InvalidArgumentError: the file is not a plan.
    """
    path = directory / PLAN
    if not path.exists():
        raise LedgerError(f"{directory} holds no run: there is no {PLAN}")
    try:
        return Plan.from_json(read_text(path))
    except DocumentError as error:
        raise LedgerError(f"the plan {path} cannot be read: {error}") from None


def check_plan(directory: Path, plan: Plan) -> None:
    """Refuse to continue a run under another plan than its own; the error lists the differences."""
    own, given = read_plan(directory).to_dict(), plan.to_dict()
    if differences := [
        f"{name} is {own.get(name)} there, {value} here" for name, value in given.items() if own.get(name) != value
    ]:
        raise LedgerError(
            f"{directory} holds a run with another plan, which cannot be changed: {'; '.join(differences)}. Continue it with its "
            f"own, privet.training.read_plan({str(directory)!r}), or begin another run in a new directory, whose ε adds to that "
            "of the first"
        )


def write_status(directory: Path, *, done: int, spent: int, planned: int) -> None:
    """Write the progress of a run (steps in the parameters, that count, of the plan), for people; nothing is decided by it."""
    status = {
        "state": "trained" if spent >= planned else "unfinished", "steps_done": done, "steps_spent": spent,
        "steps_planned": planned, "written": math.floor(time.time()),
    }  # fmt: skip
    write_text(directory / STATUS, json.dumps(status) + "\n")
