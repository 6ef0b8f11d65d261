"""Figures of a comparison: each run's result, the result during training, and a trend or grid where the settings allow one."""

from __future__ import annotations

__all__ = ["draw"]

import math
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy import stats

from privet.evaluation.colours import BLUE, INK, ORANGE, SERIES
from privet.evaluation.drawing import draw_intervals
from privet.report import numbers
from privet.report.comparison.points import Axis, Point
from privet.report.estimates import Estimate
from privet.report.figures.svg import PANEL, Figure, render
from privet.tuning import Setting, diagonal

_LEAST = 3  # places that make a trend
_MOST_CURVES = 8
# Characters that fit on a line of a figure, and of a column of its legend.
_LINE, _COLUMN = 44, 16
_TICKS = "{x:,g}"
_STYLES = ("-", (0, (4, 2)))
GRID = ("clipping bound", "learning rate")

Measured = Sequence[tuple[Point, Estimate]]


def draw(points: Sequence[Point], axes: Sequence[Axis], consequence: str = "") -> Iterator[Figure]:
    """Yield the figures for which the runs have data.

    Args:
        points: the runs.
        axes: what was varied, one axis for each setting; empty if one of the settings is not a number. A trend is drawn over the
            only axis, with three values or more, and a grid over a clipping bound and a learning rate. Any other combination
            could suggest a cause that is none.
        consequence: sentence on what differs because the varied settings do; empty if nothing does.
    """
    by_metric: dict[str, list[tuple[Point, Estimate]]] = {}
    for point in points:
        if point.quality is not None:
            by_metric.setdefault(point.quality.name, []).append((point, point.quality))
    for number, measured in enumerate(by_metric.values(), start=1):
        yield _draw_runs(measured, "results" if number == 1 else f"results-{number}")
    if len(by_metric) == 1 and all(point.quality for point in points):
        (measured,) = by_metric.values()
        yield from _draw_trend(measured, axes, consequence)
        yield from _draw_grid(measured, axes)
        yield from _draw_progress(measured)


def _scale(estimate: Estimate) -> float:
    return 100.0 if estimate.is_share else 1.0


def _label(estimate: Estimate) -> str:
    return f"test {estimate.noun}" + (" in %" if estimate.is_share else "")


def _cut_start(name: str, most: int) -> str:
    """Return a name with at most so many characters; its end is kept, as that is where the names of runs differ."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _draw_runs(measured: Measured, name: str) -> Figure:
    kind = measured[0][1]
    scale = _scale(kind)

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for place, (point, estimate) in enumerate(measured):
            low, high = estimate.interval or (estimate.value, estimate.value)
            axes.hlines([place], scale * low, scale * high, color=BLUE, linewidth=1.6)
            axes.plot([scale * estimate.value], [place], "o", color=BLUE, markersize=5.5)
            words = ": ".join(filter(None, (_cut_start(point.name, _LINE // 2 if point.varied else _LINE), point.varied)))
            axes.annotate(
                words if len(words) <= _LINE else f"{words[: _LINE - 1]}…",
                (0, place - 0.18),
                (0, 2),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                color=INK,
            )
        axes.set_ylim(len(measured) - 0.5, -0.75)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(_label(kind))
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(_TICKS)
        axes.grid(axis="x")

    shown = "; ".join(f"{point.name} {estimate.shown}" for point, estimate in measured)
    better = "to the right" if kind.higher_is_better else "to the left"
    return Figure(
        name,
        f"Test {kind.noun} of each run",
        render(name, drawing, (PANEL, 0.6 + 0.44 * len(measured))),
        f"Dot chart of the {_label(kind)} of {len(measured)} runs: {shown}.",
        f"Better is {better}. Bars: 95 % intervals from the test set, without the variation between repetitions of a run.",
    )


def _draw_trend(measured: Measured, axes: Sequence[Axis], consequence: str) -> Iterator[Figure]:
    if len(axes) != 1 or len(set(axes[0].places)) < _LEAST:
        return
    (axis,), kind = axes, measured[0][1]
    found: dict[float, list[Estimate]] = {}
    for place, (_, estimate) in zip(axis.places, measured, strict=True):
        found.setdefault(place, []).append(estimate)
    places = sorted(found)
    scale = _scale(kind)
    means, low, high = (
        scale * np.array(column) for column in zip(*(_mean_and_interval(found[place]) for place in places), strict=True)
    )

    def drawing(canvas: Canvas) -> None:
        panel = canvas.subplots()
        draw_intervals(panel, places, low, high, BLUE)
        panel.plot(places, means, "o-", color=BLUE, markersize=5, linewidth=1.2)
        for place in places:
            if len(found[place]) > 1:
                values = [scale * estimate.value for estimate in found[place]]
                panel.plot([place] * len(values), values, "o", color=BLUE, markersize=2.5, alpha=0.45, markeredgewidth=0)
        panel.set(xlabel=axis.name, ylabel=_label(kind))
        panel.yaxis.set_major_formatter(_TICKS)
        if places[0] > 0 and places[-1] >= 8 * places[0]:
            panel.set_xscale("log")
            panel.xaxis.minorticks_off()
        panel.set_xticks(places, [numbers.format_value(place) for place in places], rotation=45 if len(places) > 5 else 0)
        panel.grid(axis="y")

    repeated = any(len(one) > 1 for one in found.values())
    several = " A place with several runs shows their mean with its 95 % t-interval." if repeated else ""
    yield Figure(
        "trend",
        f"Test {kind.noun} by {axis.name}",
        render("trend", drawing, (PANEL, 2.9)),
        f"Line chart of the {_label(kind)} against {axis.name}: "
        + "; ".join(f"{mean:.4g} at {place:.4g}" for place, mean in zip(places, means, strict=True))
        + ".",
        f"{consequence} Nothing else was varied. Bars: 95 % intervals from the test set.{several}".lstrip(),
    )


def _mean_and_interval(found: Sequence[Estimate]) -> tuple[float, float, float]:
    """Return a mean and the ends of its interval."""
    values = np.array([measured.value for measured in found])
    mean = float(values.mean())
    if len(values) == 1:
        return (mean, *(found[0].interval or (mean, mean)))
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def _draw_progress(measured: Measured) -> Iterator[Figure]:
    shown = [(point, estimate) for point, estimate in measured if len(point.progress) > 1]
    if not shown or len(shown) > _MOST_CURVES:
        return
    kind = shown[0][1]

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for number, (point, estimate) in enumerate(shown):
            spent, values = np.array(point.progress).T
            colour, style = SERIES[number % len(SERIES)], _STYLES[number // len(SERIES)]
            axes.plot(
                spent,
                _scale(estimate) * values,
                color=colour,
                linestyle=style,
                linewidth=1.4,
                label=_cut_start(point.name, _COLUMN),
            )
        axes.set(xlabel="ε spent", ylabel=_label(kind))
        axes.yaxis.set_major_formatter(_TICKS)
        axes.set_xlim(left=0)
        axes.grid(axis="y")
        canvas.legend(frameon=False, loc="outside lower left", ncols=2)

    yield Figure(
        "progress",
        "During training, by ε spent",
        render("progress", drawing, (PANEL, 2.6 + 0.17 * math.ceil(len(shown) / 2))),
        f"Line chart of the {_label(kind)} against ε during the training of {len(shown)} runs.",
    )


def _draw_grid(measured: Measured, axes: Sequence[Axis]) -> Iterator[Figure]:
    """Yield the heat map of learning rates and bounds, if these two alone were varied and every pair was tried."""
    named = {axis.name: axis for axis in axes}
    kind = measured[0][1]
    if len(axes) != 2 or set(named) != set(GRID) or not kind.higher_is_better:
        return
    places = list(zip(*(named[name].places for name in GRID), strict=True))
    bounds, rates = (sorted({place[side] for place in places}) for side in (0, 1))
    if len(set(places)) < len(bounds) * len(rates):
        return
    found: dict[tuple[float, ...], list[float]] = {}
    for place, (_, estimate) in zip(places, measured, strict=True):
        found.setdefault(place, []).append(100 * estimate.value)
    means = np.array([[np.mean(found[bound, rate]) for bound in bounds] for rate in rates])
    row, column = np.unravel_index(int(np.argmax(means)), means.shape)
    rule = diagonal(Setting(rates[row], bounds[column]), bounds=bounds)

    def drawing(canvas: Canvas) -> None:
        panel = canvas.subplots()
        _plot_cells(panel, means)
        heights = [_interpolate(math.log(setting.learning_rate), np.log(rates)) for setting in rule]
        label = "η·C constant, through the best cell"
        panel.plot(range(len(bounds)), heights, color=ORANGE, linewidth=1.6, linestyle=(0, (5, 2)), label=label)
        panel.set_xticks(range(len(bounds)), [f"{bound:g}" for bound in bounds])
        panel.set_yticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        panel.set(xlabel="clipping bound C", ylabel="learning rate η")
        panel.set(ylim=(-0.5, len(rates) - 0.5), xlim=(-0.5, len(bounds) - 0.5))
        panel.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1))

    yield Figure(
        "grid",
        "By learning rate and clipping bound",
        render("grid", drawing, (PANEL, 0.9 + 0.5 * len(rates))),
        f"Heat map of test accuracy over {len(rates)} learning rates and {len(bounds)} clipping bounds; best is "
        f"{means[row, column]:.2f} % at η = {rates[row]:g}, C = {bounds[column]:g}.",
        "Mean test accuracy in %. Along the dashed line, the parameters receive as much noise as in the best cell: with SGD, the "
        "best cell of each row and column should lie near it.",
    )


def _plot_cells(axes: Axes, means: NDArray[np.float64]) -> None:
    low, high = float(means.min()), float(means.max())
    for (row, column), value in np.ndenumerate(means):
        share = (value - low) / (high - low) if high > low else 0.5
        # One rectangle per cell instead of an image, so that the page can restyle the colours.
        axes.fill_between(
            [column - 0.48, column + 0.48], row - 0.48, row + 0.48, color=BLUE, alpha=0.06 + 0.4 * share, linewidth=0
        )
        axes.annotate(f"{value:.1f}", (column, row), ha="center", va="center", color=INK)


def _interpolate(value: float, places: NDArray[np.float64]) -> float:
    """Return the index of a value among the places by linear interpolation, and by extrapolation beyond the ends."""
    index = int(np.clip(np.searchsorted(places, value) - 1, 0, len(places) - 2))
    return float(index + (value - places[index]) / (places[index + 1] - places[index]))
