"""`privet epsilon`, `privet noise` and `privet steps`: privacy accounting without data."""

from __future__ import annotations

__all__ = ["EpsilonOptions", "MultiplierOptions", "StepsOptions", "epsilon", "noise", "steps"]

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import typer

from privet.accounting import compare
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.statement import explain_meaning
from privet.accounting.guarantee.verification import verify_epsilon
from privet.accounting.queries import ACCOUNTANTS, DIRECTIONS
from privet.accounting.rounding import format_up
from privet.cli import parts
from privet.cli.compositions import answer_composition
from privet.cli.options import QuestionOptions, as_option, command, option
from privet.cli.output import answer
from privet.cli.topics import PRIVACY, SAMPLING
from privet.errors import InvalidArgumentError, PrivetError, choice
from privet.noise import Gaussian
from privet.plan import PrivacyMechanism

# Points of the curve δ(ε) in the prose; the JSON output has all.
_POINTS = 6


@dataclass(frozen=True, kw_only=True)
class LengthQuestion(QuestionOptions):
    """The options of a question about a training of a given length."""

    steps: int | None = option("Number of steps.", SAMPLING)
    epochs: float | None = option("Passes over the data, instead of --steps.", SAMPLING)


@dataclass(frozen=True, kw_only=True)
class EpsilonOptions(LengthQuestion):
    """The options of `privet epsilon`."""

    noise_multiplier: float | None = option("Noise standard deviation over sensitivity; 0 for no noise.", PRIVACY)
    composition: Path | None = option("TOML or JSON file that lists releases, instead of a training run.", PRIVACY)
    explain: bool = option(
        "Bound what an attacker can learn: advantage, and true positive rate at low false positive rates.", None, False
    )
    comparison: bool = option("Show ε by every accountant.", None, False, "--compare")
    figure: Path | None = option("SVG file for a figure of ε over steps by accountant.", None)
    verify: bool = option("Compare with dp-accounting; exit status 2 if our ε is below its ε.", None, False)


@dataclass(frozen=True, kw_only=True)
class MultiplierOptions(LengthQuestion):
    """The options of `privet noise`."""

    epsilon: float | None = option("Target ε; never exceeded.", PRIVACY)


@dataclass(frozen=True, kw_only=True)
class StepsOptions(QuestionOptions):
    """The options of `privet steps`."""

    noise_multiplier: float | None = option("Noise standard deviation over sensitivity.", PRIVACY)
    epsilon: float | None = option("Privacy budget ε; never exceeded.", PRIVACY)


@command(EpsilonOptions)
def epsilon(context: typer.Context, given: EpsilonOptions) -> None:
    """Compute the ε of a training run, or of a composition that is written in a file.

    Example: privet epsilon --examples 60000 --batch-size 256 --steps 3516 --noise-multiplier 1.1 --delta 1e-5
    """
    del context
    if given.composition is not None:
        _refuse_beside_a_composition(given)
        answer_composition(
            given.composition, delta=given.delta, adjacency=given.adjacency, accountant=given.accountant,
            comparison=given.comparison, figure=given.figure, verify=given.verify, json=given.json,
        )  # fmt: skip
        return
    _require(
        given, "examples", "batch_size", "noise_multiplier", "delta", fix="Or list the releases in a file, for --composition."
    )
    plan = _ask(given, given.noise_multiplier)
    accountant, adjacency, delta = given.accountant, plan.adjacency, plan.delta
    choice("--accountant", accountant, ACCOUNTANTS)
    spent = plan.epsilon(accountant)
    values: dict[str, Any] = {
        "epsilon": spent, "delta": delta, "accountant": accountant, "direction": DIRECTIONS[accountant],
    }  # fmt: skip
    said = [_in_words(plan, accountant, spent)]
    if given.explain:
        meaning = tradeoff.meaning(plan.events(), adjacency=adjacency, delta=delta)
        values |= meaning.to_dict()
        said.append(f"What it means: {explain_meaning(meaning, str(plan.unit), adjacency)}\n{_pairs(meaning.profile)}")
    if given.comparison:
        table = compare(plan)
        values["comparison"] = table.to_dict()["rows"]
        said.append(str(table))
    if given.figure is not None:
        from privet.report import draw_comparison

        values["figure"] = str(draw_comparison(plan, given.figure))
        said.append(f"Figure: {given.figure.resolve().as_uri()}")
    opinion = verify_epsilon(plan.events(), epsilon=spent, delta=delta, adjacency=adjacency) if given.verify else None
    if opinion is not None:
        values |= opinion.to_dict()
        said.append(str(opinion))
    answer(given.json, values, "\n\n".join(said))
    if opinion is not None and opinion.agrees is False:
        raise PrivetError(f"verification failed: {opinion}")


def _ask(given: LengthQuestion, multiplier: float | None) -> PrivacyMechanism:
    """Return the mechanism of a training of the given length."""
    length = parts.length(given.steps, given.epochs)
    if length is None:
        raise InvalidArgumentError("--steps", None, "given", "Set the length of the training with --steps or --epochs.")
    return parts.question(given, Gaussian(multiplier, non_private=multiplier == 0), length)


def _require(given: object, *names: str, fix: str = "") -> None:
    for name in names:
        if getattr(given, name) is None:
            raise InvalidArgumentError(as_option(name), None, "given", fix)


def _refuse_beside_a_composition(given: EpsilonOptions) -> None:
    names = ("examples", "batch_size", "noise_multiplier", "steps", "epochs", "sampling", "unit")
    defaults = {each.name: each.default for each in fields(given)}
    if beside := [as_option(name) for name in names if getattr(given, name) != defaults[name]]:
        raise InvalidArgumentError(
            "--composition", ", ".join(beside), "given without options that describe a training run",
            "The file lists all releases.",
        )  # fmt: skip


@command(MultiplierOptions)
def noise(context: typer.Context, given: MultiplierOptions) -> None:
    """Find the smallest noise multiplier that meets a target ε.

    Example: privet noise --examples 60000 --batch-size 512 --epochs 20 --epsilon 3 --delta 1e-5
    """
    del context
    _require(given, "examples", "batch_size", "epsilon", "delta")
    _answer_calibrated(given, _ask(given, None), given.epsilon or 0.0, "noise_multiplier")


@command(StepsOptions)
def steps(context: typer.Context, given: StepsOptions) -> None:
    """Find the largest number of steps within a privacy budget, as privet train does with --epsilon and --noise-multiplier.

    Example: privet steps --examples 60000 --batch-size 256 --noise-multiplier 1.1 --epsilon 3 --delta 1e-5
    """
    del context
    _require(given, "examples", "batch_size", "noise_multiplier", "epsilon", "delta")
    noise = Gaussian(given.noise_multiplier, non_private=given.noise_multiplier == 0)
    _answer_calibrated(given, parts.question(given, noise, None), given.epsilon or 0.0, "steps")


def _answer_calibrated(given: QuestionOptions, asked: PrivacyMechanism, epsilon: float, name: str) -> None:
    """Print the noise multiplier or the number of steps that meets a target ε."""
    plan = asked.calibrate(epsilon, accountant=given.accountant)
    reached = plan.epsilon(given.accountant)
    found = plan.total_steps if name == "steps" else plan.noise_multiplier
    said = f"{found} steps, for" if name == "steps" else f"noise multiplier {format_up(plan.noise_multiplier, 6)}, for"
    values = {name: found, "epsilon": reached, "delta": plan.delta, "accountant": given.accountant}
    answer(given.json, values, f"{said} {_in_words(plan, given.accountant, reached)}")


def _in_words(plan: PrivacyMechanism, accountant: str, spent: float) -> str:
    if plan.noise_multiplier == 0:
        return "ε = ∞: there is no privacy without noise"
    if math.isinf(spent):
        return f"ε = ∞: the accountant {accountant!r} has no finite bound for so little noise at δ = {plan.delta:g}"
    known = f"({plan.adjacency}; {accountant}: {DIRECTIONS[accountant]})"
    return f"ε = {format_up(spent, 6)} at δ = {plan.delta:g} for {plan.unit} {known}{_caution(plan)}"


def _pairs(privacy: tradeoff.PrivacyProfile) -> str:
    """Return some points of the curve, with ε and δ rounded up."""
    last = len(privacy.epsilons) - 1
    places = sorted({round(last * point / (_POINTS - 1)) for point in range(_POINTS)})
    points = (f"({format_up(privacy.epsilons[place])}, {format_up(privacy.deltas[place])})" for place in places)
    return f"These (ε, δ) pairs all hold: {', '.join(points)}."


def _caution(plan: PrivacyMechanism) -> str:
    if plan.delta * plan.people < 1:
        return ""
    return f"\nδ is not below 1/{plan.people}: even publishing one random record in the clear would satisfy it"
