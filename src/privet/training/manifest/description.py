"""The manifest of a run: its parts in words, which a resumed run compares before it changes or spends anything."""

from __future__ import annotations

__all__ = ["MANIFEST", "check", "describe", "name_of", "to_files"]

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from privet._utils.documents import DocumentError, from_json, read_text
from privet.errors import LedgerError
from privet.training.manifest.fingerprint import FINGERPRINT, compare, fingerprint, tensor_rows
from privet.training.manifest.parts import Parts, wrapped

MANIFEST = "manifest.json"
_FORMAT = 2
# Not compared: what files of format 1 lacked, and what earlier versions of format 2 described.
_LATER, _EARLIER = ("options", "settings", "wraps"), ("code", "numbers", "calls", "avg_fn", "multi_avg_fn")
# How an optimizer computes its step, not what it computes: these may change between sessions.
_EXECUTION = ("foreach", "fused", "capturable", "differentiable")
_NOT_SETTINGS = ("optimizer", "last_epoch", "step", "verbose")
_MOST_LINES, _MOST_CHARACTERS = 8, 100


def to_files(parts: Parts) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files that describe the parts of a new run.

    Returns:
        Name → text of the files that anybody may read, and of those that only their owner may read.
    """
    return {MANIFEST: json.dumps(describe(parts), indent=2) + "\n"}, {FINGERPRINT: fingerprint(parts)}


def check(directory: Path, parts: Parts, *, options: bool = True) -> None:
    """Refuse to resume a run with other parts than it was started with, before anything is restored or spent.

    What a run's files do not describe is not compared: runs of earlier versions, or without these files, resume as before, and
    their checkpoint alone decides which states there must be.

    Args:
        directory: directory of the run.
        parts: parts that it is resumed with.
        options: whether to compare options of optimizer and scheduler; a host may have restored them from later steps.

    Raises:
        LedgerError: a part differs; the message lists each difference as "before → now". Or a file is damaged.
    """
    before = _read(directory / MANIFEST)
    lines = [] if before is None else [*_differences(before, parts, options)]
    if (path := directory / FINGERPRINT).exists():
        lines += compare(path, parts)
    if not lines:
        return
    more = len(lines) - _MOST_LINES
    raise LedgerError(
        f"the run in {directory} was started with other parts (before → now):\n  "
        + "\n  ".join(lines[:_MOST_LINES])
        + (f"\n  and {more} more" if more > 0 else "")
        + "\nNothing was restored or spent. Resume it with the parts that it was started with."
    )


def _read(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    advice = "restore it, or remove it to compare with the checkpoint alone"
    try:
        held = from_json(read_text(path))
    except DocumentError as error:
        raise LedgerError(f"the manifest {path} cannot be read ({error}); {advice}") from None
    if not isinstance(held, dict) or held.get("format") not in (1, _FORMAT) or not isinstance(held.get("optimizer"), dict):
        raise LedgerError(f"{path} is not a manifest of a known format; {advice}")
    return held


def _differences(before: Mapping[str, Any], parts: Parts, options: bool) -> Iterator[str]:
    """Yield a line for each difference between a manifest and the parts now."""
    now = describe(parts)
    ignored = {"format", "python", *_EARLIER, *(_LATER if before["format"] == 1 else ())}
    if parts.stepped or not options:  # steps change options; those of the run are restored from its checkpoint
        ignored |= {"options", "settings"}
    old = dict(_flatten("", before, ignored))
    new = dict(_flatten("", {name: now.get(name) for name in before}, ignored))
    differing = [path for path in {**old, **new} if not _same(old.get(path), new.get(path))]
    for path in differing:
        # Of another class, nothing else can be compared.
        if not any(path.startswith((f"{other}.", f"{other}[")) for other in differing):
            yield f"{path}: {_show(old.get(path))} → {_show(new.get(path))}"


def _flatten(path: str, value: Any, ignored: Container[str]) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of the values in a description, but of those that are off: later versions of a library add options."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            # The class or the function that a mapping describes stands for it.
            own = path if key in ("class", "name") else f"{path}.{key}".lstrip(".")
            yield from () if key in ignored else _flatten(own, item, ignored)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _flatten(f"{path}[{number}]", item, ignored)
    elif value is not None and value is not False:
        yield path, value


def _same(before: object, now: object) -> bool:
    """Return whether two values are equal; a class may have been defined in a script and imported later."""
    if isinstance(before, str) and isinstance(now, str) and "__main__." in (before[:9], now[:9]):
        return before.rpartition(".")[2] == now.rpartition(".")[2]
    return before == now


def _show(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def describe(parts: Parts) -> dict[str, Any]:
    """Return names, kinds, shapes and settings of all parts as plain JSON values.

    Guarantee:
        Nothing here depends on the contents of the data: of the data set, only its type, its public length and the public
        shapes and types of its items are described. Of functions, only the names are described.
    """
    return {
        "format": _FORMAT,
        "model": _model(parts.model),
        "loss": {"name": _name_function(parts.loss_fn)},
        "optimizer": _optimizer(parts.optimizer, parts.model),
        "scheduler": None if parts.scheduler is None else _plain(parts.scheduler),
        "average": None if parts.average is None else {"class": name_of(parts.average)},
        "collate": None if parts.collate is None else {"name": _name_function(parts.collate)},
        "data": _data(parts.dataset),
        "public": None if parts.public is None else _data(parts.public),
    }


def _name_function(function: object) -> str:
    """Return the name of a function; that of a lambda says where it was written, which may change."""
    name = name_of(function)
    return "<lambda>" if name.endswith("<lambda>") else name


def _model(model: nn.Module) -> dict[str, Any]:
    parameters = {name: f"{_kind(one)}, {'trained' if one.requires_grad else 'frozen'}" for name, one in model.named_parameters()}
    return {
        "modules": {name or "(model)": name_of(module) for name, module in model.named_modules()},
        "parameters": parameters,
        "buffers": {name: _kind(one) for name, one in model.named_buffers()},
    }


def _optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Any]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    left_out = ("params", "param_names", *_EXECUTION)
    groups = [
        {
            "parameters": [names.get(id(member), "") for member in group["params"]],
            "options": {str(key): _plain(value) for key, value in group.items() if key not in left_out},
        }
        for group in optimizer.param_groups
    ]
    _, *inner = wrapped(optimizer)
    return {"class": name_of(optimizer), "groups": groups, "wraps": [name_of(one) for one in inner]}


def _data(dataset: Any) -> dict[str, Any]:
    """Describe a data set by its type and length, and the shapes and types in it if they can be known without reading it."""
    items = list(dict.fromkeys(" and ".join(_kind(one, one.shape[1:]) for one in tensors) for tensors, _ in tensor_rows(dataset)))
    return {"class": name_of(dataset), "entries": len(dataset)} | ({"items": items} if items else {})


def _plain(value: Any) -> Any:
    """Return a setting as a plain JSON value: in words if it is no number, text or list of these."""
    if isinstance(value, LRScheduler):
        settings = {key: _plain(one) for key, one in vars(value).items() if key[0] != "_" and key not in _NOT_SETTINGS}
        if combined := [_plain(one) for one in getattr(value, "_schedulers", ())]:
            settings |= {"milestones": _plain(getattr(value, "_milestones", [])), "schedulers": combined}
        return {"class": name_of(value), "settings": settings}
    if isinstance(value, Tensor):
        return f"tensor {_plain(value.item())}" if value.numel() == 1 else f"tensor {_kind(value)}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic) and value.shape == ():
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    return value if value is None or isinstance(value, bool | int | float | str) else name_of(value)


def _kind(tensor: Tensor, shape: Sequence[int] | None = None) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape if shape is None else shape)}"


def name_of(thing: object) -> str:
    """Return the qualified name of a function, or of an object's class.

    >>> name_of(partial(len))
    'builtins.len'
    """
    while isinstance(thing, partial):
        thing = thing.func
    thing = getattr(thing, "__func__", thing)
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', None)}.{getattr(named, '__qualname__', '')}"
