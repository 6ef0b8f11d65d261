"""User code that torch would run on the physical batch, where all examples are: refused, so that its examples go one by one.

vmap hides the other examples from a model and a loss, not from what torch calls below it: modes, hooks on saved tensors, batching
rules. In the loop the same code sees one example.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from privet.gradients.core.recorder import UntraceableError

_TRUSTED = ("torch.", "privet.")


@contextlib.contextmanager
def no_user_code_on_the_physical_batch() -> Iterator[None]:
    """Refuse, inside, whatever of a user's torch would hand physical tensors to.

    Guarantee:
        Modes and hooks on saved tensors that are in force already, or are entered inside, are refused unless they are torch's
        own, and so are autograd functions that bring a batching rule; what torch generates from a function itself sees one
        example.

    Raises:
        UntraceableError: at once or inside, before user code is handed anything.
    """
    _refuse_modes()
    function: Any = torch.autograd.function
    saved: Any = torch._C._autograd
    with (
        _replaced(function, "custom_function_call", _without_own_rules),
        _replaced(saved, "_push_saved_tensors_default_hooks", _without_hooks_of_users),
        _replaced(TorchDispatchMode, "__enter__", _without_modes_of_users),
    ):
        yield


def _refuse_modes() -> None:
    """Refuse modes, and hooks on saved tensors, that are in force around the pass."""
    for mode in (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()):
        if not _is_trusted(type(mode)):
            raise UntraceableError("a mode of the user's is in force")
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore: None)(False)
    if top is not None and not all(map(_is_trusted, top)):
        raise UntraceableError("hooks of the user's on saved tensors are in force")


def _is_trusted(code: Any) -> bool:
    """Return whether a class or a function is torch's or ours."""
    return str(getattr(code, "__module__", "")).startswith(_TRUSTED)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, replacement: Callable[[Any], Any]) -> Iterator[None]:
    """Put in the place of an attribute what is made of it; nothing where this version of torch has none."""
    plain = getattr(owner, name, None)
    if plain is None:
        yield
        return
    setattr(owner, name, replacement(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)


def _without_own_rules(plain: Any) -> Any:
    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not function.generate_vmap_rule and not _is_trusted(function):
            raise UntraceableError("an autograd function has a batching rule of its own")
        return plain(function, *args, **kwargs)

    return call


def _without_hooks_of_users(plain: Any) -> Any:
    def push(pack: Any, unpack: Any) -> Any:
        # Those of checkpoints and of `save_on_cpu` are torch's.
        if not (_is_trusted(pack) and _is_trusted(unpack)):
            raise UntraceableError("the model or loss hooks into what is saved for the backward pass")
        return plain(pack, unpack)

    return push


def _without_modes_of_users(plain: Any) -> Any:
    def enter(mode: Any) -> Any:
        if not _is_trusted(type(mode)):
            raise UntraceableError("the model or loss enters a mode of its own")
        return plain(mode)

    return enter


__all__ = ["no_user_code_on_the_physical_batch"]
