"""The folder of a run's model: what is known about the run, as the description and the card of its model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import nn

from privet.accounting.guarantee.statement import Statement
from privet.artifact import Architecture, saving
from privet.artifact.card import PublicMetric
from privet.artifact.folder import FOLDER
from privet.data import DataSet
from privet.data.loading import published_sets
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation
from privet.report.headline import Estimate, list_estimates, list_recalls, list_released
from privet.tables import Classification, Regression
from privet.tables.targets import Target

_RECALLS = 60  # classes whose recall the card lists; evaluation.json has them all
# Names of the target for data without a schema.
_CLASS, _NUMBER = "class", "number"
# Number → its identifier on hubs, for those that are in the card; evaluation.json has the others, too.
_NAMES = {
    "Accuracy": "accuracy", "Majority share": "majority_share", "AUROC": "roc_auc", "Balanced accuracy": "balanced_accuracy",
    "RMSE": "rmse", "MAE": "mae", "R²": "r_squared",
}  # fmt: skip


def write_model(
    directory: Path, module: nn.Module, architecture: Architecture, dataset: DataSet, guarantee: Statement,
    evaluation: Evaluation | RegressionEvaluation | None, estimate: HeldOutEstimate | None = None, *, name: str,
    license: str | None,
) -> None:  # fmt: skip
    """Write the folder of a finished run's model, with public or released results; `name` is that of the data set, or a path."""
    target = dataset.schema.target if dataset.schema else _NUMBER if dataset.classes is None else _CLASS
    saving.write_model(
        directory / FOLDER,
        module,
        guarantee,
        list(_list_metrics(evaluation, estimate)),
        license,
        architecture=architecture,
        target=target,
        task=describe_task(dataset),
        schema=dataset.schema,
        preprocessing=dataset.preprocessing,
        data_set=dataset.name if name in published_sets() else None,
    )


def describe_task(dataset: DataSet) -> Target:
    """Return what a data set asks a model to predict: its declared classes, or a number within public bounds."""
    if dataset.schema is not None:
        return dataset.schema.task
    if dataset.target_bounds is not None:
        return Regression(*dataset.target_bounds)
    return Classification(dataset.class_names or tuple(map(str, range(dataset.classes or 0))))


def _list_metrics(
    evaluation: Evaluation | RegressionEvaluation | None, estimate: HeldOutEstimate | None
) -> Iterator[PublicMetric]:
    """Yield the numbers that a reader judges the model by, from public test data and then those that were released."""
    found: list[tuple[str, Sequence[Estimate]]] = []
    if evaluation is not None:
        where = f"{evaluation.examples:,} public test examples"
        found = [(where, list_estimates(evaluation)), (where, list_recalls(evaluation)[:_RECALLS])]
    if estimate is not None:
        where = f"{estimate.examples:,} held-out {estimate.unit}s; released with noise, which the guarantee covers"
        found.append((where, list_released(estimate)))
    for where, numbers in found:
        for one in numbers:
            name = _NAMES.get(one.name, "recall" if one.name.startswith("Recall") else None)
            if name is not None:
                yield PublicMetric(name, f"{one.name}. {one.definition}", one.value, one.interval, where)
