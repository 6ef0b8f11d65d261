"""The five numbers of a run: guarantee, attack, quality, training and noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from privet.accounting.rounding import format_percent_up
from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation, wilson_interval
from privet.report import numbers
from privet.report.run_files import Run, StoredGuarantee

_NEIGHBOURS = {"add-remove": "added or removed", "replace-one": "replaced", "zero-out": "blanked out"}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured number, a share in [0, 1] shown in per cent, with its 95 % interval and its definition in one sentence."""

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
    "majority_share": ("Majority share", True, "Fraction of the most frequent class: the accuracy of always predicting it."),
    "auroc": (
        "AUROC", False,
        "Probability that an example of a class scores higher than one of another class, mean over the classes: 0.5 by chance.",
    ),
    "balanced_accuracy": ("Balanced accuracy", True, "Mean of the recalls: every class counts alike."),
    "negative_log_likelihood": ("Negative log-likelihood", False, "Mean of −ln p(true class), in nats."),
    "brier": ("Brier score", False, "Mean squared error of the probability vector: 0 is best, 2 is worst."),
    "expected_calibration_error": ("Expected calibration error", True, "Mean gap between confidence and accuracy."),
    "root_mean_square_calibration_error": (
        "Root mean square calibration error", True, "Root mean square of these gaps, which weights large gaps more.",
    ),
    "maximum_calibration_error": ("Maximum calibration error", True, "Gap in the worst bin, however few examples it has."),
}  # fmt: skip
_REGRESSION = {
    "root_mean_squared_error": ("RMSE", False, "Root mean squared error, in the unit of the target."),
    "mean_absolute_error": ("MAE", False, "Mean distance of a prediction from its target, in the unit of the target."),
    "r_squared": (
        "R²", False, "Fraction of the targets' variance that the predictions explain: 1 is best, 0 is the mean target.",
    ),
}  # fmt: skip
_HIGHER_IS_BETTER = frozenset({"accuracy", "r_squared"})
# Classes whose recalls fit into one line; of more, the lowest and the highest are shown.
_FEW_CLASSES = 6
_RARE = ("AUROC", "Balanced accuracy")


def list_estimates(evaluation: Evaluation | RegressionEvaluation) -> tuple[Estimate, ...]:
    """Return the numbers of an evaluation, the most important first.

    Accuracy is a proportion and always has the Wilson interval; all others have the evaluation's bootstrap interval.
    """
    own: dict[str, tuple[float, float] | None]
    if isinstance(evaluation, Evaluation):
        known, own = _CLASSIFICATION, {"accuracy": wilson_interval(evaluation.accuracy, evaluation.examples)}
    else:
        known, own = _REGRESSION, {"root_mean_squared_error": evaluation.error_interval}
    return _collect(known, {field: getattr(evaluation, field) for field in known}, {**evaluation.intervals, **own})


def list_recalls(evaluation: Evaluation | RegressionEvaluation) -> tuple[Estimate, ...]:
    """Return the recall of every class with examples, with its Wilson interval; none of a regression."""
    if not isinstance(evaluation, Evaluation):
        return ()
    found = zip(evaluation.names, evaluation.recalls, evaluation.class_sizes, strict=True)
    return tuple(
        Estimate(f"Recall of {name!r}", recall, wilson_interval(recall, size), f"Of {size:,} examples.", True)
        for name, recall, size in found
        if recall is not None
    )


def describe_classes(evaluation: Evaluation | RegressionEvaluation | None) -> str:
    """Return what accuracy hides of rare classes, in one line; empty for a regression."""
    if not isinstance(evaluation, Evaluation):
        return ""
    shown = [f"{one.noun} {one.with_interval}" for one in list_estimates(evaluation) if one.name in _RARE]
    recalls = [(one.value, f"{one.name.removeprefix('Recall of ')} {one.shown}") for one in list_recalls(evaluation)]
    few = len(recalls) <= _FEW_CLASSES
    told = (", " if few else " to ").join(text for _, text in (recalls if few else (min(recalls), max(recalls))))
    always = f"always predicting {evaluation.majority_class!r}: {numbers.format_percent(evaluation.majority_share)}"
    return "; ".join((always, *shown, f"recall: {told}"))


def warn_of_majority(evaluation: Evaluation | RegressionEvaluation | None) -> tuple[str, ...]:
    """Return a warning if the accuracy is not significantly above that of always predicting the most frequent class."""
    if not isinstance(evaluation, Evaluation):
        return ()
    low, high = wilson_interval(evaluation.accuracy, evaluation.examples)
    share = evaluation.majority_share
    if low > share:
        return ()
    relation = "a higher" if high < share else "the same"
    return (
        f"always predicting {evaluation.majority_class!r} has {relation} accuracy, {numbers.format_percent(share)} (the model's "
        f'is within {100 * low:.2f} to {numbers.format_percent(high)}). Judge by AUROC and recalls: "Rare classes" in '
        "docs/guide/results.md",
    )


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


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """One of the five numbers, for display: its name and what it means here. Runs are ordered by `amount`."""

    key: str
    name: str
    value: str
    amount: float
    about: str
    detail: str = ""


def list_numbers(run: Run) -> tuple[KeyNumber, ...]:
    """Return the numbers that a run's files hold, in this order: ε and δ, attack, quality, steps, noise."""
    return (*_privacy(run.guarantee), *_attack(run.guarantee), *_quality(run), *_training(run), *_noise(run))


def attack_limit(claimed: StoredGuarantee) -> float:
    """Return the largest share of right guesses of an attacker who knows that membership is a fair coin flip.

    Without the recorded curve of all pairs, this is what the stated pair (ε, δ) implies alone: (e^ε + δ) / (1 + e^ε).
    """
    if math.isinf(claimed.epsilon):
        return 1.0
    if claimed.meaning is not None:
        return 1 - claimed.meaning.bayes_risk
    return 1 - (1 - claimed.delta) / (1 + math.exp(min(claimed.epsilon, 700.0)))


def _privacy(claimed: StoredGuarantee | None) -> Iterator[KeyNumber]:
    if claimed is not None:
        slack = f"δ = {numbers.format_power_of_ten(claimed.delta)}"
        differs = _NEIGHBOURS.get(claimed.adjacency, claimed.adjacency)
        about = f"at {slack}, for {claimed.unit} {differs}".rstrip()
        yield KeyNumber(
            "epsilon", "Privacy loss ε", numbers.format_epsilon(claimed.epsilon), claimed.epsilon, about, f"at {slack}"
        )


def _attack(claimed: StoredGuarantee | None) -> Iterator[KeyNumber]:
    if claimed is None:
        return
    name, limit = "An attacker is right", attack_limit(claimed)
    if math.isinf(claimed.epsilon):
        yield KeyNumber("attack", name, "no limit", limit, f"The model may reveal everything about {claimed.unit}.")
        return
    about = f"of the time when guessing whether {claimed.unit} was in the data; a coin flip: 50\N{NO-BREAK SPACE}%"
    yield KeyNumber("attack", name, f"≤\N{NO-BREAK SPACE}{format_percent_up(limit)}", limit, about)


def _quality(run: Run) -> Iterator[KeyNumber]:
    if run.evaluation is not None:
        best = headline(run.evaluation)
        examples = f"{run.evaluation.examples:,} test examples"
        about = f"95 % interval {best.interval_shown}, {examples}" if best.interval else examples
        about = "; ".join(filter(None, (about, describe_classes(run.evaluation))))
        yield KeyNumber("quality", f"Test {best.noun}", best.shown, best.value, about, best.interval_shown)
        return
    for m in [m for m in run.measurements if m.test_accuracy is not None or m.test_error is not None][-1:]:
        after = f"after step {m.step:,}"
        if m.test_accuracy is not None:
            yield KeyNumber("quality", "Test accuracy", numbers.format_percent(m.test_accuracy), m.test_accuracy, after, after)
        elif m.test_error is not None:
            yield KeyNumber("quality", "Test RMSE", numbers.format_measurement(m.test_error), m.test_error, after, after)
        return
    if run.held_out is not None:
        best, found = list_released(run.held_out)[0], run.held_out
        released = f"released with noise at ε = {numbers.format_epsilon(found.epsilon)}"
        about = f"95 % interval {best.interval_shown}, {found.examples:,} private {found.unit}s, {released}"
        yield KeyNumber("quality", f"Held-out {best.noun}", best.shown, best.value, about, best.interval_shown)
        return
    # An unfinished run has no such key: it has not recorded yet whether it has test data.
    if "test_data" in run.setup and run.setup["test_data"] is None:
        about = "no public test data (--test) and no paid estimate (--holdout)"
        yield KeyNumber("quality", "Test result", "not measured", math.nan, about)


def _training(run: Run) -> Iterator[KeyNumber]:
    status, last = run.status, run.measurements[-1] if run.measurements else None
    done = status.steps_done if status else last.step if last else None
    if done is None:
        return
    batch, examples, seconds = run.planned("sampling", "batch_size"), run.planned("examples"), run.setup.get("seconds")
    took = numbers.format_duration(seconds) if isinstance(seconds, int | float) else ""
    parts = [f"{took} of training"] if took else []
    if isinstance(batch, int | float) and isinstance(examples, int):
        parts.append(f"batches of {numbers.format_value(float(batch))} out of {examples:,}")
    planned = f" of {status.steps_planned:,}" if status and not status.complete and status.steps_planned else ""
    yield KeyNumber("steps", "Steps", f"{done:,}{planned}", done, "; ".join(parts), took)


def _noise(run: Run) -> Iterator[KeyNumber]:
    multiplier = run.planned("noise", "multiplier")
    if not isinstance(multiplier, int | float):
        return
    bound = run.planned("clipping", "bound")
    unit = f"the clipping bound, {bound:.4g}" if isinstance(bound, int | float) else "the clipping bound"
    about = f"standard deviation of each step's noise in units of {unit}"
    yield KeyNumber("noise", "Noise multiplier", f"{multiplier:.4g}", multiplier, about)
