"""Refusal of user code that torch would run on the physical batch; its examples are computed by the loop instead.

vmap hides the other examples from a model and a loss, but not from code that torch calls below vmap: modes, hooks on saved
tensors, batching rules. In the loop, the same code sees one example.
"""

from __future__ import annotations

__all__ = ["forbid_user_code_on_physical_batch"]

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from privet.gradients.core.recorder import UntraceableError

_TRUSTED = ("torch.", "privet.")


@contextlib.contextmanager
def forbid_user_code_on_physical_batch() -> Iterator[None]:
    """Return a context that refuses user code to which torch would pass physical tensors.

    Guarantee:
        Modes and hooks on saved tensors that are active already, or are entered inside, are refused unless they are torch's
        own, and so are autograd functions with a hand-written batching rule. Batching rules that torch generates see one
        example.

    Raises:
        UntraceableError: on entry or inside, before user code receives a tensor.
    """
    _refuse_modes()
    plain = [(owner, name, getattr(owner, name), refused) for owner, name, refused in _REFUSALS if hasattr(owner, name)]
    try:
        for owner, name, original, refused in plain:
            setattr(owner, name, refused(original))
        yield
    finally:
        for owner, name, original, _ in plain:
            setattr(owner, name, original)


def _refuse_modes() -> None:
    """Refuse modes, and hooks on saved tensors, that are active around the pass."""
    for mode in (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()):
        if not _is_trusted(type(mode)):
            raise UntraceableError("a user-defined mode is active")
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore: None)(False)
    if top is not None and not all(map(_is_trusted, top)):
        raise UntraceableError("user-defined hooks on saved tensors are active")


def _is_trusted(code: Any) -> bool:
    """Return whether a class or a function is defined by torch or by this package.

    Tracing is not trusted: the graph that it returns holds physical tensors.
    """
    module = str(getattr(code, "__module__", ""))
    return module.startswith(_TRUSTED) and not module.startswith("torch.fx.")


def _refuse_own_rules(plain: Any) -> Any:
    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not function.generate_vmap_rule and not _is_trusted(function):
            raise UntraceableError("an autograd function has a batching rule of its own")
        return plain(function, *args, **kwargs)

    return call


def _refuse_user_hooks(plain: Any) -> Any:
    def push(pack: Any, unpack: Any) -> Any:
        # Hooks of checkpoints and of `save_on_cpu` are torch's own.
        if not (_is_trusted(pack) and _is_trusted(unpack)):
            raise UntraceableError("the model or loss hooks into tensors saved for the backward pass")
        return plain(pack, unpack)

    return push


def _refuse_user_modes(plain: Any) -> Any:
    def enter(mode: Any) -> Any:
        if not _is_trusted(type(mode)):
            raise UntraceableError("the model or loss enters a mode of its own")
        return plain(mode)

    return enter


_FUNCTION: Any = torch.autograd.function
_SAVED: Any = torch._C._autograd
# What is replaced, by what; names that a version of torch lacks are left out.
_REFUSALS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (_FUNCTION, "custom_function_call", _refuse_own_rules),
    (_SAVED, "_push_saved_tensors_default_hooks", _refuse_user_hooks),
    (TorchDispatchMode, "__enter__", _refuse_user_modes),
)
