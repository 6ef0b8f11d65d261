"""`privet train`: train a model by name and write a run directory with model, guarantee and report."""

from __future__ import annotations

__all__ = ["train"]

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from privet import models, runs
from privet.budget import Budget
from privet.cli import options, parts
from privet.cli.choice import Choice
from privet.cli.config import Config, parts_from_config, plan_from_config
from privet.cli.config_schema import ConfigSchema
from privet.cli.destination import check_run_directory, new_run_directory, resumable
from privet.cli.output import Json
from privet.cli.summary import announce, print_outcome, shown_settings
from privet.cli.topics import CLIPPING, DATA, MODEL, PRIVACY, RUN, SAMPLING
from privet.data import load
from privet.errors import InvalidArgumentError
from privet.noise import Banded
from privet.plan import Plan
from privet.runs.config import AVERAGES, OPTIMIZERS
from privet.tables import Schema
from privet.tracking.sinks import make_sink, open_sinks

_HEAVY_BALL = ("sgd", "heavy-ball")  # optimizers whose momentum correlated noise is optimised for
# Parameters that the plan of a configuration file determines.
_OF_THE_PLAN = {
    "delta", "epochs", "steps", "batch_size", "sampling", "clipping", "bound", "stability", "scale", "cutoff", "style",
    "adaptive_quantile", "bound_schedule", "fixed_noise", "noise_multiplier", "noise_source", "adjacency", "sparsify", "refresh",
    "sparsify_ranked", "inner_momentum", "outer_momentum", "history", "per_example_momentum", "projections",
    "evaluation_epsilon", "class_counts_epsilon", "public", "dimensions", "anchors", "residual_bound",
    "noise", "bands", "buffers",
}  # fmt: skip


def train(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Option(
            help="Data set by name (mnist, fashion-mnist, digits), or path to a table or an .npz file.", rich_help_panel=DATA
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(help="Public schema of a table, a TOML file; see privet schema draft.", rich_help_panel=DATA),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column to predict; it must be that of the schema.", rich_help_panel=DATA)
    ] = None,
    classes: options.Classes = None,
    test: options.Test = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder with the files of the data set, instead of fetching them.", rich_help_panel=DATA)
    ] = None,
    holdout: options.HoldoutFraction = None,
    evaluation_epsilon: options.EvaluationEpsilon = None,
    class_priors: options.ClassPriors = None,
    class_counts_epsilon: options.ClassCountsEpsilon = None,
    views: options.Views = None,
    augment: options.Augment = None,
    epsilon: Annotated[float | None, typer.Option(help="Target ε; never exceeded.", rich_help_panel=PRIVACY)] = None,
    delta: options.Delta = 1e-5,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="Noise standard deviation over sensitivity, instead of --epsilon. With both: train until ε is spent.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    adjacency: options.Adjacency = "add-remove",
    user_column: options.UserColumn = None,
    user_cap: options.UserCap = None,
    group_size: options.GroupSize = None,
    noise_source: options.Source = "secure",
    budget_file: options.BudgetFile = None,
    budget_part: options.BudgetPart = None,
    epochs: options.EpochsOption = None,
    steps: options.Steps = None,
    batch_size: Annotated[
        float | None,
        typer.Option(
            help="Expected batch size; default: by the number of examples, the steps and the model.", rich_help_panel=SAMPLING
        ),
    ] = None,
    sampling: options.Sampling = "poisson",
    model: Annotated[
        str | None,
        typer.Option(help=f"Network: {', '.join(models.NAMES)}; default: by the input shape.", rich_help_panel=MODEL),
    ] = None,
    optimizer: Annotated[str, typer.Option(help=f"Optimizer: {', '.join(OPTIMIZERS)}.", rich_help_panel=MODEL)] = "sgd",
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            "--lr",
            help="Learning rate; default: by the optimizer, the steps and, except for adaptive optimizers, noise and bound.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    momentum: Annotated[
        float | None,
        typer.Option(
            help="Momentum of sgd, heavy-ball and nesterov; default: 0.9, or 0 with --outer-momentum.", rich_help_panel=MODEL
        ),
    ] = None,
    optimizer_options: options.OptimizerOptions = None,
    scale_from: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a run with another bound, momentum or noise: take its learning rate by the scaling rule, which "
            "keeps η·C·σ/(1−µ) for sgd and η for adam. A rate that was searched on private data has an ε of its own.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    couple_learning_rate: options.CoupleLearningRate = False,
    average: Annotated[
        str | None,
        typer.Option(
            help=f"Evaluate and save an average of the parameters over steps: {', '.join(AVERAGES)}.", rich_help_panel=MODEL
        ),
    ] = None,
    seed: options.Seed = 0,
    clipping: options.Clipping = "flat",
    bound: Annotated[
        float | None, typer.Option(help="Clip bound C; default: by the model, 1 or 0.1.", rich_help_panel=CLIPPING)
    ] = None,
    stability: options.Stability = None,
    scale: options.Scale = None,
    cutoff: options.Cutoff = None,
    style: options.Style = "flat",
    adaptive_quantile: options.Quantile = None,
    projections: options.Projections = None,
    public: options.PublicData = None,
    dimensions: options.Dimensions = None,
    anchors: options.AnchorsOption = None,
    residual_bound: options.ResidualBound = None,
    bound_schedule: options.BoundSchedule = "constant",
    fixed_noise: options.FixedNoise = False,
    noise: options.Noise = "independent",
    bands: options.Bands = None,
    buffers: options.Buffers = None,
    sparsify: options.Sparsify = None,
    refresh: options.Refresh = None,
    sparsify_ranked: options.SparsifyRanked = False,
    inner_momentum: options.InnerMomentum = None,
    outer_momentum: options.OuterMomentum = None,
    history: options.History = None,
    per_example_momentum: options.PerExampleMomentum = None,
    out: options.Out = None,
    config: Config = None,
    config_schema: ConfigSchema = False,
    resume: options.Resume = None,
    adopt: options.Adopt = False,
    device: Annotated[str, typer.Option(help="Torch device: cpu, cuda, …", rich_help_panel=RUN)] = "cpu",
    physical_batch_size: Annotated[
        int | None,
        typer.Option(
            help="Largest number of examples in memory at once; does not change the result; default: by the model.",
            rich_help_panel=RUN,
        ),
    ] = None,
    license: options.License = None,
    log: options.Log = None,
    full: options.Full = False,
    quiet: options.Quiet = False,
    json: Json = False,
) -> None:
    """Train a model with differential privacy, evaluate it and write a report.

    The run's directory holds plan.json, model/, ledger, metrics.jsonl, guarantee.md, report.html and figures/.

    The guarantee covers the training set. Test data is assumed to be public: the test split of a public data set, x_test and
    y_test of an .npz file, or the file of --test. Rows of a private table are never used for testing. The columns of a table are
    declared by its schema, and the classes of an .npz file by --classes; nothing is inferred from rows.

    Example: privet train --data mnist --model cnn --epsilon 3 --delta 1e-5 --out runs/mnist

    Table: privet train --data adult.csv --schema adult.toml --epsilon 3 (after: privet schema draft adult.csv --target income)

    Repeat: privet train --config runs/mnist/plan.json --out runs/again
    """
    if resume is not None:
        with resumable(resume, "train"), open_sinks(log or (), resume, argument="--log") as sinks:
            outcome = runs.resume(resume, adopt=adopt, progress=not quiet, callbacks=sinks)
        print_outcome(outcome, json, full, quiet)
        return
    for text in log or ():  # refused before any work
        make_sink(text, Path(), argument="--log")
    if out is not None:
        check_run_directory(out, "train")
    if data is None:
        raise InvalidArgumentError("--data", None, "given", "Try: privet train --data mnist --epsilon 3 --delta 1e-5.")
    plan = plan_from_config(context, _OF_THE_PLAN)
    given = parts_from_config(context)
    if plan is None and epsilon is None and noise_multiplier is None and "noise" not in given:
        raise InvalidArgumentError(
            "--epsilon", None, "given", "Set a budget (--epsilon 3) or the noise (--noise-multiplier 1.1)."
        )
    private_momentum = given.get("momentum") or parts.momentum(inner_momentum, outer_momentum, history, per_example_momentum)
    schedule = given.get("bound_schedule") or parts.schedule(bound_schedule)
    place = None if folder is None else str(folder)
    described = _choose_schema(schema, plan)
    dataset = runs.scale_targets(
        load(data, folder=place, schema=described, target=target, classes=classes, test=test, user_column=user_column)
    )
    chosen = Choice(dataset, model, epsilon, delta if plan is None else plan.delta)
    setup = runs.Setup(
        data=data,
        model=chosen.model,
        learning_rate=1.0 if learning_rate is None else learning_rate,  # the default takes the calibrated plan, below
        optimizer=optimizer,
        optimizer_options=optimizer_options or {},
        momentum=chosen.momentum(momentum, private_momentum if plan is None else plan.momentum),
        couple_learning_rate=couple_learning_rate,
        average=average,
        seed=seed,
        physical_batch_size=chosen.physical_batch_size(physical_batch_size),
        folder=place,
        schema=schema,
        classes=classes,
        test=test,
        user_column=user_column,
        user_cap=user_cap,
        group_size=group_size,
        views=views,
        augment=augment,
        device=device,
        license=license,
        holdout=holdout,
        class_priors=parts.class_priors(class_priors),
    )
    examples, held_out = setup.sizes(dataset)
    if plan is None:
        kind = given.get("noise") or parts.noise(
            noise, noise_multiplier, source=noise_source, momentum=setup.momentum if optimizer in _HEAVY_BALL else 0.0,
            fixed_noise=fixed_noise, bands=bands, buffers=buffers,
        )  # fmt: skip
        if "sampling" in given:
            batch_size = float(given["sampling"].expected_batch_size(examples))
        size, length = chosen.lengths(
            examples, sampling, batch_size=batch_size, steps=steps, epochs=epochs, fixed_noise=kind.multiplier is not None,
            most=examples // kind.bands if isinstance(kind, Banded) else examples,
        )  # fmt: skip
        rule = given.get("clipping") or parts.clipping_rule(
            clipping, chosen.bound(bound), style, adaptive_quantile, projections, stability=stability, scale=scale, cutoff=cutoff
        )
        plan = Plan(
            examples=examples,
            sampling=given.get("sampling") or parts.cyclic(parts.scheme(sampling, size, examples), kind),
            steps=length,
            clipping=parts.embedded(rule, public, dimensions, anchors, residual_bound),
            delta=delta,
            adjacency=adjacency,
            noise=kind,
            bound_schedule=schedule,
            momentum=private_momentum,
            sparsification=given.get("sparsification") or parts.sparsification(sparsify, refresh, sparsify_ranked),
            unit=setup.privacy_unit,
            holdout=parts.holdout(held_out, evaluation_epsilon, delta, adjacency),
            class_counts=parts.class_counts(class_counts_epsilon, delta, adjacency),
        )  # fmt: skip
    plan = replace(plan, schema=dataset.schema)
    plan = plan if epsilon is None else plan.calibrate(epsilon)
    setup = replace(setup, learning_rate=chosen.learning_rate(learning_rate, setup, plan, scale_from), defaults=chosen.values)
    shared = None if budget_file is None else Budget(budget_file, budget_part)
    directory = out or new_run_directory(data, chosen.model)
    with resumable(directory, "train"), open_sinks(log or (), directory, shown_settings(setup, plan), "--log") as sinks:
        outcome = runs.start(
            setup, plan, dataset, directory,
            budget=shared, progress=not quiet, callbacks=sinks, announce=partial(announce, quiet=quiet),
        )  # fmt: skip
    print_outcome(outcome, json, full, quiet)


def _choose_schema(given: str | None, plan: Plan | None) -> Schema | None:
    """Return the schema of the file, or of the plan, which has to agree with the file."""
    found = None if given is None else Schema.read(given)
    kept = None if plan is None else plan.schema
    if found is not None and kept is not None and found != kept:
        raise InvalidArgumentError("--schema", given, "the schema of the plan", "Leave it out, or change the plan.")
    return found or kept
