"""The guarantee as a value: prose for people, JSON for programs.

What it says, and in which words apart, follows Ponomareva et al. 2023, "How to DP-fy ML", section 5.3.3: the setting, what is
covered, the unit, the neighbours, the accountant, what it assumes and whether that was done, and what was left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee.tradeoff import Meaning
from privet.accounting.privacy_unit import Unit, unit
from privet.accounting.queries import DIRECTIONS
from privet.accounting.rounding import legible, share_down, share_up

SETTING = "central: whoever trains holds the data in the clear, and what is released is private"
NOT_COVERED = (
    "anything chosen by looking at the private data: hyper-parameters, the architecture, early stopping, which run to keep "
    "(privet.tuning.search makes such a choice with a guarantee of its own)",
    "evaluation on private data, and any other number computed from it outside the training steps",
    "timing, memory use and other side channels of the machine that trains",
    "an adversary who can read the memory or the disk of that machine while it trains",
    "rounding inside the sum of floating-point gradients (the released sums themselves lie on a public grid)",
)
# Between neighbours, what an attacker would like to tell.
_QUESTIONS = {
    "add-remove": "whether {} was among the data or not",
    "replace-one": "which of two versions of {} was among the data",
    "zero-out": "whether {} was among the data or a placeholder in its stead",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What is promised to each example or user, and what is not.

    Args:
        epsilon: ε at `delta`; infinity when there is no privacy.
        delta: δ.
        adjacency: how neighbouring data sets differ.
        unit: whose data is protected.
        examples: public size N of the data set, counted in what is sampled and clipped as one: examples, users or groups.
        sampling: the sampling scheme of the plan.
        sampling_rate: q.
        assumed: what the accountant assumes about who takes part in a step, in words.
        performed: who sampled, and how; None where a plan speaks that nobody has trained by yet.
        steps: releases that are accounted for (for a run: those its ledger has, including any lost to a crash).
        noise_multiplier: σ, noise standard deviation over sensitivity.
        sensitivity: clip bound of one of them's contribution to the sum.
        accountant: which accountant computed `epsilon`.
        discretisation: what decides how fine its answer is, name → number: the width of a grid of losses, or the Rényi orders.
        epsilon_by_accountant: accountant → ε, for comparison.
        epsilon_without_sampling: ε of the same steps by the same accountant if sampling hid nobody: everybody takes part in every
            step or, in schemes by epochs, in one known step of each.
        meaning: what this leaves an attacker.
        random_source: the claim of the source of noise and sampling.
        reasons: why there is no privacy, if there is none.
        warnings: what a careful reader should know about the settings.
        notes: what else was done, in sentences: schedules, masks, momentum.
        assumptions: what has to be true and cannot be checked, in sentences.
        beside: what was released beside what the training steps released, and is not covered.
        versions: library → version, of those that the numbers depend on.
        not_covered: what the promise says nothing about.
        bounded: whether anything bounds what an example contributes; if not, `sensitivity` is what the noise was scaled to.
        noised: which coordinates get noise, in words.
        declared: field of the plan → the rule, schedule, momentum or sparsification there, as Python writes it.
    """

    epsilon: float
    delta: float
    adjacency: str
    unit: str | Unit
    examples: int
    sampling: str
    sampling_rate: float
    assumed: str
    performed: str | None = None
    steps: int
    noise_multiplier: float
    sensitivity: float
    accountant: str
    discretisation: Mapping[str, float]
    epsilon_by_accountant: Mapping[str, float]
    epsilon_without_sampling: float
    meaning: Meaning
    random_source: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    versions: Mapping[str, str]
    not_covered: tuple[str, ...] = NOT_COVERED
    bounded: bool = True
    noised: str = "every coordinate"
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def people(self) -> int:
        """Examples or users whose privacy is promised: more than `examples` if those are groups."""
        return self.examples * unit(self.unit).size

    @property
    def accountant_version(self) -> str:
        """Whose accountant it is."""
        return f"privet {self.versions.get('privet', '')}".strip()

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            why = "; ".join(self.reasons) or "nothing bounds what is released"
            return f"NO PRIVACY (ε = ∞): {why}. What was released protects nobody.\n\n{self._how()}"
        return "\n\n".join([
            f"({legible(self.epsilon)}, {self.delta})-differential privacy for {self.unit}, when neighbouring data sets "
            f"differ in {self.unit} that is {ADJACENCIES[self.adjacency]} (\"{self.adjacency}\").",
            f"What it means: {explained(self.meaning, str(self.unit), self.adjacency)}",
            "Covered: everything the training steps released together, the final parameters and every one before them, of this "
            f"one training; any use of them keeps it. Setting: {SETTING}.",
            self._accounting(),
            self._how(),
            self._sampling(),
            "Assumed:\n" + _listed(self.assumptions),
            f"Released beside it: nothing by the training steps (no loss, no norm, no number of {unit(self.unit).counted}s drawn)"
            + "".join(f"; {text}" for text in self.beside) + ".",
            "Not covered:\n" + _listed(self.not_covered),
            "Versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items()) + ".",
        ])  # fmt: skip

    def _accounting(self) -> str:
        others = ", ".join(
            f"{name} {legible(value)} ({DIRECTIONS[name]})"
            for name, value in self.epsilon_by_accountant.items()
            if name != self.accountant
        )
        fineness = (
            ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.discretisation.items()) or "a formula"
        )
        amplification = (
            f"Without amplification by sampling it would be {legible(self.epsilon_without_sampling)}: that of the same steps if "
            "an attacker knew who took part in which."
            if self.epsilon_without_sampling > self.epsilon
            else "No amplification by sampling is claimed."
        )
        return (
            f'Accounting: ε comes from the accountant "{self.accountant}" ({DIRECTIONS[self.accountant]}) of '
            f"{self.accountant_version}: {fineness}. {amplification}"
            + (f" For comparison: {others}." if others else "")
            + f" δ is {self.delta * self.people:.3g} times 1/{self.people:,}."
            + "".join(f" {text}." for text in self.warnings)
        )

    def _how(self) -> str:
        counted = unit(self.unit).counted
        contribution = (
            f"no {counted} contributing more than {self.sensitivity:g} in L2 norm"
            if self.bounded
            else f"not clipped, with a bound of {self.sensitivity:g} in name only"
        )
        declared = "".join(f" {name.replace('_', ' ').capitalize()}: {value}." for name, value in self.declared.items())
        return (
            f"How: {self.steps:,} steps; each sums the gradients of a {self.sampling} sample (rate {self.sampling_rate:.6g} of "
            f"{self.examples:,} {counted}s), {contribution}, plus Gaussian noise of "
            f"{self.noise_multiplier:.6g} times that bound on {self.noised}, divided by the public expected batch size. "
            f"Randomness: {self.random_source}.{declared}" + "".join(f" {note}." for note in self.notes)
        )

    def _sampling(self) -> str:
        performed = self.performed or "nothing yet: this is a plan's statement, and holds for trainings that sample so"
        return f"Sampling assumed: {self.assumed}. Performed: {performed}."

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain JSON values; infinity is the word "inf"."""
        values = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return values | {
            "prose": str(self),
            "direction": DIRECTIONS[self.accountant],
            "accountant_version": self.accountant_version,
            "setting": SETTING,
            "delta_times_people": self.delta * self.people,
            "tuning": "not covered",
            "meaning": self.meaning.to_dict(),
        }

    def to_json(self) -> str:
        """Return the statement as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def explained(meaning: Meaning, protected: str, adjacency: str) -> str:
    """Return in sentences what is left to an attacker; shares are rounded to the attacker's favour.

    Args:
        meaning: the numbers.
        protected: the unit whose privacy is promised.
        adjacency: how neighbouring data sets differ.
    """
    return (
        "an attacker who sees everything that was released, knows all other data and computes without limit tries to tell "
        f"{_QUESTIONS[adjacency].format(protected)}. Whatever the attack, its rate of hits exceeds its rate of false alarms by "
        f"at most {share_up(meaning.advantage)}: with false alarms in 0.1 % of cases it hits at most "
        f"{share_up(meaning.found_at_one_in_a_thousand)}, with 1 % at most {share_up(meaning.found_at_one_in_a_hundred)}. "
        f"Where a coin decided, it is wrong in at least {share_down(meaning.bayes_risk)} of cases; blind guesses are in 50 %."
    )


def _listed(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Unit):
        return str(value)
    return "inf" if isinstance(value, float) and math.isinf(value) else list(value) if isinstance(value, tuple) else value
