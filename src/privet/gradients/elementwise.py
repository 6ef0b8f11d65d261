"""Parameters that are added or multiplied elementwise.

Such a parameter is replaced by one view of it per example; autograd reduces the gradient of each view as it does for any
broadcast, and what arrives is the per-example gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.layout import Layout
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


def per_example_leaf(recorder: Recorder, leaf: Tensor) -> Tensor:
    """Return a followed tensor as (B, *shape), one view per example."""
    return _per_example(recorder, leaf, (recorder.examples, *leaf.shape), 0)


def _per_example(recorder: Recorder, leaf: Tensor, shape: tuple[int, ...], dimension: int) -> Tensor:
    """Return a followed tensor expanded to a shape that has the examples along one dimension, and else only its own entries."""

    def record(grad: Tensor) -> None:
        own = grad.movedim(dimension, 0).reshape(recorder.examples, *leaf.shape)
        recorder.add(leaf, DirectUse(own.to(leaf.dtype)))

    return _PerExample.apply(recorder.anchor, leaf.detach(), shape, record)  # type: ignore[no-any-return,no-untyped-call]


def per_example_view(recorder: Recorder, leaf: Tensor, dimensions: int, layout: Layout) -> Tensor | None:
    """Return a followed tensor, one view per example, to be broadcast with a tensor of so many dimensions and that layout.

    None if the followed tensor has a dimension of its own where the examples are.
    """
    own = (1,) * (dimensions - leaf.dim()) + tuple(leaf.shape)
    if len(own) != dimensions or own[0 if layout.flat else layout.dimension] != 1:
        return None
    if layout.flat is None:
        shape = (*own[: layout.dimension], recorder.examples, *own[layout.dimension + 1 :])
        return _per_example(recorder, leaf, shape, layout.dimension)
    pair = [1, 1]
    pair[layout.dimension] = recorder.examples
    view = _per_example(recorder, leaf, (*pair, *own[1:]), layout.dimension)
    pair[1 - layout.dimension] = layout.flat
    return view.expand(*pair, *own[1:]).flatten(0, 1)


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    def handler(recorder: Recorder, *operands: Any, **options: Any) -> Any:
        """Follow an elementwise operation of followed tensors with something that belongs to the examples."""
        if function in _IN_PLACE and recorder.follows(operands[0]):
            return None
        others = [x for x in operands if isinstance(x, Tensor) and not recorder.follows(x)]
        widest = max(others, key=Tensor.dim, default=None)
        layout = None if widest is None else recorder.layout(widest, 0)
        if widest is None or layout is None:
            return None
        seen = [
            per_example_view(recorder, x, widest.dim(), layout) if isinstance(x, Tensor) and recorder.follows(x) else x
            for x in operands
        ]
        if any(new is None and old is not None for new, old in zip(seen, operands, strict=True)):
            return None
        result = function(*seen, **options)
        recorder.pass_on(widest, result)
        return result

    return handler


def _expand(recorder: Recorder, leaf: Tensor, *sizes: Any) -> Tensor | None:
    """Follow `leaf.expand(B, …)`, the usual way to give every example a class token."""
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    dimension = recorder.dimension_of(shape, 0) if recorder.follows(leaf) else None
    if dimension is None:
        return None
    view = per_example_view(recorder, leaf, len(shape), Layout(recorder.examples, dimension))
    return None if view is None else view.expand(shape)


def _repeat(recorder: Recorder, leaf: Tensor, *sizes: Any) -> Tensor | None:
    """Follow `leaf.repeat(B, 1, …)`."""
    times = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if not recorder.follows(leaf) or any(size != 1 for size in times[1:]):
        return None
    own = (1,) * (len(times) - leaf.dim()) + tuple(leaf.shape)
    return _expand(recorder, leaf, (times[0], *own[1:])) if own[0] == 1 else None


def _prelu(recorder: Recorder, input: Tensor, weight: Tensor) -> Tensor | None:
    """Follow `F.prelu`: one slope, or one per channel."""
    layout = recorder.layout(input, 0)
    per_channel = weight.reshape(-1, *(1,) * max(0, input.dim() - 2))
    if layout is None or layout.dimension != 0 or not recorder.follows(weight):
        return None
    recorder.note_derived(per_channel, [weight])
    slopes = per_example_view(recorder, per_channel, input.dim(), layout)
    return None if slopes is None else torch.where(input > 0, input, slopes * input)


_IN_PLACE = [
    *(getattr(Tensor, f"{name}_") for name in ("add", "sub", "mul", "div")),
    *(getattr(Tensor, f"__i{name}__") for name in ("add", "sub", "mul", "truediv")),
]
_ARITHMETIC = [
    *_IN_PLACE,
    *(
        getattr(kind, name)
        for name in ("add", "sub", "mul", "div", "true_divide", "where", "maximum", "minimum", "pow", "addcmul", "lerp")
        for kind in (torch, Tensor)
    ),
    *(getattr(Tensor, f"__{side}{name}__") for name in ("add", "sub", "mul", "pow", "truediv") for side in ("", "r")),
]

HANDLERS: dict[Any, Callable[..., Any]] = {
    **{function: _arithmetic(function) for function in _ARITHMETIC},
    Tensor.expand: _expand,
    Tensor.repeat: _repeat,
    F.prelu: _prelu,
    torch.prelu: _prelu,
}
