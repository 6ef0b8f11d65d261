"""Kernels of convolutions over one, two or three dimensions: their per-example gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks
from privet.gradients.core.per_example import Factors, OutputGrad, PerExampleGrad, StoredGrad, resolved
from privet.gradients.layers.convolution import depthwise
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.convolution.norms import Shape, keeping_is_cheaper, squared_kernel_norms
from privet.gradients.layers.linear import LinearGrad

# Gradients are kept only while they take no more than so many times the numbers of the inputs and output gradients, which are
# not kept then: memory stays in proportion to what training takes anyway.
KEEP = 3
# Products are fast where rows of the result are whole vectors of so many numbers; of rows that are shorter than so many vectors,
# an incomplete one is a large part.
_VECTOR, _MANY = 16, 8


@dataclass(frozen=True, eq=False)
class ConvGrad(OutputGrad):
    """A kernel used as a convolution.

    Args:
        inputs: (B, C, *space).
        gradients: of the output, (B, out, *positions).
        geometry: how the kernel moves.
    """

    inputs: Tensor
    gradients: Tensor
    geometry: Geometry

    @property
    def shape(self) -> Shape:
        """Sizes of one group of one example."""
        return Shape.of(self.geometry, self.inputs, self.gradients)

    @property
    def numel_per_example(self) -> int:
        """Size of one example's patches and kernel gradient."""
        return self.geometry.groups * (self.shape.positions * self.shape.inputs + self.shape.weight)

    @property
    def summands(self) -> int:
        """The number of positions."""
        return self.shape.positions

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the kernel)."""
        return self.kept().materialize()

    def kept(self) -> ConvDenseGrad:
        """Return the use with its gradients formed."""
        gradients = self._memory(self.examples)
        for _ in self._form(gradients.__getitem__):
            pass
        return ConvDenseGrad(self._as_kernels(gradients))

    def formed(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of examples, and their gradients as `ConvDenseGrad` keeps them, which hold until the next block."""
        cut = self._blocks()
        memory = self._memory(cut[0].stop if cut else 0)
        for block in self._form(lambda block: memory[: block.stop - block.start]):
            yield block, self._as_kernels(memory[: block.stop - block.start])

    @property
    def _depthwise(self) -> bool:
        return depthwise.is_cheaper(self.geometry, self.inputs)

    @property
    def _faster_by_outputs(self) -> bool:
        """Whether outputs fill vectors and inputs do not, as in a network's first layer."""
        inputs, outputs = self.geometry.inputs, self.geometry.outputs
        return outputs % _VECTOR == 0 and inputs % _VECTOR != 0 and inputs < _MANY * _VECTOR

    def _blocks(self) -> list[slice]:
        """Return blocks of examples whose gradients are formed at once."""
        cost = depthwise.numbers(self.geometry, self.inputs) if self._depthwise else self.numel_per_example
        return blocks(self.examples, cost, self.device)

    def _memory(self, examples: int) -> Tensor:
        """Return memory for gradients, (examples, groups, p, d)."""
        return self.gradients.new_empty(examples, self.geometry.groups, self.geometry.outputs, self.geometry.inputs)

    def _as_kernels(self, gradients: Tensor) -> Tensor:
        """Return a view of memory as `ConvDenseGrad` keeps gradients."""
        out, per_group, *kernel = self.geometry.shape
        return gradients.view(-1, out, *kernel, per_group)

    def _form(self, into: Callable[[slice], Tensor]) -> Iterator[slice]:
        """Write the gradients of a block of examples into its memory, and yield the block; and so on."""
        if self._depthwise:
            for block in self._blocks():
                gradients = depthwise.formed(self.geometry, self.inputs[block], self.gradients[block])
                into(block).copy_(gradients[:, :, None])
                yield block
            return
        for block, use in self._linear_uses():
            formed = into(block).flatten(0, 1)
            if self._faster_by_outputs:
                formed.copy_(torch.bmm(use.inputs.transpose(1, 2), use.gradients).transpose(1, 2))
            else:
                torch.bmm(use.gradients.transpose(1, 2), use.inputs, out=formed)
            yield block

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖², in the way that is cheapest for the sizes."""
        return resolved(squared_kernel_norms(self.geometry, self.inputs, self.gradients), self)

    def abs_norm_bound(self) -> Tensor:
        """Return the sum over the positions, as for a linear map of the patches."""
        return torch.cat([use.abs_norm_bound().view(-1, self.geometry.groups).sum(1) for _, use in self._linear_uses()])

    def _linear_uses(self) -> Iterator[tuple[slice, LinearGrad]]:
        """Yield blocks of examples, and the kernel's use by them as a linear map of the patches, (block·groups, T, …).

        What is yielded holds until the next block, whose patches take the same memory.
        """
        cut = blocks(self.examples, self.numel_per_example, self.device)
        for block, patches in zip(cut, self.geometry.patches_of(self.inputs, cut), strict=True):
            yield block, LinearGrad(patches, self.geometry.per_group(self.gradients[block]).transpose(1, 2))

    def factors(self, multiple: int) -> Factors:
        """Return what gradients are made of, examples last and filled up with zeros to a multiple of this number; for one group.

        Patches are not formed: they lie in the padded input.
        """
        examples = -(-self.examples // multiple) * multiple
        left = self.gradients.new_zeros(*self.gradients.shape[1:], examples)
        left[..., : self.examples] = self.gradients.movedim(0, -1)
        padded, columns, positions = self.geometry.padded(self.inputs, examples)
        return Factors(left.flatten(1, -2), padded, columns * examples, positions * examples)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ by torch's own kernel gradient, with the weights on the output gradients."""
        scaled = self.gradients * weights.to(self.dtype).view(-1, *[1] * (self.gradients.dim() - 1))
        return self.geometry.weight_gradient(self.inputs, scaled)

    def index_select(self, index: Tensor | slice) -> ConvGrad:
        """Return the gradients of some of the examples."""
        return ConvGrad(self.inputs[index], self.gradients[index], self.geometry)

    def double(self) -> ConvGrad:
        """Return the same gradients in float64."""
        return ConvGrad(self.inputs.double(), self.gradients.double(), self.geometry)


class ConvDenseGrad(StoredGrad):
    """A kernel whose gradients are kept as they were formed, channels last, (B, out, *kernel, in / groups)."""

    def materialize(self) -> Tensor:
        """Return the gradients, (B, *shape of the kernel)."""
        return self.gradients.movedim(-1, 2)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ."""
        total = weights.to(self.dtype) @ self.gradients.flatten(1)
        return total.view(self.gradients.shape[1:]).movedim(-1, 1).contiguous()


def cheapest(use: ConvGrad) -> PerExampleGrad:
    """Return the factors, or the gradients themselves where keeping those costs less time and little memory."""
    shape = use.shape
    small = shape.weight <= KEEP * shape.factors
    return use.kept() if small and keeping_is_cheaper(shape) else use
