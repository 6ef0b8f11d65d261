"""The guarantee of a convex training as a value: prose for people, JSON for programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privet.accounting.guarantee.statement import Statement
from privet.accounting.guarantee.tradeoff import NO_PRIVACY, Meaning, meaning_of
from privet.convex.convex_plan import ConvexPlan
from privet.noise import SOURCES

UNIT = "one example"
_BY_CONSTRUCTION = (
    "every row of features is scaled down to a public norm, so one example changes the gradient by at most a public number",
    "a row that is not finite contributes zero",
    "the ledger counts the release before its noise is drawn",
)
_ASSUMED = "no two examples hold the same person's data; a person with several is protected less, as a group of that size"
_NOT_COVERED = (
    "choices made by looking at the private data: regularisation, features, loss, which run to keep",
    "other trainings and fits on the same people's data: their ε adds to this one",
    "evaluation on private data, and any other number computed from it beside the released weights",
    "side channels of the training machine, such as time and memory use; the minimiser takes longer on some data",
    "an adversary who can read the memory, the disk or the console of the training process",
)
# Whether the mechanism perturbs the objective → how ε is computed.
_ACCOUNTS = {
    False: "the Gaussian mechanism in closed form",
    True: "the privacy profile of objective perturbation, composed with that of the noise on the minimiser",
}


@dataclass(frozen=True, kw_only=True)
class ConvexGuarantee(Statement):
    """The privacy guarantee of a convex training, with its assumptions and exclusions."""

    noise_multiplier: float  # σ, noise standard deviation over sensitivity
    sensitivity: float  # bound on one example's contribution
    accounting: str  # how ε is computed
    how: str  # what the mechanism does

    def _done(self) -> str:
        return (
            f"a linear model was fitted to the data of {self.examples:,} examples and released once. The method limits "
            "what one example changes, and adds noise"
        )

    def _covered(self) -> str:
        return "the released weights"

    def _releases(self) -> tuple[str, ...]:
        accounting = f"Accounting: ε is an upper bound for this mechanism ({self.accounting}). {self.share_of_delta()}"
        return accounting, self._how()

    def _how(self) -> str:
        return f"How: {self.how} Randomness: {self.random_source}." + "".join(f" {note}." for note in self.notes)


def state_guarantee(
    plan: ConvexPlan, notes: tuple[str, ...] = (), public: tuple[str, ...] = (), purpose: str = ""
) -> ConvexGuarantee:
    """Return the statement of a calibrated plan; `notes` and `public` are facts about the data, `purpose` is what it is for."""
    mechanism = plan.mechanism
    return ConvexGuarantee(
        epsilon=plan.epsilon(), delta=plan.delta, adjacency=plan.adjacency, unit=UNIT, examples=plan.examples,
        noise_multiplier=mechanism.multiplier or 0.0, sensitivity=plan.sensitivity, accountant=type(mechanism).__name__,
        meaning=_meaning(plan), random_source=SOURCES[plan.source].claim,
        reasons=() if plan.private else ("the noise is publicly known",), notes=notes, by_construction=_BY_CONSTRUCTION,
        assumptions=(_ASSUMED,),
        public=(
            f"the number of examples, {plan.examples:,}",
            "features, classes, bounds of the target and all settings: they do not depend on the private data",
            *public,
        ),
        not_covered=_NOT_COVERED, purpose=purpose, user_code=False, accounting=_ACCOUNTS[mechanism.PERTURBS_OBJECTIVE],
        how=_describe(plan),
    )  # fmt: skip


def _describe(plan: ConvexPlan) -> str:
    noise = (
        f"adds ⟨b, θ⟩ with Gaussian b of standard deviation {plan.queries['objective'] * plan.loss.lipschitz:.6g} to the "
        "objective, and Gaussian noise"
        if plan.mechanism.PERTURBS_OBJECTIVE
        else "adds Gaussian noise"
    )
    return (
        f"{type(plan.mechanism).__name__} on {plan.examples:,} examples. It scales every row of {plan.features:,} "
        f"features and intercept down to a norm of {plan.radius:g}, minimises the sum of {plan.loss!r} and "
        f"{plan.regularisation:g}/2 times the squared norm of the weights until the gradient is at most {plan.tolerance:.3g} "
        f"long, and {noise} of standard deviation {plan.queries['solution'] * plan.sensitivity:.6g} to the minimiser. One "
        f"example changes the gradient by at most {plan.loss.lipschitz:.6g}."
    )


def _meaning(plan: ConvexPlan) -> Meaning:
    if not plan.private:
        return NO_PRIVACY
    return meaning_of(
        lambda delta: plan.mechanism.epsilon(delta, plan.loss, plan.regularisation, plan.adjacency),
        lambda epsilons: np.array([plan.delta_at(float(epsilon)) for epsilon in epsilons]),
        plan.delta,
    )
