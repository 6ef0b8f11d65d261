"""Axes of charts: styles, legends, labels and logarithmic ticks."""

from __future__ import annotations

__all__ = [
    "WIDTH",
    "Runs",
    "final",
    "grid_of",
    "label_of",
    "legend",
    "logarithmic",
    "mean_and_deviation",
    "name_arms",
    "scaled",
    "styles",
]

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from privet.evaluation.colours import BLUE, INK, ORANGE
from privet_experiments.recipe import Arm, Chart
from privet_experiments.reproduction.table import spread
from privet_experiments.tasks.metrics import OF_THE_RUN, SHARES
from privet_experiments.tasks.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Runs = Mapping[str, Sequence[RunRecord]]
WIDTH = 6.4  # inches, as the report's
# Lines differ in hue, marker and dashes, so that they are distinguishable in print and with colour blindness.
_STYLES = (
    (BLUE, "o", "-"), (ORANGE, "s", "--"), ("#009e73", "^", "-."), ("#a2407c", "D", ":"), ("#56b4e9", "v", "-"), (INK, "x", "--"),
)  # fmt: skip
# Logarithmic axes up to this many decades have ticks at 1, 2 and 5; longer ones have this many powers of ten.
_FEW_DECADES, _MOST_TICKS = 2, 8
# Below this many decades, ticks at 1, 2 and 5 are too few.
_FEWEST_DECADES = 0.6


def styles(number: int) -> list[tuple[str, str, str]]:
    """Return colour, marker and dashes for each series."""
    return [_STYLES[index % len(_STYLES)] for index in range(number)]


def legend(axes: Axes, columns: int = 2) -> None:
    """Add a legend above the axes, where it covers no line."""
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)


def label_of(metric: str) -> str:
    """Return the axis label of a metric, with its unit."""
    if metric == "epsilon":
        return "privacy loss ε"
    where = "" if metric in OF_THE_RUN else "test "
    return f"{where}{metric.replace('_', ' ')}{' in %' if metric in SHARES else ''}"


def scaled(chart: Chart, value: float) -> float:
    """Return a metric's value in the unit of its axis; NaN, which leaves a gap, if it is not finite."""
    return math.nan if not math.isfinite(value) else 100 * value if chart.metric in SHARES else value


def final(chart: Chart, records: Sequence[RunRecord]) -> tuple[float, float]:
    """Return mean and standard deviation of a chart's metric at the end of runs, in the unit of its axis."""
    return mean_and_deviation([scaled(chart, record.value(chart.metric)) for record in records])


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation; the deviation of one value is 0."""
    mean, deviation = spread(values)
    return mean, deviation or 0.0


def name_arms(axes: Axes, arms: Sequence[Arm]) -> None:
    """Label the vertical axis with the names of arms, first on top."""
    axes.set_yticks(range(len(arms)), [arm.name for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)


def logarithmic(axes: Axes, which: Literal["x", "y"] = "x") -> None:
    """Make an axis logarithmic, with few ticks as plain numbers: powers of ten would be formulas."""
    getattr(axes, f"set_{which}scale")("log")
    low, high = np.log10(getattr(axes, f"get_{which}lim")())
    digits: tuple[int, ...]
    digits, step = ((1, 2, 5), 1) if high - low <= _FEW_DECADES else ((1,), int((high - low) // _MOST_TICKS) + 1)
    if high - low < _FEWEST_DECADES:
        digits = tuple(range(1, 10))
    powers = range(math.floor(low / step) * step, math.ceil(high) + 1, step)
    places = [digit * 10.0**power for power in powers for digit in digits if low <= math.log10(digit) + power <= high]
    getattr(axes, f"set_{which}ticks")(places, [f"{place:g}" for place in places])
    axes.minorticks_off()


def grid_of(canvas: Canvas, number: int, columns: int, *, shared: bool) -> list[Axes]:
    """Return axes in a grid with a maximum row length; unused places stay empty."""
    columns = min(columns, number)
    rows = -(-number // columns)
    places = list(canvas.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).flat)
    for empty in places[number:]:
        empty.remove()
    return places[:number]
