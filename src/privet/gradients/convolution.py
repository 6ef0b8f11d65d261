"""Convolutions over one or two dimensions, with stride, padding, dilation and groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.linear import KEEP, LinearUse
from privet.gradients.norms import blocks
from privet.gradients.recorder import Recorder
from privet.gradients.uses import DirectUse, Use

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """How a kernel moves over its input; one entry per dimension of space.

    Args:
        shape: of the weight, (out, in / groups, *kernel).
        stride, padding, dilation: per dimension.
        groups: number of groups.
    """

    shape: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int

    def backward(self, grad: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]) -> tuple[Tensor, ...]:
        """Return torch's own gradients of the convolution for (input, weight, bias), as wanted."""
        return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
            grad,
            x,
            weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            False,
            [0] * len(self.stride),
            self.groups,
            wanted,
        )

    def patches(self, x: Tensor) -> Tensor:
        """Return what the kernel sees at every position: (B, C, *space) → (B·groups, T, taps·C/groups), channels last.

        The window is a strided view; one copy forms the patches.
        """
        sides = [side for pad in reversed(self.padding) for side in (pad, pad)]
        x = F.pad(x.movedim(1, -1), (0, 0, *sides)).contiguous()
        kernel = self.shape[2:]
        space = [
            (size - dilation * (taps - 1) - 1) // stride + 1
            for size, taps, stride, dilation in zip(x.shape[1:-1], kernel, self.stride, self.dilation, strict=True)
        ]
        steps = [step * stride for step, stride in zip(x.stride()[1:-1], self.stride, strict=True)]
        taps = [step * dilation for step, dilation in zip(x.stride()[1:-1], self.dilation, strict=True)]
        window = x.as_strided((len(x), *space, *kernel, x.shape[-1]), (x.stride(0), *steps, *taps, 1))
        positions, per_group = math.prod(space), self.shape[1]
        split = window.reshape(len(x), positions, math.prod(kernel), self.groups, per_group).permute(0, 3, 1, 2, 4)
        return split.reshape(len(x) * self.groups, positions, math.prod(kernel) * per_group)

    def per_group(self, grad: Tensor) -> Tensor:
        """Return output gradients per group, (B, out, *space) → (B·groups, T, out/groups)."""
        g = grad.flatten(2)
        return g.reshape(len(g) * self.groups, self.shape[0] // self.groups, -1).transpose(1, 2)


@dataclass(frozen=True, eq=False)
class ConvolutionUse(Use):
    """A kernel used as a convolution.

    Args:
        inputs: (B, C, *space).
        gradients: of the output, (B, out, *space).
        geometry: how the kernel moves.
    """

    inputs: Tensor
    gradients: Tensor
    geometry: Geometry

    @property
    def examples(self) -> int:
        """B."""
        return self.inputs.shape[0]

    @property
    def positions(self) -> int:
        """T, the number of output positions."""
        return math.prod(self.gradients.shape[2:])

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the gradients."""
        return self.gradients.dtype

    @property
    def cost(self) -> int:
        """Size of one example's patches and kernel gradient."""
        taps = math.prod(self.geometry.shape[2:]) * self.inputs.shape[1]
        return self.positions * taps + math.prod(self.geometry.shape)

    def per_example(self) -> Tensor:
        """Return the gradients, (B, *shape of the kernel)."""
        out, per_group, *kernel = self.geometry.shape
        grads = self.gradients.new_empty(self.examples, out, math.prod(kernel) * per_group)
        for block, use in zip(blocks(self.examples, self.cost), self._linear_uses(), strict=True):
            grads[block] = use.per_example().reshape(-1, out, grads.shape[2])
        return grads.view(self.examples, out, *kernel, per_group).movedim(-1, 2)

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², as for a linear map over the patches: each group's kernels are a matrix of their own."""
        return torch.cat([use.squared_norms().view(-1, self.geometry.groups).sum(1) for use in self._linear_uses()])

    def reach(self) -> Tensor:
        """Return the sum over the positions, as for a linear map over the patches."""
        return torch.cat([use.reach().view(-1, self.geometry.groups).sum(1) for use in self._linear_uses()])

    def _linear_uses(self) -> Iterator[LinearUse]:
        """Yield the kernel's use as a linear map over the patches, a block of examples at a time, (block·groups, T, …)."""
        for block in blocks(self.examples, self.cost):
            yield LinearUse(self.geometry.patches(self.inputs[block]), self.geometry.per_group(self.gradients[block]))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ by torch's own kernel gradient, with the weights on the output gradients."""
        scaled = self.gradients * weights.to(self.gradients.dtype).view(-1, *[1] * (self.gradients.dim() - 1))
        kernel = self.inputs.new_empty(1).expand(self.geometry.shape)
        return self.geometry.backward(scaled, self.inputs, kernel, [False, True, False])[1]

    def rows(self, index: Tensor | slice) -> ConvolutionUse:
        """Return the same use by some of the examples."""
        return ConvolutionUse(self.inputs[index], self.gradients[index], self.geometry)

    def double(self) -> ConvolutionUse:
        """Return the same use in float64."""
        return ConvolutionUse(self.inputs.double(), self.gradients.double(), self.geometry)


def _cheapest(use: ConvolutionUse) -> Use:
    """Return the gradients themselves where those are few, else the factors."""
    return DirectUse(use.per_example()) if use.examples * math.prod(use.geometry.shape) <= KEEP else use


class _Convolution(torch.autograd.Function):
    """A convolution whose backward passes on the input gradient only and records the rest."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, record: Any
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry, ctx.record = geometry, record
        g = geometry
        zeros = [0] * len(g.stride)
        return torch.convolution(x, weight, bias, g.stride, g.padding, g.dilation, False, zeros, g.groups)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.record(x.detach(), grad)
        into = ctx.geometry.backward(grad, x, weight, [True, False, False])[0] if ctx.needs_input_grad[1] else None
        return None, into, None, None, None, None


def _per_dimension(value: int | tuple[int, ...], dimensions: int) -> Sizes:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values


def _convolution(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """Follow `F.conv1d` and `F.conv2d`; None if the first dimension of the input is not the batch."""
    dimensions = weight.dim() - 2
    if input.dim() != weight.dim() or input.shape[0] != recorder.examples:
        return None
    spread = _per_dimension(dilation, dimensions)
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(spread, weight.shape[2:], strict=True)]
        input = F.pad(input, [side for total in reversed(totals) for side in (total // 2, total - total // 2)])
    sides = _per_dimension(0 if isinstance(padding, str) else padding, dimensions)
    geometry = Geometry(tuple(weight.shape), _per_dimension(stride, dimensions), sides, spread, groups)

    def record(inputs: Tensor, grad: Tensor) -> None:
        if recorder.follows(weight):
            recorder.add(weight, _cheapest(ConvolutionUse(inputs, grad, geometry)))
        if recorder.follows(bias):
            recorder.add(bias, DirectUse(grad.flatten(2).sum(2)))

    plain_weight = weight.detach() if recorder.follows(weight) else weight
    plain_bias = None if bias is None else bias.detach() if recorder.follows(bias) else bias
    if plain_weight.requires_grad or (plain_bias is not None and plain_bias.requires_grad):
        return None
    return _Convolution.apply(recorder.anchor, input, plain_weight, plain_bias, geometry, record)  # type: ignore[no-any-return,no-untyped-call]


HANDLERS = {F.conv1d: _convolution, F.conv2d: _convolution}
