"""What an evaluation found, as values that survive a trip through JSON unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self

from privet.errors import InvalidArgumentError
from privet.evaluation.bins import BinTable
from privet.evaluation.plain import plain

Intervals = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class GroupAccuracy:
    """How a classifier does on one group of examples.

    Args:
        group: what the examples have in common.
        examples: how many there are, at least 1.
        correct: how many of them were classified correctly.
    """

    group: str
    examples: int
    correct: int

    @property
    def accuracy(self) -> float:
        """Share of the group's examples that were classified correctly."""
        return self.correct / self.examples


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A classifier's results on a set of examples.

    Args:
        accuracy: share of examples whose largest output is at their label, in [0, 1].
        negative_log_likelihood: mean of −ln p(label), in nats; infinite or NaN where the model's outputs are.
        confusion: confusion[i][j] examples of class i were taken for class j; square.
        examples: how many examples were evaluated, at least 1.
        brier: mean over the examples of Σₖ (pₖ − [k is the label])², in [0, 2]; None in files written without it.
        calibration: confidence of the predicted class against whether it was the label; None likewise.
        true_class: the probability that was given to the label, against whether the prediction was right; None likewise.
        intervals: 95 % bootstrap intervals by name of the number, as far as they were asked for.
        groups: accuracy on every group, in the order of their names, if examples were grouped.

    Raises:
        InvalidArgumentError: the confusion matrix is not square or does not add up to `examples`.
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

    def __post_init__(self) -> None:
        if any(len(row) != len(self.confusion) for row in self.confusion):
            shape = [len(row) for row in self.confusion]
            raise InvalidArgumentError("confusion", shape, "square: as many columns in every row as there are rows")
        if sum(map(sum, self.confusion)) != self.examples:
            raise InvalidArgumentError("examples", self.examples, "the sum of the confusion matrix")

    @property
    def expected_calibration_error(self) -> float | None:
        """ECE, the mean distance of confidence from accuracy: `BinTable.expected_error` of the calibration."""
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
        """Return plain values that standard JSON can hold; `from_dict` gives back an equal evaluation."""
        return {field.name: _encoded(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the evaluation that `to_dict` described.

        Args:
            values: the dictionary, straight from `to_dict` or through JSON.

        Raises:
            InvalidArgumentError: a field is missing, or the fields contradict each other.
        """
        return cls(**_decoded(cls, values))


@dataclass(frozen=True, slots=True)
class RegressionEvaluation:
    """A regression's results on a set of examples.

    Args:
        mean_squared_error: mean of (output − target)², in the target's unit squared; not finite where the outputs are not.
        mean_absolute_error: mean of |output − target|, in the target's unit.
        examples: how many examples were evaluated, at least 1.
        intervals: as for `Evaluation`.
    """

    mean_squared_error: float
    mean_absolute_error: float
    examples: int
    intervals: Intervals = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that standard JSON can hold; `from_dict` gives back an equal evaluation."""
        return {field.name: _encoded(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the evaluation that `to_dict` described; errors as for `Evaluation.from_dict`."""
        return cls(**_decoded(cls, values))


def _encoded(value: Any) -> Any:
    if isinstance(value, BinTable):
        return value.to_dict()
    if isinstance(value, tuple) and value and isinstance(value[0], GroupAccuracy):
        return [{"group": one.group, "examples": one.examples, "correct": one.correct} for one in value]
    return plain(value)


# Field → how its plain value is read; every other one is a float.
_READ: dict[str, Any] = {
    "examples": int,
    "confusion": lambda rows: tuple(tuple(int(cell) for cell in row) for row in rows),
    "calibration": BinTable.from_dict,
    "true_class": BinTable.from_dict,
    "intervals": lambda ends: {name: (float(low), float(high)) for name, (low, high) in ends.items()},
    "groups": lambda rows: tuple(GroupAccuracy(str(row["group"]), int(row["examples"]), int(row["correct"])) for row in rows),
}


def _decoded(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    if missing:
        raise InvalidArgumentError("values", sorted(values), "a dictionary that also has " + ", ".join(missing))
    given = [field.name for field in fields(kind) if field.name in needed or values.get(field.name) is not None]
    return {name: _READ.get(name, float)(values[name]) for name in given}
