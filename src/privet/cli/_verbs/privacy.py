"""`privet epsilon`, `privet noise` and `privet steps`: privacy accounting without data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from privet.accounting import Composition, compare, edgeworth, read_composition, zcdp
from privet.accounting.events import Event
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.statement import explain_meaning
from privet.accounting.guarantee.verification import verify_epsilon
from privet.accounting.privacy_unit import Unit, group_unit
from privet.accounting.queries import ACCOUNTANTS, DIRECTIONS, accountants_of, as_accounted
from privet.accounting.rounding import format_up
from privet.cli import parts
from privet.cli.options import QuestionOptions, command, option, require
from privet.cli.output import PRIVACY, SAMPLING, answer, as_option
from privet.errors import InvalidArgumentError, PrivetError, choice
from privet.noise import Gaussian
from privet.plan import PrivacyMechanism
from privet.plan.mechanism import Epochs

# Points of the curve δ(ε) in the prose; the JSON output has all.
_POINTS = 6
# False positive rates at which the trade-off curve is reported.
_RATES = np.concatenate([[0.0], np.geomspace(1e-4, 0.1, 31), np.linspace(0.11, 1.0, 90)])


@dataclass(frozen=True, kw_only=True)
class LengthQuestion(QuestionOptions):
    """The options of a question about a training of a given length."""

    steps: int | None = option("Number of steps.", SAMPLING)
    epochs: float | None = option("Passes over the data, instead of --steps.", SAMPLING, without="--steps")


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
def epsilon(_: typer.Context, given: EpsilonOptions) -> None:
    """Compute the ε of a training run, or of a composition that is written in a file.

    Example: privet epsilon --examples 60000 --batch-size 256 --steps 3516 --noise-multiplier 1.1 --delta 1e-5
    """
    choice("--accountant", given.accountant, ACCOUNTANTS)
    asked, values, said, shape = (_of_a_training if given.composition is None else _of_a_composition)(given)
    known = {"delta": asked.delta, "accountant": given.accountant, "direction": DIRECTIONS[given.accountant]}
    values = {"epsilon": values["epsilon"]} | known | values
    if given.figure is not None:
        from privet import report

        draw: Callable[..., Path] = report.draw_comparison if given.composition is None else report.draw_trade_off
        values["figure"] = str(draw(shape, given.figure))
        said.append(f"Figure: {given.figure.resolve().as_uri()}")
    opinion = None
    if given.verify:
        releases = asked.events() if isinstance(asked, PrivacyMechanism) else asked.releases
        opinion = verify_epsilon(releases, epsilon=values["epsilon"], delta=values["delta"], adjacency=asked.adjacency)
        values |= opinion.to_dict()
        said.append(str(opinion))
    answer(given.json, values, "\n".join(said))
    if opinion is not None and opinion.agrees is False:
        raise PrivetError(f"verification failed: {opinion}")


# What is asked about, further values, prose, and what the figure shows.
_Answer = tuple[PrivacyMechanism | Composition, dict[str, Any], list[str], PrivacyMechanism | tradeoff.PrivacyProfile]


def _of_a_training(given: EpsilonOptions) -> _Answer:
    plan = _ask(given)
    spent = plan.epsilon(given.accountant)
    values: dict[str, Any] = {"epsilon": spent}
    said = [_in_words(plan, given.accountant, spent)]
    if given.explain:
        meaning = tradeoff.meaning(plan.events(), adjacency=plan.adjacency, delta=plan.delta)
        values |= meaning.to_dict()
        said += ["", f"What it means: {explain_meaning(meaning, str(plan.unit), plan.adjacency)}", _pairs(meaning.profile)]
    if given.comparison:
        shown = compare(plan)
        values["comparison"] = shown.to_dict()["rows"]
        said += ["", str(shown)]
    return plan, values, said, plan


def _of_a_composition(given: EpsilonOptions) -> _Answer:
    assert given.composition is not None
    names = ("examples", "batch_size", "noise_multiplier", "steps", "epochs", "sampling", "unit")
    defaults = {each.name: each.default for each in fields(given)}
    if beside := [as_option(name) for name in names if getattr(given, name) != defaults[name]]:
        allowed = "given without options that describe a training run"
        fix = "The file lists all releases."
        raise InvalidArgumentError("--composition", ", ".join(beside), allowed, fix)
    read, accountant = read_composition(given.composition), given.accountant
    delta, adjacency = read.delta if given.delta is None else given.delta, given.adjacency or read.adjacency
    if delta is None:
        raise InvalidArgumentError("--delta", None, "given, here or in the file", "It is usually well below 1 / examples.")
    asked = replace(read, delta=delta, adjacency=adjacency)
    spent, privacy = asked.epsilon(accountant), tradeoff.profile(asked.releases, adjacency=adjacency, delta=delta)
    try:
        rho = zcdp.rho(asked.releases, adjacency)
    except InvalidArgumentError:  # not known for a release
        rho = math.inf
    values: dict[str, Any] = {
        "epsilon": spent, "adjacency": adjacency, "releases": asked.number, "rho": rho if math.isfinite(rho) else None,
    }  # fmt: skip
    known = f"({adjacency}; {accountant}: {DIRECTIONS[accountant]})"
    said = [f"ε = {format_up(spent, 6)} at δ = {delta:g} for {asked.number:,} releases {known}"]
    if accountant == "edgeworth":
        events = [event for event in as_accounted(asked.releases, adjacency, "edgeworth") if isinstance(event, Event)]
        low, high = edgeworth.interval(events, delta, adjacency)
        values["interval"] = [low, "inf" if high == math.inf else high]
        said.append(f"The true ε lies between {low:.4g} and {format_up(high)} (finite-sample bounds of the expansion)")
    if math.isfinite(rho):
        said.append(f"ρ = {format_up(rho)} (zero-concentrated, without amplification)")
    values |= tradeoff.interpret(privacy).to_dict()
    missed = tradeoff.false_negative_rate(privacy, _RATES)
    values["trade_off"] = {"false_positive_rate": _RATES.tolist(), "false_negative_rate": missed.tolist()}
    points = ", ".join(f"{rate:g}: {tradeoff.false_negative_rate(privacy, rate):.4f}" for rate in (0.001, 0.01, 0.1, 0.5))
    said.append(f"Lowest false negative rate of any attack, by false positive rate: {points}")
    if given.comparison:
        covering = [name for name in ACCOUNTANTS if all(name in accountants_of(release) for release in asked.releases)]
        found = {name: asked.epsilon(name) for name in covering}
        values["comparison"] = [
            {"accountant": name, "epsilon": "inf" if value == math.inf else value, "direction": DIRECTIONS[name]}
            for name, value in found.items()
        ]
        said += [f"{name:<10} {format_up(value)}  {DIRECTIONS[name]}" for name, value in found.items()]
    return asked, values, said, privacy


def _ask(given: Any) -> PrivacyMechanism:
    fix = "Or list the releases in a file, for --composition." if hasattr(given, "composition") else ""
    names = ("examples", "batch_size", "noise_multiplier", "epsilon", "delta")
    require(given, *(name for name in names if hasattr(given, name)), fix=fix)
    if isinstance(given, LengthQuestion) and given.epochs is None:
        require(given, "steps", fix="Set the length of the training with --steps or --epochs.")
    multiplier, steps, epochs = (getattr(given, name, None) for name in ("noise_multiplier", "steps", "epochs"))
    return PrivacyMechanism(
        examples=given.examples,
        sampling=parts.scheme(given.sampling, given.batch_size, given.examples),
        steps=steps if epochs is None else Epochs(epochs),
        delta=given.delta,
        adjacency=given.adjacency or "add-remove",
        noise=Gaussian(multiplier, non_private=multiplier == 0),
        unit=_unit(given.unit),
    )


def _unit(word: str) -> str | Unit:
    """Return the plan's name for a unit of privacy such as "user" or "group:4"."""
    kind, _, size = word.partition(":")
    if kind == "group" and size.isdecimal() and int(size) > 0:
        return group_unit(int(size))
    return "one " + choice("--unit", word, ("example", "user"), "For groups of four: group:4.")


@command(MultiplierOptions)
def noise(_: typer.Context, given: MultiplierOptions) -> None:
    """Find the smallest noise multiplier that meets a target ε.

    Example: privet noise --examples 60000 --batch-size 512 --epochs 20 --epsilon 3 --delta 1e-5
    """
    _answer_calibrated(given)


@command(StepsOptions)
def steps(_: typer.Context, given: StepsOptions) -> None:
    """Find the largest number of steps within a privacy budget, as privet train does with --epsilon and --noise-multiplier.

    Example: privet steps --examples 60000 --batch-size 256 --noise-multiplier 1.1 --epsilon 3 --delta 1e-5
    """
    _answer_calibrated(given)


def _answer_calibrated(given: MultiplierOptions | StepsOptions) -> None:
    plan = _ask(given).calibrate(given.epsilon or 0.0, accountant=given.accountant)
    reached, found = plan.epsilon(given.accountant), {"noise_multiplier": plan.noise_multiplier}
    said = f"noise multiplier {format_up(plan.noise_multiplier, 6)}"
    if isinstance(given, StepsOptions):
        found, said = {"steps": plan.total_steps}, f"{plan.total_steps} steps"
    values = {**found, "epsilon": reached, "delta": plan.delta, "accountant": given.accountant}
    answer(given.json, values, f"{said}, for {_in_words(plan, given.accountant, reached)}")


def _in_words(plan: PrivacyMechanism, accountant: str, spent: float) -> str:
    if plan.noise_multiplier == 0:
        return "ε = ∞: there is no privacy without noise"
    if math.isinf(spent):
        return f"ε = ∞: the accountant {accountant!r} has no finite bound for so little noise at δ = {plan.delta:g}"
    known = f"({plan.adjacency}; {accountant}: {DIRECTIONS[accountant]})"
    caution = f"\nδ is not below 1/{plan.people}: even publishing one random record in the clear would satisfy it"
    within = plan.delta * plan.people < 1
    return f"ε = {format_up(spent, 6)} at δ = {plan.delta:g} for {plan.unit} {known}{'' if within else caution}"


def _pairs(privacy: tradeoff.PrivacyProfile) -> str:
    last = len(privacy.epsilons) - 1
    places = sorted({round(last * point / (_POINTS - 1)) for point in range(_POINTS)})
    points = (f"({format_up(privacy.epsilons[place])}, {format_up(privacy.deltas[place])})" for place in places)
    return f"These (ε, δ) pairs all hold: {', '.join(points)}."
