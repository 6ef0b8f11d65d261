"""`privet epsilon` and `privet noise`: questions about (ε, δ) that touch no data."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from privet.accounting import ACCOUNTANTS, DIRECTIONS
from privet.cli import settings
from privet.cli.output import Json, answer
from privet.errors import choice
from privet.noise import Gaussian
from privet.plan import Plan

Examples = Annotated[int, typer.Option(help="Public number of examples in the data set.")]


def epsilon(
    examples: Examples,
    batch_size: settings.BatchSize,
    noise_multiplier: Annotated[float, typer.Option(help="Noise standard deviation over clip bound; 0 for none.")],
    delta: settings.Delta,
    steps: settings.Steps = None,
    epochs: settings.EpochsOption = None,
    accountant: settings.Accountant = "pld",
    sampling: settings.Sampling = "poisson",
    adjacency: settings.Adjacency = "add-remove",
    unit: settings.Unit = "example",
    json: Json = False,
) -> None:
    """Compute the ε that a training would spend.

    Example: privet epsilon --examples 60000 --batch-size 256 --steps 3516 --noise-multiplier 1.1 --delta 1e-5
    """
    noise = Gaussian(noise_multiplier, non_private=noise_multiplier == 0)
    plan = settings.question(
        examples, batch_size, settings.length(steps, epochs, needed=True), delta, adjacency, sampling, noise, settings.unit(unit)
    )
    choice("--accountant", accountant, ACCOUNTANTS)
    spent = plan.epsilon(accountant)
    prose = (
        f"ε = {spent:.6g} at δ = {delta:g} for {plan.unit} ({adjacency}; {accountant}: {DIRECTIONS[accountant]}){_caution(plan)}"
    )
    if math.isinf(spent):
        prose = (
            "ε = ∞: nothing is private without noise" if noise_multiplier == 0 else "ε = ∞: this noise is too small for any bound"
        )
    answer(json, {"epsilon": spent, "delta": delta, "accountant": accountant, "direction": DIRECTIONS[accountant]}, prose)


def noise(
    examples: Examples,
    batch_size: settings.BatchSize,
    epsilon: Annotated[float, typer.Option(help="Target ε, never exceeded.")],
    delta: settings.Delta,
    steps: settings.Steps = None,
    epochs: settings.EpochsOption = None,
    accountant: settings.Accountant = "pld",
    sampling: settings.Sampling = "poisson",
    adjacency: settings.Adjacency = "add-remove",
    unit: settings.Unit = "example",
    json: Json = False,
) -> None:
    """Find the noise multiplier that a target ε needs.

    Example: privet noise --examples 60000 --batch-size 512 --epochs 20 --epsilon 3 --delta 1e-5
    """
    plan = settings.question(
        examples, batch_size, settings.length(steps, epochs, needed=True), delta, adjacency, sampling, Gaussian(),
        settings.unit(unit),
    ).calibrate(epsilon, accountant=accountant)  # fmt: skip
    found, reached = plan.noise_multiplier, plan.epsilon(accountant)
    answer(
        json,
        {"noise_multiplier": found, "epsilon": reached, "delta": delta, "accountant": accountant},
        f"noise multiplier {found:.6g}, for ε = {reached:.6g} at δ = {delta:g} for {plan.unit} "
        f"({adjacency}; {accountant}){_caution(plan)}",
    )


def steps(
    examples: Examples,
    batch_size: settings.BatchSize,
    noise_multiplier: Annotated[float, typer.Option(help="Noise standard deviation over clip bound.")],
    epsilon: Annotated[float, typer.Option(help="Budget, never exceeded.")],
    delta: settings.Delta,
    accountant: settings.Accountant = "pld",
    sampling: settings.Sampling = "poisson",
    adjacency: settings.Adjacency = "add-remove",
    unit: settings.Unit = "example",
    json: Json = False,
) -> None:
    """Find how many steps a budget is enough for: as many as `privet train` takes with --epsilon and --noise-multiplier.

    Example: privet steps --examples 60000 --batch-size 256 --noise-multiplier 1.1 --epsilon 3 --delta 1e-5
    """
    noise = Gaussian(noise_multiplier, non_private=noise_multiplier == 0)
    plan = settings.question(examples, batch_size, None, delta, adjacency, sampling, noise, settings.unit(unit)).calibrate(
        epsilon, accountant=accountant
    )
    found, reached = plan.total_steps, plan.epsilon(accountant)
    answer(
        json,
        {"steps": found, "epsilon": reached, "delta": delta, "accountant": accountant},
        f"{found} steps, for ε = {reached:.6g} at δ = {delta:g} for {plan.unit} ({adjacency}; {accountant}){_caution(plan)}",
    )


def _caution(plan: Plan) -> str:
    if plan.delta * plan.examples < 1:
        return ""
    return f"\nδ is not below 1/{plan.examples}: publishing one random record outright would satisfy it"
