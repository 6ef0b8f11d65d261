"""Functions whose value or shape steers Python: what they give is agreed upon by the examples of a pass.

A Python number is the same for all, or the examples are split into groups that agree. A boolean mask becomes the indices of its
True entries, of which every example of a group has as many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from privet.gradients.core.batching import is_batched
from privet.gradients.core.consensus import agree
from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder

_TO_PYTHON = (
    "item", "__bool__", "__int__", "__float__", "__complex__", "__index__", "tolist", "is_nonzero", "numpy", "__array__",
    "__dlpack__", "__contains__",
)  # fmt: skip
_VALUES = [getattr(Tensor, name) for name in _TO_PYTHON]
_COMPARISONS = [torch.is_nonzero, torch.equal, torch.allclose, Tensor.equal, Tensor.allclose]


def _value(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(recorder: Recorder, *arguments: Any, **options: Any) -> Any:
        """Return the Python value of tensors that every example has alike."""
        assert recorder.token is not None
        agreed = [agree(recorder.token, x) if is_batched(x) else x for x in arguments]
        return function(*agreed, **{k: agree(recorder.token, x) if is_batched(x) else x for k, x in options.items()})

    return rule


for _function in (*_VALUES, *_COMPARISONS):
    register_handler(_function, always=True, direct=True)(_value(_function))


def places(recorder: Recorder, mask: Tensor) -> Tensor:
    """Return where each example's tensor is not zero, (K, dimensions), for a K that is agreed upon."""
    assert recorder.token is not None
    number = int(agree(recorder.token, (mask != 0).sum()))

    def below(physical: Tensor) -> Tensor:
        found = physical.nonzero()[:, 1:]
        return found.reshape(len(physical), number, physical.dim() - 1)

    found: Tensor = recorder.on_physical_batch(below, mask)
    return found


@register_handler(Tensor.nonzero, torch.nonzero, Tensor.argwhere, torch.argwhere, always=True, direct=True)
def nonzero(recorder: Recorder, input: Tensor, *, as_tuple: bool = False, **_: Any) -> Any:
    """Return the indices of what is not zero."""
    found = places(recorder, input)
    return tuple(found.unbind(1)) if as_tuple else found


@register_handler(torch.where, always=True, direct=True)
def where(recorder: Recorder, condition: Tensor, *others: Any, **options: Any) -> Any:
    """Return the indices of what is true; None if there is something to choose from."""
    if others or options or not is_batched(condition):
        return None
    return tuple(places(recorder, condition).unbind(1))


def by_indices(recorder: Recorder, index: Any) -> Any:
    """Return an index with boolean masks of examples as indices, and their bounds of slices as numbers; None if there are
    none.
    """
    parts = index if isinstance(index, tuple) else tuple(index) if isinstance(index, list) and _holds_tensors(index) else (index,)
    if not any(_is_mask(part) or _is_bounded(part) for part in parts):
        return None
    found: list[Any] = []
    for part in parts:
        if _is_mask(part):
            found += places(recorder, part).unbind(1)
        elif _is_bounded(part):
            found.append(slice(*(_number(recorder, bound) for bound in (part.start, part.stop, part.step))))
        else:
            found.append(part)
    return tuple(found)


def _is_bounded(part: object) -> bool:
    return isinstance(part, slice) and any(map(is_batched, (part.start, part.stop, part.step)))


def _number(recorder: Recorder, bound: Any) -> Any:
    assert recorder.token is not None
    return int(agree(recorder.token, bound)) if is_batched(bound) else bound


def _holds_tensors(index: list[Any]) -> bool:
    return any(isinstance(part, Tensor | slice) or part is None for part in index)


def _is_mask(part: object) -> bool:
    return isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) and is_batched(part)


# Functions whose second argument is an index.
INDEXED = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put, Tensor.index_put_, torch.index_put}


@register_handler(Tensor.masked_select, torch.masked_select, always=True, direct=True)
def masked_select(recorder: Recorder, input: Tensor, mask: Tensor, **_: Any) -> Tensor | None:
    """Return the entries where a mask is true."""
    if not is_batched(mask):
        return None
    shape = torch.broadcast_shapes(input.shape, mask.shape)
    return input.expand(shape)[tuple(places(recorder, mask.expand(shape)).unbind(1))]
