"""Linear maps: y = x Wᵀ + b over any number of positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.norms import CANCELLED, blocks, factor_norms, underflow
from privet.gradients.core.per_example import DenseGrad, OutputGrad, PerExampleGrad, resolved, with_rounding
from privet.gradients.core.recorder import Recorder

# Per-example gradients are kept, rather than formed again, while those of one weight take no more numbers than this.
KEEP = 1 << 23


@dataclass(frozen=True, eq=False)
class LinearGrad(OutputGrad):
    """A weight used as y = x Wᵀ: the gradient is Σₜ gₜ aₜᵀ over the positions t of an example.

    Args:
        inputs: aₜ, (B, T, d).
        gradients: gₜ, (B, T, p).
    """

    inputs: Tensor
    gradients: Tensor

    @property
    def numel_per_example(self) -> int:
        """d·p."""
        return self.inputs.shape[2] * self.gradients.shape[2]

    @property
    def summands(self) -> int:
        """T."""
        return self.inputs.shape[1]

    def materialize(self) -> Tensor:
        """Return the gradients, (B, p, d)."""
        return torch.bmm(self.gradients.transpose(1, 2), self.inputs)

    def squared_norms(self) -> Tensor:
        """Return ‖gᵢ‖²: a product of norms for one position, else whichever of Gram matrices and gradients is cheaper.

        ‖Σₜ gₜ aₜᵀ‖² = Σₛₜ ⟨aₛ, aₜ⟩⟨gₛ, gₜ⟩ costs T²(d + p) products instead of T·d·p (Goodfellow 2015; Li et al. 2022).
        """
        _, positions, d = self.inputs.shape
        p = self.gradients.shape[2]
        if positions == 1:
            return (factor_norms(self.inputs) * factor_norms(self.gradients)).square_()
        if positions * (d + p) >= d * p:
            return super().squared_norms()
        parts = []
        for block in blocks(self.examples, positions * (d + p + 2 * positions), self.device):
            a, g = self.inputs[block], self.gradients[block]
            parts.append(gram_sums(torch.bmm(a, a.transpose(1, 2)), torch.bmm(g, g.transpose(1, 2)), (d, p)))
        return resolved(torch.cat(parts), self)

    def abs_norm_bound(self) -> Tensor:
        """Return Σₜ |gₜ||aₜ|."""
        a, g = _lengths(self.inputs), _lengths(self.gradients)
        lengths: Tensor = a.double() * g.double()
        return lengths.sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ·gᵢ by one product, with the weights on the narrower factor."""
        a, g, w = self.inputs, self.gradients, weights.to(self.inputs.dtype)[:, None, None]
        if g.stride(0) < g.stride(1):  # time comes first in memory: summing in that order spares a copy
            a, g, w = a.transpose(0, 1), g.transpose(0, 1), w.transpose(0, 1)
        a, g = (a * w, g) if a.shape[2] <= g.shape[2] else (a, g * w)
        return g.flatten(0, 1).t() @ a.flatten(0, 1)

    def index_select(self, index: Tensor | slice) -> LinearGrad:
        """Return the gradients of some of the examples."""
        return LinearGrad(self.inputs[index], self.gradients[index])

    def double(self) -> LinearGrad:
        """Return the same gradients in float64."""
        return LinearGrad(self.inputs.double(), self.gradients.double())


def _lengths(x: Tensor) -> Tensor:
    """Return the norms of vectors (B, T, d) → (B, T)."""
    # torch's own norm takes 20 times as long where neighbours in a vector are none in memory.
    return torch.linalg.vector_norm(x, dim=2) if x.stride(2) == 1 else x.square().sum(2).sqrt_()


def gram_sums(first: Tensor, second: Tensor, lengths: tuple[int, int]) -> Tensor:
    """Return the sums of the products of two Gram matrices, (B, T, T) → (B,) float64, never too small; the first is used up.

    Terms that cancel leave a rounding error, which would hide a long gradient. The T² products, each as large as
    (Σₜ |aₜ||gₜ|)²/T² on average, are off by eps in either direction: by eps·(Σₜ |aₜ||gₜ|)²/T together, of which √T times as
    much is added. What is not much larger is NaN: not measurable by Gram matrices of this precision. Entries that underflow are
    off by the smallest number times the vectors' length, and the other matrix may be large, so that is added too. The weighted
    sum adds the T terms one after another: what that may round off is added to the norm.

    Args:
        first, second: Gram matrices.
        lengths: of the vectors that each is made of.
    """
    hidden = sum(
        underflow(length, other.dtype) ** 2 * other.diagonal(dim1=1, dim2=2).sqrt().sum(1, dtype=torch.float64).square_()
        for length, other in zip(lengths, (second, first), strict=True)
    )
    products = first.mul_(second)
    squares = products.flatten(1).sum(1, dtype=torch.float64)
    reach = products.diagonal(dim1=1, dim2=2).sqrt().sum(1, dtype=torch.float64).square_()
    squares = squares.where(squares >= CANCELLED * reach, torch.nan)
    off = 2 * torch.finfo(products.dtype).eps / math.sqrt(products.shape[1])
    return with_rounding(squares + hidden + off * reach, reach.sqrt_(), products.dtype, products.shape[1])


class _Product(torch.autograd.Function):
    """x Wᵀ + b, or x W + b for a transposed weight, whose backward passes on the input gradient only and records the rest."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool, record: Any
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.transposed, ctx.record = transposed, record
        return F.linear(x, weight.t() if transposed else weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.record(x.detach(), grad)
        into = None
        if ctx.needs_input_grad[1]:
            weight = weight.to(grad.dtype)
            into = (grad @ (weight.t() if ctx.transposed else weight)).to(x.dtype)
        return None, into, None, None, None, None


def product(recorder: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None, *, transposed: bool) -> Tensor:
    """Follow x Wᵀ + b, or x W + b for a transposed weight.

    Args:
        recorder: of the pass.
        x: (B, …, d), or (B·n, …, d) for n rows of each; all dimensions between are positions.
        weight: (p, d), or (d, p) if it is transposed.
        bias: (p,), or None.
        transposed: which of the two it is.
    """
    plain_weight, plain_bias = recorder.detach(weight, bias)
    positions = math.prod(x.shape[:-1]) // max(1, recorder.examples)  # of all rows of an example

    def record(inputs: Tensor, grad: Tensor) -> None:
        if not positions:  # nobody has a gradient
            return
        g = recorder.precise(grad.reshape(recorder.examples, positions, grad.shape[-1]), weight)
        if recorder.follows(weight):
            a = recorder.precise(inputs.reshape(recorder.examples, positions, inputs.shape[-1]), weight)
            recorder.add(weight, cheapest(g, a) if transposed else cheapest(a, g))
        if recorder.follows(bias):
            recorder.add(bias, DenseGrad(g.squeeze(1) if g.shape[1] == 1 else g.sum(1)))

    # A matrix: for more dimensions torch returns a view, which users may not write into when a function made it.
    rows = x.reshape(-1, x.shape[-1])
    result: Tensor = _Product.apply(recorder.anchor, rows, plain_weight, plain_bias, transposed, record)  # type: ignore[no-untyped-call]
    return result.view(*x.shape[:-1], result.shape[-1])


def cheapest(inputs: Tensor, gradients: Tensor) -> PerExampleGrad:
    """Return the factors, or the gradients themselves where those are smaller or needed for the norm anyway."""
    grad = LinearGrad(inputs, gradients)
    positions, d, p = inputs.shape[1], inputs.shape[2], gradients.shape[2]
    if positions * (d + p) >= d * p and grad.examples * grad.numel_per_example <= KEEP:
        return DenseGrad(grad.materialize())
    return grad


@register_handler(F.linear)
def linear(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Follow `F.linear`; None for a weight of one dimension, or one that belongs to examples."""
    if weight.dim() != 2 or not recorder.shared(weight, bias) or recorder.shared(input):
        return None
    return product(recorder, input, weight, bias, transposed=False)
