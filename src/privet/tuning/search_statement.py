"""The guarantee of a hyperparameter search as a value: prose for people, JSON for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privet.accounting.guarantee.statement import CHOICES, NOT_COVERED, Statement
from privet.accounting.privacy_unit import find_unit
from privet.accounting.rounding import format_up

_EVALUATION = "evaluation on private data"
WHAT_A_SEARCH_DOES_NOT_COVER = (
    "the number of runs, which their total time reveals, and everything else about the runs that were not chosen: delete their "
    "files",
    "candidate settings that were added after looking at the private data",
    *(text.replace(_EVALUATION, f"{_EVALUATION} other than the score") for text in NOT_COVERED if text != CHOICES),
)


@dataclass(frozen=True, kw_only=True)
class SelectionGuarantee(Statement):
    """The privacy guarantee of keeping only the best of a random number of runs, with its assumptions and exclusions."""

    TUNING = "covered: the choice among the candidates"

    accountant: str = "rdp"
    not_covered: tuple[str, ...] = WHAT_A_SEARCH_DOES_NOT_COVER
    number: str  # distribution of the number of runs, in words
    mean: float  # its mean
    candidates: int  # number of settings from which each run draws one uniformly
    epsilon_of_one: float  # ε of a single run of the most expensive candidate
    score: str  # that the runs were compared by
    performed: bool = False  # whether the search was made; if not, this is the statement of its plans
    warnings: tuple[str, ...] = ()  # cautions about the runs

    def _done(self) -> str:
        counted = find_unit(self.unit).counted
        done = "a model was chosen" if self.performed else "nothing yet. This is the statement of a plan to choose a model"
        limits = f". Every step limits what one {counted} changes, and adds noise" * math.isfinite(self.epsilon)
        return (
            f"{done} by training on the data of {self.examples:,} {counted}s a secret number of times, with {self.candidates:,} "
            f"settings to draw from{limits}"
        )

    def _covered(self) -> str:
        return "the chosen model, its setting and its score together, including the choice"

    def _releases(self) -> tuple[str, ...]:
        accounting = (
            f"Accounting: ε is computed from Rényi divergences ({self.direction}) by {self.accountant_version}. A single run has "
            f"({format_up(self.epsilon_of_one)}, {self.delta}). Its own statement says so, but does not hold for one that was "
            f"chosen. {self.share_of_delta()}"
        )
        return accounting + "".join(f" {text}." for text in self.warnings), self._how()

    def _how(self) -> str:
        return (
            f"How: a secret number of runs (distribution: {self.number}), each with one of {self.candidates:,} settings drawn "
            f"uniformly at random and with fresh noise; the best by {self.score} is kept. Randomness: {self.random_source}."
            + "".join(f" {note}." for note in self.notes)
        )
