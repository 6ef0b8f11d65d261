"""The model card: what a reader of the folder needs to know, in Markdown with the metadata of a model hub.

Layout: Mitchell et al. 2019, "Model cards for model reporting". The metadata are those of Hugging Face's hub.
"""

from __future__ import annotations

__all__ = ["PublicMetric", "format_card"]

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from privet.artifact.description import ModelDescription
from privet.artifact.export import FORMATS
from privet.tables import Category, Schema
from privet.tables.columns import Column

_PRIVATE_TAGS = ("differential-privacy", "dp-sgd")
# Number of columns, or of classes, that the card lists; model.json has them all.
_LISTED = 60
# Number of values of a column that it lists.
_LISTED_VALUES = 12


@dataclass(frozen=True)
class PublicMetric:
    """A number on the quality of the model that may be published.

    `name` is its identifier on the hub, such as "rmse", `label` that for people, with the unit. The interval is at 95 %. `source`
    says on what it was measured and why it may be published, such as "360 public test examples".
    """

    name: str
    label: str
    value: float
    interval: tuple[float, float] | None
    source: str


def format_card(description: ModelDescription, metrics: Sequence[PublicMetric] = (), license: str | None = None) -> str:
    """Return the text of a model card; `license` is an identifier such as "apache-2.0".

    Guarantee:
        It contains public facts only: the description, whose every part is public, and the metrics that the caller vouches for.
    """
    sections = [
        _front_matter(description, metrics, license),
        f"# {_title(description)}",
        f"{_summary(description)} Its guarantee: {description.guarantee}",
        "## Intended use",
        "> **To be completed by the owner of the model:** what it is for, who may use it, and what it must not be used for.",
        "## Use",
        _usage(description),
        "## Training data",
        _training_data(description),
        "## Privacy guarantee",
        _guarantee(description),
        "## What an attacker can learn",
        _attacks(description),
        "## Evaluation",
        _evaluation(metrics),
        "## Files",
        "- `model.safetensors`: the weights.\n"
        "- `model.json`: architecture, encoding of the inputs, meaning of the outputs, and guarantee.\n"
        "- `README.md`: this card.",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in description.versions.items()) + ".",
    ]
    return "\n\n".join(sections) + "\n"


def _title(description: ModelDescription) -> str:
    return f"Model that predicts {description.target}" + (f" ({description.data_set})" if description.data_set else "")


def _task(description: ModelDescription) -> str:
    images = description.schema is None and len(description.architecture.input_shape) == 3
    return f"{'image' if images else 'tabular'}-{'classification' if description.classes else 'regression'}"


def _front_matter(description: ModelDescription, metrics: Sequence[PublicMetric], license: str | None) -> str:
    task = _task(description)
    found: dict[str, Any] = {} if license is None else {"license": license}
    private = math.isfinite(description.guarantee.epsilon)
    found |= {"library_name": "privet", "pipeline_tag": task, "tags": [*(_PRIVATE_TAGS if private else ()), "privet"]}
    if metrics:
        found["model-index"] = [{"name": _title(description), "results": _results(description, metrics, task)}]
    # JSON is YAML, and needs no rules on when to quote.
    return "\n".join(["---", *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in found.items()), "---"])


def _results(description: ModelDescription, metrics: Sequence[PublicMetric], task: str) -> list[dict[str, Any]]:
    """Return the hub's entry for the metrics of each source."""
    kind = description.data_set or "custom"
    return [
        {
            "task": {"type": task},
            "dataset": {"name": f"{kind}: {source}", "type": kind},
            "metrics": [{"type": one.name, "value": one.value, "name": one.label} for one in metrics if one.source == source],
        }
        for source in dict.fromkeys(one.source for one in metrics)
    ]


def _summary(description: ModelDescription) -> str:
    network = f"This model, a network of the kind `{description.architecture.name}`, predicts `{description.target}`"
    if description.classes is None:
        return f"{network}, {description.task.requirement}."
    names = ", ".join(f"`{name}`" for name in description.classes[:_LISTED])
    more = ", …" if len(description.classes) > _LISTED else ""
    return f"{network}, one of {len(description.classes)} classes: {names}{more}."


def _usage(description: ModelDescription) -> str:
    rows = '"rows.csv"' if description.schema is not None else '"examples.npz"'
    shape = ", ".join(map(str, description.architecture.input_shape))
    takes = (
        "It takes a table (CSV, TSV, parquet, or a data frame) with the columns below. Rows with values that do not fit are "
        "refused, each with the reason."
        if description.schema is not None
        else f"It takes an array that gives inputs of the shape (N, {shape})"
        + (f", whose entries are each {description.preprocessing.allowed}." if description.preprocessing else ".")
    )
    proba = "" if description.classes is None else f"\nprobabilities = model.predict_proba({rows})"
    code = (
        f'```python\nimport privet\n\nmodel = privet.load("path/to/this/folder")\npredictions = model.predict({rows}){proba}\n```'
    )
    other = " or ".join(f"`privet export FOLDER --to {name}`" for name in FORMATS)
    return f"{code}\n\n{takes} {other} writes the network for other programs."


def _training_data(description: ModelDescription) -> str:
    guarantee = description.guarantee
    data = (
        f"the public data set {description.data_set}" if description.data_set else "private data, which is not described further"
    )
    size = f"{guarantee.examples:,} units of privacy, each being {guarantee.unit}" if guarantee.unit != "one example" else (
        f"{guarantee.examples:,} examples"
    )  # fmt: skip
    first = f"The model was trained on {data}: {size}. Only facts that are public are given here."
    return first if description.schema is None else f"{first}\n\n{_columns(description.schema)}"


def _columns(schema: Schema) -> str:
    features = [(name, column) for name, column in schema.columns if column.labels()]
    rows = [f"| {_cell(name)} | {type(column).__name__.lower()} | {_cell(_allowed(column))} |" for name, column in features]
    more = [f"| … | | {len(rows) - _LISTED} further columns are in model.json |"] if len(rows) > _LISTED else []
    return "\n".join(["| column | kind | a cell that fits |", "|---|---|---|", *rows[:_LISTED], *more])


def _allowed(column: Column) -> str:
    if isinstance(column, Category) and len(column.values) <= _LISTED_VALUES:
        return f"one of {', '.join(column.values)}"
    return column.requirement


def _guarantee(description: ModelDescription) -> str:
    guarantee = description.guarantee
    return (
        f"{guarantee} ε was computed by the accountant `{guarantee.accountant}`. The guarantee covers the weights and everything "
        "that is computed from them, predictions included, for the training data. It does not protect the rows that somebody "
        "predicts.\n\n"
        f"Assumed, as it cannot be checked:\n\n{_list(guarantee.assumptions)}\n\n"
        f"Not covered:\n\n{_list(guarantee.not_covered)}"
    )


def _attacks(description: ModelDescription) -> str:
    attacks = description.guarantee.attacks
    if not attacks:
        return "Nothing is bounded: the weights may reveal any training example."
    return (
        f"About {description.guarantee.unit} of the training data: {attacks}\n\n"
        "Facts about the whole population are learned on purpose, and may let somebody infer things about people who "
        "are not in the training data."
    )


def _evaluation(metrics: Sequence[PublicMetric]) -> str:
    if not metrics:
        return "No number was measured on public test data or released under the guarantee."
    rows = [
        f"| {_cell(one.label)} | {one.value:.4g} | {'' if one.interval is None else '{:.4g} to {:.4g}'.format(*one.interval)} "
        f"| {_cell(one.source)} |"
        for one in metrics
    ]
    return "\n".join(["| metric | value | 95 % interval | measured on |", "|---|---|---|---|", *rows])


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or "- nothing"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())
