"""`privet federate`: train a model on the updates of users, who are simulated clients, and write a run directory."""

from __future__ import annotations

__all__ = ["federate"]

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from privet import models, runs
from privet.budget import Budget
from privet.cli import options, parts
from privet.cli.choice import Choice
from privet.cli.config import Config, parts_from_config
from privet.cli.config_schema import ConfigSchema
from privet.cli.destination import check_run_directory, new_run_directory, resumable
from privet.cli.output import Json
from privet.cli.summary import announce, print_outcome, shown_settings
from privet.cli.topics import CLIPPING, DATA, MODEL, PRIVACY, RUN, SAMPLING
from privet.data import load
from privet.errors import InvalidArgumentError, choice
from privet.plan import Plan
from privet.runs import federated_run
from privet.runs.federated_run import FederatedSetup
from privet.tables import Schema
from privet.tracking.sinks import make_sink, open_sinks

CLIENTS = "Clients"
# Optimizer of the server → that of a run, and its momentum.
SERVERS: dict[str, tuple[str, float]] = {"sgd": ("sgd", 0.0), "momentum": ("sgd", 0.9), "adam": ("adam", 0.0)}
# What is left out: every client takes part in every round, which has the most signal for a given ε and number of rounds.
_ROUNDS, _BOUND, _LOCAL_STEPS, _LOCAL_RATE = 50, 0.5, 4, 0.1
_SERVER_RATES = {"sgd": 1.0, "momentum": 0.3, "adam": 0.01}


def federate(
    context: typer.Context,
    data: Annotated[
        str | None, typer.Option(help="Path to a table or an .npz file, whose users are the clients.", rich_help_panel=DATA)
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(help='Public schema of a table, with a column of the kind "user"; see privet schema.', rich_help_panel=DATA),
    ] = None,
    classes: options.Classes = None,
    test: options.Test = None,
    epsilon: Annotated[float | None, typer.Option(help="Target ε of a user; never exceeded.", rich_help_panel=PRIVACY)] = None,
    delta: Annotated[float, typer.Option(help="Target δ; below 1 / clients.", rich_help_panel=PRIVACY)] = 1e-5,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise standard deviation over sensitivity, instead of --epsilon.", rich_help_panel=PRIVACY),
    ] = None,
    adjacency: options.Adjacency = "add-remove",
    user_column: options.UserColumn = None,
    user_cap: options.UserCap = None,
    noise_source: options.Source = "secure",
    budget_file: options.BudgetFile = None,
    budget_part: options.BudgetPart = None,
    rounds: Annotated[int | None, typer.Option(help=f"Number of rounds; default: {_ROUNDS}.", rich_help_panel=SAMPLING)] = None,
    cohort: Annotated[
        float | None, typer.Option(help="Expected number of clients in a round; default: all.", rich_help_panel=SAMPLING)
    ] = None,
    sampling: options.Sampling = "poisson",
    local_steps: Annotated[
        int | None,
        typer.Option(help=f"Steps of a client in a round; default: {_LOCAL_STEPS}.", rich_help_panel=CLIENTS),
    ] = None,
    local_batch_size: Annotated[
        int | None, typer.Option(help="Examples of a client's step; default: all of its examples.", rich_help_panel=CLIENTS)
    ] = None,
    local_learning_rate: Annotated[
        float | None,
        typer.Option(help=f"Learning rate of clients; default: {_LOCAL_RATE}.", rich_help_panel=CLIENTS),
    ] = None,
    proximal: Annotated[
        float | None, typer.Option(help="Coefficient of FedProx; default: 0, which is FedAvg.", rich_help_panel=CLIENTS)
    ] = None,
    full_weight: Annotated[
        int | None,
        typer.Option(
            help="Number of examples from which a client has weight 1, and less with fewer; default: equal weights.",
            rich_help_panel=CLIENTS,
        ),
    ] = None,
    fed_sgd: Annotated[
        bool,
        typer.Option("--fed-sgd", help="DP-FedSGD: an update is the mean gradient of a client.", rich_help_panel=CLIENTS),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help=f"Network: {', '.join(models.NAMES)}; default: by the input shape.", rich_help_panel=MODEL),
    ] = None,
    server_optimizer: Annotated[
        str,
        typer.Option(
            help=f"Optimizer of the server: {', '.join(SERVERS)} (FedAvg, FedAvgM with 0.9, FedAdam).", rich_help_panel=MODEL
        ),
    ] = "sgd",
    server_learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Learning rate of the server; default: "
            + ", ".join(f"{rate:g} for {name}" for name, rate in _SERVER_RATES.items())
            + ".",
            rich_help_panel=MODEL,
        ),
    ] = None,
    seed: options.Seed = 0,
    clipping: options.Clipping = "flat",
    bound: Annotated[
        float | None,
        typer.Option(help=f"Clip bound C of a client's update; default: {_BOUND}.", rich_help_panel=CLIPPING),
    ] = None,
    stability: options.Stability = None,
    scale: options.Scale = None,
    cutoff: options.Cutoff = None,
    style: options.Style = "flat",
    adaptive_quantile: options.Quantile = None,
    sparsify: options.Sparsify = None,
    refresh: options.Refresh = None,
    sparsify_ranked: options.SparsifyRanked = False,
    out: options.Out = None,
    config: Config = None,
    config_schema: ConfigSchema = False,
    resume: options.Resume = None,
    adopt: options.Adopt = False,
    processes: Annotated[int, typer.Option(help="Number of processes that train clients.", rich_help_panel=RUN)] = 1,
    license: options.License = None,
    log: options.Log = None,
    full: options.Full = False,
    quiet: options.Quiet = False,
    json: Json = False,
) -> None:
    """Train a model by federated learning with differential privacy for users: each user of the data is a client.

    In a round, a cohort of clients trains on its own examples; the server clips, sums and noises the updates. The clients are
    simulated on this machine. The directory and the public test data are as for privet train; it also holds communication.json,
    the bytes that such clients would send and receive.

    Example: privet federate --data visits.csv --schema visits.toml --user-cap 10 --epsilon 4 --delta 1e-4 --out runs/visits

    Arrays: privet federate --data visits.npz --classes 3 --user-column user_train --user-cap 10 --epsilon 4 --delta 1e-4
    """
    if resume is not None:
        with resumable(resume, "federate"), open_sinks(log or (), resume, argument="--log") as sinks:
            outcome = federated_run.resume(resume, adopt=adopt, progress=not quiet, callbacks=sinks)
        print_outcome(outcome, json, full, quiet)
        return
    for text in log or ():  # refused before any work
        make_sink(text, Path(), argument="--log")
    if out is not None:
        check_run_directory(out, "federate")
    if data is None:
        raise InvalidArgumentError("--data", None, "given", "Try: privet federate --data FILE --schema SCHEMA --epsilon 4.")
    if isinstance(context.obj, Plan):
        raise InvalidArgumentError(
            "--config", "a plan", "a file of options of privet federate", "Parts of a plan can be tables, such as clipping."
        )
    given = parts_from_config(context)
    if (epsilon is None) == (noise_multiplier is None) and "noise" not in given:
        raise InvalidArgumentError("--epsilon", epsilon, "given, or --noise-multiplier in its place", "Give one of the two.")
    described = None if schema is None else Schema.read(schema)
    dataset = runs.scale_targets(load(data, schema=described, classes=classes, test=test, user_column=user_column))
    chosen = Choice(dataset, model, epsilon, delta)
    optimizer, momentum = SERVERS[choice("--server-optimizer", server_optimizer, SERVERS)]
    local = {"local_steps": local_steps, "local_learning_rate": local_learning_rate, "proximal": proximal}
    setup = FederatedSetup(
        data=data,
        model=chosen.model,
        learning_rate=chosen.pick("server_learning_rate", server_learning_rate, _SERVER_RATES[server_optimizer]),
        optimizer=optimizer,
        momentum=momentum,
        seed=seed,
        schema=schema,
        classes=classes,
        test=test,
        user_column=user_column,
        user_cap=user_cap,
        license=license,
        local_batch_size=local_batch_size,
        full_weight=full_weight,
        processes=processes,
        **(_gradient_step(local) if fed_sgd else _local_training(local, chosen)),
    )
    clients, _ = setup.sizes(dataset)
    rule = given.pop("clipping", None) or parts.clipping_rule(
        clipping, chosen.pick("bound", bound, _BOUND), style, adaptive_quantile, None,
        stability=stability, scale=scale, cutoff=cutoff,
    )  # fmt: skip
    plan = Plan(
        examples=clients,
        unit=setup.privacy_unit,
        sampling=given.pop("sampling", None) or parts.scheme(sampling, chosen.pick("cohort", cohort, float(clients)), clients),
        steps=chosen.pick("rounds", rounds, _ROUNDS),
        clipping=rule,
        delta=delta,
        adjacency=adjacency,
        noise=given.pop("noise", None) or parts.noise("independent", noise_multiplier, source=noise_source, momentum=0.0),
        sparsification=given.pop("sparsification", None) or parts.sparsification(sparsify, refresh, sparsify_ranked),
        schema=dataset.schema,
        **given,  # parts for which there is no option
    )
    plan = plan if epsilon is None else plan.calibrate(epsilon)
    shared = None if budget_file is None else Budget(budget_file, budget_part)
    directory = out or new_run_directory(data, chosen.model)
    with resumable(directory, "federate"), open_sinks(log or (), directory, shown_settings(setup, plan), "--log") as sinks:
        outcome = federated_run.start(
            replace(setup, defaults=chosen.values), plan, dataset, directory,
            budget=shared, progress=not quiet, callbacks=sinks, announce=partial(announce, quiet=quiet),
        )  # fmt: skip
    print_outcome(outcome, json, full, quiet)


def _local_training(given: dict[str, Any], chosen: Choice) -> dict[str, Any]:
    """Return the settings of local training, with what was left out."""
    usual = {"local_steps": _LOCAL_STEPS, "local_learning_rate": _LOCAL_RATE}
    found = {name: chosen.pick(name, given[name], value) for name, value in usual.items()}
    return found | {"proximal": given["proximal"] or 0.0}


def _gradient_step(given: dict[str, Any]) -> dict[str, Any]:
    """Return the local step of DP-FedSGD, at whose end the update is the gradient; as in `LocalSteps.fed_sgd`."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(
                f"--{name.replace('_', '-')}",
                value,
                "left out with --fed-sgd",
                "The update is one gradient; use the server's rate.",
            )
    return {"local_steps": 1, "local_learning_rate": 1.0}
