"""Run a classifier over a test set and count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InvalidArgumentError, choice, count
from privet.evaluation.bins import BINS, equal_mass, equal_width, tabulate
from privet.evaluation.interval import bootstrap_interval
from privet.evaluation.outputs import LabelledExamples, outputs
from privet.evaluation.result import Evaluation, GroupAccuracy, Intervals

Floats = NDArray[np.float64]


class _Scores(NamedTuple):
    """What is kept of every example, (N,)."""

    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    losses: Floats  # nats
    squares: Floats  # Brier
    confidence: Floats  # of the prediction
    true_class: Floats  # probability of the label

    @property
    def correct(self) -> NDArray[np.bool_]:
        return np.equal(self.labels, self.predictions)


_EDGES: dict[str, Callable[[Floats, int], tuple[float, ...]]] = {
    "width": lambda _, bins: equal_width(bins),
    "mass": equal_mass,
}


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
) -> Evaluation:
    """Measure a classifier on labelled examples, in evaluation mode and without gradients.

    The result is computed from the examples without noise: evaluating on private data is a release outside the
    guarantee of the training. The command line evaluates on the public test set only.

    Args:
        model: maps a batch of inputs to outputs of shape (B, classes), read as logits. Left as it was found: every
            submodule gets its own training flag back, whatever happens.
        dataset: `len(dataset)` pairs of an input tensor and a label in [0, classes).
        batch_size: examples per forward pass, at least 1; changes memory and speed, not the result.
        device: where the model is and the inputs are sent; the device of the model's first parameter if None.
        bins: how many bins calibration is measured with, at least 1.
        binning: "width" for bins of equal width, "mass" for bins of about equally many examples.
        groups: what group each example belongs to, in the data set's order; None for no groups.
        resamples: how often the bootstrap draws the examples anew for the intervals; 0 for no intervals, 1000 is usual.

    Returns:
        Accuracy, mean negative log-likelihood in nats (summed in float64), Brier score, confusion counts, calibration (ECE, MCE,
        RMSCE and the table they are made of) and number of examples; intervals and accuracy by group as asked for.

    Raises:
        InvalidArgumentError: the data set is empty, an argument is out of range, the outputs are not of shape (B, classes), a
            label is not one of the classes, or there is not one group for every example.

    >>> test = torch.utils.data.TensorDataset(torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4))
    >>> found = evaluate(nn.Identity(), test, groups=["left", "right"] * 6)
    >>> found.accuracy, round(found.expected_calibration_error, 4), [(one.group, one.accuracy) for one in found.groups]
    (1.0, 0.4239, [('left', 1.0), ('right', 1.0)])
    """
    choice("binning", binning, _EDGES)
    count("resamples", resamples, minimum=0)
    if groups is not None and len(groups) != len(dataset):
        raise InvalidArgumentError("len(groups)", len(groups), f"one for each of the {len(dataset)} examples")
    parts = []
    for logits, labels in outputs(model, dataset, batch_size, device):
        scores, classes = _score(logits, labels)
        parts.append(scores)
    whole = _Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    edges = _EDGES[binning](whole.confidence, bins)
    confusion = np.bincount(whole.labels * classes + whole.predictions, minlength=classes**2).reshape(classes, classes)
    return Evaluation(
        accuracy=float(whole.correct.mean()),
        negative_log_likelihood=float(whole.losses.mean()),
        confusion=tuple(map(tuple, confusion.tolist())),
        examples=len(whole.labels),
        brier=float(whole.squares.mean()),
        calibration=tabulate(whole.confidence, whole.correct, edges),
        true_class=tabulate(whole.true_class, whole.correct, equal_width(bins)),
        intervals=_intervals(whole, edges, resamples) if resamples else {},
        groups=() if groups is None else _by_group(whole.correct, groups),
    )


def _score(outputs: Tensor, labels: Tensor) -> tuple[_Scores, int]:
    if outputs.ndim != 2 or len(outputs) != len(labels):
        shape = tuple(outputs.shape)
        raise InvalidArgumentError(
            "the shape of model(inputs)",
            shape,
            f"({len(labels)}, classes)",
            "Wrap the model so that it returns logits.",
        )
    logits, targets, classes = outputs.double(), labels.long(), outputs.shape[1]
    if targets.ndim != 1 or targets.min() < 0 or targets.max() >= classes:
        raise InvalidArgumentError(
            "labels",
            sorted(set(targets.flatten().tolist()))[:10],
            f"class numbers from 0 to {classes - 1}, one per example",
        )
    probabilities = logits.softmax(1)
    columns = (
        targets,
        logits.argmax(1),
        F.cross_entropy(logits, targets, reduction="none"),
        (probabilities - F.one_hot(targets, classes)).square().sum(1),
        probabilities.amax(1),
        probabilities.gather(1, targets[:, None])[:, 0],
    )
    return _Scores(*(column.numpy() for column in columns)), classes


# What intervals are given for, with the largest value that each can have. The MCE is not among them: it hangs on the one bin
# that is furthest off, often the emptiest, and intervals of the bootstrap hold it less than half of the time.
_MOST = {
    "accuracy": 1.0,
    "negative_log_likelihood": np.inf,
    "brier": 2.0,
    "expected_calibration_error": 1.0,
    "root_mean_square_calibration_error": 1.0,
}


def _numbers(scores: _Scores, edges: tuple[float, ...]) -> tuple[float, ...]:
    """Return the numbers that `_MOST` names."""
    table = tabulate(scores.confidence, scores.correct, edges)
    means = (float(column.mean()) for column in (scores.correct, scores.losses, scores.squares))
    return (*means, table.expected_error, table.root_mean_square_error)


def _intervals(scores: _Scores, edges: tuple[float, ...], resamples: int) -> Intervals:
    low, high = bootstrap_interval(lambda *columns: _numbers(_Scores(*columns), edges), *scores, resamples=resamples)
    most = np.array([*_MOST.values()])  # the basic interval knows nothing of what values are possible
    return dict(zip(_MOST, zip(low.clip(0, most).tolist(), high.clip(0, most).tolist(), strict=True), strict=True))


def _by_group(correct: NDArray[np.bool_], groups: Sequence[object]) -> tuple[GroupAccuracy, ...]:
    names, which = np.unique([str(group) for group in groups], return_inverse=True)
    sizes, hits = np.bincount(which, minlength=len(names)), np.bincount(which, correct, minlength=len(names))
    return tuple(GroupAccuracy(str(name), int(size), int(hit)) for name, size, hit in zip(names, sizes, hits, strict=True))
