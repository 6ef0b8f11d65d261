"""`privet train`: train a model by name and write a run directory with model, guarantee and report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import typer

from privet import models, runs
from privet.cli import options, parts
from privet.cli.choice import Choice
from privet.cli.config import ConfigOptions, read_parts
from privet.cli.options import command, option
from privet.cli.output import DATA, MODEL, PRIVACY, RUN
from privet.cli.running import check_before, make_setup, resume_run, start_run
from privet.data import DataSet
from privet.distributed.launch import joined, launch, refuse_together
from privet.distributed.world import count_processes
from privet.errors import InvalidArgumentError
from privet.momentum import InnerOuter
from privet.noise import Banded
from privet.plan import ClassCounts, Plan
from privet.runs.config import AVERAGES, OPTIMIZERS, load_data
from privet.tables import Schema
from privet.units.augmentations import AUGMENTATIONS

_HEAVY_BALL = ("sgd", "heavy-ball")  # optimizers whose momentum correlated noise is optimised for


@dataclass(frozen=True, kw_only=True)
class TrainOptions(
    options.RunOptions,
    ConfigOptions,
    options.SparsityOptions,
    options.MechanismOptions,
    options.ClippingOptions,
    options.LengthOptions,
    options.UserOptions,
    options.PrivacyOptions,
    options.FolderOptions,
    options.DataOptions,
):
    """The options of `privet train`."""

    COMMON: ClassVar = (  # the help lists the others last
        "data", "schema", "classes", "test", "epsilon", "delta", "epochs", "steps", "batch_size", "model", "optimizer",
        "learning_rate", "bound", "config", "out", "resume", "device",
    )  # fmt: skip

    target: str | None = option("Column to predict; it must be that of the schema.", DATA)
    holdout: float | None = option(
        "Fraction of the private examples (or users) to hold out. The final result on them is released with noise. Requires "
        "--evaluation-epsilon.",
        DATA,
    )
    evaluation_epsilon: float | None = option(
        "ε of the result on held-out data. No step uses these data, so the run's ε is the larger of the two, not their sum.",
        PRIVACY, part="plan",
    )  # fmt: skip
    class_priors: str | None = option(
        "Public frequencies of the classes, in their order, such as 0.76,0.24. The loss then gives every class the same weight.",
        DATA, parser=options.join_values, metavar="P,Q,…",
    )  # fmt: skip
    class_counts_epsilon: float | None = option(
        "Part of --epsilon that pays for noisy class counts, which replace --class-priors.", PRIVACY, part="plan"
    )
    views: int | None = option("Number of views of an image, whose gradients are averaged. Requires --augment.", DATA)
    augment: str | None = option(f"Augmentations, separated by commas: {', '.join(AUGMENTATIONS)}.", DATA)
    noise_multiplier: float | None = option(
        "Standard deviation of the noise over the sensitivity, instead of --epsilon. With both: train until ε is spent.", PRIVACY,
        part="noise",
    )  # fmt: skip
    group_size: int | None = option(
        "Number of examples that form one unit of privacy. Requires --adjacency replace-one.", PRIVACY
    )
    model: str | None = option(f"Network: {', '.join(models.NAMES)}. Default: by the shape of the inputs.", MODEL)
    optimizer: str = option(f"Optimizer: {', '.join(OPTIMIZERS)}.", MODEL, "sgd")
    learning_rate: float | None = option("Learning rate. Default: chosen by optimizer, steps, noise and bound.", MODEL)
    momentum: float | None = option("Momentum of sgd, heavy-ball and nesterov. Default: 0.9, or 0 with --outer-momentum.", MODEL)
    optimizer_options: dict[str, Any] | None = option(
        "Further optimizer arguments, such as '{\"weight_decay\": 0.01}'.",
        MODEL, parser=options.read_arguments, metavar="JSON",
    )  # fmt: skip
    scale_from: Path | None = option(
        "Directory of a run whose learning rate is adapted to other bounds, momentum and noise. The rule keeps η·C·σ/(1−µ) for "
        "sgd and η for adam. A rate that was searched on private data has an ε of its own.",
        MODEL, without="--learning-rate",
    )  # fmt: skip
    couple_learning_rate: bool = option(
        "Scale the learning rate so that schedules of bound and noise leave η·σ·C constant.",
        MODEL, False, "--couple-learning-rate",
    )  # fmt: skip
    average: str | None = option(f"Evaluate and save an average of the parameters over steps: {', '.join(AVERAGES)}.", MODEL)
    device: str = option("Torch device: cpu, cuda, …", RUN, "cpu")
    processes: int = option("Number of processes of this machine that train together.", RUN, 1)
    physical_batch_size: int | None = option(
        "Largest number of examples in memory at once. The result does not depend on it. Default: by the model.", RUN
    )


@command(TrainOptions)
def train(context: typer.Context, given: TrainOptions) -> None:
    """Train a model with differential privacy, evaluate it and write a report.

    The run's directory gets the model, its guarantee, a report and a ledger.

    The guarantee covers the training set. Privet assumes that test data is public: the test part of a public data set or of an
    .npz file, or the file of --test. Privet takes columns from --schema and classes from --classes, never from rows.

    Example: privet train --data mnist --model cnn --epsilon 3 --delta 1e-5 --out runs/mnist

    Table: privet train --data adult.csv --schema adult.toml --epsilon 3 (first: privet schema draft)

    Repeat: privet train --config runs/mnist/plan.json --out runs/again
    """
    if given.processes < 1:
        raise InvalidArgumentError("--processes", given.processes, "at least 1")
    if (running := count_processes()) > 1 and given.processes not in (1, running):
        raise InvalidArgumentError("--processes", given.processes, f"the {running} that torchrun started, or left out")
    if given.processes > running == 1:
        # A plan of --config is in the context of this command, and the words of the command line are in the one above it.
        raise SystemExit(launch(given.processes, context.find_root().obj, given.device))
    with joined(given.device) as world:
        if given.resume is not None:
            resume_run(given, given.resume, runs.Setup, world)
            return
        with refuse_together(world):
            prepared = _prepare(context, given)
        start_run(given, *prepared, world)


def _prepare(context: typer.Context, given: TrainOptions) -> tuple[runs.Setup, Plan, DataSet]:
    plan, tables = read_parts(context, TrainOptions)
    known = plan is not None or "noise" in tables
    data = check_before(given, "train", "--data mnist --epsilon 3 --delta 1e-5", noise_known=known)
    momentum = plan.momentum if plan is not None else tables.setdefault("momentum", parts.momentum(given))
    tables.setdefault("bound_schedule", parts.schedule(given.bound_schedule))
    dataset = load_data(given, _choose_schema(given.schema, plan))
    chosen = Choice(dataset, given.model, given.epsilon, given.delta if plan is None else plan.delta)
    setup = make_setup(
        given,
        runs.Setup,
        data=data,
        model=chosen.model,
        learning_rate=given.learning_rate or 1.0,  # the default takes the calibrated plan, below
        optimizer_options=given.optimizer_options or {},
        momentum=chosen.pick("momentum", given.momentum, 0.0 if isinstance(momentum, InnerOuter) else chosen.usual.momentum),
        physical_batch_size=chosen.usual.physical_batch_size if given.physical_batch_size is None else given.physical_batch_size,
        class_priors=parts.class_priors(given.class_priors),
    )
    examples, held_out = setup.sizes(dataset)
    if plan is None:
        plan = _make_plan(given, tables, chosen, setup, examples, held_out)
    plan = replace(plan, schema=dataset.schema)
    plan = plan if given.epsilon is None else plan.calibrate(given.epsilon)
    rate = chosen.learning_rate(given.learning_rate, setup, plan, given.scale_from)
    return replace(setup, learning_rate=rate, defaults=chosen.values), plan, dataset


def _make_plan(
    given: TrainOptions, tables: dict[str, Any], chosen: Choice, setup: runs.Setup, examples: int, held_out: int
) -> Plan:
    momentum = setup.momentum if setup.optimizer in _HEAVY_BALL else 0.0
    noise = tables.pop("noise", None) or parts.noise(given, given.noise_multiplier, given.noise_source, momentum)
    if sampling := tables.pop("sampling", None):
        given = replace(given, batch_size=float(sampling.expected_batch_size(examples)))
    most = examples // noise.bands if isinstance(noise, Banded) else examples
    size, length = chosen.lengths(examples, given, fixed_noise=noise.multiplier is not None, most=most)
    clipping = tables.pop("clipping", None)
    if clipping is None:
        clipping = parts.clipping_rule(given, chosen.pick("bound", given.bound, chosen.usual.bound))
    counted = given.class_counts_epsilon
    return Plan(
        examples=examples,
        sampling=sampling or parts.cyclic(parts.scheme(given.sampling, size, examples), noise),
        steps=length,
        clipping=parts.projected(clipping, given),
        delta=given.delta,
        adjacency=given.adjacency,
        noise=noise,
        sparsification=tables.pop("sparsification", None) or parts.sparsification(given),
        unit=setup.privacy_unit,
        holdout=parts.holdout(held_out, given.evaluation_epsilon, given.delta, given.adjacency),
        class_counts=None if counted is None else ClassCounts.calibrate(counted, delta=given.delta, adjacency=given.adjacency),
        **tables,  # bound schedule and momentum
    )


def _choose_schema(given: str | None, plan: Plan | None) -> Schema | None:
    found = None if given is None else Schema.read(given)
    kept = None if plan is None else plan.schema
    if found is not None and kept is not None and found != kept:
        raise InvalidArgumentError("--schema", given, "the schema of the plan", "Leave it out, or change the plan.")
    return found or kept
