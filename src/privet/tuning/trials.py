"""Private hyperparameter search: the best of a secret, random number of private trainings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np

from privet.accounting import Event
from privet.accounting.composition.selection import TrialDistribution, curve, deltas
from privet.accounting.composition.selection import epsilon as epsilon_of
from privet.accounting.guarantee.tradeoff import NO_PRIVACY, meaning_of
from privet.accounting.root_finding import smallest_multiplier
from privet.errors import InvalidArgumentError, positive
from privet.noise import SecureSource
from privet.plan import Plan
from privet.plan.statement import promise_of
from privet.sampling import distinct
from privet.sampling.draws import uniform
from privet.training import Training
from privet.tuning.search_statement import SelectionGuarantee

S = TypeVar("S")
_NO_NOISE = "a run without private noise could be chosen"


@dataclass(frozen=True)
class PublicScore:
    """A score from the trained model and public data only, such as the accuracy on a public test set.

    Args:
        function: finished training → score, larger is better.

    Guarantee:
        A function of a released model and public data is post-processing and costs nothing. The caller sees to it that the score
        uses nothing else.
    """

    function: Callable[[Training], float]
    events: ClassVar[tuple[Event, ...]] = ()

    def __str__(self) -> str:
        return "a score on public data"


@dataclass(frozen=True)
class PaidScore:
    """A noisy score on private data; the function adds the noise, and the search accounts for it.

    Args:
        function: finished training → noisy score, larger is better.
        events: the Gaussian releases of private data in one call, for the plans' unit, at least one, such as
            `Event(sampling_rate=1.0, noise_multiplier=30.0)` for a count of correct answers with noise N(0, 30²).
    """

    function: Callable[[Training], float]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if not self.events or not all(isinstance(event, Event) for event in self.events):
            allowed = "the releases of the score, at least one privet.accounting.Event"
            fix = "For a score that does not use private data, use PublicScore."
            raise InvalidArgumentError("events", self.events, allowed, fix)

    def __str__(self) -> str:
        return "a noisy score on private data, whose cost is included"


Score = PublicScore | PaidScore


@dataclass(frozen=True, eq=False)
class TrialResult(Generic[S]):
    """The result of a search.

    Args:
        setting: the chosen setting; None if the number of trials was 0, which only a Poisson distribution allows.
        training: the chosen trial with its model; its own guarantee ignores that it was chosen.
        score: score of the chosen trial.
        guarantee: the guarantee of all of this together.
    """

    setting: S | None
    training: Training | None
    score: float | None
    guarantee: SelectionGuarantee


def state_search(plans: Sequence[Plan], *, score: Score, number: TrialDistribution) -> SelectionGuarantee:
    """Return the guarantee of a search over these plans, from Rényi divergences at the plans' δ, without touching data.

    Args:
        plans: one per candidate, with the same examples, adjacency, unit and δ.
        score: score that compares trials.
        number: distribution of the number of trials, such as `privet.tuning.geometric(mean=10)`.

    Raises:
        InvalidArgumentError: there is no plan, the plans differ in one of these, or the score does not state its cost.
    """
    if not plans:
        raise InvalidArgumentError("candidates", plans, "at least one")
    if not isinstance(score, PublicScore | PaidScore):
        fix = (
            "A score on private data without noise would leak them through the choice: use PublicScore(function) if it only uses "
            "the model and public data, or add noise and use PaidScore(function, events)."
        )
        raise InvalidArgumentError("score", score, "a PublicScore or a PaidScore", fix)
    if not isinstance(number, TrialDistribution):
        fix = "A fixed number leaks more."
        raise InvalidArgumentError("number", number, "a distribution such as privet.tuning.geometric(mean=10)", fix)
    first = plans[0]
    for name in ("examples", "adjacency", "delta", "unit"):
        if len(found := {getattr(plan, name) for plan in plans}) > 1:
            several = sorted(found, key=str)
            raise InvalidArgumentError("candidates", several, f"plans with the same {name}", "They share one guarantee.")
    one, whole, meaning = math.inf, math.inf, NO_PRIVACY
    # A plan knows every reason for ε = ∞; its events only know missing noise.
    if all(math.isfinite(plan.epsilon("rdp")) for plan in plans):
        # The score may answer the plan's queries, and an entry that it uses may be in either part of the data: all are composed.
        releases = [[event for part in plan.parts() for event in part] for plan in plans]
        curves = [curve((*events, *score.events), plan.adjacency) for plan, events in zip(plans, releases, strict=True)]
        # A run draws its setting without looking at the data, so its divergence is at most that of the most expensive candidate.
        worst = np.max(np.stack(curves), axis=0)
        best = number.cost(worst)
        one, whole = epsilon_of(worst, first.delta), epsilon_of(best, first.delta)
        meaning = meaning_of(partial(epsilon_of, best), partial(deltas, best), first.delta)
    return SelectionGuarantee(
        **promise_of(*plans), epsilon=whole, meaning=meaning, number=str(number), mean=number.mean, candidates=len(plans),
        epsilon_of_one=one, score=str(score), reasons=() if math.isfinite(whole) else (_NO_NOISE,),
    )  # fmt: skip


def calibrate_search(plan: Plan, epsilon: float, *, score: Score, number: TrialDistribution) -> Plan:
    """Return the plan with the noise for which a whole search over candidates with this plan meets (ε, δ).

    Args:
        plan: plan without a noise multiplier.
        epsilon: target ε > 0 of the search, never exceeded.
        score, number: as for `state_search`.
    """
    if plan.noise.multiplier is not None:
        raise InvalidArgumentError("noise.multiplier", plan.noise.multiplier, "left out, so that it can be calibrated")

    def with_multiplier(multiplier: float) -> Plan:
        return replace(plan, noise=replace(plan.noise, multiplier=multiplier))

    def spent(multiplier: float) -> float:
        return state_search([with_multiplier(multiplier)], score=score, number=number).epsilon

    return with_multiplier(smallest_multiplier(spent, positive("epsilon", epsilon)))


def search(
    candidates: Sequence[tuple[Plan, S]], train: Callable[[Plan, S], Training], *, score: Score, number: TrialDistribution
) -> TrialResult[S]:
    """Train a random number of times, each time with a uniformly drawn setting, and return the best trial with its guarantee.

    Args:
        candidates: plan and setting of each candidate; all may share one plan.
        train: plan, setting → a new `Training` of that plan, not yet run. A setting can be drawn several times, so every call
            needs a new directory. The files of trials that are not chosen must stay secret.
        score: score that compares trials: public, or paid for. NaN is worse than any number.
        number: distribution of the number of trials, which is drawn from the operating system's randomness and never disclosed.

    Returns:
        The best trial and the guarantee of the whole search; nothing about the others.

    Raises:
        InvalidArgumentError: as for `state_search`; or `train` returned something else.

    Guarantee:
        Every trial draws its setting and randomness afresh, so all are the same mechanism, whose output (setting, model, score)
        has at most the Rényi divergence of the most expensive candidate; the best of a random number of outputs has the
        divergence of Papernot and Steinke's theorems. Ties go to the earlier trial, which is equivalent to a random choice,
        because trials are identically distributed.

    Source:
        Papernot, Steinke 2022, "Hyperparameter Tuning with Rényi Differential Privacy", Theorems 2 and 6.
    """
    promise = state_search([plan for plan, _ in candidates], score=score, number=number)
    source = SecureSource()
    best: tuple[float, S, Training] | None = None
    for _ in range(number.quantile(uniform(source.words))):
        plan, setting = candidates[int(distinct(1, len(candidates), source.words)[0])]
        training = train(plan, setting)
        if not isinstance(training, Training) or training.plan != plan or training.steps_spent:
            raise InvalidArgumentError("train", train, "a function that returns a new Training of the given plan")
        with training:
            training.run()
        found = float(score.function(training))
        found = -math.inf if math.isnan(found) else found
        if best is None or found > best[0]:
            best = (found, setting, training)
    promise = replace(promise, performed=True)
    if best is None:
        return TrialResult(None, None, None, promise)
    own = best[2].guarantee()
    same = {name: getattr(own, name) for name in ("warnings", "notes", "by_check", "purpose")}
    return TrialResult(best[1], best[2], best[0], replace(promise, **same))
