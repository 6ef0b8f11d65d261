"""Evaluation of a regression model on a test set."""

from __future__ import annotations

__all__ = ["evaluate_regression"]

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from privet.errors import InvalidArgumentError, count
from privet.evaluation.classifier import Floats
from privet.evaluation.interval import bootstrap_interval
from privet.evaluation.outputs import LabelledExamples, iterate_outputs
from privet.evaluation.result import RegressionEvaluation


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
            raise InvalidArgumentError(
                "the shapes of model(inputs) and of the targets", (tuple(outputs.shape), tuple(targets.shape)),
                f"({len(targets)},) or ({len(targets)}, 1): one number per example", "Wrap the model.",
            )  # fmt: skip
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
