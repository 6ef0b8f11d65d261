"""`privet federate`: train a model on the updates of users, who are simulated clients, and write a run directory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import typer

from privet import models
from privet.cli import options, parts
from privet.cli.choice import Choice
from privet.cli.config import ConfigOptions, read_parts
from privet.cli.options import SCHEMES, command, option
from privet.cli.output import CLIENTS, CLIPPING, DATA, MODEL, PRIVACY, RUN, SAMPLING
from privet.cli.running import check_before, make_setup, resume_run, start_run
from privet.errors import InvalidArgumentError, choice
from privet.noise import Gaussian
from privet.plan import Plan
from privet.runs.config import load_data
from privet.runs.federated_run import FederatedSetup

# Optimizer of the server → that of a run, and its momentum.
SERVERS: dict[str, tuple[str, float]] = {"sgd": ("sgd", 0.0), "momentum": ("sgd", 0.9), "adam": ("adam", 0.0)}
# Setting of privet train → option that is the same of a server and its rounds.
_NAMES = {"batch_size": "cohort", "steps": "rounds", "learning_rate": "server_learning_rate"}


@dataclass(frozen=True, kw_only=True)
class FederateOptions(
    options.RunOptions,
    ConfigOptions,
    options.SparsityOptions,
    options.ClippingOptions,
    options.UserOptions,
    options.PrivacyOptions,
    options.DataOptions,
):
    """The options of `privet federate`."""

    COMMON: ClassVar = (  # the help lists the others last
        "data", "schema", "classes", "test", "epsilon", "delta", "rounds", "cohort", "local_steps", "local_batch_size",
        "local_learning_rate", "model", "server_optimizer", "server_learning_rate", "bound", "config", "out", "resume",
    )  # fmt: skip

    data: str | None = option("Path to a table or an .npz file, whose users are the clients.", DATA)
    schema: str | None = option('TOML file that declares the columns of a table; one is of the kind "user".', DATA)
    epsilon: float | None = option("Target ε of a user; never exceeded.", PRIVACY)
    delta: float = option("Target δ; below 1 / clients.", PRIVACY, 1e-5)
    rounds: int | None = option("Number of rounds; default: by clients, cohort, ε, δ and model, as in privet train.", SAMPLING)
    cohort: float | None = option(
        "Expected number of clients in a round; default: all, if time allows.", SAMPLING, part="sampling"
    )
    sampling: str = option(f"Sampling scheme of the cohorts: {', '.join(SCHEMES)}.", SAMPLING, "poisson", part="sampling")
    local_steps: int | None = option("Steps of a client in a round; default: 1.", CLIENTS, without="--fed-sgd")
    local_batch_size: int | None = option("Examples of a client's step; default: all of its examples.", CLIENTS)
    local_learning_rate: float | None = option("Learning rate of clients; default: 1/local steps.", CLIENTS, without="--fed-sgd")
    proximal: float | None = option("Coefficient of FedProx; default: 0, which is FedAvg.", CLIENTS, without="--fed-sgd")
    full_weight: int | None = option(
        "Number of examples that give a client the weight 1; fewer give less. Default: equal weights.", CLIENTS
    )
    fed_sgd: bool = option("DP-FedSGD: an update is the mean gradient of a client; the default.", CLIENTS, False, "--fed-sgd")
    model: str | None = option(f"Network: {', '.join(models.NAMES)}. Default: by the shape of the inputs.", MODEL)
    server_optimizer: str | None = option(
        f"Optimizer of the server: {', '.join(SERVERS)} (FedAvg, FedAvgM with 0.9, FedAdam); default: momentum.", MODEL
    )
    server_learning_rate: float | None = option(
        "Learning rate of the server; default: by noise, cohort, rounds, bound and model, as in privet train.", MODEL
    )
    bound: float | None = option(
        "Clip bound C of an update; default: 1 or 0.1, by the model, times local rate and steps.", CLIPPING, part="clipping"
    )
    processes: int = option("Number of processes that train clients.", RUN, 1)


@command(FederateOptions)
def federate(context: typer.Context, given: FederateOptions) -> None:
    """Train a model by federated learning with differential privacy for users: each user of the data is a client.

    In a round, a cohort of clients trains on its own examples; the server clips, sums and noises the updates. The clients are
    simulated on this machine. The directory and the public test data are as for privet train; it also holds communication.json,
    the bytes that such clients would send and receive.

    Example: privet federate --data visits.csv --schema visits.toml --user-cap 10 --epsilon 4 --delta 1e-4 --out runs/visits

    Arrays: privet federate --data visits.npz --classes 3 --user-column user_train --user-cap 10 --epsilon 4 --delta 1e-4
    """
    if given.resume is not None:
        resume_run(given, given.resume, FederatedSetup)
        return
    plan, tables = read_parts(context, FederateOptions)
    if plan is not None:
        fix = "Parts of a plan can be tables, such as clipping."
        raise InvalidArgumentError("--config", "a plan", "a file of options of privet federate", fix)
    example = "--data FILE --schema SCHEMA --epsilon 4"
    data = check_before(given, "federate", example, noise_known="noise" in tables)
    dataset = load_data(given)
    chosen = Choice(dataset, given.model, given.epsilon, given.delta, _NAMES)
    server = choice("--server-optimizer", chosen.pick("server_optimizer", given.server_optimizer, "momentum"), SERVERS)
    optimizer, momentum = SERVERS[server]
    # FedSGD, as in `LocalSteps.fed_sgd`; more steps gained nothing (docs/results/defaults.md).
    steps = chosen.pick("local_steps", 1 if given.fed_sgd else given.local_steps, 1)
    local_rate = chosen.pick("local_learning_rate", 1.0 if given.fed_sgd else given.local_learning_rate, 1 / steps)
    setup = make_setup(
        given,
        FederatedSetup,
        data=data,
        model=chosen.model,
        optimizer=optimizer,
        momentum=momentum,
        local_steps=steps,
        local_learning_rate=local_rate,
        proximal=given.proximal or 0.0,
        learning_rate=given.server_learning_rate or 1.0,
        physical_batch_size=chosen.usual.physical_batch_size,
    )
    clients, _ = setup.sizes(dataset)
    tables.setdefault("sparsification", parts.sparsification(given))
    tables.setdefault("noise", Gaussian(given.noise_multiplier, given.noise_source, given.noise_multiplier == 0))
    size = given.cohort if "sampling" not in tables else float(tables["sampling"].expected_batch_size(clients))
    lengths = options.LengthOptions(steps=given.rounds, batch_size=size, sampling=given.sampling)
    cohort, rounds = chosen.lengths(clients, lengths)
    tables.setdefault("sampling", parts.scheme(given.sampling, cohort, clients))
    if "clipping" not in tables:  # as long, relative to an update, as the bound of a gradient
        usual = chosen.usual.bound * local_rate * steps
        tables["clipping"] = parts.clipping_rule(given, chosen.pick("bound", given.bound, usual))
    plan = Plan(
        examples=clients, unit=setup.privacy_unit, steps=rounds, delta=given.delta, adjacency=given.adjacency,
        schema=dataset.schema, **tables,
    )  # fmt: skip
    plan = plan if given.epsilon is None else plan.calibrate(given.epsilon)
    rate = chosen.learning_rate(given.server_learning_rate, setup, plan)
    start_run(given, replace(setup, learning_rate=rate, defaults=chosen.values), plan, dataset)
