"""Figures of a classifier's calibration."""

from __future__ import annotations

__all__ = ["draw"]

from collections.abc import Iterator

from matplotlib.figure import Figure as Canvas

from privet.evaluation import ConfidenceDisplay, Evaluation, ReliabilityDisplay, TrueClassDisplay
from privet.evaluation.displays import TableDisplay
from privet.report import numbers
from privet.report.figures.svg import PANEL, Figure, render


def draw(evaluation: Evaluation | None) -> Iterator[Figure]:
    """Yield `calibration`, `confidence` and `true-class`, if the evaluation has the data for them."""
    if evaluation is None or evaluation.calibration is None or evaluation.true_class is None:
        return
    table, examples = evaluation.calibration, f"{evaluation.examples:,} test examples"
    yield Figure(
        "calibration",
        "Confidence and how often it is right",
        _render("calibration", ReliabilityDisplay(table), height=2.9),
        f"Reliability diagram, expected calibration error {numbers.format_percent(table.expected_error)}.",
        "On the dashed diagonal the model is calibrated; below it, overconfident. Bars are 95 % intervals, wide bands the gaps.",
    )
    yield Figure(
        "confidence",
        "Confidence",
        _render("confidence", ConfidenceDisplay(table)),
        f"Histogram of the confidence of the predicted class over {examples}.",
        "Hatched: wrong predictions.",
    )
    yield Figure(
        "true-class",
        "Probability of the true class",
        _render("true-class", TrueClassDisplay(evaluation.true_class)),
        f"Histogram of the probability of the true class over {examples}.",
        "Confident errors are on the left.",
    )


def _render(name: str, display: TableDisplay, height: float = 2.9) -> str:
    def drawing(canvas: Canvas) -> None:
        display.plot(canvas.subplots())

    return render(name, drawing, (PANEL, height))
