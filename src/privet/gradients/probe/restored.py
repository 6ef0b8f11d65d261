"""A warning of the state that a model changes while it runs, because every pass restores it."""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.randomness import seed_generators
from privet.errors import PrivetWarning
from privet.gradients.core.examples import Examples
from privet.gradients.core.patches import force_eager
from privet.gradients.core.randomness import Draw, Draws
from privet.gradients.methods.calls import GuardedCalls
from privet.gradients.methods.ghost import Program
from privet.gradients.probe.joint import clone_batch

_NAMED = 3  # most names in a message
_NUMBERS = (bool, int, float, str)
_SIZED = (list, dict, set, deque)


def warn_of_restored(program: Program, examples: Examples) -> None:
    """Warn of what the model or the loss changes in modules and in names of functions, which has no effect in training."""
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
    """Return what changes when the program runs on an example: names of buffers, attributes and functions; none if it fails.

    Left out is what Privet changes between steps (spectral norm), and a tensor made anew that is the same for two examples.
    """
    try:
        runs = [_run(program, examples, position) for position in range(min(2, examples.count))]
    except Exception:  # of whatever else is wrong, the check says more
        return []
    (before, after), last = runs[0], runs[-1][1]
    changed = [name for name, value in before.items() if name in after and not _is_same(value, after[name])]
    new = [name for name, value in after.items() if name not in before and isinstance(value, Tensor)]
    carried = [name for name in new if name not in last or not _is_same(after[name], last[name])]
    return [*changed, *carried]


def _run(program: Program, examples: Examples, position: int) -> tuple[dict[str, Any], dict[str, Any]]:
    seed_generators(0)
    calls = GuardedCalls(program.guard, Draw(Draws(1, lambda: 0), None))
    with torch.enable_grad(), force_eager(), program.guard.isolate(held=examples.shared):
        before = dict(_read_state(program))
        with calls:
            program.loss_fn(program.model, clone_batch(examples.get(position)))
        return before, dict(_read_state(program))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one is other or bool(one == other)


def _read_state(program: Program) -> Iterator[tuple[str, Any]]:
    functions: list[Any] = [program.loss_fn]
    for path, module in program.model.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in [*module._buffers.items(), *vars(module).items()]:
            if not _is_advanced_between_steps(path, module, name) and (name not in _OF_MODULES or name == "training"):
                kind = "buffer" if name in module._buffers else "attribute"
                yield from _read(f"{kind} {prefix + name!r}", value)
                functions.append(value)
        if not type(module).__module__.startswith("torch."):
            functions += vars(type(module)).values()
    for function in filter(inspect.isfunction, functions):
        used = inspect.getclosurevars(function)
        for name, value in [*used.nonlocals.items(), *used.globals.items()]:
            yield from _read(f"name {name!r} of {function.__qualname__}", value)


def _read(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Tensor):
        # Of an attribute the numbers: a mask that is made anew for each example may be the same.
        yield name, value.detach().clone() if name.startswith("attribute") else (id(value), value._version)
    elif isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _read(f"{name}[{place}]", each)
    elif isinstance(value, _NUMBERS + _SIZED):
        yield name, len(value) if isinstance(value, _SIZED) else value


_OF_MODULES = frozenset(vars(nn.Module()))


def _is_advanced_between_steps(path: str, module: nn.Module, name: str) -> bool:
    hooks: list[Any] = [each for each in module._forward_pre_hooks.values() if type(each).__name__ == "SpectralNorm"]
    return "parametrizations" in path.split(".") or any(name.startswith(each.name) for each in hooks)
