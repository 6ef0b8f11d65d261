"""Measured numbers of a model, each with the one interval that is shown everywhere."""

from __future__ import annotations

__all__ = ["Estimate", "headline", "list_estimates", "list_released"]

from collections.abc import Mapping
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


# Field of an evaluation → name, whether it is a share, and definition; the most important first.
_CLASSIFICATION = {
    "accuracy": ("Accuracy", True, "Fraction of examples that are classified correctly."),
    "balanced_accuracy": ("Balanced accuracy", True, "Mean over the classes of the fraction that is classified correctly."),
    "negative_log_likelihood": ("Negative log-likelihood", False, "Mean of −ln p(true class), in nats."),
    "brier": ("Brier score", False, "Mean squared error of the probability vector: 0 is best, 2 is worst."),
    "expected_calibration_error": ("Expected calibration error", True, "Mean gap between confidence and accuracy."),
    "root_mean_square_calibration_error": (
        "Root mean square calibration error", True, "Root mean square of these gaps, which weights large gaps more.",
    ),
    "maximum_calibration_error": (
        "Maximum calibration error", True, "Gap in the worst bin, however few examples it has.",
    ),
}  # fmt: skip
_REGRESSION = {
    "root_mean_squared_error": ("RMSE", False, "Root mean squared error, in the unit of the target."),
    "mean_absolute_error": ("MAE", False, "Mean distance of a prediction from its target, in the unit of the target."),
    "r_squared": (
        "R²", False, "Fraction of the targets' variance that the predictions explain: 1 is best, 0 is the mean target.",
    ),
}  # fmt: skip
_HIGHER_IS_BETTER = frozenset({"accuracy", "r_squared"})


def list_estimates(evaluation: Evaluation | RegressionEvaluation) -> tuple[Estimate, ...]:
    """Return the numbers of an evaluation, the most important first.

    Accuracy is a proportion, so it has the Wilson interval at every step of a training and in every comparison. All other
    numbers have the bootstrap interval that was computed with the evaluation.
    """
    own: dict[str, tuple[float, float] | None]
    if isinstance(evaluation, Evaluation):
        known, own = _CLASSIFICATION, {"accuracy": wilson_interval(evaluation.accuracy, evaluation.examples)}
    else:
        known, own = _REGRESSION, {"root_mean_squared_error": evaluation.error_interval}
    return _collect(known, {field: getattr(evaluation, field) for field in known}, {**evaluation.intervals, **own})


def list_released(estimate: HeldOutEstimate) -> tuple[Estimate, ...]:
    """Return the released numbers of held-out private data, the most important first; their intervals include the noise."""
    return _collect(_CLASSIFICATION | _REGRESSION, estimate.metrics, estimate.intervals)


def headline(evaluation: Evaluation | RegressionEvaluation) -> Estimate:
    """Return the number that a model is judged by: accuracy, or the root mean squared error of a regression."""
    return list_estimates(evaluation)[0]


def _collect(
    known: Mapping[str, tuple[str, bool, str]],
    values: Mapping[str, float | None],
    intervals: Mapping[str, tuple[float, float] | None],
) -> tuple[Estimate, ...]:
    return tuple(
        Estimate(name, value, intervals.get(field), definition, is_share, field in _HIGHER_IS_BETTER)
        for field, (name, is_share, definition) in known.items()
        if (value := values.get(field)) is not None
    )
