"""Per-example gradients of convolution kernels over one, two or three dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks
from privet.gradients.core.per_example import OutputGrad, PerExampleGrad, StoredGrad, delegate, recompute_cancelled
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.convolution.norms import Shape, find_shape, is_keeping_cheaper, squared_kernel_norms
from privet.gradients.layers.linear import LinearGrad

# Gradients are stored only if they have at most this many times the elements of the inputs and output gradients, which are then
# discarded: memory stays proportional to that of plain training.
KEEP = 3
# Rows of at most this many positions are too short to be copied into patches efficiently.
_SHORT = 8


@dataclass(frozen=True, eq=False)
class ConvGrad(OutputGrad):
    """Gradients of the kernel of a convolution."""

    inputs: Tensor  # (B, C, *space)
    gradients: Tensor  # of the output, (B, out, *positions)
    geometry: Geometry

    @cached_property
    def shape(self) -> Shape:
        """Sizes of one group of one example."""
        return find_shape(self.geometry, self.inputs.shape[2:], self.gradients.shape[2:])

    @property
    def numel_per_example(self) -> int:
        """Number of elements of one example's patches and kernel gradient."""
        return self.geometry.groups * (self.shape.positions * self.shape.inputs + self.shape.weight)

    summands = delegate("shape.positions")

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the kernel)."""
        return self.to_dense().materialize()

    def to_dense(self) -> ConvDenseGrad:
        """Return the materialised gradients."""
        gradients = self._allocate(self.examples)
        for _ in self._form(gradients.__getitem__):
            pass
        return ConvDenseGrad(self._view_as_kernels(gradients))

    def form_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of examples, and their gradients in the layout of `ConvDenseGrad`, valid until the next block."""
        cut = self._blocks()
        memory = self._allocate(cut[0].stop if cut else 0)
        for block in self._form(lambda block: memory[: block.stop - block.start]):
            yield block, self._view_as_kernels(memory[: block.stop - block.start])

    @property
    def _depthwise(self) -> bool:
        """Whether products tap by tap cost less than patches: channels come last, or rows are short."""
        if not self.geometry.is_depthwise:
            return False
        return self.inputs.stride(1) == 1 or self.gradients.shape[-1] <= _SHORT

    def _blocks(self) -> list[slice]:
        cost = self.numel_per_example
        if self._depthwise:
            padded = math.prod(self.geometry.padded_space(tuple(self.inputs.shape[2:])))
            cost = self.inputs.shape[1] * (padded + 2 * self.shape.positions)
        return blocks(self.examples, cost, self.device)

    def _allocate(self, examples: int) -> Tensor:
        return self.gradients.new_empty(examples, self.geometry.groups, self.geometry.outputs, self.geometry.inputs)

    def _view_as_kernels(self, gradients: Tensor) -> Tensor:
        out, split_groups, *kernel = self.geometry.shape
        return gradients.view(-1, out, *kernel, split_groups)

    def _form(self, into: Callable[[slice], Tensor]) -> Iterator[slice]:
        """Write the gradients of each block of examples into its memory, then yield the block."""
        if self._depthwise:
            for block in self._blocks():
                gradients = _form_depthwise(self.geometry, self.inputs[block], self.gradients[block])
                into(block).copy_(gradients[:, :, None])
                yield block
            return
        for block, grad in self._linear_grads():
            formed = into(block).flatten(0, 1)
            if self.geometry.outputs_fill_vectors:
                formed.copy_(torch.bmm(grad.inputs.transpose(1, 2), grad.gradients).transpose(1, 2))
            else:
                torch.bmm(grad.gradients.transpose(1, 2), grad.inputs, out=formed)
            yield block

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², by the method that is cheapest for the sizes."""
        return recompute_cancelled(squared_kernel_norms(self.geometry, self.inputs, self.gradients), self)

    def abs_norm_bound(self) -> Tensor:
        """Return the sum over the positions, as for a linear map of patches."""
        return torch.cat([grad.abs_norm_bound().view(-1, self.geometry.groups).sum(1) for _, grad in self._linear_grads()])

    def _linear_grads(self) -> Iterator[tuple[slice, LinearGrad]]:
        """Yield blocks of examples, and their gradients as those of a linear map of patches; valid until the next block."""
        cut = blocks(self.examples, self.numel_per_example, self.device)
        for block, patches in zip(cut, self.geometry.patches_of(self.inputs, cut), strict=True):
            yield block, LinearGrad(patches, self.geometry.split_groups(self.gradients[block]).transpose(1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ by torch's own kernel gradient, with weighted output gradients."""
        scaled = self.gradients * weights.to(self.dtype).view(-1, *[1] * (self.gradients.dim() - 1))
        return self.geometry.weight_gradient(self.inputs, scaled)


def _form_depthwise(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    """Return a block's gradients for kernels that see one channel, (b, C, *space) and (b, C, *positions) → (b, C, taps).

    Computed tap by tap, without patches, and channels last, so that each product runs over all channels at once.
    """
    padded, grad = geometry.pad_channels_last(x), grad.movedim(1, -1).contiguous()
    taps = list(itertools.product(*map(range, geometry.kernel)))
    gradients, products = x.new_empty(len(taps), len(x), x.shape[1]), torch.empty_like(grad)
    for tap, into in zip(taps, gradients, strict=True):
        torch.mul(geometry.tap_view(tap, padded), grad, out=products)
        torch.sum(products.flatten(1, -2), dim=1, out=into)
    return gradients.permute(1, 2, 0)


class ConvDenseGrad(StoredGrad):
    """Stored gradients of a convolution kernel, channels last as they were computed, (B, out, *kernel, in / groups)."""

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the kernel)."""
        return self.gradients.movedim(-1, 2)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        total = weights.to(self.dtype) @ self.gradients.flatten(1)
        return total.view(self.gradients.shape[1:]).movedim(-1, 1).contiguous()


def choose_grad(grad: ConvGrad) -> PerExampleGrad:
    """Return the factors, or the materialised gradients where storing those is faster and takes little memory."""
    shape = grad.shape
    small = shape.weight <= KEEP * shape.factors
    return grad.to_dense() if small and is_keeping_cheaper(shape) else grad
