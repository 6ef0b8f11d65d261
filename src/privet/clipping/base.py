"""Interface of clipping rules: groups of parameters, weights of norms, and the sensitivity.

An example contributes `weight(norm) · gradient` to a group. A rule's `sensitivity` bounds the L2 norm of all contributions of an
example together, and the noise is scaled to it alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from privet._utils.registry import Part
from privet.errors import InvalidArgumentError, positive
from privet.schedules import is_constant

# Below this a float32 norm may underflow to zero while the gradient still exceeds the bound; above it, sums overflow.
BOUND_RANGE = (1e-12, 1e12)

# Assumption of rules that treat norms on both sides of a threshold differently: how a norm is rounded in its last digits may
# depend on the other examples that are computed with it.
NO_TIES = (
    "no gradient norm equals a threshold of the clipping rule to within rounding, about one part in a million, so that no other "
    "example decides on which side it lies"
)

# Assumption of rules that scale every gradient to one length, however small it is.
NOT_ROUNDING = (
    "no gradient consists of rounding errors, which the clipping rule scales up to the bound, and which other examples may change"
)


def check_scale(name: str, value: float, fix: str) -> None:
    """Refuse a bound, or another value on the scale of norms, outside the useful range of float32."""
    low, high = BOUND_RANGE
    if not low <= positive(name, value, fix) <= high:
        raise InvalidArgumentError(name, value, f"between {low:g} and {high:g}", "Rescale the loss instead.")


def check_bound(value: float) -> None:
    """Refuse a clip bound out of range."""
    check_scale("clipping.bound", value, "Typical clip bounds lie between 0.01 and 10.")


class Rule(Part, ABC):
    """A clipping rule.

    A class that overrides `adapt` moves its own bound and is `adaptive`; a plan refuses to combine it with a bound schedule.
    """

    adaptive: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.adaptive = cls.adapt is not Rule.adapt

    def check_combination(self, plan: Any) -> None:
        """Refuse schedules and noise that do not go with a bound that moves by itself."""
        if self.adaptive and not is_constant(plan.bound_schedule):
            fix = "It moves the bound by itself."
            raise InvalidArgumentError("bound_schedule", plan.bound_schedule, f"left out with {type(self).__name__}", fix)
        if self.adaptive and plan.noise.deviation != "relative":
            fix = "Where its bound will go is not known in advance, so no multiplier could make up for it."
            raise InvalidArgumentError("noise.deviation", plan.noise.deviation, f"'relative' with {type(self).__name__}", fix)

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest L2 norm of one example's contribution (add-remove, zero-out) to all sums, each divided by its noise scale."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the statement, without final stops, where the noise is not σ times one bound everywhere."""
        return ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Clauses for the statement, without final stops, on what Privet cannot check about this rule."""
        return ()

    @abstractmethod
    def weight(self, norms: Tensor) -> Tensor:
        """Return the factor ≥ 0 for gradients with these norms ≥ 0, same shape; exactly 0 where the norm is not finite."""

    def released(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the sums that a step releases for parameters with these names; by default the same names."""
        return tuple(names)

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Partition the names of released sums into groups that are clipped separately; by default one group."""
        return (tuple(names),)

    def weights(self, norms: Tensor) -> Tensor:
        """Return the factors for a (G, B) tensor of group norms, same shape."""
        return self.weight(norms)

    @abstractmethod
    def scale_bound(self, factor: float) -> Rule:
        """Return the rule with its bound, and so its sensitivity, multiplied by a public factor > 0."""

    def noise_scales(self, names: Sequence[str]) -> Mapping[str, float]:
        """Return name → relative standard deviation of its noise, for parameters and statistics; 1 for names left out."""
        return {}

    def statistics(self, norms: Tensor) -> Mapping[str, Tensor]:
        """Return further sums to release with the gradients: name → sum over the examples with group norms (G, B).

        The sensitivity must cover an example's effect on them for any norms, also non-finite ones. Names must contain a colon.
        """
        return {}

    def adapt(self, statistics: Mapping[str, Tensor], divisor: float) -> Rule:
        """Return the rule for the next step, given this step's released statistics, divided by the public divisor."""
        return self


@dataclass(frozen=True)
class NormRule(Rule):
    """A rule with one bound C, in [1e-12, 1e12], whose weight is a function of one norm; other rules are built from these."""

    bound: float

    def __post_init__(self) -> None:
        check_bound(self.bound)

    @property
    def sensitivity(self) -> float:
        """C."""
        return float(self.bound)

    @property
    def threshold(self) -> float:
        """Largest norm that counts as within the bound for adaptive clipping."""
        return float(self.bound)

    def scale_bound(self, factor: float) -> Self:
        """Return the rule with bound factor·C."""
        return replace(self, bound=factor * self.bound)

    def group_rules(self, count: int) -> tuple[NormRule, ...]:
        """Return the rules of `count` groups, which must be 1."""
        assert count == 1
        return (self,)

    def scale_bounds(self, factors: Sequence[float]) -> Self:
        """Return the rule with each group's bound multiplied by its own factor."""
        (factor,) = factors
        return self.scale_bound(factor)

    def weight(self, norms: Tensor) -> Tensor:
        """Return the factor, computed in float64 and rounded towards zero, so that low precision lifts nothing above C."""
        precise = norms.double()
        return round_weights(self.factor(precise), precise, norms.dtype)

    @abstractmethod
    def factor(self, norms: Tensor) -> Tensor:
        """Return the factor by the rule's formula for float64 norms; results for non-finite norms are ignored."""


def round_weights(factors: Tensor, norms: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float64 factors ≥ 0 down to another precision, and set those of non-finite norms to exactly 0."""
    weights = torch.where(norms.abs() < torch.inf, factors, 0.0)  # two operations; `isfinite` is four
    if dtype == torch.float64:
        return weights
    rounded = weights.to(dtype)
    return torch.where(rounded.double() > weights, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)
