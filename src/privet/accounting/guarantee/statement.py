"""The guarantee as a value: prose for people, JSON for programs.

The content follows Ponomareva et al. 2023, "How to DP-fy ML", section 5.3.3: setting, scope, privacy unit, adjacency,
accountant, assumed and actual sampling, and exclusions.
"""

from __future__ import annotations

__all__ = ["NOT_COVERED", "NOT_COVERED_WITH_HOLDOUT", "SETTING", "Guarantee", "explain_meaning"]

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee.tradeoff import Meaning
from privet.accounting.privacy_unit import Unit, unit
from privet.accounting.queries import DIRECTIONS
from privet.accounting.rounding import format_percent_down, format_percent_up, format_up

SETTING = "central (the trainer holds the raw data; only what is released is private)"
NOT_COVERED = (
    "choices made by looking at the private data: hyperparameters, architecture, early stopping, which run to keep "
    "(privet.tuning.search makes such a choice under its own guarantee)",
    "evaluation on private data, and any other number computed from it outside the training steps",
    "timing, memory use and other side channels of the training machine",
    "an adversary who can read the memory or disk of that machine during training",
    "rounding errors within sums of floating-point gradients (the released sums themselves lie on a public grid)",
)
NOT_COVERED_WITH_HOLDOUT = tuple(
    text.replace("evaluation on private data", "evaluation on private data other than the release described above", 1)
    for text in NOT_COVERED
)
# What an attacker tries to tell, by adjacency.
_QUESTIONS = {
    "add-remove": "whether {} was in the data",
    "replace-one": "which of two versions of {} was in the data",
    "zero-out": "whether {} or a placeholder was in the data",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The privacy guarantee of a plan or a run, with its assumptions and exclusions.

    Args:
        epsilon: ε at `delta`; infinity when there is no privacy.
        delta: δ.
        adjacency: how neighbouring data sets differ.
        unit: whose data is protected.
        examples: public size N of the data set, in the units that are sampled and clipped: examples, users or groups.
        sampling: the plan's sampling scheme.
        sampling_rate: q.
        assumed: the accountant's assumption on how examples join a step, in words.
        performed: how the run sampled; None for a plan.
        steps: number of accounted releases (for a run: those in its ledger, including any lost to a crash).
        noise_multiplier: σ, noise standard deviation over sensitivity.
        sensitivity: clip bound on one unit's contribution to the sum.
        accountant: the accountant that computed `epsilon`.
        discretisation: resolution of its answer, name → number: width of the loss grid, or the Rényi orders.
        epsilon_by_accountant: accountant → ε, for comparison.
        epsilon_without_sampling: ε of the same steps by the same accountant without amplification: every example takes part in
            every step or, in epoch-based schemes, in one known step of each epoch.
        meaning: limits on membership attacks.
        random_source: description of the source of noise and sampling randomness.
        reasons: why there is no privacy, if there is none.
        warnings: cautions about the settings.
        notes: further parts of the mechanism, in sentences: schedules, masks, momentum.
        assumptions: conditions that must hold and cannot be checked, in sentences.
        beside: further releases that the guarantee does not cover.
        versions: library → version, for the libraries that the numbers depend on.
        not_covered: what the guarantee excludes.
        bounded: whether contributions are bounded; if not, `sensitivity` only scales the noise.
        noised: which coordinates get noise, in words.
        correlation: how noise is correlated over the steps, in words; empty for independent noise.
        declared: field of the plan → the rule, schedule, momentum or sparsification there, as Python writes it.
        queries: sentences on the releases beside the steps that the guarantee covers.
        held_out: public number of entries that no step uses and that the guarantee protects too.
        setting: who sees raw data, or what is computed from it before there is noise.
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
    correlation: str = ""
    declared: Mapping[str, str] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    held_out: int = 0
    setting: str = SETTING

    @property
    def people(self) -> int:
        """Number of protected examples or users, trained on or held out: more than `examples` if those are groups."""
        return self.examples * unit(self.unit).size + self.held_out

    @property
    def accountant_version(self) -> str:
        """Version of the accountant."""
        return f"privet {self.versions.get('privet', '')}".strip()

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            why = "; ".join(self.reasons) or "nothing bounds what is released"
            return f"NO PRIVACY (ε = ∞): {why}. The released results protect nobody's data.\n\n{self._how()}"
        return "\n\n".join([
            f"({format_up(self.epsilon)}, {self.delta})-differential privacy for {self.unit}, where neighbouring data sets "
            f"differ in {self.unit} that is {ADJACENCIES[self.adjacency]} (\"{self.adjacency}\").",
            f"What it means: {explain_meaning(self.meaning, str(self.unit), self.adjacency)}",
            "Covered: everything that the steps of this training released, taken together, including the final and all "
            f"intermediate parameters{_and_queries(self.queries)}. Any post-processing keeps the guarantee. "
            f"Setting: {self.setting}.",
            *self.queries,
            self._accounting(),
            self._how(),
            self._sampling(),
            "Assumed:\n" + _format_list(self.assumptions),
            "Also released: nothing else by the training steps (no loss, no norm, no number of sampled "
            f"{unit(self.unit).counted}s)" + "".join(f"; {text}" for text in self.beside) + ".",
            "Not covered:\n" + _format_list(self.not_covered),
            "Versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items()) + ".",
        ])  # fmt: skip

    def _accounting(self) -> str:
        others = ", ".join(
            f"{name} {format_up(value)} ({DIRECTIONS[name]})"
            for name, value in self.epsilon_by_accountant.items()
            if name != self.accountant
        )
        resolution = (
            ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.discretisation.items()) or "closed form"
        )
        amplification = (
            f"Without amplification by sampling, ε would be {format_up(self.epsilon_without_sampling)}: the same steps against "
            f"an attacker who knows which {unit(self.unit).counted}s take part in which step."
            if self.epsilon_without_sampling > self.epsilon
            else "No amplification by sampling is claimed."
        )
        return (
            f'Accounting: ε is computed by the accountant "{self.accountant}" ({DIRECTIONS[self.accountant]}) of '
            f"{self.accountant_version} ({resolution}). {amplification}"
            + (f" Other accountants: {others}." if others else "")
            + f" δ is {_format_share(self.delta * self.people)} 1/{self.people:,}."
            + "".join(f" {text}." for text in self.warnings)
        )

    def _how(self) -> str:
        counted = unit(self.unit).counted
        contribution = (
            f"bounds the contribution of each {counted} to {self.sensitivity:g} in L2 norm"
            if self.bounded
            else f"does not clip (the bound of {self.sensitivity:g} is nominal)"
        )
        declared = "".join(f" {name.replace('_', ' ').capitalize()}: {value}." for name, value in self.declared.items())
        return (
            f"How: {self.steps:,} steps. Each step draws a {self.sampling} sample (rate {self.sampling_rate:.6g} of "
            f"{self.examples:,} {counted}s), {contribution}, sums the contributions, adds {self._added()} to {self.noised}, and "
            "divides by the public expected batch size. "
            f"Randomness: {self.random_source}.{declared}" + "".join(f" {note}." for note in self.notes)
        )

    def _added(self) -> str:
        if self.correlation:
            return (
                f"Gaussian noise that is correlated {self.correlation} (as a mechanism on all steps together, its multiplier is "
                f"{self.noise_multiplier:.6g})"
            )
        return f"Gaussian noise with standard deviation {self.noise_multiplier:.6g} times that bound"

    def _sampling(self) -> str:
        performed = self.performed or "nothing yet; this is the statement of a plan and holds for runs that sample this way"
        return f"Sampling assumed: {self.assumed}. Performed: {performed}."

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain JSON values; infinity is the word "inf"."""
        values = {field.name: _to_plain(getattr(self, field.name)) for field in fields(self)}
        return values | {
            "prose": str(self),
            "direction": DIRECTIONS[self.accountant],
            "accountant_version": self.accountant_version,
            "delta_times_people": self.delta * self.people,
            "tuning": "not covered",
            "meaning": self.meaning.to_dict(),
        }

    def to_json(self) -> str:
        """Return the statement as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def explain_meaning(meaning: Meaning, protected: str, adjacency: str) -> str:
    """Return the limits on attacks in sentences; percentages are rounded in the attacker's favour.

    Args:
        meaning: the numbers.
        protected: the privacy unit.
        adjacency: how neighbouring data sets differ.
    """
    return (
        "an attacker sees everything that was released, knows all other data, has unlimited computing power, and tries to tell "
        f"{_QUESTIONS[adjacency].format(protected)}. The advantage of any attack (true minus false positive rate) is at most "
        f"{format_percent_up(meaning.advantage)}. At a false positive rate of 0.1 %, its true positive rate is at most "
        f"{format_percent_up(meaning.found_at_one_in_a_thousand)}; at 1 %, at most "
        f"{format_percent_up(meaning.found_at_one_in_a_hundred)}. If both answers are equally likely beforehand, the attacker "
        f"errs at least {format_percent_down(meaning.bayes_risk)} of the time (random guessing: 50 %)."
    )


def _format_share(share: float) -> str:
    """Return a share for a sentence: per cent below one, a factor from one on."""
    return f"{100 * share:.3g} % of" if share < 1 else f"{share:.3g} times"


def _and_queries(queries: tuple[str, ...]) -> str:
    return ", and the results of the queries described below" if queries else ""


def _format_list(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_plain(part) for name, part in value.items()}
    if isinstance(value, Unit):
        return str(value)
    return "inf" if isinstance(value, float) and math.isinf(value) else list(value) if isinstance(value, tuple) else value
