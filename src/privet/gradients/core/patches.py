"""What passes change in torch: compiled modules run eagerly, the pass recomputes checkpoints, user code below vmap is refused.

vmap hides the other examples from a model and a loss, but not from code that torch calls below vmap: a batching rule that a user
wrote for an autograd function, and hooks on saved tensors, such as a compression that divides by the largest number.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch._functorch.vmap
import torch.utils.checkpoint
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from privet.gradients.core.recorder import UntraceableError

Rerun = Callable[[Callable[[], Any]], Any]

# Passes may run in several threads, and end in any order: each has an entry in these lists while it runs.
_running: list[None] = []
_reruns: list[tuple[int, Callable[[], Rerun]]] = []  # thread, and what makes its pass's functions
_stances: list[Any] = []  # from before the pass


@functools.cache
def patch_torch() -> None:
    """Wrap the functions of torch that passes have to watch, for good: the wrappers do nothing while no pass runs."""
    for owner, name, wrap in _WATCHED:
        if (plain := getattr(owner, name, None)) is not None:  # a backward pass fails where torch has none, and the loop is used
            setattr(owner, name, wrap(plain))


def force_eager() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which compiled modules run eagerly: a compiled graph hides the functions that use parameters."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return contextlib.nullcontext()
    known = hasattr(frames, "_stance") and hasattr(frames, "DynamoStance")
    return _set_stance(frames) if known else torch.compiler.set_stance("force_eager")


@contextlib.contextmanager
def _set_stance(frames: Any) -> Iterator[None]:
    """Set the variable of `torch.compiler.set_stance`, in a fifth of its time; the last pass of all threads restores it."""
    _stances.append(frames._stance)
    frames._stance = frames.DynamoStance("force_eager")
    try:
        yield
    finally:
        before = _stances.pop()
        if not _stances:
            frames._stance = before


@contextlib.contextmanager
def forbid_user_code_on_physical_batch() -> Iterator[None]:
    """Return a context in which user code to which torch would pass physical tensors raises an `UntraceableError` instead.

    Batching rules that torch generates see one example; hooks of torch's own, such as those of checkpoints, are allowed.
    """
    patch_torch()
    _running.append(None)
    try:
        if hooks := torch._C._autograd._top_saved_tensors_default_hooks(False):
            _refuse_user_hooks(*hooks)
        yield
    finally:
        _running.pop()


@contextlib.contextmanager
def patch_recomputation(make_rerun: Callable[[], Rerun]) -> Iterator[None]:
    """Return a context that controls how checkpointed parts (`use_reentrant=False`) of a model are recomputed.

    torch calls the part's function again with its arguments, tensors of one example that are invalid outside vmap.

    Args:
        make_rerun: called when a part begins; returns (function without arguments) → its result, which recomputes it.
    """
    patch_torch()
    entry = threading.get_ident(), make_rerun
    _reruns.append(entry)
    try:
        yield
    finally:
        _reruns.remove(entry)


def _watch_parts(plain: Any) -> Any:
    @functools.wraps(plain)
    def generator(function: Any, *settings: Any, **options: Any) -> Any:
        own = threading.get_ident()  # else the last one, as autograd may run a backward pass in other threads
        makers = [make for thread, make in _reruns if thread == own] or [make for _, make in _reruns]
        if not makers:
            return plain(function, *settings, **options)
        again = makers[-1]()

        def once_more(*args: Any, **kwargs: Any) -> Any:
            return again(lambda: function(*args, **kwargs))

        return plain(once_more, *settings, **options)

    return generator


def _watch_script(plain: Any) -> Any:
    """Return the method that calls TorchScript, given up where examples share a pass: torch shows none of its calls."""

    @functools.wraps(plain)
    def call(script: Any, *args: Any, **options: Any) -> Any:
        for mode in _get_current_function_mode_stack():
            if hasattr(mode, "give_up"):
                mode.give_up("a TorchScript function is called")
        return plain(script, *args, **options)

    return call


def _refuse(check: Callable[..., None]) -> Callable[[Any], Any]:
    def wrap(plain: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if _running:
                check(*args)
            return plain(*args, **options)

        return call

    return wrap


def _is_of_torch(code: Any) -> bool:
    return str(getattr(code, "__module__", "")).startswith(("torch.", "privet."))


def _watch_functions(plain: Any) -> Any:
    """Return what calls an autograd function inside vmap: those of users as the pass does it."""

    def call(function: Any, *args: Any, **options: Any) -> Any:
        if not _running or _is_of_torch(function):
            return plain(function, *args, **options)
        for mode in reversed(_get_current_function_mode_stack()):
            if hasattr(mode, "call_function"):
                return mode.call_function(function, args)
        raise UntraceableError(f"the autograd function {function.__name__} is called where examples share a pass")

    return call


def _watch_vmap(plain: Any) -> Any:
    """Return what calls a function of one row directly, where a program maps it over rows: an example is a batch of one row."""

    def call(function: Any, in_dims: Any, out_dims: Any, randomness: str, chunk_size: Any, *args: Any, **options: Any) -> Any:
        in_pass = any(hasattr(mode, "call_function") for mode in _get_current_function_mode_stack())
        if in_pass and isinstance(out_dims, int):
            rows, dims, leaves, tree = torch._functorch.vmap._process_batched_inputs(in_dims, args, function)
            if rows == 1:
                own = [x if dim is None else x.select(dim, 0) for x, dim in zip(leaves, dims, strict=True)]
                return pytree.tree_map(lambda x: x.unsqueeze(out_dims), function(*pytree.tree_unflatten(own, tree), **options))
        return plain(function, in_dims, out_dims, randomness, chunk_size, *args, **options)

    return call


class _Later:
    """False when torch asks first, whether to bind arguments by name, and true when it asks whether vmap is supported.

    So functions in the older style, whose `forward` takes `ctx`, come to `custom_function_call`, too.
    """

    def __init__(self) -> None:
        self._asked = False

    def __bool__(self) -> bool:
        before, self._asked = self._asked, True
        return before


def _watch_style(plain: Any) -> Any:
    return lambda setup: plain(setup) or (_Later() if _running else False)


def _refuse_user_hooks(*hooks: Any) -> None:
    if not all(map(_is_of_torch, hooks)):
        raise UntraceableError("hooks on tensors saved for the backward pass would see all examples")


def _refuse_user_modes(mode: Any) -> None:
    """Refuse modes other than torch's default device: they call user code, or keep what they see."""
    if not str(type(mode).__module__).startswith(("torch.utils._device", "privet.")):
        raise UntraceableError("the model or loss enters a mode, which would see all examples")


# A module or class, the name of an attribute, and what returns the attribute's wrapper.
_WATCHED: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (torch.autograd.function, "custom_function_call", _watch_functions),
    (torch.autograd.function, "_is_setup_context_defined", _watch_style),
    (torch._C._autograd, "_push_saved_tensors_default_hooks", _refuse(_refuse_user_hooks)),
    (TorchDispatchMode, "__enter__", _refuse(_refuse_user_modes)),
    (torch.utils.checkpoint, "_checkpoint_without_reentrant_generator", _watch_parts),
    (torch._functorch.apis, "vmap_impl", _watch_vmap),
    (torch.jit.ScriptFunction, "__call__", _watch_script),
    (torch._C.ScriptMethod, "__call__", _watch_script),
)
