"""The statement of what a plan promises: its numbers come from the accountants, its words from the plan's parts."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterable

import numpy as np

from privet import accounting
from privet.accounting.coverage import accountants_of
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.discretisation import discretisation
from privet.accounting.guarantee.statement import Guarantee
from privet.clipping import unbounded
from privet.noise import SOURCES
from privet.plan.declaration import Declaration
from privet.schedules import Constant

# What accountants assume of each kind of release.
_ASSUMED = {
    accounting.Event: "in every step everybody takes part by a coin of their own",
    accounting.FixedSize: "in every step a uniform subset of fixed size takes part, drawn anew",
    accounting.TruncatedPoisson: "in every step everybody takes part by a coin of their own; of too many a uniform subset stays",
    accounting.Shuffled: "everybody takes part in one step of every epoch; that nobody knows in which is not used",
    accounting.BallsInBins: "in every epoch everybody takes part in one step, chosen by chance for each alone",
}
_FULL_BATCH = "everybody takes part in every step"
# Characters of a part that is written out, such as a schedule with a number for every step.
_LONGEST = 300
_LIBRARIES = ("privet", "torch", "numpy", "scipy")


def build_guarantee(plan: Declaration, steps: int | None, accountant: str | None) -> Guarantee:
    """Return the statement of a plan; arguments as for `Plan.guarantee`."""
    accountant = accounting.DEFAULT_ACCOUNTANT if accountant is None else accountant
    number = plan.total_steps if steps is None else steps
    reasons = plan.reasons_for_no_privacy
    epsilon = plan.epsilon(accountant, steps=number)
    events = () if reasons else plan.events(number)
    delta, adjacency = plan.delta, plan.adjacency
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        unit=plan.unit,
        examples=plan.examples,
        sampling=type(plan.sampling).__name__,
        sampling_rate=plan.sampling_rate,
        assumed=_assumed(events),
        steps=number,
        noise_multiplier=plan.noise_multiplier,
        sensitivity=plan.clipping.sensitivity,
        accountant=accountant,
        discretisation=discretisation(
            events, delta=delta, adjacency=adjacency, accountant=accountant
        ) if math.isfinite(epsilon) else {},
        epsilon_by_accountant={name: plan.epsilon(name, steps=number) for name in _covering(plan, events)},
        epsilon_without_sampling=math.inf if reasons else accounting.composed_epsilon(
            _known(events), delta=delta, adjacency=adjacency, accountant=accountant
        ),
        meaning=tradeoff.NO_PRIVACY if reasons else tradeoff.meaning(events, adjacency=adjacency, delta=delta),
        random_source=SOURCES[plan.noise.source].claim,
        reasons=reasons,
        warnings=("That is at least 1/examples: weak for everybody",) if plan.delta * plan.people >= 1 else (),
        notes=_notes(plan, number),
        assumptions=_assumptions(plan),
        versions={name: importlib.metadata.version(name) for name in _libraries(events)},
        bounded=not unbounded(plan.clipping),
        declared=_declared(plan),
        noised="every coordinate" if not _sparse_noise(plan) else "every coordinate that the step's public mask keeps",
    )  # fmt: skip


def _covering(plan: Declaration, events: Iterable[accounting.Release]) -> tuple[str, ...]:
    """Return the accountants that have an answer for all of the events."""
    covering = [accountants_of(event) for event in events]
    return tuple(name for name in accounting.ACCOUNTANTS if all(name in some for some in covering))


def _known(events: Iterable[accounting.Release]) -> tuple[accounting.Release, ...]:
    """Return the events as they are for an attacker who knows who took part: sampling hides nobody."""
    return tuple(
        accounting.Event(1.0, event.noise_multiplier, event.count, getattr(event, "projections", None)) for event in events
    )


def _assumed(events: Iterable[accounting.Release]) -> str:
    kinds = {
        _FULL_BATCH if isinstance(event, accounting.Event) and event.sampling_rate == 1.0 else _ASSUMED[type(event)]
        for event in events
    }
    return "; ".join(sorted(kinds)) or "nothing, as nothing is promised"


def _libraries(events: Iterable[accounting.Release]) -> tuple[str, ...]:
    asked = any(isinstance(event, accounting.TruncatedPoisson) for event in events)
    return (*_LIBRARIES, "dp-accounting") if asked else _LIBRARIES


def _assumptions(plan: Declaration) -> tuple[str, ...]:
    """Return what has to be true for the statement, and that nothing here can check."""
    counted = accounting.unit(plan.unit).counted
    several = (
        ("nobody is in the data under two names",)
        if plan.unit == "one user"
        else ("nobody contributed several examples; somebody who did is protected less, as a group of so many is",)
    )
    return (
        f"that there are {plan.examples:,} {counted}s is public",
        "the parameters that training started from, the architecture, the classes and all settings do not depend on the private "
        "data; what was pretrained on the same people's data has an ε of its own, which adds to this one",
        *several,
        "no two entries of the data set hold one person's data where Privet cannot see it: in equal contents, or behind wrappers "
        "other than torch's",
        "reading an entry changes nothing that a later read returns",
        "model, loss and data set keep nothing of the data where Privet does not look: objects with slots or state in C, "
        "classes, attributes and caches of functions, global names of the model's code or of other modules, files, other "
        "processes",
        "torch's batching rules, and rules that were registered for the engine, compute each row of a batch from that row alone",
        "model and loss do not switch torch's dispatch off around their own calls (torch._C.DisableTorchFunction and the like)",
    )


def _notes(plan: Declaration, steps: int) -> tuple[str, ...]:
    """Return what the statement says beyond its numbers, for the first `steps` steps."""
    notes = []
    bounds, multipliers = plan.bound_factors()[:steps], plan.multipliers()[:steps]
    if np.ptp(bounds) if len(bounds) else 0:
        notes.append(f"The bound is scheduled, between {min(bounds):.4g} and {max(bounds):.4g} times that")
    if np.ptp(multipliers) if len(multipliers) else 0:
        notes.append(
            f"The noise multiplier of a step lies between {min(multipliers):.6g} and {max(multipliers):.6g}; every step is "
            "accounted for with its own"
        )
    if plan.sparsification is not None:
        notes.append(
            f"Up to {plan.sparsification.final_rate:.4g} of the coordinates are left out of a step "
            f"({type(plan.sparsification).__name__} sparsification): masks are public; no privacy gain is claimed from them"
        )
    return (*notes, *plan.clipping.remarks)


def _declared(plan: Declaration) -> dict[str, str]:
    """Return field → the value there, for the parts of a plan that the statement's numbers do not tell."""
    parts: dict[str, object] = {"clipping": plan.clipping, "momentum": plan.momentum, "sparsification": plan.sparsification}
    if not isinstance(plan.bound_schedule, Constant):
        parts["bound_schedule"] = plan.bound_schedule
    if not isinstance(plan.noise.schedule, Constant):
        parts["noise_schedule"] = plan.noise.schedule
    written = {name: repr(part) for name, part in parts.items() if part is not None}
    kinds = {name: f"{type(part).__name__}(…)" for name, part in parts.items()}
    return {name: text if len(text) <= _LONGEST else kinds[name] for name, text in written.items()}


def _sparse_noise(plan: Declaration) -> bool:
    return plan.sparsification is not None and not plan.sparsification.ranks
