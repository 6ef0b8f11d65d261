"""Figures of a reproduction: final metrics, sweeps, panels and curves."""

from __future__ import annotations

__all__ = ["draw", "shown_by"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet._utils.files import write_text
from privet.evaluation.colours import BLUE, ORANGE
from privet.report.figures.svg import render
from privet_experiments.recipe import Arm, Chart, Recipe
from privet_experiments.reproduction.charts.axes import (
    WIDTH,
    Runs,
    final,
    grid_of,
    label_of,
    legend,
    logarithmic,
    mean_and_deviation,
    name_arms,
    scaled,
    styles,
)
from privet_experiments.reproduction.charts.properties import draw_properties
from privet_experiments.reproduction.charts.reliability import COLUMNS, draw_reliability, has_confidence
from privet_experiments.reproduction.charts.studies import draw_histograms, draw_traces, has_study
from privet_experiments.tasks.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_PANELS_IN_A_ROW = 3


@dataclass(frozen=True)
class _Kind:
    """How a kind of chart is drawn.

    Args:
        draw: draws on a canvas.
        size: width and height in inches, given the number of arms or panels.
        count: counts the arms or panels.
        shows: whether a run recorded the data of the chart.
    """

    draw: Callable[[Canvas, Chart, Sequence[Arm], Runs], None]
    size: Callable[[int], tuple[float, float]] = lambda _: (WIDTH, 3.4)
    count: Callable[[Chart, Sequence[Arm]], int] = lambda _, arms: len(arms)
    shows: Callable[[Chart, RunRecord], bool] = lambda *_: True


def draw(recipe: Recipe, arms: Sequence[Arm], records: Sequence[RunRecord], directory: Path) -> tuple[Chart, ...]:
    """Write a recipe's charts as SVG files, and return those for which no run recorded data.

    Equal records give equal bytes.
    """
    missing = []
    for chart in recipe.charts:
        runs, shown = shown_by(chart, arms, records)
        if not shown:
            missing.append(chart)
            continue
        kind = _KINDS[chart.kind]
        drawing = _drawing(kind, chart, shown, runs)
        svg = render(chart.name, drawing, kind.size(kind.count(chart, shown)))
        write_text(directory / f"{chart.name}.svg", svg)
    return tuple(missing)


def _drawing(kind: _Kind, chart: Chart, arms: Sequence[Arm], runs: Runs) -> Callable[[Canvas], None]:
    return lambda canvas: kind.draw(canvas, chart, arms, runs)


def shown_by(chart: Chart, arms: Sequence[Arm], records: Sequence[RunRecord]) -> tuple[Runs, list[Arm]]:
    """Return the runs of each arm with the data of a chart, and the arms that it shows."""
    kind = _KINDS[chart.kind]
    runs = {arm.name: [one for one in records if one.arm == arm.name and kind.shows(chart, one)] for arm in arms}
    return runs, [arm for arm in arms if chart.shows(arm) and runs[arm.name]]


def _arms(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    axes = canvas.subplots()
    means, deviations = zip(*(final(chart, runs[arm.name]) for arm in arms), strict=True)
    axes.errorbar(
        means, range(len(arms)), xerr=deviations, color=BLUE, marker="o", markersize=4, linestyle="", capsize=3, label="ours"
    )
    reported = [
        (scaled(chart, arm.reported[chart.metric]), place) for place, arm in enumerate(arms) if chart.metric in arm.reported
    ]
    if reported:
        axes.plot(*zip(*reported, strict=True), label="published", **_PUBLISHED)
        legend(axes)
    if chart.logarithmic:
        logarithmic(axes)
    name_arms(axes, arms)
    axes.set_xlim(chart.bottom, chart.top)
    for place, mean in enumerate(means):
        if chart.bottom is not None and mean < chart.bottom:
            axes.text(chart.bottom, place, f" ← {mean:.1f}", va="center")
    axes.set_xlabel(label_of(chart.metric))
    axes.grid(axis="x")


def _sweep(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    axes = canvas.subplots()
    lines = _series(chart, arms)
    for (name, members), style in zip(lines.items(), styles(len(lines)), strict=True):
        _line(axes, chart, members, runs, style, label=name if isinstance(name, str) else f"{chart.series} {name:g}")
    if chart.logarithmic:
        places = sorted({float(arm.at[chart.x]) for arm in arms})
        axes.set_xscale("log")
        # Ticks at the arms, as plain numbers: powers of ten would be formulas, which figures do not typeset.
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    axes.set_xlabel(chart.x)
    axes.set_ylabel(label_of(chart.metric))
    axes.grid(axis="y")
    if chart.series is not None:
        legend(axes)


def _panels(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    lines = _series(chart, arms)
    published = any(chart.metric in arm.reported for arm in arms)
    panels = grid_of(canvas, len(lines), _in_a_row(len(lines)), shared=False)
    for axes, (name, members) in zip(panels, lines.items(), strict=True):
        _line(axes, chart, members, runs, styles(1)[0], label="ours")
        reported = [(float(arm.at[chart.x]), scaled(chart, arm.reported[chart.metric])) for arm in members if arm.reported]
        if reported:
            axes.plot(*zip(*reported, strict=True), label="published", **_PUBLISHED)
        axes.set_title(str(name))
        places = [float(arm.at[chart.x]) for arm in members]
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.margins(x=0.08, y=0.12)
        axes.grid(axis="y")
    canvas.supxlabel(chart.x, fontsize="medium")
    canvas.supylabel(label_of(chart.metric), fontsize="medium")
    if published:
        canvas.axes[0].legend(frameon=False)


def _curve(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    axes = canvas.subplots()
    drawn, ends = {}, []
    for arm, (colour, _, dashes) in zip(arms, styles(len(arms)), strict=True):
        points = [[record.curve[index] for record in runs[arm.name]] for index in range(len(runs[arm.name][0].curve))]
        places = [at[0][chart.x] for at in points]
        means, lows, highs = zip(*(_band([scaled(chart, point[chart.metric]) for point in at]) for at in points), strict=True)
        axes.plot(places, means, color=colour, linestyle=dashes, linewidth=1.4, label=arm.name)
        axes.fill_between(places, lows, highs, color=colour, alpha=0.18, linewidth=0)
        drawn[arm.name] = means
        ends += [*lows, *highs]
    if chart.top is not None or chart.bottom is not None:
        # The other end follows from the data.
        low = min(ends) * 0.97 if chart.bottom is None else chart.bottom
        high = max(ends) + 0.03 * (max(ends) - low) if chart.top is None else chart.top
        axes.set_ylim(low, high)
    if chart.logarithmic:
        logarithmic(axes, "y")
    axes.set_xlabel({"step": "training step", "epsilon": "privacy loss ε"}[chart.x])
    axes.set_ylabel(label_of(chart.metric))
    axes.grid(axis="y")
    legend(axes)
    if beyond := [name for name, values in drawn.items() if min(values) < axes.get_ylim()[0] or max(values) > axes.get_ylim()[1]]:
        which = "all arms" if len(beyond) == len(drawn) else ", ".join(beyond)
        axes.text(0.99, 0.97, f"the axis is cut: {which} start beyond it", transform=axes.transAxes, ha="right", va="top")


def _line(axes: Axes, chart: Chart, arms: list[Arm], runs: Runs, style: tuple[str, str, str], label: str) -> None:
    """Draw final means with their deviations against a coordinate."""
    colour, marker, dashes = style
    arms.sort(key=lambda arm: float(arm.at[chart.x]))
    means, deviations = zip(*(final(chart, runs[arm.name]) for arm in arms), strict=True)
    axes.errorbar(
        [float(arm.at[chart.x]) for arm in arms], means, yerr=deviations, color=colour, marker=marker, markersize=4,
        linestyle=dashes, linewidth=1.2, capsize=3, label=label,
    )  # fmt: skip


def _series(chart: Chart, arms: Sequence[Arm]) -> dict[float | str, list[Arm]]:
    lines: dict[float | str, list[Arm]] = {}
    for arm in arms:
        lines.setdefault("" if chart.series is None else arm.at[chart.series], []).append(arm)
    return lines


def _band(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean, and one standard deviation below and above it, limited to the range of the runs."""
    mean, deviation = mean_and_deviation(values)
    return mean, max(mean - deviation, min(values)), min(mean + deviation, max(values))


def _in_a_row(number: int) -> int:
    return 2 if number in (2, 4) else _PANELS_IN_A_ROW


def _compared(chart: Chart, arms: Sequence[Arm]) -> int:
    """Return the number of panels of a histogram: one for each compared arm, or one for all."""
    names = {arm.name for arm in arms}
    return max(1, len(names) - 1) if chart.against in names else 1


_PUBLISHED: dict[str, Any] = {"color": ORANGE, "marker": "D", "markersize": 5, "fillstyle": "none", "linestyle": ""}
_KINDS = {
    "arms": _Kind(_arms, lambda number: (WIDTH, 0.8 + 0.3 * number)),
    "sweep": _Kind(_sweep),
    "panels": _Kind(
        _panels,
        lambda number: (WIDTH, 0.5 + 1.9 * -(-number // _in_a_row(number))),
        count=lambda chart, arms: len(_series(chart, arms)),
    ),
    "curve": _Kind(_curve),
    "histogram": _Kind(draw_histograms, lambda number: (WIDTH, 0.7 + 1.9 * -(-number // 2)), _compared, has_study),
    "trace": _Kind(draw_traces, shows=has_study),
    "reliability": _Kind(
        draw_reliability,
        lambda number: (2.1 * min(number, COLUMNS), 5.2 * -(-number // COLUMNS)),
        shows=has_confidence,
    ),
    "verdicts": _Kind(draw_properties, lambda number: (WIDTH, 0.8 + 0.3 * number)),
}
