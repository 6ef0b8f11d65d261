"""Rules of `F.conv1d` … `F.conv3d` and `F.conv_transpose1d` … `F.conv_transpose3d`.

Axes: inputs (B, n, C, *space) with n rows per example, or (B, C, *space); convolutions run on rows (R, C, *space), R = B·n.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class _Layer:
    function: Callable[..., Tensor]  # that the user called, so that autocast applies to it
    geometry: Geometry  # of the convolution, or of the one that it transposes
    output_padding: Sizes | None = None  # of a transposed convolution

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the function's output."""
        g = self.geometry
        after = (g.dilation, g.groups) if self.output_padding is None else (self.output_padding, g.groups, g.dilation)
        return self.function(x, weight, bias, g.stride, g.padding, *after)

    def pull_back(self, grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
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


def _follow(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None, layer: _Layer) -> Tensor:
    rows = max(1, len(input) // max(1, recorder.examples))

    def record(x: Tensor, grad: Tensor) -> None:
        if not len(x):  # no example has a gradient
            return
        x, grad = recorder.promote(x, weight), recorder.promote(grad, weight)
        if recorder.follows(weight):
            recorder.add(weight, choose_grad(layer.gradient(x, grad)), rows)
        if recorder.follows(bias):
            recorder.add(bias, DenseGrad(grad.flatten(2).sum(2)), rows)

    return recorder.map(input, (weight, bias), layer.output, layer.pull_back, record)


def _sizes(value: int | tuple[int, ...], dimensions: int) -> Sizes:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values


@functools.lru_cache(maxsize=1024)
def _read_settings(
    shape: Sizes, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
) -> tuple[Geometry, Sizes, Sizes]:
    """Return the geometry, the output padding, and by how much the input is padded on one side first: "same" may be odd."""
    kernel = shape[2:]
    steps, extra, spread = (_sizes(value, len(kernel)) for value in (stride, output_padding, dilation))
    odd: Sizes = ()
    if padding == "same":
        totals = [step * (taps - 1) for step, taps in zip(spread, kernel, strict=True)]
        padding = tuple(total // 2 for total in totals)
        odd = tuple(side for total in reversed(totals) for side in (0, total % 2)) if any(total % 2 for total in totals) else ()
    sides = _sizes(0 if padding == "valid" else padding, len(kernel))
    return Geometry(shape, steps, sides, spread, groups), extra, odd


_DEFAULTS = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}


def _make_handler(function: Callable[..., Tensor], names: Sequence[str]) -> Callable[..., Tensor | None]:
    transposed = "output_padding" in names

    def handler(
        recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None, *settings: Any, **named: Any
    ) -> Tensor | None:
        """Follow a convolution of inputs (B, n, C, *space).

        None for a shared input, per-example parameters, complex numbers, and a transposed one that is padded by its stride: it
        would have more positions than the input.
        """
        if input.is_complex() or weight.is_complex() or recorder.is_shared(input) or not recorder.is_shared(weight, bias):
            return None
        given = {**_DEFAULTS, **dict(zip(names, settings, strict=False)), **named}
        if list in map(type, given.values()):
            given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        geometry, extra, odd = _read_settings(tuple(weight.shape), **given)
        if transposed and any(map(operator.ge, extra, geometry.stride)):
            return None
        rows = input if input.dim() == weight.dim() else input.flatten(0, 1)
        rows = F.pad(rows, odd) if odd else rows
        found = _follow(recorder, rows, weight, bias, _Layer(function, geometry, extra if transposed else None))
        return found if input.dim() == weight.dim() else found.unflatten(0, input.shape[:2])

    return handler


for _function in (F.conv1d, F.conv2d, F.conv3d):
    register_handler(_function)(_make_handler(_function, ("stride", "padding", "dilation", "groups")))
for _transposed in (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
    register_handler(_transposed)(_make_handler(_transposed, ("stride", "padding", "output_padding", "groups", "dilation")))
