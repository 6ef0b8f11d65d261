"""The tasks of a run: classification or regression, each with its loss, its evaluation and its scores on held-out entries."""

from __future__ import annotations

__all__ = [
    "AdjustedCrossEntropy",
    "Classified",
    "Regressed",
    "Task",
    "cross_entropy",
    "normalise_priors",
    "number_features",
    "scale_targets",
    "squared_error",
    "task_of",
]

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from privet.data import UNDECLARED, DataSet
from privet.errors import InvalidArgumentError, positive
from privet.evaluation import Evaluation, RegressionEvaluation, evaluate, evaluate_regression
from privet.evaluation.held_out import Scores, classification_scores, regression_scores
from privet.gradients.core.losses import LossFunction
from privet.tables import Number, Regression, Schema


def cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    """Return the cross-entropy of each example, shape (B,); 0 for an undeclared label."""
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none", ignore_index=UNDECLARED)


def squared_error(model: nn.Module, batch: Any) -> Tensor:
    """Return (output − target)² of each example, shape (B,), of a model with one output; 0 where the target is missing (NaN)."""
    inputs, targets = batch
    missing = targets.isnan()
    # The target is replaced before the difference: the gradient of a product with NaN would be NaN even where it is masked.
    residuals = model(inputs).reshape(targets.shape) - torch.where(missing, torch.zeros_like(targets), targets)
    return torch.where(missing, torch.zeros_like(residuals), residuals.square())


class AdjustedCrossEntropy:
    """The cross-entropy of logits that are shifted by the logarithms of class priors (logit adjustment).

    Args:
        priors: (K,) public or released class priors, > 0, with sum 1.

    Source:
        Menon, Jayasumana, Rawat, Jain, Veit, Kumar 2021, "Long-tail learning via logit adjustment", Eq. 10: the logits of the
        model, without the shift, then minimise the balanced error, in which every class counts alike.
    """

    def __init__(self, priors: Sequence[float]) -> None:
        self.priors = tuple(priors)

    def adopt(self, priors: Sequence[float]) -> None:
        """Replace the priors by released ones, before the first step."""
        self.priors = tuple(priors)

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the loss of each example, shape (B,); 0 for an undeclared label."""
        inputs, labels = batch
        logits = model(inputs)
        shift = torch.tensor(self.priors, dtype=logits.dtype, device=logits.device).log()
        return F.cross_entropy(logits + shift, labels, reduction="none", ignore_index=UNDECLARED)


@dataclass(frozen=True)
class Task:
    """What a run learns to predict.

    Attributes:
        name: "classification" or "regression".
    """

    name: ClassVar[str]

    @property
    def outputs(self) -> int:
        """Number of outputs of the model."""
        raise NotImplementedError

    @property
    def loss(self) -> LossFunction:
        """The loss per example, (model, batch) → (B,)."""
        raise NotImplementedError

    @property
    def scores(self) -> Scores:
        """What is measured on held-out entries."""
        raise NotImplementedError

    @property
    def width(self) -> float:
        """The largest error of a prediction, in the unit of the target."""
        return 1.0

    @property
    def evaluated(self) -> str:
        """What is evaluated on a test set, in words."""
        raise NotImplementedError

    def evaluate(
        self, model: nn.Module, test: TensorDataset, device: str, resamples: int = 0
    ) -> Evaluation | RegressionEvaluation:
        """Return the model's results on public test data; arguments as for `privet.evaluation.evaluate`."""
        raise NotImplementedError

    def measurements(self, evaluation: Evaluation | RegressionEvaluation | None) -> dict[str, float | None]:
        """Return the entries of a line of `metrics.jsonl`; None without an evaluation."""
        return {f"test_{name}": None if evaluation is None else getattr(evaluation, name) for name in self._measured}

    @property
    def _measured(self) -> tuple[str, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class Classified(Task):
    """One of K classes.

    Args:
        classes: K ≥ 2.
        adjusted: loss for public or released class priors; None for `cross_entropy`.
    """

    name: ClassVar[str] = "classification"

    classes: int
    adjusted: AdjustedCrossEntropy | None = None

    @property
    def outputs(self) -> int:
        """K logits."""
        return self.classes

    @property
    def loss(self) -> LossFunction:
        """The cross-entropy."""
        return self.adjusted or cross_entropy

    @property
    def scores(self) -> Scores:
        """Whether the prediction is correct."""
        return classification_scores()

    @property
    def evaluated(self) -> str:
        """Accuracy and calibration."""
        return "accuracy, likelihood and calibration"

    def evaluate(self, model: nn.Module, test: TensorDataset, device: str, resamples: int = 0) -> Evaluation:
        """Return accuracy, likelihood and calibration."""
        return evaluate(model, test, device=device, resamples=resamples)

    @property
    def _measured(self) -> tuple[str, ...]:
        return ("accuracy", "negative_log_likelihood", "expected_calibration_error")


@dataclass(frozen=True)
class Regressed(Task):
    """A number within public bounds.

    Args:
        target: the bounds, between which targets were scaled to [-1, 1].
    """

    name: ClassVar[str] = "regression"

    target: Regression

    @property
    def outputs(self) -> int:
        """One number, near [-1, 1]."""
        return 1

    @property
    def loss(self) -> LossFunction:
        """The squared error on the scaled target."""
        return squared_error

    @property
    def scores(self) -> Scores:
        """Absolute and squared error."""
        return regression_scores(self.target.decode, self.width)

    @property
    def width(self) -> float:
        """Upper minus lower bound."""
        return self.target.upper - self.target.lower

    @property
    def evaluated(self) -> str:
        """Errors and R²."""
        return "mean squared error, mean absolute error and R²"

    def evaluate(self, model: nn.Module, test: TensorDataset, device: str, resamples: int = 0) -> RegressionEvaluation:
        """Return errors in the unit of the target; predictions are clipped to its bounds, as they are for users of the model."""
        return evaluate_regression(model, test, device=device, resamples=resamples, restore=self.target.decode)

    @property
    def _measured(self) -> tuple[str, ...]:
        return ("mean_squared_error", "mean_absolute_error", "r_squared")


def task_of(dataset: DataSet, priors: tuple[float, ...] | None = None, *, counted: bool = False) -> Task:
    """Return the task of a data set whose targets are scaled.

    Args:
        dataset: as `scale_targets` returns it.
        priors: public class priors, for classification only.
        counted: whether a query releases the class priors, which the loss adopts before the first step.

    Raises:
        InvalidArgumentError: priors are given for a regression, are not one per class, or are given and counted.
    """
    if dataset.classes is None:
        if priors is not None or counted:
            raise InvalidArgumentError("class_priors", priors, "left out for a regression", "Its target has no classes.")
        return Regressed(_bounds(dataset))
    if priors is None and not counted:
        return Classified(dataset.classes)
    if priors is not None and counted:
        raise InvalidArgumentError("class_priors", priors, "left out if a query counts the classes", "Choose one of the two.")
    known = priors or (1 / dataset.classes,) * dataset.classes
    if len(known) != dataset.classes:
        raise InvalidArgumentError("class_priors", known, f"{dataset.classes} numbers, one per class in their order")
    return Classified(dataset.classes, AdjustedCrossEntropy(known))


def normalise_priors(priors: Sequence[float]) -> tuple[float, ...]:
    """Return class priors, > 0, divided by their sum.

    Raises:
        InvalidArgumentError: they are fewer than two, or not positive.

    >>> normalise_priors((3, 1))
    (0.75, 0.25)
    """
    values = [positive("class_priors", prior, "They are public estimates, such as 0.76,0.24.") for prior in priors]
    if len(values) < 2:
        raise InvalidArgumentError("class_priors", priors, "one number per class, at least two")
    return tuple(value / sum(values) for value in values)


def number_features(schema: Schema) -> tuple[int, ...]:
    """Return the positions of the features that are numbers scaled to [-1, 1], from the public schema."""
    places, start = [], 0
    for _, column in schema.columns:
        if isinstance(column, Number):
            places.append(start)
        start += len(column.labels())
    return tuple(places)


def scale_targets(dataset: DataSet) -> DataSet:
    """Return the data set with the targets of a regression scaled to [-1, 1] by public bounds; others are returned unchanged.

    A schema has scaled the targets of a table already. A data set of the catalogue has published bounds.
    """
    if dataset.classes is not None or dataset.schema is not None:
        return dataset
    task = _bounds(dataset)

    def scaled(rows: TensorDataset) -> TensorDataset:
        inputs, targets = rows.tensors
        values: NDArray[np.generic] = targets.double().numpy()
        return TensorDataset(inputs, torch.from_numpy(np.asarray(task.encode(values), dtype=np.float32)))

    test = None if dataset.test is None else scaled(dataset.test)
    return replace(dataset, train=scaled(dataset.train), test=test)


def _bounds(dataset: DataSet) -> Regression:
    if dataset.schema is not None and isinstance(dataset.schema.task, Regression):
        return dataset.schema.task
    if dataset.target_bounds is None:
        raise InvalidArgumentError("target_bounds", None, "given for a regression", "They are public and scale the target.")
    return Regression(*dataset.target_bounds)
