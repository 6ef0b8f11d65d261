"""Federated runs: clients of a file, trained in this process or in several, in a directory that is complete or resumable.

The files are those of `privet.runs.run`, and communication.json. Lines of metrics.jsonl have ε after every round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from privet._utils.tensors import total_size
from privet.data import DataSet
from privet.errors import InvalidArgumentError, count
from privet.federated import Communication, Federated, LocalSteps, ProcessPool, Simulation
from privet.gradients import trainable
from privet.plan import Plan
from privet.report.headline import warn_of_majority
from privet.runs.config import Setup
from privet.runs.run import RESAMPLES, TRAINERS, Logger, Outcome, add_data_facts, foresee, measure_on_test, write_results
from privet.training import Callback, Step
from privet.tuning.feasibility import Feasibility
from privet.units import Users

# Checkpoints of a run: a server that is killed loses at most this share of the rounds, which count as spent.
_CHECKPOINTS = 20
# Parameters of the clients that are trained together, each with a copy of the model: 64 MB a copy as float32.
_AT_ONCE = 2**24


@dataclass(frozen=True)
class FederatedSetup(Setup):
    """The settings of a federated run; `learning_rate` and `optimizer` are the server's, and others as for `LocalSteps`."""

    command: ClassVar[str] = "federate"

    local_learning_rate: float = 0.1
    local_steps: int = 1
    local_batch_size: int | None = None
    proximal: float = 0.0
    full_weight: int | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        count("processes", self.processes, fix="One for each core is a good choice.")
        self.local  # noqa: B018 refuses settings that are out of range

    @property
    def local(self) -> LocalSteps:
        """What every client does in a round."""
        return LocalSteps(self.local_learning_rate, self.local_steps, self.local_batch_size, self.proximal, self.full_weight)

    def _check_users(self, dataset: DataSet) -> None:
        if dataset.users is None:
            fix = 'Users are a column of the kind "user" in a schema, or the array user_column of an .npz file.'
            raise InvalidArgumentError("data", self.data, "data with users, who are the clients", fix)
        super()._check_users(dataset)

    def checkpoint_every(self, plan: Plan) -> int:
        """Return the number of rounds from one checkpoint to the next."""
        return max(1, plan.total_steps // _CHECKPOINTS)


def _train(
    setup: FederatedSetup, plan: Plan, dataset: DataSet, key: str, begin: Callable[..., Federated], progress: bool,
    callbacks: Iterable[Callback], announce: Callable[[Feasibility], None] | None,
) -> Outcome:  # fmt: skip
    """Begin or resume the rounds, hold those that remain, write the results, and then mark the run as complete."""
    clients, model = setup.divide(dataset, key).training, setup.build_model(dataset)
    assert isinstance(clients, Users)
    optimizer, task = setup.build_optimizer(plan, model), setup.task(dataset)
    at_once = min(setup.entries_at_once, max(1, _AT_ONCE // total_size(trainable(model).values())))
    simulation = Simulation(model, task.loss, clients, setup.local, at_once=at_once)
    pool = nullcontext(simulation) if setup.processes == 1 else ProcessPool(simulation, setup.processes)
    with pool as population, begin(model, population, optimizer) as federated:
        forecast = foresee(setup, plan, dataset, model, announce)
        measure = lambda step: {**_sum_bytes(step, plan, model), **measure_on_test(step, setup, dataset, task, model)}  # noqa: E731
        federated.run(progress=progress, callbacks=(*callbacks, Logger(federated.log, measure)))
        evaluation = None if dataset.test is None else task.evaluate(model, dataset.test, setup.device, RESAMPLES)
        guarantee = add_data_facts(federated.guarantee(), dataset, task, (*forecast.warnings, *warn_of_majority(evaluation)))
    assert federated.directory is not None
    outcome = Outcome(
        federated.directory,
        guarantee,
        evaluation,
        dataset.test_data,
        federated.seconds,
        defaults=setup.defaults,
        communication=Communication.of(plan, trainable(model), federated.steps_spent),
    )
    write_results(outcome, model, setup, plan, dataset, {})
    return outcome


def _sum_bytes(step: Step, plan: Plan, model: nn.Module) -> dict[str, float | None]:
    """Return the bytes that the expected cohorts have sent and received by the end of a round."""
    sent = Communication.of(plan, trainable(model), step.number).run
    return {"communicated": sent.up + sent.down, "communicated_dense": sent.dense_up + sent.dense_down}


TRAINERS[FederatedSetup] = Federated, _train
