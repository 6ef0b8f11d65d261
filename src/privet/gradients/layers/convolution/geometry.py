"""Geometry of convolutions: positions, patches, padding, and Gram matrices of patches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

Sizes = tuple[int, ...]

# Elements per example from which transposing each example separately is faster.
_LARGE = 1 << 15
# Products are fast if rows of the result are full vectors of _VECTOR numbers; in rows shorter than _MANY vectors, a partial
# vector is a significant part.
_VECTOR, _MANY = 16, 8


@dataclass(frozen=True)
class Geometry:
    """The geometry of a convolution; one entry per spatial dimension."""

    shape: Sizes  # of the weight, (out, in / groups, *kernel)
    stride: Sizes
    padding: Sizes  # with zeros, on both sides
    dilation: Sizes
    groups: int

    @cached_property
    def kernel(self) -> Sizes:
        """Size of the kernel."""
        return self.shape[2:]

    @cached_property
    def inputs(self) -> int:
        """d, the number of inputs of one output of a group."""
        return math.prod(self.shape[1:])

    @cached_property
    def outputs(self) -> int:
        """p, the number of output channels of a group."""
        return self.shape[0] // self.groups

    def positions(self, space: Sizes) -> Sizes:
        """Return the number of kernel positions along each dimension of an input of this size."""
        return _count_positions(self, space)

    def padded_space(self, space: Sizes) -> Sizes:
        """Return the size of an input with its padding."""
        return tuple([size + 2 * pad for size, pad in zip(space, self.padding, strict=True)])

    @cached_property
    def outputs_fill_vectors(self) -> bool:
        """Whether output channels fill whole vectors and inputs do not, as in a network's first layer."""
        return self.outputs % _VECTOR == 0 and self.inputs % _VECTOR != 0 and self.inputs < _MANY * _VECTOR

    @cached_property
    def is_depthwise(self) -> bool:
        """Whether each kernel sees one channel of its own."""
        return self.groups > 1 and self.inputs == math.prod(self.kernel) and self.outputs == 1

    def patches(self, x: Tensor) -> Tensor:
        """Return the kernel's input at every position: (B, C, *space) → (B·groups, T, d), taps before channels within d."""
        return next(self.patches_of(x, [slice(0, len(x))]))

    def patches_of(self, x: Tensor, blocks: Sequence[slice]) -> Iterator[Tensor]:
        """Yield the patches of blocks of examples, of which the first block must be the longest.

        They are copied from a strided view of the padded input, in long runs of taps and channels, or of positions, and valid
        until the next block reuses the memory: allocation costs as much as the copy. A kernel of one tap needs neither.
        """
        if math.prod(self.kernel) == 1 and not any(self.padding):
            steps: tuple[slice, ...] = tuple(slice(None, None, stride) for stride in self.stride)
            seen = x[(slice(None), slice(None), *steps)]
            yield from (seen[block].reshape(-1, self.inputs, math.prod(seen.shape[2:])).transpose(1, 2) for block in blocks)
            return
        space = tuple(x.shape[2:])
        last, positions, sizes = _lay_out(self, space, x.shape[1])
        padded = x.new_zeros(blocks[0].stop, *sizes)
        inside = self._inside(padded, space, 1 if last else 2)
        window_sizes, strides = _find_window(self, space, padded.stride(), last)
        window = padded.as_strided((len(padded), *window_sizes), (padded.stride(0), *strides))
        patches = x.new_empty(window.shape)
        for block in blocks:
            part = x[block]
            inside[: len(part)].copy_(_to_channels_last(part) if last else part)
            seen = patches[: len(part)].copy_(window[: len(part)])
            yield seen.view(-1, positions, self.inputs) if last else seen.view(-1, self.inputs, positions).transpose(1, 2)

    def pad_channels_last(self, x: Tensor) -> Tensor:
        """Return an input (B, C, *space) padded and channels last, (B, *padded space, C)."""
        space = tuple(x.shape[2:])
        padded = x.new_zeros(len(x), *self.padded_space(space), x.shape[1])
        self._inside(padded, space, 1).copy_(x.movedim(1, -1))
        return padded

    def tap_view(self, tap: Sizes, padded: Tensor) -> Tensor:
        """Return a view of one tap's input at all positions: (B, *padded space, C) → (B, *positions, C)."""
        axes = zip(tap, self.kernel, padded.shape[1:-1], self.stride, self.dilation, strict=True)
        seen = (slice(at * step, size - (taps - 1 - at) * step, stride) for at, taps, size, stride, step in axes)
        return padded[(slice(None), *seen)]

    def _inside(self, padded: Tensor, space: Sizes, before: int) -> Tensor:
        """Return the view of a padded input without its padding; `before` dimensions precede the spatial ones."""
        inside = padded
        for dimension, (pad, size) in enumerate(zip(self.padding, space, strict=True), before):
            inside = inside.narrow(dimension, pad, size)
        return inside

    def patch_gram(self, x: Tensor) -> Tensor:
        """Return the Gram matrices of patches, (B·groups, T, T), without forming patches; for a stride of 1.

        ⟨aₛ, aₜ⟩ = Σ over the taps k of ⟨xₛ₊ₖ, xₜ₊ₖ⟩: the Gram matrix of the pixels, summed along its diagonals, one spatial
        dimension after the other. The padding is zero and adds nothing.
        """
        pixels = x.reshape(len(x) * self.groups, self.shape[1], -1)
        space, dimensions = tuple(x.shape[2:]), len(self.kernel)
        gram = torch.bmm(pixels.transpose(1, 2), pixels).view(-1, *space, *space)
        for axis, after in enumerate(self.positions(space), 1):
            before = gram
            pair = (axis, axis + dimensions)
            gram = before.new_zeros([after if at in pair else size for at, size in enumerate(before.shape)])
            for start, into, length in self._diagonals(axis - 1, space[axis - 1], after):
                part, total = before, gram
                for at in pair:
                    part, total = part.narrow(at, start, length), total.narrow(at, into, length)
                total += part
        return gram.flatten(1, dimensions).flatten(2)

    def _diagonals(self, dimension: int, size: int, positions: int) -> Iterator[tuple[int, int, int]]:
        """Yield, for every tap, its first pixel, the position where it sees that pixel, and the number of its pixels."""
        for tap in range(self.kernel[dimension]):
            offset = tap * self.dilation[dimension] - self.padding[dimension]
            first, end = max(0, -offset), min(positions, size - offset)
            if first < end:
                yield first + offset, first, end - first

    def split_groups(self, grad: Tensor) -> Tensor:
        """Return output gradients split by group, (B, out, *space) → (B·groups, p, T)."""
        return grad.reshape(len(grad) * self.groups, self.outputs, -1)

    def weight_gradient(self, x: Tensor, grad: Tensor) -> Tensor:
        """Return torch's own gradient of the weight, summed over the examples."""
        weight = x.new_empty(self.shape)  # only its shape is used
        zeros = [0] * len(self.stride)
        return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
            grad, x, weight, None, self.stride, self.padding, self.dilation, False, zeros, self.groups, [False, True, False]
        )[1]


@lru_cache(maxsize=1024)
def _count_positions(geometry: Geometry, space: Sizes) -> Sizes:
    sizes = zip(space, geometry.kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    return tuple((size + 2 * pad - step * (taps - 1) - 1) // stride + 1 for size, taps, stride, pad, step in sizes)


@lru_cache(maxsize=1024)
def _lay_out(geometry: Geometry, space: Sizes, channels: int) -> tuple[bool, int, Sizes]:
    """Return whether to copy patches channels last, the number of positions, and the size of a padded input.

    Contiguous runs are the taps of a row with all channels, if there is one group, or else the positions of a row.
    """
    positions, padded = geometry.positions(space), geometry.padded_space(space)
    taps = geometry.shape[1] * (geometry.kernel[-1] if geometry.groups == 1 and geometry.dilation[-1] == 1 else 1)
    last = taps >= positions[-1] / geometry.stride[-1]
    return last, math.prod(positions), (*padded, channels) if last else (channels, *padded)


@lru_cache(maxsize=1024)
def _find_window(geometry: Geometry, space: Sizes, strides: Sizes, channels_last: bool) -> tuple[Sizes, Sizes]:
    """Return sizes and strides of one example's window: an entry of a padded input for every element of every patch.

    With channels last, (groups, *positions, *kernel, in / groups), else (groups, *kernel, in / groups, *positions).
    """
    steps = list(strides[1:])
    channel = steps.pop(-1 if channels_last else 0)
    group = (geometry.groups, geometry.shape[1] * channel)
    taps = [(taps, step * dilation) for taps, step, dilation in zip(geometry.kernel, steps, geometry.dilation, strict=True)]
    seen = [*taps, (geometry.shape[1], channel)]
    places = zip(geometry.positions(space), steps, geometry.stride, strict=True)
    positions = [(number, step * stride) for number, step, stride in places]
    axes = (group, *positions, *seen) if channels_last else (group, *seen, *positions)
    return tuple(size for size, _ in axes), tuple(step for _, step in axes)


def _to_channels_last(x: Tensor) -> Tensor:
    """Return (B, C, *space) as (B, *space, C), copying large examples one at a time.

    On a CPU torch transposes matrices block by block, but tensors of more dimensions element by element: three times slower.
    """
    last = x.movedim(1, -1)
    if not x.is_cpu or last.is_contiguous() or x[:1].numel() < _LARGE:
        return last
    copied = x.new_empty(last.shape)
    for example, into in zip(x.flatten(2), copied.flatten(1, -2), strict=True):
        into.copy_(example.t())
    return copied
