"""The figures of a reproduction, drawn from its records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from privet._utils.files import write_text
from privet.evaluation.colours import BLUE, INK, ORANGE
from privet.report.figures.svg import render
from privet_experiments.recipe import Arm, Chart, Recipe
from privet_experiments.reproduction.more_charts import distribution, logarithmic, verdicts
from privet_experiments.reproduction.table import spread
from privet_experiments.tasks.metrics import OF_THE_RUN, SHARES
from privet_experiments.tasks.run_record import RunRecord

_WIDTH = 6.4  # inches, as the report's
# Told apart by hue, marker and dashes, so that print and colour blindness leave one of them.
_STYLES = (
    (BLUE, "o", "-"), (ORANGE, "s", "--"), ("#009e73", "^", "-."), ("#a2407c", "D", ":"), ("#56b4e9", "v", "-"), (INK, "x", "--"),
)  # fmt: skip
Runs = Mapping[str, Sequence[RunRecord]]
# Kinds with a line for every arm, which are as high as there are arms.
BY_ARM = ("arms", "distribution", "verdicts")


def draw(recipe: Recipe, arms: Sequence[Arm], records: Sequence[RunRecord], directory: Path) -> None:
    """Write the recipe's charts as SVG files, as far as there are runs for them; the same records give the same bytes.

    Args:
        recipe: that was carried out.
        arms: that have runs.
        records: the runs.
        directory: where to.
    """
    runs = {arm.name: [record for record in records if record.arm == arm.name] for arm in arms}
    for chart in recipe.charts:
        shown = [arm for arm in arms if chart.shows(arm) and runs[arm.name]]
        if chart.kind == "distribution":
            shown = [arm for arm in shown if any(record.study for record in runs[arm.name])]
        if shown:
            height = 0.8 + 0.3 * len(shown) if chart.kind in BY_ARM else 3.4
            svg = render(chart.name, partial(_drawn, chart=chart, arms=shown, runs=runs), (_WIDTH, height))
            write_text(directory / f"{chart.name}.svg", svg)


def _drawn(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    axes = canvas.subplots()
    if chart.kind in ("distribution", "verdicts"):
        {"distribution": distribution, "verdicts": verdicts}[chart.kind](axes, chart, arms, runs)
        return
    {"arms": _arms, "sweep": _sweep, "curve": _curve}[chart.kind](axes, chart, arms, runs)
    (axes.set_xlabel if chart.kind == "arms" else axes.set_ylabel)(_label(chart.metric))
    axes.grid(axis="x" if chart.kind == "arms" else "y")


def _arms(axes: Axes, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    means, deviations = zip(*(_final(chart, runs[arm.name]) for arm in arms), strict=True)
    axes.errorbar(
        means, range(len(arms)), xerr=deviations, color=BLUE, marker="o", markersize=4, linestyle="", capsize=3, label="ours"
    )
    reported = [
        (_scaled(chart, arm.reported[chart.metric]), place) for place, arm in enumerate(arms) if chart.metric in arm.reported
    ]
    if reported:
        style: dict[str, Any] = {"color": ORANGE, "marker": "D", "markersize": 5, "fillstyle": "none", "linestyle": ""}
        axes.plot(*zip(*reported, strict=True), label="paper", **style)
        _legend(axes)
    if chart.logarithmic:
        logarithmic(axes)
    axes.set_yticks(range(len(arms)), [arm.name for arm in arms])
    axes.margins(y=0.15)
    axes.invert_yaxis()


def _sweep(axes: Axes, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    lines: dict[float | str, list[Arm]] = {}
    for arm in arms:
        lines.setdefault("" if chart.series is None else arm.at[chart.series], []).append(arm)
    for (name, members), (colour, marker, dashes) in zip(lines.items(), _styles(len(lines)), strict=True):
        members.sort(key=lambda arm: float(arm.at[chart.x]))
        means, deviations = zip(*(_final(chart, runs[arm.name]) for arm in members), strict=True)
        axes.errorbar(
            [float(arm.at[chart.x]) for arm in members], means, yerr=deviations, color=colour, marker=marker, markersize=4,
            linestyle=dashes, linewidth=1.2, capsize=3, label=f"{chart.series} {name}",
        )  # fmt: skip
    if chart.logarithmic:
        places = sorted({float(arm.at[chart.x]) for arm in arms})
        axes.set_xscale("log")
        # Where arms are, in plain numbers: powers of ten would be formulas, which figures do not typeset.
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    axes.set_xlabel(chart.x)
    if chart.series is not None:
        _legend(axes)


def _curve(axes: Axes, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    for arm, (colour, _, dashes) in zip(arms, _styles(len(arms)), strict=True):
        points = [[record.curve[index] for record in runs[arm.name]] for index in range(len(runs[arm.name][0].curve))]
        places = [at[0][chart.x] for at in points]
        means, lows, highs = zip(*(_band([_scaled(chart, point[chart.metric]) for point in at]) for at in points), strict=True)
        axes.plot(places, means, color=colour, linestyle=dashes, linewidth=1.4, label=arm.name)
        axes.fill_between(places, lows, highs, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel({"step": "training step", "epsilon": "privacy loss ε"}[chart.x])
    _legend(axes)


def _legend(axes: Axes) -> None:
    # Above the axes, where no line can be.
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def _final(chart: Chart, records: Sequence[RunRecord]) -> tuple[float, float]:
    return _spread([_scaled(chart, record.value(chart.metric)) for record in records])


def _spread(values: Sequence[float]) -> tuple[float, float]:
    mean, deviation = spread(values)
    return mean, deviation or 0.0


def _band(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean, and a standard deviation below and above it as far as any run went: one that leaps moves both ends."""
    mean, deviation = _spread(values)
    return mean, max(mean - deviation, min(values)), min(mean + deviation, max(values))


def _scaled(chart: Chart, value: float) -> float:
    # What is not finite has no place in a figure, and a gap says so.
    return math.nan if not math.isfinite(value) else 100 * value if chart.metric in SHARES else value


def _label(metric: str) -> str:
    if metric == "epsilon":
        return "privacy loss ε"
    where = "" if metric in OF_THE_RUN else "test "
    return f"{where}{metric.replace('_', ' ')}{' in %' if metric in SHARES else ''}"


def _styles(number: int) -> list[tuple[str, str, str]]:
    return [_STYLES[index % len(_STYLES)] for index in range(number)]
