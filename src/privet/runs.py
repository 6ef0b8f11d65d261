"""A run: a training described by names, carried out in a directory that is complete or marked unfinished.

plan.json  run.json  ledger  checkpoint.pt  checkpoint-previous.pt  metrics.jsonl      while it trains
model.safetensors  evaluation.json  guarantee.json  guarantee.md  report.html  figures/      when it is done
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from privet import data, models, report
from privet.accounting.statement import Guarantee
from privet.budget import Budget
from privet.data import DataSet
from privet.errors import InvalidArgumentError, LedgerError, choice, count, positive, real
from privet.evaluation import Evaluation, evaluate
from privet.evaluation.plain import plain
from privet.files import write_atomically, write_text
from privet.optim import SGLD, AdamBC, sgld_learning_rates
from privet.plan import Plan
from privet.progress import shown
from privet.training import Training, read_plan

# How often the model in training is evaluated on the test set.
_POINTS = 20
# What a run writes down that its guarantee is not about.
_EVALUATED = "accuracy, likelihood and calibration on the test set, which is assumed public"
_BESIDE = ("how many seconds it took",)
# Of the test set, for the intervals around the final model's numbers.
_RESAMPLES = 1000


@dataclass(frozen=True)
class Setup:
    """Everything about a run that does not change its guarantee; `run.json` keeps it.

    Args:
        data: name in the catalogue, or a path to an .npz or CSV file.
        model: name of one of Privet's networks.
        learning_rate: > 0.
        optimizer: one of `OPTIMIZERS`.
        momentum: of "sgd" and "nesterov", in [0, 1).
        average: "uniform" or "ema", to evaluate and keep an average of the parameters over the steps; or None.
        seed: of the initial parameters, which are public.
        physical_batch_size: most examples that go through the model at once.
        folder: where the data set lies, if it is not to be fetched.
        target: column with the labels, for a CSV file.
        device: such as "cpu" or "cuda".
    """

    data: str
    model: str
    learning_rate: float
    optimizer: str = "sgd"
    momentum: float = 0.9
    average: str | None = None
    seed: int = 0
    physical_batch_size: int = 256
    folder: str | None = None
    target: str | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        choice("model", self.model, models.NAMES)
        choice("optimizer", self.optimizer, OPTIMIZERS)
        if self.average is not None:
            choice("average", self.average, AVERAGES)
        positive("learning_rate", self.learning_rate)
        if not 0 <= real("momentum", self.momentum) < 1:
            raise InvalidArgumentError("momentum", self.momentum, "at least 0 and below 1", "0.9 is usual.")
        count("seed", self.seed, minimum=0)
        count("physical_batch_size", self.physical_batch_size, fix="It bounds memory only and does not change the result.")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError):
            raise InvalidArgumentError("device", self.device, "a device that torch has here, such as 'cpu' or 'cuda'") from None

    def load_data(self) -> DataSet:
        """Return the data set, fetched if need be."""
        return data.load(self.data, folder=self.folder, target=self.target)

    def build_model(self, dataset: DataSet) -> nn.Module:
        """Return the network with its seeded initial parameters."""
        if dataset.classes is None:
            raise InvalidArgumentError("data", self.data, "a data set with classes", "A regression is trained by a recipe.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return models.build(self.model, dataset.input_shape, dataset.classes).to(self.device)

    def build_optimizer(self, plan: Plan, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer over the model's parameters."""
        return OPTIMIZERS[self.optimizer](self, plan, model)

    def build_average(self, model: nn.Module) -> AveragedModel | None:
        """Return what averages the model's parameters, if anything does."""
        return None if self.average is None else AVERAGES[self.average](model)


Build = Callable[[Setup, Plan, nn.Module], torch.optim.Optimizer]


def _optimizer(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> Build:
    return lambda setup, plan, model: kind(model.parameters(), lr=setup.learning_rate, **options)


def _with_momentum(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> Build:
    return lambda setup, plan, model: kind(model.parameters(), lr=setup.learning_rate, momentum=setup.momentum, **options)


def _adam_bc(setup: Setup, plan: Plan, model: nn.Module) -> torch.optim.Optimizer:
    return AdamBC(model.parameters(), lr=setup.learning_rate, noise_deviation=plan.gradient_deviations().tolist())


def _sgld(setup: Setup, plan: Plan, model: nn.Module) -> torch.optim.Optimizer:
    return SGLD(model.parameters(), sgld_learning_rates(plan), plan.examples)


# Name → the optimizer of a setup, a plan and a model. The learning rate of Langevin dynamics is the plan's noise's.
OPTIMIZERS: dict[str, Build] = {
    "sgd": _with_momentum(torch.optim.SGD),
    "nesterov": _with_momentum(torch.optim.SGD, nesterov=True),
    "adam": _optimizer(torch.optim.Adam),
    "adamw": _optimizer(torch.optim.AdamW),
    "adagrad": _optimizer(torch.optim.Adagrad),
    "rmsprop": _optimizer(torch.optim.RMSprop),
    "adam-bc": _adam_bc,
    "sgld": _sgld,
}
AVERAGES: dict[str, Callable[[nn.Module], AveragedModel]] = {
    "uniform": lambda model: AveragedModel(model),
    "ema": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99)),  # type: ignore[no-untyped-call]
}


@dataclass(frozen=True)
class Outcome:
    """What a finished run came to.

    Args:
        directory: of the run.
        guarantee: what it promises.
        evaluation: on the test set; None without one.
        seconds: that training took, all sessions of an interrupted run together.
    """

    directory: Path
    guarantee: Guarantee
    evaluation: Evaluation | None
    seconds: float


def cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    """Return the cross-entropy of every example, (B,)."""
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def start(
    setup: Setup, plan: Plan, dataset: DataSet, directory: Path, *, budget: Budget | None = None, progress: bool = False
) -> Outcome:
    """Train from the beginning and write everything into a new directory.

    Args:
        setup: what to train.
        plan: the promise, calibrated.
        dataset: `setup.load_data()`.
        directory: new or empty of runs.
        budget: for the data set, from which the whole plan is drawn first.
        progress: show a progress bar on standard error.

    Raises:
        LedgerError: the directory holds a run already.
        BudgetExhaustedError: the budget does not hold the plan.
        InvalidArgumentError: the budget is for another data set.
    """
    if budget is not None:
        budget.check_data(setup.data)
    model = setup.build_model(dataset)
    training = Training(
        plan,
        model,
        cross_entropy,
        setup.build_optimizer(plan, model),
        dataset.train,
        directory,
        budget=budget,
        physical_batch_size=setup.physical_batch_size,
        average=setup.build_average(model),
        _files={"run.json": json.dumps(asdict(setup), indent=2) + "\n"},
    )
    return _finish(setup, dataset, training, progress)


def resume(directory: Path, *, adopt: bool = False, progress: bool = False) -> Outcome:
    """Go on with an interrupted run.

    Args:
        directory: of the run.
        adopt: also if it was left on another machine; as for `Training`.
        progress: show a progress bar on standard error.

    Raises:
        LedgerError: there is no run to go on with, or it is complete.
    """
    setup = read_setup(directory)
    if state(directory) == "complete":
        raise LedgerError(f"the run in {directory} is complete: its plan is fulfilled and its budget spent")
    dataset = setup.load_data()
    model = setup.build_model(dataset)
    plan = read_plan(directory)
    training = Training.resume(
        directory,
        model,
        cross_entropy,
        setup.build_optimizer(plan, model),
        dataset.train,
        adopt=adopt,
        physical_batch_size=setup.physical_batch_size,
        average=setup.build_average(model),
    )
    return _finish(setup, dataset, training, progress)


def read_setup(directory: Path) -> Setup:
    """Return what `run.json` says.

    Raises:
        LedgerError: there is none, or it does not parse.
    """
    try:
        content = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        raise LedgerError(f"{directory} holds no run: there is no readable run.json") from None
    known = {field.name for field in fields(Setup)}
    return Setup(**{name: value for name, value in content.items() if name in known})


def state(directory: Path) -> str:
    """Return "complete", "trained", "unfinished" or "unknown"."""
    try:
        return str(json.loads((directory / "status.json").read_text(encoding="utf-8"))["state"])
    except (OSError, json.JSONDecodeError, KeyError):
        return "unknown"


def _finish(setup: Setup, dataset: DataSet, training: Training, progress: bool) -> Outcome:
    """Take the remaining steps, write the results, and only then call the run complete."""
    assert training.directory is not None
    directory, model = training.directory, training.model if training.averaged_model is None else training.averaged_model.module
    before, started = _seconds_before(directory), time.monotonic()
    evaluation: Evaluation | None = None
    with training, (directory / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
        for number in _evaluation_points(training, progress):
            found = None if dataset.test is None else evaluate(model, dataset.test, device=setup.device)
            spent = training.epsilon()
            line = {
                "step": number,
                "epsilon": spent if math.isfinite(spent) else None,
                "seconds": before + time.monotonic() - started,
                "test_accuracy": found and found.accuracy,
                "test_negative_log_likelihood": found and found.negative_log_likelihood,
                "test_expected_calibration_error": found and found.expected_calibration_error,
            }
            metrics.write(json.dumps(plain(line), allow_nan=False) + "\n")
            metrics.flush()
        seconds = before + time.monotonic() - started
        if dataset.test is not None:
            evaluation = evaluate(model, dataset.test, device=setup.device, resamples=_RESAMPLES)
        guarantee = replace(training.guarantee(), beside=_BESIDE if evaluation is None else (_EVALUATED, *_BESIDE))
    write_atomically(directory / "model.safetensors", lambda temporary: save_model(model, str(temporary)))
    if evaluation is not None:
        write_text(directory / "evaluation.json", json.dumps(evaluation.to_dict()) + "\n")
    write_text(directory / "guarantee.json", guarantee.to_json() + "\n")
    write_text(directory / "guarantee.md", f"# Guarantee\n\n{guarantee}\n")
    facts = {
        **asdict(setup),
        "provenance": dataset.provenance,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "gradients": training.method,
        "seconds": round(seconds, 2),
        "versions": dict(guarantee.versions),
    }
    write_text(directory / "run.json", json.dumps(facts, indent=2) + "\n")
    status = {"state": "complete", "steps_done": training.steps_spent, "steps_planned": len(training)}
    write_text(directory / "status.json", json.dumps(status) + "\n")
    report.write(directory)
    return Outcome(directory, guarantee, evaluation, seconds)


def _evaluation_points(training: Training, progress: bool) -> Iterator[int]:
    """Take the remaining steps, yielding the number of about every twentieth of them and of the last."""
    every = max(1, len(training) // _POINTS)
    for step in shown(training) if progress else training:
        if step.number % every == 0 or step.number == step.total:
            yield step.number


def _seconds_before(directory: Path) -> float:
    """Return how long earlier sessions of the run trained, as far as they recorded it."""
    try:
        lines = (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return float(json.loads(lines[-1])["seconds"])
    except (OSError, IndexError, ValueError, KeyError):
        return 0.0
