"""Conversion between the view of one example inside `torch.func.vmap` and the physical batch of all B examples.

Inside vmap a tensor has the shape of one example. The functions here pass the physical tensor, of all B examples, to a function
that runs below vmap as ordinary eager PyTorch with autograd, and wrap its result for vmap again. The example dimension is the
one that vmap tracks; it is never inferred from sizes.

Axes of physical tensors: B examples first, then the dimensions that one example sees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from privet.errors import PrivetError

_functorch: Any = torch._C._functorch


batch_dimension: Callable[[Tensor], int] = _functorch.maybe_get_bdim  # of all examples, in the tensor behind one of vmap's


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
    """Refuse to follow parameters inside a transformation that the model applies during the pass."""
    if _functorch.maybe_get_level(token) != _functorch.maybe_current_level():
        raise NestedTransformError(
            "a parameter is used inside a torch.func transformation of the program's own, whose dimension could be taken for the "
            "examples; call the layer on the whole tensor (torch.vmap over rows of one example each is followed)"
        )


def run_on_physical_batch(token: Tensor, call: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """Return call(*physical tensors) as one example sees it; the call returns a tensor or a tuple of tensors, examples first.

    Makes the calls of `torch.func.vmap` itself: about 5 µs, a fortieth of the documented way. Unbatched tensors pass unchanged.
    Args:
        token: any tensor batched by the vmap of this pass, whose dimension is removed.
    Raises:
        NestedTransformError: another transformation is active, whose dimension would be mistaken for the examples.
    """
    level = _functorch.maybe_get_level(token)
    if level != _functorch.maybe_current_level() or level < 0:
        raise NestedTransformError(
            "a function with a batching rule runs outside the vmap of its pass, or in another inside of it"
        )
    physical = list(map(_unwrap, tensors))
    saved = _functorch.pop_dynamic_layer_stack()
    try:
        result = call(*physical)
    finally:
        _functorch.push_dynamic_layer_stack(saved)
    if isinstance(result, tuple):
        return tuple(_functorch._add_batch_dim(x, 0, level) for x in result)
    return _functorch._add_batch_dim(result, 0, level)


def _unwrap(x: Tensor) -> Tensor:
    if not _functorch.is_batchedtensor(x):
        return x
    dimension = _functorch.maybe_get_bdim(x)
    physical: Tensor = _functorch.get_unwrapped(x)
    return physical.movedim(dimension, 0) if dimension else physical


def vectorise(call: Callable[..., Tensor], token: Tensor, leaves: Sequence[Any], own: Sequence[bool]) -> Tensor:
    """Return call(token, *leaves) of each example, (B, …); leaves are (B, …) where `own` is true, and shared elsewhere."""
    _prepare_vmap()
    # Rules draw random numbers below vmap. Anything else would draw those of all examples from one stream.
    level = _functorch._vmap_increment_nesting(len(token), "error")
    _functorch._set_vmap_fallback_warning_enabled(False)  # torch asks users to report operators that run once per example
    try:
        inside = [_functorch._add_batch_dim(x, 0, level) if mine else x for x, mine in zip(leaves, own, strict=True)]
        result = call(_functorch._add_batch_dim(token, 0, level), *inside)
        return _functorch._remove_batch_dim(result, level, len(token), 0)  # type: ignore[no-any-return]
    finally:
        _functorch._set_vmap_fallback_warning_enabled(True)
        _functorch._vmap_decrement_nesting()


@functools.cache
def _prepare_vmap() -> None:
    torch.func.vmap(torch.sin)(torch.zeros(1, device="cpu"))
