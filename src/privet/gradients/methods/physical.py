"""Refusal of user code that torch would run on the physical batch; its examples are computed by the loop instead.

vmap hides the other examples from a model and a loss, but not from code that torch calls below vmap: modes, hooks on saved
tensors, batching rules. In the loop, the same code sees one example.
"""

from __future__ import annotations

__all__ = ["forbid_user_code_on_physical_batch"]

import contextlib
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._functorch.eager_transforms
import torch.utils.checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

from privet._utils.torch_state import is_harmless, read_modes
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.core.wrapping import Place, wrap_for_good

_TRUSTED = ("torch.", "privet.")
_WITH_HOOKS = (torch.utils.checkpoint, torch.autograd.graph)


# One entry for each pass that runs now, in any thread: autograd may run a backward pass in threads of its own.
_running: list[None] = []


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
    wrap_for_good(*_WATCHED)
    _running.append(None)
    try:
        yield
    finally:
        _running.pop()


def _watch(plain: Callable[..., Any], refuse: Callable[..., None]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if _running:
            refuse(*args)
        return plain(*args, **options)

    return call


def _refuse_modes() -> None:
    """Refuse modes, and hooks on saved tensors, that are active around the pass."""
    for mode in itertools.chain(*read_modes()):
        if not is_harmless(mode):
            raise UntraceableError("a mode is active that would see all examples")
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore: None)(False)
    if top is not None and not all(map(_is_hook_of_torch, top)):
        raise UntraceableError("user-defined hooks on saved tensors are active")


def _refuse_profilers(*_: Any) -> None:
    raise UntraceableError("the model or loss starts a profiler, which would see all examples")


def _is_trusted(code: Any) -> bool:
    """Return whether a class or a function is defined by torch or by this package.

    Tracing is not trusted: the graph that it returns holds physical tensors.
    """
    module = str(getattr(code, "__module__", ""))
    return module.startswith(_TRUSTED) and not module.startswith("torch.fx.")


def _is_hook_of_torch(hook: Any) -> bool:
    """Return whether a function is from where torch has the hooks of checkpoints and of `save_on_cpu`.

    Others of torch's compute with the tensors that they are given, and objects of its classes call hooks of the user's.
    """
    if type(hook) is not types.FunctionType:
        return False
    # By which torch keeps hooks of its own from being compiled.
    if hook.__globals__ is getattr(sys.modules.get("torch._dynamo.eval_frame"), "__dict__", None):
        inner = [cell.cell_contents for cell in hook.__closure__ or () if type(cell.cell_contents) is types.FunctionType]
        return bool(inner) and all(map(_is_hook_of_torch, inner))
    return any(hook.__globals__ is vars(each) for each in _WITH_HOOKS)


def _refuse_unwrapping(*_: Any) -> None:
    raise UntraceableError("the model or loss asks for the tensor of all examples")


def _refuse_own_rules(function: Any, *args: Any) -> None:
    if not function.generate_vmap_rule and not _is_trusted(function):
        raise UntraceableError("an autograd function has a batching rule of its own")


def _refuse_user_hooks(pack: Any, unpack: Any) -> None:
    if not (_is_hook_of_torch(pack) and _is_hook_of_torch(unpack)):
        raise UntraceableError("the model or loss hooks into tensors saved for the backward pass")


def _refuse_user_modes(mode: Any) -> None:
    if not is_harmless(mode):
        raise UntraceableError("the model or loss enters a mode, which would see all examples")


# Functions of torch, and the check of their arguments.
_REFUSALS: tuple[tuple[Any, str, Callable[..., None]], ...] = (
    (torch.autograd.function, "custom_function_call", _refuse_own_rules),
    (torch._C._autograd, "_push_saved_tensors_default_hooks", _refuse_user_hooks),
    (TorchDispatchMode, "__enter__", _refuse_user_modes),
    (torch._functorch.eager_transforms, "get_unwrapped", _refuse_unwrapping),  # which `torch.func.debug_unwrap` calls
    (torch.autograd.profiler.profile, "__enter__", _refuse_profilers),
    (torch.autograd.profiler.profile, "_start_trace", _refuse_profilers),
)
_WATCHED: list[Place] = [(owner, name, functools.partial(_watch, refuse=refuse)) for owner, name, refuse in _REFUSALS]
