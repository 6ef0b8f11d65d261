"""Normalisation layers whose statistics come from one example or from buffers, followed by an affine map.

Forward pass and input gradient are torch's own kernels and cost what they cost in plain training. Only the scale and the shift
are parameters: an example's gradients are the sums over its positions of (normalised input)·(output gradient) and of the output
gradient, and are kept, being as small as the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.layout import Layout
from privet.gradients.norms import blocks
from privet.gradients.parameters import detached
from privet.gradients.recorder import Recorder
from privet.gradients.uses import DirectUse

aten = torch.ops.aten

# By the number of dimensions of an input.
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True, eq=False)
class _Affine:
    """The scale and shift that follow a normalisation.

    Args:
        recorder: that follows them.
        weight, bias: scale and shift; either may be absent.
        plain: both without the history of those that are followed.
        shape: that both have where they line up with the last dimensions of the input, such as (d,) or (C, 1, 1).
        layout: of the input.
    """

    recorder: Recorder
    weight: Tensor | None
    bias: Tensor | None
    plain: tuple[Tensor | None, ...]
    shape: tuple[int, ...]
    layout: Layout

    def after(self, function: type[torch.autograd.Function], x: Tensor, *options: Any) -> Tensor:
        """Return the function of x, this affine map included, in the precision of the parameters."""
        own = next(parameter for parameter in self.plain if parameter is not None)
        result: Tensor = function.apply(self.recorder.anchor, x.to(own.dtype), *self.plain, *options, self)  # type: ignore[no-untyped-call]
        self.recorder.pass_on(x, result)
        return result

    def record(self, scales: Callable[[], Tensor], shifts: Callable[[], Tensor]) -> None:
        """Record the uses of the parameters that are followed; the arguments form every example's gradients, (B, …)."""
        for parameter, gradients in ((self.weight, scales), (self.bias, shifts)):
            if parameter is not None and self.recorder.follows(parameter):
                self.recorder.add(parameter, DirectUse(gradients().reshape(-1, *parameter.shape)))

    def record_products(self, normalised: Callable[[slice], Tensor], grad: Tensor) -> None:
        """Record the uses, from the output gradient and the normalised inputs of a block of examples, these first."""
        g = self.layout.examples_first(grad)
        shape = (1,) * (g.dim() - 1 - len(self.shape)) + self.shape

        def sums(product: Callable[[slice], Tensor]) -> Tensor:
            cut = blocks(len(g), 2 * g[:1].numel(), g.device)
            return torch.cat([product(block).sum_to_size(len(g[block]), *shape) for block in cut])

        self.record(lambda: sums(lambda block: normalised(block) * g[block]), lambda: sums(lambda block: g[block]))


def _affine(
    recorder: Recorder, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int], layout: Layout | None
) -> _Affine | None:
    """Return the affine map with parameters of this shape within an example; None if the parameters cannot be followed."""
    plain = detached(recorder, weight, bias)
    if plain is None or layout is None:
        return None
    return _Affine(recorder, weight, bias, plain, tuple(shape), layout)


def _channels(recorder: Recorder, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> _Affine | None:
    """Return the affine map with a number per channel, for (B, C, *space)."""
    if x.dim() < 2:
        return None
    layout = recorder.layout(x, x.dim() - 1)
    shape = (x.shape[1], *(1,) * (x.dim() - 2))
    return None if layout is not None and layout.flat else _affine(recorder, weight, bias, shape, layout)


class _LayerNorm(torch.autograd.Function):
    """torch's layer norm; the backward pass records the affine parameters."""

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
        parts = [ctx.affine.layout.examples_first(part.detach()) for part in (x, mean, rstd)]

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

    Channels first, the batch is seen as one example with B·C channels in B·groups groups, with the scale repeated: it has the
    same input gradient, and torch's gradients of that scale and shift are those of every example.
    """

    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: int,
        eps: float,
        affine: _Affine,
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
    """Return the layout that torch's group norm takes for an input: on a CPU it has kernels for channels last."""
    last = _CHANNELS_LAST.get(x.dim())
    kept = last is not None and x.is_cpu and x.is_contiguous(memory_format=last) and not x.is_contiguous()
    return last if last is not None and kept else torch.contiguous_format


def _group_normalised(x: Tensor, mean: Tensor, rstd: Tensor) -> Callable[[slice], Tensor]:
    """Return what forms the normalised inputs of a block of examples, from (B, C, *space) and two of (B, groups)."""
    groups = mean.shape[1]
    inputs = x.view(len(x), groups, -1, *x.shape[2:])
    means, scales = (part.view(-1, groups, *[1] * (x.dim() - 1)) for part in (mean, rstd))
    return lambda block: (inputs[block] - means[block]).mul_(scales[block]).flatten(1, 2)


class _ScaleAndShift(torch.autograd.Function):
    """The affine map alone, after a normalisation that torch has no separate backward kernel for."""

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
        inputs = ctx.affine.layout.examples_first(x.detach())
        ctx.affine.record_products(lambda block: inputs[block], grad)
        return None, grad if scale is None else grad * scale, None, None, None


def _layer_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """Follow `F.layer_norm`."""
    shape = list(normalized_shape)
    affine = _affine(recorder, weight, bias, shape, recorder.layout(input, len(shape)))
    return None if affine is None else affine.after(_LayerNorm, input, shape, eps)


def _rms_norm(
    recorder: Recorder, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor | None:
    """Follow `F.rms_norm`."""
    shape = list(normalized_shape)
    affine = _affine(recorder, weight, None, shape, recorder.layout(input, len(shape)))
    return None if affine is None else affine.after(_ScaleAndShift, F.rms_norm(input, shape, None, eps))


def _group_norm(
    recorder: Recorder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """Follow `F.group_norm`."""
    affine = _channels(recorder, input, weight, bias)
    return None if affine is None else affine.after(_GroupNorm, input, num_groups, eps)


def _instance_norm(
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
    """Follow `F.instance_norm`, a group norm with as many groups as channels unless running statistics take part."""
    affine = _channels(recorder, input, weight, bias)
    if affine is None:
        return None
    if running_mean is None and running_var is None:
        # Channels first, as torch does it: its kernel for channels last takes the variance as a difference of two sums.
        return affine.after(_GroupNorm, input.contiguous(), input.shape[1], eps)
    normal = F.instance_norm(input, running_mean, running_var, None, None, use_input_stats, momentum, eps)
    return affine.after(_ScaleAndShift, normal)


def _batch_norm(
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
    """Follow `F.batch_norm` with running statistics; None in training mode, where examples change each other's gradients."""
    affine = None if training else _channels(recorder, input, weight, bias)
    if affine is None:
        return None
    return affine.after(_ScaleAndShift, F.batch_norm(input, running_mean, running_var, None, None, False, momentum, eps))


HANDLERS: dict[Any, Callable[..., Tensor | None]] = {
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    F.group_norm: _group_norm,
    F.instance_norm: _instance_norm,
    F.batch_norm: _batch_norm,
}
