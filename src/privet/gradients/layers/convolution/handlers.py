"""Rules of `F.conv1d` … `F.conv3d` and `F.conv_transpose1d` … `F.conv_transpose3d`.

Axes: inputs (B, n, C, *space) with n rows per example, or (B, C, *space); convolutions run on rows (R, C, *space), R = B·n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.core.recorder import Recorder
from privet.gradients.layers.convolution.geometry import Geometry, Sizes
from privet.gradients.layers.convolution.gradient import ConvGrad, choose_grad
from privet.gradients.layers.linear import is_complex


@dataclass(frozen=True)
class _Layer:
    """A call of a convolution.

    Args:
        function: that the user called, so that autocast applies to it.
        geometry: of the convolution; for a transposed convolution, of the convolution that it transposes.
        output_padding: of a transposed convolution, else None.
    """

    function: Callable[..., Tensor]
    geometry: Geometry
    output_padding: Sizes | None = None

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the function's output."""
        g = self.geometry
        after = (g.dilation, g.groups) if self.output_padding is None else (self.output_padding, g.groups, g.dilation)
        return self.function(x, weight, bias, g.stride, g.padding, *after)

    def input_gradient(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Return torch's gradient of the input, computed in the precision of the output."""
        g = self.geometry
        x, weight = x.to(grad.dtype), weight.to(grad.dtype)
        transposed, output_padding = self.output_padding is not None, self.output_padding or (0,) * len(g.stride)
        return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
            grad, x, weight, None, g.stride, g.padding, g.dilation, transposed, output_padding, g.groups, [True, False, False]
        )[0]

    def gradient(self, x: Tensor, grad: Tensor) -> ConvGrad:
        """Return the gradients of the kernel; a transposed convolution swaps input and output gradient."""
        return ConvGrad(*(x, grad) if self.output_padding is None else (grad, x), self.geometry)


class _Convolution(torch.autograd.Function):
    """A convolution; the backward pass returns the input gradient only and records the factors."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, layer: _Layer, record: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.record = layer, record
        return layer.output(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.record(x.detach(), grad)
        into = ctx.layer.input_gradient(grad, x, weight).to(x.dtype) if ctx.needs_input_grad[1] else None
        return None, into, None, None, None, None


def _follow(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None, layer: _Layer) -> Tensor:
    """Return the layer's output for an input of physical rows."""
    rows = max(1, len(input) // max(1, recorder.examples))

    def record(x: Tensor, grad: Tensor) -> None:
        if not len(x):  # no example has a gradient
            return
        x, grad = recorder.promote(x, weight), recorder.promote(grad, weight)
        if recorder.follows(weight):
            recorder.add(weight, choose_grad(layer.gradient(x, grad)), rows)
        if recorder.follows(bias):
            recorder.add(bias, DenseGrad(grad.flatten(2).sum(2)), rows)

    plain = recorder.detach(weight, bias)
    output: Tensor = recorder.apply(_Convolution, input, *plain, layer, record)
    return output


def _rows(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return an input as (R, C, *space); None for a shared input, per-example parameters, or complex numbers."""
    if is_complex(input, weight) or recorder.is_shared(input) or not recorder.is_shared(weight, bias):
        return None
    return input if input.dim() == weight.dim() else input.flatten(0, 1)


def _sizes(value: int | tuple[int, ...], dimensions: int) -> Sizes:
    """Return one entry per spatial dimension."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values


def _same_padding(input: Tensor, kernel: Sizes, dilation: Sizes) -> tuple[Tensor, Sizes]:
    """Return the padding that preserves the size of the input; where it is odd, pad the input by one zero on one side."""
    totals = [step * (taps - 1) for step, taps in zip(dilation, kernel, strict=True)]
    if any(total % 2 for total in totals):
        input = F.pad(input, [side for total in reversed(totals) for side in (0, total % 2)])
    return input, tuple(total // 2 for total in totals)


def _make_handler(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def handler(
        recorder: Recorder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor | None:
        """Follow a convolution."""
        rows = _rows(recorder, input, weight, bias)
        if rows is None:
            return None
        kernel = tuple(weight.shape[2:])
        steps, spread = _sizes(stride, len(kernel)), _sizes(dilation, len(kernel))
        if padding == "same":
            rows, padding = _same_padding(rows, kernel, spread)
        sides = _sizes(0 if padding == "valid" else padding, len(kernel))
        geometry = Geometry(tuple(weight.shape), steps, sides, spread, groups)
        found = _follow(recorder, rows, weight, bias, _Layer(function, geometry))
        return found if input.dim() == weight.dim() else found.unflatten(0, input.shape[:2])

    return handler


def _make_transposed_handler(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def handler(
        recorder: Recorder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor | None:
        """Follow a transposed convolution.

        None if the output padding is at least the stride: the transposed convolution would then have more positions than the
        input.
        """
        rows = _rows(recorder, input, weight, bias)
        steps, sides, spread, extra = (_sizes(value, weight.dim() - 2) for value in (stride, padding, dilation, output_padding))
        if rows is None or any(more >= step for more, step in zip(extra, steps, strict=True)):
            return None
        geometry = Geometry(tuple(weight.shape), steps, sides, spread, groups)
        found = _follow(recorder, rows, weight, bias, _Layer(function, geometry, extra))
        return found if input.dim() == weight.dim() else found.unflatten(0, input.shape[:2])

    return handler


for _function in (F.conv1d, F.conv2d, F.conv3d):
    register_handler(_function)(_make_handler(_function))
for _transposed_function in (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
    register_handler(_transposed_function)(_make_transposed_handler(_transposed_function))
