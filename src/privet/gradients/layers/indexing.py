"""Functions with data-dependent Python values or shapes, on which the examples of a pass must agree.

A Python value is the same for all examples, or the pass is split into groups that agree. A boolean mask becomes the indices of
its True entries, whose number is the same for all examples of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privet.gradients.core.batching import is_batched
from privet.gradients.core.consensus import agree
from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder

_TO_PYTHON = ("item", "__bool__", "__int__", "__float__", "__complex__", "__index__", "tolist", "is_nonzero")
_VALUES = [getattr(Tensor, name) for name in _TO_PYTHON]


def _value_rule(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(recorder: Recorder, *arguments: Any, **options: Any) -> Any:
        agreed = [agree(recorder.token, x) if is_batched(x) else x for x in arguments]
        return function(*agreed, **{k: agree(recorder.token, x) if is_batched(x) else x for k, x in options.items()})

    return rule


def _memory_rule(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(recorder: Recorder, input: Tensor, *arguments: Any, **options: Any) -> Any:
        """Return a copy of the memory, whose values must be the same for all examples; an array of it is read-only."""
        found = function(agree(recorder.token, input).clone(), *arguments, **options)
        if isinstance(found, np.ndarray):
            found.flags.writeable = False  # torch's own array would write to the tensor of each example
        return found

    return rule


for _function in (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__):
    register_handler(_function, always=True, direct=True)(_memory_rule(_function))
for _function in (*_VALUES, torch.is_nonzero):
    register_handler(_function, always=True, direct=True)(_value_rule(_function))


@register_handler(Tensor.__contains__, always=True, direct=True)
def contains(recorder: Recorder, input: Tensor, element: Any) -> bool:
    """Return whether `element in input`, which must be the same for all examples, whatever else the tensors hold."""
    if not isinstance(element, Tensor | bool | int | float | complex):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return _agree_on_truth(recorder, torch.eq(input, element).any())


@register_handler(torch.equal, Tensor.equal, always=True, direct=True)
def equal(recorder: Recorder, input: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal, which must be the same for all examples."""
    return input.shape == other.shape and _agree_on_truth(recorder, (input == other).all())


@register_handler(torch.allclose, Tensor.allclose, always=True, direct=True)
def allclose(
    recorder: Recorder, input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Return whether two tensors are close, which must be the same for all examples."""
    return _agree_on_truth(recorder, torch.isclose(input, other, rtol, atol, equal_nan).all())


def _truth_rule(reduce: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def rule(_recorder: Recorder, input: Tensor) -> Tensor | None:
        """Reduce an example's own entries, as torch's batching rule reduces those of all; None for what torch refuses."""
        return reduce(input) if input.dtype == torch.bool else None

    return rule


# Distributions validate their parameters with these.
for _name, _reduce in (("_is_all_true", torch.all), ("_is_any_true", torch.any)):
    _operator = getattr(torch.ops.aten, _name)
    _spellings = (getattr(torch, _name), getattr(Tensor, _name), _operator, _operator.default)
    register_handler(*_spellings, always=True, direct=True)(_truth_rule(_reduce))


def _agree_on_truth(recorder: Recorder, truth: Tensor) -> bool:
    return bool(agree(recorder.token, truth))


def nonzero_indices(recorder: Recorder, mask: Tensor) -> Tensor:
    """Return the indices of each example's non-zero entries, (K, dimensions), where all examples share K."""
    number = int(agree(recorder.token, (mask != 0).sum()))

    def below(physical: Tensor) -> Tensor:
        found = physical.nonzero()[:, 1:]
        return found.reshape(len(physical), number, physical.dim() - 1)

    found: Tensor = recorder.run_on_physical_batch(below, mask)
    return found


@register_handler(Tensor.nonzero, torch.nonzero, Tensor.argwhere, torch.argwhere, always=True, direct=True)
def nonzero(recorder: Recorder, input: Tensor, *, as_tuple: bool = False, **_: Any) -> Any:
    """Return the indices of the non-zero entries."""
    return _coordinates(recorder, input) if as_tuple else nonzero_indices(recorder, input)


@register_handler(torch.where, always=True, direct=True)
def where(recorder: Recorder, condition: Tensor, *others: Any, **options: Any) -> Any:
    """Return the indices of the true entries; None for the form with values to select from."""
    if others or options or not is_batched(condition):
        return None
    return _coordinates(recorder, condition)


def _coordinates(recorder: Recorder, mask: Tensor) -> tuple[Tensor, ...]:
    return tuple(nonzero_indices(recorder, mask if mask.dim() else mask[None]).unbind(1))


def resolve_index(recorder: Recorder, index: Any) -> Any:
    """Return an index with per-example masks replaced by indices, and slice bounds by numbers; None if it has neither.

    A mask without dimensions adds one, of size one or zero, and has no index: all examples share it.
    """
    parts = index if isinstance(index, tuple) else tuple(index) if isinstance(index, list) and _holds_tensors(index) else (index,)
    if not any(_is_mask(part) or _is_bounded(part) for part in parts):
        return None
    found: list[Any] = []
    for part in parts:
        if _is_mask(part) and part.dim() == 0:
            found.append(agree(recorder.token, part))
        elif _is_mask(part):
            found += nonzero_indices(recorder, part).unbind(1)
        elif _is_bounded(part):
            found.append(slice(*(_to_int(recorder, bound) for bound in (part.start, part.stop, part.step))))
        else:
            found.append(part)
    return tuple(found)


def _is_bounded(part: object) -> bool:
    return isinstance(part, slice) and any(map(is_batched, (part.start, part.stop, part.step)))


def _to_int(recorder: Recorder, bound: Any) -> Any:
    return int(agree(recorder.token, bound)) if is_batched(bound) else bound


def _holds_tensors(index: list[Any]) -> bool:
    return any(isinstance(part, Tensor | slice) or part is None for part in index)


def _is_mask(part: object) -> bool:
    return isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) and is_batched(part)


# Functions whose second argument is an index.
INDEXED = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put, Tensor.index_put_, torch.index_put}


@register_handler(Tensor.masked_select, torch.masked_select, always=True, direct=True)
def masked_select(recorder: Recorder, input: Tensor, mask: Tensor, **_: Any) -> Tensor | None:
    """Return the entries at which a mask is true."""
    if not is_batched(mask):
        return None
    shape = torch.broadcast_shapes(input.shape, mask.shape, (1,))
    return input.expand(shape)[_coordinates(recorder, mask.expand(shape))]
