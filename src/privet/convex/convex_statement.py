"""The guarantee of a convex training as a value: prose for people, JSON for programs."""

from __future__ import annotations

__all__ = ["ConvexGuarantee", "state_guarantee"]

import importlib.metadata
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee.statement import SETTING, explain_meaning
from privet.accounting.guarantee.tradeoff import NO_PRIVACY, Meaning, PrivacyProfile, interpret
from privet.accounting.rounding import format_up
from privet.convex.convex_plan import ConvexPlan
from privet.noise import SOURCES

UNIT = "one example"
_POINTS = 40
_SMALLEST_DELTA = 1e-5
_LIBRARIES = ("privet", "torch", "numpy", "scipy")
_NOT_COVERED = (
    "choices made by looking at the private data: regularisation, features, loss, which run to keep",
    "evaluation on private data, and any other number computed from it beside the released weights",
    "timing, memory use and other side channels of the training machine; the minimiser takes longer on some data",
    "an adversary who can read the memory or disk of that machine during training",
)


@dataclass(frozen=True, kw_only=True)
class ConvexGuarantee:
    """The privacy guarantee of a convex training, with its assumptions and exclusions.

    Args:
        plan: the plan.
        epsilon: ε at the plan's δ; infinity if the noise is known.
        meaning: limits on membership attacks.
        assumptions: conditions that cannot be checked, in sentences.
        notes: public facts about the data, in sentences.
        not_covered: what the guarantee excludes.
        versions: library → version.
    """

    plan: ConvexPlan
    epsilon: float
    meaning: Meaning
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = _NOT_COVERED
    versions: Mapping[str, str]

    def __str__(self) -> str:
        plan = self.plan
        if math.isinf(self.epsilon):
            return (
                "NO PRIVACY (ε = ∞): the noise is publicly known. The released weights protect nobody's data.\n\n" + self._how()
            )
        return "\n\n".join([
            f"({format_up(self.epsilon)}, {plan.delta})-differential privacy for {UNIT}, where neighbouring data sets differ in "
            f'{UNIT} that is {ADJACENCIES[plan.adjacency]} ("{plan.adjacency}").',
            f"What it means: {explain_meaning(self.meaning, UNIT, plan.adjacency)}",
            f"Covered: the released weights. Any post-processing keeps the guarantee. Setting: {SETTING}.",
            f"Accounting: ε is an upper bound for this mechanism ({_ACCOUNTS[plan.mechanism.PERTURBS_OBJECTIVE]}). "
            f"δ is {100 * plan.delta * plan.examples:.3g} % of 1/{plan.examples:,}.",
            self._how(),
            "Assumed:\n" + _format_list(self.assumptions),
            "Not covered:\n" + _format_list(self.not_covered),
            "Versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items()) + ".",
        ])  # fmt: skip

    def _how(self) -> str:
        plan = self.plan
        noise = (
            f"adds ⟨b, θ⟩ with Gaussian b of standard deviation {plan.queries['objective'] * plan.loss.lipschitz:.6g} to the "
            "objective, and Gaussian noise"
            if plan.mechanism.PERTURBS_OBJECTIVE
            else "adds Gaussian noise"
        )
        return (
            f"How: {type(plan.mechanism).__name__} on {plan.examples:,} examples. It scales every row of {plan.features:,} "
            f"features and intercept down to a norm of {plan.radius:g}, minimises the sum of {plan.loss!r} and "
            f"{plan.regularisation:g}/2 times the squared norm of the weights until the gradient is at most {plan.tolerance:.3g} "
            f"long, and {noise} of standard deviation {plan.queries['solution'] * plan.sensitivity:.6g} to the minimiser. One "
            f"example changes the gradient by at most {plan.loss.lipschitz:.6g}. Randomness: {SOURCES[plan.source].claim}."
            + "".join(f" {note}." for note in self.notes)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain JSON values; infinity is the word "inf"."""
        return {
            "epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.plan.delta,
            "adjacency": self.plan.adjacency,
            "unit": UNIT,
            "examples": self.plan.examples,
            "mechanism": type(self.plan.mechanism).__name__,
            "noise_multiplier": self.plan.mechanism.multiplier,
            "sensitivity": self.plan.sensitivity,
            "direction": "upper bound",
            "meaning": self.meaning.to_dict(),
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "not_covered": list(self.not_covered),
            "versions": dict(self.versions),
            "setting": SETTING,
            "prose": str(self),
        }

    def to_json(self) -> str:
        """Return the statement as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


_ACCOUNTS = {
    False: "the Gaussian mechanism in closed form",
    True: "the privacy profile of objective perturbation, composed with that of the noise on the minimiser",
}


def state_guarantee(plan: ConvexPlan, notes: tuple[str, ...] = (), assumptions: tuple[str, ...] = ()) -> ConvexGuarantee:
    """Return the statement of a calibrated plan.

    Args:
        plan: the plan.
        notes: public facts about the data, in sentences.
        assumptions: further conditions that cannot be checked, in sentences.
    """
    return ConvexGuarantee(
        plan=plan,
        epsilon=plan.epsilon(),
        meaning=_meaning(plan),
        assumptions=(
            f"the number of examples, {plan.examples:,}, is public",
            "features, classes, bounds of the target and all settings do not depend on the private data",
            "each person contributed one example; a person with several is protected less, as a group of that size",
            *assumptions,
        ),
        notes=notes,
        versions={name: importlib.metadata.version(name) for name in _LIBRARIES},
    )


def _meaning(plan: ConvexPlan) -> Meaning:
    if not plan.private:
        return NO_PRIVACY
    mechanism = plan.mechanism
    highest = mechanism.epsilon(min(plan.delta, _SMALLEST_DELTA), plan.loss, plan.regularisation, plan.adjacency)
    epsilons = np.unique(highest * np.linspace(0, 1, _POINTS) ** 2)
    return interpret(PrivacyProfile(epsilons, np.array([plan.delta_at(float(epsilon)) for epsilon in epsilons])))


def _format_list(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {item}" for item in items)
