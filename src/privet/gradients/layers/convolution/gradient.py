"""Per-example gradients of convolution kernels over one, two or three dimensions."""

from __future__ import annotations

__all__ = ["KEEP", "ConvDenseGrad", "ConvGrad", "choose_grad"]

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks
from privet.gradients.core.per_example import OutputGrad, PerExampleGrad, StoredGrad, recompute_cancelled
from privet.gradients.layers.convolution import depthwise
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.convolution.norms import Shape, is_keeping_cheaper, squared_kernel_norms
from privet.gradients.layers.linear import LinearGrad

# Gradients are stored only if they have at most this many times the elements of the inputs and output gradients, which are then
# discarded: memory stays proportional to that of plain training.
KEEP = 3
# Products are fast if rows of the result are full vectors of _VECTOR numbers; in rows shorter than _MANY vectors, a partial
# vector is a significant part.
_VECTOR, _MANY = 16, 8


@dataclass(frozen=True, eq=False)
class ConvGrad(OutputGrad):
    """Gradients of the kernel of a convolution."""

    inputs: Tensor  # (B, C, *space)
    gradients: Tensor  # of the output, (B, out, *positions)
    geometry: Geometry

    @property
    def shape(self) -> Shape:
        """Sizes of one group of one example."""
        return Shape.of(self.geometry, self.inputs, self.gradients)

    @property
    def numel_per_example(self) -> int:
        """Number of elements of one example's patches and kernel gradient."""
        return self.geometry.groups * (self.shape.positions * self.shape.inputs + self.shape.weight)

    @property
    def summands(self) -> int:
        """The number of positions."""
        return self.shape.positions

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
        return depthwise.is_cheaper(self.geometry, self.inputs)

    @property
    def _outputs_fill_vectors(self) -> bool:
        """Whether output channels fill whole vectors and inputs do not, as in a network's first layer."""
        inputs, outputs = self.geometry.inputs, self.geometry.outputs
        return outputs % _VECTOR == 0 and inputs % _VECTOR != 0 and inputs < _MANY * _VECTOR

    def _blocks(self) -> list[slice]:
        """Return blocks of examples whose gradients are formed together."""
        cost = depthwise.count_numbers(self.geometry, self.inputs) if self._depthwise else self.numel_per_example
        return blocks(self.examples, cost, self.device)

    def _allocate(self, examples: int) -> Tensor:
        """Allocate memory for gradients, (examples, groups, p, d)."""
        return self.gradients.new_empty(examples, self.geometry.groups, self.geometry.outputs, self.geometry.inputs)

    def _view_as_kernels(self, gradients: Tensor) -> Tensor:
        """Return a view of memory in the layout of `ConvDenseGrad`."""
        out, split_groups, *kernel = self.geometry.shape
        return gradients.view(-1, out, *kernel, split_groups)

    def _form(self, into: Callable[[slice], Tensor]) -> Iterator[slice]:
        """Write the gradients of each block of examples into its memory, then yield the block."""
        if self._depthwise:
            for block in self._blocks():
                gradients = depthwise.form_gradients(self.geometry, self.inputs[block], self.gradients[block])
                into(block).copy_(gradients[:, :, None])
                yield block
            return
        for block, grad in self._linear_grads():
            formed = into(block).flatten(0, 1)
            if self._outputs_fill_vectors:
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
