"""What every clipping rule answers: how parameters are grouped, what weight a norm gets, and the sensitivity that follows.

The contribution of an example to a group is `weight(norm) · gradient`; a rule's `sensitivity` bounds the L2 norm of all its
contributions together, so it is the rule, and nothing else, that the noise is scaled to. Three questions have a plain answer
for most rules: whether parts get more noise than others (`noise_scales`), what else is summed over the examples and released
with the gradients (`statistics`), and which rule the next step has, once those are known (`adapted`).
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
from privet.schedules import Constant

# Below this a float32 norm may underflow to zero while the gradient still exceeds the bound; above it, sums overflow.
BOUND_RANGE = (1e-12, 1e12)


def check_scale(name: str, value: float, fix: str) -> None:
    """Refuse a bound, or what is compared with norms, that float32 norms cannot be measured by."""
    low, high = BOUND_RANGE
    if not low <= positive(name, value, fix) <= high:
        raise InvalidArgumentError(name, value, f"between {low:g} and {high:g}", "Rescale the loss instead.")


def check_bound(value: float) -> None:
    """Refuse a clip bound out of range."""
    check_scale("clipping.bound", value, "Typical clip bounds lie between 0.01 and 10.")


class Rule(Part, ABC):
    """What every clipping rule answers.

    Whether it moves its own bound holds for a kind as a whole (`adaptive`, which follows from its having `adapted`: a plan
    refuses a schedule beside it).
    """

    adaptive: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.adaptive = cls.adapted is not Rule.adapted

    def check_beside(self, plan: Any) -> None:
        """Refuse schedules and noise that do not go with a bound that moves by itself."""
        if self.adaptive and not isinstance(plan.bound_schedule, Constant):
            raise InvalidArgumentError(
                "bound_schedule", plan.bound_schedule, f"left out with {type(self).__name__}", "It moves the bound by itself."
            )
        if self.adaptive and plan.noise.deviation != "follows the bound":
            raise InvalidArgumentError(
                "noise.deviation", plan.noise.deviation, f"'follows the bound' with {type(self).__name__}",
                "Where its bound will go is not known in advance, so no multiplier could make up for it.",
            )  # fmt: skip

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest L2 norm of one example's contribution (add-remove and zero-out neighbours).

        Everything that is summed counts, each part divided by its noise scale.
        """

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a statement has to add, as sentences without their stop: where noise is not σ times one bound everywhere."""
        return ()

    @abstractmethod
    def weight(self, norms: Tensor) -> Tensor:
        """Return the factor for gradients with these norms.

        Args:
            norms: any shape, ≥ 0; NaN stands for a gradient that could not be computed.

        Returns:
            Same shape, ≥ 0; exactly 0 where the norm is not finite.
        """

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Partition parameter names into the groups that are clipped on their own; one group unless a rule says otherwise."""
        return (tuple(names),)

    def weights(self, norms: Tensor) -> Tensor:
        """Return the factors for a (G, B) tensor of group norms, same shape."""
        return self.weight(norms)

    @abstractmethod
    def scaled(self, factor: float) -> Rule:
        """Return the rule with its bound, and so its sensitivity, multiplied by a public factor > 0."""

    def noise_scales(self, names: Sequence[str]) -> Mapping[str, float]:
        """Return name → how many times the common standard deviation the noise on it has, for parameters and statistics; 1 if
        not named."""
        return {}

    def statistics(self, norms: Tensor) -> Mapping[str, Tensor]:
        """Return what is released beside the gradients: name → sum over the examples with group norms (G, B).

        An example moves the sums by no more than the sensitivity has accounted for, whatever its norms are (also not finite).
        Names contain a colon, which no parameter's name can.
        """
        return {}

    def adapted(self, statistics: Mapping[str, Tensor], divisor: float) -> Rule:
        """Return the rule of the next step, given this step's released statistics, each divided by the public divisor."""
        return self


@dataclass(frozen=True)
class NormRule(Rule):
    """A rule with one bound, whose weight is a function of one norm: what the styles are made of.

    Args:
        bound: clip bound C, in [1e-12, 1e12].
    """

    bound: float

    def __post_init__(self) -> None:
        check_bound(self.bound)

    @property
    def sensitivity(self) -> float:
        """C."""
        return float(self.bound)

    @property
    def threshold(self) -> float:
        """Norm that an adaptive bound compares with: what is longer is out of bounds."""
        return float(self.bound)

    def scaled(self, factor: float) -> Self:
        """Return the rule with bound factor·C."""
        return replace(self, bound=factor * self.bound)

    def each(self, count: int) -> tuple[NormRule, ...]:
        """Return the rules of `count` groups: there is one."""
        assert count == 1
        return (self,)

    def regrouped(self, factors: Sequence[float]) -> Self:
        """Return the rule with each group's bound multiplied by its own factor."""
        (factor,) = factors
        return self.scaled(factor)

    def weight(self, norms: Tensor) -> Tensor:
        """Return the factor for gradients with these norms, exactly 0 where they are not finite.

        It is computed in float64 and rounded towards zero, so that low precision does not carry a contribution over the bound.
        """
        precise = norms.double()
        return finished(self.factor(precise), precise, norms.dtype)

    @abstractmethod
    def factor(self, norms: Tensor) -> Tensor:
        """Return the factor by the rule's formula, for float64 norms; what it gives for those that are not finite is not used."""


def finished(factors: Tensor, norms: Tensor, dtype: torch.dtype) -> Tensor:
    """Return float64 factors ≥ 0 in another precision, none larger than it was, and exactly 0 where the norm is not finite."""
    weights = torch.where(norms.isfinite(), factors, 0.0)
    if dtype == torch.float64:
        return weights
    rounded = weights.to(dtype)
    return torch.where(rounded.double() > weights, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)
