"""Events for releases without Gaussian noise: the Laplace mechanism, randomised response, and any (ε, δ)-DP mechanism."""

from __future__ import annotations

__all__ = ["EpsilonDeltaEvent", "LaplaceEvent", "RandomizedResponseEvent"]

import math
from dataclasses import dataclass
from typing import ClassVar

from privet.errors import InvalidArgumentError, count, positive, real

_EVERY = ("add-remove", "replace-one", "zero-out")
_SMALLEST_SCALE, _LARGEST_SCALE, _LARGEST_EPSILON = 1e-2, 1e6, 100.0


@dataclass(frozen=True)
class LaplaceEvent:
    """`count` releases of a number with Laplace noise, each on a fresh Poisson sample.

    Args:
        sampling_rate: q in (0, 1]; 1 is the full batch.
        noise_multiplier: scale b of the noise over the bound of one example's contribution, in [1e-2, 1e6]; the bound, not twice
            the bound, also for replace-one neighbours.
        count: number of releases.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 < real("sampling_rate", self.sampling_rate) <= 1:
            raise InvalidArgumentError("sampling_rate", self.sampling_rate, "greater than 0 and at most 1")
        scale, limits = real("noise_multiplier", self.noise_multiplier), f"between {_SMALLEST_SCALE:g} and {_LARGEST_SCALE:g}"
        if scale != 0 and not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
            raise InvalidArgumentError("noise_multiplier", self.noise_multiplier, f"0 or {limits}")
        count("steps", self.count, minimum=0)

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """Adjacencies that the accounting of this event is valid for."""
        return _EVERY if self.sampling_rate == 1.0 else ("add-remove", "zero-out")


@dataclass(frozen=True)
class RandomizedResponseEvent:
    """`count` answers of every example: its true value with some probability, else one of the other values, uniformly.

    Args:
        truthful: probability of the true value, at least 1/`answers` and below 1.
        answers: number of possible values, ≥ 2.
        count: number of releases.
    """

    truthful: float
    answers: int = 2
    count: int = 1
    # Who answers is public.
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one",)
    # There is no noise to multiply.
    noise_multiplier: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        count("answers", self.answers, minimum=2)
        if not 1 / self.answers <= real("truthful", self.truthful) < 1:
            raise InvalidArgumentError("truthful", self.truthful, f"at least 1/answers, {1 / self.answers:g}, and below 1")
        if self.epsilon > _LARGEST_EPSILON:
            raise InvalidArgumentError("truthful", self.truthful, f"a probability whose ε is at most {_LARGEST_EPSILON:g}")
        count("steps", self.count, minimum=0)

    @property
    def other(self) -> float:
        """Probability of each false value."""
        return (1 - self.truthful) / (self.answers - 1)

    @property
    def epsilon(self) -> float:
        """ε of one answer at δ = 0."""
        return max(0.0, math.log(self.truthful) - math.log(self.other))


@dataclass(frozen=True)
class EpsilonDeltaEvent:
    """`count` releases of which nothing is known but that each is (ε, δ)-differentially private.

    Args:
        epsilon: ε in (0, 100].
        delta: δ in [0, 1).
        count: number of releases.

    Guarantee:
        Randomised response that also reveals the example with probability δ dominates every such release.

    Source:
        Kairouz, Oh, Viswanath 2015, "The Composition Theorem for Differential Privacy".
    """

    epsilon: float
    delta: float = 0.0
    count: int = 1
    adjacencies: ClassVar[tuple[str, ...]] = _EVERY
    noise_multiplier: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        if positive("epsilon", self.epsilon) > _LARGEST_EPSILON:
            raise InvalidArgumentError("epsilon", self.epsilon, f"at most {_LARGEST_EPSILON:g}")
        if not 0 <= real("delta", self.delta) < 1:
            raise InvalidArgumentError("delta", self.delta, "at least 0 and below 1")
        count("steps", self.count, minimum=0)
