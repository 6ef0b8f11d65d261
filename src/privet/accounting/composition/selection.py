"""Private selection: the cost of keeping the best of a random, secret number of private runs.

Keeping the best of a fixed number of private runs costs as much as all runs together. If the number of runs is drawn from a
slowly decaying distribution and kept secret, selection costs a small multiple of one run. All costs are Rényi divergences of the
orders in `rdp.ORDERS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from privet.accounting import rdp
from privet.accounting.events import Release, merge
from privet.accounting.queries import check_covered
from privet.accounting.rdp import ORDERS, Array
from privet.errors import InvalidArgumentError, real

_LARGEST_MEAN = 1e6
# The probability of the smallest number of runs must not underflow.
_LARGEST_POISSON, _LARGEST_SHAPE = 500.0, 50.0
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = 1e-12, 700.0
_NEGLIGIBLE = 2.0**-64


class TrialDistribution(ABC):
    """Distribution of the number of runs, with its cost of selection."""

    mean: float

    @abstractmethod
    def cost(self, single: Array, orders: Array = ORDERS) -> Array:
        """Return the Rényi divergences (A,) of the best of a random number of runs, from those of one run and its score."""

    @abstractmethod
    def start(self) -> tuple[int, float]:
        """Return the smallest number of runs and its probability."""

    @abstractmethod
    def ratio(self, number: int) -> float:
        """Return P[K = number + 1]/P[K = number]."""

    def quantile(self, uniform: float) -> int:
        """Return the `uniform` quantile, for a multiple of 2⁻⁵³ in [0, 1); each probability is exact to about 1e-13."""
        number, probability = self.start()
        reached = probability
        while reached <= uniform and (number < self.mean or probability > _NEGLIGIBLE):
            probability *= self.ratio(number)
            number, reached = number + 1, reached + probability
        return number


@dataclass(frozen=True)
class TruncatedNegativeBinomial(TrialDistribution):
    """K ≥ 1 with P[K = k] ∝ (1−γ)ᵏ·∏_{l<k} (l+η)/(l+1): geometric for η = 1, logarithmic for η = 0.

    Args:
        mean: E[K] in [1, 1e6], which determines γ.
        shape: η in (−1, 50]. Smaller values cost less; larger ones concentrate around the mean.

    Source:
        Papernot, Steinke 2022, "Hyperparameter Tuning with Rényi Differential Privacy", Definition 1 and Theorem 2.

    >>> law = TruncatedNegativeBinomial(mean=10.0)
    >>> law.quantile(0.5)
    7
    """

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        _check_mean(self.mean, _LARGEST_MEAN)
        if not -1 < real("shape", self.shape) <= _LARGEST_SHAPE:
            allowed = f"greater than -1 and at most {_LARGEST_SHAPE:g}"
            raise InvalidArgumentError("shape", self.shape, allowed, "1 is geometric, 0 logarithmic.")
        if self._mean(_LARGEST_EXPONENT) < self.mean:
            raise InvalidArgumentError("mean", self.mean, f"at most {self._mean(_LARGEST_EXPONENT):g} for shape {self.shape:g}")

    def __str__(self) -> str:
        name = {0.0: "logarithmic", 1.0: "geometric"}.get(self.shape, f"truncated negative binomial (η = {self.shape:g})")
        return f"{name} with mean {self.mean:g}"

    @cached_property
    def exponent(self) -> float:
        """log(1/γ)."""
        if self.mean == 1.0:
            return 0.0
        if self._mean(_SMALLEST_EXPONENT) >= self.mean:
            return _SMALLEST_EXPONENT
        return float(brentq(lambda at: self._mean(at) - self.mean, _SMALLEST_EXPONENT, _LARGEST_EXPONENT, xtol=1e-15, rtol=1e-14))

    def _mean(self, exponent: float) -> float:
        """Return E[K] = η(1−γ)/(γ(1−γ^η)) at log(1/γ)."""
        return -math.expm1(-exponent) * math.exp(exponent) / _integral(self.shape, exponent)

    def cost(self, single: Array, orders: Array = ORDERS) -> Array:
        """Return ε(λ) + (1+η)·min over λ̂ ≥ 1 of [(1−1/λ̂)·ε(λ̂) + log(1/γ)/λ̂] + log E[K]/(λ−1), made monotone in λ."""
        others = (1 - 1 / orders) * single + self.exponent / orders
        shared = (1 + self.shape) * min(self.exponent, float(np.min(others)))
        return _monotone(single + shared + math.log(self.mean) / (orders - 1))

    def start(self) -> tuple[int, float]:
        """Return 1 and P[K = 1]; (1−γ)η/(γ^−η − 1)."""
        if self.exponent == 0.0:
            return 1, 1.0
        return 1, -math.expm1(-self.exponent) / _integral(-self.shape, self.exponent)

    def ratio(self, number: int) -> float:
        """Return (1−γ)(k+η)/(k+1)."""
        return -math.expm1(-self.exponent) * (number + self.shape) / (number + 1)


@dataclass(frozen=True)
class PoissonTrials(TrialDistribution):
    """K ~ Poisson(mean): concentrated around its mean, but possibly 0, in which case no run is returned.

    Args:
        mean: E[K] in [1, 500].

    Source:
        Papernot, Steinke 2022, Theorem 6.

    >>> PoissonTrials(mean=10.0).quantile(0.5)
    10
    """

    mean: float

    def __post_init__(self) -> None:
        _check_mean(self.mean, _LARGEST_POISSON)

    def __str__(self) -> str:
        return f"Poisson with mean {self.mean:g}"

    def cost(self, single: Array, orders: Array = ORDERS) -> Array:
        """Return ε(λ) + μ·δ̂ + log μ/(λ−1), where one run is (log(1 + 1/(λ−1)), δ̂)-differentially private."""
        spread = self.mean * deltas(single, np.log1p(1 / (orders - 1)), orders)
        return _monotone(single + spread + math.log(self.mean) / (orders - 1))

    def start(self) -> tuple[int, float]:
        """Return 0 and exp(−μ)."""
        return 0, math.exp(-self.mean)

    def ratio(self, number: int) -> float:
        """Return μ/(k+1)."""
        return self.mean / (number + 1)


def geometric(mean: float) -> TruncatedNegativeBinomial:
    """Return the geometric distribution on 1, 2, …: the usual choice."""
    return TruncatedNegativeBinomial(mean, shape=1.0)


def logarithmic(mean: float) -> TruncatedNegativeBinomial:
    """Return the logarithmic distribution: cheaper than the geometric one, and more often a single run."""
    return TruncatedNegativeBinomial(mean, shape=0.0)


def curve(events: Iterable[Release], adjacency: str) -> Array:
    """Return the Rényi divergences of the composition for every order in ORDERS; infinite if an event has no noise."""
    given = tuple(events)
    check_covered(given, adjacency, "rdp")
    together = merge(given, amplified=False)
    if any(event.noise_multiplier == 0 for event in together):
        return np.full_like(ORDERS, math.inf)
    return rdp.curve(together, adjacency)


def epsilon(found: Array, delta: float, orders: Array = ORDERS) -> float:
    """Return ε at δ for these divergences."""
    return float(np.min(rdp.to_epsilon(found, delta, orders)))


def deltas(found: Array, epsilons: Array, orders: Array = ORDERS) -> Array:
    """Return δ at every ε for these divergences: the conversion solved for δ, or the total variation bound where that is smaller.

    Canonne, Kamath, Steinke 2020, Proposition 12; Bretagnolle, Huber 1979: total variation ≤ √(1 − exp(−KL)), and a divergence of
    any order above 1 is at least KL.
    """
    logs = (orders - 1) * (found - epsilons[:, None] + np.log1p(-1 / orders)) - np.log(orders)
    variation = math.sqrt(-math.expm1(-float(np.min(found))))
    return np.asarray(np.minimum(np.exp(np.minimum(np.min(logs, axis=1), 0.0)), variation))


def _check_mean(mean: float, largest: float) -> None:
    if not 1 <= real("mean", mean) <= largest:
        raise InvalidArgumentError("mean", mean, f"between 1 and {largest:g}", "It is the expected number of runs.")


def _monotone(found: Array) -> Array:
    """Return the smallest divergence of this order or a higher one."""
    return np.asarray(np.minimum.accumulate(found[::-1])[::-1])


def _integral(shape: float, exponent: float) -> float:
    """Return (1 − exp(−ηx))/η: the integral of exp(−ηt) from 0 to x, which is x for η = 0."""
    return exponent if shape == 0 else -math.expm1(-shape * exponent) / shape
