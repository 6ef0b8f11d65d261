"""The folder of a run's model: what is known about the run, as the description and the card of its model."""

from __future__ import annotations

__all__ = ["describe_task", "write_model"]

from pathlib import Path

from torch import nn

from privet.accounting.guarantee.statement import Guarantee
from privet.artifact import (
    FOLDER,
    Architecture,
    GuaranteeSummary,
    ModelDescription,
    PublicMetric,
    format_card,
    write_folder,
    write_weights,
)
from privet.data import DataSet
from privet.data.catalogue import SETS
from privet.evaluation import Evaluation, RegressionEvaluation
from privet.runs.config import Setup
from privet.tables import Classification, Regression, Target

# What a model predicts whose data have no schema to name it.
_CLASS, _NUMBER = "class", "number"


def write_model(
    directory: Path,
    module: nn.Module,
    setup: Setup,
    dataset: DataSet,
    guarantee: Guarantee,
    evaluation: Evaluation | RegressionEvaluation | None,
) -> None:
    """Write the folder of a finished run's model.

    Guarantee:
        Weights aside, only public facts are written: settings, the schema, and numbers on public test data.

    Args:
        directory: directory of the run.
        module: the trained network.
        setup: settings of the run.
        dataset: the data, of which only shapes and declarations are read.
        guarantee: statement of the run.
        evaluation: evaluation on public test data; None without any.
    """
    folder = directory / FOLDER
    task = describe_task(dataset)
    description = ModelDescription(
        architecture=Architecture(setup.model, dataset.input_shape, task.outputs, setup.model_options(dataset)),
        target=dataset.schema.target if dataset.schema else _NUMBER if dataset.classes is None else _CLASS,
        task=task,
        schema=dataset.schema,
        preprocessing=dataset.preprocessing,
        guarantee=GuaranteeSummary.of(guarantee),
        data_set=dataset.name if setup.data in SETS else None,
        weights=write_weights(folder, module),
        versions=guarantee.versions,
    )
    metrics = [] if evaluation is None else _metrics(evaluation)
    write_folder(folder, description, format_card(description, metrics, setup.license))


def describe_task(dataset: DataSet) -> Target:
    """Return what a data set asks a model to predict: its declared classes, or a number within public bounds."""
    if dataset.schema is not None:
        return dataset.schema.task
    if dataset.target_bounds is not None:
        return Regression(*dataset.target_bounds)
    return Classification(dataset.class_names or tuple(map(str, range(dataset.classes or 0))))


def _metrics(evaluation: Evaluation | RegressionEvaluation) -> list[PublicMetric]:
    where = f"{evaluation.examples:,} public test examples"
    if isinstance(evaluation, Evaluation):
        return [PublicMetric("accuracy", "Accuracy", evaluation.accuracy, evaluation.intervals.get("accuracy"), where)]
    error = evaluation.root_mean_squared_error
    found = [PublicMetric("rmse", "Root mean squared error, in the target's units", error, evaluation.error_interval, where)]
    if evaluation.r_squared is not None:
        found.append(PublicMetric("r_squared", "R²", evaluation.r_squared, evaluation.intervals.get("r_squared"), where))
    return found
