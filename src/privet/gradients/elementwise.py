"""Parameters that are added or multiplied elementwise.

Such a parameter is replaced by one view of it per example; autograd reduces the gradient of each view as it does for any
broadcast, and what arrives is the per-example gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from privet.gradients.recorder import Recorder
from privet.gradients.uses import DirectUse


class _PerExample(torch.autograd.Function):
    """A view of a parameter for each example; the gradients of the views are recorded."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, parameter: Tensor, shape: tuple[int, ...], record: Any) -> Tensor:
        ctx.record = record
        return parameter.expand(shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.record(grad)
        return None, None, None, None


def per_example_view(recorder: Recorder, parameter: Tensor, dimensions: int) -> Tensor | None:
    """Return the parameter as (B, 1, …, 1, *shape) with `dimensions` dimensions, one view per example.

    A leading 1 of the parameter's own becomes the batch. None if the parameter would line up with the batch itself.
    """
    shape = tuple(parameter.shape)
    own = shape[1:] if len(shape) == dimensions and shape[:1] == (1,) else shape
    if len(own) >= dimensions:
        return None
    view = (recorder.examples, *(1,) * (dimensions - 1 - len(own)), *own)

    def record(grad: Tensor) -> None:
        recorder.add(parameter, DirectUse(grad.reshape(recorder.examples, *shape)))

    return _PerExample.apply(recorder.anchor, parameter.detach(), view, record)  # type: ignore[no-any-return,no-untyped-call]


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    def handler(recorder: Recorder, *operands: Any, **options: Any) -> Any:
        """Follow an elementwise operation of parameters with something that belongs to the examples."""
        if function in _IN_PLACE and recorder.follows(operands[0]):
            return None
        others = [x for x in operands if isinstance(x, Tensor) and not recorder.follows(x)]
        if not others or others[0].dim() == 0 or others[0].shape[0] != recorder.examples:
            return None
        dimensions = others[0].dim()
        seen = [per_example_view(recorder, x, dimensions) if recorder.follows(x) else x for x in operands]
        return None if any(x is None for x in seen) else function(*seen, **options)

    return handler


def _expand(recorder: Recorder, parameter: Tensor, *sizes: Any) -> Tensor | None:
    """Follow `parameter.expand(B, …)`, the usual way to give every example a class token."""
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if not recorder.follows(parameter) or shape[0] != recorder.examples:
        return None
    view = per_example_view(recorder, parameter, len(shape))
    return None if view is None else view.expand(shape)


_IN_PLACE = [getattr(Tensor, f"{name}_") for name in ("add", "sub", "mul", "div")]
_ARITHMETIC = [
    *_IN_PLACE,
    *(getattr(torch, name) for name in ("add", "sub", "mul", "div")),
    *(getattr(Tensor, name) for name in ("add", "sub", "mul", "div")),
    *(getattr(Tensor, f"__{side}{name}__") for name in ("add", "sub", "mul") for side in ("", "r")),
    *(getattr(Tensor, f"__{side}truediv__") for side in ("", "r")),
]

HANDLERS: dict[Any, Callable[..., Any]] = {
    **{function: _arithmetic(function) for function in _ARITHMETIC},
    Tensor.expand: _expand,
}
