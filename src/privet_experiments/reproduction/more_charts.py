"""Figures with a line for every arm: how a number of a study is distributed, and which properties held."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from privet.evaluation.colours import BLUE, INK, ORANGE
from privet.evaluation.studies import WARNING
from privet_experiments.tasks.metrics import VERDICTS
from privet_experiments.tasks.studies import values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from privet_experiments.recipe import Arm, Chart
    from privet_experiments.tasks.run_record import RunRecord

# Ticks of a logarithmic axis: at 1, 2 and 5 over so many decades, and else at so many powers of ten.
_FEW_DECADES, _MOST_TICKS = 4, 8
_LABELS = {
    "mean_weight": "mean scaling weight of a batch",
    "clipped_share": "share of a batch that is shortened",
    "clipped_similarity": "cosine of the clipped gradient to the raw one",
    "noised_similarity": "cosine of the clipped and noised gradient to the raw one",
    "gradient_norm": "norm of a batch's mean gradient",
    "norm": "norm of an example's gradient",
}


def distribution(axes: Axes, chart: Chart, arms: Sequence[Arm], runs: Mapping[str, Sequence[RunRecord]]) -> None:
    """Draw the looks' middle half as a box with its median, and their middle 90 % as a line, for every arm."""
    studied = [next(record.study for record in runs[arm.name] if record.study) for arm in arms]
    ends: list[float] = []
    for place, study in enumerate(studied):
        found = values(study, chart.metric)
        found = found[np.isfinite(found)]
        if not len(found):
            continue
        low, quarter, median, three, high = np.quantile(found, (0.05, 0.25, 0.5, 0.75, 0.95))
        ends += [end for end in (low, high) if end > 0]
        axes.plot([low, high], [place, place], color=BLUE, linewidth=1.2)
        axes.barh(place, three - quarter, left=quarter, height=0.5, color=BLUE, alpha=0.35, linewidth=0)
        axes.plot([median, median], [place - 0.25, place + 0.25], color=INK, linewidth=1.6)
    if chart.logarithmic and ends:
        axes.set_xlim(min(ends) / 1.5, max(ends) * 1.5)
        logarithmic(axes)
    _named(axes, arms)
    axes.set_xlabel(_LABELS[chart.metric])
    axes.set_title(WARNING)
    axes.grid(axis="x")


def logarithmic(axes: Axes) -> None:
    """Make the horizontal axis logarithmic, with few enough ticks for plain numbers: powers of ten would be formulas."""
    axes.set_xscale("log")
    low, high = np.log10(axes.get_xlim())
    digits, step = ((1, 2, 5), 1) if high - low <= _FEW_DECADES else ((1,), int((high - low) // _MOST_TICKS) + 1)
    powers = range(math.floor(low / step) * step, math.ceil(high) + 1, step)
    places = [digit * 10.0**power for power in powers for digit in digits if low <= math.log10(digit) + power <= high]
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()


def verdicts(axes: Axes, chart: Chart, arms: Sequence[Arm], runs: Mapping[str, Sequence[RunRecord]]) -> None:
    """Write in how many of an arm's runs each property held, in colour where it was all, and what the paper says of it."""
    metrics = [name for name in runs[arms[0].name][0].metrics if name in VERDICTS]
    for row, arm in enumerate(arms):
        for column, metric in enumerate(metrics):
            held = [record.metrics[metric] for record in runs[arm.name]]
            everywhere = all(held)
            colour = BLUE if everywhere else ORANGE
            axes.barh(row, 0.94, left=column - 0.47, height=0.9, color=colour, alpha=0.2, linewidth=0)
            promised = {None: "", 1.0: ", yes", 0.0: ", no"}[arm.reported.get(metric)]
            axes.text(column, row, f"{sum(held):.0f}/{len(held)}{promised}", ha="center", va="center")
    axes.set_xticks(range(len(metrics)), [textwrap.fill(metric.replace("_", " "), 12) for metric in metrics])
    axes.set_xlim(-0.5, len(metrics) - 0.5)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    _named(axes, arms)
    axes.set_title("held in so many runs, and whether the paper guarantees it")


def _named(axes: Axes, arms: Sequence[Arm]) -> None:
    axes.set_yticks(range(len(arms)), [arm.name for arm in arms])
    axes.set_ylim(len(arms) - 0.4, -0.6)
