"""Between one example and the physical batch: `torch.func.vmap` knows which dimension holds the examples, so no size has to tell.

Inside of vmap a tensor looks like that of one example. Here its physical tensor, of all B examples, is handed to a function that
runs below vmap, as ordinary eager PyTorch with ordinary autograd, and what it returns is one example's again.

Axes of physical tensors: B examples first, then the dimensions that one example sees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from privet.errors import PrivetError

_functorch: Any = torch._C._functorch


class NestedTransformError(PrivetError):
    """A parameter is used inside of a `torch.func` transformation that the model makes itself."""


def is_batched(x: object) -> bool:
    """Return whether this is a tensor of one example inside of vmap, with others beside it out of sight."""
    return isinstance(x, Tensor) and _functorch.is_batchedtensor(x)


def check_not_nested(token: Tensor) -> None:
    """Refuse to follow parameters inside of a transformation that the model makes within the pass.

    Raises:
        NestedTransformError: the token's vmap is not the innermost transformation.
    """
    if _functorch.maybe_get_level(token) != _functorch.maybe_current_level():
        raise NestedTransformError("a parameter is used inside of another transformation")


class Public(torch.autograd.Function):
    """The documented way down: an autograd function whose batching rule is the function that is to be called."""

    @staticmethod
    def forward(call: Any, token: Tensor, *tensors: Tensor) -> Any:
        """Never runs: the token is always batched."""
        raise NestedTransformError("this runs outside of the vmap of its pass")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: autograd runs below."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], call: Any, token: Tensor, *tensors: Tensor) -> Any:
        """Call the function with the physical tensors."""
        if in_dims[1] is None or is_batched(token):
            raise NestedTransformError("a function with a rule of its own runs inside of another transformation")
        physical = [x if d is None else x.movedim(d, 0) for x, d in zip(tensors, in_dims[2:], strict=True)]
        found = call(*physical)
        return found, tuple(0 for _ in found) if isinstance(found, tuple) else 0


def by_public_interface(token: Tensor, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Do what `on_physical_batch` does by documented means: about 200 µs a call."""
    return Public.apply(call, token, *tensors)  # type: ignore[no-untyped-call]


def by_internals(token: Tensor, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Do what `on_physical_batch` does by taking vmap's wrappers off and putting them on: about 5 µs a call."""
    level = _functorch.maybe_get_level(token)
    if level != _functorch.maybe_current_level():
        raise NestedTransformError("a function with a rule of its own runs inside of another transformation")
    physical = [_unwrapped(x) if _functorch.is_batchedtensor(x) else x for x in tensors]
    saved = _functorch.pop_dynamic_layer_stack()
    try:
        found = call(*physical)
    finally:
        _functorch.push_dynamic_layer_stack(saved)
    if isinstance(found, tuple):
        return tuple(_functorch._add_batch_dim(x, 0, level) for x in found)
    return _functorch._add_batch_dim(found, 0, level)


def _unwrapped(x: Tensor) -> Tensor:
    dimension = _functorch.maybe_get_bdim(x)
    physical: Tensor = _functorch.get_unwrapped(x)
    return physical.movedim(dimension, 0) if dimension else physical


def vectorise_by_public_interface(
    call: Callable[..., Tensor], token: Tensor, leaves: Sequence[Any], own: Sequence[bool]
) -> Tensor:
    """Do what `vectorise` does by documented means: about 60 µs more a call."""
    found: Tensor = torch.func.vmap(call, in_dims=(0, *(0 if mine else None for mine in own)), randomness="different")(
        token, *leaves
    )
    return found


def vectorise_by_internals(call: Callable[..., Tensor], token: Tensor, leaves: Sequence[Any], own: Sequence[bool]) -> Tensor:
    """Do what `vectorise` does with the calls that `torch.func.vmap` makes itself."""
    _prepare_vmap()
    level = _functorch._vmap_increment_nesting(len(token), "different")
    try:
        inside = [_functorch._add_batch_dim(x, 0, level) if mine else x for x, mine in zip(leaves, own, strict=True)]
        found = call(_functorch._add_batch_dim(token, 0, level), *inside)
        return _functorch._remove_batch_dim(found, level, len(token), 0)  # type: ignore[no-any-return]
    finally:
        _functorch._vmap_decrement_nesting()


@functools.cache
def _prepare_vmap() -> None:
    """Let torch load what it loads in the first vmap of a process."""
    torch.func.vmap(torch.sin)(torch.zeros(1))


_INTERNALS = (
    "maybe_get_level", "maybe_current_level", "maybe_get_bdim", "get_unwrapped", "_add_batch_dim", "_remove_batch_dim",
    "pop_dynamic_layer_stack", "push_dynamic_layer_stack", "_vmap_increment_nesting", "_vmap_decrement_nesting",
)  # fmt: skip
_dispatch, _vectorise = (
    (by_internals, vectorise_by_internals)
    if all(hasattr(_functorch, name) for name in _INTERNALS)
    else (by_public_interface, vectorise_by_public_interface)
)


def vectorise(call: Callable[..., Tensor], token: Tensor, leaves: Sequence[Any], own: Sequence[bool]) -> Tensor:
    """Call a function once inside of vmap; return what it returns for every example, (B, …).

    Args:
        call: (token, *leaves) of one example → a tensor.
        token: (B,).
        leaves: tensors (B, …) where they are `own`, and whatever else all examples share.
        own: which leaves belong to examples.
    """
    return _vectorise(call, token, leaves, own)


def on_physical_batch(token: Tensor, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Call a function with the physical tensors behind some tensors of one example.

    Args:
        token: any tensor that was batched by the vmap of this pass: it proves whose dimension is taken off.
        call: (*physical tensors) → tensor or tuple of tensors, examples first; tensors that are not batched stay as they are.
        tensors: inside of vmap.

    Returns:
        What the function returned, as one example sees it.

    Raises:
        NestedTransformError: another transformation is in force, whose dimension would be taken for the examples.
    """
    return _dispatch(token, call, tensors)
