"""A warning of the state that a model changes while it runs, because every pass restores it."""

from __future__ import annotations

__all__ = ["find_restored", "warn_of_restored"]

import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.randomness import seed_generators
from privet.errors import PrivetWarning
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import force_eager
from privet.gradients.core.private import hold_signals
from privet.gradients.core.randomness import Draws
from privet.gradients.core.state.reachable import find_functions, unwrap_all
from privet.gradients.core.state.user_code import find_user_classes, is_user_function
from privet.gradients.layers.random import Draw
from privet.gradients.methods.calls import GuardedCalls
from privet.gradients.methods.ghost import Program
from privet.gradients.probe.joint import clone_batch

_NAMED = 3  # most names in a message
_PLAIN = (bool, int, float, str)
_SIZED = (list, dict, set, deque)


def warn_of_restored(program: Program, examples: Examples) -> None:
    """Warn of what the model or the loss changes in modules and in names of functions, which has no effect in training.

    Args:
        program: model and loss.
        examples: public or made up; the first is run.
    """
    names = find_restored(program, examples)
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        warnings.warn(
            f"the model changes its own state while it runs ({', '.join(names[:_NAMED])}{more}), and Privet restores the state "
            "after every pass, because it would hold private data without noise: in training it keeps the value that it has "
            "now. Change it between steps, from public values, or freeze it",
            PrivetWarning, stacklevel=2,
        )  # fmt: skip


def find_restored(program: Program, examples: Examples) -> list[str]:
    """Return what changes when the model and the loss run on an example: names of buffers, of attributes, and of functions.

    Empty if they fail. Left out is what Privet itself changes between steps, the vectors of spectral norm, and a tensor that is
    computed anew but is the same for two examples, such as a mask that is kept.
    """
    try:
        runs = [_run(program, examples, position) for position in range(min(2, examples.count))]
    except Exception:  # of whatever else is wrong, the check says more
        return []
    before, after = runs[0]
    # Of numbers that are not equal to themselves, the object is the same.
    names = [name for name, value in before.items() if (now := after.get(name, value)) is not value and now != value]
    last = runs[-1][1]
    kept = [name for name, value in after.items() if isinstance(value, _Kept) and value != last.get(name)]
    return [*names, *(name for name in kept if name not in names)]


@hold_signals()
def _run(program: Program, examples: Examples, position: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state before and after one example."""
    seed_generators(0)
    calls = GuardedCalls(program.guard, Draw(Draws(1, lambda: 0), None))
    with torch.enable_grad(), force_eager(), program.guard.isolate(held=examples.shared):
        before = _read_state(program)
        with calls:
            program.loss_fn(program.model, clone_batch(examples.get(position)))
        return before, _read_state(program)


@dataclass(frozen=True, eq=False)
class _Written:
    """A tensor and how often it was written to; it is held, so that no other has its identity meanwhile."""

    tensor: Tensor
    version: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Written) and other.tensor is self.tensor and other.version == self.version


@dataclass(frozen=True, eq=False)
class _Kept:
    """The numbers of a tensor that an attribute holds."""

    numbers: Tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Kept) or other.numbers.dtype != self.numbers.dtype:
            return False
        return torch.equal(other.numbers, self.numbers)


def _read_state(program: Program) -> dict[str, Any]:
    """Return what differs, by name, after a buffer, a number, a tensor or the size of a container was changed."""
    found: dict[str, Any] = {}
    functions = [*unwrap_all(program.loss_fn)]
    for path, module in program.model.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in module._buffers.items():
            if isinstance(value, Tensor) and not _is_advanced_between_steps(path, module, name):
                found[f"buffer {prefix + name!r}"] = _Written(value, value._version)
        for name, value in vars(module).items():
            if _is_advanced_between_steps(path, module, name):
                continue
            if isinstance(value, Tensor):
                found[f"attribute {prefix + name!r}"] = _Kept(value.detach().clone())
            elif name not in _OF_MODULES or name == "training":
                found |= _read(f"attribute {prefix + name!r}", value)
                functions.append(value)
        functions += [each for kind in find_user_classes(type(module)) for each in vars(kind).values()]
    for function, bindings in find_functions(*functions).items():
        for name, value, _ in bindings if is_user_function(function) else ():
            found |= _read(f"name {name!r} of {function.__qualname__}", value)
    return found


def _read(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, _PLAIN):
        return {name: value}
    if isinstance(value, Tensor):
        return {name: _Written(value, value._version)}
    return {name: len(value)} if isinstance(value, _SIZED) else {}


_OF_MODULES = frozenset(vars(nn.Module()))


def _is_advanced_between_steps(path: str, module: nn.Module, name: str) -> bool:
    hooks: list[Any] = [each for each in module._forward_pre_hooks.values() if type(each).__name__ == "SpectralNorm"]
    return "parametrizations" in path.split(".") or any(name.startswith(each.name) for each in hooks)
