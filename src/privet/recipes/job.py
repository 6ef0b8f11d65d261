"""One run of a recipe, from its settings to its record."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from privet import data, models
from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.recipes.features import FEATURES
from privet.recipes.record import Key, Record, key
from privet.recipes.settings import Settings
from privet.recipes.tasks import TASKS, outputs
from privet.training import Training

_AT_ONCE = 512  # examples that go through a model at once; bounds memory
Advance = Callable[[int], object]


@dataclass(frozen=True)
class Examples:
    """Which examples: what a process needs to load them by itself.

    Args:
        data: name in the catalogue, or a path to an .npz file.
        folder: where to look first; None for nowhere.
        number: how many of the training set, the first ones; None takes all.
    """

    data: str
    folder: str | None = None
    number: int | None = None


@dataclass(frozen=True)
class Job:
    """One run that is wanted.

    Args:
        recipe: its name.
        task: one of `TASKS`.
        metrics: to keep.
        points: how often to evaluate.
        examples: what to train on.
        size: how many examples that is.
        arm: its name.
        settings: of the arm.
        rate: learning rate.
        seed: of the initial parameters.
    """

    recipe: str
    task: str
    metrics: tuple[str, ...]
    points: int
    examples: Examples
    size: int
    arm: str
    settings: Settings
    rate: float
    seed: int

    @property
    def key(self) -> Key:
        """That its record will have."""
        return key(self.arm, self.settings.described(), self.rate, self.seed, self.size)

    @property
    def steps(self) -> int:
        """Of the training."""
        return self.settings.plan_for(self.size).total_steps

    @property
    def marks(self) -> set[int]:
        """Steps after which to evaluate: the ends of `points` equal parts, rounded up."""
        return {-(-number * self.steps // self.points) for number in range(1, self.points + 1)}

    def answered_by(self, record: Record) -> bool:
        """Return whether a record of this run has everything that is to be kept."""
        return set(self.metrics) <= record.metrics.keys() and len(record.curve) == len(self.marks)


@functools.lru_cache(maxsize=1)
def read(examples: Examples) -> DataSet:
    """Return the examples as they were published; those of the last call are kept.

    Raises:
        InvalidArgumentError: there are fewer, or no test part.
    """
    whole = data.load(examples.data, folder=examples.folder)
    if whole.test is None:
        raise InvalidArgumentError("data", examples.data, "a set with a test part")
    if examples.number is None:
        return whole
    if examples.number > len(whole.train):
        raise InvalidArgumentError("examples", examples.number, f"at most {len(whole.train)}, of {whole.name}")
    return replace(whole, train=_first(whole.train, examples.number))


# Two, as arms with and without features take turns.
@functools.lru_cache(maxsize=2)
def load(examples: Examples, features: str) -> DataSet:
    """Return the examples with their features; those of the last two kinds are kept."""
    return FEATURES[features](read(examples))


def check(examples: Examples, features: str) -> None:
    """Refuse features that cannot be had of these examples, at the price of one example."""
    whole = read(examples)
    FEATURES[features](replace(whole, train=_first(whole.train, 1), test=None))


def perform(job: Job, advance: Advance) -> Record:
    """Train and evaluate.

    Args:
        job: what to do.
        advance: told the number of steps taken since it was called last.
    """
    examples, task, settings = load(job.examples, job.settings.features), TASKS[job.task], job.settings
    assert examples.test is not None  # `load` refuses others
    started = time.monotonic()
    plan = settings.plan_for(len(examples.train))
    if settings.epsilon is not None:
        plan = plan.calibrate(settings.epsilon)
    setup = settings.setup(job.examples.data, job.rate, job.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = models.build(settings.model, examples.input_shape, outputs(examples), **settings.model_options)
    average = setup.build_average(model)
    trained = model if average is None else average.module
    curve: list[dict[str, float]] = []
    marks = job.marks
    optimizer = setup.build_optimizer(plan, model)
    with Training(
        plan, model, task.loss, optimizer, examples.train, physical_batch_size=_AT_ONCE, average=average,
        scheduler=settings.build_scheduler(optimizer, plan),
    ) as training:  # fmt: skip
        for step in training:
            advance(1)
            if step.number in marks:
                measured = task.measure(trained, examples.test)
                found = {metric: float(getattr(measured, metric)) for metric in job.metrics}
                curve.append({"step": step.number, "epsilon": training.epsilon(), **found})
    return Record(
        recipe=job.recipe,
        arm=job.arm,
        settings=settings.described(),
        rate=job.rate,
        seed=job.seed,
        examples=job.size,
        plan=plan.to_dict(),
        epsilon=curve[-1]["epsilon"],
        metrics={metric: curve[-1][metric] for metric in job.metrics},
        curve=curve,
        seconds=round(time.monotonic() - started, 2),
        machine=machine(),
        versions={"privet": importlib.metadata.version("privet"), "torch": torch.__version__},
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def machine() -> str:
    """Return the processor's name and the number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _first(examples: TensorDataset, number: int) -> TensorDataset:
    return TensorDataset(*(tensor[:number] for tensor in examples.tensors))
