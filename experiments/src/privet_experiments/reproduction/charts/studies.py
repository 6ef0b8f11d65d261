"""Figures of gradient studies: overlaid histograms, and numbers over the training steps. NOT PRIVATE."""

from __future__ import annotations

__all__ = ["Floats", "draw_histograms", "draw_traces", "has_study"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet_experiments.recipe import Arm, Chart
from privet_experiments.reproduction.charts.axes import Runs, grid_of, legend, logarithmic, styles
from privet_experiments.studies import WARNING
from privet_experiments.tasks.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Floats = NDArray[np.float64]
_LABELS = {
    "mean_weight": "mean scaling weight of a batch",
    "clipped_share": "share of a batch that is clipped",
    "clipped_similarity": "cosine of the clipped gradient to the raw one",
    "noised_similarity": "cosine of the clipped and noised gradient to the raw one",
    "gradient_norm": "norm of a batch's mean gradient",
    "norm": "norm of an example's gradient",
}
_BINS = 24
# Decades of a logarithmic histogram below its largest value; smaller values are in the first bin.
_DECADES = 10
# Window of the moving mean, in looks: one look is a random batch and noisy.
_WINDOW = 10


def has_study(chart: Chart, record: RunRecord) -> bool:
    """Return whether a run's study recorded the number that a chart shows."""
    return record.study is not None and chart.metric in record.study["looks"][0]


def draw_histograms(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    """Overlay the distributions of a number over all looks: of all arms, or of one arm and each of the others."""
    found = {arm.name: _weighted(_study(runs, arm), chart.metric) for arm in arms}
    edges = _edges([values for values, _ in found.values()], log=chart.logarithmic)
    others = [name for name in found if name != chart.against]
    # One arm alone, or all arms if the one to compare with has no runs.
    paired = chart.against in found and bool(others)
    pairs = [(name, str(chart.against)) for name in others] if paired else [tuple(found)]
    for axes, shown in zip(grid_of(canvas, len(pairs), 2, shared=True), pairs, strict=True):
        for name, (colour, _, dashes) in zip(shown, styles(len(shown)), strict=True):
            values, weights = found[name]
            counted = np.clip(values, edges[0], edges[-1])
            if not paired:  # outlines, because more than two filled histograms hide each other
                shares = np.histogram(counted, edges, weights=weights)[0]
                axes.step(edges, [*shares, shares[-1]], where="post", color=colour, linestyle=dashes, linewidth=1.3, label=name)
            else:
                axes.hist(
                    counted,
                    edges.tolist(),
                    weights=weights,
                    color=colour,
                    alpha=0.45,
                    label=name,
                    linewidth=0.6,
                    edgecolor=colour,
                )
        if chart.logarithmic:
            logarithmic(axes)
        axes.tick_params(labelbottom=True)
        axes.legend(frameon=False)
    smaller = " (smaller ones are in the first bin)" if chart.logarithmic else ""
    canvas.supxlabel(f"{_LABELS[chart.metric]}{smaller}", fontsize="medium")
    canvas.supylabel("share of examples" if chart.metric == "norm" else "share of looks", fontsize="medium")
    canvas.suptitle(WARNING, fontsize="medium")


def draw_traces(canvas: Canvas, chart: Chart, arms: Sequence[Arm], runs: Runs) -> None:
    """Draw a number over the steps, one point per look, with a moving mean; for norms, the median of a look."""
    axes = canvas.subplots()
    for arm, (colour, _, dashes) in zip(arms, styles(len(arms)), strict=True):
        steps, values = _by_step(_study(runs, arm), chart.metric)
        axes.plot(steps, values, "o", color=colour, markersize=2, alpha=0.4, markeredgewidth=0)
        window = min(_WINDOW, len(values))
        kernel = np.full(window, 1 / window)
        axes.plot(
            np.convolve(steps, kernel, "valid"), np.convolve(values, kernel, "valid"), color=colour, linestyle=dashes,
            linewidth=1.4, label=arm.name,
        )  # fmt: skip
    if chart.logarithmic:
        logarithmic(axes, "y")
    axes.set(xlabel="training step", ylabel=_LABELS[chart.metric])
    axes.grid(axis="y")
    legend(axes, columns=5)
    _warn(axes)


def _warn(axes: Axes) -> None:
    axes.set_title(WARNING, fontsize="medium", pad=22)


def _study(runs: Runs, arm: Arm) -> dict[str, Any]:
    (first, *_) = (record.study for record in runs[arm.name] if record.study is not None)
    return first


def _by_step(study: dict[str, Any], number: str) -> tuple[Floats, Floats]:
    steps, values = zip(*((look["step"], np.median(look[number])) for look in study["looks"]), strict=True)
    return np.array(steps, dtype=np.float64), np.array(values, dtype=np.float64)


def _weighted(study: dict[str, Any], number: str) -> tuple[Floats, Floats]:
    """Return the finite values of a number over all looks, with their weights.

    For norms, a look records equally spaced quantiles, whose weights are those of the trapezoid rule.
    """
    rows = np.array([np.atleast_1d(look[number]) for look in study["looks"]], dtype=np.float64)
    share = np.ones(rows.shape[1])
    if len(share) > 1:
        share[[0, -1]] = 0.5
    weights = np.broadcast_to(share / share.sum() / len(rows), rows.shape)
    finite = np.isfinite(rows)
    return rows[finite], weights[finite]


def _edges(samples: Sequence[Floats], *, log: bool) -> Floats:
    values = np.concatenate(samples)
    if not log:
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        return np.linspace(low, high if high > low else low + 1, _BINS + 1)
    positive = values[values > 0]
    high = float(positive.max()) if len(positive) else 1.0
    low = max(float(positive.min()) if len(positive) else 0.1, high * 10.0**-_DECADES)
    return np.geomspace(low, high if high > low else 10 * low, _BINS + 1)
