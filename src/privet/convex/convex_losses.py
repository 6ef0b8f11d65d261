"""Convex losses of linear models, with the constants that stability and privacy are computed from.

A model has scores θ·x, (K,) per example. All constants are for rows of features with ‖x‖ ≤ 1, which `bound_rows` enforces.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.errors import InvalidArgumentError, count, positive


class ConvexLoss(ABC):
    """A convex loss ℓ(θ; x, y) of the scores of a linear model; tests measure its public constants on extreme examples."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of scores K of an example."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """L: largest L2 norm of the gradient of one example's loss in θ, at any θ."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """β: largest eigenvalue of the second derivative of one example's loss in θ, at any θ."""

    @property
    @abstractmethod
    def tails(self) -> int:
        """T: number of directions that the gradient of one example can push in, for a given label.

        For every vector v, ⟨∇ℓ, v⟩ is at most the largest positive part of T inner products of v with fixed vectors of length L.
        """

    @property
    @abstractmethod
    def at_zero(self) -> float:
        """Largest loss of one example at θ = 0."""

    @abstractmethod
    def log_determinant(self, regularisation: float) -> float:
        """Return the largest increase of log det(∇²F) by one example, where ∇²F ⪰ Λ·I."""

    @abstractmethod
    def encode(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return targets (N,) in the form of `evaluate`, and which of them are usable, (N,) bool; others contribute nothing."""

    @abstractmethod
    def evaluate(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (N,) and their derivatives in the scores (N, K)."""

    @abstractmethod
    def multiply_hessian(self, scores: Tensor, targets: Tensor, direction: Tensor) -> Tensor:
        """Return the second derivatives in the scores times a direction, (N, K)."""

    @abstractmethod
    def split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parts of weights (K, p) that the losses do and do not depend on; they add up to the weights.

        For all examples together, ∇² ⪯ β·XᵀX on the first part, and 0 on the second.
        """


@dataclass(frozen=True)
class Logistic(ConvexLoss):
    """The cross-entropy of multinomial logistic regression.

    Args:
        classes: public number of classes K ≥ 2.

    Guarantee:
        With probabilities p, the derivative in the scores is p − e_y, which is shorter than √2, and is a mixture of the K vectors
        e_k − e_y, of which K − 1 are not zero. The second derivative diag(p) − ppᵀ is at most ½·(I − 11ᵀ/K) and has the trace
        1 − Σp² ≤ 1 − 1/K.

    Source:
        Böhning 1992, "Multinomial logistic regression algorithm", for the bound on the second derivative.

    >>> round(Logistic(2).log_determinant(1.0), 4)  # log(1 + 1/2)
    0.4055
    """

    classes: int

    def __post_init__(self) -> None:
        count("loss.classes", self.classes, minimum=2)

    lipschitz: ClassVar[float] = math.sqrt(2)
    curvature: ClassVar[float] = 0.5

    @property
    def outputs(self) -> int:
        """K."""
        return self.classes

    @property
    def tails(self) -> int:
        """K − 1: the gradient pushes toward some class other than the label."""
        return self.classes - 1

    @property
    def at_zero(self) -> float:
        """log K."""
        return math.log(self.classes)

    def log_determinant(self, regularisation: float) -> float:
        """Return (K − 1)·log(1 + 1/(KΛ)): K − 1 eigenvalues that sum to at most 1 − 1/K add most if they are equal."""
        return (self.classes - 1) * math.log1p(1 / (self.classes * positive("regularisation", regularisation)))

    def encode(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels; one outside of 0 … K − 1 is not usable."""
        labels = targets.to(torch.int64)
        known = (labels >= 0) & (labels < self.classes)
        return torch.where(known, labels, 0), known

    def evaluate(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return −log p_y and p − e_y."""
        logs = scores.log_softmax(1)
        losses = -logs.gather(1, targets[:, None])[:, 0]
        return losses, logs.exp() - F.one_hot(targets, self.classes)

    def multiply_hessian(self, scores: Tensor, targets: Tensor, direction: Tensor) -> Tensor:
        """Return (diag(p) − ppᵀ)·v."""
        probabilities = scores.softmax(1)
        weighted = probabilities * direction
        return weighted - probabilities * weighted.sum(1, keepdim=True)

    def split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights minus their mean over classes, and that mean, which shifts all scores alike."""
        mean = weights.mean(0, keepdim=True).expand_as(weights)
        return weights - mean, mean


@dataclass(frozen=True)
class AdjustedLogistic(Logistic):
    """The cross-entropy of scores that are shifted by the logarithms of class priors, so that every class counts alike.

    Args:
        classes: public number of classes K ≥ 2.
        priors: K public frequencies of the classes in order, > 0.

    Guarantee:
        A constant shift of the scores changes p, and none of the bounds of `Logistic`, which hold for every p.

    Source:
        Menon et al. 2021, "Long-tail learning via logit adjustment", Eq. 10.

    >>> losses, _ = AdjustedLogistic(2, (0.75, 0.25)).evaluate(torch.zeros(2, 2), torch.tensor([0, 1]))
    >>> [round(x, 3) for x in losses.exp().tolist()]  # one over the priors
    [1.333, 4.0]
    """

    priors: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "priors", tuple(positive("loss.priors", prior) for prior in self.priors))
        if len(self.priors) != self.classes:
            raise InvalidArgumentError("loss.priors", self.priors, f"{self.classes} numbers, one per class in their order")

    @property
    def at_zero(self) -> float:
        """That of the rarest class."""
        return math.log(sum(self.priors) / min(self.priors))

    def evaluate(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return −log p_y and p − e_y of the shifted scores."""
        return super().evaluate(scores + self._shift(scores), targets)

    def multiply_hessian(self, scores: Tensor, targets: Tensor, direction: Tensor) -> Tensor:
        """Return (diag(p) − ppᵀ)·v at the shifted scores."""
        return super().multiply_hessian(scores + self._shift(scores), targets, direction)

    def _shift(self, scores: Tensor) -> Tensor:
        return scores.new_tensor(self.priors).log()


@dataclass(frozen=True)
class Huber(ConvexLoss):
    """Least squares with clipped residuals: ½·r² up to the threshold τ, and τ·|r| − ½·τ² beyond it, for r = θ·x − y.

    The squared loss itself has gradients of any size, so no noise suffices for it. This loss has its gradients, with residuals
    clipped to [−τ, τ], and its minimum if no residual is larger.

    Args:
        threshold: τ > 0, in the unit of the scaled target, which lies in [−1, 1].

    >>> Huber(0.5).lipschitz
    0.5
    """

    threshold: float = 0.25

    def __post_init__(self) -> None:
        positive("loss.threshold", self.threshold, "Targets are scaled to [-1, 1].")

    outputs: ClassVar[int] = 1
    curvature: ClassVar[float] = 1.0
    tails: ClassVar[int] = 2  # the residual has either sign

    @property
    def lipschitz(self) -> float:
        """τ."""
        return self.threshold

    @property
    def at_zero(self) -> float:
        """Of a target at an end of [−1, 1]."""
        return 0.5 if self.threshold >= 1 else self.threshold - 0.5 * self.threshold**2

    def log_determinant(self, regularisation: float) -> float:
        """Return log(1 + 1/Λ): the second derivative is xxᵀ or zero."""
        return math.log1p(1 / positive("regularisation", regularisation))

    def encode(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets clipped to [−1, 1]; one that is not finite is not usable."""
        values = targets.to(torch.float64)
        known = values.isfinite()
        return torch.where(known, values, 0.0).clamp(-1, 1), known

    def evaluate(self, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses, and the clipped residuals."""
        residuals = scores[:, 0] - targets
        clipped = residuals.clamp(-self.threshold, self.threshold)
        return clipped * (residuals - 0.5 * clipped), clipped[:, None]

    def multiply_hessian(self, scores: Tensor, targets: Tensor, direction: Tensor) -> Tensor:
        """Return the direction where the residual is within the threshold, and zero elsewhere."""
        within = (scores[:, 0] - targets).abs() <= self.threshold
        return direction * within[:, None]

    def split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights, and zero."""
        return weights, torch.zeros_like(weights)
