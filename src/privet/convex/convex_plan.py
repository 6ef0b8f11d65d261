"""The plan of a convex training: everything that its guarantee depends on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from privet._utils.registry import construct
from privet.accounting.root_finding import smallest_multiplier
from privet.convex.convex_losses import AdjustedLogistic, ConvexLoss, Huber, Logistic
from privet.convex.minimiser import rounding_error
from privet.convex.perturbation import ObjectivePerturbation, OutputPerturbation, Perturbation
from privet.errors import InvalidArgumentError, between, choice, count, positive, real
from privet.noise import SOURCES
from privet.noise.sources import check_source
from privet.plan.plan import JsonForm

# γ over L: at least the first, which costs nothing, and at most the second.
_SMALLEST_TOLERANCE, _LARGEST_TOLERANCE = 1e-6, 1e-2
# ‖b‖ exceeds its standard deviation times √d + 12 with a probability below e⁻⁷².
_DEVIATIONS = 12.0
# Releases of up to 2²³ standard deviations are exact on their grid; half of that is used.
_EXACT = 2.0**22
_ALLOWED = {
    "loss": "Logistic(classes), AdjustedLogistic(classes, priors) or Huber(threshold)",
    "mechanism": "ObjectivePerturbation() or OutputPerturbation()",
}

# Kinds by field and name. They have no place in the plans of trainings, so the registry of those does not have them.
_KINDS: dict[str, dict[str, type[Any]]] = {
    "loss": {"Logistic": Logistic, "AdjustedLogistic": AdjustedLogistic, "Huber": Huber},
    "mechanism": {"ObjectivePerturbation": ObjectivePerturbation, "OutputPerturbation": OutputPerturbation},
}


@dataclass(frozen=True, kw_only=True)
class ConvexPlan(JsonForm):
    """A regularised linear model, its loss, and the noise that makes it private.

        minimise Σℓ(θ; x, y) + ½Λ‖θ‖²,   where rows x with the intercept are scaled to a norm of at most 1

    Args:
        examples: public number of examples N ≥ 2.
        features: public number of features D ≥ 1, without the intercept.
        loss: `Logistic(classes)`, `AdjustedLogistic(classes, priors)` or `Huber(threshold)`.
        mechanism: `ObjectivePerturbation()` or `OutputPerturbation()`; with a multiplier, or calibrated.
        regularisation: Λ > 0, relative to the sum of the losses: 1/C of scikit-learn. It is required: without it, one example can
            move the minimiser by any distance.
        delta: δ in (0, 1), below 1/N.
        adjacency: "add-remove" or "zero-out"; for output perturbation also "replace-one".
        radius: R > 0: rows longer than R, with the intercept, are scaled down to it. So the norm of features is bounded by
            construction, and no assumption on the data remains.
        intercept: c ≥ 0, a constant feature; 0 for a model without intercept.
        source: source of noise, as for `privet.noise.Gaussian`.

    Raises:
        InvalidArgumentError: an argument is out of range, or a condition of the mechanism is not met; the message names it.

    >>> from privet.convex import Logistic, OutputPerturbation
    >>> plan = ConvexPlan(
    ...     examples=10_000, features=20, loss=Logistic(2), mechanism=OutputPerturbation(), regularisation=30.0, delta=1e-5
    ... ).calibrate(epsilon=1.0)
    >>> round(plan.epsilon(), 3)
    1.0
    >>> ConvexPlan.from_json(plan.to_json()) == plan
    True
    """

    FORMAT: ClassVar[int | str] = "convex 1"
    BASES: ClassVar[dict[str, type[Any]]] = {"loss": ConvexLoss, "mechanism": Perturbation}

    examples: int
    features: int
    loss: ConvexLoss
    mechanism: Perturbation
    regularisation: float
    delta: float
    adjacency: str = "add-remove"
    radius: float = 1.0
    intercept: float = 1.0
    source: str = "secure"

    def __post_init__(self) -> None:
        count("examples", self.examples, minimum=2, fix="It is the public size of the training set.")
        count("features", self.features, fix="It is the public number of features.")
        for name, base in self.BASES.items():
            if not isinstance(getattr(self, name), base):
                raise InvalidArgumentError(
                    name, getattr(self, name), _ALLOWED[name],
                    "The guarantee needs a convex loss with bounded gradient and curvature; a squared loss has gradients of any "
                    "size, and a hinge loss has no bounded curvature.",
                )  # fmt: skip
        positive("regularisation", self.regularisation, "Without it, one example can move the minimiser by any distance.")
        between("delta", self.delta, 0.0, 1.0, "It is usually well below 1 / examples, such as 1e-5.")
        if self.delta * self.examples >= 1:
            fix = "Publishing one random record outright would satisfy it."
            raise InvalidArgumentError("delta", self.delta, f"below 1 / examples = {1 / self.examples:.3g}", fix)
        choice(
            "adjacency", self.adjacency, self.mechanism.ADJACENCIES,
            f"{type(self.mechanism).__name__} has no bound for other neighbours.",
        )  # fmt: skip
        positive("radius", self.radius, "Longer rows are scaled down to it.")
        if real("intercept", self.intercept) < 0:
            raise InvalidArgumentError("intercept", self.intercept, "at least 0", "0 leaves the intercept out.")
        check_source("source", self.source)
        if self.mechanism.multiplier is not None and self.tolerance > _LARGEST_TOLERANCE * self.loss.lipschitz:
            fix = "Double precision does not find the minimiser as precisely as the guarantee needs."
            raise InvalidArgumentError("regularisation", self.regularisation, "larger for this many examples", fix)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the weights, (K, D + 1)."""
        return self.loss.outputs, self.features + 1

    @property
    def largest_weights(self) -> float:
        """A bound on ‖θ‖ at the minimiser, from public numbers: F is at most N·ℓ(0) there."""
        numbers = math.prod(self.shape)
        perturbation = 0.0
        if self.mechanism.PERTURBS_OBJECTIVE:
            deviation = next(iter(self.mechanism.queries.values())) * self.loss.lipschitz
            perturbation = deviation * (math.sqrt(numbers) + _DEVIATIONS)
        root = math.sqrt(perturbation**2 + 2 * self.regularisation * self.examples * self.loss.at_zero)
        return (perturbation + root) / self.regularisation

    @property
    def tolerance(self) -> float:
        """γ: largest norm of ∇F at the computed minimiser, from public numbers.

        The computed gradient is held to γ/2; the rest covers rounding. It is large enough that the release is exact on its grid.
        """
        largest = self.largest_weights
        rounding = rounding_error(self.loss, self.examples, self.features + 1, largest)
        found = max(_SMALLEST_TOLERANCE * self.loss.lipschitz, 4 * rounding)
        smallest = self.mechanism.sensitivity(self.loss, self.regularisation, found) * list(self.mechanism.queries.values())[-1]
        return found * max(1.0, largest / (_EXACT * smallest))

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the noised weights."""
        return self.mechanism.sensitivity(self.loss, self.regularisation, self.tolerance)

    @property
    def queries(self) -> dict[str, float]:
        """Name → noise multiplier of every draw of noise, for the ledger."""
        return dict(self.mechanism.queries)

    @property
    def private(self) -> bool:
        """Whether the source of noise is unpredictable."""
        return SOURCES[self.source].private

    def epsilon(self) -> float:
        """Return ε at the plan's δ: an upper bound, infinity if the noise is known."""
        if not self.private:
            return math.inf
        return self.mechanism.epsilon(self.delta, self.loss, self.regularisation, self.adjacency)

    def delta_at(self, epsilon: float) -> float:
        """Return δ at ε ≥ 0."""
        return self.mechanism.delta(epsilon, self.loss, self.regularisation, self.adjacency) if self.private else 1.0

    def calibrate(self, epsilon: float) -> ConvexPlan:
        """Return the plan with the smallest noise multiplier that meets a target ε > 0, never exceeded, at the plan's δ."""
        target = positive("epsilon", epsilon)
        if self.mechanism.multiplier is not None:
            fix = "Leave out one of the two."
            raise InvalidArgumentError("epsilon", epsilon, "left out when the mechanism has a multiplier", fix)
        self.mechanism.check(self.loss, self.regularisation, target)

        def spent(multiplier: float) -> float:
            mechanism = replace(self.mechanism, multiplier=multiplier)
            return mechanism.epsilon(self.delta, self.loss, self.regularisation, self.adjacency)

        return replace(self, mechanism=replace(self.mechanism, multiplier=smallest_multiplier(spent, target)))

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the plan that `to_dict` gave."""
        values = dict(data) if isinstance(data, dict) else {}
        for name, kinds in _KINDS.items():
            if isinstance(values.get(name), dict):
                part = dict(values[name])
                kind = kinds[choice(f"plan.{name}.kind", part.pop("kind", None), kinds)]
                values[name] = construct(kind, f"plan.{name}", part)
        return super().from_dict(values)
