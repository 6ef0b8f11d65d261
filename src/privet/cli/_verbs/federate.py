"""`privet federate`: train a model on the updates of users, who are simulated clients, and write a run directory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import typer

from privet import models
from privet.cli import options, parts
from privet.cli.choice import Choice
from privet.cli.config import ConfigOptions, read_parts
from privet.cli.options import SCHEMES, command, option
from privet.cli.output import CLIENTS, CLIPPING, DATA, MODEL, PRIVACY, RUN, SAMPLING
from privet.cli.running import check_before, load_dataset, make_setup, resume_run, start_run
from privet.errors import InvalidArgumentError, choice
from privet.noise import Gaussian
from privet.plan import Plan
from privet.runs.federated_run import FederatedSetup

# Optimizer of the server → that of a run, and its momentum.
SERVERS: dict[str, tuple[str, float]] = {"sgd": ("sgd", 0.0), "momentum": ("sgd", 0.9), "adam": ("adam", 0.0)}
# What is left out: every client takes part in every round, which has the most signal for a given ε and number of rounds.
_ROUNDS, _BOUND, _LOCAL_STEPS, _LOCAL_RATE = 50, 0.5, 4, 0.1
_SERVER_RATES = {"sgd": 1.0, "momentum": 0.3, "adam": 0.01}


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
    rounds: int | None = option(f"Number of rounds; default: {_ROUNDS}.", SAMPLING)
    cohort: float | None = option("Expected number of clients in a round; default: all.", SAMPLING, part="sampling")
    sampling: str = option(f"Sampling scheme of the cohorts: {', '.join(SCHEMES)}.", SAMPLING, "poisson", part="sampling")
    local_steps: int | None = option(f"Steps of a client in a round; default: {_LOCAL_STEPS}.", CLIENTS, without="--fed-sgd")
    local_batch_size: int | None = option("Examples of a client's step; default: all of its examples.", CLIENTS)
    local_learning_rate: float | None = option(f"Learning rate of clients; default: {_LOCAL_RATE}.", CLIENTS, without="--fed-sgd")
    proximal: float | None = option("Coefficient of FedProx; default: 0, which is FedAvg.", CLIENTS, without="--fed-sgd")
    full_weight: int | None = option(
        "Number of examples that give a client the weight 1; fewer give less. Default: equal weights.", CLIENTS
    )
    fed_sgd: bool = option("DP-FedSGD: an update is the mean gradient of a client.", CLIENTS, False, "--fed-sgd")
    model: str | None = option(f"Network: {', '.join(models.NAMES)}. Default: by the shape of the inputs.", MODEL)
    server_optimizer: str = option(
        f"Optimizer of the server: {', '.join(SERVERS)} (FedAvg, FedAvgM with 0.9, FedAdam).", MODEL, "sgd"
    )
    server_learning_rate: float | None = option(
        f"Learning rate of the server; default: {', '.join(f'{rate:g} for {name}' for name, rate in _SERVER_RATES.items())}.",
        MODEL,
    )
    bound: float | None = option(f"Clip bound C of a client's update; default: {_BOUND}.", CLIPPING, part="clipping")
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
        raise InvalidArgumentError(
            "--config", "a plan", "a file of options of privet federate", "Parts of a plan can be tables, such as clipping."
        )
    example = "--data FILE --schema SCHEMA --epsilon 4"
    data = check_before(given, "federate", example, noise_known="noise" in tables)
    dataset = load_dataset(given)
    chosen = Choice(dataset, given.model, given.epsilon, given.delta)
    optimizer, momentum = SERVERS[choice("--server-optimizer", given.server_optimizer, SERVERS)]
    rate = chosen.pick("server_learning_rate", given.server_learning_rate, _SERVER_RATES[given.server_optimizer])
    if given.fed_sgd:  # as in `LocalSteps.fed_sgd`: the update is the gradient
        local: dict[str, Any] = {"local_steps": 1, "local_learning_rate": 1.0, "proximal": 0.0}
    else:
        usual = {"local_steps": _LOCAL_STEPS, "local_learning_rate": _LOCAL_RATE}
        local = {name: chosen.pick(name, getattr(given, name), value) for name, value in usual.items()}
        local["proximal"] = given.proximal or 0.0
    setup = make_setup(
        given, FederatedSetup, data=data, model=chosen.model, learning_rate=rate, optimizer=optimizer, momentum=momentum, **local,
    )  # fmt: skip
    clients, _ = setup.sizes(dataset)
    tables.setdefault("sparsification", parts.sparsification(given))
    tables.setdefault("noise", Gaussian(given.noise_multiplier, given.noise_source, given.noise_multiplier == 0))
    if "sampling" not in tables:
        cohort = chosen.pick("cohort", given.cohort, float(clients))
        tables["sampling"] = parts.scheme(given.sampling, cohort, clients)
    if "clipping" not in tables:
        tables["clipping"] = parts.clipping_rule(given, chosen.pick("bound", given.bound, _BOUND))
    plan = Plan(
        examples=clients,
        unit=setup.privacy_unit,
        steps=chosen.pick("rounds", given.rounds, _ROUNDS),
        delta=given.delta,
        adjacency=given.adjacency,
        schema=dataset.schema,
        **tables,
    )
    plan = plan if given.epsilon is None else plan.calibrate(given.epsilon)
    start_run(given, replace(setup, defaults=chosen.values), plan, dataset)
