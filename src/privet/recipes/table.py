"""The table of a reproduction: mean, standard deviation and number of runs, with the paper's number beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privet.files import write_text
from privet.recipes.recipe import Arm, Recipe
from privet.recipes.record import Record
from privet.recipes.tasks import SHARES
from privet.report import numbers


@dataclass(frozen=True)
class Summary:
    """A metric over the runs of an arm.

    Args:
        mean: over the runs.
        deviation: sample standard deviation; None with one run.
        reported: the paper's number; None if it has none.
    """

    mean: float
    deviation: float | None
    reported: float | None


@dataclass(frozen=True)
class Row:
    """The runs of an arm.

    Args:
        arm: its name.
        metrics: name → summary.
        runs: how many there are.
        epsilon: ε of a run, infinite without privacy.
        delta: δ.
        rate: learning rate.
        seconds: mean over the runs.
    """

    arm: str
    metrics: dict[str, Summary]
    runs: int
    epsilon: float
    delta: float
    rate: float
    seconds: float


def summary(recipe: Recipe, arms: Sequence[Arm], records: Sequence[Record]) -> tuple[Row, ...]:
    """Return a row for each arm that has runs, in their order."""
    return tuple(_row(recipe, arm, found) for arm in arms if (found := [record for record in records if record.arm == arm.name]))


def write(recipe: Recipe, rows: Sequence[Row], records: Sequence[Record], directory: Path, *, reduced: bool) -> None:
    """Write table.md and table.csv.

    Args:
        recipe: that was carried out.
        rows: of its arms.
        records: of all its runs.
        directory: where to.
        reduced: whether the runs are smaller than the recipe's.
    """
    write_text(directory / "table.md", _markdown(recipe, rows, records, reduced))
    write_text(directory / "table.csv", _csv(rows))


def shown(metric: str, value: float) -> str:
    """Return a metric's value as people read it: shares in per cent, other numbers with four digits."""
    return numbers.percent(value) if metric in SHARES else f"{value:.4g}"


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation, None of one value; not finite if a value is not."""
    with np.errstate(invalid="ignore"):
        return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def _row(recipe: Recipe, arm: Arm, records: Sequence[Record]) -> Row:
    columns = {metric: [record.metrics[metric] for record in records] for metric in recipe.metrics}
    return Row(
        arm=arm.name,
        metrics={metric: Summary(*spread(values), arm.reported.get(metric)) for metric, values in columns.items()},
        runs=len(records),
        epsilon=max(record.epsilon for record in records),
        delta=float(records[0].plan["delta"]),
        rate=records[0].rate,
        seconds=spread([record.seconds for record in records])[0],
    )


def _markdown(recipe: Recipe, rows: Sequence[Row], records: Sequence[Record], reduced: bool) -> str:
    columns = ["arm", "ε", "δ", "learning rate"]
    compared = {metric for row in rows for metric, found in row.metrics.items() if found.reported is not None}
    for metric in recipe.metrics:
        columns += [metric.replace("_", " "), *["the paper's"] * (metric in compared)]
    columns += ["runs", "seconds a run"]
    lines = [_line(columns), _line(["---"] * len(columns)), *(_line(_cells(row, compared)) for row in rows)]
    header = [f"# {recipe.title}", "", f"Source: {recipe.source}.", "", *_facts(recipe, records, reduced), ""]
    return "\n".join((*header, *lines)) + "\n"


def _facts(recipe: Recipe, records: Sequence[Record], reduced: bool) -> Iterable[str]:
    first, last = (edge(record.finished for record in records)[:10] for edge in (min, max))
    sizes = _all(f"{record.examples:,}" for record in records)
    versions = _all(f"{name} {version}" for record in records for name, version in record.versions.items())
    sampling = _all(record.plan["sampling"]["kind"] for record in records)
    neighbours = _all(record.plan["adjacency"] for record in records)
    yield f"- Recipe `{recipe.name}`: {len(records)} runs on {sizes} examples of {recipe.data}."
    if reduced:
        yield "- **Reduced**: fewer examples or epochs than the recipe's; not to be compared with the paper."
    yield f"- {first}{f' to {last}' if last != first else ''}; {versions}; {_all(record.machine for record in records)}."
    yield (
        f"- ε is an upper bound by PLD for what was sampled ({sampling}), neighbours: {neighbours}; ∞ where there is no noise or "
        "no clipping. Mean ± standard deviation over the seeds of the initial parameters; noise and sampling have no seed."
    )
    if recipe.tuned:
        yield (
            "- Learning rates were chosen by test accuracy, on a seed that is not reported: this compares arms, and is not "
            "what a private search would find."
        )
    if recipe.note:
        yield f"- {recipe.note.strip()}"


def _cells(row: Row, compared: set[str]) -> Iterable[str]:
    yield from (row.arm, numbers.epsilon(row.epsilon), numbers.power_of_ten(float(f"{row.delta:.3g}")), f"{row.rate:g}")
    for metric, found in row.metrics.items():
        spread = "" if found.deviation is None else f" ± {shown(metric, found.deviation)}"
        yield shown(metric, found.mean) + spread
        if metric in compared:
            yield "—" if found.reported is None else shown(metric, found.reported)
    yield from (str(row.runs), f"{row.seconds:.1f}")


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("arm", "metric", "mean", "deviation", "runs", "reported", "epsilon", "delta", "learning_rate", "seconds")
    )  # fmt: skip
    for row in rows:
        for metric, found in row.metrics.items():
            optional = ["" if value is None else value for value in (found.deviation, found.reported)]
            writer.writerow(
                (row.arm, metric, found.mean, optional[0], row.runs, optional[1], row.epsilon, row.delta, row.rate, row.seconds)
            )
    return text.getvalue()


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _all(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))
