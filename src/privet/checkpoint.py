"""Checkpoints: the public state of a run, written whole or not at all, and tied to its ledger.

They hold nothing but released values (parameters, optimizer and scheduler state) and the ledger's tip; never a key of a
random source, so a resumed run draws fresh randomness.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from privet.errors import LedgerError
from privet.files import write_atomically
from privet.ledger import Ledger


class Stateful(Protocol):
    """What can be saved and restored: optimizers and learning-rate schedulers."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Restore it."""


def save(path: Path, step: int, model: nn.Module, others: dict[str, Stateful], ledger: Ledger) -> None:
    """Write the state after `step` completed steps.

    Args:
        path: of the checkpoint file.
        step: steps whose release is in the parameters.
        model: whose state_dict is saved.
        others: name → optimizer or scheduler.
        ledger: whose tip is noted.
    """
    state = {
        "step": step,
        "ledger": ledger.tip,
        "model": model.state_dict(),
        **{name: other.state_dict() for name, other in others.items()},
    }
    write_atomically(path, lambda temporary: torch.save(state, temporary))


def load(path: Path, model: nn.Module, others: dict[str, Stateful], ledger: Ledger) -> int:
    """Restore the state and return the number of completed steps; 0 if there is no checkpoint yet.

    Raises:
        LedgerError: the ledger does not know the checkpoint (it was rolled back or belongs to another run), or the checkpoint
            holds a state that was not asked for.
    """
    if not path.exists():
        return 0
    device = next(model.parameters()).device
    state = torch.load(path, map_location=device, weights_only=True)
    if not ledger.includes(state["ledger"]):
        raise LedgerError(
            f"the checkpoint {path} is newer than, or foreign to, the ledger {ledger.path}: spent steps would be lost"
        )
    missing = [name for name in others if name not in state]
    if missing:
        raise LedgerError(f"the checkpoint {path} holds no state for {', '.join(missing)}; resume with what the run began with")
    model.load_state_dict(state["model"])
    for name, other in others.items():
        other.load_state_dict(state[name])
    return int(state["step"])
