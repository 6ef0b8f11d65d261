"""Results of evaluations, which can be written to JSON and read back exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self

from privet.errors import InvalidArgumentError
from privet.evaluation.bins import BinTable, to_plain

Intervals = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class GroupAccuracy:
    """Accuracy of a classifier on a group of examples."""

    group: str
    examples: int
    correct: int

    @property
    def accuracy(self) -> float:
        """Fraction of the group's examples that were classified correctly."""
        return self.correct / self.examples


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A classifier's results on a set of examples.

    Args:
        accuracy: fraction of examples whose largest output is that of the label, in [0, 1].
        negative_log_likelihood: mean of −ln p(label), in nats; infinite or NaN if the model's outputs are.
        confusion: confusion[i][j] is the number of examples of class i that were predicted as class j; square.
        examples: number of examples, ≥ 1.
        brier: mean over the examples of Σₖ (pₖ − [k is the label])², in [0, 2]; None for files without it.
        calibration: table of the confidence of the predicted class, and whether it is the label; None for files without it.
        true_class: table of the probability of the label, and whether the prediction is correct; None for files without it.
        intervals: metric → 95 % interval, if requested: Wilson's for accuracy, DeLong's for AUROC, otherwise from a bootstrap.
        groups: accuracy on each group, sorted by name, if examples were grouped.
        auroc: mean over the classes of the AUROC of one class against the rest, in [0, 1]; it is that of two classes. None if all
            examples have one class, and for files without it.
        class_names: names of the classes in order; empty for the numbers from 0.

    Raises:
        InvalidArgumentError: the confusion matrix is not square, does not add up to `examples`, or has another number of classes
            than there are names.
    """

    accuracy: float
    negative_log_likelihood: float
    confusion: tuple[tuple[int, ...], ...]
    examples: int
    brier: float | None = None
    calibration: BinTable | None = None
    true_class: BinTable | None = None
    intervals: Intervals = field(default_factory=dict, hash=False)
    groups: tuple[GroupAccuracy, ...] = ()
    auroc: float | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.confusion) for row in self.confusion):
            shape = [len(row) for row in self.confusion]
            raise InvalidArgumentError("confusion", shape, "square: as many columns in each row as rows")
        if sum(map(sum, self.confusion)) != self.examples:
            raise InvalidArgumentError("examples", self.examples, "the sum of the confusion matrix")
        if self.class_names and len(self.class_names) != len(self.confusion):
            raise InvalidArgumentError("class_names", self.class_names, f"{len(self.confusion)} names, one for each class")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes in order; the numbers from 0 without names."""
        return self.class_names or tuple(map(str, range(len(self.confusion))))

    @property
    def class_sizes(self) -> tuple[int, ...]:
        """Number of examples of each class."""
        return tuple(map(sum, self.confusion))

    @property
    def recalls(self) -> tuple[float | None, ...]:
        """Fraction of the examples of each class that were classified correctly; None for a class without examples."""
        rows = enumerate(zip(self.confusion, self.class_sizes, strict=True))
        return tuple(row[label] / size if size else None for label, (row, size) in rows)

    @property
    def majority_class(self) -> str:
        """Name of the most frequent class of these examples."""
        return self.names[self.class_sizes.index(max(self.class_sizes))]

    @property
    def majority_share(self) -> float:
        """Fraction of the examples that are of the most frequent class: the accuracy of always predicting it."""
        return max(self.class_sizes) / self.examples

    @property
    def balanced_accuracy(self) -> float:
        """Mean over the classes that have examples of the fraction classified correctly: it weights rare classes like others."""
        known = [recall for recall in self.recalls if recall is not None]
        return sum(known) / len(known)

    @property
    def expected_calibration_error(self) -> float | None:
        """ECE, the mean gap between confidence and accuracy: `BinTable.expected_error` of the calibration."""
        return None if self.calibration is None else self.calibration.expected_error

    @property
    def maximum_calibration_error(self) -> float | None:
        """MCE: `BinTable.maximum_error` of the calibration."""
        return None if self.calibration is None else self.calibration.maximum_error

    @property
    def root_mean_square_calibration_error(self) -> float | None:
        """RMSCE: `BinTable.root_mean_square_error` of the calibration."""
        return None if self.calibration is None else self.calibration.root_mean_square_error

    def to_dict(self) -> dict[str, Any]:
        """Return values for standard JSON, with the task, from which `from_dict` restores an equal evaluation."""
        return {"task": "classification", **{field.name: _encode(getattr(self, field.name)) for field in fields(self)}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the evaluation from the result of `to_dict`; refuses missing or contradictory fields."""
        return cls(**_decode(cls, values))


@dataclass(frozen=True, slots=True)
class RegressionEvaluation:
    """A regression's results on a set of examples.

    Args:
        mean_squared_error: mean of (output − target)², in the squared unit of the target; not finite if the outputs are not.
        mean_absolute_error: mean of |output − target|, in the unit of the target.
        examples: number of examples, ≥ 1.
        intervals: as for `Evaluation`.
        r_squared: R², the fraction of the targets' variance that the outputs explain, at most 1 and negative for outputs worse
            than the mean target; None if all targets are equal, and for files without it.
    """

    mean_squared_error: float
    mean_absolute_error: float
    examples: int
    intervals: Intervals = field(default_factory=dict, hash=False)
    r_squared: float | None = None

    @property
    def root_mean_squared_error(self) -> float:
        """Square root of the mean squared error, in the unit of the target."""
        return math.sqrt(self.mean_squared_error)

    @property
    def error_interval(self) -> tuple[float, float] | None:
        """The interval of the root mean squared error, if requested."""
        ends = self.intervals.get("mean_squared_error")
        return None if ends is None else (math.sqrt(ends[0]), math.sqrt(ends[1]))

    def to_dict(self) -> dict[str, Any]:
        """Return values for standard JSON, with the task, from which `from_dict` restores an equal evaluation."""
        return {"task": "regression", **{field.name: _encode(getattr(self, field.name)) for field in fields(self)}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the evaluation from the result of `to_dict`; errors as for `Evaluation.from_dict`."""
        return cls(**_decode(cls, values))


def _encode(value: Any) -> Any:
    if isinstance(value, BinTable):
        return value.to_dict()
    if isinstance(value, tuple) and value and isinstance(value[0], GroupAccuracy):
        return [{"group": one.group, "examples": one.examples, "correct": one.correct} for one in value]
    return to_plain(value)


# Field → function that reads its JSON value; all other fields are floats.
_READERS: dict[str, Any] = {
    "examples": int,
    "class_names": lambda names: tuple(map(str, names)),
    "confusion": lambda rows: tuple(tuple(int(cell) for cell in row) for row in rows),
    "calibration": BinTable.from_dict,
    "true_class": BinTable.from_dict,
    "intervals": lambda ends: {name: (float(low), float(high)) for name, (low, high) in ends.items()},
    "groups": lambda rows: tuple(GroupAccuracy(str(row["group"]), int(row["examples"]), int(row["correct"])) for row in rows),
}


def _decode(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    if missing:
        raise InvalidArgumentError("values", sorted(values), "a dictionary that also contains " + ", ".join(missing))
    given = [field.name for field in fields(kind) if field.name in needed or values.get(field.name) is not None]
    return {name: _READERS.get(name, float)(values[name]) for name in given}
