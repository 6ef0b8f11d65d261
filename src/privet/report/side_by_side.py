"""Comparison of several runs: one page with a table and the figures that their settings allow."""

from __future__ import annotations

__all__ = ["to_point", "write"]

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privet._utils.files import write_text
from privet.errors import InvalidArgumentError
from privet.evaluation import wilson_interval
from privet.report import numbers, run_files
from privet.report.figures import several_runs
from privet.report.figures.points import SETTINGS, Estimate, Point
from privet.report.markup import NOTHING, Markup, element, join, table, text
from privet.report.run_files import Run
from privet.report.sections import document, figure, section

_ADVICE = (
    "Each ε holds for its run alone. Training several models on the same private data, or selecting the best of them, costs more "
    "than any single run; privet.tuning.search accounts for that."
)


def write(directories: Sequence[Path | str], out: Path | str) -> Path:
    """Write `report.html` and `figures/*.svg` of a comparison of runs.

    Args:
        directories: at least two run directories, as `privet train --out` writes them.
        out: directory for the comparison, created if necessary; it must not hold a run.

    Returns:
        The path of `report.html`.

    Raises:
        InvalidArgumentError: there are fewer than two directories, one is not a run, or `out` holds a run.
    """
    if len(directories) < 2:
        raise InvalidArgumentError(
            "directories", [str(one) for one in directories], "at least two", "For one run, use privet.report.write."
        )
    target = Path(out)
    if (target / "plan.json").exists():
        raise InvalidArgumentError("--out", str(target), "a directory that holds no run", "Its report would be overwritten.")
    points = [to_point(run_files.read(Path(one))) for one in directories]
    drawn = tuple(several_runs.draw(points))
    for one in drawn:
        write_text(target / "figures" / f"{one.name}.svg", one.svg)
    content = join(
        (
            element("header", element("h1", text("Comparison of private runs")), element("p", text(_ADVICE), class_="subtitle")),
            section("Runs", _shared_settings(points), _table(points)),
            *(section(one.title, figure(one)) for one in drawn),
        )
    )
    return write_text(target / "report.html", document("Privet: comparison of runs", content))


def to_point(run: Run) -> Point:
    """Return a run as a point of a comparison."""
    plan, evaluation = run.plan, run.evaluation
    clipping: Mapping[str, Any] = plan.get("clipping") or {}
    settings = {
        "clip bound": _find(clipping, "bound"),
        "learning rate": run.setup.get("learning_rate"),
        "batch size": (plan.get("sampling") or {}).get("batch_size"),
        "noise multiplier": (plan.get("noise") or {}).get("multiplier"),
        "momentum": run.setup.get("momentum"),
    }
    accuracy = error = None
    if evaluation:
        accuracy = Estimate(evaluation.accuracy, wilson_interval(evaluation.accuracy, evaluation.examples))
        if (found := evaluation.expected_calibration_error) is not None:
            error = Estimate(found, evaluation.intervals.get("expected_calibration_error"))
    return Point(
        name=run.directory.resolve().name,
        rule=str(clipping.get("kind") or "unknown"),
        epsilon=run.guarantee.epsilon if run.guarantee else math.inf,
        settings={name: float(value) for name, value in settings.items() if value is not None},
        accuracy=accuracy,
        calibration_error=error,
        loss=evaluation.negative_log_likelihood if evaluation else None,
        progress=tuple(
            (m.epsilon, m.test_accuracy) for m in run.measurements if m.epsilon is not None and m.test_accuracy is not None
        ),
    )


def _find(value: Any, key: str) -> Any:
    """Return the first entry with this key, also in nested objects and lists."""
    if isinstance(value, Mapping):
        return value[key] if key in value else next(filter(None, (_find(item, key) for item in value.values())), None)
    if isinstance(value, list):
        return next(filter(None, (_find(item, key) for item in value)), None)
    return None


def _table(points: Sequence[Point]) -> Markup:
    """Return a table with a row per run and a column per setting that varies."""
    varying = [name for name in SETTINGS if len({one.settings.get(name) for one in points}) > 1]
    head = ("Run", "ε", "Rule", *map(str.capitalize, varying), "Accuracy", "Negative log-likelihood", "Calibration error")
    return table(head, (_row(one, varying) for one in points), class_="runs")


def _shared_settings(points: Sequence[Point]) -> Markup:
    """Return a sentence with the settings that all runs share."""
    first = points[0].settings
    same = [
        f"{name} {first[name]:.5g}"
        for name in SETTINGS
        if name in first and {one.settings.get(name) for one in points} == {first[name]}
    ]
    return element("p", text(f"Shared settings: {', '.join(same)}.")) if same else NOTHING


def _row(one: Point, names: Sequence[str]) -> list[Markup]:
    settings = (f"{one.settings[name]:.5g}" if name in one.settings else "—" for name in names)
    loss = "—" if one.loss is None else f"{one.loss:.4f}"
    cells = (
        numbers.format_epsilon(one.epsilon),
        one.rule,
        *settings,
        _format(one.accuracy),
        loss,
        _format(one.calibration_error),
    )
    return [element("code", text(one.name)), *map(text, cells)]


def _format(estimate: Estimate | None) -> str:
    if estimate is None:
        return "—"
    interval = estimate.interval and " ({:.2f} to {:.2f})".format(*(100 * end for end in estimate.interval))
    return numbers.format_percent(estimate.value) + (interval or "")
