"""Minimisation of a regularised convex loss, with a certificate: the norm of the gradient at the solution.

F(θ) = Σℓ(θ; x, y) + ½Λ‖θ‖² + ⟨b, θ⟩. Privacy needs a short gradient for every data set, so Newton's method, which nearly always
suffices, is followed by a method whose number of iterations is known in advance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.convex.convex_losses import ConvexLoss
from privet.errors import InvalidArgumentError, PrivetError

# Rows end up shorter than 1 by this share, so that no rounding error leaves a row longer than 1.
_MARGIN = 1e-6
CHUNK = 2048
_UNIT = 2.0**-53
# Operations whose rounding errors add up in one term beside the sums over features and examples, generously.
_OPERATIONS = 64
_NEWTON_STEPS, _INNER_STEPS, _HALVINGS = 30, 200, 30
# Rows of the sample on which the search starts, and of which the preconditioner is computed within so many multiplications.
_SAMPLE, _MULTIPLICATIONS = 2**15, 2e10


def bound_rows(inputs: Tensor, radius: float, intercept: float) -> Tensor:
    """Return rows (x, c)/R of features and intercept, scaled down where their norm exceeds 1; shape (N, D + 1).

    For classification, scaling a row down changes no prediction, because it scales all scores of the row alike.

    Args:
        inputs: (N, …) features, which are flattened.
        radius: R > 0, the largest norm that is left unchanged.
        intercept: c ≥ 0, appended to every row.

    Guarantee:
        Each row depends on one example alone. Its norm is at most 1 in exact arithmetic. A row that is not finite becomes zero,
        which contributes nothing.

    >>> bound_rows(torch.tensor([[3.0], [0.0]]), radius=2.0, intercept=1.0)
    tensor([[0.9487, 0.3162],
            [0.0000, 0.5000]])
    """
    rows = inputs.flatten(1)
    whole = torch.cat((rows, rows.new_full((len(rows), 1), intercept)), dim=1) / radius
    # The largest feature is divided out first, so that no square overflows.
    largest = whole.abs().amax(1, keepdim=True).clamp_min(1.0)
    norms = (whole / largest).norm(dim=1, keepdim=True) * largest
    bounded = whole / norms.clamp_min(1.0) * (1 - _MARGIN)
    return torch.where(bounded.isfinite().all(1, keepdim=True), bounded, torch.zeros_like(bounded))


def read_rows(inputs: Tensor, usable: Tensor, examples: int, features: int, radius: float, intercept: float) -> Tensor:
    """Return the bounded rows of a data set in float64; rows that are not usable, (N,) bool, become zero."""
    shape = (len(inputs), inputs[:1].numel())
    if shape != (examples, features) or len(usable) != examples:
        raise InvalidArgumentError("the shape of the data", shape, f"that of the plan, {(examples, features)}")
    rows = torch.zeros(examples, features + 1, dtype=torch.float64, device=inputs.device)
    for start in range(0, examples, CHUNK):
        part = slice(start, start + CHUNK)
        bounded = bound_rows(inputs[part].double(), radius, intercept)
        rows[part] = torch.where(usable[part, None], bounded, torch.zeros_like(bounded))
    return rows


@dataclass(frozen=True, eq=False)
class PerturbedObjective:
    """The perturbed objective on private rows."""

    loss: ConvexLoss
    rows: Tensor  # (N, p) float64, of norm at most 1
    targets: Tensor  # (N,) as `ConvexLoss.encode` returns them
    regularisation: float  # Λ > 0
    linear: Tensor  # b, (K, p) float64; zero without perturbation

    def evaluate(self, weights: Tensor) -> tuple[float, Tensor]:
        """Return F and ∇F at weights (K, p)."""
        value, gradient = torch.zeros((), dtype=torch.float64, device=weights.device), torch.zeros_like(weights)
        for part in self._parts():
            rows = self.rows[part]
            losses, slopes = self.loss.evaluate(rows @ weights.T, self.targets[part])
            value += losses.sum()
            gradient += slopes.T @ rows
        value += 0.5 * self.regularisation * weights.square().sum() + (self.linear * weights).sum()
        return float(value), gradient + self.regularisation * weights + self.linear

    def multiply_hessian(self, scores: Tensor, direction: Tensor) -> Tensor:
        """Return ∇²F times a direction (K, p), at weights with the scores (N, K)."""
        product = self.regularisation * direction
        for part in self._parts():
            rows = self.rows[part]
            product += self.loss.multiply_hessian(scores[part], self.targets[part], rows @ direction.T).T @ rows
        return product

    def every(self, stride: int) -> PerturbedObjective:
        """Return the objective of each `stride`-th row, divided by the stride."""
        if stride == 1:
            return self
        part = slice(None, None, stride)
        rows, targets = self.rows[part], self.targets[part]
        return PerturbedObjective(self.loss, rows, targets, self.regularisation / stride, self.linear / stride)

    def _parts(self) -> Iterator[slice]:
        for start in range(0, len(self.rows), CHUNK):
            yield slice(start, start + CHUNK)


def rounding_error(loss: ConvexLoss, examples: int, width: int, largest: float) -> float:
    """Return a bound on the rounding error of a computed gradient, in L2 norm, for weights of at most the `largest` norm.

    It is the textbook bound for sums in any order, within and over chunks of rows, in double precision.
    """
    sums = CHUNK + math.ceil(examples / CHUNK) + _OPERATIONS + loss.outputs
    scores = loss.curvature * (width + _OPERATIONS) * largest
    return 2 * _UNIT * examples * (loss.lipschitz * sums + scores) * math.sqrt(loss.outputs)


def minimise(objective: PerturbedObjective, tolerance: float) -> Tensor:
    """Return weights (K, p) at which the computed gradient is at most `tolerance` long; it must exceed `rounding_error`."""
    # The part of the weights that no loss depends on has its minimum in closed form.
    weights = -objective.loss.split(objective.linear)[1] / objective.regularisation
    stride = max(1, len(objective.rows) // _SAMPLE)
    if stride > 1:
        weights = _newton(objective.every(stride), weights, 1e-3 * objective.loss.lipschitz)
    weights = _newton(objective, weights, tolerance)
    if not _norm(objective.evaluate(weights)[1]) <= tolerance:
        weights = _accelerated(objective, tolerance)
    if not _norm(objective.evaluate(weights)[1]) <= tolerance:
        raise PrivetError("the minimiser was not found to the required precision: please report this as a defect")
    return weights


def _norm(gradient: Tensor) -> float:
    return float(gradient.norm())


def _newton(objective: PerturbedObjective, weights: Tensor, tolerance: float) -> Tensor:
    """Return weights after Newton steps, as long as they shorten the gradient or decrease F."""
    value, gradient = objective.evaluate(weights)
    first = _norm(gradient)
    for _ in range(_NEWTON_STEPS):
        length = _norm(gradient)
        if length <= tolerance:
            break
        share = min(0.1, math.sqrt(length / first))
        step = -_solve(objective, weights, gradient, max(0.3 * tolerance, share * length))
        slope, size = float((gradient * step).sum()), 1.0
        for _ in range(_HALVINGS):
            moved = weights + size * step
            new_value, new_gradient = objective.evaluate(moved)
            if new_value <= value + 1e-4 * size * slope or _norm(new_gradient) <= 0.5 * length:
                break
            size /= 2
        else:
            break
        weights, value, gradient = moved, new_value, new_gradient
    return weights


def _solve(objective: PerturbedObjective, weights: Tensor, gradient: Tensor, enough: float) -> Tensor:
    """Return about (∇²F)⁻¹ times the gradient, up to a residual of length `enough`, by preconditioned conjugate gradients."""
    scores = objective.rows @ weights.T
    factors = _precondition(objective, scores)

    def condition(residual: Tensor) -> Tensor:
        solved = torch.cholesky_solve(residual[:, :, None], factors)[:, :, 0]
        return objective.loss.split(solved)[0]

    solution, residual = torch.zeros_like(gradient), objective.loss.split(gradient)[0]
    direction = condition(residual)
    product = float((residual * direction).sum())
    for _ in range(_INNER_STEPS):
        if _norm(residual) <= enough or product <= 0:
            break
        along = objective.multiply_hessian(scores, direction)
        step = product / float((direction * along).sum())
        solution += step * direction
        residual = residual - step * along
        conditioned = condition(residual)
        before, product = product, float((residual * conditioned).sum())
        direction = conditioned + (product / before) * direction
    return solution


def _precondition(objective: PerturbedObjective, scores: Tensor) -> Tensor:
    """Return Cholesky factors (K, p, p) of the diagonal blocks of ∇²F, estimated on a sample of the rows."""
    (examples, width), outputs = objective.rows.shape, scores.shape[1]
    rows_at_most = min(_SAMPLE, max(2 * width, math.ceil(_MULTIPLICATIONS / (outputs * width**2))))
    stride = max(1, examples // rows_at_most)
    part = slice(None, None, stride)
    rows, targets, kept = objective.rows[part], objective.targets[part], scores[part]
    identity = torch.eye(width, dtype=torch.float64, device=rows.device)
    blocks = []
    for output in range(outputs):
        one = torch.zeros_like(kept)
        one[:, output] = 1
        curvatures = objective.loss.multiply_hessian(kept, targets, one)[:, output].clamp_min(0)
        blocks.append(stride * (rows * curvatures[:, None]).T @ rows + (objective.regularisation + _UNIT * examples) * identity)
    factors: Tensor = torch.linalg.cholesky(torch.stack(blocks))
    return factors


def _accelerated(objective: PerturbedObjective, tolerance: float) -> Tensor:
    """Return weights after Nesterov's method in coordinates in which M = β·XᵀX + Λ ⪰ ∇²F is the identity.

    In those coordinates the second derivatives lie between 1/κ and 1, with κ = (βN + Λ)/Λ at most. From zero, where the gradient
    is at most LN + ‖b‖ long, k iterations leave F above its minimum by at most 2·(1 − 1/√κ)^k times the difference at zero, which
    bounds the gradient. So their largest number depends on public numbers and b only.

    Source:
        Nesterov 2018, "Lectures on Convex Optimization", Theorem 2.2.1.
    """
    loss, rows, strength = objective.loss, objective.rows, objective.regularisation
    root = math.sqrt(loss.curvature * len(rows) / strength + 1)
    momentum = (root - 1) / (root + 1)
    first = loss.lipschitz * len(rows) + _norm(objective.linear)
    most = math.ceil(2 * root * max(0.0, math.log(first / tolerance) + math.log(root) + 2)) + 1
    bound = loss.curvature * (1 + 1e-9) * (rows.T @ rows)
    bound.diagonal().add_(strength)
    factor = torch.linalg.cholesky(bound)
    weights = before = torch.zeros_like(objective.linear)
    for _ in range(most):
        ahead = weights + momentum * (weights - before)
        gradient = objective.evaluate(ahead)[1]
        if _norm(gradient) <= tolerance:
            return ahead
        main, rest = loss.split(gradient)
        before, weights = weights, ahead - torch.cholesky_solve(main.T, factor).T - rest / strength
    return weights
