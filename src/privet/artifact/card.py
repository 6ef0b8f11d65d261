"""The model card: what a reader of the folder needs to know, in Markdown with the metadata of a model hub.

Layout: Mitchell et al. 2019, "Model cards for model reporting". The metadata are those of Hugging Face's hub.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from privet.artifact.description import ModelDescription
from privet.artifact.export import FORMATS
from privet.tables import Category
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
    columns = () if description.schema is None else description.schema.columns
    kind = description.architecture if isinstance(description.architecture, str) else description.architecture.name
    title = f"Model that predicts {description.target}" if description.task else f"Network {kind}"
    title += f" ({description.data_set})" if description.data_set else ""
    return _template().render(
        model=description, guarantee=description.guarantee, title=title, front=_metadata(description, title, metrics, license),
        metrics=metrics,
        columns=[(name, type(column).__name__.lower(), _allowed(column)) for name, column in columns if column.labels()],
        formats=FORMATS, listed=_LISTED,
    )  # fmt: skip


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("privet.artifact", "assets")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    # JSON is YAML, and needs no rules on when to quote.
    environment.filters["json"] = functools.partial(json.dumps, ensure_ascii=False)
    environment.filters["cell"] = lambda text: " ".join(text.replace("|", r"\|").split())
    return environment.get_template("card.md")


def _metadata(description: ModelDescription, title: str, metrics: Sequence[PublicMetric], license: str | None) -> dict[str, Any]:
    network = None if isinstance(description.architecture, str) else description.architecture
    own = network is None or description.task is None
    images = description.schema is None and network is not None and len(network.input_shape) == 3
    task = f"{'image' if images else 'tabular'}-{'classification' if description.classes else 'regression'}"
    private = math.isfinite(description.guarantee.epsilon)
    found: dict[str, Any] = {} if license is None else {"license": license}
    found |= {"library_name": "privet"} if own else {"library_name": "privet", "pipeline_tag": task}
    found |= {"tags": [*(_PRIVATE_TAGS if private else ()), "privet"]}
    kind = description.data_set or "custom"
    results = [
        {
            "task": {"type": task},
            "dataset": {"name": f"{kind}: {source}", "type": kind},
            "metrics": [{"type": one.name, "value": one.value, "name": one.label} for one in metrics if one.source == source],
        }
        for source in dict.fromkeys(one.source for one in metrics)
    ]
    return found | ({"model-index": [{"name": title, "results": results}]} if results else {})


def _allowed(column: Column) -> str:
    if isinstance(column, Category) and len(column.values) <= _LISTED_VALUES:
        return f"one of {', '.join(column.values)}"
    return column.requirement
