"""`privet train`: from names to a run directory with model, guarantee and report."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from privet import models, runs
from privet.budget import Budget
from privet.cli import settings
from privet.cli.config import Config, plan_of
from privet.cli.output import Json, answer
from privet.cli.summary import in_full, shortest, summary
from privet.data import DataSet, load
from privet.errors import InvalidArgumentError
from privet.evaluation.plain import plain
from privet.momentum import InnerOuter
from privet.noise import Gaussian
from privet.plan import Plan
from privet.reading.batches import check_map_style, privacy_unit
from privet.runs.config import AVERAGES, OPTIMIZERS

# With per-example clipping only the product of learning rate and bound matters to SGD, so one default serves every bound.
_RATE_TIMES_BOUND = {"sgd": 0.2, "nesterov": 0.2}
_ADAPTIVE_RATE = 2e-3
_EPOCHS = 10.0
_BATCH_SIZE, _LEAST_BATCHES = 512, 10

# What a configuration's plan decides.
_OF_THE_PLAN = {
    "delta", "epochs", "steps", "batch_size", "sampling", "clipping", "bound", "stability", "scale", "cutoff", "style",
    "adaptive_quantile", "bound_schedule", "fixed_noise", "noise_multiplier", "noise_source", "adjacency", "sparsify", "refresh",
    "sparsify_ranked", "inner_momentum", "outer_momentum", "history", "per_example_momentum", "projections",
}  # fmt: skip


def train(
    context: typer.Context,
    config: Config = None,
    data: Annotated[str | None, typer.Option(help="mnist, fashion-mnist, digits, or a path to an .npz or CSV file.")] = None,
    target: Annotated[str | None, typer.Option(help="Column with the labels, for a CSV file.")] = None,
    classes: settings.Classes = None,
    test: settings.Test = None,
    epsilon: Annotated[float | None, typer.Option(help="Target ε, never exceeded.")] = None,
    delta: settings.Delta = 1e-5,
    model: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(models.NAMES)}; default: by the shape of the data.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run; default: a new one in runs/.")] = None,
    epochs: settings.EpochsOption = None,
    steps: settings.Steps = None,
    batch_size: Annotated[
        float | None, typer.Option(help="Expected number of examples in a step; default: 512 or a tenth.")
    ] = None,
    sampling: settings.Sampling = "poisson",
    clipping: settings.Clipping = "flat",
    bound: Annotated[float, typer.Option(help="Clip bound.")] = 0.1,
    stability: settings.Stability = None,
    scale: settings.Scale = None,
    cutoff: settings.Cutoff = None,
    style: settings.Style = "flat",
    adaptive_quantile: settings.Quantile = None,
    projections: settings.Projections = None,
    bound_schedule: settings.BoundSchedule = "constant",
    fixed_noise: settings.FixedNoise = False,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Instead of --epsilon; or with it, to train until the budget is gone.")
    ] = None,
    noise_source: settings.Source = "secure",
    adjacency: settings.Adjacency = "add-remove",
    sparsify: settings.Sparsify = None,
    refresh: settings.Refresh = None,
    sparsify_ranked: settings.SparsifyRanked = False,
    inner_momentum: settings.InnerMomentum = None,
    outer_momentum: settings.OuterMomentum = None,
    history: settings.History = None,
    per_example_momentum: settings.PerExampleMomentum = None,
    user_column: settings.UserColumn = None,
    user_cap: settings.UserCap = None,
    group_size: settings.GroupSize = None,
    views: settings.Views = None,
    augment: settings.Augment = None,
    optimizer: Annotated[str, typer.Option(help=f"One of {', '.join(OPTIMIZERS)}.")] = "sgd",
    optimizer_options: settings.OptimizerOptions = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", "--lr", help="Default: 0.2 / bound for sgd.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Of sgd and nesterov; default: 0.9, or 0 with --outer-momentum.")] = None,
    couple_learning_rate: settings.CoupleLearningRate = False,
    average: Annotated[
        str | None, typer.Option(help=f"Keep and evaluate an average over the steps: {', '.join(AVERAGES)}.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the initial parameters only: noise and sampling have none.")] = 0,
    physical_batch_size: Annotated[int, typer.Option(help="Most examples in memory at once; does not change the result.")] = 256,
    folder: Annotated[Path | None, typer.Option(help="Where the data set lies, if it is not to be fetched.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    budget_file: Annotated[
        Path | None, typer.Option("--budget", help="File of `privet budget create` that this run draws from.")
    ] = None,
    budget_part: Annotated[str | None, typer.Option(help="Part of the data that the run is on, if the budget has parts.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the unfinished run in this directory.")] = None,
    adopt: Annotated[
        bool, typer.Option(help="With --resume: this is the only copy that goes on, though on another host.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Print the whole statement at the end.")] = False,
    quiet: Annotated[bool, typer.Option(help="Show no progress bar, and print only the directory and ε.")] = False,
    json: Json = False,
) -> None:
    """Train a model with differential privacy, evaluate it and write a report.

    The directory gets plan.json, model.safetensors, ledger, metrics.jsonl, guarantee.md, report.html and figures/. The
    guarantee covers the training set. Test data is evaluated on and assumed public: the part of a public data set, x_test and
    y_test of an .npz file, or the file of --test; no row of a private table is taken for it. The classes of a file are declared.

    Example: privet train --data mnist --model cnn --epsilon 3 --delta 1e-5 --out runs/mnist

    A table: privet train --data iris.csv --target species --classes setosa,versicolor,virginica --epsilon 3

    Again:   privet train --config runs/mnist/plan.json --out runs/again
    """
    if resume is not None:
        _tell(runs.resume(resume, adopt=adopt, progress=not quiet), json, full, quiet)
        return
    if data is None:
        raise InvalidArgumentError("--data", None, "given", "Try: privet train --data mnist --epsilon 3 --delta 1e-5.")
    plan = plan_of(context, _OF_THE_PLAN)
    if plan is None and epsilon is None and noise_multiplier is None:
        raise InvalidArgumentError(
            "--epsilon", None, "given", "Say the budget, --epsilon 3, or the noise, --noise-multiplier 1.1."
        )
    rule = settings.clipping_rule(
        clipping, bound, style, adaptive_quantile, projections, stability=stability, scale=scale, cutoff=cutoff
    )
    carried = settings.momentum(inner_momentum, outer_momentum, history, per_example_momentum)
    shrinking = settings.schedule(bound_schedule)
    place = None if folder is None else str(folder)
    dataset = load(data, folder=place, target=target, classes=classes, test=test, user_column=user_column)
    planned = (rule, carried) if plan is None else (plan.clipping, plan.momentum)
    setup = runs.Setup(
        data=data,
        model=model or _fitting_model(dataset),
        learning_rate=_learning_rate(learning_rate, optimizer, planned[0].sensitivity),
        optimizer=optimizer,
        optimizer_options=optimizer_options or {},
        momentum=momentum if momentum is not None else 0.0 if isinstance(planned[1], InnerOuter) else 0.9,
        couple_learning_rate=couple_learning_rate,
        average=average,
        seed=seed,
        physical_batch_size=physical_batch_size,
        folder=place,
        target=target,
        classes=classes,
        test=test,
        user_column=user_column,
        user_cap=user_cap,
        group_size=group_size,
        views=views,
        augment=augment,
        device=device,
    )
    entries = setup.entries(dataset)
    if plan is None:
        examples = check_map_style(entries)
        budget = epsilon is not None and noise_multiplier is not None
        usual = epochs if epochs is not None or steps is not None or budget else _EPOCHS
        plan = Plan(
            examples=examples,
            sampling=settings.scheme(sampling, _batch_size(batch_size, sampling, examples), examples),
            steps=settings.length(steps, usual, needed=not budget),
            clipping=rule,
            delta=delta,
            adjacency=adjacency,
            noise=Gaussian(
                noise_multiplier, source=noise_source, non_private=noise_multiplier == 0,
                deviation="fixed" if fixed_noise else "follows the bound",
            ),
            bound_schedule=shrinking,
            momentum=carried,
            sparsification=settings.sparsification(sparsify, refresh, sparsify_ranked),
            unit=privacy_unit(entries),
        )  # fmt: skip
    plan = plan if epsilon is None else plan.calibrate(epsilon)
    shared = None if budget_file is None else Budget(budget_file, budget_part)
    outcome = runs.start(setup, plan, dataset, out or _new_directory(setup), budget=shared, progress=not quiet)
    _tell(outcome, json, full, quiet)


def _learning_rate(given: float | None, optimizer: str, bound: float) -> float:
    product = _RATE_TIMES_BOUND.get(optimizer)
    return given if given is not None else _ADAPTIVE_RATE if product is None else product / bound


def _batch_size(given: float | None, sampling: str, examples: int) -> float:
    usual = examples if sampling == "full-batch" else min(_BATCH_SIZE, max(1, examples // _LEAST_BATCHES))
    return usual if given is None else given


def _fitting_model(dataset: DataSet) -> str:
    """Return the largest of the small networks that takes this input: by its public shape."""
    shape = dataset.input_shape
    return "cnn" if len(shape) == 3 and min(shape[1:]) >= 14 else "mlp"


def _new_directory(setup: runs.Setup) -> Path:
    name = re.sub(r"[^\w.-]+", "-", Path(setup.data).name)
    return Path("runs") / f"{name}-{setup.model}-{datetime.now():%Y%m%d-%H%M%S}"


def _tell(outcome: runs.Outcome, as_json: bool, full: bool, quiet: bool) -> None:
    guarantee, evaluation = outcome.guarantee, outcome.evaluation
    answer(
        as_json,
        {
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            **{f"test_{name}": plain(evaluation and getattr(evaluation, name)) for name in _MEASURED},
            "test_examples": evaluation and evaluation.examples,
            "test_data": outcome.test_data,
            "test_intervals": evaluation and plain(evaluation.intervals),
            "steps": guarantee.steps,
            "seconds": round(outcome.seconds, 2),
            "directory": str(outcome.directory),
        },
        (in_full if full else shortest if quiet else summary)(outcome),
    )


# Numbers of an evaluation that programs get, each as test_….
_MEASURED = (
    "accuracy", "negative_log_likelihood", "brier", "expected_calibration_error", "root_mean_square_calibration_error",
    "maximum_calibration_error",
)  # fmt: skip
