"""Figure of calibration: reliability diagrams above histograms of the confidence and of the probability of the true class."""

from __future__ import annotations

__all__ = ["COLUMNS", "draw_reliability", "has_confidence"]

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from privet.evaluation import BinTable, ConfidenceDisplay, ReliabilityDisplay, TrueClassDisplay
from privet_experiments.recipe import Arm, Chart
from privet_experiments.reproduction.charts.axes import Runs
from privet_experiments.tasks.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLUMNS = 4
_DISPLAYS = ((ReliabilityDisplay, "predicted"), (ConfidenceDisplay, "predicted"), (TrueClassDisplay, "true_class"))


def has_confidence(chart: Chart, record: RunRecord) -> bool:
    """Return whether a run recorded the bin tables that the figure needs."""
    return record.confidence is not None


def draw_reliability(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    """Draw a column of three diagrams for each arm, over the test examples of all its runs."""
    columns = min(COLUMNS, len(arms))
    blocks = -(-len(arms) // columns)
    places = canvas.subplots(3 * blocks, columns, squeeze=False, height_ratios=[1.6, 1, 1] * blocks)
    for index in range(blocks * columns):
        block, column = divmod(index, columns)
        column_axes = places[3 * block : 3 * block + 3, column]
        if index >= len(arms):
            for axes in column_axes:
                axes.remove()
            continue
        for axes, (display, table) in zip(column_axes, _DISPLAYS, strict=True):
            display(_pooled(runs[arms[index].name], table)).plot(axes)
            if column > 0:
                axes.set_ylabel("")
            if (legend := axes.get_legend()) is not None:
                legend.remove()
        column_axes[0].set_title(arms[index].name)
    # One legend for all histograms, where it covers none.
    canvas.legend(*places[1, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)


def _pooled(records: Sequence[RunRecord], table: str) -> BinTable:
    return reduce(add, (BinTable.from_dict(record.confidence[table]) for record in records if record.confidence is not None))
