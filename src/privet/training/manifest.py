"""The manifest of a run: what trains it, by name, so that nothing is restored into something else."""

from __future__ import annotations

__all__ = ["check", "describe", "name_of", "to_text"]

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.documents import DocumentError, from_json, read_text
from privet.errors import LedgerError

NAME, FORMAT = "manifest.json", 1
_COMPARED = ("optimizer", "scheduler", "average")
_HERE = "__main__."


def describe(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: object | None, average: object | None
) -> dict[str, Any]:
    """Return what a run is trained with, as plain JSON values: classes, and the optimizer's options with their parameters.

    Args:
        model: whose parameters have the names.
        optimizer, scheduler, average: of the training; None if there is none.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        {
            "parameters": [names.get(id(member), "") for member in group["params"]],
            "options": {str(key): _plain(value) for key, value in group.items() if key not in ("params", "param_names")},
        }
        for group in optimizer.param_groups
    ]
    return {
        "optimizer": {"class": name_of(optimizer), "groups": groups},
        "scheduler": None if scheduler is None else {"class": name_of(scheduler)},
        "average": None if average is None else {"class": name_of(average)},
    }


def to_text(found: Mapping[str, Any], loss: object) -> str:
    """Return the text of the file: what `describe` found, and the loss by its name."""
    return json.dumps({"format": FORMAT, **found, "loss": name_of(loss)}, indent=2) + "\n"


def check(directory: Path, found: Mapping[str, Any]) -> None:
    """Refuse to go on with a run with another optimizer, scheduler or average than it began with, before anything is touched.

    The options of the optimizer are not compared: a checkpoint restores them. A run without a manifest is not refused here; its
    checkpoint says which states there have to be.

    Args:
        directory: of the run.
        found: what `describe` says of those it is to be gone on with.

    Raises:
        LedgerError: saying what the run began with; or the manifest is damaged.
    """
    path = directory / NAME
    if not path.exists():
        return
    try:
        held = from_json(read_text(path))
    except DocumentError as error:
        raise LedgerError(f"the manifest {path} cannot be read ({error}); without it, the checkpoint alone is compared") from None
    if not isinstance(held, dict) or held.get("format") != FORMAT or not isinstance(held.get("optimizer"), dict):
        raise LedgerError(f"{path} is no manifest of format {FORMAT}; without it, the checkpoint alone is compared")
    for part in _COMPARED:
        before, now = (_class(each.get(part)) for each in (held, found))
        if not _same(before, now):
            raise LedgerError(
                f"the run in {directory} began with {_words(part, before)}, and is to be resumed with {_words(part, now)}; "
                "make what it began with, so that its state can be restored"
            )
    orders = [_order(each["optimizer"]) for each in (held, found)]
    if orders[0] != orders[1]:
        raise LedgerError(
            f"the run in {directory} is to be resumed with an optimizer that has the parameters in other groups, or in another "
            "order, than the one that it began with; make it as it was, so that each parameter gets its own state"
        )


def name_of(thing: object) -> str:
    """Return the name of a function, or of an object's class, with its module."""
    while isinstance(thing, partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', None)}.{getattr(named, '__qualname__', '')}"


def _plain(value: Any) -> Any:
    """Return a setting as a plain JSON value: in words if it is no number, text or list of such."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else name_of(value)


def _class(part: object) -> str | None:
    return str(part.get("class")) if isinstance(part, Mapping) else None


def _same(before: str | None, now: str | None) -> bool:
    """Return whether two names are of one class, which may have been defined in a script and imported later."""
    if before is None or now is None or before == now:
        return before == now
    if before.startswith(_HERE) or now.startswith(_HERE):
        return before.rpartition(".")[2] == now.rpartition(".")[2]
    return False


def _words(part: str, name: str | None) -> str:
    return f"no {part}" if name is None else f"the {part} {name}"


def _order(optimizer: Mapping[str, Any]) -> object:
    groups = optimizer.get("groups")
    return (
        [group.get("parameters") if isinstance(group, Mapping) else None for group in groups]
        if isinstance(groups, list)
        else None
    )
