"""Execution of a run: train, evaluate and report, in a directory that is complete or marked as unfinished.

During training: plan.json, run.json, manifest.json, ledger, checkpoint.pt, checkpoint-previous.pt, metrics.jsonl; for tables,
schema.toml.
With users or held-out data: division.key, which is private; with held-out data, at the end holdout.json.
At the end: model/, evaluation.json, guarantee.json, guarantee.md, report.html, figures/.
With an optimizer that samples from a posterior, also samples.safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from privet import report
from privet._utils.documents import DocumentError, from_json, read_text
from privet._utils.files import write_atomically, write_text
from privet._utils.tensors import total_size
from privet.accounting.guarantee.statement import Guarantee
from privet.budget import Budget
from privet.data import DataSet
from privet.distributed.launch import refuse_together
from privet.distributed.world import ALONE, World
from privet.errors import InvalidArgumentError, LedgerError
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation
from privet.federated import Communication
from privet.gradients import trainable
from privet.optim import SGLD
from privet.plan import Plan
from privet.report.headline import warn_of_majority
from privet.runs.config import Setup
from privet.runs.division import KEY, new_key
from privet.runs.held_out import LOST, adopt_priors, check_queries, release_estimate
from privet.runs.model_folder import write_model
from privet.runs.tasks import Task
from privet.training import Callback, Step, Storage, Training
from privet.training.callbacks import POINTS
from privet.training.directory import read_plan, write_guarantee
from privet.tuning.feasibility import Feasibility, assess, find_simpler_model

# Outputs of a run that its guarantee does not cover.
_EVALUATED = "{} on the test set, which is assumed public: {}"
# Bootstrap resamples of the test set for the final model's intervals.
RESAMPLES = 1000


@dataclass(frozen=True)
class Outcome:
    """The results of a finished run; None for what it does not have, or for a released result that was lost.

    Args:
        seconds: training time, over all sessions of an interrupted run.
        held_out: released result on held-out private data.
        defaults: option → value of the settings that were chosen by default.
        communication: bytes that clients of a federated run send and receive.
    """

    directory: Path
    guarantee: Guarantee
    evaluation: Evaluation | RegressionEvaluation | None
    test_data: str | None
    seconds: float
    held_out: HeldOutEstimate | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    communication: Communication | None = None


def start(
    setup: Setup, plan: Plan, dataset: DataSet, directory: Path, *, budget: Budget | None = None, progress: bool = False,
    callbacks: Iterable[Callback] = (), announce: Callable[[Feasibility], None] | None = None, world: World = ALONE,
) -> Outcome | None:  # fmt: skip
    """Train from the beginning and write all files into a new directory.

    Args:
        setup: data, network and optimizer; its kind says how the run is trained.
        plan: calibrated plan.
        dataset: the result of `setup.load_data()`.
        budget: budget for the data set, which pays for the whole plan before the first step.
        callbacks: called during training, such as metrics sinks.
        announce: called with the forecast of the run before its first step.
        world: the processes that train together. Those other than rank 0 write nothing and return None.
    """
    with refuse_together(world):
        if budget is not None:
            budget.check_data(setup.data)
        if plan.schema != dataset.schema:
            raise InvalidArgumentError("plan.schema", plan.schema and plan.schema.fingerprint, "the schema of the data set")
        check_queries(plan, setup.sizes(dataset)[1])
    key = world.share(new_key())
    storage = Storage(
        directory,
        budget=budget,
        checkpoint_every=setup.checkpoint_every(plan),
        files=initial_files(setup, plan),
        private={KEY: key + "\n"} if setup.needs_key else {},
        purpose=setup.purpose or "",
    )
    loop, train = TRAINERS[type(setup)]
    begin = partial(loop, plan, directory=storage, **_named(world))
    return train(setup, plan, dataset, key, begin, progress, callbacks, announce, **_named(world))


def resume(
    directory: Path, *, adopt: bool = False, progress: bool = False, callbacks: Iterable[Callback] = (),
    kind: type[Setup] = Setup, world: World = ALONE,
) -> Outcome | None:  # fmt: skip
    """Resume an interrupted run; with `adopt`, also one that was interrupted on another machine (see `Training.resume`)."""
    with refuse_together(world):
        setup = read_setup(directory, kind)
        if state(directory) == "complete":
            raise LedgerError(f"the run in {directory} is already complete: all its steps are done and its budget is spent")
        plan = read_plan(directory)
        dataset, key = setup.load_data(plan.schema), read_key(directory, setup)
    loop, train = TRAINERS[kind]
    begin = partial(loop.resume, Storage(directory, checkpoint_every=setup.checkpoint_every(plan)), adopt=adopt, **_named(world))
    return train(setup, plan, dataset, world.share(key), begin, progress, callbacks, None, **_named(world))


def _named(world: World) -> dict[str, World]:
    """Return the argument for several processes, which only `Training` and its runs take."""
    return {} if world.size == 1 else {"world": world}


def read_key(directory: Path, setup: Setup) -> str:
    """Return the secret key of the run's division; a new one if nothing depends on it."""
    if not setup.needs_key or (setup.holdout is None and not (directory / KEY).exists()):  # earlier versions kept no key
        return new_key()
    try:
        key = read_text(directory / KEY).strip()
        bytes.fromhex(key)
    except (DocumentError, ValueError):
        key = ""
    if len(key) != 64:
        raise LedgerError(f"{directory / KEY} is missing or damaged: it says which data the run uses; restore it")
    return key


def initial_files(setup: Setup, plan: Plan) -> dict[str, str]:
    """Return name → content of the files that a run is begun with."""
    files = {"run.json": json.dumps({"command": setup.command, **asdict(setup)}, indent=2) + "\n"}
    return files if plan.schema is None else files | {"schema.toml": plan.schema.to_toml()}


def read_setup(directory: Path, kind: type[Setup] = Setup) -> Setup:
    """Return the settings in `run.json`, of the kind of the command that wrote it."""
    try:
        content = from_json(read_text(directory / "run.json"))
    except DocumentError:
        content = None
    if not isinstance(content, dict):
        raise LedgerError(f"{directory} holds no run: it has no readable run.json")
    if (command := content.get("command", Setup.command)) != kind.command:
        raise LedgerError(
            f"the run in {directory} is one of privet {command}; to resume it: privet {command} --resume {directory}"
        )
    known = {field.name for field in fields(kind)}
    try:
        return kind(**{name: value for name, value in content.items() if name in known})
    except (TypeError, AttributeError) as error:
        raise LedgerError(f"{directory / 'run.json'} is not a valid description of a run ({error})") from None


def state(directory: Path) -> str:
    """Return "complete", "trained", "unfinished" or "unknown"."""
    try:
        return str(from_json(read_text(directory / "status.json"))["state"])
    except (DocumentError, TypeError, KeyError):
        return "unknown"


def _train(
    setup: Setup, plan: Plan, dataset: DataSet, key: str, begin: Callable[..., Training], progress: bool,
    callbacks: Iterable[Callback], announce: Callable[[Feasibility], None] | None, world: World = ALONE,
) -> Outcome | None:  # fmt: skip
    """Begin or resume a training, take its remaining steps, write the results, and then mark the run as complete."""
    with refuse_together(world):
        division, task, model = setup.divide(dataset, key), setup.task(dataset, plan), setup.build_model(dataset)
        optimizer = setup.build_optimizer(plan, model)
        options: dict[str, Any] = {
            "public": setup.load_public(plan, dataset),
            "physical_batch_size": setup.entries_at_once,
            "scheduler": setup.build_scheduler(plan, optimizer),
            "average": setup.build_average(model),
        }
        loss = setup.build_loss(task.loss)
    training = begin(model, loss, optimizer, division.training, **options)
    if not world.first:  # a rank that takes its part in steps and queries, and writes nothing
        with training:
            adopt_priors(training, task, division.training)
            training.run()
            if division.held_out is not None:
                release_estimate(training, model, task, division.held_out, setup.device)
        return None
    assert training.directory is not None
    directory, model = training.directory, training.model if training.averaged_model is None else training.averaged_model.module
    forecast = foresee(setup, plan, dataset, model, announce)
    estimate: HeldOutEstimate | None = None
    with training:
        lost = [] if adopt_priors(training, task, division.training) else [LOST.format("class counts")]
        measure = lambda step: measure_on_test(step, setup, dataset, task, model)  # noqa: E731
        training.run(progress=progress, callbacks=(*callbacks, Logger(training.log, measure)))
        seconds = training.seconds
        evaluation = None if dataset.test is None else task.evaluate(model, dataset.test, setup.device, RESAMPLES)
        if division.held_out is not None:
            estimate = release_estimate(training, model, task, division.held_out, setup.device)
            lost += [LOST.format("result on held-out data")] if estimate is None else []
        warnings = (*lost, *forecast.warnings, *warn_of_majority(evaluation))
        guarantee = add_data_facts(training.guarantee(), dataset, task, warnings)
    _save_samples(training)
    outcome = Outcome(directory, guarantee, evaluation, dataset.test_data, seconds, estimate, setup.defaults)
    write_results(outcome, model, setup, plan, dataset, {"gradients": training.method})
    return outcome


def foresee(
    setup: Setup, plan: Plan, dataset: DataSet, model: nn.Module, announce: Callable[[Feasibility], None] | None = None
) -> Feasibility:
    """Return, and announce, the feasibility of a run from public facts, with warnings where it is unlikely to work."""
    public: dict[str, Any] = {"epsilon": plan.epsilon(), "delta": plan.delta}
    task, schema = setup.task(dataset).name, dataset.schema is not None
    simpler = find_simpler_model(setup.model, plan.examples, dataset.input_shape, task=task, schema=schema, **public)
    found = assess(plan, total_size(trainable(model).values()), epsilon=public["epsilon"], simpler=simpler)
    if announce is not None:
        announce(found)
    return found


@dataclass(frozen=True)
class Logger(Callback):
    """Logs measures of the model as it is after a step; none to log nothing."""

    log: Callable[[Mapping[str, float | None]], None]
    measure: Callable[[Step], Mapping[str, float | None]]

    def on_step(self, step: Step) -> None:
        """Log the measures of a step."""
        if metrics := self.measure(step):
            self.log(metrics)


def measure_on_test(step: Step, setup: Setup, dataset: DataSet, task: Task, model: nn.Module) -> Mapping[str, float | None]:
    """Return the measures on test data after one of the steps that the metrics file describes; none after others."""
    if dataset.test is None or not step.is_one_of(POINTS):
        return {}
    return task.measurements(task.evaluate(model, dataset.test, setup.device))


def write_results(
    outcome: Outcome, model: nn.Module, setup: Setup, plan: Plan, dataset: DataSet, facts: Mapping[str, Any]
) -> None:
    """Write the files of a finished run: its model, results, statement, settings, status and report, in this order.

    Of the data, only shapes and declarations are read; `facts` are further public entries of `run.json`.
    """
    directory, guarantee, evaluation, estimate = outcome.directory, outcome.guarantee, outcome.evaluation, outcome.held_out
    write_model(
        directory, model, setup.architecture(dataset), dataset, guarantee, evaluation, estimate,
        name=setup.data, license=setup.license,
    )  # fmt: skip
    results = {"evaluation.json": evaluation, "holdout.json": estimate, "communication.json": outcome.communication}
    for name, result in results.items():
        if result is not None:
            write_text(directory / name, json.dumps(result.to_dict()) + "\n")
    write_guarantee(directory, guarantee)
    known = {
        "command": setup.command,
        **asdict(setup),
        "provenance": dataset.provenance,
        "test_data": dataset.test_data,
        "parameters": total_size(model.parameters()),
        **facts,
        "seconds": round(outcome.seconds, 2),
        "versions": dict(guarantee.versions),
    }
    write_text(directory / "run.json", json.dumps(known, indent=2) + "\n")
    status = {"state": "complete", "steps_done": guarantee.steps, "steps_planned": plan.total_steps}
    write_text(directory / "status.json", json.dumps(status) + "\n")
    report.write(directory)


def add_data_facts(guarantee: Guarantee, dataset: DataSet, task: Task, warnings: tuple[str, ...]) -> Guarantee:
    """Return the statement with the declarations and public facts about the data, and the measurements outside training."""
    evaluated = () if dataset.test_data is None else (_EVALUATED.format(task.evaluated, dataset.test_data),)
    return replace(
        guarantee, warnings=(*guarantee.warnings, *warnings), notes=(*guarantee.notes, *dataset.notes),
        public=(*guarantee.public, *dataset.public), beside=(*evaluated, *guarantee.beside),
    )  # fmt: skip


def _save_samples(training: Training) -> None:
    """Write the optimizer's posterior samples of the parameters, if any: name → (number of samples, *shape)."""
    if not isinstance(training.optimizer, SGLD) or not training.optimizer.samples:
        return
    assert training.directory is not None
    names = [name for name, parameter in training.model.named_parameters() if parameter.requires_grad]
    columns = zip(*training.optimizer.samples, strict=True)
    samples = {name: torch.stack(values) for name, values in zip(names, columns, strict=True)}
    path = training.directory / "samples.safetensors"
    write_atomically(path, lambda temporary: save_file(samples, str(temporary)))


# Kind of settings → the loop of its runs, and the function that begins or resumes one by it and writes the results.
TRAINERS: dict[type[Setup], tuple[Any, Callable[..., Outcome | None]]] = {Setup: (Training, _train)}
