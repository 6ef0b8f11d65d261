"""One run on many users' data: federated rounds, central steps, or a constant."""

from __future__ import annotations

__all__ = ["train_users"]

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn

from privet.federated import Communication, Federated, LocalSteps, Simulation
from privet.gradients import trainable
from privet.plan import Plan
from privet.training import Training
from privet.units import Users, grouped
from privet_experiments.tasks.federated.clients import Clients, clients
from privet_experiments.tasks.federated.problems import UserPart, UserProblem
from privet_experiments.tasks.federated.user_config import UserConfig
from privet_experiments.tasks.job import Advance, Job, TaskResult

_CLIENTS_AT_ONCE, _EXAMPLES_AT_ONCE = 128, 4096
_BYTES = ("bytes_up_of_a_client", "bytes_up")
_Run = Federated | Training


def train_users(job: Job, advance: Advance) -> TaskResult:
    """Train a small model on the private users, or on public ones as a rehearsal, and evaluate it on others."""
    held, settings = clients(job.examples), job.settings
    train, test = (held.public, held.rehearsed) if settings.rehearsal else (held.private, held.held_out)
    plan = _plan_of(settings, held)
    torch.manual_seed(job.seed)
    model = held.problem.build()
    if settings.method == "constant":
        metrics = _measure_constant(held.problem, train, test)
        advance(1)
        return TaskResult(metrics, [{"step": 1, "epsilon": float("inf"), **metrics}], plan.to_dict(), float("inf"))
    curve: list[dict[str, float]] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=job.rate or 1.0, momentum=settings.momentum)
    with _START[settings.method](plan, model, held.problem, optimizer, train, settings) as run:
        for number, _ in enumerate(run, start=1):
            advance(1)
            if number in job.marks:
                curve.append({"step": number, "epsilon": run.epsilon(), **_measure(held.problem, model, test)})
    sent = Communication.of(plan, trainable(model)) if settings.method == "federated" else None
    bytes_up = (0.0, 0.0) if sent is None else (sent.client.up, sent.run.up)
    metrics = {name: value for name, value in curve[-1].items() if name not in ("step", "epsilon")}
    return TaskResult(metrics | dict(zip(_BYTES, bytes_up, strict=True)), curve, plan.to_dict(), curve[-1]["epsilon"])


def _plan_of(settings: UserConfig, held: Clients) -> Plan:
    """Return the calibrated plan of a run: for the private users, or for the public ones with matching noise."""
    plan = settings.plan_for(_units(settings, held.private))
    return settings.rehearsal_of(plan, _units(settings, held.public)) if settings.rehearsal else plan


def _units(settings: UserConfig, part: UserPart) -> int:
    return len(part.owners) if settings.method == "examples" else part.users


def _start_federated(
    plan: Plan, model: nn.Module, problem: UserProblem, optimizer: torch.optim.Optimizer, part: UserPart, settings: UserConfig
) -> AbstractContextManager[_Run]:
    local = LocalSteps(settings.local_rate, settings.local_steps, settings.local_batch)
    users = Users(part.examples, part.owners, settings.cap)
    return Federated(plan, model, Simulation(model, problem.loss, users, local, at_once=_CLIENTS_AT_ONCE), optimizer)


def _start_on_users(
    plan: Plan, model: nn.Module, problem: UserProblem, optimizer: torch.optim.Optimizer, part: UserPart, settings: UserConfig
) -> AbstractContextManager[_Run]:
    users = Users(part.examples, part.owners, settings.cap)
    return Training(plan, model, grouped(problem.loss), optimizer, users, physical_batch_size=_CLIENTS_AT_ONCE)


def _start_on_examples(
    plan: Plan, model: nn.Module, problem: UserProblem, optimizer: torch.optim.Optimizer, part: UserPart, settings: UserConfig
) -> AbstractContextManager[_Run]:
    return Training(plan, model, problem.loss, optimizer, part.examples, physical_batch_size=_EXAMPLES_AT_ONCE)


_START: dict[str, Callable[..., AbstractContextManager[_Run]]] = {
    "federated": _start_federated,
    "users": _start_on_users,
    "examples": _start_on_examples,
}


@torch.no_grad()
def _measure(problem: UserProblem, model: nn.Module, part: UserPart) -> dict[str, float]:
    inputs, targets = part.examples.tensors
    return problem.measure(model(inputs), targets)


def _measure_constant(problem: UserProblem, train: UserPart, test: UserPart) -> dict[str, float]:
    """Return the metrics of the best constant prediction."""
    targets = test.examples.tensors[1]
    best = problem.constant(train.examples.tensors[1])
    return problem.measure(best.expand(*targets.shape, -1), targets) | dict.fromkeys(_BYTES, 0.0)
