"""The directory of a run: where it is, the files in it, the status of its progress, and whether they are consistent."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privet._utils.documents import DocumentError, read_text
from privet._utils.files import make_folder, write_private_text, write_text
from privet.accounting.guarantee.statement import Statement
from privet.budget import Budget
from privet.errors import InvalidArgumentError, LedgerError, count
from privet.plan import Plan
from privet.training import checkpoint
from privet.training.callbacks import METRICS
from privet.training.manifest import FINGERPRINT, MANIFEST

LEDGER, PLAN, STATUS, STATEMENT = "ledger", "plan.json", "status.json", "guarantee.md"
# Field of a storage → its type, and that in words.
_ALLOWED: dict[str, tuple[Any, str]] = {
    "directory": (str | Path | None, "a path, a privet.Storage, or None for a run in memory"),
    "budget": (Budget | None, "a privet.Budget"),
    "anchor": (str | Path | None, "the path of a file outside the directory, or None"),
    "restore": (bool, "True or False"),
    "purpose": (str, "text"),
}
OWN_FILES = (LEDGER, PLAN, STATUS, MANIFEST, FINGERPRINT, METRICS, checkpoint.NAME, checkpoint.PREVIOUS)


@dataclass(frozen=True)
class Storage:
    """Where a training is stored, and which budget pays for it; for `Training(..., directory=Storage(...))`.

    Args:
        directory: directory of ledger, checkpoints and metrics; made absolute here. None keeps the ledger in memory, so the run
            cannot be resumed.
        budget: budget that this run shares with others on the same data; the whole plan is drawn from it before the first step.
            A resumed run finds it by itself; if its file has moved, pass the budget at its new path.
        anchor: a file outside the directory that follows the ledger, so that a rolled-back directory, or a copy of one whose
            original continued, is refused. A resumed run finds it by itself.
        checkpoint_every: number of steps between checkpoints, ≥ 1.
        files: name → text of additional files for the directory, such as a configuration. They are written before anything is
            spent, and removed if the run is refused.
        private: the same for files that only their owner can read.
        restore: whether `Training.resume` restores the parts from the last checkpoint. False leaves them as they are, for a host
            that restores model, optimizer and scheduler from a checkpoint of its own: call `Training.load_state_dict` with the
            state in it before the next step. Without such a checkpoint the parts must be new, and training begins again with
            the steps that are left.
        purpose: what the model is for, in your own words. The ledger records it, and the statement repeats it; a resumed run
            finds it by itself.

    Raises:
        InvalidArgumentError: an argument is out of range, or needs a directory.

    >>> Storage("runs/mnist", checkpoint_every=500).checkpoint_every
    500
    """

    directory: str | Path | None = None
    budget: Budget | None = None
    anchor: str | Path | None = None
    checkpoint_every: int = 100
    files: Mapping[str, str] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict)
    restore: bool = True
    purpose: str = ""

    def __post_init__(self) -> None:
        for name, (kind, allowed) in _ALLOWED.items():
            if not isinstance(getattr(self, name), kind):
                raise InvalidArgumentError(name, getattr(self, name), allowed)
        object.__setattr__(self, "purpose", " ".join(self.purpose.split()))
        count("checkpoint_every", self.checkpoint_every, fix="It is the number of steps from one checkpoint to the next.")
        for name in (*self.files, *self.private):
            if not name or Path(name).name != name or name in OWN_FILES:
                allowed = f"a file name without a folder, and none of {', '.join(OWN_FILES)}"
                raise InvalidArgumentError("files", name, allowed, "Rename it.")
        if self.directory is None and self.anchor is not None:
            raise InvalidArgumentError("anchor", str(self.anchor), "left out without a directory", "It follows the ledger there.")
        if self.directory is None and (self.files or self.private):
            raise InvalidArgumentError("files", sorted({**self.files, **self.private}), "left out without a directory")
        # A program that changes its working directory while it trains must not move the run, or write into another one.
        for name in ("directory", "anchor"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Path(getattr(self, name)).absolute())

    @classmethod
    def of(cls, place: str | Path | Storage | None) -> Storage:
        """Return a storage as it is, and a directory as a storage."""
        return place if isinstance(place, Storage) else cls(place)

    def check_resumable(self) -> Path:
        """Return the directory of a run to resume; refuse options that are only allowed at its start.

        Raises:
            InvalidArgumentError: names the option.
        """
        if self.folder is None:
            raise InvalidArgumentError("directory", None, "that of the run", "A run in memory cannot be resumed.")
        for name, value in (("anchor", self.anchor), ("files", self.files)):
            if value:
                raise InvalidArgumentError(name, str(value), "left out when a run is resumed", "The directory has what it needs.")
        return self.folder

    @property
    def folder(self) -> Path | None:
        """The directory."""
        return None if self.directory is None else Path(self.directory)


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
        raise InvalidArgumentError("directory", str(directory), "one that can be created", cause=f"{error.strerror}") from None
    _check_no_run(directory)


def _check_no_run(directory: Path) -> None:
    if holds_run(directory):
        raise LedgerError(f"{directory} holds a run already; resume it (Training.resume) or choose another directory")


def holds_run(directory: str | Path) -> bool:
    """Return whether a directory holds a run, so that `Training.resume` applies and a new `Training` is refused."""
    saved, ledger = Path(directory) / checkpoint.NAME, Path(directory) / LEDGER
    if ledger.exists():
        with ledger.open("rb") as file:
            if file.readline().endswith(b"\n"):  # a process that is killed while it writes the first record leaves part of it
                return True
    return saved.exists() and saved.stat().st_size > 0


def prepare(directory: Path, plan: Plan, files: Mapping[str, str], private: Mapping[str, str]) -> None:
    """Write the files that resuming needs besides ledger and checkpoint, and the status; only its owner reads `private` ones."""
    for name, text in {PLAN: plan.to_json(indent=2) + "\n", **files}.items():
        write_text(directory / name, text)
    for name, text in private.items():
        write_private_text(directory / name, text)
    write_status(directory, done=0, spent=0, planned=plan.total_steps)


def forget(directory: Path, files: Iterable[str]) -> None:
    """Remove a run that was refused before its first step, with the files of `prepare`; this process holds its ledger's lock."""
    for name in (checkpoint.NAME, STATUS, PLAN, *files, LEDGER):
        (directory / name).unlink(missing_ok=True)


def read_plan(directory: str | Path) -> Plan:
    """Return the plan of the run in a directory.

    Raises:
        LedgerError: there is none, or it cannot be read.
        InvalidArgumentError: the file is not a plan.
    """
    path = Path(directory) / PLAN
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


def write_guarantee(directory: Path, guarantee: Statement) -> None:
    """Write the statement of a finished run, for programs and for people."""
    write_text(directory / "guarantee.json", guarantee.to_json() + "\n")
    write_text(directory / STATEMENT, f"# Guarantee\n\n{guarantee}\n")


def write_status(directory: Path, *, done: int, spent: int, planned: int) -> None:
    """Write the progress of a run (steps in the parameters, that count, of the plan), for people; nothing is decided by it."""
    status = {
        "state": "trained" if spent >= planned else "unfinished", "steps_done": done, "steps_spent": spent,
        "steps_planned": planned, "written": math.floor(time.time()),
    }  # fmt: skip
    write_text(directory / STATUS, json.dumps(status) + "\n")
