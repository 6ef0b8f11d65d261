"""`privet fit`: release a regularised linear model by objective or output perturbation."""

from __future__ import annotations

__all__ = ["fit"]

from pathlib import Path
from typing import Annotated

import typer

from privet.accounting.rounding import format_percent_up, format_up
from privet.cli import options
from privet.cli.output import Json, answer
from privet.cli.topics import DATA, MODEL, PRIVACY, RUN
from privet.convex import ConvexPlan, ObjectivePerturbation, OutputPerturbation
from privet.convex.perturbation import Perturbation
from privet.data import load
from privet.errors import InvalidArgumentError, choice
from privet.evaluation.plain import to_plain
from privet.report.estimates import headline
from privet.runs import scale_targets
from privet.runs.convex_run import ConvexOutcome, describe_data, fit_and_write
from privet.tables import Schema
from privet.training.directory import check_empty
from privet.tuning.convex import choose_regularisation

MECHANISMS: dict[str, type[Perturbation]] = {"objective": ObjectivePerturbation, "output": OutputPerturbation}
_MEASURED = ("accuracy", "negative_log_likelihood", "root_mean_squared_error", "mean_absolute_error", "r_squared")


def fit(
    data: Annotated[
        str | None, typer.Option(help="Data set by name, or path to a table or an .npz file.", rich_help_panel=DATA)
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help="Public schema of a table; see privet schema draft.", rich_help_panel=DATA)
    ] = None,
    classes: options.Classes = None,
    test: options.Test = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder with the files of the data set, instead of fetching them.", rich_help_panel=DATA)
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target ε; never exceeded.", rich_help_panel=PRIVACY)] = None,
    delta: options.Delta = 1e-5,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier, instead of --epsilon.", rich_help_panel=PRIVACY)
    ] = None,
    adjacency: options.Adjacency = "add-remove",
    noise_source: options.Source = "secure",
    mechanism: Annotated[
        str, typer.Option(help="What gets noise: objective (usually better) or output.", rich_help_panel=MODEL)
    ] = "objective",
    regularisation: Annotated[
        float | None,
        typer.Option(
            help="Weight Λ of ½‖θ‖² beside the sum of the losses; default: by ε and the mechanism.", rich_help_panel=MODEL
        ),
    ] = None,
    radius: Annotated[
        float, typer.Option(help="Norm to which longer rows of features are scaled down.", rich_help_panel=MODEL)
    ] = 1.0,
    intercept: Annotated[float, typer.Option(help="Constant feature; 0 for none.", rich_help_panel=MODEL)] = 1.0,
    threshold: Annotated[
        float, typer.Option(help="Largest residual of a regression, whose target is scaled to [-1, 1].", rich_help_panel=MODEL)
    ] = 0.25,
    out: Annotated[Path | None, typer.Option(help="Directory of the run, new or empty.", rich_help_panel=RUN)] = None,
    license: Annotated[str | None, typer.Option(help="Licence of the model for its card.", rich_help_panel=RUN)] = None,
    device: Annotated[str, typer.Option(help="Torch device: cpu, cuda, …", rich_help_panel=RUN)] = "cpu",
    json: Json = False,
) -> None:
    """Fit a linear model (logistic, or linear with bounded residuals) and release it once, with noise.

    Rows of features are scaled down to a bounded norm, so no assumption on the data remains. The directory holds plan.json,
    model/, ledger and guarantee.md. Test data is assumed to be public, as for privet train.

    Example: privet fit --data adult.csv --schema adult.toml --epsilon 1 --delta 1e-6 --out runs/adult
    """
    for name, value in (("--data", data), ("--out", out)):
        if value is None:
            raise InvalidArgumentError(name, None, "given", "Try: privet fit --data mnist --epsilon 1 --out runs/mnist-fit.")
    assert data is not None
    assert out is not None
    if (epsilon is None) == (noise_multiplier is None):
        raise InvalidArgumentError("--epsilon", epsilon, "given, or --noise-multiplier in its place", "Give one of the two.")
    kind = MECHANISMS[choice("--mechanism", mechanism, MECHANISMS)]
    check_empty(out, "--out")
    public = None if schema is None else Schema.read(schema)
    place = None if folder is None else str(folder)
    dataset = scale_targets(load(data, folder=place, schema=public, classes=classes, test=test))
    examples, features, loss = describe_data(dataset, threshold)
    usual = choose_regularisation(mechanism, epsilon) if regularisation is None else regularisation
    plan = ConvexPlan(
        examples=examples, features=features, loss=loss, mechanism=kind(noise_multiplier), regularisation=usual, delta=delta,
        adjacency=adjacency, radius=radius, intercept=intercept, source=noise_source,
    )  # fmt: skip
    plan = plan if epsilon is None else plan.calibrate(epsilon)
    chosen = {"regularisation": usual} if regularisation is None else {}
    outcome = fit_and_write(plan, dataset, out, data=data, license=license, device=device, defaults=chosen)
    _print_outcome(outcome, json)


def _print_outcome(outcome: ConvexOutcome, as_json: bool) -> None:
    guarantee, evaluation, plan = outcome.guarantee, outcome.evaluation, outcome.plan
    lines = [
        f"ε = {format_up(guarantee.epsilon)}, δ = {plan.delta:g} for one example ({plan.adjacency} neighbours), by "
        f"{type(plan.mechanism).__name__} with Λ = {plan.regularisation:.4g}",
        "No membership attack finds more than "
        f"{format_percent_up(guarantee.meaning.found_at_one_in_a_hundred)} of the members at 1\u00a0% false positives.",
    ]
    if evaluation is not None:
        shown = headline(evaluation)
        lines.append(f"{shown.name} {shown.with_interval} on {evaluation.examples:,} public test examples (95\u00a0% interval)")
    lines += [f"Model: {outcome.directory / 'model'}", f"Full statement: privet guarantee {outcome.directory}"]
    answer(
        as_json,
        {
            "epsilon": guarantee.epsilon,
            "delta": plan.delta,
            "noise_multiplier": plan.mechanism.multiplier,
            "regularisation": plan.regularisation,
            **{f"test_{name}": to_plain(getattr(evaluation, name, None)) for name in _MEASURED},
            "test_examples": evaluation and evaluation.examples,
            "seconds": round(outcome.seconds, 2),
            "directory": str(outcome.directory),
        },
        "\n".join(lines),
    )
