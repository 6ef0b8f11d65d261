"""Options of a training: where it is stored, and how its examples are read and checked."""

from __future__ import annotations

__all__ = ["Reading", "Storage"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privet.budget import Budget
from privet.errors import InvalidArgumentError, count
from privet.training.directory import OWN_FILES


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

    def __post_init__(self) -> None:
        if not isinstance(self.directory, str | Path | None):
            raise InvalidArgumentError("directory", self.directory, "a path, a privet.Storage, or None for a run in memory")
        if not isinstance(self.budget, Budget | None):
            raise InvalidArgumentError("budget", type(self.budget).__name__, "a privet.Budget")
        if not isinstance(self.anchor, str | Path | None):
            raise InvalidArgumentError("anchor", self.anchor, "the path of a file outside the directory, or None")
        if not isinstance(self.restore, bool):
            raise InvalidArgumentError("restore", self.restore, "True or False")
        count("checkpoint_every", self.checkpoint_every, fix="It is the number of steps from one checkpoint to the next.")
        for name in (*self.files, *self.private):
            if not name or Path(name).name != name or name in OWN_FILES:
                raise InvalidArgumentError(
                    "files", name, f"a file name without a folder, and none of {', '.join(OWN_FILES)}", "Rename it."
                )
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
        if self.anchor is not None:
            raise InvalidArgumentError(
                "anchor", str(self.anchor), "left out when a run is resumed", "The ledger in the directory knows its place."
            )
        if self.files:
            raise InvalidArgumentError("files", sorted(self.files), "left out when a run is resumed", "They are there already.")
        return self.folder

    @property
    def folder(self) -> Path | None:
        """The directory."""
        return None if self.directory is None else Path(self.directory)


@dataclass(frozen=True, eq=False)
class Reading:
    """How a training reads its examples, and what the check before its first step uses.

    Args:
        workers: number of processes that read examples ahead, ≥ 0; 0 reads them in the process that trains.
        probe_batch: public batch of several examples to check with, for models that need realistic values.
        spec: made-up item with the structure of the data set's items; its shapes are used instead of those of the first
            examples, with its text, and with its numbers if the program takes no others. A `probe_batch` takes precedence.
        probe: whether to check model, loss and collate on public input before the first step. Without it, examples are still
            isolated, but a program that behaves differently for a single example, or keeps hidden state, goes unnoticed; the
            statement says so.

    Raises:
        InvalidArgumentError: an argument is out of range.

    >>> Reading(workers=2)
    Reading(workers=2, probe_batch=None, spec=None, probe=True)
    """

    workers: int = 0
    probe_batch: Any = None
    spec: Any = None
    probe: bool = True

    def __post_init__(self) -> None:
        count("workers", self.workers, minimum=0, fix="It is the number of processes that read ahead; 0 is none.")
        if not isinstance(self.probe, bool):
            raise InvalidArgumentError("probe", self.probe, "True or False")
