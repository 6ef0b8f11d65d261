"""Evaluation of a regression model on a test set."""

from __future__ import annotations

__all__ = ["evaluate_regression"]

import numpy as np
import torch
from torch import nn

from privet.errors import InvalidArgumentError, count
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
) -> RegressionEvaluation:
    """Evaluate a model with one output on examples with targets, in evaluation mode and without gradients.

    The result has no noise and no guarantee, as for `evaluate`.

    Args:
        model: maps a batch of inputs to outputs of shape (B,) or (B, 1).
        dataset: pairs of an input tensor and a target, which is a number or a tensor with one element.
        batch_size, device, resamples: as for `evaluate`.

    Returns:
        Mean squared and mean absolute error, computed in float64, with 95 % intervals if requested.

    Raises:
        InvalidArgumentError: the data set is empty, an argument is out of range, or outputs or targets are not one number per
            example.

    >>> test = torch.utils.data.TensorDataset(torch.tensor([[1.0], [2.0]]), torch.tensor([1.5, 4.0]))
    >>> evaluate_regression(nn.Identity(), test).mean_absolute_error
    1.25
    """
    count("resamples", resamples, minimum=0)
    errors = []
    for found, targets in iterate_outputs(model, dataset, batch_size, device):
        if found.numel() != len(targets) or targets.numel() != len(targets):
            raise InvalidArgumentError(
                "the shapes of model(inputs) and of the targets", (tuple(found.shape), tuple(targets.shape)),
                f"({len(targets)},) or ({len(targets)}, 1): one number per example", "Wrap the model.",
            )  # fmt: skip
        errors.append((found.double().flatten() - targets.double().flatten()).numpy())
    residuals = np.concatenate(errors)
    columns = {"mean_squared_error": np.square(residuals), "mean_absolute_error": np.abs(residuals)}
    intervals = {}
    for name, column in columns.items() if resamples else ():
        low, high = bootstrap_interval(np.mean, column, resamples=resamples)
        intervals[name] = (max(0.0, low), high)
    squared, absolute = (float(column.mean()) for column in columns.values())
    return RegressionEvaluation(squared, absolute, len(residuals), intervals)
