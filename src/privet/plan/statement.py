"""The guarantee statement of a plan: numbers from the accountants, words from the plan's parts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from privet import accounting
from privet._utils.registry import foreign_kinds
from privet.accounting.events import Release
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.statement import LIBRARIES, NOT_COVERED, Guarantee, find_versions, promise_for
from privet.accounting.privacy_unit import find_unit
from privet.accounting.queries import ACCOUNTANTS, DEFAULT_ACCOUNTANT, accountants_of, resolution
from privet.accounting.rounding import format_up
from privet.clipping.rules import unbounded
from privet.noise import SOURCES, Correlated
from privet.plan.declaration import Declaration
from privet.sampling import ByEpoch, CyclicPoisson, FixedOrder, Scheme
from privet.schedules import is_constant

# The sampling that accountants assume for each kind of release.
_ASSUMED = {
    accounting.Event: "each record joins each step independently (Poisson sampling)",
    accounting.FixedSizeEvent: "each step draws a new uniform subset of fixed size",
    accounting.TruncatedPoissonEvent: "each record joins each step independently; a batch above the cap is cut to a uniform "
    "subset",
    accounting.ShuffledEvent: "each record joins one step of every epoch; the secrecy of which step is not used",
    accounting.BallsInBinsEvent: "each record joins one step of every epoch, chosen uniformly and independently",
    accounting.LaplaceEvent: "each record joins each release of a number independently (Poisson sampling)",
    accounting.RandomizedResponseEvent: "every record answers for itself",
    accounting.EpsilonDeltaEvent: "nothing beyond the ε and δ of each release",
}
_FULL_BATCH = "every record joins every step"
# The same for schemes whose events do not say it.
_BY_SCHEME: dict[type[Scheme], str] = {
    CyclicPoisson: "each record is in one group of the cycle, chosen uniformly and independently, and joins each step of its "
    "group independently (Poisson sampling)",
    FixedOrder: "each record joins one step of every epoch, always the same; the secrecy of which step is not used",
}
# Longer descriptions of a part, such as a schedule with a number for every step, are cut to its kind.
_LONGEST = 300
# Estimates that no statement quotes. GDP's is there because papers report it.
_UNSTATED = ("edgeworth",)


def build_guarantee(plan: Declaration, steps: int | None, accountant: str | None) -> Guarantee:
    """Return the statement of a plan; arguments as for `Plan.guarantee`."""
    accountant = DEFAULT_ACCOUNTANT if accountant is None else accountant
    number = plan.total_steps if steps is None else steps
    reasons = plan.reasons_for_no_privacy
    epsilon = plan.epsilon(accountant, steps=number)
    parts = () if reasons else plan.parts(number)
    events = () if reasons else parts[0]
    delta, adjacency, masks = plan.delta, plan.adjacency, plan.sparsification
    asked: dict[str, Any] = {"delta": delta, "adjacency": adjacency, "accountant": accountant}
    noised = "every coordinate" if masks is None or masks.ranks else "every coordinate that the step's public mask keeps"
    if plan.embeddings is not None:
        noised = "every coordinate of selected rows, and of all parameters that are no listed table"
    return Guarantee(
        **promise_of(plan),
        epsilon=epsilon,
        sampling=type(plan.sampling).__name__,
        sampling_rate=plan.sampling_rate,
        assumed=_assumed(plan, () if reasons else plan.step_events(number)),
        steps=number,
        noise_multiplier=plan.noise_multiplier,
        sensitivity=plan.clipping.sensitivity,
        accountant=accountant,
        discretisation=resolution(events, **asked) if math.isfinite(epsilon) else {},
        epsilon_by_accountant={name: plan.epsilon(name, steps=number) for name in _covering(plan, events)},
        epsilon_without_sampling=math.inf if reasons else accounting.parallel_epsilon(map(_known, parts), **asked),
        meaning=tradeoff.NO_PRIVACY if reasons else tradeoff.meaning(*parts, adjacency=adjacency, delta=delta),
        reasons=reasons,
        warnings=("That is at least 1/examples: a weak guarantee",) if plan.delta * plan.people >= 1 else (),
        notes=_notes(plan, number),
        versions=find_versions(_libraries(events)),
        bounded=not unbounded(plan.clipping),
        declared=_declared(plan),
        queries=_queries(plan),
        held_out=0 if plan.holdout is None else plan.holdout.examples,
        not_covered=_not_covered(plan),
        correlation=plan.noise.describe() if isinstance(plan.noise, Correlated) else "",
        noised=noised,
    )


def promise_of(*plans: Declaration) -> dict[str, Any]:
    """Return the fields of a statement on trainings by any of these plans, which agree in examples, adjacency, unit and δ."""
    first, (by_construction, by_check, assumed) = plans[0], promise_for(plans[0].unit)

    def together(texts: Iterable[Iterable[str]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(texts)))

    return {
        **{name: getattr(first, name) for name in ("delta", "adjacency", "unit", "examples")},
        "random_source": "; ".join(together([SOURCES[plan.noise.source].claim] for plan in plans)),
        "by_construction": by_construction,
        "by_check": by_check,
        "assumptions": (*assumed, *together((*plan.clipping.assumptions, *_foreign(plan)) for plan in plans)),
        "public": together(map(_public, plans)),
    }


def _covering(plan: Declaration, events: Iterable[Release]) -> tuple[str, ...]:
    """Return the accountants that a statement compares with, if they cover all events."""
    covering = [accountants_of(event) for event in events]
    return tuple(name for name in ACCOUNTANTS if name not in _UNSTATED and all(name in some for some in covering))


def _known(events: Iterable[Release]) -> tuple[Release, ...]:
    """Return the events for an attacker who knows the samples, so that sampling amplifies nothing."""
    return tuple(
        accounting.Event(1.0, event.noise_multiplier, event.count, getattr(event, "projections", None)) for event in events
    )


def _assumed(plan: Declaration, events: Iterable[Release]) -> str:
    if not (released := tuple(events)):
        return "none, because nothing is guaranteed"
    if type(plan.sampling) in _BY_SCHEME:
        return _BY_SCHEME[type(plan.sampling)]
    if isinstance(plan.noise, Correlated) and isinstance(plan.sampling, ByEpoch):
        return _ASSUMED[plan.sampling.accounted_as]
    kinds = {
        _FULL_BATCH if isinstance(event, accounting.Event) and event.sampling_rate == 1.0 else _ASSUMED[type(event)]
        for event in released
    }
    return "; ".join(sorted(kinds))


def _libraries(events: Iterable[Release]) -> tuple[str, ...]:
    asked = any(isinstance(event, accounting.TruncatedPoissonEvent) for event in events)
    return (*LIBRARIES, "dp-accounting") if asked else LIBRARIES


def _public(plan: Declaration) -> tuple[str, ...]:
    held_out = "" if plan.holdout is None else f" for training and {plan.holdout.examples:,} held out"
    return (
        f"the number of {find_unit(plan.unit).counted}s, {plan.examples:,}{held_out}",
        "the initial parameters, the architecture, the classes and all settings: they do not depend on the private data, or only "
        "by another training, whose ε adds to this one",
        *(("the schema of the table: it was written without looking at the private rows",) if plan.schema is not None else ()),
    )


def _foreign(plan: Declaration) -> tuple[str, ...]:
    """Return the assumption on parts of the plan that Privet does not define; none without such parts."""
    foreign = sorted(set().union(*(foreign_kinds(getattr(plan, name)) for name in (*plan.BASES, "noise"))))
    kinds = f"{', '.join(foreign)}, which Privet does not define, keep no state, and samples follow the event declared for them"
    return (kinds,) if foreign else ()


def _not_covered(plan: Declaration) -> tuple[str, ...]:
    evaluation = "evaluation on private data"
    released = f"{evaluation} other than the release described above"
    return NOT_COVERED if plan.holdout is None else tuple(text.replace(evaluation, released) for text in NOT_COVERED)


def _notes(plan: Declaration, steps: int) -> tuple[str, ...]:
    notes = []
    bounds, multipliers = plan.bound_factors()[:steps], plan.multipliers()[:steps]
    if np.ptp(bounds) if len(bounds) else 0:
        notes.append(f"A schedule multiplies the bound by {min(bounds):.4g} to {max(bounds):.4g}")
    if np.ptp(multipliers) if len(multipliers) else 0:
        notes.append(
            f"The noise multiplier varies between {min(multipliers):.6g} and {max(multipliers):.6g}; each step is accounted for "
            "with its own"
        )
    if plan.sparsification is not None:
        notes.append(
            f"A step drops up to {plan.sparsification.final_rate:.2%} of the coordinates ({type(plan.sparsification).__name__} "
            "sparsification). Masks are public and do not improve ε"
        )
    if plan.embeddings is not None:
        notes.append(plan.embeddings.remark)
    if isinstance(plan.noise, Correlated):
        notes.append(
            "Later steps take back part of the noise of earlier ones, which is secret and is kept in memory only: after a crash, "
            "noise starts afresh"
        )
    if plan.schema is not None:
        notes.append(plan.schema.describe())
    return (*notes, *plan.clipping.remarks)


def _queries(plan: Declaration) -> tuple[str, ...]:
    counted, sentences = find_unit(plan.unit).counted, []
    if plan.class_counts is not None:
        sentences.append(
            f"Class counts: before the first step, the number of training {counted}s of each class is released once, with "
            f"Gaussian noise of {plan.class_counts.multiplier:.6g} times the bound on one {counted}'s contribution. Counts and "
            "steps use the same data; ε covers both together."
        )
    if plan.holdout is not None:
        alone = format_up(plan.holdout_epsilon())
        counted = "example" if find_unit(plan.unit).size > 1 else counted  # groups are made of the examples that are left
        sentences.append(
            f"Evaluation: {plan.holdout.examples:,} further {counted}s, chosen at random without looking at values, are held "
            "out: no step uses them. The result of the final model on them is released once, with Gaussian noise of "
            f"{plan.holdout.multiplier:.6g} times the bound on one {counted}'s contribution: ε = {alone} at δ = {plan.delta:g}. "
            f"No {counted} is both trained on and held out, so the total ε is the larger of the two and not their sum."
        )
    return tuple(sentences)


def _declared(plan: Declaration) -> dict[str, str]:
    """Return field → description, for parts of a plan that the statement's numbers do not describe."""
    fields = ("clipping", "momentum", "sparsification", "embeddings")
    parts: dict[str, object] = {name: getattr(plan, name) for name in fields}
    if not is_constant(plan.bound_schedule):
        parts["bound_schedule"] = plan.bound_schedule
    if not is_constant(plan.noise.schedule):
        parts["noise_schedule"] = plan.noise.schedule
    if isinstance(plan.noise, Correlated):
        parts["noise"] = plan.noise
    written = {name: repr(part) for name, part in parts.items() if part is not None}
    kinds = {name: f"{type(part).__name__}(…)" for name, part in parts.items()}
    return {name: text if len(text) <= _LONGEST else kinds[name] for name, text in written.items()}
