"""Checkpoints: the public state of a run, written atomically and linked to its ledger.

They contain only released values (trained parameters, buffers, optimizer and scheduler state) and the ledger's tip, and no key of
a random source, so a resumed run draws fresh randomness. The last two are kept. Reading one executes nothing.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from privet._utils.files import remove_unfinished, write_atomically
from privet.errors import LedgerError, PrivetError, PrivetWarning
from privet.ledger import Ledger

NAME, PREVIOUS = "checkpoint.pt", "checkpoint-previous.pt"


class Stateful(Protocol):
    """Anything whose state can be saved and restored, such as an optimizer or a learning-rate scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Restore the state."""


class CorruptCheckpointError(Exception):
    """The file is not a checkpoint, or is damaged."""


def save(directory: Path, step: int, parts: Mapping[str, Stateful], ledger: Ledger) -> None:
    """Write the named states after `step` completed steps, with the ledger's tip, and keep the previous checkpoint.

    Raises:
        LedgerError: writing failed, such as on a full disk; the existing checkpoints are unchanged.
    """
    state = {"step": step, "ledger": ledger.tip, **{name: part.state_dict() for name, part in parts.items()}}
    try:
        write_atomically(directory / NAME, lambda temporary: _write(state, temporary), keep=directory / PREVIOUS)
    except OSError as error:
        raise LedgerError(
            f"the checkpoint {directory / NAME} could not be written: {error.strerror or error}. Free some space, or change "
            "the permissions"
        ) from None


def _write(state: Mapping[str, Any], path: Path) -> None:
    """Write the state; a full disk is an OSError, which torch's writer reports as its own broken invariant."""
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def save_first(directory: Path, parts: Mapping[str, Stateful], ledger: Ledger) -> None:
    """Write the state before the first step, and check that it can be read without executing code, before anything is spent."""
    try:
        save(directory, 0, parts, ledger)
        read(directory / NAME)
    except (CorruptCheckpointError, pickle.PicklingError, AttributeError, TypeError) as error:
        raise LedgerError(
            "the run could not be resumed: model, optimizer, scheduler or average keep more in their state_dict than tensors, "
            f"numbers, text, lists and dictionaries ({error})"
        ) from None


def load(directory: Path, parts: Mapping[str, Stateful] | None, ledger: Ledger, device: torch.device) -> int | None:
    """Restore the last readable state, and return its number of completed steps; None if there is no checkpoint yet.

    Without `parts`, only the ledger is checked. The caller holds the ledger open, so no other process writes to the directory.

    Raises:
        LedgerError: the checkpoint is not in the ledger (which was rolled back, or is of another run), no checkpoint can be read,
            or it contains other states than those requested.
    """
    remove_unfinished(directory / NAME)
    path, state = latest(directory, device)
    if state is not None and not ledger.includes(state["ledger"]):
        raise LedgerError(
            f"the checkpoint {path} is newer than, or foreign to, the ledger {ledger.path}: spent steps would not be counted"
        )
    if state is None or parts is None:
        return None
    missing, left_out = parts.keys() - state.keys(), state.keys() - parts.keys() - {"step", "ledger"}
    for holds, names in (("holds no", missing), ("also holds", left_out)):
        if names:
            listed = ", ".join(sorted(names))
            raise LedgerError(f"the checkpoint {path} {holds} state for {listed}; resume with the parts of the start")
    try:
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError, PrivetError) as error:
        raise LedgerError(f"the checkpoint {path} does not fit these parts ({error})") from None
    return int(state["step"])


def read(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the content of a checkpoint, by a reader that only creates tensors and plain values."""
    try:
        with zipfile.ZipFile(path) as parts:  # torch's reader does not look at the checksums
            damaged = parts.testzip()
        state: dict[str, Any] = {} if damaged else torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # for damaged bytes, torch raises IndexError, AssertionError, struct.error, …
        # Without torch's message, which advises to execute code from the file.
        raise CorruptCheckpointError(f"torch finds no tensors and plain values in it: {type(error).__name__}") from None
    if damaged:
        raise CorruptCheckpointError("its checksums are not those of its content")
    match state:
        case {"step": int(step), "ledger": str(), "model": Mapping()} if step >= 0:
            return state
    raise CorruptCheckpointError("it contains no state of a run")


def latest(directory: Path, device: torch.device | str = "cpu") -> tuple[Path, dict[str, Any] | None]:
    """Return the path and content of the newest readable checkpoint; None as content if there is none. Refuse damaged ones."""
    unreadable = ""
    for path in (directory / NAME, directory / PREVIOUS):
        if not path.exists():
            continue
        try:
            state = read(path, device)
        except CorruptCheckpointError as error:
            unreadable = f"the checkpoint {path} cannot be read ({error})"
            continue
        if unreadable:
            warnings.warn(f"{unreadable}; the previous one, {path.name}, is used instead", PrivetWarning, stacklevel=2)
        return path, state
    if unreadable:
        raise LedgerError(f"{unreadable}, and neither can the previous one")
    return directory / NAME, None
