"""Correlated noise of Toeplitz strategies: bands for amplified sampling, buffers for a fixed order."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from privet._utils.registry import add
from privet.accounting import Event
from privet.accounting.events import MULTIPLIER_RANGE
from privet.errors import InvalidArgumentError, count, real
from privet.noise.base import Participation
from privet.noise.correlated.correlated import Correlated
from privet.noise.correlated.optimisation import optimise_bands, optimise_buffers
from privet.noise.correlated.past_toeplitz import PastBands, PastBuffers
from privet.noise.correlated.strategies import Array, Bands, Buffers, Strategy, iterates, squared_sensitivity
from privet.noise.past import PastNoise
from privet.schedules import Constant, Factors, Schedule, factors_of

_MOST_BANDS, _MOST_BUFFERS = 1024, 16
_LARGEST_GAIN = 64.0  # of C⁻¹: with more, the grid of the release becomes coarse


@dataclass(frozen=True, kw_only=True)
class Toeplitz(Correlated):
    """Correlated noise of a Toeplitz matrix C, optimised for SGD with this momentum and schedule of the learning rate."""

    momentum: float = 0.0
    learning_rate: Schedule = field(default_factory=Constant)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= real("noise.momentum", self.momentum) < 1:
            raise InvalidArgumentError("noise.momentum", self.momentum, "at least 0 and below 1", "It is the optimizer's.")
        if not isinstance(self.learning_rate, Schedule):
            raise InvalidArgumentError("noise.learning_rate", self.learning_rate, "a schedule such as privet.schedules.ToZero()")

    @property
    @abstractmethod
    def strategy(self) -> Strategy:
        """C."""

    def gain(self, planned: Participation) -> float:
        """Return √k times the norm of C's column if participations do not overlap, the sensitivity of the pattern otherwise."""
        column = self.strategy.column(planned.steps)
        if planned.rate < 1:  # a release for every participation
            return float(np.linalg.norm(column))
        return math.sqrt(squared_sensitivity(column, planned.separation, planned.times))

    def event(self, planned: Participation, taken: Participation) -> Event:
        """Return the event: amplified releases, one for every participation, or one Gaussian mechanism for all of them."""
        assert self.multiplier is not None
        if planned.rate < 1:
            return Event(planned.rate, self.multiplier, taken.times)
        ratio = max(1.0, self.gain(planned) / self.gain(taken))
        return Event(1.0, min(self.multiplier * ratio, MULTIPLIER_RANGE[1]))

    def spread(self, steps: int) -> Factors:
        """Return the norms of the rows of C⁻¹, (T,)."""
        return np.asarray(np.sqrt(np.cumsum(self.strategy.solve(np.eye(1, steps)[0]) ** 2)))

    def error(self, steps: int) -> float:
        """Return the error of the sum of all steps."""
        return math.sqrt(iterates(steps, last=True).error(self.strategy))

    def whitening(self, steps: int) -> Array:
        """Return C, (T, T)."""
        from scipy.linalg import toeplitz

        return np.asarray(toeplitz(self.strategy.column(steps), np.zeros(steps)))

    def check_strategy(self, steps: int) -> Self:
        """Return this noise, unless C⁻¹ makes far more noise than it is given."""
        with np.errstate(over="ignore", invalid="ignore"):
            gain = float(np.abs(self.strategy.solve(np.eye(1, steps)[0])).sum())
        if not gain <= _LARGEST_GAIN:
            allowed = f"a strategy whose inverse has row sums of at most {_LARGEST_GAIN:g}, not {gain:.3g}"
            fix = "Coefficients that decrease are safe; leave them out to have them optimised."
            raise InvalidArgumentError("noise", self, allowed, fix)
        return self


@add
@dataclass(frozen=True)
class Banded(Toeplitz):
    """Noise that is correlated over b steps: a banded Toeplitz matrix C, for sampling that amplifies.

    With `sampling.CyclicPoisson(batch_size, cycle)` and b ≤ cycle, steps in which one example may take part are so far apart that
    C's columns do not overlap: every participation is one Gaussian release on a Poisson sample. With `FixedOrder`, `FullBatch`
    and epochs, all participations are one Gaussian release without amplification.

    Args:
        multiplier: as for `Gaussian`: of one participation with CyclicPoisson, of all together otherwise.
        bands: number of bands b ≥ 1; noise takes b − 1 times the memory of the gradient. 1 is independent noise.
        coefficients: first column of C up to a factor, b numbers ≥ 0 beginning with one > 0; None to have them optimised once,
            by the plan, for its number of steps.
        momentum: heavy-ball momentum of the optimizer, to optimise for; in [0, 1).
        learning_rate: schedule of the learning rate, to optimise for.
        source, non_private: as for `Gaussian`.

    Guarantee:
        Columns of C at steps b or more apart have no row in common. So the mechanism is a sequence of ⌈T/cycle⌉ releases for
        every example, each a Poisson-sampled Gaussian mechanism of norm ‖c‖ (Choquette-Choo et al. 2023, Theorem 4). An
        example's group within the cycle is drawn independently of the others, so all adjacencies are covered.

    Source:
        Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified approach to private training".

    >>> Banded(bands=4).bands
    4
    """

    multiplier: float | None = None
    bands: int = 8
    coefficients: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if count("noise.bands", self.bands, fix="1 is independent noise.") > _MOST_BANDS:
            raise InvalidArgumentError("noise.bands", self.bands, f"at most {_MOST_BANDS:,}")
        if self.coefficients is not None:
            given = _numbers("noise.coefficients", self.coefficients, math.inf)
            if len(given) != self.bands or not given[0] > 0:
                allowed = f"as many as the {self.bands} bands, the first one greater than 0"
                raise InvalidArgumentError("noise.coefficients", given, allowed)
            object.__setattr__(self, "coefficients", given)

    @property
    def strategy(self) -> Bands:
        """C; with unknown coefficients, the identity."""
        return Bands((1.0,) if self.coefficients is None else self.coefficients)

    @property
    def draft(self) -> Banded:
        """Independent noise in as many bands."""
        return replace(self, coefficients=(1.0,) + (0.0,) * (self.bands - 1))

    def fitted(self, planned: Participation, sampling: str) -> Self:
        """Return the noise with coefficients, optimised unless they are given; refuse more bands than an amplifying cycle has."""
        if planned.rate < 1 and self.bands > planned.separation:
            allowed = f"at most the cycle of {sampling}, {planned.separation} steps"
            fix = "An example's releases must not overlap. Choose a longer cycle or fewer bands."
            raise InvalidArgumentError("noise.bands", self.bands, allowed, fix)
        if self.coefficients is not None:
            return self.check_strategy(planned.steps)
        apart = planned.rate < 1 or planned.separation >= self.bands  # the sensitivity then is that of one participation
        separation, times = (self.bands, 1) if apart else (planned.separation, planned.times)
        sgd = planned.steps, self.momentum, self.learning_rate
        found: tuple[float, ...] = _optimise(optimise_bands, self.bands, *sgd, separation, times)
        return replace(self, coefficients=found + (0.0,) * (self.bands - len(found))).check_strategy(planned.steps)

    def begin(self, planned: Participation) -> PastBands:
        """Return the state of a run's noise."""
        return PastBands(self.strategy, planned.steps)

    def describe(self) -> str:
        """Return how noise is correlated, in words."""
        return f"over {self.bands} steps (a banded matrix)"


@add
@dataclass(frozen=True)
class BufferedToeplitz(Toeplitz):
    """Noise that is correlated over all steps, in the memory of a few buffers, for a fixed order of the examples.

    C's column is a sum of m geometric sequences (a buffered linear Toeplitz matrix, BLT). It suits `FixedOrder(batch_size)`,
    where an example takes part once per epoch, always at the same place. There is no amplification by sampling.

    Args:
        buffers: number of buffers m ≥ 1; noise takes 2m times the memory of a float32 gradient. 2 to 4 are close to the best C.
        multiplier: as for `Gaussian`: of all participations together.
        decays, scales: d and s of cₖ = Σᵢ sᵢ·dᵢᵏ⁻¹, m numbers each, d in [0, 1) and s ≥ 0; None to have them optimised once, by
            the plan, for its steps and epochs.
        momentum, learning_rate, source, non_private: as for `Banded`.

    Guarantee:
        All steps together are one Gaussian mechanism, whose sensitivity is that of the worst pattern of participations
        (`sensitivity.squared_sensitivity`).

    Source:
        Dvijotham et al. 2024; McMahan, Xu, Zhang 2024, as for `strategies.Buffers`.

    >>> BufferedToeplitz(3).buffers
    3
    """

    buffers: int = 3
    decays: tuple[float, ...] | None = None
    scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if count("noise.buffers", self.buffers) > _MOST_BUFFERS:
            raise InvalidArgumentError("noise.buffers", self.buffers, f"at most {_MOST_BUFFERS}")
        if (self.decays is None) != (self.scales is None):
            missing = "decays" if self.decays is None else "scales"
            raise InvalidArgumentError(f"noise.{missing}", None, "given with the other", "Or leave both out.")
        for name, below in (("decays", 1.0), ("scales", math.inf)):
            if getattr(self, name) is not None:
                given = _numbers(f"noise.{name}", getattr(self, name), below)
                if len(given) != self.buffers:
                    raise InvalidArgumentError(f"noise.{name}", given, f"as many as the {self.buffers} buffers")
                object.__setattr__(self, name, given)

    @property
    def strategy(self) -> Buffers:
        """C; with unknown buffers, the identity."""
        return Buffers(self.decays or (), self.scales or ())

    def fitted(self, planned: Participation, sampling: str) -> Self:
        """Return the noise with decays and scales, optimised unless they are given; refuse sampling that amplifies."""
        if planned.rate < 1:  # C has no bands, so an example's releases overlap
            allowed = "privet.sampling.FixedOrder(batch_size) with noise.BufferedToeplitz"
            fix = "No amplification is known for it; noise.Banded has some with CyclicPoisson."
            raise InvalidArgumentError("sampling", sampling, allowed, fix)
        if self.decays is not None:
            return self.check_strategy(planned.steps)
        sgd = planned.steps, self.momentum, self.learning_rate
        decays, scales = _optimise(optimise_buffers, self.buffers, *sgd, planned.separation, planned.times)
        return replace(self, decays=decays, scales=scales).check_strategy(planned.steps)

    def begin(self, planned: Participation) -> PastNoise:
        """Return the state of a run's noise."""
        return PastBuffers(self.strategy, planned.steps)

    def describe(self) -> str:
        """Return how noise is correlated, in words."""
        return f"over all steps (a Toeplitz matrix of {self.buffers} geometric sequences)"


def _numbers(name: str, given: object, below: float) -> tuple[float, ...]:
    try:
        found = tuple(float(number) for number in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidArgumentError(name, given, "a list of numbers") from None
    if not all(0 <= number < below for number in found):
        limit = "" if math.isinf(below) else f" and below {below:g}"
        raise InvalidArgumentError(name, found, f"at least 0{limit}", "Then training can go on after a crash at no cost in ε.")
    return found


@lru_cache(maxsize=64)
def _optimise(
    find: Callable[..., Any], number: int, steps: int, momentum: float, rates: Schedule, separation: int, times: int
) -> Any:
    """Return what `find` optimises for SGD. The result is small and kept; its workload may be large."""
    workload = iterates(steps, momentum, factors_of("noise.learning_rate", rates, steps))
    return find(number, workload, separation, times)
