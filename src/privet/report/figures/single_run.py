"""Figures of the report of one run: quality, ε, attacks, accountants, calibration, and bytes of a federated run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator, NullFormatter

from privet.accounting.guarantee import tradeoff
from privet.accounting.rounding import format_percent_up
from privet.evaluation import ConfidenceDisplay, Evaluation, ReliabilityDisplay, TrueClassDisplay, wilson_interval
from privet.evaluation.colours import BLUE, INK, ORANGE, PAPER
from privet.evaluation.displays import TableDisplay
from privet.report import numbers
from privet.report.figures import accountants
from privet.report.figures.svg import PANEL, Figure, render
from privet.report.headline import headline
from privet.report.run_files import Measurement, Run, StoredGuarantee

_HEIGHT = 2.6  # inches
_MOST_LOGGED = 12  # values that are drawn; a program may log hundreds


@dataclass(frozen=True, slots=True)
class _Curve:
    """A quantity against steps, with the label of its last point, the intervals of all points, and the last interval alone."""

    steps: Sequence[int]
    values: Sequence[float]
    axis: str
    last: str
    colour: str
    from_zero: bool = False
    band: Sequence[tuple[float, float]] = ()
    end: tuple[float, float] | None = None


def draw(run: Run) -> tuple[Figure, ...]:
    """Return the figures for which a run has data."""
    own = (*_draw_quality(run), *_draw_epsilon(run), *_draw_attack(run.guarantee), *_draw_accountants(run.guarantee))
    calibrated = _draw_calibration(run.evaluation) if isinstance(run.evaluation, Evaluation) else ()
    return (*own, *_draw_communication(run.measurements), *calibrated, *_draw_logged(run))


def _draw_quality(run: Run) -> Iterator[Figure]:
    shares = [(m.step, m.test_accuracy) for m in run.measurements if m.test_accuracy is not None]
    errors = [(m.step, m.test_error) for m in run.measurements if m.test_error is not None]
    if shares:
        steps, values = zip(*shares, strict=True)
        examples = run.evaluation.examples if run.evaluation else None
        intervals = [wilson_interval(value, examples) for value in values] if examples else []
        curve = _Curve(
            steps, [100 * value for value in values], "test accuracy in %", numbers.format_percent(values[-1]), ORANGE,
            band=[(100 * low, 100 * high) for low, high in intervals],
        )  # fmt: skip
        words = f"Band: 95 % interval from {examples:,} test examples, without the variation between runs." if examples else ""
        yield _draw_curve(run, "quality", "Test accuracy", curve, words)
    elif errors:
        steps, values = zip(*errors, strict=True)
        end = headline(run.evaluation).interval if run.evaluation else None
        curve = _Curve(steps, values, "test RMSE", numbers.format_measurement(values[-1]), ORANGE, from_zero=True, end=end)
        words = f"Bar: 95 % interval from {run.evaluation.examples:,} test examples." if run.evaluation and end else ""
        yield _draw_curve(run, "quality", "Test error", curve, words)


def _draw_epsilon(run: Run) -> Iterator[Figure]:
    found = [(m.step, m.epsilon) for m in run.measurements if m.epsilon is not None and math.isfinite(m.epsilon)]
    if found:
        steps, values = zip(*found, strict=True)
        curve = _Curve(steps, values, "ε spent", numbers.format_epsilon(values[-1]), BLUE, from_zero=True)
        yield _draw_curve(run, "epsilon", "Privacy loss", curve)


def _draw_logged(run: Run) -> Iterator[Figure]:
    """Yield a figure for each of the first values that a user's program logged, in the order of their names."""
    names = sorted({name for m in run.measurements for name in m.logged})
    for number, name in enumerate(names[:_MOST_LOGGED], start=1):
        steps, values = zip(*((m.step, m.logged[name]) for m in run.measurements if name in m.logged), strict=True)
        curve = _Curve(steps, values, name, numbers.format_measurement(values[-1]), ORANGE)
        yield _draw_curve(run, f"logged-{number}", name, curve, f"{curve.last} after step {steps[-1]:,}.")


def _draw_curve(run: Run, name: str, title: str, curve: _Curve, caption: str = "") -> Figure:
    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        if curve.band:
            low, high = zip(*curve.band, strict=True)
            axes.fill_between(curve.steps, low, high, color=curve.colour, alpha=0.22, linewidth=0)
        if curve.end:
            axes.vlines(curve.steps[-1:], *curve.end, color=curve.colour, linewidth=1.2)
        axes.plot(curve.steps, curve.values, color=curve.colour, linewidth=1.6)
        axes.plot(curve.steps[-1:], curve.values[-1:], color=curve.colour, marker="o", markersize=4.5, clip_on=False)
        # The axis of an unfinished run extends to the end of its plan.
        last = run.status.steps_planned if run.status and not run.status.complete else None
        axes.set(xlabel="training step", ylabel=curve.axis, xlim=(0, last), ylim=(0 if curve.from_zero else None, None))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")

    ends = f"{curve.axis} is {curve.last} after step {curve.steps[-1]:,}"
    label = f"Line chart of the {title.lower()} against the training step; {ends}."
    return Figure(name, f"{title} by step", render(name, drawing, (PANEL, _HEIGHT)), label, caption)


def _draw_attack(claimed: StoredGuarantee | None) -> Iterator[Figure]:
    if claimed is None or claimed.meaning is None or not math.isfinite(claimed.epsilon):
        return
    known, privacy = claimed.meaning, claimed.meaning.profile
    alarms = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 400)])
    found = tradeoff.true_positive_rate(privacy, alarms)

    def roc(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.fill_between(100 * alarms, 100 * alarms, 100 * found, color=BLUE, alpha=0.14, linewidth=0)
        axes.plot([0, 100], [0, 100], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.plot(100 * alarms, 100 * found, color=BLUE, linewidth=1.6)
        axes.annotate("out of reach", (4, 94), color=INK, va="top")
        axes.annotate("guessing", (97, 66), color=INK, ha="right")
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="false positives in %", ylabel="members found in %")
        axes.set(xticks=range(0, 101, 25), yticks=range(0, 101, 25))

    def pairs(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.plot(privacy.epsilons, privacy.deltas, color=BLUE, linewidth=1.6)
        axes.plot([claimed.epsilon], [claimed.delta], color=BLUE, marker="o", markersize=4.5, clip_on=False)
        axes.set(yscale="log", xlim=(0, None), xlabel="ε", ylabel="δ")
        axes.yaxis.set_major_formatter(lambda value, _: numbers.format_power_of_ten(float(f"{value:.6g}")))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid()

    hits = format_percent_up(known.found_at_one_in_a_hundred)
    yield Figure(
        "attack",
        "Best possible membership attack",
        render("attack", roc, (PANEL, _HEIGHT)),
        "Line chart of the true positive rate of the best membership attack against its false positive rate. It exceeds the "
        f"false positive rate by at most {format_percent_up(known.advantage)} and is at most {hits} at 1 % false positives.",
        "No attack lies above the solid line, whatever the attacker knows.",
    )
    yield Figure(
        "profile",
        "All pairs (ε, δ) that hold",
        render("profile", pairs, (PANEL, _HEIGHT)),
        f"Line chart of δ against ε, down to δ = {numbers.format_power_of_ten(claimed.delta)} at "
        f"ε = {numbers.format_epsilon(claimed.epsilon)}.",
        "The dot is the stated guarantee.",
    )


def _draw_accountants(claimed: StoredGuarantee | None) -> Iterator[Figure]:
    known = [(accountants.describe(key), value) for key, value in claimed.epsilon_by_accountant.items()] if claimed else []
    finite = [(accountant, value) for accountant, value in known if value is not None and math.isfinite(value)]
    bars = [(accountant, value) for accountant, value in finite if not accountant.is_textbook] or finite
    if not bars:
        return

    def drawing(canvas: Canvas) -> None:
        axes: Axes = canvas.subplots()
        for place, (accountant, value) in enumerate(bars):
            sure = accountant.is_bound
            axes.barh(place, value, 0.36, facecolor=BLUE if sure else PAPER, edgecolor=BLUE, hatch="" if sure else "/////")
            axes.annotate(accountant.show(value), (value, place), (5, 0), textcoords="offset points", va="center", color=INK)
            axes.annotate(f"{accountant.name}: {accountant.direction}", (0, place - 0.24), (1, 1), textcoords="offset points")
        axes.margins(x=0.16)
        axes.set(xlim=(0, None), ylim=(len(bars) - 0.65, -0.75), yticks=[], xlabel="ε of the whole run")

    shown = (f"{accountant.name} {accountant.show(value)} ({accountant.direction})" for accountant, value in bars)
    left_out = [accountant.name.lower() for accountant, _ in finite if accountant.is_textbook and len(bars) < len(finite)]
    caption = "Solid: upper bounds on the true ε. Hatched: approximations that can be too small."
    if left_out:
        caption += f" The much larger values of {' and '.join(left_out)} composition are in the table."
    yield Figure(
        "accountants", "ε of this run by accountant", render("accountants", drawing, (PANEL, 0.55 + 0.46 * len(bars))),
        f"Bar chart of ε by accountant: {', '.join(shown)}.", caption,
    )  # fmt: skip


def _draw_communication(measurements: Sequence[Measurement]) -> Iterator[Figure]:
    """Yield test results against the bytes that clients have sent and received, if both were recorded."""
    shares = [(m, 100 * m.test_accuracy) for m in measurements if m.test_accuracy is not None]
    errors = [(m, m.test_error) for m in measurements if m.test_error is not None]
    found, axis = (shares, "test accuracy in %") if shares else (errors, "test RMSE")
    points = [(m.communicated, m.communicated_dense, value) for m, value in found if m.communicated and m.communicated_dense]
    if not points:
        return
    sent, dense, values = zip(*points, strict=True)
    power, unit = (1e9, "GB") if dense[-1] >= 1e9 else (1e6, "MB") if dense[-1] >= 1e6 else (1e3, "kB")
    sparse = sent != dense

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        if sparse:
            axes.plot([size / power for size in dense], values, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="dense")
        axes.plot([size / power for size in sent], values, color=ORANGE, linewidth=1.6, label="as sent")
        axes.set(xlim=(0, None), xlabel=f"{unit} sent and received by all clients", ylabel=axis)
        axes.grid(axis="y")
        if sparse:
            axes.legend(loc="lower right", frameon=False)

    shown = f"{values[-1]:.4g} after {numbers.format_bytes(sent[-1])}"
    caption = "Dashed: the same results if updates were sent whole." if sparse else ""
    yield Figure(
        "communication", "Test result by bytes", render("communication", drawing, (PANEL, _HEIGHT)),
        f"Line chart of the test result against the bytes that clients sent and received; {axis} is {shown}.", caption,
    )  # fmt: skip


def _draw_calibration(evaluation: Evaluation) -> Iterator[Figure]:
    """Yield `calibration`, `confidence` and `true-class`, if the evaluation has the data for them."""
    if evaluation.calibration is None or evaluation.true_class is None:
        return
    table, examples = evaluation.calibration, f"{evaluation.examples:,} test examples"
    figures: tuple[tuple[str, str, TableDisplay, str, str], ...] = (
        (
            "calibration", "Confidence and how often it is right", ReliabilityDisplay(table),
            f"Reliability diagram, expected calibration error {numbers.format_percent(table.expected_error)}.",
            "On the dashed diagonal the model is calibrated; below it, overconfident. Bars are 95 % intervals, wide bands the "
            "gaps.",
        ),
        (
            "confidence", "Confidence", ConfidenceDisplay(table),
            f"Histogram of the confidence of the predicted class over {examples}.", "Hatched: wrong predictions.",
        ),
        (
            "true-class", "Probability of the true class", TrueClassDisplay(evaluation.true_class),
            f"Histogram of the probability of the true class over {examples}.", "Confident errors are on the left.",
        ),
    )  # fmt: skip
    for name, title, display, label, caption in figures:
        svg = render(name, lambda canvas, display=display: display.plot(canvas.subplots()), (PANEL, 2.9))  # type: ignore[misc]
        yield Figure(name, title, svg, label, caption)
