"""How far a model's confidence can be believed: as a figure, and as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure as Canvas

from privet.evaluation import ConfidenceDisplay, Evaluation, ReliabilityDisplay, TrueClassDisplay
from privet.report import numbers
from privet.report.figures.svg import WIDTH, Figure, render

NAME = "calibration"

# Name, the field of an evaluation, whether it is a share, and what it is.
_NUMBERS = (
    ("Accuracy", "accuracy", True, "Share of test examples that were classified correctly."),
    ("Negative log-likelihood", "negative_log_likelihood", False, "Mean of −ln p(true class), in nats."),
    ("Brier score", "brier", False, "Mean squared distance of the probabilities from the truth: 0 is perfect, 2 the worst."),
    ("Expected calibration error", "expected_calibration_error", True, "Mean distance of confidence from accuracy."),
    (
        "Root mean square calibration error",
        "root_mean_square_calibration_error",
        True,
        "The same, large distances weighing more.",
    ),
    ("Maximum calibration error", "maximum_calibration_error", True, "Distance in the worst bin, however few examples it holds."),
)


def rows(evaluation: Evaluation) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value with its interval, meaning) of every number that an evaluation has."""
    for name, field, share, meaning in _NUMBERS:
        value = getattr(evaluation, field)
        if value is None:
            continue
        shown = numbers.percent(value) if share else f"{value:.4f}"
        if interval := evaluation.intervals.get(field):
            low, high = (100 * end if share else end for end in interval)
            shown += f" ({low:.2f} to {high:.2f})" if share else f" ({low:.4f} to {high:.4f})"
        yield name, shown, meaning


def figures(evaluation: Evaluation | None) -> Iterator[Figure]:
    """Yield the figure `calibration`, if the evaluation has what it takes: reliability beside confidence."""
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
        f"Reliability diagram, expected calibration error {numbers.percent(table.expected_error)}; histograms of the confidence "
        "and of the probability of the true class.",
        "Left: on the dashed diagonal, confidence is what it says; below it the model is overconfident. Bars are 95 % Wilson "
        f"intervals, coloured lines the gaps. Right: how many of the {evaluation.examples:,} test examples were given how much "
        "confidence; hatched are those that were classified wrongly.",
    )
