"""Normalisation layers whose statistics come from one example or from buffers, followed by an affine map.

Forward pass and input gradient use torch's own kernels and cost as much as in plain training. Only the scale and the shift are
parameters: an example's gradients are the sums over its positions of (normalised input)·(output gradient) and of the output
gradient. They are stored, as they are only as large as the parameters.

Axes: (B, …, *normalised shape) for layer and RMS norms; (R, C, *space) for the others, whose R rows are n for each of B examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.norms import blocks
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.core.recorder import Recorder

aten = torch.ops.aten

# By the number of dimensions of an input.
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True, eq=False)
class _Affine:
    recorder: Recorder
    weight: Tensor | None
    bias: Tensor | None
    plain: tuple[Tensor | None, ...]  # both, detached where they are followed
    shape: tuple[int, ...]  # of both, aligned with the last dimensions of the input: (d,) or (C, 1, 1)
    rows: int = 1  # n, of the input per example

    def apply(self, function: type[torch.autograd.Function], x: Tensor, *options: Any) -> Tensor:
        """Apply the function, which includes this affine map, to x in the precision of the parameters."""
        own = next(parameter for parameter in self.plain if parameter is not None)
        result: Tensor = self.recorder.apply(function, x.to(own.dtype), *self.plain, *options, self)
        return result

    def record(self, scales: Callable[[], Tensor], shifts: Callable[[], Tensor]) -> None:
        """Record gradients of the followed parameters; the arguments compute every example's gradients, (B, …)."""
        for parameter, gradients in ((self.weight, scales), (self.bias, shifts)):
            if parameter is not None and self.recorder.follows(parameter):
                found = self.recorder.promote(gradients().reshape(-1, *parameter.shape), parameter)
                self.recorder.add(parameter, DenseGrad(found), self.rows)

    def record_products(self, normalised: Callable[[slice], Tensor], g: Tensor) -> None:
        """Record gradients from the normalised inputs of a block of rows and the output gradient."""
        shape = (1,) * (g.dim() - 1 - len(self.shape)) + self.shape

        def sums(product: Callable[[slice], Tensor]) -> Tensor:
            cut = blocks(len(g), 2 * g[:1].numel(), g.device)
            return torch.cat([product(block).sum_to_size(len(g[block]), *shape) for block in cut])

        self.record(lambda: sums(lambda block: normalised(block) * g[block]), lambda: sums(lambda block: g[block]))


def _affine(
    recorder: Recorder, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int], rows: int = 1
) -> _Affine | None:
    """Return the affine map with parameters of this shape; None for per-example parameters or a shared input."""
    if recorder.is_shared(x) or not recorder.is_shared(weight, bias) or (weight is None and bias is None):
        return None
    return _Affine(recorder, weight, bias, recorder.detach(weight, bias), tuple(shape), rows)


def _flatten_channels(recorder: Recorder, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, _Affine] | None:
    """Return the rows (R, C, *space) of an input (B, n, C, *space), and the affine map with one number per channel."""
    if x.dim() < 3:
        return None
    affine = _affine(recorder, x, weight, bias, (x.shape[2], *(1,) * (x.dim() - 3)), x.shape[1])
    return None if affine is None else (x.flatten(0, 1), affine)


def _unflatten_rows(rows: Tensor, input: Tensor) -> Tensor:
    found: Tensor = rows.unflatten(0, input.shape[:2])
    return found


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        shape: list[int],
        eps: float,
        affine: _Affine,
    ) -> Tensor:
        y, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.shape, ctx.affine = shape, affine
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, bias, mean, rstd = ctx.saved_tensors
        grad = grad.contiguous()
        parts = [part.detach() for part in (x, mean, rstd)]

        def normalised(block: slice) -> Tensor:
            inputs, means, scales = (part[block] for part in parts)
            centred: Tensor = inputs - means
            return centred.mul_(scales)

        ctx.affine.record_products(normalised, grad)
        into = None
        if ctx.needs_input_grad[1]:
            wanted = [True, False, False]
            into = aten.native_layer_norm_backward(grad, x, ctx.shape, mean, rstd, weight, bias, wanted)[0]
        return None, into, None, None, None, None, None


class _GroupNorm(torch.autograd.Function):
    """torch's group norm; the backward pass records the affine parameters.

    With channels first, the batch is viewed as one example with B·C channels in B·groups groups and a repeated scale: the input
    gradient is the same, and torch's gradients of that scale and shift are the per-example gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float, affine: _Affine
    ) -> Tensor:
        examples, channels = x.shape[:2]
        memory_format = _memory_format(x)
        x = x.contiguous(memory_format=memory_format)
        sizes = (examples, channels, x[0, 0].numel(), groups)
        y, mean, rstd = torch.native_group_norm(x, weight, bias, *sizes, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.sizes, ctx.affine, ctx.memory_format = sizes, affine, memory_format
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mean, rstd = ctx.saved_tensors
        grad, needed = grad.contiguous(memory_format=ctx.memory_format), ctx.needs_input_grad[1]
        if ctx.memory_format is not torch.contiguous_format:
            ctx.affine.record_products(_group_normalised(x.detach(), mean, rstd), grad)
            wanted = [needed, False, False]
            into = aten.native_group_norm_backward(grad, x, mean, rstd, weight, *ctx.sizes, wanted)[0] if needed else None
            return None, into, None, None, None, None, None
        examples, channels, positions, groups = ctx.sizes
        grads, inputs = (part.view(1, -1, positions) for part in (grad, x.detach()))
        into, scales, shifts = aten.native_group_norm_backward(
            grads, inputs, mean.view(1, -1), rstd.view(1, -1), None if weight is None else weight.repeat(examples),
            1, examples * channels, positions, examples * groups, [needed, True, True],
        )  # fmt: skip
        ctx.affine.record(lambda: scales, lambda: shifts)
        return None, None if into is None else into.view(x.shape), None, None, None, None, None


def _memory_format(x: Tensor) -> torch.memory_format:
    """Return the memory format that torch's group norm uses for an input: on a CPU it has kernels for channels last."""
    last = _CHANNELS_LAST.get(x.dim())
    kept = last is not None and x.is_cpu and x.is_contiguous(memory_format=last) and not x.is_contiguous()
    return last if last is not None and kept else torch.contiguous_format


def _group_normalised(x: Tensor, mean: Tensor, rstd: Tensor) -> Callable[[slice], Tensor]:
    """Return a function that normalises the inputs of a block of examples, from (B, C, *space) and statistics (B, groups)."""
    groups = mean.shape[1]
    inputs = x.view(len(x), groups, -1, *x.shape[2:])
    means, scales = (part.view(-1, groups, *[1] * (x.dim() - 1)) for part in (mean, rstd))
    return lambda block: (inputs[block] - means[block]).mul_(scales[block]).flatten(1, 2)


class _ScaleAndShift(torch.autograd.Function):
    """The affine map alone, after a normalisation for which torch has no separate backward kernel."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, affine: _Affine) -> Tensor:
        scale, shift = (None if p is None else p.view(affine.shape) for p in (weight, bias))
        ctx.save_for_backward(x, scale)
        ctx.affine = affine
        y = x if scale is None else x * scale
        return y if shift is None else y + shift

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, scale = ctx.saved_tensors
        inputs = x.detach()
        ctx.affine.record_products(lambda block: inputs[block], grad)
        return None, grad if scale is None else grad * scale, None, None, None


@register_handler(F.layer_norm)
def layer_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """Follow `F.layer_norm`."""
    shape = list(normalized_shape)
    affine = _affine(recorder, input, weight, bias, shape)
    return None if affine is None else affine.apply(_LayerNorm, input, shape, eps)


@register_handler(F.rms_norm)
def rms_norm(
    recorder: Recorder, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor | None:
    """Follow `F.rms_norm`."""
    shape = list(normalized_shape)
    affine = _affine(recorder, input, weight, None, shape)
    return None if affine is None else affine.apply(_ScaleAndShift, F.rms_norm(input, shape, None, eps))


@register_handler(F.group_norm)
def group_norm(
    recorder: Recorder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """Follow `F.group_norm`."""
    found = _flatten_channels(recorder, input, weight, bias)
    if found is None:
        return None
    rows, affine = found
    return _unflatten_rows(affine.apply(_GroupNorm, rows, num_groups, eps), input)


@register_handler(F.instance_norm)
def instance_norm(
    recorder: Recorder,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Follow `F.instance_norm`, a group norm with a group per channel; None if running statistics would be updated."""
    found = _flatten_channels(recorder, input, weight, bias)
    if found is None or not recorder.is_shared(running_mean, running_var):
        return None
    rows, affine = found
    if use_input_stats and running_mean is None and running_var is None:
        # Channels first, like torch: its kernel for channels last computes the variance as a difference of two sums.
        return _unflatten_rows(affine.apply(_GroupNorm, rows.contiguous(), rows.shape[1], eps), input)
    if use_input_stats:
        return None
    normal = F.instance_norm(rows, running_mean, running_var, None, None, False, momentum, eps)
    return _unflatten_rows(affine.apply(_ScaleAndShift, normal), input)


@register_handler(F.batch_norm)
def batch_norm(
    recorder: Recorder,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Follow `F.batch_norm` with running statistics; None in training mode, where it would normalise over one example."""
    found = None if training else _flatten_channels(recorder, input, weight, bias)
    if found is None or not recorder.is_shared(running_mean, running_var):
        return None
    rows, affine = found
    normal = F.batch_norm(rows, running_mean, running_var, None, None, False, momentum, eps)
    return _unflatten_rows(affine.apply(_ScaleAndShift, normal), input)
