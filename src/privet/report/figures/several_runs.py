"""Figures of a comparison: accuracy against ε, sweeps, and the grid of learning rates and bounds."""

from __future__ import annotations

__all__ = ["TitledFigure", "draw"]

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray
from scipy import stats

from privet.evaluation.colours import BLUE, INK, ORANGE, SERIES
from privet.evaluation.drawing import draw_intervals
from privet.report.figures.points import SETTINGS, Estimate, Point, group_into_lines
from privet.report.figures.svg import WIDTH, Figure, render
from privet.tuning import Setting, diagonal

_MARKERS = "osD^"
_SPREAD = (
    "Each point is the mean of the runs at that place. Its interval is the 95 % t-interval of the mean for several runs, and the "
    "interval from the test set for a single run."
)
_UNBIASED = (
    " For a single run, the interval of the calibration error is corrected for bias and the point is not, so the point may lie "
    "outside."
)


@dataclass(frozen=True, slots=True)
class TitledFigure(Figure):
    """A figure with its own section.

    Args:
        title: title of the section.
    """

    title: str


def draw(points: Sequence[Point]) -> Iterator[TitledFigure]:
    """Yield the figures for which the runs have data."""
    yield from _draw_by_epsilon([point for point in points if math.isfinite(point.epsilon)])
    for axis in SETTINGS:
        yield from _draw_sweep(points, axis)
    yield from _draw_grid(points)


def _draw_by_epsilon(points: Sequence[Point]) -> Iterator[TitledFigure]:
    found = _select_lines(points, "ε", least=1)
    if not found:
        return

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for (name, members), colour, marker in zip(found.items(), SERIES, _MARKERS, strict=False):
            for point in members:
                if point.progress:
                    spent, accuracy = np.array(point.progress).T
                    axes.plot(spent, 100 * accuracy, color=colour, linewidth=0.7, alpha=0.5)
            _plot_line(axes, members, "ε", "accuracy", colour, marker, name)
        _label_axes(axes, "ε", "test accuracy in %", named=len(found) > 1)

    yield TitledFigure(
        "accuracy-by-epsilon",
        render("accuracy-by-epsilon", drawing, (WIDTH, 3.4)),
        f"Test accuracy against ε for {sum(map(len, found.values()))} runs.",
        f"Thin lines show the runs during training. {_SPREAD}",
        "Accuracy against ε",
    )


def _draw_sweep(points: Sequence[Point], axis: str) -> Iterator[TitledFigure]:
    found = _select_lines(points, axis, least=2)
    if not found:
        return
    shown = [
        (quantity, label)
        for quantity, label in (("accuracy", "test accuracy in %"), ("calibration_error", "calibration error in %"))
        if any(getattr(point, quantity) for members in found.values() for point in members)
    ]

    def drawing(canvas: Canvas) -> None:
        for panel, (axes, (quantity, label)) in enumerate(
            zip(canvas.subplots(1, len(shown), squeeze=False)[0], shown, strict=True)
        ):
            for (name, members), colour, marker in zip(found.items(), SERIES, _MARKERS, strict=False):
                _plot_line(axes, members, axis, quantity, colour, marker, name)
            axes.set_xscale("log" if axis != "momentum" else "linear")
            places = sorted({float(point.settings[axis]) for members in found.values() for point in members})
            axes.set_xticks(places, [f"{place:g}" for place in places], rotation=45 if len(places) > 5 else 0)
            axes.xaxis.minorticks_off()
            _label_axes(axes, axis, label, named=panel == 0 and len(found) > 1)

    name = f"sweep-{axis.replace(' ', '-')}"
    yield TitledFigure(
        name,
        render(name, drawing, (WIDTH, 3.0)),
        f"{' and '.join(label for _, label in shown)} against the {axis}.",
        _SPREAD + _UNBIASED,
        f"Sweep of the {axis}",
    )


def _select_lines(points: Sequence[Point], axis: str, least: int) -> Mapping[str, list[Point]]:
    """Return the lines with accuracies at `least` or more places; none if there are too many lines to distinguish."""
    measured = [point for point in points if point.accuracy]
    found = {
        name: one for name, one in group_into_lines(measured, axis).items() if len({point.at(axis) for point in one}) >= least
    }
    return found if len(found) <= len(SERIES) else {}


def _plot_line(axes: Axes, members: Sequence[Point], axis: str, quantity: str, colour: str, marker: str, name: str) -> None:
    by_place: dict[float, list[Estimate]] = {}
    for point in members:
        if (measured := getattr(point, quantity)) is not None:
            by_place.setdefault(float(point.at(axis) or 0.0), []).append(measured)
    if not by_place:
        return
    places = sorted(by_place)
    means, low, high = (
        100 * np.array(column) for column in zip(*(_mean_and_interval(by_place[place]) for place in places), strict=True)
    )
    for place in places:
        if len(by_place[place]) > 1:
            values = [100 * measured.value for measured in by_place[place]]
            axes.plot([place] * len(values), values, marker, color=colour, markersize=2.5, alpha=0.45, markeredgewidth=0)
    draw_intervals(axes, places, low, high, colour)
    axes.plot(places, means, marker=marker, color=colour, markersize=4.5, linewidth=1.2, label=name)


def _mean_and_interval(found: Sequence[Estimate]) -> tuple[float, float, float]:
    """Return a mean and the ends of its interval."""
    values = np.array([measured.value for measured in found])
    mean = float(values.mean())
    if len(values) == 1:
        return (mean, *(found[0].interval or (mean, mean)))
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def _label_axes(axes: Axes, x: str, y: str, *, named: bool) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.grid(axis="y")
    if named:
        axes.legend(frameon=False, loc="best")


def _draw_grid(points: Sequence[Point]) -> Iterator[TitledFigure]:
    """Yield the heat map of learning rates and bounds, if they vary independently."""
    cells: dict[tuple[float, float], list[Point]] = {}
    for point in points:
        place = point.settings.get("clip bound"), point.settings.get("learning rate")
        if point.accuracy and place[0] is not None and place[1] is not None:
            cells.setdefault((place[0], place[1]), []).append(point)
    bounds, rates = (sorted({place[side] for place in cells}) for side in (0, 1))
    if len(bounds) < 2 or len(rates) < 2 or len(cells) <= max(len(bounds), len(rates)):
        return
    means = np.full((len(rates), len(bounds)), np.nan)
    for (bound, rate), members in cells.items():
        means[rates.index(rate), bounds.index(bound)] = 100 * np.mean(
            [point.accuracy.value for point in members if point.accuracy]
        )
    row, column = np.unravel_index(int(np.nanargmax(means)), means.shape)
    rule = diagonal(Setting(rates[row], bounds[column]), bounds=bounds)

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        _plot_cells(axes, means)
        heights = [_interpolate(math.log(setting.learning_rate), np.log(rates)) for setting in rule]
        axes.plot(
            range(len(bounds)),
            heights,
            color=ORANGE,
            linewidth=1.6,
            linestyle=(0, (5, 2)),
            label="η·C constant, through the best cell",
        )
        axes.set_xticks(range(len(bounds)), [f"{bound:g}" for bound in bounds])
        axes.set_yticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        axes.set(xlabel="clip bound C", ylabel="learning rate η", ylim=(-0.5, len(rates) - 0.5), xlim=(-0.5, len(bounds) - 0.5))
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1))

    yield TitledFigure(
        "grid",
        render("grid", drawing, (WIDTH, 0.9 + 0.55 * len(rates))),
        f"Heat map of test accuracy over {len(rates)} learning rates and {len(bounds)} clip bounds; best is "
        f"{means[row, column]:.2f} % at η = {rates[row]:g}, C = {bounds[column]:g}.",
        "Mean test accuracy in %. Along the dashed line, the parameters receive as much noise as in the best cell: with SGD, the "
        "best cell of each row and column should lie near it.",
        "Learning rate and clip bound",
    )


def _plot_cells(axes: Axes, means: NDArray[np.float64]) -> None:
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    for (row, column), value in np.ndenumerate(means):
        if not math.isfinite(value):
            continue
        share = (value - low) / (high - low) if high > low else 0.5
        # One rectangle per cell instead of an image, so that the page can restyle the colours.
        axes.fill_between(
            [column - 0.48, column + 0.48], row - 0.48, row + 0.48, color=BLUE, alpha=0.06 + 0.55 * share, linewidth=0
        )
        axes.annotate(f"{value:.1f}", (column, row), ha="center", va="center", color=INK)


def _interpolate(value: float, places: NDArray[np.float64]) -> float:
    """Return the index of a value among the places by linear interpolation, and by extrapolation beyond the ends."""
    index = int(np.clip(np.searchsorted(places, value) - 1, 0, len(places) - 2))
    return float(index + (value - places[index]) / (places[index + 1] - places[index]))
