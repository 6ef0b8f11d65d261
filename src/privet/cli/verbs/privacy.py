"""`privet epsilon`, `privet noise` and `privet steps`: privacy accounting without data."""

from __future__ import annotations

__all__ = ["Examples", "epsilon", "noise", "steps"]

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from privet.accounting import compare
from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.statement import explain_meaning
from privet.accounting.guarantee.verification import verify_epsilon
from privet.accounting.queries import ACCOUNTANTS, DIRECTIONS
from privet.accounting.rounding import format_up
from privet.cli import options, parts
from privet.cli.compositions import CompositionFile, answer_composition
from privet.cli.output import Json, answer
from privet.cli.topics import PRIVACY, SAMPLING
from privet.errors import InvalidArgumentError, PrivetError, choice
from privet.noise import Gaussian
from privet.plan import PrivacyMechanism
from privet.plan.calibration import calibrate

Examples = Annotated[int, typer.Option(help="Public number of examples in the data set.", rich_help_panel=SAMPLING)]
_Value = TypeVar("_Value")
# Points of the curve δ(ε) in the prose; the JSON output has all.
_POINTS = 6


def epsilon(
    examples: Annotated[int | None, typer.Option(help="Public number of examples.", rich_help_panel=SAMPLING)] = None,
    batch_size: Annotated[float | None, typer.Option(help="Expected batch size.", rich_help_panel=SAMPLING)] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise standard deviation over sensitivity; 0 for no noise.", rich_help_panel=PRIVACY),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Target δ; below 1 / examples.", rich_help_panel=PRIVACY)] = None,
    composition: CompositionFile = None,
    steps: options.Steps = None,
    epochs: options.EpochsOption = None,
    accountant: options.Accountant = "pld",
    sampling: options.Sampling = "poisson",
    adjacency: Annotated[
        str | None,
        typer.Option(help=f"How neighbouring data sets differ: {', '.join(ADJACENCIES)}.", rich_help_panel=PRIVACY),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(help="Bound what an attacker can learn: advantage, and true positive rate at low false positive rates."),
    ] = False,
    comparison: Annotated[bool, typer.Option("--compare", help="Show ε by every accountant.")] = False,
    figure: Annotated[Path | None, typer.Option(help="SVG file for a figure of ε over steps by accountant.")] = None,
    verify: Annotated[bool, typer.Option(help="Compare with dp-accounting; exit status 2 if our ε is below its ε.")] = False,
    unit: options.Unit = "example",
    json: Json = False,
) -> None:
    """Compute the ε of a training run, or of a composition that is written in a file.

    Example: privet epsilon --examples 60000 --batch-size 256 --steps 3516 --noise-multiplier 1.1 --delta 1e-5
    """
    if composition is not None:
        _refuse_beside_a_composition(
            {"--examples": examples, "--batch-size": batch_size, "--noise-multiplier": noise_multiplier, "--steps": steps,
             "--epochs": epochs, "--sampling": None if sampling == "poisson" else sampling,
             "--unit": None if unit == "example" else unit}
        )  # fmt: skip
        answer_composition(
            composition, delta=delta, adjacency=adjacency, accountant=accountant, comparison=comparison, figure=figure,
            verify=verify, json=json,
        )  # fmt: skip
        return
    examples, batch_size = _given("--examples", examples), _given("--batch-size", batch_size)
    noise_multiplier, delta = _given("--noise-multiplier", noise_multiplier), _given("--delta", delta)
    adjacency = "add-remove" if adjacency is None else adjacency
    noise = Gaussian(noise_multiplier, non_private=noise_multiplier == 0)
    plan = parts.question(
        examples, batch_size, parts.length(steps, epochs, needed=True), delta, adjacency, sampling, noise, parts.unit(unit)
    )
    choice("--accountant", accountant, ACCOUNTANTS)
    spent = plan.epsilon(accountant)
    values: dict[str, Any] = {
        "epsilon": spent, "delta": delta, "accountant": accountant, "direction": DIRECTIONS[accountant],
    }  # fmt: skip
    said = [_in_words(plan, accountant, spent)]
    if explain:
        meaning = tradeoff.meaning(plan.events(), adjacency=adjacency, delta=delta)
        values |= meaning.to_dict()
        said.append(f"What it means: {explain_meaning(meaning, str(plan.unit), adjacency)}\n{_pairs(meaning.profile)}")
    if comparison:
        table = compare(plan)
        values["comparison"] = table.to_dict()["rows"]
        said.append(str(table))
    if figure is not None:
        from privet.report import draw_comparison

        values["figure"] = str(draw_comparison(plan, figure))
        said.append(f"Figure: {figure.resolve().as_uri()}")
    opinion = verify_epsilon(plan.events(), epsilon=spent, delta=delta, adjacency=adjacency) if verify else None
    if opinion is not None:
        values |= opinion.to_dict()
        said.append(str(opinion))
    answer(json, values, "\n\n".join(said))
    if opinion is not None and opinion.agrees is False:
        raise PrivetError(f"verification failed: {opinion}")


def _given(option: str, value: _Value | None) -> _Value:
    if value is None:
        raise InvalidArgumentError(option, None, "given", "Or list the releases in a file, for --composition.")
    return value


def _refuse_beside_a_composition(given: Mapping[str, object]) -> None:
    if beside := [option for option, value in given.items() if value is not None]:
        raise InvalidArgumentError(
            "--composition", ", ".join(beside), "given without options that describe a training run",
            "The file lists all releases.",
        )  # fmt: skip


def noise(
    examples: Examples,
    batch_size: options.BatchSize,
    epsilon: Annotated[float, typer.Option(help="Target ε; never exceeded.", rich_help_panel=PRIVACY)],
    delta: options.Delta,
    steps: options.Steps = None,
    epochs: options.EpochsOption = None,
    accountant: options.Accountant = "pld",
    sampling: options.Sampling = "poisson",
    adjacency: options.Adjacency = "add-remove",
    unit: options.Unit = "example",
    json: Json = False,
) -> None:
    """Find the smallest noise multiplier that meets a target ε.

    Example: privet noise --examples 60000 --batch-size 512 --epochs 20 --epsilon 3 --delta 1e-5
    """
    asked = parts.question(
        examples, batch_size, parts.length(steps, epochs, needed=True), delta, adjacency, sampling, Gaussian(),
        parts.unit(unit),
    )  # fmt: skip
    plan = calibrate(asked, epsilon, accountant)
    found, reached = plan.noise_multiplier, plan.epsilon(accountant)
    answer(
        json,
        {"noise_multiplier": found, "epsilon": reached, "delta": delta, "accountant": accountant},
        f"noise multiplier {format_up(found, 6)}, for {_in_words(plan, accountant, reached)}",
    )


def steps(
    examples: Examples,
    batch_size: options.BatchSize,
    noise_multiplier: Annotated[float, typer.Option(help="Noise standard deviation over sensitivity.", rich_help_panel=PRIVACY)],
    epsilon: Annotated[float, typer.Option(help="Privacy budget ε; never exceeded.", rich_help_panel=PRIVACY)],
    delta: options.Delta,
    accountant: options.Accountant = "pld",
    sampling: options.Sampling = "poisson",
    adjacency: options.Adjacency = "add-remove",
    unit: options.Unit = "example",
    json: Json = False,
) -> None:
    """Find the largest number of steps within a privacy budget, as privet train does with --epsilon and --noise-multiplier.

    Example: privet steps --examples 60000 --batch-size 256 --noise-multiplier 1.1 --epsilon 3 --delta 1e-5
    """
    noise = Gaussian(noise_multiplier, non_private=noise_multiplier == 0)
    asked = parts.question(examples, batch_size, None, delta, adjacency, sampling, noise, parts.unit(unit))
    plan = calibrate(asked, epsilon, accountant)
    found, reached = plan.total_steps, plan.epsilon(accountant)
    answer(
        json,
        {"steps": found, "epsilon": reached, "delta": delta, "accountant": accountant},
        f"{found} steps, for {_in_words(plan, accountant, reached)}",
    )


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
