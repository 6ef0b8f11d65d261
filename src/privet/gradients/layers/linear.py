"""Linear maps: y = x Wᵀ + b over any number of positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.norms import CANCELLED, blocks, product_norms, underflow
from privet.gradients.core.per_example import DenseGrad, OutputGrad, PerExampleGrad, add_rounding_error, recompute_cancelled
from privet.gradients.core.recorder import Recorder

# Numbers that a product adds up before it adds the result to the others.
_PANEL = 384
# Gradients are stored if they have at most this many times the elements of the inputs and output gradients, which are then
# discarded. How many examples there are must not matter: a stored gradient has another bound of its rounding.
KEEP = 1
# Most terms, and fewest numbers of the result, for which a sum of outer products is computed in blocks of rows, and their size.
_FEW, _LARGE, _BLOCK = 8, 600_000, 64


@dataclass(frozen=True, eq=False)
class LinearGrad(OutputGrad):
    """Gradients of a weight used as y = x Wᵀ: Σₜ gₜ aₜᵀ over the positions t of an example."""

    inputs: Tensor  # aₜ, (B, T, d)
    gradients: Tensor  # gₜ, (B, T, p)

    @property
    def numel_per_example(self) -> int:
        """d·p."""
        return self.inputs.shape[2] * self.gradients.shape[2]

    @property
    def summands(self) -> int:
        """T."""
        return self.inputs.shape[1]

    @property
    def norm_factors(self) -> tuple[Tensor, ...]:
        """aₜ and gₜ, if there is one position."""
        return (self.inputs, self.gradients) if self.inputs.shape[1] == 1 else ()

    def materialize(self) -> Tensor:
        """Return the gradients, (B, p, d)."""
        return torch.bmm(self.gradients.transpose(1, 2), self.inputs)

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: a product of norms for one position, else from Gram matrices or gradients, whichever is cheaper.

        ‖Σₜ gₜ aₜᵀ‖² = Σₛₜ ⟨aₛ, aₜ⟩⟨gₛ, gₜ⟩ costs T²(d + p) multiplications instead of T·d·p (Goodfellow 2015; Li et al. 2022).
        """
        _, positions, d = self.inputs.shape
        p = self.gradients.shape[2]
        if positions == 1:
            return product_norms(self.inputs, self.gradients)
        if positions * (d + p) >= d * p:
            return super().squared_norms()
        parts = []
        for block in blocks(self.examples, positions * (d + p + 2 * positions), self.device):
            a, g = self.inputs[block], self.gradients[block]
            parts.append(gram_sums(torch.bmm(a, a.transpose(1, 2)), torch.bmm(g, g.transpose(1, 2)), (d, p)))
        return recompute_cancelled(torch.cat(parts), self)

    def abs_norm_bound(self) -> Tensor:
        """Return Σₜ |gₜ||aₜ|."""
        a, g = _lengths(self.inputs), _lengths(self.gradients)
        lengths: Tensor = a.double() * g.double()
        return lengths.sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ by one product, with the weights on the narrower factor."""
        a, g, w = self.inputs, self.gradients, weights.to(self.inputs.dtype).view(-1, 1, 1)
        if g.stride(0) < g.stride(1):  # time comes first in memory: summing in that order avoids a copy
            a, g, w = a.transpose(0, 1), g.transpose(0, 1), w.transpose(0, 1)
        a, g = (a * w, g) if a.shape[2] <= g.shape[2] else (a, g * w)
        return _sum_outer_products(g.flatten(0, 1), a.flatten(0, 1))


def _sum_outer_products(g: Tensor, a: Tensor) -> Tensor:
    """Return Σₙ gₙ aₙᵀ, (n, p) and (n, d) → (p, d).

    With few terms MKL goes once more than it must through a result larger than a cache: blocks of rows save up to half the time.
    """
    (terms, rows), width = g.shape, a.shape[1]
    if not 1 < terms <= _FEW or rows % _BLOCK or rows * width < _LARGE or g.device.type != "cpu":
        return torch.mm(g.t(), a)
    blocks_of_rows = g.unflatten(1, (-1, _BLOCK)).permute(1, 2, 0)
    return torch.bmm(blocks_of_rows, a.expand(rows // _BLOCK, terms, width)).view(rows, width)


def _lengths(x: Tensor) -> Tensor:
    # torch's norm takes 20 times as long for vectors that are not contiguous.
    return torch.linalg.vector_norm(x, dim=2) if x.stride(2) == 1 else x.square().sum(2).sqrt_()


def gram_sums(first: Tensor, second: Tensor, lengths: tuple[int, int]) -> Tensor:
    """Return the inner products of two Gram matrices, (B, T, T) → (B,) float64, rounded up; the first is overwritten.

    When terms cancel, a rounding error remains that could hide a long gradient. The T² products, of average size
    (Σₜ |aₜ||gₜ|)²/T², each have a relative error of eps with random sign: eps·(Σₜ |aₜ||gₜ|)²/T in total, of which √T times as
    much is added. The inner products that they are made of add up d or p numbers, the `lengths`, which may all be rounded in one
    direction, by half a unit each, until the next part is begun: this is added as well. Results that are not much larger are NaN,
    as Gram matrices of this precision cannot resolve them. Entries that underflow have an error of the smallest number times the
    length of the vectors, times the other matrix. The weighted sum adds the T terms one by one; its rounding is added, too.
    """
    hidden = sum(
        underflow(length, other.dtype) ** 2 * other.diagonal(dim1=1, dim2=2).sqrt().sum(1, dtype=torch.float64).square_()
        for length, other in zip(lengths, (second, first), strict=True)
    )
    products = first.mul_(second)
    squares = products.flatten(1).sum(1, dtype=torch.float64)
    bound = products.diagonal(dim1=1, dim2=2).sqrt().sum(1, dtype=torch.float64).square_()
    squares = squares.where(squares >= CANCELLED * bound, torch.nan)
    summed = sum(min(length, _PANEL) for length in lengths)
    error = torch.finfo(products.dtype).eps * (2 / math.sqrt(products.shape[1]) + summed / 2)
    return add_rounding_error(squares + hidden + error * bound, bound.sqrt_(), products.dtype, products.shape[1])


def follow_linear(recorder: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None, *, transposed: bool) -> Tensor:
    """Follow x Wᵀ + b, or x W + b if `transposed`, for x (B, …, d), or (B·n, …, d) with n rows per example."""
    positions = math.prod(x.shape[:-1]) // max(1, recorder.examples)  # of all rows of an example

    def record(inputs: Tensor, grad: Tensor) -> None:
        if not positions:  # no example has a gradient
            return
        g = recorder.promote(grad, weight).reshape(recorder.examples, positions, grad.shape[-1])
        if recorder.follows(weight):
            a = recorder.promote(inputs.reshape(recorder.examples, positions, inputs.shape[-1]), weight)
            recorder.add(weight, choose_grad(g, a) if transposed else choose_grad(a, g))
        if recorder.follows(bias):
            recorder.add(bias, DenseGrad(g.squeeze(1) if positions == 1 else g.sum(1)))

    def compute(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # As rows in here, x has no view in the graph.
        rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
        return F.linear(rows, weight.t() if transposed else weight, bias)

    def pull_back(grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        weight = weight.to(grad.dtype)
        return (grad @ (weight.t() if transposed else weight)).view(x.shape)

    # Nothing else may keep tensors that hooks save, such as those of checkpoints.
    if positions == 1 and torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
        result = recorder.observe(x, (weight, bias), compute, record)
    else:
        result = recorder.map(x, (weight, bias), compute, pull_back, record)
    return result if x.dim() == 2 else result.view(*x.shape[:-1], result.shape[-1])


def is_complex(*factors: Tensor) -> bool:
    """Return whether a factor is complex: gradients of such a product have the conjugate of the other, which no rule forms."""
    return any(map(torch.is_complex, factors))


def choose_grad(inputs: Tensor, gradients: Tensor) -> PerExampleGrad:
    """Return the factors, or the materialised gradients where those are smaller or needed for the norm anyway."""
    grad = LinearGrad(inputs, gradients)
    return DenseGrad(grad.materialize()) if is_smaller(inputs.shape[1], grad) else grad


def is_smaller(positions: int, grad: LinearGrad) -> bool:
    """Return whether the gradients of a linear map are smaller than their factors at a number of positions: they are then stored.

    Products with small matrices add up all positions of all examples in turn, each rounded to the precision of the sum so far.
    """
    d, p = grad.inputs.shape[2], grad.gradients.shape[2]
    return d * p <= KEEP * positions * (d + p)


@register_handler(F.linear)
def linear(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Follow `F.linear`; None for a weight of one dimension, or per example, for complex numbers, or a broadcast bias."""
    if weight.dim() != 2 or not recorder.is_shared(weight, bias) or recorder.is_shared(input):
        return None
    if input.is_complex() or weight.is_complex():
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        return None
    return follow_linear(recorder, input, weight, bias, transposed=False)
