"""Norms of kernel gradients: methods to compute them, and the choice of the cheapest for a shape.

A convolution is a linear map of its patches: with patches aₜ and output gradients gₜ, an example's gradient is Σₜ gₜ aₜᵀ per
group, and the formulas for linear maps apply. In addition, the Gram matrix of the patches follows from that of the pixels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.gradients.core.norms import blocks, product_norms, squared_norms
from privet.gradients.core.per_example import round_up
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.linear import LinearGrad, gram_sums

# Costs of operations besides matrix products, in multiplications of a matrix product; fitted to single convolutions in float32 on
# one AVX-512 core.
_PATCH = 20  # copy one element into a patch
_FORMED = 25  # one element of a gradient whose norm is computed in cache, then discarded
_KEPT = 35  # one element of a gradient that is stored, and read again for norm and weighted sum
_PAIR = 30  # multiply and sum one entry of the Gram matrices
_DIAGONAL = 15  # add one entry along the diagonals
_FACTOR = 60  # one element of the input and the output gradient, weighted and reordered by torch for its weighted sum
# Products with fewer rows than this take as long as with this many.
_TILE = 16


@dataclass(frozen=True)
class Shape:
    """Sizes that determine costs, for one group of one example."""

    inputs: int  # d, elements of a patch
    outputs: int  # p, output channels
    positions: int  # T
    channels: int  # elements of a pixel
    pixels: int  # S
    taps: tuple[int, ...]  # size of the kernel along each spatial dimension
    gram: bool  # whether the Gram matrix of the patches follows from that of the pixels

    @functools.cached_property
    def weight(self) -> int:
        """d·p."""
        return self.inputs * self.outputs

    @property
    def forming(self) -> int:
        """Cost of the patches, and of the product that computes a gradient or a weighted sum from them."""
        copied = 0 if math.prod(self.taps) == 1 else _PATCH * self.positions * self.inputs
        return copied + self.positions * self.weight

    @property
    def keeping(self) -> int:
        """Cost of a stored gradient that is used for the norm and the weighted sum."""
        return self.forming + _KEPT * self.weight

    @property
    def pairs(self) -> int:
        """Effective number of entries of a Gram matrix over positions, rounded up to whole tiles."""
        return (-(-self.positions // _TILE) * _TILE) ** 2

    @property
    def summing(self) -> int:
        """Cost of torch's weighted sum."""
        return self.positions * self.weight + _FACTOR * self.factors

    @functools.cached_property
    def factors(self) -> int:
        """Number of elements of the input and of the output gradient."""
        return self.pixels * self.channels + self.positions * self.outputs


@functools.lru_cache(maxsize=1024)
def find_shape(geometry: Geometry, space: Sequence[int], positions: Sequence[int]) -> Shape:
    """Return the shape for inputs and output gradients of these sizes."""
    unit = all(stride == 1 for stride in geometry.stride)
    sizes = geometry.inputs, geometry.outputs, math.prod(positions), geometry.shape[1], math.prod(space)
    return Shape(*sizes, geometry.kernel, unit)


@dataclass(frozen=True)
class NormMethod:
    """A method to compute norms of kernel gradients."""

    cost: Callable[[Shape], float]  # in multiplications, without the weighted sum; infinite where it does not apply
    squares: Callable[[Geometry, Tensor, Tensor], Tensor]  # of a block → squared norms, (block·groups,)
    numbers: Callable[[Shape], int]  # elements of temporary memory for one group of one example


def _norms_of_formed(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    linear = LinearGrad(geometry.patches(x), geometry.split_groups(grad).transpose(1, 2))
    return round_up(squared_norms(linear.materialize()), linear)


def _norms_of_product(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    return product_norms(geometry.patches(x), geometry.split_groups(grad))


def _norms_by_patch_gram(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    a, g = geometry.patches(x), geometry.split_groups(grad)
    return gram_sums(torch.bmm(a, a.transpose(1, 2)), torch.bmm(g.transpose(1, 2), g), (a.shape[2], g.shape[1]))


def _norms_by_pixel_gram(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    g = geometry.split_groups(grad)
    return gram_sums(geometry.patch_gram(x), torch.bmm(g.transpose(1, 2), g), (geometry.inputs, g.shape[1]))


NORM_METHODS = {
    "product of norms": NormMethod(
        lambda s: 0 if s.positions == 1 else math.inf, _norms_of_product, lambda s: s.inputs + s.outputs
    ),
    "formed": NormMethod(
        lambda s: s.forming + _FORMED * s.weight, _norms_of_formed, lambda s: s.positions * s.inputs + s.weight
    ),
    "Gram of patches": NormMethod(
        lambda s: _PATCH * s.positions * s.inputs + s.pairs * (s.inputs + s.outputs + _PAIR),
        _norms_by_patch_gram, lambda s: s.positions * s.inputs + 2 * s.positions**2,
    ),
    "Gram of pixels": NormMethod(
        lambda s: s.pixels**2 * (s.channels + _DIAGONAL * sum(s.taps)) + s.pairs * (s.outputs + _PAIR)
        if s.gram else math.inf,
        _norms_by_pixel_gram, lambda s: 2 * s.pixels**2 + s.positions**2,
    ),
}  # fmt: skip


@functools.lru_cache(maxsize=1024)
def cheapest_method(shape: Shape) -> NormMethod:
    """Return the method with the lowest cost."""
    return min(NORM_METHODS.values(), key=lambda method: method.cost(shape))


@functools.lru_cache(maxsize=1024)
def is_keeping_cheaper(shape: Shape) -> bool:
    """Return whether a stored gradient costs no more than the cheapest norm plus torch's weighted sum."""
    return shape.keeping <= cheapest_method(shape).cost(shape) + shape.summing


def squared_kernel_norms(geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    """Return every example's squared norm, (B,) float64, from (B, C, *space) and (B, out, *positions), by the cheapest method."""
    return measure(cheapest_method(find_shape(geometry, x.shape[2:], grad.shape[2:])), geometry, x, grad)


def measure(method: NormMethod, geometry: Geometry, x: Tensor, grad: Tensor) -> Tensor:
    """Compute `squared_kernel_norms` by a given method, which must apply to the shape."""
    cut = blocks(len(x), geometry.groups * method.numbers(find_shape(geometry, x.shape[2:], grad.shape[2:])), x.device)
    return torch.cat([method.squares(geometry, x[block], grad[block]).view(-1, geometry.groups).sum(1) for block in cut])
