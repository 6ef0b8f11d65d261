"""Figure of properties: the number of an arm's runs in which each held, and whether the paper guarantees it."""

from __future__ import annotations

__all__ = ["draw_properties"]

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from privet.evaluation.colours import BLUE, ORANGE
from privet_experiments.recipe import Arm, Chart
from privet_experiments.reproduction.charts.axes import Runs, name_arms
from privet_experiments.tasks.metrics import VERDICTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def draw_properties(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    """Write the number of an arm's runs in which each property held, in colour if in all, and whether the paper guarantees it."""
    axes = canvas.subplots()
    metrics = [name for name in runs[arms[0].name][0].metrics if name in VERDICTS]
    for row, arm in enumerate(arms):
        for column, metric in enumerate(metrics):
            held = [record.metrics[metric] for record in runs[arm.name]]
            colour = BLUE if all(held) else ORANGE
            axes.barh(row, 0.94, left=column - 0.47, height=0.9, color=colour, alpha=0.2, linewidth=0)
            promised = {None: "", 1.0: ", yes", 0.0: ", no"}[arm.reported.get(metric)]
            axes.text(column, row, f"{sum(held):.0f}/{len(held)}{promised}", ha="center", va="center")
    axes.set_xticks(range(len(metrics)), [textwrap.fill(metric.replace("_", " "), 12) for metric in metrics])
    axes.set_xlim(-0.5, len(metrics) - 0.5)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    name_arms(axes, arms)
    canvas.suptitle("number of runs in which a property held, and whether the paper guarantees it", fontsize="medium")
