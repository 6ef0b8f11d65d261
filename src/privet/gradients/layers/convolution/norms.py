"""Norms of the gradients of kernels: the ways to measure them, and which is the cheapest for a shape.

A kernel is a linear map of the patches that it sees, so with aₜ for patches and gₜ for output gradients an example's gradient is
Σₜ gₜ aₜᵀ, per group, and what holds for linear maps holds here. On top, the Gram matrix of the patches follows from that of the
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks, factor_norms, squared_norms
from privet.gradients.core.per_example import rounded_up
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.linear import LinearGrad, gram_sums

# Prices of what is not a matrix product, in multiplications of one, fitted to single convolutions on one AVX-512 core in float32.
_PATCH = 20  # a number copied into a patch
_FORMED = 25  # a number of a gradient that is measured in cache and dropped
_KEPT = 35  # a number of a gradient that is kept, measured and read again for the weighted sum
_PAIR = 30  # an entry of the Gram matrices, multiplied and summed
_DIAGONAL = 15  # an entry added along the diagonals
_FACTOR = 60  # a number of the input and the output gradient, weighted and reordered by torch for its weighted sum
# Products of fewer rows than this take as long.
_TILE = 16


@dataclass(frozen=True)
class Shape:
    """The sizes that costs depend on, of one group of one example.

    Args:
        inputs: d, numbers in a patch.
        outputs: p, output channels.
        positions: T.
        channels: numbers of a pixel.
        pixels: S.
        taps: numbers of the kernel along each dimension of space.
        gram: whether the Gram matrix of the pixels gives that of the patches.
    """

    inputs: int
    outputs: int
    positions: int
    channels: int
    pixels: int
    taps: tuple[int, ...]
    gram: bool

    @staticmethod
    def of(geometry: Geometry, x: Tensor, grad: Tensor) -> Shape:
        """Return the shape of a use."""
        return Shape(
            geometry.inputs, geometry.outputs, math.prod(grad.shape[2:]), geometry.shape[1], math.prod(x.shape[2:]),
            geometry.kernel, all(stride == 1 for stride in geometry.stride),
        )  # fmt: skip

    @property
    def weight(self) -> int:
        """d·p."""
        return self.inputs * self.outputs

    @property
    def forming(self) -> int:
        """Cost of the patches, and of the product that forms a gradient or a weighted sum of them."""
        copied = 0 if math.prod(self.taps) == 1 else _PATCH * self.positions * self.inputs
        return copied + self.positions * self.weight

    @property
    def keeping(self) -> int:
        """Cost of a gradient that serves the norm and the weighted sum."""
        return self.forming + _KEPT * self.weight

    @property
    def pairs(self) -> int:
        """Entries of a Gram matrix of positions, as far as time is concerned."""
        return (-(-self.positions // _TILE) * _TILE) ** 2

    @property
    def summing(self) -> int:
        """Cost of torch's weighted sum."""
        return self.positions * self.weight + _FACTOR * self.factors

    @property
    def factors(self) -> int:
        """Numbers of the input and of the output gradient."""
        return self.pixels * self.channels + self.positions * self.outputs


@dataclass(frozen=True)
class Way:
    """A way to measure.

    Args:
        cost: of a shape, in multiplications, without the weighted sum; infinite where the way cannot be gone.
        squares: (geometry, inputs, output gradients) of a block of examples → squared norms, (block·groups,) float64.
        numbers: that one group of one example takes in the meantime.
    """

    cost: Callable[[Shape], float]
    squares: Callable[[Geometry, Tensor, Tensor], Tensor]
    numbers: Callable[[Shape], int]


def _formed(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    use = LinearGrad(geometry.patches(x), geometry.per_group(grad).transpose(1, 2))
    return rounded_up(squared_norms(use.materialize()), use)


def _product(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    return (factor_norms(geometry.patches(x)) * factor_norms(geometry.per_group(grad))).square_()


def _gram_of_patches(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    a, g = geometry.patches(x), geometry.per_group(grad)
    return gram_sums(torch.bmm(a, a.transpose(1, 2)), torch.bmm(g.transpose(1, 2), g), (a.shape[2], g.shape[1]))


def _gram_of_pixels(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    g = geometry.per_group(grad)
    return gram_sums(geometry.patch_gram(x), torch.bmm(g.transpose(1, 2), g), (geometry.inputs, g.shape[1]))


WAYS = {
    "product of norms": Way(
        lambda s: 0 if s.positions == 1 else math.inf, _product, lambda s: s.inputs + s.outputs
    ),
    "formed": Way(
        lambda s: s.forming + _FORMED * s.weight, _formed, lambda s: s.positions * s.inputs + s.weight
    ),
    "Gram of patches": Way(
        lambda s: _PATCH * s.positions * s.inputs + s.pairs * (s.inputs + s.outputs + _PAIR),
        _gram_of_patches, lambda s: s.positions * s.inputs + 2 * s.positions**2,
    ),
    "Gram of pixels": Way(
        lambda s: s.pixels**2 * (s.channels + _DIAGONAL * sum(s.taps)) + s.pairs * (s.outputs + _PAIR)
        if s.gram else math.inf,
        _gram_of_pixels, lambda s: 2 * s.pixels**2 + s.positions**2,
    ),
}  # fmt: skip


def cheapest(shape: Shape) -> Way:
    """Return the way to measure that costs least."""
    return min(WAYS.values(), key=lambda way: way.cost(shape))


def keeping_is_cheaper(shape: Shape) -> bool:
    """Return whether one gradient for norm and weighted sum costs less than the cheapest norm and torch's weighted sum."""
    return shape.keeping <= cheapest(shape).cost(shape) + shape.summing


def squared_kernel_norms(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    """Return the squared norm of every example's gradient of the kernel, (B,) float64, in the cheapest way.

    Args:
        x: inputs, (B, C, *space).
        grad: output gradients, (B, out, *positions).
    """
    return measured(cheapest(Shape.of(geometry, x, grad)), geometry, x, grad)


def measured(way: Way, geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    """Return what `squared_kernel_norms` does, in a way that can be gone."""
    cut = blocks(len(x), geometry.groups * way.numbers(Shape.of(geometry, x, grad)), x.device)
    return torch.cat([way.squares(geometry, x[block], grad[block]).view(-1, geometry.groups).sum(1) for block in cut])
