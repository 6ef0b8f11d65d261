"""Measured numbers of a model, each with the one interval that is shown everywhere."""

from __future__ import annotations

__all__ = ["Estimate", "headline", "list_estimates", "list_released"]

from collections.abc import Iterator
from dataclasses import dataclass

from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation, wilson_interval
from privet.report import numbers


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured number.

    Args:
        name: name of the metric.
        value: the number; a share is in [0, 1].
        interval: its 95 % interval; None if not measured.
        definition: what it is, in one sentence.
        is_share: whether it is shown in per cent.
        higher_is_better: whether a better model has a larger value.
    """

    name: str
    value: float
    interval: tuple[float, float] | None
    definition: str
    is_share: bool
    higher_is_better: bool = False

    @property
    def shown(self) -> str:
        """The number for display."""
        return numbers.format_percent(self.value) if self.is_share else numbers.format_measurement(self.value)

    @property
    def with_interval(self) -> str:
        """The number and its interval for display."""
        return f"{self.shown} ({self.interval_shown})" if self.interval else self.shown

    @property
    def noun(self) -> str:
        """Its name within a sentence, as in "accuracy"."""
        return self.name if self.name[:2].isupper() else f"{self.name[:1].lower()}{self.name[1:]}"

    @property
    def interval_shown(self) -> str:
        """The interval for display, as in "74.08 to 82.54 %"; empty without one."""
        if self.interval is None:
            return ""
        low, high = self.interval
        if self.is_share:
            return f"{100 * low:.2f} to {numbers.format_percent(high)}"
        return f"{numbers.format_measurement(low)} to {numbers.format_measurement(high)}"


# Name, field of an evaluation, whether it is a share, and definition.
_CLASSIFICATION = (
    ("Accuracy", "accuracy", True, "Fraction of test examples that are classified correctly."),
    ("Balanced accuracy", "balanced_accuracy", True, "Mean over the classes of the fraction that is classified correctly."),
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


# Field of an evaluation → name and definition.
_ERRORS = {
    "root_mean_squared_error": ("RMSE", "Root mean squared error, in the unit of the target."),
    "mean_absolute_error": (
        "MAE",
        "Mean absolute error: the mean distance of a prediction from its target, in the target's unit.",
    ),
}


def list_estimates(evaluation: Evaluation | RegressionEvaluation) -> tuple[Estimate, ...]:
    """Return the numbers of an evaluation, the most important first.

    Accuracy is a proportion, so it has the Wilson interval at every step of a training and in every comparison. All other
    numbers have the bootstrap interval that was computed with the evaluation.
    """
    found = _classification(evaluation) if isinstance(evaluation, Evaluation) else _regression(evaluation)
    return tuple(found)


def list_released(estimate: HeldOutEstimate) -> tuple[Estimate, ...]:
    """Return the released numbers of held-out private data, the most important first; their intervals include the noise."""
    found = []
    for field in ("accuracy", *_ERRORS):
        if field in estimate.metrics:
            name, definition = _ERRORS.get(field, ("Accuracy", "Fraction of held-out examples that are classified correctly."))
            value, interval, counted = estimate.metrics[field], estimate.intervals.get(field), field == "accuracy"
            found.append(Estimate(name, value, interval, definition, is_share=counted, higher_is_better=counted))
    return tuple(found)


def headline(evaluation: Evaluation | RegressionEvaluation) -> Estimate:
    """Return the number that a model is judged by: accuracy, or the root mean squared error of a regression."""
    return list_estimates(evaluation)[0]


def _classification(evaluation: Evaluation) -> Iterator[Estimate]:
    for name, field, is_share, definition in _CLASSIFICATION:
        value = getattr(evaluation, field)
        if value is None:
            continue
        counted = field == "accuracy"
        interval = wilson_interval(value, evaluation.examples) if counted else evaluation.intervals.get(field)
        yield Estimate(name, value, interval, definition, is_share, higher_is_better=counted)


def _regression(evaluation: RegressionEvaluation) -> Iterator[Estimate]:
    yield Estimate(
        "RMSE",
        evaluation.root_mean_squared_error,
        evaluation.error_interval,
        _ERRORS["root_mean_squared_error"][1],
        is_share=False,
    )
    yield Estimate(
        "MAE",
        evaluation.mean_absolute_error,
        evaluation.intervals.get("mean_absolute_error"),
        _ERRORS["mean_absolute_error"][1],
        is_share=False,
    )
    if evaluation.r_squared is not None:
        yield Estimate(
            "R²",
            evaluation.r_squared,
            evaluation.intervals.get("r_squared"),
            "Fraction of the targets' variance that the predictions explain: 1 is best, 0 is the mean target.",
            is_share=False,
            higher_is_better=True,
        )
