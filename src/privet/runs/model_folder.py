"""The folder of a run's model: what is known about the run, as the description and the card of its model."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from privet.accounting.guarantee.statement import Statement
from privet.artifact import Architecture, saving
from privet.artifact.card import PublicMetric
from privet.artifact.folder import FOLDER
from privet.data import DataSet
from privet.data.loading import published_sets
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation
from privet.tables import Classification, Regression
from privet.tables.targets import Target

# Names of the target for data without a schema.
_CLASS, _NUMBER = "class", "number"
# Metric → its identifier on hubs, and its name for people.
_SHORT = {"root_mean_squared_error": "rmse", "mean_absolute_error": "mae"}
_LABELS = {
    "accuracy": "Accuracy",
    "root_mean_squared_error": "Root mean squared error, in the target's units",
    "mean_absolute_error": "Mean absolute error, in the target's units",
}


def write_model(
    directory: Path, module: nn.Module, architecture: Architecture, dataset: DataSet, guarantee: Statement,
    evaluation: Evaluation | RegressionEvaluation | None, estimate: HeldOutEstimate | None = None, *, name: str,
    license: str | None,
) -> None:  # fmt: skip
    """Write the folder of a finished run's model, with public or released results; `name` is that of the data set, or a path."""
    target = dataset.schema.target if dataset.schema else _NUMBER if dataset.classes is None else _CLASS
    saving.write_model(
        directory / FOLDER, module, guarantee, [*_public_metrics(evaluation), *_released_metrics(estimate)], license,
        architecture=architecture, target=target, task=describe_task(dataset), schema=dataset.schema,
        preprocessing=dataset.preprocessing, data_set=dataset.name if name in published_sets() else None,
    )  # fmt: skip


def describe_task(dataset: DataSet) -> Target:
    """Return what a data set asks a model to predict: its declared classes, or a number within public bounds."""
    if dataset.schema is not None:
        return dataset.schema.task
    if dataset.target_bounds is not None:
        return Regression(*dataset.target_bounds)
    return Classification(dataset.class_names or tuple(map(str, range(dataset.classes or 0))))


def _public_metrics(evaluation: Evaluation | RegressionEvaluation | None) -> list[PublicMetric]:
    if evaluation is None:
        return []
    where = f"{evaluation.examples:,} public test examples"
    if isinstance(evaluation, Evaluation):
        return [PublicMetric("accuracy", "Accuracy", evaluation.accuracy, evaluation.intervals.get("accuracy"), where)]
    error, label = evaluation.root_mean_squared_error, _LABELS["root_mean_squared_error"]
    found = [PublicMetric("rmse", label, error, evaluation.error_interval, where)]
    if evaluation.r_squared is not None:
        found.append(PublicMetric("r_squared", "R²", evaluation.r_squared, evaluation.intervals.get("r_squared"), where))
    return found


def _released_metrics(estimate: HeldOutEstimate | None) -> list[PublicMetric]:
    if estimate is None:
        return []
    where = f"{estimate.examples:,} held-out {estimate.unit}s; released with noise, which the guarantee covers"
    return [
        PublicMetric(
            _SHORT.get(name, name), _LABELS.get(name, name.replace("_", " ")), value, estimate.intervals.get(name), where
        )
        for name, value in estimate.metrics.items()
    ]
