"""Refusal of user code that torch would run on the physical batch; its examples are computed by the loop instead.

vmap hides the other examples from a model and a loss, but not from code that torch calls below vmap: a batching rule that a user
wrote for an autograd function, and hooks on saved tensors, such as a compression that divides by the largest number.
"""

from __future__ import annotations

__all__ = ["forbid_user_code_on_physical_batch"]

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from privet._utils.torch_state import is_harmless
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.core.wrapping import Place, wrap_for_good

# One entry for each pass that runs now, in any thread: autograd may run a backward pass in threads of its own.
_running: list[None] = []


@contextlib.contextmanager
def forbid_user_code_on_physical_batch() -> Iterator[None]:
    """Return a context in which user code to which torch would pass physical tensors raises an `UntraceableError` instead.

    Batching rules that torch generates see one example; hooks of torch's own, such as those of checkpoints, are allowed.
    """
    wrap_for_good(*_WATCHED)
    _running.append(None)
    try:
        _refuse_user_hooks(*torch._C._autograd._top_saved_tensors_default_hooks(False) or ())
        yield
    finally:
        _running.pop()


def _watch(plain: Callable[..., Any], refuse: Callable[..., None]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if _running:
            refuse(*args)
        return plain(*args, **options)

    return call


def _is_of_torch(code: Any) -> bool:
    return str(getattr(code, "__module__", "")).startswith(("torch.", "privet."))


def _refuse_own_rules(function: Any, *args: Any) -> None:
    if not function.generate_vmap_rule and not _is_of_torch(function):
        raise UntraceableError("an autograd function has a batching rule of its own")


def _refuse_user_hooks(*hooks: Any) -> None:
    if not all(map(_is_of_torch, hooks)):
        raise UntraceableError("hooks on tensors saved for the backward pass would see all examples")


def _refuse_user_modes(mode: Any) -> None:
    if not is_harmless(mode):
        raise UntraceableError("the model or loss enters a mode, which would see all examples")


# Functions of torch, and the check of their arguments.
_REFUSALS: tuple[tuple[Any, str, Callable[..., None]], ...] = (
    (torch.autograd.function, "custom_function_call", _refuse_own_rules),
    (torch._C._autograd, "_push_saved_tensors_default_hooks", _refuse_user_hooks),
    (TorchDispatchMode, "__enter__", _refuse_user_modes),
)
_WATCHED: list[Place] = [(owner, name, functools.partial(_watch, refuse=refuse)) for owner, name, refuse in _REFUSALS]
