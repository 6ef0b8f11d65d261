"""Conversion between the view of one example inside `torch.func.vmap` and the physical batch of all B examples.

Inside vmap a tensor has the shape of one example. The functions here pass the physical tensor, of all B examples, to a function
that runs below vmap as ordinary eager PyTorch with autograd, and wrap its result for vmap again. The example dimension is the
one that vmap tracks; it is never inferred from sizes.

Axes of physical tensors: B examples first, then the dimensions that one example sees.
"""

from __future__ import annotations

__all__ = [
    "SEQUENCES",
    "NestedTransformError",
    "PhysicalCall",
    "check_not_nested",
    "end_left_levels",
    "get_unwrapped",
    "is_batched",
    "is_leaf",
    "is_wrapped",
    "list_leaves",
    "note_pass",
    "run_by_internals",
    "run_by_public_api",
    "run_on_physical_batch",
    "vectorise",
    "vectorise_by_internals",
    "vectorise_by_public_api",
    "wait_for_other_threads",
]

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from privet.errors import PrivetError

_functorch: Any = torch._C._functorch
_thread = threading.local()
_running: dict[object, threading.Thread] = {}  # the passes of all threads


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield what lists, tuples and dictionaries hold, also those of a user's class, of whose code nothing is called."""
    for kind, read in _READERS.items():
        if isinstance(value, kind):
            for part in read(value):
                yield from list_leaves(part)
            return
    yield value


def is_leaf(x: object) -> bool:
    """Return whether an argument is no container of Python's own, or torch's: to flatten another would run code of its class."""
    return type(x) not in _READERS and not type(x).__module__.startswith("torch")


_READERS: dict[type, Callable[[Any], Iterable[Any]]] = {tuple: tuple.__iter__, list: list.__iter__, dict: dict.values}
SEQUENCES = (list, tuple)  # not `list | tuple`, which would be made anew for every argument of every call


class NestedTransformError(PrivetError):
    """A parameter is used inside a `torch.func` transformation that the model itself applies."""


def is_batched(x: object) -> bool:
    """Return whether this is a tensor batched by vmap: it looks like one example's, and holds all of them."""
    return isinstance(x, Tensor) and _functorch.is_batchedtensor(x)


def is_wrapped(x: object) -> bool:
    """Return whether this is a tensor of vmap, or of another transform of `torch.func`, which may hold a batched one."""
    return isinstance(x, Tensor) and _functorch.is_functorch_wrapped_tensor(x)


def get_unwrapped(x: Tensor) -> Tensor:
    """Return the tensor of all examples that is behind one of vmap's."""
    found: Tensor = _functorch.get_unwrapped(x)
    return found


def is_differentiable(x: Tensor) -> bool:
    """Return whether a tensor, or the physical one behind it, requires a gradient."""
    while _functorch.is_batchedtensor(x):
        x = _functorch.get_unwrapped(x)
    return x.requires_grad


def check_not_nested(token: Tensor) -> None:
    """Refuse to follow parameters inside a transformation that the model applies during the pass.

    Raises:
        NestedTransformError: the token's vmap is not the innermost transformation.
    """
    if _functorch.maybe_get_level(token) != _functorch.maybe_current_level():
        raise NestedTransformError("a parameter is used inside another torch.func transformation")


class PhysicalCall(torch.autograd.Function):
    """An autograd function whose batching rule is the function to call: the documented way to get below vmap."""

    @staticmethod
    def forward(call: Any, token: Tensor, *tensors: Tensor) -> Any:
        """Never runs: the token is always batched."""
        raise NestedTransformError("a function with a batching rule runs outside the vmap of its pass")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing: autograd runs below vmap."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], call: Any, token: Tensor, *tensors: Tensor) -> Any:
        """Call the function with the physical tensors."""
        if in_dims[1] is None or is_batched(token):
            raise NestedTransformError("a function with a batching rule runs inside another torch.func transformation")
        physical = [x if d is None else x.movedim(d, 0) for x, d in zip(tensors, in_dims[2:], strict=True)]
        result = call(*physical)
        return result, tuple(0 for _ in result) if isinstance(result, tuple) else 0


def run_by_public_api(token: Tensor, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Implement `run_on_physical_batch` with documented API: about 200 µs per call."""
    return PhysicalCall.apply(call, token, *tensors)  # type: ignore[no-untyped-call]


def run_by_internals(token: Tensor, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Implement `run_on_physical_batch` by unwrapping and rewrapping vmap's tensors: about 5 µs per call."""
    level = _functorch.maybe_get_level(token)
    if level != _functorch.maybe_current_level():
        raise NestedTransformError("a function with a batching rule runs inside another torch.func transformation")
    physical = [_unwrap(x) if _functorch.is_batchedtensor(x) else x for x in tensors]
    saved = _functorch.pop_dynamic_layer_stack()
    try:
        result = call(*physical)
    finally:
        _functorch.push_dynamic_layer_stack(saved)
    if isinstance(result, tuple):
        return tuple(_functorch._add_batch_dim(x, 0, level) for x in result)
    return _functorch._add_batch_dim(result, 0, level)


def _unwrap(x: Tensor) -> Tensor:
    dimension = _functorch.maybe_get_bdim(x)
    physical: Tensor = _functorch.get_unwrapped(x)
    return physical.movedim(dimension, 0) if dimension else physical


def vectorise_by_public_api(call: Callable[..., Tensor], token: Tensor, leaves: Sequence[Any], own: Sequence[bool]) -> Tensor:
    """Implement `vectorise` with documented API: about 60 µs more per call."""
    result: Tensor = torch.func.vmap(call, in_dims=(0, *(0 if mine else None for mine in own)), randomness="error")(
        token, *leaves
    )
    return result


def vectorise_by_internals(call: Callable[..., Tensor], token: Tensor, leaves: Sequence[Any], own: Sequence[bool]) -> Tensor:
    """Implement `vectorise` with the internal calls that `torch.func.vmap` makes."""
    _prepare_vmap()
    _list_outer_levels().append(_current_level())
    # Rules draw random numbers below vmap. Anything else would draw those of all examples from one stream.
    level = _functorch._vmap_increment_nesting(len(token), "error")
    try:
        inside = [_functorch._add_batch_dim(x, 0, level) if mine else x for x, mine in zip(leaves, own, strict=True)]
        result = call(_functorch._add_batch_dim(token, 0, level), *inside)
        return _functorch._remove_batch_dim(result, level, len(token), 0)  # type: ignore[no-any-return]
    finally:
        _functorch._vmap_decrement_nesting()
        _list_outer_levels().pop()


@contextlib.contextmanager
def note_pass() -> Iterator[None]:
    """Return a context for a pass, outside of which none of its batched tensors is left, unless user code keeps one."""
    key = object()
    _running[key] = threading.current_thread()
    try:
        yield
    finally:
        del _running[key]


def wait_for_other_threads() -> None:
    """Wait until the passes have ended that other threads are running now; those that they begin meanwhile may go on."""
    others = {key: thread for key, thread in list(_running.items()) if thread is not threading.current_thread()}
    while any(key in _running and thread.is_alive() for key, thread in others.items()):
        time.sleep(0.001)


def _list_outer_levels() -> list[int]:
    """Return the levels outside of the passes of this thread that run, or that an interrupt left without their end."""
    found: list[int] = _thread.__dict__.setdefault("outer", [])
    return found


def _current_level() -> int:
    return _functorch.maybe_current_level() or 0


def end_left_levels() -> int:
    """End the transformations that passes of this thread have left active; return how many of the caller's are.

    Call it between passes.
    """
    outer = _list_outer_levels()
    while outer and _current_level() > outer[0]:
        _functorch.pop_dynamic_layer_stack()
    outer.clear()
    return _current_level()


@functools.cache
def _prepare_vmap() -> None:
    """Trigger the lazy imports of the first vmap in a process."""
    torch.func.vmap(torch.sin)(torch.zeros(1, device="cpu"))


_INTERNALS = (
    "maybe_get_level", "maybe_current_level", "maybe_get_bdim", "get_unwrapped", "_add_batch_dim", "_remove_batch_dim",
    "pop_dynamic_layer_stack", "push_dynamic_layer_stack", "_vmap_increment_nesting", "_vmap_decrement_nesting",
)  # fmt: skip
_dispatch, _vectorise = (
    (run_by_internals, vectorise_by_internals)
    if all(hasattr(_functorch, name) for name in _INTERNALS)
    else (run_by_public_api, vectorise_by_public_api)
)


def vectorise(call: Callable[..., Tensor], token: Tensor, leaves: Sequence[Any], own: Sequence[bool]) -> Tensor:
    """Call a function once inside vmap; return its result for every example, (B, …).

    Args:
        call: (token, *leaves) of one example → a tensor.
        token: (B,).
        leaves: tensors (B, …) where `own` is true; values shared by all examples elsewhere.
        own: for each leaf, whether it has an example dimension.
    """
    return _vectorise(call, token, leaves, own)


def run_on_physical_batch(token: Tensor, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Call a function with the physical tensors behind tensors of one example.

    Args:
        token: any tensor batched by the vmap of this pass; it identifies the level whose dimension is removed.
        call: (*physical tensors) → tensor or tuple of tensors, examples first; unbatched tensors are passed unchanged.
        tensors: as seen inside vmap.

    Returns:
        The function's result, as one example sees it.

    Raises:
        NestedTransformError: another transformation is active, whose dimension would be mistaken for the examples.
    """
    return _dispatch(token, call, tensors)
