"""Jobs: requested runs, their examples and their results."""

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
from privet_experiments.features import extracted
from privet_experiments.tasks.run_record import Key, RunRecord, key

Advance = Callable[[int], object]


@dataclass(frozen=True)
class TaskExamples:
    """The examples of a task, as a description from which any process can load them.

    Args:
        data: name in the catalogue, or path of an .npz file; None for a task without data.
        folder: folder to search first, or None.
        number: number of training examples, from the first; None uses all.
        classes: classes of a file, as for `privet.data.load`.
    """

    data: str | None
    folder: str | None = None
    number: int | None = None
    classes: int | str | None = None


@dataclass(frozen=True)
class Job:
    """A requested run of an arm.

    Args:
        points: number of evaluations.
        size: number of examples.
        settings: settings of the arm, of the task's type.
        rate: learning rate; None if the task has none.
        seed: seed of the initial parameters.
        studies: gradient studies that the record must contain.
        study_epochs: number of epochs to study, at the end of the run.
        new_studies: further gradient studies, which existing records may lack.
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
        """Key of its record."""
        return key(self.arm, self.settings.described(), self.rate, self.seed, self.size)

    @property
    def steps(self) -> int:
        """Number of training steps."""
        return int(self.settings.steps(self.size))

    @property
    def marks(self) -> set[int]:
        """Steps after which to evaluate: the ends of `points` equal parts, rounded up."""
        steps = self.steps
        return {-(-number * steps // self.points) for number in range(1, self.points + 1)}

    def answered_by(self, record: RunRecord) -> bool:
        """Return whether a record of this run contains everything that the job requires."""
        studied = set() if record.study is None else set(record.study["studies"])
        measured = set(self.metrics) <= record.metrics.keys() and len(record.curve) == len(self.marks)
        return measured and set(self.studies) <= studied


@dataclass(frozen=True)
class TaskResult:
    """Result of a run: the fields of its record that the task determines; see `RunRecord`."""

    metrics: dict[str, float]
    curve: list[dict[str, float]]
    plan: dict[str, Any] | None = None
    epsilon: float | None = None
    study: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None


@functools.lru_cache(maxsize=1)
def read(examples: TaskExamples) -> DataSet:
    """Return the examples as published, with a cache for those of the last call.

    Raises:
        InvalidArgumentError: there are too few examples, or no test data.
    """
    if examples.data is None:
        raise InvalidArgumentError("data", None, "given for a task that trains")
    whole = data.load(examples.data, folder=examples.folder, classes=examples.classes)
    if whole.test is None:
        raise InvalidArgumentError("data", examples.data, "a data set with test data")
    if examples.number is None:
        return whole
    if examples.number > len(whole.train):
        raise InvalidArgumentError("examples", examples.number, f"at most {len(whole.train)}, of {whole.name}")
    return replace(whole, train=_first(whole.train, examples.number))


# Two, because arms with and without features alternate.
@functools.lru_cache(maxsize=2)
def load(examples: TaskExamples, features: str) -> DataSet:
    """Return the features of the examples, with a cache for the last two kinds."""
    return extracted(read(examples), features)


def _first(examples: TensorDataset, number: int) -> TensorDataset:
    return TensorDataset(*(tensor[:number] for tensor in examples.tensors))
