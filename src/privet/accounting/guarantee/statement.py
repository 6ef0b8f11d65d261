"""The guarantee as a value: prose for people, JSON for programs.

The content follows Ponomareva et al. 2023, "How to DP-fy ML", section 5.3.3: setting, scope, privacy unit, adjacency,
accountant, assumed and actual sampling, and exclusions. The threat model is: worst-case data, honest programs.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee.tradeoff import Meaning
from privet.accounting.privacy_unit import Unit, find_unit
from privet.accounting.queries import DIRECTIONS
from privet.accounting.rounding import format_percent_down, format_percent_up, format_up

# Version of the statement. The first promised more programs; its assumptions could not be checked by a reader. The second had no
# summary, date and purpose.
FORMAT = 3
LIBRARIES = ("privet", "torch", "numpy", "scipy")
# What an attacker tries to tell, by adjacency.
_QUESTIONS = {
    "add-remove": "whether {} was in the data",
    "replace-one": "which of two versions of {} was in the data",
    "zero-out": "whether {} or a placeholder was in the data",
}

SETTING = "central (the trainer holds the raw data; only what is released is private)"
_DATA = "the data may have any values, lengths and labels, also ones made to break the training. "
# Whether code of the user runs → what is assumed about the program.
_PROGRAMS = {
    True: "The program is honest: model, loss, data set and hooks are written without intent to leak",
    False: "Network, loss and reading are Privet's own",
}
_RESTORED = (
    "state that a pass changes is restored after it: modules and their buffers, objects that modules and hooks hold (two levels "
    "deep), and names that the loss closes over"
)
# What holds for every data set and every honest program. `{}` stands for what is counted, such as "example".
_BY_CONSTRUCTION = (
    "the gradient of each {0} depends on that {0} alone: reading, model and loss get one {0} at a time",
    _RESTORED,
    "each {0} is clipped as a whole; if it raises an error, or its gradient is not finite, it contributes zero",
    "each {0} gets fresh random numbers in reading, model and loss; a seed in the program does not repeat them",
    "sampling, noise and accounting follow the plan; the ledger counts a step before its noise is drawn, so a crash can count "
    "too many steps, never too few",
)
_BY_CHECK = (
    "a loss that is not one number for each {0}, or that mixes {0}s: in-batch losses, mixup in the loss, batch normalisation in "
    "training mode",
    "a program that writes to parameters, keeps tensors of one {0}, or calls backward() itself",
    "a method whose gradients differ from those of plain autograd",
    "a data set that has another size or unit than the plan, or that holds an entry twice",
    "an optimizer, a scheduler or an average that carries state of earlier steps",
)
# Conditions on the program. A reader can check them in his own code.
_REMEMBERS_NOTHING = (
    "model, loss and data set remember nothing of one {0} outside modules, objects that modules hold (two levels deep) and names "
    "that the loss closes over"
)
_READS_ALONE = "reading entry i depends on i and on fresh randomness, and on nothing else"
_RULES_BY_ROW = "batching rules (of torch, of Privet, and your own) compute each {0} from its own row"
# Units whose data count as one, in a sentence.
_TOGETHER = {"one user": "All data of a user count as one"}
_ONE_ENTRY = {
    "one user": "no two entries hold data of the same user: no user has data under two ids",
    "": "no two entries hold the same person's data; a person with several entries is protected less, as a group of that size",
}
_LEAKING = "programs that are written to leak what they read"
_ABOUT_CODE = (_RESTORED, _REMEMBERS_NOTHING, _READS_ALONE, _RULES_BY_ROW, _LEAKING)
CHOICES = (
    "choices made by looking at the private data: hyperparameters, architecture, early stopping, which run to keep "
    "(privet.tuning.search makes such a choice under its own guarantee)"
)
NOT_COVERED = (
    _LEAKING,
    CHOICES,
    "other trainings on the same people's data, such as one that made the initial parameters: their ε adds to this one "
    "(privet.Budget adds it up)",
    "evaluation on private data, and any other number computed from it outside the training steps",
    "side channels of the training machine, such as time and memory use",
    "an adversary who can read the memory, the disk or the console of the training process",
    "rounding errors within sums of floating-point gradients (the released sums themselves lie on a public grid)",
)


def promise_for(protected: str | Unit) -> tuple[tuple[str, ...], ...]:
    """Return what holds by construction, what a check refuses, and what is assumed, in sentences about a privacy unit."""
    counted = find_unit(protected).counted
    one_entry = _ONE_ENTRY.get(str(protected), _ONE_ENTRY[""])
    assumed = (_REMEMBERS_NOTHING, _READS_ALONE, _RULES_BY_ROW, one_entry)
    return tuple(tuple(text.format(counted) for text in texts) for texts in (_BY_CONSTRUCTION, _BY_CHECK, assumed))


def find_versions(libraries: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Return library → installed version."""
    return {name: _find_version(name) for name in libraries}


_find_version = functools.cache(importlib.metadata.version)  # reading what pip has installed takes 10 ms each


@dataclass(frozen=True, kw_only=True)
class Statement(ABC):
    """What every statement has: a summary, the guarantee, its meaning, its assumptions and its exclusions."""

    TUNING = "not covered"

    epsilon: float  # infinity without privacy
    delta: float
    adjacency: str
    unit: str | Unit  # whose data is protected
    examples: int  # public size N of the data set, in the units that are sampled and clipped
    accountant: str  # or the mechanism with a formula of its own
    meaning: Meaning
    random_source: str
    reasons: tuple[str, ...] = ()  # why there is no privacy, if there is none
    notes: tuple[str, ...] = ()  # on the mechanism or the data
    by_construction: tuple[str, ...] = ()  # what holds for every data set and every honest program
    by_check: tuple[str, ...] = ()  # what a check on public input refuses before the first step
    assumptions: tuple[str, ...] = ()  # on the program, which a reader can check in his own code
    public: tuple[str, ...] = ()  # facts that are taken as public
    not_covered: tuple[str, ...] = NOT_COVERED
    versions: Mapping[str, str] = field(default_factory=find_versions)  # of the libraries that the numbers depend on
    setting: str = SETTING  # who sees raw data
    purpose: str = ""  # of the training, in the words of whoever ran it
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}", compare=False)
    user_code: bool = True  # whether model, loss or reading are not Privet's own, so that something is assumed about them

    def without_user_code(self) -> Self:
        """Return the statement for a network, a loss and a reader that are Privet's own: nothing is assumed about code."""
        counted = find_unit(self.unit).counted
        about = {text.format(counted) for text in _ABOUT_CODE}
        names = ("by_construction", "assumptions", "not_covered")
        kept: dict[str, Any] = {name: tuple(text for text in getattr(self, name) if text not in about) for name in names}
        return replace(self, user_code=False, by_check=(), **kept)

    @property
    def people(self) -> int:
        """Number of protected examples or users: more than `examples` if those are groups."""
        return self.examples * find_unit(self.unit).size

    @property
    def direction(self) -> str:
        """Direction of the accountant's error."""
        return "upper bound"

    @property
    def accountant_version(self) -> str:
        """Version of the accountant."""
        return f"privet {self.versions.get('privet', '')}".strip()

    @property
    def summary(self) -> str:
        """Summary in plain words, for readers who do not know differential privacy; it repeats numbers of the details."""
        unit = str(self.unit)
        purpose = f" Purpose: {self.purpose.rstrip('.')}." if self.purpose else ""
        done = f"What was done: {self._done()}.{purpose} Date: {self.date}."
        if math.isinf(self.epsilon):
            return done
        entry = "example" if find_unit(self.unit).size > 1 else find_unit(self.unit).counted
        others = _TOGETHER.get(unit, f"A person with data in several {entry}s is protected less")
        return "\n\n".join([
            done,
            f"Who is protected: {unit}. {others}.",
            "What is promised: from the results, even with all other data, nobody can tell "
            f"{_QUESTIONS[self.adjacency].format(unit)} without erring at least "
            f"{format_percent_down(self.meaning.bayes_risk)} of the time, at even odds; a coin flip errs 50 %. "
            f"In numbers: ε = {format_up(self.epsilon)} at δ = {self.delta}.",
            "What is not promised: that the results are right, or reveal nothing about people in general. Not covered: "
            "choices made by looking at the data, other trainings and numbers from it, access to the training machine.",
        ])  # fmt: skip

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            why = "; ".join(self.reasons) or "nothing bounds what is released"
            first = f"NO PRIVACY (ε = ∞): {why}. The released results protect nobody's data."
            return "\n\n".join([first, self.summary, self._how()])
        lists = {
            "Bounded by construction": self.by_construction,
            "Refused by a check on public input, before the first step": self.by_check,
            "Assumed; check it in your own code" if self.user_code else "Assumed": self.assumptions,
            "Taken as public": self.public,
        }
        return "\n\n".join([
            self.summary,
            f"Guarantee: ({format_up(self.epsilon)}, {self.delta})-differential privacy for {self.unit}, where neighbouring data "
            f'sets differ in {self.unit} that is {ADJACENCIES[self.adjacency]} ("{self.adjacency}").',
            f"What it means: {explain_meaning(self.meaning, str(self.unit), self.adjacency)}",
            f"Covered: {self._covered()}. Any post-processing keeps the guarantee. Setting: {self.setting}.",
            *self._releases(),
            f"Data and programs: {_DATA}{_PROGRAMS[self.user_code]}.",
            *(f"{heading}:\n{_format_list(items)}" for heading, items in lists.items() if items),
            *self._also_released(),
            "Not covered:\n" + _format_list(self.not_covered),
            f"Versions: statement {FORMAT}, " + ", ".join(f"{name} {version}" for name, version in self.versions.items()) + ".",
        ])  # fmt: skip

    @abstractmethod
    def _done(self) -> str:
        """Return what was done with the data, in plain words."""

    @abstractmethod
    def _covered(self) -> str:
        """Return what was released."""

    @abstractmethod
    def _how(self) -> str:
        """Return the paragraph on the accounting."""

    def _releases(self) -> tuple[str, ...]:
        return (self._how(),)

    def _also_released(self) -> tuple[str, ...]:
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain JSON values; infinity is the word "inf"."""
        values = {field.name: _to_plain(getattr(self, field.name)) for field in fields(self)}
        return values | {
            "format": FORMAT,
            "prose": str(self),
            "summary": self.summary,
            "direction": self.direction,
            "accountant_version": self.accountant_version,
            "delta_times_people": self.delta * self.people,
            "tuning": self.TUNING,
            "meaning": self.meaning.to_dict(),
        }

    def to_json(self) -> str:
        """Return the statement as one JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def share_of_delta(self) -> str:
        """Return a sentence that compares δ with one over the number of protected people."""
        share = self.delta * self.people
        compared = f"{100 * share:.3g} % of" if share < 1 else f"{share:.3g} times"
        return f"δ is {compared} 1/{self.people:,}."


@dataclass(frozen=True, kw_only=True)
class Guarantee(Statement):
    """The privacy guarantee of a plan or a run, with its assumptions and exclusions."""

    noise_multiplier: float  # σ, noise standard deviation over sensitivity
    sensitivity: float  # bound on one unit's contribution
    sampling: str
    sampling_rate: float
    assumed: str  # how examples join a step, as the accountant assumes it
    performed: str | None = None  # how the run sampled; None for a plan
    steps: int  # accounted releases: for a run, those in its ledger, including any lost to a crash
    discretisation: Mapping[str, float]  # resolution of the accountant's answer
    epsilon_by_accountant: Mapping[str, float]
    epsilon_without_sampling: float  # against an attacker who knows the samples
    warnings: tuple[str, ...]  # cautions about the settings
    beside: tuple[str, ...] = ()  # further releases that the guarantee does not cover
    bounded: bool = True  # if not, `sensitivity` only scales the noise
    noised: str = "every coordinate"  # which coordinates get noise
    correlation: str = ""  # of noise over the steps; empty if independent
    declared: Mapping[str, str] = field(default_factory=dict)  # field of the plan → the part there, as Python writes it
    queries: tuple[str, ...] = ()  # sentences on the releases beside the steps
    held_out: int = 0  # public number of entries that no step uses

    @property
    def direction(self) -> str:
        """Direction of the accountant's error."""
        return DIRECTIONS[self.accountant]

    @property
    def people(self) -> int:
        """Number of protected examples or users, trained on or held out."""
        return super().people + self.held_out

    def _done(self) -> str:
        counted, steps = find_unit(self.unit).counted, f"{self.steps:,} step{'s' * (self.steps != 1)}"
        done = "a model was trained" if self.performed else "nothing yet. This is the statement of a plan to train a model"
        held_out = f", and {self.held_out:,} others measure the result" if self.held_out else ""
        limits = f". Every step limits what one {counted} changes, and adds noise" * math.isfinite(self.epsilon)
        return f"{done} on the data of {self.examples:,} {counted}s, in {steps}{held_out}{limits}"

    def _covered(self) -> str:
        queries = ", and the results of the queries described below" if self.queries else ""
        return (
            "everything that the steps of this training released, taken together, including the final and all intermediate "
            f"parameters{queries}"
        )

    def _releases(self) -> tuple[str, ...]:
        return (*self.queries, self._accounting(), self._how(), self._sampling())

    def _also_released(self) -> tuple[str, ...]:
        nothing = f"nothing else by the training steps (no loss, no norm, no number of sampled {find_unit(self.unit).counted}s)"
        return (f"Also released: {'; '.join([nothing, *self.beside])}.",)

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
            f"an attacker who knows which {find_unit(self.unit).counted}s take part in which step."
            if self.epsilon_without_sampling > self.epsilon
            else "No amplification by sampling is claimed."
        )
        return (
            f'Accounting: ε is computed by the accountant "{self.accountant}" ({self.direction}) of '
            f"{self.accountant_version} ({resolution}). {amplification}"
            + (f" Other accountants: {others}." if others else "")
            + f" {self.share_of_delta()}"
            + "".join(f" {text}." for text in self.warnings)
        )

    def _how(self) -> str:
        counted = find_unit(self.unit).counted
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


def explain_meaning(meaning: Meaning, protected: str, adjacency: str) -> str:
    """Return the limits on attacks in sentences; percentages are rounded in the attacker's favour."""
    return (
        "an attacker sees everything that was released, knows all other data, has unlimited computing power, and tries to tell "
        f"{_QUESTIONS[adjacency].format(protected)}. The advantage of any attack (true minus false positive rate) is at most "
        f"{format_percent_up(meaning.advantage)}. At a false positive rate of 0.1 %, its true positive rate is at most "
        f"{format_percent_up(meaning.found_at_one_in_a_thousand)}; at 1 %, at most "
        f"{format_percent_up(meaning.found_at_one_in_a_hundred)}. If both answers are equally likely beforehand, the attacker "
        f"errs at least {format_percent_down(meaning.bayes_risk)} of the time (random guessing: 50 %)."
    )


def _format_list(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_plain(part) for name, part in value.items()}
    if isinstance(value, Unit):
        return str(value)
    return "inf" if isinstance(value, float) and math.isinf(value) else list(value) if isinstance(value, tuple) else value
