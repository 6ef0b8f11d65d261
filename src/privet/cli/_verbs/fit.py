"""`privet fit`: release a regularised linear model by objective or output perturbation."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import typer

from privet.accounting.rounding import format_percent_up, format_up
from privet.cli import options
from privet.cli.options import command, option, require
from privet.cli.output import MODEL, RUN, answer
from privet.cli.running import NO_GOAL, list_checks
from privet.convex import ConvexPlan, ObjectivePerturbation, OutputPerturbation
from privet.convex.perturbation import Perturbation
from privet.errors import choice
from privet.runs.config import load_data
from privet.runs.convex_run import describe_data, fit_and_write
from privet.runs.summary import list_lines, list_measured
from privet.training.directory import check_empty
from privet.tuning.defaults import choose_regularisation

MECHANISMS: dict[str, type[Perturbation]] = {"objective": ObjectivePerturbation, "output": OutputPerturbation}


@dataclass(frozen=True, kw_only=True)
class FitOptions(options.DirectoryOptions, options.PrivacyOptions, options.FolderOptions, options.DataOptions):
    """The options of `privet fit`."""

    mechanism: str = option("What gets noise: objective (usually better) or output.", MODEL, "objective")
    regularisation: float | None = option(
        "Weight Λ of ½‖θ‖², which is added to the sum of the losses. Default: by ε and the mechanism.", MODEL
    )
    radius: float = option("Largest norm of a row of features. Longer rows are scaled down to it.", MODEL, 1.0)
    intercept: float = option("Value of a constant feature; 0 for none.", MODEL, 1.0)
    threshold: float = option("Largest residual of a regression, whose target is scaled to [-1, 1].", MODEL, 0.25)
    device: str = option("Torch device: cpu, cuda, …", RUN, "cpu")


@command(FitOptions)
def fit(_: typer.Context, given: FitOptions) -> None:
    """Fit a linear model (logistic, or linear with bounded residuals) and release it once, with noise.

    Rows of features are scaled down to a bounded norm, so no assumption on the data remains. The directory holds plan.json,
    model/, ledger and guarantee.md. Test data is assumed to be public, as for privet train.

    Example: privet fit --data adult.csv --schema adult.toml --epsilon 1 --delta 1e-6 --out runs/adult
    """
    require(given, "data", "out", fix="Try: privet fit --data mnist --epsilon 1 --out runs/mnist-fit.")
    if given.noise_multiplier is None:
        require(given, "epsilon", fix=NO_GOAL)
    assert given.data is not None
    assert given.out is not None
    kind = MECHANISMS[choice("--mechanism", given.mechanism, MECHANISMS)]
    check_empty(given.out, "--out")
    dataset = load_data(given)
    examples, features, loss = describe_data(dataset, given.threshold)
    usual = choose_regularisation(given.mechanism, given.epsilon)
    chosen = {} if given.regularisation is not None else {"regularisation": usual}
    plan = ConvexPlan(
        examples=examples,
        features=features,
        loss=loss,
        mechanism=kind(given.noise_multiplier),
        delta=given.delta,
        regularisation=chosen.get("regularisation", given.regularisation or 0.0),
        adjacency=given.adjacency,
        radius=given.radius,
        intercept=given.intercept,
        source=given.noise_source,
    )
    plan = plan if given.epsilon is None else plan.calibrate(given.epsilon)
    for line in list_checks(given, dataset):
        print(line, file=sys.stderr)
    outcome = fit_and_write(
        plan, dataset, given.out, data=given.data, license=given.license, purpose=given.purpose, device=given.device,
        defaults=chosen,
    )  # fmt: skip
    guarantee, evaluation = outcome.guarantee, outcome.evaluation
    lines = [
        f"ε = {format_up(guarantee.epsilon)}, δ = {plan.delta:g} for one example ({plan.adjacency} neighbours), by "
        f"{type(plan.mechanism).__name__} with Λ = {plan.regularisation:.4g}",
        "No membership attack finds more than "
        f"{format_percent_up(guarantee.meaning.found_at_one_in_a_hundred)} of the members at 1\u00a0% false positives.",
        *list_lines(evaluation, warned=True),
        f"Model: {outcome.directory / 'model'}",
        f"Full statement: privet guarantee {outcome.directory}",
    ]
    answer(
        given.json,
        {
            "epsilon": guarantee.epsilon,
            "delta": plan.delta,
            "noise_multiplier": plan.mechanism.multiplier,
            "regularisation": plan.regularisation,
            **list_measured(evaluation),
            "seconds": round(outcome.seconds, 2),
            "directory": str(outcome.directory),
        },
        "\n".join(lines),
    )
