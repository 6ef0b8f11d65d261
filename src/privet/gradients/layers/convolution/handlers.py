"""Following `F.conv1d` … `F.conv3d` and `F.conv_transpose1d` … `F.conv_transpose3d`.

Axes: inputs (B, n, C, *space) of n rows an example, or (B, C, *space); convolutions run on rows (R, C, *space), R = B·n.
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
from privet.gradients.layers.convolution.gradient import ConvGrad, cheapest


@dataclass(frozen=True)
class _Layer:
    """A call of a convolution.

    Args:
        function: that the user called, so that autocast treats it as it does.
        geometry: of the convolution; of the one that it transposes, if it is a transposed one.
        output_padding: of a transposed convolution, else None.
    """

    function: Callable[..., Tensor]
    geometry: Geometry
    output_padding: Sizes | None = None

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return what the function returns."""
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
        """Return the use of the kernel; in a transposed convolution input and output gradient change places."""
        return ConvGrad(*(x, grad) if self.output_padding is None else (grad, x), self.geometry)


class _Convolution(torch.autograd.Function):
    """A convolution whose backward passes on the input gradient only and records the rest."""

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
        if not len(x):  # nobody has a gradient
            return
        x, grad = recorder.precise(x, weight), recorder.precise(grad, weight)
        if recorder.follows(weight):
            recorder.add(weight, cheapest(layer.gradient(x, grad)), rows)
        if recorder.follows(bias):
            recorder.add(bias, DenseGrad(grad.flatten(2).sum(2)), rows)

    plain = recorder.detach(weight, bias)
    return _Convolution.apply(recorder.anchor, input, *plain, layer, record)  # type: ignore[no-any-return,no-untyped-call]


def _rows(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return an input as (R, C, *space); None if it does not belong to examples, or the parameters do."""
    if recorder.shared(input) or not recorder.shared(weight, bias):
        return None
    return input if input.dim() == weight.dim() else input.flatten(0, 1)


def _sizes(value: int | tuple[int, ...], dimensions: int) -> Sizes:
    """Return an entry per dimension of space."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values


def _same(input: Tensor, kernel: Sizes, dilation: Sizes) -> tuple[Tensor, Sizes]:
    """Return the padding that keeps the size of the input; where it is odd, the input gets the zero that one side lacks."""
    totals = [step * (taps - 1) for step, taps in zip(dilation, kernel, strict=True)]
    if any(total % 2 for total in totals):
        input = F.pad(input, [side for total in reversed(totals) for side in (0, total % 2)])
    return input, tuple(total // 2 for total in totals)


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
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
            rows, padding = _same(rows, kernel, spread)
        sides = _sizes(0 if padding == "valid" else padding, len(kernel))
        geometry = Geometry(tuple(weight.shape), steps, sides, spread, groups)
        found = _follow(recorder, rows, weight, bias, _Layer(function, geometry))
        return found if input.dim() == weight.dim() else found.unflatten(0, input.shape[:2])

    return handler


def _transposed(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
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

        None for an output padding that adds whole strides: the convolution that is transposed would then have more positions
        than the input.
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
    register_handler(_function)(_convolution(_function))
for _transposed_function in (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
    register_handler(_transposed_function)(_transposed(_transposed_function))
