"""Tables of a reproduction: mean, standard deviation, number of runs, and the paper's number."""

from __future__ import annotations

__all__ = ["Row", "Summary", "as_csv", "line", "results_section", "spread", "studies_section", "summary", "wrap"]

import csv
import io
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from privet.report import numbers
from privet_experiments.recipe import Arm, Recipe
from privet_experiments.studies import WARNING
from privet_experiments.tasks.metrics import VERDICTS, format_metric
from privet_experiments.tasks.run_record import RunRecord
from privet_experiments.tasks.studies import numbers_of, values

_WIDTH = 116  # characters of a line of prose


@dataclass(frozen=True)
class Summary:
    """A metric over the runs of an arm: mean, sample standard deviation (None for one run), and the paper's number."""

    mean: float
    deviation: float | None
    reported: float | None


@dataclass(frozen=True)
class Row:
    """The runs of an arm.

    Args:
        epsilon: largest ε of the runs, infinite without privacy; None for a task without data.
        delta: δ; None for a task without data.
        rate: learning rate; None if the task has none.
        seconds: mean duration of a run.
    """

    arm: str
    metrics: dict[str, Summary]
    runs: int
    epsilon: float | None
    delta: float | None
    rate: float | None
    seconds: float


def summary(recipe: Recipe, arms: Sequence[Arm], records: Sequence[RunRecord]) -> tuple[Row, ...]:
    """Return a row for each arm with runs, in order of the arms."""
    return tuple(_row(recipe, arm, found) for arm in arms if (found := [record for record in records if record.arm == arm.name]))


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation (None for one value); not finite if a value is not."""
    with np.errstate(invalid="ignore"):
        return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def _row(recipe: Recipe, arm: Arm, records: Sequence[RunRecord]) -> Row:
    columns = {metric: [record.metrics[metric] for record in records] for metric in recipe.metrics}
    return Row(
        arm=arm.name,
        metrics={metric: Summary(*spread(values), arm.reported.get(metric)) for metric, values in columns.items()},
        runs=len(records),
        epsilon=max((record.epsilon for record in records if record.epsilon is not None), default=None),
        delta=None if records[0].plan is None else float(records[0].plan["delta"]),
        rate=records[0].rate,
        seconds=spread([record.seconds for record in records])[0],
    )


def results_section(recipe: Recipe, rows: Sequence[Row], records: Sequence[RunRecord], *, reduced: bool) -> Iterable[str]:
    """Yield the lines of a page's title, its common facts, and the table of the arms."""
    trained = any(row.delta is not None for row in rows)
    columns = ["arm", *(_OF_A_TRAINING if trained else ())]
    compared = {metric for row in rows for metric, found in row.metrics.items() if found.reported is not None}
    for metric in recipe.metrics:
        columns += [metric.replace("_", " "), *["the paper's"] * (metric in compared)]
    columns += ["runs", "seconds a run"]
    yield from (f"# {recipe.title}", "", *wrap(f"Source: {recipe.source}."), "")
    for fact in _facts(recipe, records, reduced):
        yield from wrap(fact, "- ")
    yield from ("", line(columns), line(["---"] * len(columns)))
    for row in rows:
        yield line(_cells(row, compared, trained))


def wrap(text: str, bullet: str = "") -> list[str]:
    """Return a paragraph as lines of Markdown of limited width."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_long_words=False, break_on_hyphens=False
    )


def line(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


_OF_A_TRAINING = ("ε", "δ", "learning rate")


def _facts(recipe: Recipe, records: Sequence[RunRecord], reduced: bool) -> Iterable[str]:
    first, last = (edge(record.finished for record in records)[:10] for edge in (min, max))
    sizes = _all(f"{record.examples:,}" for record in records)
    versions = _all(f"{name} {version}" for record in records for name, version in record.versions.items())
    plans = [record.plan for record in records if record.plan is not None]
    yield f"Recipe `{recipe.name}`: {len(records)} runs" + (f" on {sizes} examples of {recipe.data}." if recipe.data else ".")
    if reduced:
        yield "**Reduced**: fewer examples or epochs than the recipe's; not comparable with the paper."
    yield f"{first}{f' to {last}' if last != first else ''}; {versions}; {_all(record.machine for record in records)}."
    if plans:
        sampling, neighbours = _all(plan["sampling"]["kind"] for plan in plans), _all(plan["adjacency"] for plan in plans)
        yield (
            f"ε is an upper bound by PLD for the sampling used ({sampling}) and {neighbours} adjacency; ∞ without noise or "
            "without clipping. Mean ± standard deviation over the seeds of the initial parameters; noise and sampling are "
            "not seeded."
        )
    if recipe.tuned:
        yield (
            "Learning rates were searched by test accuracy, with a seed that is not in the table. This compares arms; a "
            "private search would find other rates."
        )
    elif recipe.rates:
        yield f"Learning rates: {recipe.rates}."
    if recipe.note:
        yield recipe.note.strip()


def _cells(row: Row, compared: set[str], trained: bool) -> Iterable[str]:
    yield row.arm
    if trained:
        assert row.epsilon is not None
        assert row.delta is not None
        yield from (numbers.format_epsilon(row.epsilon), numbers.format_power_of_ten(float(f"{row.delta:.3g}")))
        yield "—" if row.rate is None else f"{row.rate:g}"
    for metric, found in row.metrics.items():
        if metric in VERDICTS:
            yield f"{found.mean * row.runs:.0f}/{row.runs}"
        else:
            yield format_metric(metric, found.mean) + (
                "" if found.deviation is None else f" ± {format_metric(metric, found.deviation)}"
            )
        if metric in compared:
            yield _reported(metric, found.reported)
    yield from (str(row.runs), f"{row.seconds:.1f}")


def _reported(metric: str, number: float | None) -> str:
    if number is None:
        return "—"
    return ("yes" if number else "no") if metric in VERDICTS else format_metric(metric, number)


def studies_section(recipe: Recipe, rows: Sequence[Row], records: Sequence[RunRecord]) -> Iterable[str]:
    """Yield the lines of the results of the gradient studies, with their warning."""
    studies = {record.arm: record.study for record in records if record.study is not None}
    if not studies:
        return
    names = numbers_of((*recipe.studies, *recipe.new_studies))
    looks = _all(str(len(study["looks"])) for study in studies.values())
    yield from ("", "## Gradients", "")
    yield from wrap(
        f"**{WARNING}**, on random batches of the training set: {looks} samples over the last {recipe.study_epochs:g} epochs "
        "of one run per arm. Median, with the middle 80 % of the samples."
    )
    yield from ("", line(["arm", *(name.replace("_", " ") for name in names)]), line(["---"] * (len(names) + 1)))
    for row in rows:
        if study := studies.get(row.arm):
            found = [np.nanquantile(values(study, name), (0.5, 0.1, 0.9)) for name in names]
            yield line([row.arm, *(f"{median:.3g} ({low:.3g} to {high:.3g})" for median, low, high in found)])


def as_csv(rows: Sequence[Row]) -> str:
    """Return the unrounded numbers of all arms as comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("arm", "metric", "mean", "deviation", "runs", "reported", "epsilon", "delta", "learning_rate", "seconds")
    )  # fmt: skip
    for row in rows:
        for metric, found in row.metrics.items():
            cells = (
                row.arm, metric, found.mean, found.deviation, row.runs, found.reported, row.epsilon, row.delta, row.rate,
                row.seconds,
            )  # fmt: skip
            writer.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()


def _all(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))
