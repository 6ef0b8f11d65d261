"""The tasks of a run: classification or regression, each with its loss, its evaluation and its scores on held-out entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from privet.models.networks import FOR_TABLES
from privet.tables import Regression, Schema
from privet.tables.bounded import Bounded

# Of the hidden layer of "table", for classes: with 1, its noise hides rare classes (docs/results/defaults.md).
_SCALE = 0.25


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
    """The cross-entropy of logits that are shifted by the logarithms of (K,) public or released class priors.

    Source:
        Menon et al. 2021, "Long-tail learning via logit adjustment", Eq. 10: the logits of the model, without the shift, then
        minimise the balanced error, in which every class counts alike.
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


Results = Evaluation | RegressionEvaluation


@dataclass(frozen=True)
class Task:
    """What a run learns to predict.

    Args:
        name: "classification" or "regression".
        outputs: number of outputs of the model: K logits, or a number near [-1, 1].
        scores: what is measured on held-out entries.
        evaluated: what is evaluated on a test set, in words.
        measured: results on the test set that go to `metrics.jsonl`.
        width: largest error of a prediction, in the unit of the target.
        restore: function from outputs to the unit of the target, for a regression.
        class_names: names of the classes in order; empty for the numbers from 0.
    """

    name: str
    outputs: int
    loss: LossFunction
    scores: Scores
    evaluated: str
    measured: tuple[str, ...]
    width: float = 1.0
    restore: Callable[[Any], NDArray[np.float64]] | None = None
    class_names: tuple[str, ...] = ()

    def evaluate(self, model: nn.Module, test: TensorDataset, device: str, resamples: int = 0) -> Results:
        """Return the model's results on public test data; predictions of a regression are clipped to its bounds, as for users."""
        if self.restore is None:
            return evaluate(model, test, device=device, resamples=resamples, class_names=self.class_names)
        return evaluate_regression(model, test, device=device, resamples=resamples, restore=self.restore)

    def measurements(self, evaluation: Results | None) -> dict[str, float | None]:
        """Return the entries of a line of `metrics.jsonl`; None without an evaluation."""
        return {f"test_{name}": None if evaluation is None else getattr(evaluation, name) for name in self.measured}


def _classification(dataset: DataSet, classes: int, loss: LossFunction) -> Task:
    return Task(
        "classification", classes, loss, classification_scores(), "accuracy, ranking, likelihood and calibration",
        ("accuracy", "negative_log_likelihood", "expected_calibration_error"), class_names=dataset.class_names,
    )  # fmt: skip


def task_of(dataset: DataSet, priors: tuple[float, ...] | None = None, *, counted: bool = False) -> Task:
    """Return the task of a data set as `scale_targets` returns it, with public class priors, or released ones (`counted`)."""
    if dataset.classes is None:
        if priors is not None or counted:
            raise InvalidArgumentError("class_priors", priors, "left out for a regression", "Its target has no classes.")
        target = _bounds(dataset)
        width, measured = target.upper - target.lower, ("mean_squared_error", "mean_absolute_error", "r_squared")
        evaluated, scores = "mean squared error, mean absolute error and R²", regression_scores(target.decode, width)
        return Task("regression", 1, squared_error, scores, evaluated, measured, width, target.decode)
    if priors is None and not counted:
        return _classification(dataset, dataset.classes, cross_entropy)
    if priors is not None and counted:
        raise InvalidArgumentError("class_priors", priors, "left out if a query counts the classes", "Choose one of the two.")
    known = priors or (1 / dataset.classes,) * dataset.classes
    if len(known) != dataset.classes:
        raise InvalidArgumentError("class_priors", known, f"{dataset.classes} numbers, one per class in their order")
    return _classification(dataset, dataset.classes, AdjustedCrossEntropy(known))


def normalise_priors(priors: Sequence[float]) -> tuple[float, ...]:
    """Return at least two class priors, > 0, divided by their sum.

    >>> normalise_priors((3, 1))
    (0.75, 0.25)
    """
    values = [positive("class_priors", prior, "They are public estimates, such as 0.76,0.24.") for prior in priors]
    if len(values) < 2:
        raise InvalidArgumentError("class_priors", priors, "one number per class, at least two")
    return tuple(value / sum(values) for value in values)


def network_options(model: str, schema: Schema | None) -> dict[str, Any]:
    """Return the options of a network for tables, by the public schema; none for other networks."""
    if model not in FOR_TABLES or schema is None:
        return {}
    numbers = {"numbers": list(number_features(schema))}
    return numbers if schema.classes is None else numbers | {"scale": _SCALE}


def number_features(schema: Schema) -> tuple[int, ...]:
    """Return the positions of the features that are numbers scaled to [-1, 1], from the public schema."""
    features = ((column, label) for _, column in schema.columns for label in column.labels())
    return tuple(place for place, (column, label) in enumerate(features) if isinstance(column, Bounded) and not label)


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
