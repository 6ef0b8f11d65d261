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
from privet.gradients.layers.random import Draw
from privet.gradients.methods.calls import GuardedCalls
from privet.gradients.methods.ghost import Program
from privet.gradients.probe.joint import clone_batch

_NAMED = 3  # most names in a message
_PLAIN = (bool, int, float, str)
_SIZED = (list, dict, set, deque)


def warn_of_restored(program: Program, examples: Examples) -> None:
    """Warn of buffers and attributes of modules that the model or the loss changes, which have no effect in training.

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


@hold_signals()
def find_restored(program: Program, examples: Examples) -> list[str]:
    """Return what changes when the model and the loss run on an example: names of buffers, and of attributes that hold no tensor.

    Empty if they fail. Left out is what Privet itself changes between steps: the vectors of spectral norm.
    """
    seed_generators(0)
    calls = GuardedCalls(program.guard, Draw(Draws(1, lambda: 0), None))
    try:
        with torch.enable_grad(), force_eager(), program.guard.isolate(held=examples.shared):
            before = _read_state(program.model)
            with calls:
                program.loss_fn(program.model, clone_batch(examples.get(0)))
            after = _read_state(program.model)
    except Exception:  # of whatever else is wrong, the check says more
        return []
    return [name for name, value in before.items() if after.get(name, value) != value]


@dataclass(frozen=True, eq=False)
class _Buffer:
    """A buffer and how often it was written to; it is held, so that no other has its identity meanwhile."""

    tensor: Tensor
    version: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Buffer) and other.tensor is self.tensor and other.version == self.version


def _read_state(model: nn.Module) -> dict[str, Any]:
    """Return what differs, by name, after a buffer, a number or the size of a container was changed."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in module._buffers.items():
            if isinstance(value, Tensor) and not _is_advanced_between_steps(path, module, name):
                found[f"buffer {prefix + name!r}"] = _Buffer(value, value._version)
        for name, value in vars(module).items():
            if isinstance(value, _PLAIN):
                found[f"attribute {prefix + name!r}"] = value
            elif isinstance(value, _SIZED) and name not in _OF_MODULES:
                found[f"attribute {prefix + name!r}"] = len(value)
    return found


_OF_MODULES = frozenset(vars(nn.Module()))


def _is_advanced_between_steps(path: str, module: nn.Module, name: str) -> bool:
    hooks: list[Any] = [each for each in module._forward_pre_hooks.values() if type(each).__name__ == "SpectralNorm"]
    return "parametrizations" in path.split(".") or any(name.startswith(f"{each.name}_") for each in hooks)
