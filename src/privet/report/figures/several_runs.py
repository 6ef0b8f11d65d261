"""The figures of a comparison: accuracy against ε, sweeps, and the grid of learning rates and bounds."""

from __future__ import annotations

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
from privet.report.figures.points import SETTINGS, Measured, Point, lines
from privet.report.figures.svg import WIDTH, Figure, render
from privet.tuning import Setting, diagonal

_MARKERS = "osD^"
_SPREAD = (
    "Points are means of the runs at a place, with the 95 % t-interval of that mean if there are several, and with the interval "
    "that the test set gives if there is one."
)
_UNBIASED = " The interval of one run's calibration error is free of the bias that the point has, and may lie beside it."


@dataclass(frozen=True, slots=True)
class TitledFigure(Figure):
    """A figure with a section of its own.

    Args:
        title: of the section.
    """

    title: str


def draw(points: Sequence[Point]) -> Iterator[TitledFigure]:
    """Yield the figures that the runs have the numbers for."""
    yield from _by_epsilon([point for point in points if math.isfinite(point.epsilon)])
    for axis in SETTINGS:
        yield from _sweep(points, axis)
    yield from _grid(points)


def _by_epsilon(points: Sequence[Point]) -> Iterator[TitledFigure]:
    found = _drawable(points, "ε", least=1)
    if not found:
        return

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for (name, members), colour, marker in zip(found.items(), SERIES, _MARKERS, strict=False):
            for point in members:
                if point.progress:
                    spent, accuracy = np.array(point.progress).T
                    axes.plot(spent, 100 * accuracy, color=colour, linewidth=0.7, alpha=0.5)
            _line(axes, members, "ε", "accuracy", colour, marker, name)
        _finish(axes, "privacy loss ε", "test accuracy in %", named=len(found) > 1)

    yield TitledFigure(
        "accuracy-by-epsilon",
        render("accuracy-by-epsilon", drawing, (WIDTH, 3.4)),
        f"Test accuracy against ε for {sum(map(len, found.values()))} runs.",
        f"Thin lines are runs while they trained. {_SPREAD}",
        "Accuracy against ε",
    )


def _sweep(points: Sequence[Point], axis: str) -> Iterator[TitledFigure]:
    found = _drawable(points, axis, least=2)
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
                _line(axes, members, axis, quantity, colour, marker, name)
            axes.set_xscale("log" if axis != "momentum" else "linear")
            places = sorted({float(point.settings[axis]) for members in found.values() for point in members})
            axes.set_xticks(places, [f"{place:g}" for place in places], rotation=45 if len(places) > 5 else 0)
            axes.xaxis.minorticks_off()
            _finish(axes, axis, label, named=panel == 0 and len(found) > 1)

    name = f"sweep-{axis.replace(' ', '-')}"
    yield TitledFigure(
        name,
        render(name, drawing, (WIDTH, 3.0)),
        f"{' and '.join(label for _, label in shown)} against the {axis}.",
        _SPREAD + _UNBIASED,
        f"Sweep of the {axis}",
    )


def _drawable(points: Sequence[Point], axis: str, least: int) -> Mapping[str, list[Point]]:
    """Return the lines with an accuracy at so many places or more; none if they are more than can be told apart."""
    measured = [point for point in points if point.accuracy]
    found = {name: one for name, one in lines(measured, axis).items() if len({point.at(axis) for point in one}) >= least}
    return found if len(found) <= len(SERIES) else {}


def _line(axes: Axes, members: Sequence[Point], axis: str, quantity: str, colour: str, marker: str, name: str) -> None:
    by_place: dict[float, list[Measured]] = {}
    for point in members:
        if (measured := getattr(point, quantity)) is not None:
            by_place.setdefault(float(point.at(axis) or 0.0), []).append(measured)
    if not by_place:
        return
    places = sorted(by_place)
    means, low, high = (100 * np.array(column) for column in zip(*(_summary(by_place[place]) for place in places), strict=True))
    for place in places:
        if len(by_place[place]) > 1:
            values = [100 * measured.value for measured in by_place[place]]
            axes.plot([place] * len(values), values, marker, color=colour, markersize=2.5, alpha=0.45, markeredgewidth=0)
    draw_intervals(axes, places, low, high, colour)
    axes.plot(places, means, marker=marker, color=colour, markersize=4.5, linewidth=1.2, label=name)


def _summary(found: Sequence[Measured]) -> tuple[float, float, float]:
    """Return the mean and the ends of its interval."""
    values = np.array([measured.value for measured in found])
    mean = float(values.mean())
    if len(values) == 1:
        return (mean, *(found[0].interval or (mean, mean)))
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def _finish(axes: Axes, x: str, y: str, *, named: bool) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.grid(axis="y")
    if named:
        axes.legend(frameon=False, loc="best")


def _grid(points: Sequence[Point]) -> Iterator[TitledFigure]:
    """Yield the heat map of learning rates and bounds, if both vary on their own."""
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
        _cells(axes, means)
        heights = [_position(math.log(setting.learning_rate), np.log(rates)) for setting in rule]
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
        "Mean test accuracy in %. On the dashed line the noise that reaches the parameters is that of the best cell: with SGD, "
        "the best of every row and column is expected near it.",
        "Learning rate and clip bound",
    )


def _cells(axes: Axes, means: NDArray[np.float64]) -> None:
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    for (row, column), value in np.ndenumerate(means):
        if not math.isfinite(value):
            continue
        share = (value - low) / (high - low) if high > low else 0.5
        # One rectangle for each cell and not an image: the page gives its colours to what is drawn.
        axes.fill_between(
            [column - 0.48, column + 0.48], row - 0.48, row + 0.48, color=BLUE, alpha=0.06 + 0.55 * share, linewidth=0
        )
        axes.annotate(f"{value:.1f}", (column, row), ha="center", va="center", color=INK)


def _position(value: float, places: NDArray[np.float64]) -> float:
    """Return where a value lies among the places 0, 1, …, going on beyond the ends as between the last two."""
    index = int(np.clip(np.searchsorted(places, value) - 1, 0, len(places) - 2))
    return float(index + (value - places[index]) / (places[index + 1] - places[index]))
