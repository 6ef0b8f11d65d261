"""Interface of correlated noise: C⁻¹Z in place of Z, so that later steps take back part of the noise of earlier ones."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from privet.accounting import Event
from privet.clipping import GEP, Projected
from privet.errors import InvalidArgumentError
from privet.noise.base import NoiseMechanism, Participation
from privet.noise.correlated.strategies import Array
from privet.noise.past import PastNoise
from privet.schedules import Factors, is_constant

MOST_STEPS = 2**20  # of a plan: its coefficients, errors and deviations are computed step by step
_SAMPLING = "privet.sampling.CyclicPoisson, FixedOrder, BallsInBins, Shuffle or FullBatch"


@dataclass(frozen=True, kw_only=True)
class Correlated(NoiseMechanism):
    """Noise that is correlated over the steps.

    Step t releases Sₜ + (C⁻¹Z)ₜ: the clipped sum, and noise made of fresh Gaussian noise Z and a lower-triangular C. All steps
    together are post-processing of C·S + Z, one Gaussian mechanism. C is chosen so that sums over the steps, which parameters
    are, have less noise than with independent noise at the same ε. The multiplier is the standard deviation of Z over the
    sensitivity of C·S, which includes the bound on one contribution.

    Guarantee:
        The noise of earlier steps is secret, because with it releases could be freed from noise: it is kept in memory only. After
        a crash, training goes on from the next cycle or epoch with new draws of examples and an independent mechanism, at no cost
        in ε: the two together are the same mechanism with some entries of C left out, all of which are ≥ 0.

    Source:
        Denisov et al. 2022; Choquette-Choo et al. 2023.
    """

    def check_combination(self, plan: Any) -> None:
        """Refuse parts that change the sensitivity from step to step, or make it depend on randomness."""
        one = "One sensitivity scales the noise of all steps together."
        norms = "Estimated norms bound no single step."
        subspaces = "Its subspaces change, and noise of one subspace cannot be taken back in another."
        masks = "A coordinate without noise at one step has none that later steps could take back."
        for refused, part, allowed, fix in (
            (plan.clipping.adaptive, "clipping", "a rule whose bound stays the same", one),
            (isinstance(plan.clipping, Projected), "clipping", "a rule of exact norms", norms),
            (isinstance(plan.clipping, GEP), "clipping", "a rule for gradients as they are", subspaces),
            (plan.sparsification is not None, "sparsification", "left out", masks),
            (not is_constant(plan.bound_schedule), "bound_schedule", "privet.schedules.Constant()", one),
        ):
            if refused:
                raise InvalidArgumentError(part, getattr(plan, part), f"{allowed} with noise.{type(self).__name__}", fix)

    def fit(self, planned: Participation | None, sampling: str) -> Self:
        """Return the noise with the numbers that depend on how examples take part; `sampling` names the scheme, for errors."""
        if planned is None:
            fix = "Correlated noise needs a limit on the steps in which an example takes part."
            raise InvalidArgumentError("sampling", sampling, f"{_SAMPLING}, with noise.{type(self).__name__}", fix)
        if planned.steps > MOST_STEPS:
            raise InvalidArgumentError("steps", planned.steps, f"at most {MOST_STEPS:,}, with correlated noise")
        return self.fitted(planned, sampling)

    @abstractmethod
    def fitted(self, planned: Participation, sampling: str) -> Self:
        """Return what `fit` returns, for examples that take part like this; refuse sampling for which there is no bound."""

    by_epoch: ClassVar[bool] = False  # whether every epoch is a release of its own, without amplification too

    @property
    def draft(self) -> Self:
        """The noise for plans that are only asked for their events: the same without what is costly to compute."""
        return self

    @abstractmethod
    def gain(self, planned: Participation) -> float:
        """Return the sensitivity of C·S, for contributions of at most 1: the step's noise multiplier over this one."""

    @abstractmethod
    def event(self, planned: Participation, taken: Participation) -> Event:
        """Return the event of the first steps together; examples take part in them as `taken` says, in all steps as `planned`."""

    @abstractmethod
    def spread(self, steps: int) -> Factors:
        """Return each step's standard deviation of noise, (T,), in units of the standard deviation of Z."""

    @abstractmethod
    def error(self, steps: int) -> float:
        """Return the standard deviation of the noise summed over all steps, in units of the standard deviation of Z."""

    @abstractmethod
    def whitening(self, steps: int) -> Array:
        """Return the lower-triangular matrix, (T, T), that turns the noise of all steps into independent noise like that of Z."""

    @abstractmethod
    def begin(self, planned: Participation) -> PastNoise:
        """Return the state of a run's noise, before its first step."""

    @abstractmethod
    def describe(self) -> str:
        """Return how noise is correlated, in words."""
