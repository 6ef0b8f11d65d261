"""Whether a model and a loss are made of Privet's and torch's own classes and functions only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_own_code(model: nn.Module, loss_fn: Callable[..., Any]) -> bool:
    """Return whether no code of a user runs in a model and its loss; a network with hooks, or of another library, is a user's."""
    for module in model.modules():
        changed = "forward" in vars(module) or any(getattr(module, name) for name in _HOOKS)
        if changed or _package(type(module)) not in ("privet", "torch"):
            return False
    return _is_own(loss_fn)


def _is_own(code: Any) -> bool:
    """Return whether a function, or an object that is called, is Privet's, and so is all code that it holds."""
    if isinstance(code, partial):
        return all(map(_is_own, (code.func, *filter(callable, (*code.args, *code.keywords.values())))))
    if isinstance(code, MethodType):
        return _is_own(code.__self__)
    cells = [cell.cell_contents for cell in code.__closure__ or ()] if isinstance(code, FunctionType) else []
    held = [each for each in (*cells, *getattr(code, "__dict__", {}).values()) if callable(each)]
    return _package(code if isinstance(code, FunctionType | type) else type(code)) == "privet" and all(map(_is_own, held))


def _package(named: Any) -> str:
    return str(named.__module__).partition(".")[0]
