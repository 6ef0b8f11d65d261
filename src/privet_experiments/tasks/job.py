"""A run that is wanted, the examples that it is about, and what it comes to."""

from __future__ import annotations

__all__ = ["Advance", "Job", "TaskExamples", "TaskResult", "load", "read"]

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import TensorDataset

from privet import data
from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.models.features import extracted
from privet_experiments.tasks.run_record import Key, RunRecord, key

Advance = Callable[[int], object]


@dataclass(frozen=True)
class TaskExamples:
    """Which examples: what a process needs to load them by itself.

    Args:
        data: name in the catalogue, or a path to an .npz file; None where nothing is trained on data.
        folder: where to look first; None for nowhere.
        number: how many of the training set, the first ones; None takes all.
        classes: of a file, as for `privet.data.load`.
    """

    data: str | None
    folder: str | None = None
    number: int | None = None
    classes: int | str | None = None


@dataclass(frozen=True)
class Job:
    """One run that is wanted.

    Args:
        recipe: its name.
        task: one of `privet_experiments.tasks.kinds.TASKS`.
        metrics: to keep.
        points: how often to evaluate.
        examples: what to train on.
        size: how many examples that is.
        arm: its name.
        settings: of the arm, of the task's kind.
        rate: learning rate; None where there is no choice of it.
        seed: of the initial parameters.
        studies: names of studies of its gradients, which its record must have.
        study_epochs: how many of the last epochs are studied.
        new_studies: names of studies that it makes too, and without which a record counts all the same.
    """

    recipe: str
    task: str
    metrics: tuple[str, ...]
    points: int
    examples: TaskExamples
    size: int
    arm: str
    settings: Any
    rate: float | None
    seed: int
    studies: tuple[str, ...] = ()
    study_epochs: float = 10.0
    new_studies: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """That its record will have."""
        return key(self.arm, self.settings.described(), self.rate, self.seed, self.size)

    @property
    def steps(self) -> int:
        """Of the training."""
        return int(self.settings.steps(self.size))

    @property
    def marks(self) -> set[int]:
        """Steps after which to evaluate: the ends of `points` equal parts, rounded up."""
        return {-(-number * self.steps // self.points) for number in range(1, self.points + 1)}

    def answered_by(self, record: RunRecord) -> bool:
        """Return whether a record of this run has everything that is to be kept."""
        studied = set() if record.study is None else set(record.study["studies"])
        measured = set(self.metrics) <= record.metrics.keys() and len(record.curve) == len(self.marks)
        return measured and set(self.studies) <= studied


@dataclass(frozen=True)
class TaskResult:
    """What a run came to: the fields of its record that its task knows; see `RunRecord`."""

    metrics: dict[str, float]
    curve: list[dict[str, float]]
    plan: dict[str, Any] | None = None
    epsilon: float | None = None
    study: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None


@functools.lru_cache(maxsize=1)
def read(examples: TaskExamples) -> DataSet:
    """Return the examples as they were published; those of the last call are kept.

    Raises:
        InvalidArgumentError: there are fewer, or no test part.
    """
    if examples.data is None:
        raise InvalidArgumentError("data", None, "given, for a task that trains")
    whole = data.load(examples.data, folder=examples.folder, classes=examples.classes)
    if whole.test is None:
        raise InvalidArgumentError("data", examples.data, "a set with a test part")
    if examples.number is None:
        return whole
    if examples.number > len(whole.train):
        raise InvalidArgumentError("examples", examples.number, f"at most {len(whole.train)}, of {whole.name}")
    return replace(whole, train=_first(whole.train, examples.number))


# Two, as arms with and without features take turns.
@functools.lru_cache(maxsize=2)
def load(examples: TaskExamples, features: str) -> DataSet:
    """Return the examples with their features; those of the last two kinds are kept."""
    return extracted(read(examples), features)


def _first(examples: TensorDataset, number: int) -> TensorDataset:
    return TensorDataset(*(tensor[:number] for tensor in examples.tensors))
