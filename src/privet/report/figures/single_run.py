"""Figures of the report of one run."""

from __future__ import annotations

__all__ = ["draw"]

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from privet.accounting.guarantee import tradeoff
from privet.accounting.rounding import format_percent_up
from privet.evaluation import wilson_interval
from privet.evaluation.colours import BLUE, INK, ORANGE, PAPER
from privet.report import numbers
from privet.report.figures import accountants, gradient_study, reliability
from privet.report.figures.svg import WIDTH, Figure, render
from privet.report.run_files import Run


@dataclass(frozen=True, slots=True)
class _Curve:
    """A panel of the progress figure: a quantity against steps, with the labels of its axis and of its last point."""

    title: str
    axis: str
    points: Sequence[tuple[int, float]]
    last: str
    colour: str
    from_zero: bool = False
    band: Sequence[tuple[float, float]] = ()
    band_meaning: str = ""


def draw(run: Run) -> tuple[Figure, ...]:
    """Return the figures for which a run has data.

    Args:
        run: contents of a run directory.

    Returns:
        `progress` (ε and test accuracy against steps), `meaning` (trade-off curve and δ against ε), `accountants` (ε by
        accountant), `calibration` and `gradients`, without those that lack data.
    """
    own = (*_draw_progress(run), *_draw_meaning(run), *_draw_accountants(run))
    return (*own, *reliability.draw(run.evaluation), *gradient_study.draw(run.observations))


def _draw_progress(run: Run) -> Iterator[Figure]:
    examples = run.evaluation.examples if run.evaluation else None
    curves = [curve for curve in (_epsilon_curve(run), _accuracy_curve(run, examples)) if curve.points]
    if not curves:
        return

    def drawing(canvas: Canvas) -> None:
        panels = canvas.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for axes, curve in zip(panels, curves, strict=True):
            _draw_curve(axes, curve)
        panels[-1].set_xlabel("training step")
        # The axis of an unfinished run extends to the end of its plan.
        panels[-1].set_xlim(left=0, right=run.status.steps_planned if run.status and not run.status.complete else None)

    titles = " and ".join(curve.title for curve in curves)
    sentences = [f"{titles[0].upper()}{titles[1:]} during training.", *(curve.band_meaning for curve in curves)]
    ends = "; ".join(f"{curve.title} is {curve.last} after step {curve.points[-1][0]:,}" for curve in curves)
    yield Figure(
        "progress",
        render("progress", drawing, (WIDTH, 0.5 + 1.75 * len(curves))),
        f"Line chart of {titles} against the training step; {ends}.",
        " ".join(filter(None, sentences)),
    )


def _epsilon_curve(run: Run) -> _Curve:
    points = [(m.step, m.epsilon) for m in run.measurements if m.epsilon is not None and math.isfinite(m.epsilon)]
    last = numbers.format_epsilon(points[-1][1]) if points else ""
    return _Curve("privacy loss ε", "ε spent", points, last, BLUE, from_zero=True)


def _accuracy_curve(run: Run, examples: int | None) -> _Curve:
    shares = [(m.step, m.test_accuracy) for m in run.measurements if m.test_accuracy is not None]
    points = [(step, 100 * share) for step, share in shares]
    last = numbers.format_percent(shares[-1][1]) if shares else ""
    curve = _Curve("test accuracy", "test accuracy in %", points, last, ORANGE)
    if examples is None or not shares:
        return curve
    intervals = [wilson_interval(share, examples) for _, share in shares]
    return replace(
        curve,
        band=[(100 * low, 100 * high) for low, high in intervals],
        band_meaning=f"Band: 95 % Wilson interval from {examples:,} test examples; "
        "it does not include the variation between repeated runs.",
    )


def _draw_curve(axes: Axes, curve: _Curve) -> None:
    steps, values = zip(*curve.points, strict=True)
    if curve.band:
        low, high = zip(*curve.band, strict=True)
        axes.fill_between(steps, low, high, color=curve.colour, alpha=0.22, linewidth=0)
    axes.plot(steps, values, color=curve.colour, linewidth=1.4)
    axes.plot(steps[-1:], values[-1:], color=curve.colour, marker="o", markersize=4)
    axes.annotate(curve.last, (steps[-1], values[-1]), (7, 0), textcoords="offset points", va="center", annotation_clip=False)
    axes.set_ylabel(curve.axis)
    axes.set_ylim(bottom=0 if curve.from_zero else None)
    axes.grid(axis="y")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_meaning(run: Run) -> Iterator[Figure]:
    claimed = run.guarantee
    if claimed is None or claimed.meaning is None or not math.isfinite(claimed.epsilon):
        return
    known, privacy = claimed.meaning, claimed.meaning.profile
    alarms = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 400)])
    missed = tradeoff.false_negative_rate(privacy, alarms)

    def drawing(canvas: Canvas) -> None:
        curve, slack = canvas.subplots(1, 2)
        curve.plot([0, 1], [1, 0], color=INK, linewidth=0.8, linestyle="--")
        curve.annotate("guessing", (0.5, 0.5), (3, 3), textcoords="offset points")
        curve.plot(alarms, missed, color=BLUE, linewidth=1.4)
        curve.fill_between(alarms, missed, color=BLUE, alpha=0.12, linewidth=0)
        curve.set_xlabel("false positive rate")
        curve.set_ylabel("false negative rate")
        curve.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        slack.plot(privacy.epsilons, privacy.deltas, color=BLUE, linewidth=1.4)
        slack.plot([claimed.epsilon], [claimed.delta], color=BLUE, marker="o", markersize=4)
        slack.annotate(
            f"ε = {numbers.format_epsilon(claimed.epsilon)}", (claimed.epsilon, claimed.delta), (-6, 0),
            textcoords="offset points", ha="right", va="center",
        )  # fmt: skip
        slack.set_yscale("log")
        slack.yaxis.set_major_formatter(lambda value, _: numbers.format_power_of_ten(float(f"{value:.6g}")))
        slack.yaxis.set_minor_formatter(NullFormatter())
        slack.set_xlim(left=0)
        slack.set_xlabel("ε")
        slack.set_ylabel("δ")
        slack.grid()

    hits = format_percent_up(known.found_at_one_in_a_hundred)
    yield Figure(
        "meaning",
        render("meaning", drawing, (WIDTH, 2.9)),
        f"Two line charts. False negative rate against false positive rate of the best membership attack, whose true positive "
        f"rate exceeds its false positive rate by at most {format_percent_up(known.advantage)} and is at most {hits} at 1 % "
        f"false positives; and δ against ε, down to {numbers.format_power_of_ten(claimed.delta)} at "
        f"{numbers.format_epsilon(claimed.epsilon)}.",
        "Left: no membership attack can reach the shaded area; the dashed line is random guessing. "
        "Right: all pairs (ε, δ) on the curve hold; the dot is the stated guarantee.",
    )


def _draw_accountants(run: Run) -> Iterator[Figure]:
    claimed = run.guarantee.epsilon_by_accountant if run.guarantee else {}
    bars = [(accountants.describe(key), value) for key, value in claimed.items() if value is not None and math.isfinite(value)]
    if not bars:
        return

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for place, (accountant, value) in enumerate(bars):
            sure = accountant.is_bound
            axes.barh(place, value, 0.6, facecolor=BLUE if sure else PAPER, edgecolor=BLUE, hatch="" if sure else "/////")
            axes.annotate(accountant.show(value), (value, place), (5, 0), textcoords="offset points", va="center", color=INK)
        axes.set_yticks(range(len(bars)), [f"{accountant.name}\n{accountant.direction}" for accountant, _ in bars])
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
        axes.set_xlabel("ε of the whole run")

    shown = (f"{known.name} {known.show(value)} ({known.direction})" for known, value in bars)
    yield Figure(
        "accountants",
        render("accountants", drawing, (WIDTH, 0.65 + 0.45 * len(bars))),
        f"Bar chart of ε by accountant: {', '.join(shown)}.",
        "Solid bars are upper bounds on the true ε. Hatched bars are approximations that can be too small.",
    )
