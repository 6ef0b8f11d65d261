"""What a checkpoint of the host holds in addition: the guarantee for readers, and the state with which a run resumes."""

from __future__ import annotations

__all__ = ["PRIVACY", "STATE", "read_state", "write_privacy", "write_state"]

import json
from pathlib import Path
from typing import Any

import torch

from privet._utils.files import write_atomically, write_text
from privet.errors import LedgerError
from privet.training import Training

PRIVACY = "privacy.json"
STATE = "privet_state.pt"


def write_privacy(folder: Path, training: Training) -> Path:
    """Write the guarantee of all steps spent so far beside saved weights, and return the path of the file.

    Args:
        folder: folder of the weights; later steps change nothing about them.
        training: training that released them.
    """
    guarantee = training.guarantee()
    content = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "steps": guarantee.steps,
        "statement": str(guarantee),
        "guarantee": guarantee.to_dict(),
        "plan": training.plan.to_dict(),
    }
    return write_text(folder / PRIVACY, json.dumps(content, ensure_ascii=False, indent=2, default=str) + "\n")


def write_state(folder: Path, training: Training) -> Path:
    """Write what a resumed run needs beside the host's model, optimizer and scheduler; all of it was released.

    Args:
        folder: folder of the host's checkpoint.
        training: training to resume from it.
    """
    return write_atomically(folder / STATE, lambda path: torch.save(training.state_dict(), path))


def read_state(folder: Path) -> dict[str, Any]:
    """Return the state in a checkpoint, by a reader that only creates tensors and plain values.

    Raises:
        LedgerError: the checkpoint holds none, or it is damaged.
    """
    path = folder / STATE
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise LedgerError(
            f"the checkpoint {folder} has no {STATE}: it was not saved by a private trainer, or with save_only_model=True, so "
            "which steps it contains is unknown. Resume from a checkpoint that has one"
        ) from None
    except Exception as error:  # for damaged bytes, torch raises many kinds
        raise LedgerError(f"{path} is damaged ({type(error).__name__}); resume from another checkpoint") from None
    return state
