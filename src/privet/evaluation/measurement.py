"""Evaluation of classifiers and regressions on labelled examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InvalidArgumentError, choice, count
from privet.evaluation.bins import BINS, equal_mass, equal_width, tabulate
from privet.evaluation.interval import bootstrap_interval, wilson_interval
from privet.evaluation.outputs import LabelledExamples, iterate_outputs
from privet.evaluation.ranking import Floats, rank_classes
from privet.evaluation.result import Evaluation, GroupAccuracy, Intervals, RegressionEvaluation


class _Scores(NamedTuple):
    """Scores of the examples, each of shape (N,)."""

    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    losses: Floats  # nats
    squares: Floats  # Brier
    confidence: Floats  # of the prediction
    true_class: Floats  # probability of the label

    @property
    def correct(self) -> NDArray[np.bool_]:
        return np.equal(self.labels, self.predictions)


_EDGES: dict[str, Callable[[Floats, int], tuple[float, ...]]] = {"width": lambda _, bins: equal_width(bins), "mass": equal_mass}


def evaluate(
    model: nn.Module,
    dataset: LabelledExamples,
    *,
    batch_size: int = 1024,
    device: torch.device | str | None = None,
    bins: int = BINS,
    binning: str = "width",
    groups: Sequence[object] | None = None,
    resamples: int = 0,
    class_names: Sequence[str] = (),
) -> Evaluation:
    """Evaluate a classifier on labelled examples, in evaluation mode and without gradients.

    The result has no noise: evaluating on private data is a release outside the guarantee of the training. The command line
    evaluates on public test sets only.

    Args:
        model: maps a batch of inputs to logits of shape (B, classes). It is not changed.
        dataset: pairs of an input tensor and a label in [0, classes).
        batch_size: examples per forward pass, ≥ 1; changes memory and speed, not the result.
        device: device of the model, to which inputs are moved; None for the device of the model's first parameter.
        bins: number of calibration bins, ≥ 1.
        binning: "width" for bins of equal width, "mass" for bins with about equally many examples.
        groups: group of each example, in the order of the data set; None for no groups.
        resamples: number of bootstrap resamples for the intervals; 0 for no intervals, 1000 is typical. Accuracy has the Wilson
            interval, AUROC that of DeLong et al. 1988.
        class_names: names of the classes in order; none for the numbers from 0.

    >>> test = torch.utils.data.TensorDataset(torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4))
    >>> found = evaluate(nn.Identity(), test, groups=["left", "right"] * 6)
    >>> found.accuracy, round(found.expected_calibration_error, 4), [(one.group, one.accuracy) for one in found.groups]
    (1.0, 0.4239, [('left', 1.0), ('right', 1.0)])
    """
    choice("binning", binning, _EDGES)
    count("resamples", resamples, minimum=0)
    if groups is not None and len(groups) != len(dataset):
        raise InvalidArgumentError("len(groups)", len(groups), f"{len(dataset)}, one per example")
    parts, likelihoods = [], []
    for logits, labels in iterate_outputs(model, dataset, batch_size, device):
        parts.append(_score(logits, labels))
        likelihoods.append(logits.double().log_softmax(1).numpy())  # probabilities near 1 would be equal
    classes = likelihoods[0].shape[1]
    whole = _Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    edges = _EDGES[binning](whole.confidence, bins)
    auroc, interval = rank_classes(whole.labels, np.concatenate(likelihoods))
    ranked = {} if interval is None else {"auroc": interval}
    confusion = np.bincount(whole.labels * classes + whole.predictions, minlength=classes**2).reshape(classes, classes)
    return Evaluation(
        accuracy=float(whole.correct.mean()),
        negative_log_likelihood=float(whole.losses.mean()),
        confusion=tuple(map(tuple, confusion.tolist())),
        examples=len(whole.labels),
        brier=float(whole.squares.mean()),
        calibration=tabulate(whole.confidence, whole.correct, edges),
        true_class=tabulate(whole.true_class, whole.correct, equal_width(bins)),
        intervals={**_intervals(whole, edges, resamples), **ranked} if resamples else {},
        groups=() if groups is None else _accuracy_by_group(whole.correct, groups),
        auroc=auroc,
        class_names=tuple(map(str, class_names)),
    )


def _score(outputs: Tensor, labels: Tensor) -> _Scores:
    if outputs.ndim != 2 or len(outputs) != len(labels):
        fix = "Wrap the model so that it returns logits."
        raise InvalidArgumentError("the shape of model(inputs)", tuple(outputs.shape), f"({len(labels)}, classes)", fix)
    logits, targets, classes = outputs.double(), labels.long(), outputs.shape[1]
    if targets.ndim != 1 or targets.min() < 0 or targets.max() >= classes:
        found = sorted(set(targets.flatten().tolist()))[:10]
        raise InvalidArgumentError("labels", found, f"class numbers from 0 to {classes - 1}, one per example")
    probabilities = logits.softmax(1)
    columns = (
        targets,
        logits.argmax(1),
        F.cross_entropy(logits, targets, reduction="none"),
        (probabilities - F.one_hot(targets, classes)).square().sum(1),
        probabilities.amax(1),
        probabilities.gather(1, targets[:, None])[:, 0],
    )
    return _Scores(*(column.numpy() for column in columns))


# Metrics with bootstrap intervals, and their largest possible values. The MCE has none: it depends on the single worst bin,
# often the one with the fewest examples, and bootstrap intervals cover it less than half of the time.
_UPPER_LIMITS = {
    "negative_log_likelihood": np.inf,
    "brier": 2.0,
    "expected_calibration_error": 1.0,
    "root_mean_square_calibration_error": 1.0,
}


def _intervals(scores: _Scores, edges: tuple[float, ...], resamples: int) -> Intervals:
    def metrics(*columns: NDArray[Any]) -> tuple[float, ...]:  # those of `_UPPER_LIMITS`, in this order
        drawn = _Scores(*columns)
        table = tabulate(drawn.confidence, drawn.correct, edges)
        return float(drawn.losses.mean()), float(drawn.squares.mean()), table.expected_error, table.root_mean_square_error

    low, high = bootstrap_interval(metrics, *scores, resamples=resamples)
    limits = np.array([*_UPPER_LIMITS.values()])  # a basic interval may extend beyond the possible values
    ends = zip(low.clip(0, limits).tolist(), high.clip(0, limits).tolist(), strict=True)
    # Accuracy is a proportion, so its interval needs no resampling.
    return {
        "accuracy": wilson_interval(float(scores.correct.mean()), len(scores.correct)),
        **dict(zip(_UPPER_LIMITS, ends, strict=True)),
    }


def _accuracy_by_group(correct: NDArray[np.bool_], groups: Sequence[object]) -> tuple[GroupAccuracy, ...]:
    names, which = np.unique([str(group) for group in groups], return_inverse=True)
    sizes, hits = np.bincount(which, minlength=len(names)), np.bincount(which, correct, minlength=len(names))
    return tuple(GroupAccuracy(str(name), int(size), int(hit)) for name, size, hit in zip(names, sizes, hits, strict=True))


def evaluate_regression(
    model: nn.Module,
    dataset: LabelledExamples,
    *,
    batch_size: int = 1024,
    device: torch.device | str | None = None,
    resamples: int = 0,
    restore: Callable[[Floats], Floats] | None = None,
) -> RegressionEvaluation:
    """Evaluate a model with one output on examples with targets, in evaluation mode and without gradients.

    The result has no noise and no guarantee, as for `evaluate`.

    Args:
        model: maps a batch of inputs to outputs of shape (B,) or (B, 1).
        dataset: pairs of an input tensor and a target, which is a number or a tensor with one element. Examples without a target
            (NaN) are left out.
        batch_size, device, resamples: as for `evaluate`.
        restore: scaled outputs or targets (N,) → numbers in the target's unit, such as `Schema.decode`; None to compare as given.

    >>> test = torch.utils.data.TensorDataset(torch.tensor([[1.0], [2.0]]), torch.tensor([1.5, 4.0]))
    >>> evaluate_regression(nn.Identity(), test).mean_absolute_error
    1.25
    """
    count("resamples", resamples, minimum=0)
    found, expected = [], []
    for outputs, targets in iterate_outputs(model, dataset, batch_size, device):
        if outputs.numel() != len(targets) or targets.numel() != len(targets):
            name, shapes = "the shapes of model(inputs) and of the targets", (tuple(outputs.shape), tuple(targets.shape))
            allowed = f"({len(targets)},) or ({len(targets)}, 1): one number per example"
            raise InvalidArgumentError(name, shapes, allowed, "Wrap the model.")
        found.append(outputs.double().flatten().numpy())
        expected.append(targets.double().flatten().numpy())
    truth = np.concatenate(expected)
    predicted, truth = np.concatenate(found)[~np.isnan(truth)], truth[~np.isnan(truth)]
    if len(truth) == 0:
        raise InvalidArgumentError("the targets", "missing in every example", "given in at least one example")
    if restore is not None:
        predicted, truth = restore(predicted), restore(truth)
    values = _measure(predicted, truth)
    intervals = {}
    if resamples:
        low, high = bootstrap_interval(_measure, predicted, truth, resamples=resamples)
        ends = zip(np.maximum(low, _LOWEST).tolist(), np.minimum(high, _HIGHEST).tolist(), strict=True)
        intervals = {name: pair for name, pair in zip(_METRICS, ends, strict=True) if not np.isnan(pair).any()}
    squared, absolute, explained = values.tolist()
    return RegressionEvaluation(squared, absolute, len(truth), intervals, None if np.isnan(explained) else explained)


_METRICS = ("mean_squared_error", "mean_absolute_error", "r_squared")
_LOWEST, _HIGHEST = np.array([0.0, 0.0, -np.inf]), np.array([np.inf, np.inf, 1.0])  # a basic interval may extend beyond


def _measure(predicted: Floats, truth: Floats) -> Floats:
    """Return the metrics, (3,); R² is NaN if all targets are equal."""
    residuals, spread = predicted - truth, truth.var()
    squared = np.square(residuals).mean()
    return np.array([squared, np.abs(residuals).mean(), 1 - squared / spread if spread > 0 else np.nan])
