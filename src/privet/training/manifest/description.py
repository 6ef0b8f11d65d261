"""Describe the parts of a training: names, kinds, shapes and settings as plain JSON values, and no value of the data."""

from __future__ import annotations

__all__ = ["Parts", "describe_function", "name_of", "numbers_of"]

import hashlib
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset

from privet.collate import Collate
from privet.gradients.core.losses import LossFunction
from privet.training.fresh import is_blank, wrapped
from privet.training.manifest.fingerprint import tensor_rows

_LAMBDA = "<lambda>"
# A loss built from another function names it, and so on; deeper nesting is left out.
_DEPTH = 4
# How an optimizer computes its step, not what it computes: these may change between sessions.
_EXECUTION = ("foreach", "fused", "capturable", "differentiable")


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a training that a resumed run must have in common with its start.

    Args:
        model: the model.
        loss_fn: loss function.
        optimizer: optimizer over the model's trainable parameters.
        scheduler, average, collate: as for `Training`; None if there is none.
        dataset: map-style data set.
        public: public data set of `clipping.GEP`, or None.
    """

    model: nn.Module
    loss_fn: LossFunction
    optimizer: torch.optim.Optimizer
    dataset: Dataset[Any]
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    average: AveragedModel | None = None
    collate: Collate | None = None
    public: Dataset[Any] | None = None

    @property
    def stepped(self) -> bool:
        """Whether optimizer or scheduler have taken steps, which change their options; a checkpoint restores those."""
        states = [state for each in wrapped(self.optimizer) for state in each.state.values()]
        return not all(map(is_blank, states)) or getattr(self.scheduler, "last_epoch", 0) > 0

    def describe(self) -> dict[str, Any]:
        """Return names, kinds, shapes and settings of all parts as plain JSON values.

        Guarantee:
            Nothing here depends on the contents of the data: of the data set, only its type, its public length and the public
            shapes and types of its items are described. Of the user's own functions, no value that they hold is described.
        """
        return {
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "model": _model(self.model),
            "loss": describe_function(self.loss_fn),
            "optimizer": _optimizer(self.optimizer, self.model),
            "scheduler": None if self.scheduler is None else _scheduler(self.scheduler),
            "average": None if self.average is None else _average(self.average),
            "collate": None if self.collate is None else describe_function(self.collate),
            "data": _data(self.dataset),
            "public": None if self.public is None else _data(self.public),
        }


def name_of(thing: object) -> str:
    """Return the qualified name of a function, or of an object's class.

    >>> name_of(partial(len))
    'builtins.len'
    """
    while isinstance(thing, partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', None)}.{getattr(named, '__qualname__', '')}"


def describe_function(function: object, depth: int = _DEPTH) -> dict[str, Any]:
    """Return the name of a function or callable object, with the functions that it was built from.

    A lambda has no name of its own, so a digest of its code stands for it. Numbers that a function holds are described only for
    torch's and Privet's own functions, such as the decay of a moving average.

    Args:
        function: function, partial or callable object.
        depth: levels of functions within functions to follow.
    """
    found: dict[str, Any] = {"name": name_of(function)}
    code = getattr(_unwrap(function), "__code__", None)
    if isinstance(code, CodeType) and found["name"].endswith(_LAMBDA):
        found = {"name": _LAMBDA, "code": _digest(code)}
    if _is_library(found["name"]) and (numbers := list(_numbers(function))):
        found["numbers"] = numbers
    calls = [describe_function(one, depth - 1) for one in _inner(function)] if depth else []
    return found | ({"calls": calls} if calls else {})


def numbers_of(function: object, depth: int = _DEPTH) -> list[float]:
    """Return the numbers that a function was built with: in partials and closures, at any depth. They may be confidential."""
    found = list(_numbers(function))
    if depth:
        found += [number for one in _inner(function) for number in numbers_of(one, depth - 1)]
    return found


def _model(model: nn.Module) -> dict[str, Any]:
    parameters = {name: f"{_kind(one)}, {'trained' if one.requires_grad else 'frozen'}" for name, one in model.named_parameters()}
    return {
        "modules": {name or "(model)": name_of(module) for name, module in model.named_modules()},
        "parameters": parameters,
        "buffers": {name: _kind(one) for name, one in model.named_buffers()},
    }


def _optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Any]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        {
            "parameters": [names.get(id(member), "") for member in group["params"]],
            "options": {
                str(key): _plain(value)
                for key, value in group.items()
                if key not in ("params", "param_names", *_EXECUTION)
            },
        }
        for group in optimizer.param_groups
    ]  # fmt: skip
    _, *inner = wrapped(optimizer)
    return {"class": name_of(optimizer), "groups": groups} | ({"wraps": [name_of(one) for one in inner]} if inner else {})


def _scheduler(scheduler: object) -> dict[str, Any]:
    """Describe a scheduler by its class and public attributes; those that it combines are described in turn."""
    settings = {
        key: _setting(value)
        for key, value in vars(scheduler).items()
        if not key.startswith("_") and key not in ("optimizer", "last_epoch", "step", "verbose")
    }
    combined = [_scheduler(one) for one in getattr(scheduler, "_schedulers", ())]
    if combined:
        settings |= {"milestones": _plain(getattr(scheduler, "_milestones", [])), "schedulers": combined}
    return {"class": name_of(scheduler), "settings": settings}


def _average(average: nn.Module) -> dict[str, Any]:
    functions = {name: getattr(average, name, None) for name in ("avg_fn", "multi_avg_fn")}
    settings = {name: describe_function(function) for name, function in functions.items() if function is not None}
    return {"class": name_of(average), "settings": settings}


def _data(dataset: Any) -> dict[str, Any]:
    """Describe a data set by its type and length, and the shapes and types in it if they can be known without reading it."""
    items = list(dict.fromkeys(" and ".join(_kind(one, one.shape[1:]) for one in tensors) for tensors, _ in tensor_rows(dataset)))
    return {"class": name_of(dataset), "entries": len(dataset)} | ({"items": items} if items else {})


def _setting(value: Any) -> Any:
    if callable(value):
        return describe_function(value)
    return [_setting(item) for item in value] if isinstance(value, list | tuple) else _plain(value)


def _plain(value: Any) -> Any:
    """Return a setting as a plain JSON value: in words if it is no number, text or list of these."""
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


def _unwrap(function: object) -> object:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__func__", function)


def _held(function: object) -> Iterator[object]:
    """Yield what a function was built with: arguments of partials, and variables of enclosing functions."""
    while isinstance(function, partial):
        yield from (*function.args, *function.keywords.values())
        function = function.func
    function = getattr(function, "__func__", function)
    if isinstance(function, FunctionType):
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not assigned yet
                continue


def _inner(function: object) -> list[object]:
    """Return the functions that a function was built with."""
    own = _unwrap(function)
    return [one for one in _held(function) if isinstance(one, FunctionType | partial) and one is not own]


def _numbers(function: object) -> Iterator[float]:
    yield from (value for value in _held(function) if isinstance(value, bool | int | float))


def _is_library(name: str) -> bool:
    return name.partition(".")[0] in ("torch", "privet")


def _digest(code: CodeType) -> str:
    """Return a digest of compiled code that does not depend on its file and line."""
    return hashlib.sha256(_canonical(code).encode()).hexdigest()[:12]


def _canonical(constant: object) -> str:
    """Return a text for a constant of compiled code that is the same in every process."""
    if isinstance(constant, CodeType):
        return f"code({constant.co_code.hex()}, {constant.co_names}, {_canonical(constant.co_consts)})"
    if isinstance(constant, tuple):
        return f"({', '.join(map(_canonical, constant))})"
    if isinstance(constant, frozenset):  # its order changes from process to process
        return f"{{{', '.join(sorted(map(_canonical, constant)))}}}"
    return repr(constant)
