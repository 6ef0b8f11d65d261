"""A search whose trials are paid for: a secret, random number of private trainings, of which the best is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np

from privet.accounting import Event
from privet.accounting.composition.selection import Law, SelectionGuarantee, curve, total_epsilon
from privet.accounting.root_finding import smallest_multiplier
from privet.errors import InvalidArgumentError, positive
from privet.noise import SecureSource, Source
from privet.plan import Plan
from privet.sampling import distinct
from privet.training import Training

S = TypeVar("S")


@dataclass(frozen=True)
class PublicScore:
    """How good a finished training is, by its model and public data alone, such as the accuracy on a public test set.

    Args:
        function: finished training → score, larger is better.

    Guarantee:
        Of a released model and public data, it is post-processing and costs nothing. That it looks at nothing else is what
        whoever writes this word promises.
    """

    function: Callable[[Training], float]
    events: ClassVar[tuple[Event, ...]] = ()

    def __str__(self) -> str:
        return "a score on public data"


@dataclass(frozen=True)
class PaidScore:
    """How good a finished training is, by private data, with noise that the function adds and that is accounted for.

    Args:
        function: finished training → noisy score, larger is better.
        events: the Gaussian releases that one call makes of the private data, for the plans' unit, at least one, such as
            `Event(sampling_rate=1.0, noise_multiplier=30.0)` for a count of correct answers with noise N(0, 30²).
    """

    function: Callable[[Training], float]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if not self.events or not all(isinstance(event, Event) for event in self.events):
            raise InvalidArgumentError(
                "events", self.events, "what the score releases, at least one privet.accounting.Event",
                "A score that releases nothing of the private data is a PublicScore.",
            )  # fmt: skip

    def __str__(self) -> str:
        return "a noisy score on private data, which is paid for"


Score = PublicScore | PaidScore


@dataclass(frozen=True, eq=False)
class Found(Generic[S]):
    """What a search found.

    Args:
        setting: the chosen one; None if the number of trials was 0, which only a Poisson law allows.
        training: the chosen trial, with its model; its own guarantee is that of a training that was not chosen.
        score: of the chosen trial.
        guarantee: what all of this promises together.
    """

    setting: S | None
    training: Training | None
    score: float | None
    guarantee: SelectionGuarantee


def guarantee(plans: Sequence[Plan], *, score: Score, number: Law) -> SelectionGuarantee:
    """Return what a search over these plans promises; no data are touched.

    Args:
        plans: one for every candidate, of the same examples, adjacency, unit and δ.
        score: by which trials are compared.
        number: law of the number of trials, such as `privet.tuning.geometric(mean=10)`.

    Returns:
        The statement, with ε from Rényi divergences at the plans' δ.

    Raises:
        InvalidArgumentError: there is no plan, or plans promise to different neighbours; or the score does not say what it costs.
    """
    if not plans:
        raise InvalidArgumentError("candidates", plans, "at least one")
    if not isinstance(score, PublicScore | PaidScore):
        raise InvalidArgumentError(
            "score", score, "a PublicScore or a PaidScore",
            "A score on private data without noise would publish what it was chosen by: say PublicScore(function) if it looks at "
            "the model and at public data only, or add noise and say PaidScore(function, events).",
        )  # fmt: skip
    if not isinstance(number, Law):
        raise InvalidArgumentError("number", number, "a law such as privet.tuning.geometric(mean=10)", "A fixed one leaks more.")
    first = plans[0]
    for name in ("examples", "adjacency", "delta", "unit"):
        if len(found := {getattr(plan, name) for plan in plans}) > 1:
            several = sorted(found, key=str)
            raise InvalidArgumentError("candidates", several, f"plans of one {name}", "They are one promise together.")
    one = whole = math.inf
    # The plan knows every reason for which nothing is private; its events know only that of no noise.
    if all(math.isfinite(plan.epsilon("rdp")) for plan in plans):
        curves = [curve((*plan.events(), *score.events), plan.adjacency) for plan in plans]
        one, whole = total_epsilon(curves, number, first.delta, first.adjacency)
    return SelectionGuarantee(
        epsilon=whole,
        delta=first.delta,
        adjacency=first.adjacency,
        unit=str(first.unit),
        examples=first.examples,
        number=str(number),
        mean=number.mean,
        candidates=len(plans),
        epsilon_of_one=one,
        score=str(score),
    )


def calibrate(plan: Plan, epsilon: float, *, score: Score, number: Law) -> Plan:
    """Return the plan with the noise at which a whole search, all of whose candidates have this plan, meets (ε, δ).

    Args:
        plan: without a noise multiplier.
        epsilon: target ε > 0 of the search, never exceeded.
        score, number: as for `guarantee`.

    Raises:
        InvalidArgumentError: the noise is given already, or the target cannot be met.
    """
    if plan.noise.multiplier is not None:
        raise InvalidArgumentError("noise.multiplier", plan.noise.multiplier, "left out, to be solved for")

    def with_multiplier(multiplier: float) -> Plan:
        return replace(plan, noise=replace(plan.noise, multiplier=multiplier))

    def spent(multiplier: float) -> float:
        return guarantee([with_multiplier(multiplier)], score=score, number=number).epsilon

    return with_multiplier(smallest_multiplier(spent, positive("epsilon", epsilon)))


def search(
    candidates: Sequence[tuple[Plan, S]],
    train: Callable[[Plan, S], Training],
    *,
    score: Score,
    number: Law,
) -> Found[S]:
    """Train a random number of times, each time with a setting drawn uniformly, and return the best with its price.

    Args:
        candidates: plan and setting of each; one plan for all settings, or several.
        train: plan, setting → a new `Training` of that plan, not yet run. A setting can be drawn several times: a directory
            must be new at every call. What the trials that are not chosen write there has to stay secret.
        score: by which trials are compared: public, or paid for. NaN is worse than anything.
        number: law of the number of trials; it is drawn from the operating system's randomness and never told.

    Returns:
        The best trial and the guarantee of the whole search; nothing about the others.

    Raises:
        InvalidArgumentError: see `guarantee`; or a training is not the one that was asked for.

    Guarantee:
        Every trial draws its setting and its randomness anew, so each is the same mechanism, whose output (setting, model, score)
        has at most the Rényi divergence of the most expensive candidate; the best of a number of outputs drawn by the law has
        the divergence of Papernot and Steinke's theorems. Ties are kept by the earlier trial, which is the same as by lot, since
        trials are alike.

    Source:
        Papernot, Steinke 2022, "Hyperparameter Tuning with Rényi Differential Privacy", Theorems 2 and 6.
    """
    promise = guarantee([plan for plan, _ in candidates], score=score, number=number)
    source = SecureSource()
    best: tuple[float, S, Training] | None = None
    for _ in range(number.quantile(_uniform(source))):
        plan, setting = candidates[int(distinct(1, len(candidates), source.words)[0])]
        training = train(plan, setting)
        if not isinstance(training, Training) or training.plan != plan or training.steps_spent:
            raise InvalidArgumentError("train", train, "a function that returns a new Training of the plan it is given")
        with training:
            training.run()
        found = float(score.function(training))
        found = -math.inf if math.isnan(found) else found
        if best is None or found > best[0]:
            best = (found, setting, training)
    if best is None:
        return Found(None, None, None, promise)
    warnings = best[2].guarantee().warnings
    return Found(best[1], best[2], best[0], replace(promise, warnings=warnings))


def _uniform(source: Source) -> float:
    return float(source.words(1)[0] >> np.uint64(11)) * 2.0**-53
