"""Folders of models with initial weights, as training writes them."""

from pathlib import Path

from privet.artifact import Architecture, GuaranteeSummary, ModelDescription
from privet.artifact.card import format_card
from privet.artifact.folder import write_folder, write_weights
from privet.data.preprocessing import Preprocessing
from privet.tables import Boolean, Category, Classification, Ignore, Number, Regression, Schema, Text
from privet.tables.targets import Target

GUARANTEE = GuaranteeSummary(
    epsilon=3.0, delta=1e-5, unit="one example", adjacency="add-remove", examples=1437, accountant="pld", attacks="Little.",
    assumptions=("the columns are public",), not_covered=("timing",),
)  # fmt: skip
COLUMNS = (
    ("age", Number(17, 90)),
    ("work", Category(("private", "state"), missing="indicator")),
    ("member", Boolean()),
    ("note", Text(8)),
    ("id", Ignore()),
)
CLASSES = Schema(columns=COLUMNS, target="income", task=Classification(("<=50K", ">50K")))
AMOUNT = Schema(columns=COLUMNS, target="price", task=Regression(100, 500))


def describe(
    name: str, shape: tuple[int, ...], task: Target, schema: Schema | None, preprocessing: Preprocessing | None, weights: str
) -> ModelDescription:
    return ModelDescription(
        architecture=Architecture(name, shape, task.outputs),
        target="digit" if schema is None else schema.target,
        task=task,
        schema=schema,
        preprocessing=preprocessing,
        guarantee=GUARANTEE,
        data_set=None,
        weights=weights,
        versions={"privet": "0.2.0"},
    )


def make(
    folder: Path,
    name: str,
    shape: tuple[int, ...],
    task: Target,
    schema: Schema | None = None,
    preprocessing: Preprocessing | None = None,
) -> Path:
    """Write the folder of a network with initial weights and return it."""
    module = Architecture(name, shape, task.outputs).build()
    description = describe(name, shape, task, schema, preprocessing, write_weights(folder, module))
    write_folder(folder, description, format_card(description))
    return folder
