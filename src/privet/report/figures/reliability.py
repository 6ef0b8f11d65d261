"""Calibration of a model: a figure and the rows of a table."""

from __future__ import annotations

__all__ = ["NAME", "draw", "list_metrics"]

from collections.abc import Iterator

from matplotlib.figure import Figure as Canvas

from privet.evaluation import ConfidenceDisplay, Evaluation, ReliabilityDisplay, TrueClassDisplay
from privet.report import numbers
from privet.report.figures.svg import WIDTH, Figure, render

NAME = "calibration"

# Name, field of an evaluation, whether it is a share, and definition.
_NUMBERS = (
    ("Accuracy", "accuracy", True, "Fraction of test examples that are classified correctly."),
    ("Negative log-likelihood", "negative_log_likelihood", False, "Mean of −ln p(true class), in nats."),
    ("Brier score", "brier", False, "Mean squared error of the probability vector: 0 is best, 2 is worst."),
    ("Expected calibration error", "expected_calibration_error", True, "Mean gap between confidence and accuracy."),
    (
        "Root mean square calibration error",
        "root_mean_square_calibration_error",
        True,
        "Root mean square of these gaps, which weights large gaps more.",
    ),
    ("Maximum calibration error", "maximum_calibration_error", True, "Gap in the worst bin, however few examples it has."),
)


def list_metrics(evaluation: Evaluation) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value with its interval, definition) for each metric of an evaluation."""
    for name, field, share, meaning in _NUMBERS:
        value = getattr(evaluation, field)
        if value is None:
            continue
        shown = numbers.format_percent(value) if share else f"{value:.4f}"
        if interval := evaluation.intervals.get(field):
            low, high = (100 * end if share else end for end in interval)
            shown += f" ({low:.2f} to {high:.2f})" if share else f" ({low:.4f} to {high:.4f})"
        yield name, shown, meaning


def draw(evaluation: Evaluation | None) -> Iterator[Figure]:
    """Yield the figure `calibration` (reliability and confidence), if the evaluation has the data for it."""
    if evaluation is None or evaluation.calibration is None or evaluation.true_class is None:
        return
    table, true_class = evaluation.calibration, evaluation.true_class

    def drawing(canvas: Canvas) -> None:
        grid = canvas.subplot_mosaic([["reliability", "confidence"], ["reliability", "true class"]], width_ratios=[1.2, 1])
        ReliabilityDisplay(table).plot(grid["reliability"])
        ConfidenceDisplay(table).plot(grid["confidence"])
        TrueClassDisplay(true_class).plot(grid["true class"])

    yield Figure(
        NAME,
        render(NAME, drawing, (WIDTH, 3.6)),
        f"Reliability diagram, expected calibration error {numbers.format_percent(table.expected_error)}; histograms of the "
        "confidence and of the probability of the true class.",
        "Left: on the dashed diagonal, the model is calibrated; below it, overconfident. Bars are 95 % Wilson intervals, "
        f"coloured lines the gaps. Right: histograms over {evaluation.examples:,} test examples; misclassified ones are hatched.",
    )
