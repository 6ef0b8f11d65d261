"""Mechanisms for convex training: noise on the minimiser, or noise on the objective."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privet.accounting.classic import gaussian
from privet.accounting.events import MULTIPLIER_RANGE
from privet.convex import privacy_loss
from privet.convex.convex_losses import ConvexLoss
from privet.errors import InvalidArgumentError, real

# Noise multiplier of the minimiser over that of the objective: the noise on the minimiser then costs 1 % of µ².
_OUTPUT_RATIO = 10.0


@dataclass(frozen=True)
class Perturbation(ABC):
    """A mechanism for convex training."""

    ADJACENCIES: ClassVar[tuple[str, ...]]
    PERTURBS_OBJECTIVE: ClassVar[bool]

    multiplier: float | None = None  # σ in [1e-3, 1e6]; None until the plan is calibrated

    def __post_init__(self) -> None:
        low, high = MULTIPLIER_RANGE
        if self.multiplier is not None and not low <= real("mechanism.multiplier", self.multiplier) <= high:
            fix = "ConvexPlan.calibrate(epsilon) finds it."
            raise InvalidArgumentError("mechanism.multiplier", self.multiplier, f"between {low:g} and {high:g}", fix)

    @property
    @abstractmethod
    def queries(self) -> Mapping[str, float]:
        """Name → noise multiplier of every draw of noise, in order; the ledger records each before it is drawn."""

    @abstractmethod
    def sensitivity(self, loss: ConvexLoss, regularisation: float, tolerance: float) -> float:
        """Return the largest L2 distance that one example can move what the last query noises; γ is the tolerance."""

    @abstractmethod
    def delta(self, epsilon: float, loss: ConvexLoss, regularisation: float, adjacency: str) -> float:
        """Return δ at ε ≥ 0."""

    @abstractmethod
    def epsilon(self, delta: float, loss: ConvexLoss, regularisation: float, adjacency: str) -> float:
        """Return ε at δ in (0, 1)."""

    def check(self, loss: ConvexLoss, regularisation: float, epsilon: float) -> None:  # noqa: B027
        """Refuse a target ε that no noise reaches, if there are such; the error names the smallest regularisation."""

    def _known(self) -> float:
        if self.multiplier is None:
            raise InvalidArgumentError("mechanism.multiplier", None, "given", "ConvexPlan.calibrate(epsilon) finds it.")
        return self.multiplier


@dataclass(frozen=True)
class OutputPerturbation(Perturbation):
    """Gaussian noise on the minimiser of the regularised loss.

    Guarantee:
        F is Λ-strongly convex. At the minimiser of one data set, the gradient of a neighbour's objective is that of one example,
        at most L long, so the minimisers are at most L/Λ apart. Computed minimisers, with gradients of at most γ, are at most γ/Λ
        away from them. So adding or removing an example moves what is released by at most (L + 2γ)/Λ, and the release is one
        Gaussian mechanism, with ε in closed form. Replacing an example moves it by at most twice that.

    Source:
        Chaudhuri, Monteleoni, Sarwate 2011, "Differentially Private Empirical Risk Minimization", Algorithm 1, with Gaussian
        noise; Balle, Wang 2018 for its ε.
    """

    ADJACENCIES: ClassVar[tuple[str, ...]] = ("add-remove", "replace-one", "zero-out")
    PERTURBS_OBJECTIVE: ClassVar[bool] = False

    @property
    def queries(self) -> Mapping[str, float]:
        """One draw."""
        return {"solution": self._known()}

    def sensitivity(self, loss: ConvexLoss, regularisation: float, tolerance: float) -> float:
        """Return (L + 2γ)/Λ."""
        return (loss.lipschitz + 2 * tolerance) / regularisation

    def delta(self, epsilon: float, loss: ConvexLoss, regularisation: float, adjacency: str) -> float:
        """Return δ of the Gaussian mechanism."""
        return math.exp(gaussian.log_delta(self._mu(adjacency), epsilon))

    def epsilon(self, delta: float, loss: ConvexLoss, regularisation: float, adjacency: str) -> float:
        """Return ε of the Gaussian mechanism."""
        return gaussian.epsilon(self._mu(adjacency), delta)

    def _mu(self, adjacency: str) -> float:
        return (2.0 if adjacency == "replace-one" else 1.0) / self._known()


@dataclass(frozen=True)
class ObjectivePerturbation(Perturbation):
    """Gaussian noise b with standard deviation σ·L on the gradient of the objective, and a little on its computed minimiser.

    Guarantee:
        `privacy_loss` bounds the loss of the exact minimiser of the perturbed objective. The computed weights are within γ/Λ of
        it, where γ also covers the rounding of b and of the gradient; given the exact minimiser, Gaussian noise for a distance of
        2γ/Λ hides which data set moved the computed weights, and on a grid, which low-order bits they have. Both are composed.
        Add-remove and zero-out neighbours only: replacing changes the objective by two examples.

    Source:
        Kifer, Smith, Thakurta 2012, "Private Convex Empirical Risk Minimization and High-dimensional Regression"; Iyengar et al.
        2019, "Towards Practical Differentially Private Convex Optimization" (approximate minima, whose gradient is checked);
        Redberg, Koskela, Wang 2023 (privacy profile).
    """

    ADJACENCIES: ClassVar[tuple[str, ...]] = ("add-remove", "zero-out")
    PERTURBS_OBJECTIVE: ClassVar[bool] = True

    @property
    def queries(self) -> Mapping[str, float]:
        """The noise on the objective, which stays secret, and that on the minimiser."""
        return {"objective": self._known(), "solution": min(_OUTPUT_RATIO * self._known(), MULTIPLIER_RANGE[1])}

    def sensitivity(self, loss: ConvexLoss, regularisation: float, tolerance: float) -> float:
        """Return 2γ/Λ."""
        return 2 * tolerance / regularisation

    def delta(self, epsilon: float, loss: ConvexLoss, regularisation: float, adjacency: str) -> float:
        """Return δ of both draws together."""
        return privacy_loss.composed_delta(epsilon, **self._losses(loss, regularisation), output_mu=1 / self.queries["solution"])

    def epsilon(self, delta: float, loss: ConvexLoss, regularisation: float, adjacency: str) -> float:
        """Return ε of both draws together."""
        return privacy_loss.composed_epsilon(delta, **self._losses(loss, regularisation), output_mu=1 / self.queries["solution"])

    def _losses(self, loss: ConvexLoss, regularisation: float) -> dict[str, Any]:
        return {"mu": 1 / self._known(), "tails": loss.tails, "log_determinant": loss.log_determinant(regularisation)}

    def check(self, loss: ConvexLoss, regularisation: float, epsilon: float) -> None:
        """Refuse a regularisation under which one example changes the volume element by e^ε or more."""
        if loss.log_determinant(regularisation) < 0.99 * epsilon:
            return
        least = regularisation
        while loss.log_determinant(least) >= 0.9 * epsilon:
            least *= 1.05
        allowed = f"at least {least:.3g} for ε = {epsilon:g} with objective perturbation"
        fix = "Or use OutputPerturbation, whose ε does not depend on it."
        raise InvalidArgumentError("regularisation", regularisation, allowed, fix)
